"""Sparse constants of TFLite files: those that do not fit, and weights that no DENSIFY makes dense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests._support.tflite_builder import TFLiteBuilder
from tests._support.tflite_sparse_cases import sparse

from uma.errors import ModelError
from uma.frontends.tflite import from_tflite
from uma.frontends.tflite.sparse import Sparsity, densified
from uma.relay.evaluate import evaluate

ARRAY = np.array([[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 0, 0], [0, 0, 4, 5]], np.float32)


def weighted(edit: Callable[[Any], object] = lambda sparsity: None) -> bytes:
    """A dense layer whose weight is sparse, in blocks of two columns."""
    b = TFLiteBuilder()
    weight = sparse(b, ARRAY, [0, 1, 2], [False, True, False], {1: 2})
    edit(b.graph.tensors[weight].sparsity)
    x, y = b.input([1, 4], name="x"), b.tensor([1, 4])
    b.op("FULLY_CONNECTED", [x, weight, -1], [y])
    return b.finish(y)


def test_a_sparse_weight_is_a_dense_one() -> None:
    x = np.array([[1, 10, 100, 1000]], np.float32)
    (result,) = evaluate(from_tflite(weighted()).module, {"x": x})
    np.testing.assert_array_equal(result, x @ ARRAY.T)


def change(path: str, value: object) -> Callable[[Any], object]:
    *steps, last = path.split(".")

    def edit(sparsity: Any) -> None:
        for step in steps:
            sparsity = sparsity[int(step)] if step.isdigit() else getattr(sparsity, step)
        setattr(sparsity, last, value)

    return edit


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("traversalOrder", [0, 1], r"traverses \(0, 1\), with blocks of \(1,\): not its 2 dimensions"),
        ("traversalOrder", [0, 0, 2], r"traverses \(0, 0, 2\)"),
        ("traversalOrder", [0, 1, 3], r"traverses \(0, 1, 3\)"),
        ("blockMap", [2], r"with blocks of \(2,\)"),
        ("dimMetadata.2.denseSize", 3, "has blocks of 3 along its dimension 1 of 4"),
        ("dimMetadata.2.denseSize", 0, "has blocks of 0 along its dimension 1 of 4"),
        ("dimMetadata.2.format", 1, "has blocks of 0 along its dimension 1 of 4"),
        ("dimMetadata.2.denseSize", 4, "a coordinate beyond its dimension of 1"),
        ("dimMetadata.0.denseSize", 5, "has a dimension of 5 elements, not 4"),
        ("dimMetadata.1.arraySegments.values", [0, 2, 2, 3], "has 4 segments, too few for 4 rows"),
        ("dimMetadata.1.arraySegments.values", [0, 2, 2, 3, 9], "has segments beyond its 4 coordinates"),
        ("dimMetadata.1.arraySegments.values", [0, 2, 1, 3, 4], "has segments beyond its 4 coordinates"),
        ("dimMetadata.1.arraySegments.values", [0, 2, 2, 3, 3], "has 6 elements, and 8 are stored"),
        ("dimMetadata.1.arrayIndices.values", [0, 1, -1, 1], "has a coordinate beyond its dimension of 2"),
        ("dimMetadata.1.arrayIndicesType", 0, "has segments beyond its 0 coordinates"),
    ],
)
def test_sparse_forms_that_do_not_fit(path: str, value: object, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_tflite(weighted(change(path, value)))


def test_a_sparse_constant_that_would_be_huge() -> None:
    b = TFLiteBuilder()
    constant = sparse(b, ARRAY, [0, 1], [True, True])
    b.graph.tensors[constant].shape = [2**15, 2**15]
    x, y = b.input([1]), b.tensor([2**15, 2**15])
    b.op("ADD", [x, constant], [y])
    with pytest.raises(ModelError, match="import"):
        from_tflite(b.finish(y))


def test_densify_of_a_value_that_is_computed() -> None:
    b = TFLiteBuilder()
    x, y = b.input([2]), b.tensor([2])
    b.op("DENSIFY", [x], [y])
    with pytest.raises(ModelError, match="its data is not known at import"):
        from_tflite(b.finish(y))


def test_a_scalar() -> None:
    assert densified(np.array([3], np.int8), (), Sparsity((), (), ())).tolist() == 3
