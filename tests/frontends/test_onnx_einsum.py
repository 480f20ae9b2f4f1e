"""Einsum, against onnxruntime and numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder
from tests._support.onnx_compared import agree, of, random_inputs

from uma.errors import ModelError
from uma.frontends import import_model
from uma.relay.evaluate import evaluate
from uma.relay.expr import Call
from uma.relay.visit import post_order

EQUATIONS: dict[str, Sequence[Sequence[int]]] = {
    "ij->ji": [(2, 3)],
    "ij": [(2, 3)],
    "ba": [(2, 3)],
    "ii->i": [(3, 3)],
    "ii": [(3, 3)],
    "iji->ij": [(3, 2, 3)],
    "bij->b": [(2, 3, 4)],
    "ij,jk->ik": [(2, 3), (3, 4)],
    "ij,jk": [(2, 3), (3, 4)],
    "bij,bjk->bik": [(2, 3, 4), (2, 4, 5)],
    "bhqd,bhkd->bhqk": [(2, 3, 4, 5), (2, 3, 6, 5)],
    "bqhd,bkhd->bhqk": [(2, 4, 3, 5), (2, 6, 3, 5)],
    "i,j->ij": [(3,), (4,)],
    "i,i->": [(4,), (4,)],
    "i,i": [(4,), (4,)],
    "ij,ik->jk": [(4, 2), (4, 3)],
    "ij,ij->j": [(2, 3), (2, 3)],
    "ij,kl->ik": [(2, 3), (4, 5)],
    "...ij,...jk->...ik": [(2, 3, 4), (2, 4, 5)],
    "...ij->...": [(2, 3, 4)],
    "...,...": [(3, 4), (3, 4)],
    "b...,b...->...b": [(2, 3, 4), (2, 3, 4)],
    "ij,jk,kl->il": [(2, 3), (3, 4), (4, 5)],
    "ij , jk , k -> i": [(2, 3), (3, 4), (4,)],
    "ijk,jil->kl": [(2, 3, 4), (3, 2, 5)],
    "Aa,aB->AB": [(2, 3), (3, 4)],
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_equations(equation: str) -> None:
    inputs = random_inputs(*((shape, "float32") for shape in EQUATIONS[equation]))
    agree(of("Einsum", equation=equation), inputs, 13, 1e-5)


def test_integers_and_extents_that_broadcast() -> None:
    """The dots of operands may stand for different numbers of dimensions, as numpy's, though not onnx's, may."""
    several = (
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("...ij,...jk->...ik", [(1, 2, 3), (4, 3, 2)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (4, 5)]),
        ("...,...", [(3, 4), (4,)]),
    )
    for equation, shapes in several:
        inputs = random_inputs(*((shape, "int32") for shape in shapes))
        b = OnnxBuilder(13)
        names = [b.input(name, value.shape, "int32") for name, value in inputs.items()]
        module = import_model(b.model(b.node("Einsum", *names, equation=equation)).SerializeToString()).module
        np.testing.assert_array_equal(evaluate(module, inputs)[0], np.einsum(equation, *inputs.values()))


def test_a_product_with_a_constant_matrix_is_a_dense_layer() -> None:
    b = OnnxBuilder(13)
    weight = b.constant(np.ones((4, 2, 3)), "float32")
    y = b.node("Einsum", b.input("x", (5, 4)), weight, equation="nd,dhk->nhk")
    main = import_model(b.build(y)).module.main
    assert "nn.dense" in [expr.op_name for expr in post_order(main.body) if isinstance(expr, Call)]


REFUSED: dict[str, Sequence[Sequence[int]]] = {
    "ij->ji->ij": [(2, 3)],
    "ij,jk->ik": [(2, 3)],
    "i->i": [(2, 3)],
    "ijk->i": [(2, 3)],
    "i1->i": [(2, 3)],
    "...i->i": [(2, 3)],
    "ij->ii": [(2, 3)],
    "ij->ik": [(2, 3)],
    "ij->i2": [(2, 3)],
    "ij,jk->ik ": [(2, 3), (4, 5)],
    "ii->i ": [(2, 3)],
}


@pytest.mark.parametrize("equation", REFUSED)
def test_what_is_refused(equation: str) -> None:
    b = OnnxBuilder(13)
    names = [b.input(f"x{i}", shape) for i, shape in enumerate(REFUSED[equation])]
    data = b.model(b.node("Einsum", *names, equation=equation)).SerializeToString()
    with pytest.raises(ModelError, match=r"its equation .* does not fit operands of|are both 'i'"):
        import_model(data)
