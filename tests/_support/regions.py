"""A small model and what accelerators in tests do with it."""

from __future__ import annotations

import pytest
from tests._support.plugins import built, module_of
from tests._support.te_lowerings import kernel_of

from uma.errors import PluginError
from uma.lowering.build_targets import BuildTargets
from uma.program import Program
from uma.relay import Call, Expr, Function, GlobalVar, IRModule, Var, call, const
from uma.relay.module import func_type
from uma.relay.types import TensorType
from uma.relay.visit import rewrite, substitute

__all__ = ["CHAIN", "MANY", "OPS", "RELU", "SUM", "T", "X", "Y", "fault", "inlined", "steps", "whole"]

T = TensorType((2, 4), "int32")
X, Y = Var("x", T), Var("y", T)
RELU = call("nn.relu", X)
SUM = call("add", RELU, const([1, -2, 3, 4]))
MANY = call("multiply", SUM, SUM)
CHAIN = module_of(MANY, {RELU: ["first"], SUM: ["second"], MANY: ["third"]})
"""A relu, an addition of a constant, a multiplication; all of int32, so that nothing is rounded."""
OPS = ("nn.relu", "add", "multiply")


def steps(program: Program) -> list[tuple[str, tuple[str, ...]]]:
    """What runs, and for which layers."""
    return [(step.function, step.layers) for step in program.steps]


def whole(function: Function) -> tuple[IRModule, GlobalVar]:
    """One kernel for all of a region, called through an entry that gives it its constants."""
    body = inlined(function)
    kernel = kernel_of(body)
    loops = GlobalVar("loops", func_type(kernel.func))
    entry = Function(function.params, Call(loops, [*function.params, *map(const, kernel.bind())]))
    var = GlobalVar("entry", func_type(entry))
    return IRModule({loops: kernel.func, var: entry}), var


def inlined(function: Function) -> Function:
    """A region without composite functions."""

    def rule(expr: Expr) -> Expr | None:
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            return substitute(expr.op.body, dict(zip(expr.op.params, expr.args, strict=True)))
        return None

    return Function(function.params, rewrite(function.body, rule))


def fault(members: BuildTargets, module: IRModule = CHAIN) -> PluginError:
    """The one error that a build gives."""
    with pytest.raises(PluginError) as caught:
        built(module, members)
    assert "uma-npu 1.0" in f"{caught.value.what} {caught.value.where}"
    return caught.value
