"""From a region to calls of the library: an extern for each match."""

from __future__ import annotations

from uma.hookspecs import Blob, Extern, MatchedRegion, RegionMatch, Routine
from uma.relay import Call, Constant, Expr, Function, GlobalVar, IRModule, substitute
from uma.tir import Buffer, Param

from .match_reader import operation_of

__all__ = ["ROUTINES", "lower"]

_GIVEN = ("weights", "bias", "other")
"""Operands that a call may have besides ``src`` and ``dst``."""

_NAMES = {"data": "src", "left": "src", "weight": "weights", "bias": "bias", "other": "other", "right": "other"}
"""What patterns call them."""


def _routine(operands: tuple[str, ...]) -> Routine:
    args = ["{src}", *(f"{{{name}}}" if name in operands else "0" for name in _GIVEN), "{dst}"]
    return Routine(_routine_name(operands), f"uma_onednn_run({{device}}, {{spec}}, {', '.join(args)})")


def _routine_name(operands: tuple[str, ...]) -> str:
    return "_".join(("run", *operands))


ROUTINES = tuple(
    _routine(names)
    for names in ((), ("weights",), ("weights", "bias"), ("weights", "other"), ("weights", "bias", "other"), ("other",))
)
"""What externs call, by what they are given."""


def lower(region: MatchedRegion) -> tuple[IRModule, GlobalVar]:
    """A function that does what the region does, and the externs that it calls."""
    externs: dict[Extern, str] = {}
    values: dict[Expr, Expr] = {param: param for param in region.function.params}
    for match in region.matches:
        extern, args = _extern(match)
        name = externs.setdefault(extern, f"onednn_{match.pattern.name.rpartition('.')[2]}_{len(externs)}")
        var = IRModule.from_functions({name: extern}).global_var(name)
        values[match.value] = Call(var, [substitute(arg, values) for arg in args])
    entry = Function(region.function.params, substitute(region.function.body, values))
    module = IRModule.from_functions({**{name: extern for extern, name in externs.items()}, "entry": entry})
    return module, module.global_var("entry")


def _extern(match: RegionMatch) -> tuple[Extern, list[Expr]]:
    """The call for a match, and what of the region it is given; constants are inside."""
    operation = operation_of(match)
    params, args = [], []
    constants: dict[str, bytes] = {}
    operands = set()
    for captured, name in _NAMES.items():
        if captured not in match.captures:
            continue
        value = match[captured]
        operands.add(name)
        if isinstance(value, Constant):
            constants[name] = value.data.tobytes()
        else:
            params.append(Param(Buffer(name, value.shape, value.dtype), "input"))
            args.append(match.operand(captured))
    params.append(Param(Buffer("dst", match.root.shape, match.root.dtype), "output"))
    weights = constants.get("weights")
    others = [data for name, data in constants.items() if name != "weights"]
    blobs = [Blob("spec", operation.encode(weights, others)), *(Blob(name, data) for name, data in constants.items())]
    routine = _routine_name(tuple(name for name in _GIVEN if name in operands))
    return Extern(tuple(params), routine, blobs=tuple(blobs)), args
