"""What a target's plugin gives for one match, or one op, asked in order: the pattern's ``lower``, its strategies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..errors import InternalError
from ..hooktypes import Lowered, Lowering
from ..relay.expr import Call, Function
from ..relay.op import Op
from ..relay.types import TensorType, TupleType, Type
from ..relay.visit import post_order
from ..tir.verify import verify
from .members import Member

__all__ = ["lower_match"]


def lower_match(member: Member, function: Function, layers: tuple[str, ...]) -> Lowered | None:
    """The loops that a target's plugin gives for one match, or one op; None where it gives none.

    Args:
        member: the target.
        function: computes just that; where a pattern took it, its attribute ``Composite`` is the pattern's name.
        layers: of the model, for errors.

    Raises:
        Refuse: the plugin refuses.
        PluginError: the plugin is at fault; names hook, pattern and layers.
    """
    for what, lower in _lowerings(member, function):
        result = member.plugin.run(what, partial(lower, function, member.target), member.target)
        if result is None:
            continue
        error = _lowered_fault(result, function)
        if error is not None:
            fault = member.plugin.fault(f"gave {error} from {what}")
            fault.where = ", ".join(filter(None, [", ".join(layers), fault.where]))
            raise fault
        assert isinstance(result, Lowered)
        return result
    return None


def _lowerings(member: Member, function: Function) -> Iterator[tuple[str, Lowering]]:
    """What a plugin may have for a function, with a name for errors: by its pattern, then by its only op."""
    composite = function.attr("Composite")
    names = [composite] if composite is not None else []
    ops = [expr.op.name for expr in post_order(function.body) if isinstance(expr, Call) and isinstance(expr.op, Op)]
    if composite is not None:
        pattern = next((p for p in member.patterns if p.name == composite), None)
        if pattern is not None and pattern.lower is not None:
            yield f"lower of pattern {composite!r}", pattern.lower
    for name in names + (ops if len(ops) == 1 else []):
        for strategy in member.strategies.get(name, ()):
            yield f"strategy {name!r}", strategy.lower


def _lowered_fault(result: object, function: Function) -> str | None:
    """What is wrong with the loops for ``function``, None for good ones."""
    if not isinstance(result, Lowered):
        return f"{type(result).__name__} instead of Lowered"
    try:
        verify(result.func)
    except InternalError as error:
        return f"loops that are not sound: {error.what} ({error.where})"
    results: tuple[Type, ...] = (
        function.body.type.fields if isinstance(function.body.type, TupleType) else (function.body.type,)
    )
    sides = (
        ("inputs", result.func.buffers("input"), [param.type for param in function.params]),
        ("outputs", result.func.buffers("output"), list(results)),
    )
    for side, buffers, types in sides:
        given = [TensorType(b.shape, b.dtype) for b in buffers]
        if given != types:
            return f"loops with {side} ({', '.join(map(str, given))}), not ({', '.join(map(str, types))})"
    return None
