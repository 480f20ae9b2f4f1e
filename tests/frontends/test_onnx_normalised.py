"""Normalisations of data whose mean is large beside its spread: no less exact than onnxruntime, against float64."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests._support.built_layers import PLUGINS, target_for
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime

import uma

MEANS = (0.0, 1e2, 1e4)
FACTOR = 2.0
"""How much larger than onnxruntime's the largest error of a kind, mean and shape may be."""
NOISE = 4e-7
"""Rounding errors of results near 4, the largest of some thousand: no error of onnxruntime's is taken for less."""
MOST = 3e-6
"""The largest error, whatever onnxruntime's is."""


def exact(x: np.ndarray, axes: tuple[int, ...], epsilon: float, is_centred: bool) -> np.ndarray:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axes, keepdims=True) if is_centred else wide
    return np.asarray(centred / np.sqrt(np.square(centred).mean(axes, keepdims=True) + epsilon))


def layer(b: OnnxBuilder, x: str) -> str:
    scale = b.node("Expand", b.constant(np.ones(1, np.float32)), b.node("Shape", x, start=-1))
    made: str = b.node("LayerNormalization", x, scale, axis=-1)
    return made


def instance(b: OnnxBuilder, x: str) -> str:
    scale, bias = b.constant(np.ones(3, np.float32)), b.constant(np.zeros(3, np.float32))
    made: str = b.node("InstanceNormalization", x, scale, bias)
    return made


def grouped(b: OnnxBuilder, x: str) -> str:
    scale, bias = b.constant(np.ones(3, np.float32)), b.constant(np.zeros(3, np.float32))
    made: str = b.node("GroupNormalization", x, scale, bias, num_groups=3)
    return made


def mean_variance(b: OnnxBuilder, x: str) -> str:
    made: str = b.node("MeanVarianceNormalization", x, axes=[2, 3])
    return made


def root_mean_square(b: OnnxBuilder, x: str) -> str:
    square = b.node("Mul", x, x)
    mean = b.node("ReduceMean", square, b.constant([-1], "int64"), keepdims=1)
    made: str = b.node("Div", x, b.node("Sqrt", b.node("Add", mean, b.constant(1e-5, "float32"))))
    return made


KINDS = {
    "layer": (layer, (-1,), 1e-5),
    "instance": (instance, (2, 3), 1e-5),
    "grouped": (grouped, (2, 3), 1e-5),
    "mean_variance": (mean_variance, (2, 3), 0.0),
    "root_mean_square": (root_mean_square, (-1,), 1e-5),
}


def check(target: str, shapes: Sequence[tuple[int, ...]], seeds: int, folder: Path) -> None:
    """All kinds, means and seeds in one image."""
    b = OnnxBuilder(21)
    inputs: dict[str, np.ndarray] = {}
    cases, outputs = [], []
    for shape, mean, seed in itertools.product(shapes, MEANS, range(seeds)):
        for name, (build, axes, epsilon) in KINDS.items():
            x = b.input(f"x{len(inputs)}", shape)
            inputs[x] = (np.random.default_rng(seed).standard_normal(shape) + mean).astype(np.float32)
            outputs.append(build(b, x))
            cases.append(((name, shape, mean), exact(inputs[x], axes, epsilon, name != "root_mean_square")))
    data = b.build(*outputs)
    path = folder / "normalised.onnx"
    path.write_bytes(data)
    theirs = run_onnxruntime(data, inputs)
    ours = uma.build(path, target, plugins=PLUGINS).run(inputs)
    largest: dict[object, list[float]] = {}
    for (key, wanted), output, their in zip(cases, outputs, theirs, strict=True):
        errors = largest.setdefault(key, [0.0, 0.0])
        for side, result in enumerate((ours[output], their)):
            # A variance of onnxruntime's that comes out negative makes NaN.
            errors[side] = max(errors[side], float(np.nan_to_num(np.abs(result - wanted), nan=np.inf).max()))
    for key, (our, their_error) in largest.items():
        assert our <= FACTOR * max(their_error, NOISE), (target, key, our, their_error)
        assert our < MOST, (target, key, our)


def test_a_large_mean_costs_no_digits(tmp_path: Path) -> None:
    check("c", [(1, 3, 2, 96)], 2, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["x86-64", "avx2", "avx512_vnni", "asimd"])
def test_a_large_mean_costs_no_digits_at_any_width(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_for(name, "gcc", monkeypatch)
    check(target, [(1, 3, 1, 33), (2, 3, 4, 96), (1, 3, 5, 77), (1, 3, 1, 1024), (1, 3, 1, 4100)], 5, tmp_path)
