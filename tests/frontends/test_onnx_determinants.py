"""Determinants, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder
from tests._support.onnx_compared import agree, with_

from uma.errors import ModelError
from uma.frontends import import_model

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 4, 4), (2, 3, 5, 5), (16, 16)])
def test_determinants(shape: tuple[int, ...]) -> None:
    agree(with_("Det"), {"x": RNG.standard_normal(shape).astype(np.float32)}, 22, 1e-5)


def test_what_must_be_exchanged_and_what_has_none() -> None:
    """A permutation, a matrix of zeros, and one of which a row is another's double."""
    permuted, double = np.eye(4)[[2, 0, 3, 1]], RNG.integers(-4, 5, (4, 4))
    double[2] = 2 * double[0]
    agree(with_("Det"), {"x": np.stack([permuted, np.zeros((4, 4)), double]).astype(np.float32)}, 11, 1e-5)


@pytest.mark.parametrize(
    ("shape", "what"),
    [((2, 3), "not square matrices of floats"), ((17, 17), "its matrices have 17 rows")],
)
def test_what_is_refused(shape: tuple[int, ...], what: str) -> None:
    b = OnnxBuilder(22)
    with pytest.raises(ModelError, match=what):
        import_model(b.model(b.node("Det", b.input("x", shape))).SerializeToString())
