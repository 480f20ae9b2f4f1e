"""From a region to calls of BLAS: an extern for each match."""

from __future__ import annotations

from uma.hookspecs import Blob, Extern, Refuse
from uma.relay import Call, Constant, Expr, Function, GlobalVar, IRModule, Op, Tuple, TupleGetItem, post_order
from uma.relay.pattern import Match
from uma.tir import Buffer, Param

from .supported import matches_in, product_in

__all__ = ["lower"]


def lower(region: Function) -> tuple[IRModule, GlobalVar]:
    """A function that does what the region does, and the externs that it calls.

    Raises:
        Refuse: the model itself made the region, of ops that no pattern took.
    """
    matches = dict(matches_in(region))
    externs: dict[Extern, str] = {}
    done: dict[Expr, Expr] = {param: param for param in region.params}
    for expr in post_order(region.body):
        if isinstance(expr, Call):
            if isinstance(expr.op, Op):
                raise Refuse(f"BLAS is called for what its patterns take; this is {expr.op.name} by itself", at=expr)
            extern, args = _extern(expr, matches[expr])
            name = externs.setdefault(extern, f"{extern.routine}_{len(externs)}")
            done[expr] = Call(IRModule.of({name: extern}).global_var(name), [done[arg] for arg in args])
        elif isinstance(expr, Tuple):
            done[expr] = Tuple([done[field] for field in expr.fields])
        elif isinstance(expr, TupleGetItem):
            done[expr] = TupleGetItem(done[expr.tuple], expr.index)
    entry = Function(region.params, done[region.body])
    module = IRModule.of({**{name: extern for extern, name in externs.items()}, "entry": entry})
    return module, module.global_var("entry")


def _extern(call: Call, found: Match) -> tuple[Extern, list[Expr]]:
    """The call of BLAS for a match, and what of the region it is given; constants are inside."""
    assert isinstance(call.op, Function)
    given: dict[Expr, Expr] = dict(zip(call.op.params, call.args, strict=True))
    params, blobs, args = [], [], []
    for name in ("a", "b", "bias"):
        value = found.get(name)
        if isinstance(value, Constant):
            blobs.append(Blob(name, value.data.tobytes()))
        elif value is not None:
            params.append(Param(Buffer(name, value.shape, "float32"), "input"))
            args.append(given[value])
    params.append(Param(Buffer("out", found.root.shape, "float32"), "output"))
    routine = "matmul" if found.get("bias") is None else "matmul_bias"
    return Extern(tuple(params), routine, product_in(found).scalars(), tuple(blobs)), args
