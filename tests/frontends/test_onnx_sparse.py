"""Sparse initialisers, beside onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime, sparse_tensor

from uma.errors import ModelError
from uma.frontends import import_model
from uma.relay.evaluate import evaluate
from uma.relay.transform import canonicalise

# Of each operator: shapes of its data and its weight, and attributes.
LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "Conv": ((1, 3, 6, 5), (4, 3, 3, 2), {"strides": [2, 1]}),
    "ConvTranspose": ((1, 3, 4, 3), (3, 2, 2, 2), {"strides": [2, 2]}),
    "Gemm": ((2, 5), (4, 5), {"transB": 1}),
    "MatMul": ((3, 2, 5), (3, 5, 4), {}),
    "Add": ((3, 4), (4,), {}),
    "Gather": ((3,), (5, 2), {}),
}


def sparse(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A third of the elements is not 0."""
    return np.where(rng.random(shape) < 1 / 3, rng.normal(size=shape), 0).astype(np.float32)


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("op", LAYERS)
def test_weights(op: str, linear: bool) -> None:
    shape, weight, attrs = LAYERS[op]
    rng = np.random.default_rng(len(op))
    b = OnnxBuilder(17)
    w = b.sparse_constant(sparse(rng, weight), linear)
    x = np.array([4, 0, 2]) if op == "Gather" else rng.normal(size=shape).astype(np.float32)
    data = b.input("x", shape, x.dtype.name)
    model = b.model(b.node(op, *([w, data] if op == "Gather" else [data, w]), **attrs)).SerializeToString()
    (ours,) = evaluate(canonicalise(import_model(model).module), {"x": x})
    (theirs,) = run_onnxruntime(model, {"x": x})
    np.testing.assert_allclose(ours, theirs, 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint8", "int16", "int32", "int64", "bool"])
@pytest.mark.parametrize("values", [[], [0, 3, 0, 0, 1, 0]])
def test_types_of_elements(dtype: str, values: list[int]) -> None:
    """As an initialiser, and as the value of a Constant; one has no elements that are not 0."""
    array = np.resize(np.array(values or [0], dtype), (2, 3))
    for linear in (True, False):
        b = OnnxBuilder(17)
        constant = b.node("Constant", sparse_value=sparse_tensor(array, linear))
        data = b.model(b.node("Identity", b.sparse_constant(array, linear)), constant).SerializeToString()
        for ours in evaluate(import_model(data).module, {}):
            assert ours.dtype.name == dtype
            np.testing.assert_array_equal(ours, array)


def test_order_does_not_matter() -> None:
    b = OnnxBuilder(17)
    made = helper.make_sparse_tensor(numpy_helper.from_array(np.float32([1, 2]), "w"), indices_of([3, 0]), [2, 2])
    b.sparse.append(made)
    (ours,) = evaluate(import_model(b.model(b.node("Relu", "w")).SerializeToString()).module, {})
    assert ours.tolist() == [[2, 0], [0, 1]]


def indices_of(values: Any, dtype: str = "int64") -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, dtype))


VALUES = numpy_helper.from_array(np.float32([1, 2]), "w")


def indices(values: Any, dtype: str = "int64") -> Callable[[onnx.SparseTensorProto], object]:
    return lambda tensor: tensor.indices.CopyFrom(indices_of(values, dtype))


FAULTS: dict[str, Callable[[onnx.SparseTensorProto], object]] = {
    "values of shape (2,) with indices int32 of shape (2,)": indices([0, 3], "int32"),
    "values of shape (2,) with indices int64 of shape (3,)": indices([0, 1, 3]),
    "values of shape (2,) with indices int64 of shape (2, 1)": indices([[0], [3]]),
    "values of shape (1, 2) with indices int64 of shape (2,)": lambda t: t.values.dims.insert(0, 1),
    "has an index outside of its shape (2, 2)": indices([0, 4]),
    "is sparse, and has an index outside of its shape (2, 2)": indices([[0, 0], [0, 2]]),
    "'w' is sparse, and has an index outside of its shape (2, 2)": indices([0, -1]),
    "has an index twice": indices([[1, 0], [1, 0]]),
    "'w' has the impossible shape (-2, 2)": lambda t: t.dims.__setitem__(0, -2),
    "'w' has the impossible shape (4294967296, 4294967296)": lambda t: t.dims.__setitem__(slice(0, 2), [2**32] * 2),
    "'w' (values) has 8 bytes, its shape (3,) 12": lambda t: t.values.dims.__setitem__(0, 3),
    "'w' (indices) has elements of ONNX's type STRING": lambda t: setattr(t.indices, "data_type", 8),
    "the constants that are computed at import exceed": lambda t: t.dims.__setitem__(slice(0, 2), [2**14] * 2),
}


@pytest.mark.parametrize("message", FAULTS)
def test_faults(message: str) -> None:
    b = OnnxBuilder(17)
    b.sparse.append(helper.make_sparse_tensor(VALUES, indices_of([0, 3]), [2, 2]))
    FAULTS[message](b.sparse[0])
    with pytest.raises(ModelError) as caught:
        import_model(b.model(b.node("Relu", "w", name="layer")).SerializeToString())
    assert message in str(caught.value) and "'layer'" in str(caught.value)


def test_two_initialisers_of_one_name() -> None:
    b = OnnxBuilder(17)
    b.sparse.append(helper.make_sparse_tensor(VALUES, indices_of([0, 3]), [2, 2]))
    b.constant([1.0], "float32", "w")
    with pytest.raises(ModelError, match="two initialisers are called 'w'"):
        import_model(b.model(b.node("Relu", "w")).SerializeToString())
