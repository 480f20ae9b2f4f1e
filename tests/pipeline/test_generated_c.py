"""The generated C, byte for byte as it was reviewed: the text of small models, digests of larger ones.

A change that means to leave the C alone proves it here. One that means to change it writes what it makes instead,
``pytest --update-golden tests/pipeline/test_generated_c.py`` (with ``UMA_SOAK=1`` for all), and `git diff` tells what
became different: a file's name in ``*.sha256`` is one that an artifact has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from tests._support.conv_nets import tc_resnet8, to_onnx
from tests._support.real_models import FILES, FLOAT, INT8
from tests._support.residual_nets import residual_block
from tests._support.small_models import NET, PAIR
from tests._support.unsigned_twins import qdq, tflite

import uma
from uma.artifact import Artifact
from uma.plugins import PluginEntry, PluginHost

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("matrix_unit", "uma_matrix_unit", "uma-matrix-unit", "0.1.0"),
        PluginEntry("stream_machine", "uma_stream_machine", "uma-stream-machine", "0.1.0"),
        PluginEntry("ultra_trail", "uma_ultratrail", "uma-ultratrail", "0.1.0"),
        PluginEntry("ultratrail", "uma_ultratrail", "uma-ultratrail", "0.1.0"),
    ]
)
C = "c -mtriple=x86_64-linux-gnu"
"""The host on every machine: loops differ by what its CPU can."""
MATRIX_UNIT, STREAM_MACHINE = f"{C} -accelerators=matrix_unit", f"{C} -accelerators=stream_machine"
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"

OWN: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "small": (".py", NET.encode, C),
    "digits": (".onnx", DIGITS.read_bytes, C),
    "residual": (".onnx", lambda: residual_block(depthwise=True), C),
    "residual_on_matrix_unit": (".onnx", residual_block, MATRIX_UNIT),
    "residual_on_stream_machine": (".onnx", residual_block, STREAM_MACHINE),
    "tc_resnet8_on_ultra_trail": (".onnx", lambda: to_onnx(tc_resnet8(), "sum"), f"ultra_trail; {C}"),
    "pair": (".py", PAIR.encode, C),
    "unsigned_tflite": (".tflite", lambda: tflite("uint8"), C),
    "unsigned_qdq_on_matrix_unit": (".onnx", lambda: qdq("uint8"), MATRIX_UNIT),
    "unsigned_qdq_on_stream_machine": (".onnx", lambda: qdq("uint8"), STREAM_MACHINE),
    "residual_in_vectors": (".onnx", lambda: residual_block(depthwise=True), f"{C} -mcpu=x86-64-v3"),
    "tc_resnet8": (".onnx", lambda: to_onnx(tc_resnet8(), "average"), C),
}
"""The repository's own models: suffix and content of the file, and target."""

TEXTS = tuple(OWN)[:6]
"""Those whose C is kept as text."""

OTHERS = {"nabu": "okay_nabu.tflite", "tcresnet8_fp32": "tcresnet8_fp32.onnx"}
SHAPES = {"ppocr_cls": {"x": (1, 3, 48, 192)}}

REAL: dict[str, tuple[str, str]] = {
    **{name: (f"others/{file}", C) for name, file in OTHERS.items()},
    **{f"{name}_on_matrix_unit": (f"mlperf-tiny/{INT8[name]}", MATRIX_UNIT) for name in ("ad", "kws", "resnet8")},
    **{f"{name}_on_stream_machine": (f"mlperf-tiny/{file}", STREAM_MACHINE) for name, file in INT8.items()},
    "nabu_on_stream_machine": ("others/okay_nabu.tflite", STREAM_MACHINE),
}
"""The real models that are built here, by file and target."""

SLOW: dict[str, tuple[str, str]] = {
    "vww_on_matrix_unit": (f"mlperf-tiny/{INT8['vww']}", MATRIX_UNIT),
    "nabu_on_matrix_unit": ("others/okay_nabu.tflite", MATRIX_UNIT),
    "ppocr_cls": ("others/ppocr_cls.onnx", C),
    **{f"{name}_fp32_on_matrix_unit": (f"mlperf-tiny/{file}", MATRIX_UNIT) for name, file in FLOAT.items()},
    **{f"{name}_fp32_on_stream_machine": (f"mlperf-tiny/{file}", STREAM_MACHINE) for name, file in FLOAT.items()},
    **{f"{name}_onnx_on_matrix_unit": (f"mlperf-tiny-onnx/{name}_int8.onnx", MATRIX_UNIT) for name in INT8},
    **{f"{name}_onnx_on_stream_machine": (f"mlperf-tiny-onnx/{name}_int8.onnx", STREAM_MACHINE) for name in INT8},
}

Golden = Callable[[str, str], None]


def digests(artifact: Artifact) -> str:
    """The digest of each file that was made of the model: not of what is the same for all, and not of the Makefile."""
    made = {name: content for name, content in artifact.files.items() if name.startswith(f"{artifact.name}")}
    assert f"{artifact.name}.c" in made
    return "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(made.items()))


def built(models: Path, name: str, file: str, target: str, prefix: str = "m_") -> Artifact:
    if not (models / file).is_file():
        pytest.skip(f"no {file} among the real models")
    return uma.build(models / file, target, name=f"{prefix}{name}", shapes=SHAPES.get(name), plugins=PLUGINS)


@pytest.mark.few(6)
@pytest.mark.parametrize("name", OWN)
def test_c_of_our_own_models(name: str, golden: Golden, tmp_path: Path) -> None:
    suffix, content, target = OWN[name]
    (tmp_path / f"{name}{suffix}").write_bytes(content())
    artifact = uma.build(tmp_path / f"{name}{suffix}", target, name=f"m_{name}", plugins=PLUGINS)
    golden(digests(artifact), f"{name}.sha256")
    if name in TEXTS:
        golden(artifact.files[f"m_{name}.c"].decode(), f"{name}.c")


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak) if name.startswith("vww") else name for name in FILES]
)
def test_c_of_models_of_mlperf_tiny(name: str, models: Path, golden: Golden) -> None:
    golden(digests(built(models, name, FILES[name], C, "")), f"{name}.sha256")


@pytest.mark.few(4)
@pytest.mark.parametrize("name", REAL)
def test_c_of_real_models(name: str, models: Path, golden: Golden) -> None:
    golden(digests(built(models, name, *REAL[name])), f"{name}.sha256")


@pytest.mark.soak
@pytest.mark.parametrize("name", SLOW)
def test_c_of_more_models(name: str, models: Path, golden: Golden) -> None:
    golden(digests(built(models, name, *SLOW[name])), f"{name}.sha256")


def test_every_golden_file_is_of_a_model() -> None:
    names = {f"{name}.sha256" for name in (*OWN, *FILES, *REAL, *SLOW)} | {f"{name}.c" for name in TEXTS}
    assert {path.name for path in (Path(__file__).parent / "golden" / "test_generated_c").iterdir()} == names
