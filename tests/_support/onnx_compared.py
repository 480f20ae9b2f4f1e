"""One operator of ONNX on random data: what is imported computes what onnxruntime does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime

from uma.frontends import import_model
from uma.relay.evaluate import evaluate
from uma.relay.transform import canonicalise

__all__ = ["Build", "agree", "of", "random_inputs", "results", "with_"]

Build = Callable[..., Any]
"""Takes a builder and the names of the inputs, gives the name of the result, or the names of several."""


def of(op: str, **attrs: Any) -> Build:
    """A node of all inputs."""
    return lambda b, *inputs: b.node(op, *inputs, **attrs)


def with_(op: str, *constants: Any, **attrs: Any) -> Build:
    """A node whose further inputs are constants; None is one that is left out."""

    def build(b: OnnxBuilder, *inputs: str) -> Any:
        given = ["" if value is None else b.constant(value) for value in constants]
        return b.node(op, *inputs, *given, **attrs)

    return build


def random_inputs(*types: tuple[Sequence[int], str], seed: int = 0) -> dict[str, np.ndarray]:
    """Data for inputs x0, x1, ...: normal floats, integers from -99, or 0 where they are unsigned, to 98."""
    rng = np.random.default_rng(seed)
    made = {}
    for index, (shape, dtype) in enumerate(types):
        if dtype.startswith("float"):
            value = np.asarray(rng.standard_normal(shape))
        elif dtype == "bool":
            value = np.asarray(rng.integers(0, 2, shape))
        else:
            value = np.asarray(rng.integers(0 if dtype.startswith("u") else -99, 99, shape))
        made[f"x{index}"] = value.astype(dtype)
    return made


def results(build: Build, inputs: dict[str, np.ndarray], opset: int = 18) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What the canonical form computes, and what onnxruntime does."""
    b = OnnxBuilder(opset)
    made = build(b, *(b.input(name, value.shape, value.dtype.name) for name, value in inputs.items()))
    data = b.build(*([made] if isinstance(made, str) else made))
    with np.errstate(all="ignore"):
        ours = evaluate(canonicalise(import_model(data).module), inputs)
    try:
        return list(ours), run_onnxruntime(data, inputs)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as error:
        pytest.skip(f"onnxruntime {onnxruntime.__version__}: {error}")


def agree(build: Build, inputs: dict[str, np.ndarray], opset: int = 18, tolerance: float = 1e-6) -> None:
    """Fails unless integers are equal, and floats within ``tolerance`` of the largest that is finite."""
    ours, theirs = results(build, inputs, opset)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        if one.dtype.kind == "f":
            largest = float(np.abs(other[np.isfinite(other)]).max(initial=0))
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * largest)
        else:
            np.testing.assert_array_equal(one, other)
