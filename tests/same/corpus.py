"""The models that both sides build, as files: real ones, networks of the tests, and random ones of a seed."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

import hypothesis
import numpy as np
import onnx
from hypothesis import strategies as st
from tests._support import (
    conv_nets,
    npu_graphs,
    tflite_cases,
    tflite_control,
    tflite_pairs_cases,
    tflite_picks_cases,
    tflite_recurrent_cases,
    tflite_sparse_cases,
    tflite_window_cases,
)
from tests._support.quantised_nets import quantised_net
from tests._support.residual_nets import residual_block
from tests.networks import NETWORKS
from tests.networks.open_shapes import bert_tiny
from tests.same import graphs
from tests.same.errors import SameError
from tests.same.sizes import estimate_ram_bytes

__all__ = ["COUNT", "Model", "Source", "draw_models", "make_networks", "model_folder", "read_models", "write"]

COUNT = 300
"""How many random models there are."""


@dataclass(frozen=True)
class Model:
    """A model file of the corpus.

    Args:
        name: its path below the folder of the corpus, without suffix; patterns match it.
        file: the path with suffix.
        digest: the SHA-256 of the file.
        shapes: values of ``--shape`` under which all dimensions are known.
        ranges: the same where dimensions stay open; empty if the file leaves none open.
        ram_bytes: a limit of RAM that is a little tight.
    """

    name: str
    file: str
    digest: str
    shapes: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    ram_bytes: int = 0


@dataclass(frozen=True)
class Source:
    """A model file before it is written."""

    name: str
    content: bytes
    shapes: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()


# --- real models -----------------------------------------------------------------------------------------------------

OPEN_REAL = MappingProxyType(
    {
        "magika_v3_3": (("bytes=1,2048",), ("bytes=1..2,2048",)),
        "ppocr_cls": (("x=1,3,48,192",), ("x=1,3,48,32..192",)),
    }
)
"""Real models that leave dimensions open: values of ``--shape`` that fix them, and that bound them."""


def model_folder(root: Path) -> Path:
    """Return the folder of real models: ``$UMA_MODELS``, else ``../shared/models`` (as conftest.py does).

    Raises:
        SameError: there is none.
    """
    named = os.environ.get("UMA_MODELS")
    folder = Path(named) if named else root.parent / "shared" / "models"
    if not folder.is_dir():
        raise SameError(f"there are no real models in {folder}", "name their folder with UMA_MODELS=")
    return folder


def read_models(folder: Path) -> Iterator[Source]:
    """Yield the models below a folder, in the order of their names.

    Raises:
        SameError: there are none.
    """
    paths = sorted(path for suffix in ("onnx", "tflite") for path in folder.rglob(f"*.{suffix}"))
    if not paths:
        raise SameError(f"there are no models in {folder}", "name a folder of ONNX or TFLite files with UMA_MODELS=")
    for path in paths:
        yield Source(path.relative_to(folder).as_posix(), path.read_bytes(), *OPEN_REAL.get(path.stem, ()))


def make_networks() -> Iterator[Source]:
    """Yield the networks of the tests: a transformer leaves its dimensions open, some are made for accelerators."""
    for name, make in NETWORKS.items():
        yield Source(f"net-{name}.onnx", make().SerializeToString())
    shapes = ("batch=1", "tokens=12"), ("batch=1", "tokens=1..12")
    yield Source("net-open_bert.onnx", bert_tiny(layers=1, width=16).SerializeToString(), *shapes)
    yield Source("fixed-tc_resnet8.onnx", conv_nets.to_onnx(conv_nets.tc_resnet8()))
    yield Source("qdq-residual.onnx", residual_block())
    yield Source("qdq-residual_depthwise.onnx", residual_block(depthwise=True))


# --- random models ---------------------------------------------------------------------------------------------------

Draw = Callable[[np.random.Generator], "bytes | onnx.ModelProto"]


def _draw_seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def _draw_fixed_point(rng: np.random.Generator) -> bytes:
    """Draw a network in the arithmetic of UltraTrail."""
    net = conv_nets.random_net(_draw_seed(rng), int(rng.integers(1, 5)))
    return conv_nets.to_onnx(net, "average" if rng.random() < 0.5 else "sum")


def _draw_npu(rng: np.random.Generator) -> bytes:
    """Draw a chain of operators that NPUs have."""
    dtype = "int8" if rng.random() < 0.85 else "int16"
    return npu_graphs.Graph(_draw_seed(rng), npu_graphs.OPERATORS, dtype).model


_MODULES = (tflite_pairs_cases, tflite_picks_cases, tflite_recurrent_cases, tflite_sparse_cases, tflite_window_cases)
"""Modules that register cases of TFLite operators by being imported."""

_OPERATORS = tuple(sorted(tflite_cases.CASES))


def _draw_tflite(rng: np.random.Generator) -> bytes:
    """Draw a single operator of TFLite, or several in control flow."""
    if rng.random() < 0.02:
        return tflite_control.nested_control()
    name = _OPERATORS[rng.integers(len(_OPERATORS))]
    return _draw_example(tflite_cases.CASES[name], _draw_seed(rng))


def _draw_example(strategy: st.SearchStrategy[tflite_cases.Case], seed: int) -> bytes:
    """Draw a few examples and return the last: the first ones are simple."""
    examples: list[bytes] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=5,
        database=None,
        derandomize=False,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def collect(case: tflite_cases.Case) -> None:
        examples.append(case[0])

    collect()
    return examples[-1]


FAMILIES: Mapping[str, tuple[int, Draw]] = MappingProxyType(
    {
        "image": (40, graphs.draw_image),
        "half": (8, lambda rng: graphs.draw_image(rng, half=True)),
        "sequence": (24, graphs.draw_sequence),
        "open": (24, lambda rng: graphs.draw_sequence(rng, is_open=True)),
        "operators": (44, graphs.draw_operators),
        "control": (12, graphs.draw_control_flow),
        "qdq": (32, lambda rng: quantised_net(_draw_seed(rng)).model),
        "fixed": (28, _draw_fixed_point),
        "npu": (48, _draw_npu),
        "tflite": (40, _draw_tflite),
    }
)
"""Families of random models: how many of `COUNT` belong to each, and what draws one."""

OPEN_SHAPES = MappingProxyType({"open": (("steps=9",), ("steps=1..9",))})
"""Families that leave dimensions open."""


def draw_models(seed: int, share: float = 1.0) -> Iterator[Source]:
    """Yield the random models of a seed: the same bytes each time.

    Args:
        seed: of all families.
        share: of the models of each family that are drawn, at least one.
    """
    for position, (family, (count, draw)) in enumerate(FAMILIES.items()):
        for number in range(max(1, round(count * share))):
            rng = np.random.default_rng([seed, position, number])
            with _hiding_warnings():
                model = draw(rng)
            content = model if isinstance(model, bytes) else model.SerializeToString()
            suffix = "tflite" if content[4:8] == b"TFL3" else "onnx"
            yield Source(f"{family}-{number:02}.{suffix}", content, *OPEN_SHAPES.get(family, ()))


@contextmanager
def _hiding_warnings() -> Iterator[None]:
    """Hide what onnxruntime's quantiser logs about each model."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(disabled)


# --- files -----------------------------------------------------------------------------------------------------------


def write(folder: Path, sources: Sequence[Source]) -> tuple[Path, list[Model]]:
    """Write model files below ``folder``; return their folder, named by a digest, and the list."""
    folder.mkdir(parents=True, exist_ok=True)
    draft, models = Path(tempfile.mkdtemp(dir=folder)), []
    for source in sources:
        path = draft / source.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.content)
        digest, name = hashlib.sha256(source.content).hexdigest(), source.name.rpartition(".")[0]
        limit = estimate_ram_bytes(source.content, source.shapes)
        models.append(Model(name, source.name, digest, source.shapes, source.ranges, limit))
    manifest = json.dumps([asdict(model) for model in models], indent=1)
    (draft / "manifest.json").write_text(manifest)
    target = folder / hashlib.sha256(manifest.encode()).hexdigest()[:16]
    if target.exists():
        shutil.rmtree(draft)
    else:
        draft.rename(target)
    return target, models
