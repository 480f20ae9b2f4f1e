"""From a region to calls of BLAS: an extern for each match."""

from __future__ import annotations

from uma.hookspecs import Blob, Extern, MatchedRegion, RegionMatch
from uma.relay import Call, Constant, Expr, Function, GlobalVar, IRModule, substitute
from uma.tir import Buffer, Param

from .supported import product_in

__all__ = ["lower"]


def lower(region: MatchedRegion) -> tuple[IRModule, GlobalVar]:
    """A function that does what the region does, and the externs that it calls."""
    externs: dict[Extern, str] = {}
    values: dict[Expr, Expr] = {param: param for param in region.function.params}
    for match in region.matches:
        extern, args = _extern(match)
        name = externs.setdefault(extern, f"{extern.routine}_{len(externs)}")
        var = IRModule.from_functions({name: extern}).global_var(name)
        values[match.value] = Call(var, [substitute(arg, values) for arg in args])
    entry = Function(region.function.params, substitute(region.function.body, values))
    module = IRModule.from_functions({**{name: extern for extern, name in externs.items()}, "entry": entry})
    return module, module.global_var("entry")


def _extern(match: RegionMatch) -> tuple[Extern, list[Expr]]:
    """The call of BLAS for a match, and what of the region it is given; constants are inside."""
    params, blobs, args = [], [], []
    for name in ("a", "b", "bias"):
        value = match.get(name)
        if isinstance(value, Constant):
            blobs.append(Blob(name, value.data.tobytes()))
        elif value is not None:
            params.append(Param(Buffer(name, value.shape, "float32"), "input"))
            args.append(match.operand(name))
    params.append(Param(Buffer("out", match.root.shape, "float32"), "output"))
    routine = "matmul_bias" if "bias" in match else "matmul"
    return Extern(tuple(params), routine, product_in(match).scalars(), tuple(blobs)), args
