"""Running sums and products along an axis whose extent is fixed beside an open one."""

from __future__ import annotations

from uma.contract.fusion import Fusion
from uma.lowering.strategy_dispatch import declared_loops
from uma.relay.expr import Function, Var, call
from uma.relay.types import TensorType
from uma.tir.form.symbolic_dims import parse_extents


def test_open_extents_take_the_tensor_expressions() -> None:
    made = call("cumsum", Var("x", TensorType(parse_extents("n[1:4], 6"), "float32")), axis=1)
    fusion = Fusion(Function([made.args[0]], made))
    assert declared_loops(fusion) is None and fusion.kernel().symbols
