"""The smallest back-end: target kind ``null_unit``, which takes ReLU of int8, and gives loops that run on the host."""

from __future__ import annotations

from uma.hookspecs import LoweredKernel, Pattern, hookimpl
from uma.relay.pattern import Match, op, wildcard
from uma.targets import Target, TargetKind
from uma.tir import maximum, te

__all__ = ["KIND", "lower", "patterns", "register_target"]

UMA_PLUGIN_API = (0, 7)

KIND = TargetKind("null_unit", help="the smallest back-end: takes one op", device_type="npu", default_host="c")


def lower(match: Match, target: Target) -> LoweredKernel:
    """The loops for one match."""
    x = te.placeholder(match["x"].shape, "int8", "x")
    return LoweredKernel(te.prim_func([x], [te.compute(x.shape, lambda *i: maximum(x[i], 0), "relu")]).func)


@hookimpl
def register_target() -> list[TargetKind]:
    """The one kind, ``null_unit``."""
    return [KIND]


@hookimpl
def patterns() -> list[Pattern]:
    """ReLU of int8."""
    return [Pattern("null_unit.relu", op("nn.relu")(wildcard("int8").named("x")), lower=lower)]
