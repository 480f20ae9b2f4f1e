"""If, Loop and Scan whose branches and turns are decided at run time: functions of the module that control flow runs.

A branch is computed where it is taken: its function takes what is around it. What a turn of a loop computes and is the
same in every turn is computed before the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...errors import ModelError
from ...relay.expr import Call, Constant, Expr, Function, GlobalVar, If, Loop, Tuple, TupleGetItem, Var, call, const
from ...relay.ops.common import normalise_axis
from ...relay.types import TensorType
from ...relay.visit import children, post_order, with_children
from ...support.import_budget import require_memory
from .context import Value
from .function_expansion import MAX_TURNS, Body, ScanForm, graph_body
from .proto import Node

__all__ = ["Importing", "branches", "loop", "scan_loop"]

_FLAG = TensorType((), "bool")
_COUNT = TensorType((), "int64")


class Importing(Protocol):
    """What the importer does for control flow."""

    def converted(self, node: Node, body: Body, arguments: Sequence[Value]) -> list[Value]:
        """What the nodes of a body give; they belong to layers within that of ``node``.

        Raises:
            ModelError: one of them cannot be imported.
        """

    def variable(self, type_: TensorType) -> Var:
        """A variable of no other function of the model."""

    def function(self, name: str, function: Function) -> GlobalVar:
        """The function under a name of its own."""

    def note(self, expr: Expr, layer: str) -> None:
        """Note that ``expr`` belongs to a layer."""

    def record_rewrite(self, old: Expr, new: Expr) -> None:
        """Note that ``new`` is ``old`` within a function."""


# --- functions -------------------------------------------------------------------------------------------------------


def _closed(
    importing: Importing, params: Sequence[Var], body: Expr, is_given: Callable[[Expr], bool]
) -> tuple[Function, list[Expr]]:
    """The function of ``body``, and what it is given besides ``params``.

    Args:
        params: its first parameters.
        body: may be computed from what is around the function.
        is_given: whether something around it is handed to it; where it is not, the function computes it too.
    """
    inner = set(params)

    def is_captured(expr: Expr) -> bool:
        return expr not in inner and isinstance(expr.type, TensorType) and (isinstance(expr, Var) or is_given(expr))

    done: dict[Expr, Expr] = {param: param for param in params}
    captured: dict[Expr, Var] = {}
    for expr in post_order(body, known=lambda e: e in inner or is_captured(e)):
        done[expr] = with_children(expr, [_inner(child, done, captured, importing) for child in children(expr)])
        importing.record_rewrite(expr, done[expr])
    result = _inner(body, done, captured, importing)
    return Function([*params, *captured.values()], result), list(captured)


def _inner(expr: Expr, done: dict[Expr, Expr], captured: dict[Expr, Var], importing: Importing) -> Expr:
    """What an expression is within a function: one of its own, else a parameter."""
    if expr in done:
        return done[expr]
    assert isinstance(expr.type, TensorType)
    if expr not in captured:
        captured[expr] = importing.variable(expr.type)
    return captured[expr]


def _as_expr(value: Value) -> Expr:
    return value if isinstance(value, Expr) else const(value)


def _scalar(value: Value, dtype: str, role: str) -> Value:
    """One element of a dtype, as a scalar."""
    actual = value.dtype if isinstance(value, Expr) else value.dtype.name
    size = value.tensor.size if isinstance(value, Expr) else value.size
    if actual != dtype or size != 1:
        raise ModelError(f"its {role} is {actual} of shape {tuple(value.shape)}, not one {dtype}")
    if isinstance(value, Expr):
        return value if value.shape == () else call("reshape", value, newshape=())
    return value.reshape(())


# --- If --------------------------------------------------------------------------------------------------------------


def branches(
    node: Node, condition: Expr, around: Mapping[str, Value], opsets: Mapping[str, int], importing: Importing
) -> list[Value]:
    """The results of an If.

    Args:
        node: it.
        condition: its input.
        around: the tensors that its branches may use, by name.
        opsets: of the model.
        importing: what converts the branches.

    Raises:
        ModelError: the condition is not one bool, or the branches give other types, or what cannot be imported.
    """
    flag = _as_expr(_scalar(condition, "bool", "condition"))
    outside = {value for name in node.captured if isinstance(value := around.get(name), Expr)}
    results = []
    for attribute in ("then_branch", "else_branch"):
        graph = node.graph(attribute)
        if graph.input:
            raise ModelError("its branches take no inputs")
        results.append([_as_expr(v) for v in importing.converted(node, graph_body(node, graph, opsets), ())])
    then, other = results
    if len(then) != len(other) or len(then) < len(node.outputs) or not then:
        raise ModelError(f"its branches give {len(then)} and {len(other)} results, and it {len(node.outputs)}")
    for position, (one, two) in enumerate(zip(then, other, strict=True)):
        if one.type is not two.type:
            raise ModelError(f"result {position} is {one.type} of one branch and {two.type} of the other")
    # One function for both, so that both take the same.
    both, captured = _closed(importing, (), Tuple([*then, *other]), lambda expr: expr in outside)
    fields = children(both.body)
    functions = [
        importing.function(name, Function(both.params, Tuple(part)))
        for name, part in (("then", fields[: len(then)]), ("otherwise", fields[len(then) :]))
    ]
    chosen = Call(If(*functions), [flag, *captured])
    importing.note(chosen, node.layer)
    return [TupleGetItem(chosen, position) for position in range(len(node.outputs))]


# --- loops -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Turn:
    """What a turn of a loop gives.

    Args:
        goes_on: whether there is another one, but for the number of turns; None where that is always so.
        values: what is carried.
        parts: what is gathered from turn to turn.
    """

    goes_on: Expr | None
    values: Sequence[Value]
    parts: Sequence[Value]


def loop(
    node: Node, values: Sequence[Value | None], opsets: Mapping[str, int], importing: Importing
) -> Sequence[Value]:
    """The results of a Loop.

    Args:
        node: it.
        values: its inputs: the most turns, a condition, and what is carried.
        opsets: of the model.
        importing: what converts its body.

    Raises:
        ModelError: it is malformed, carries what changes its type, or gathers from a number of turns that is not known.
    """
    graph = node.graph("body")
    count = max(0, len(node.inputs) - 2)
    scan_count = len(graph.output) - 1 - count
    if len(graph.input) != count + 2 or scan_count < 0 or any(value is None for value in values[2:]):
        raise ModelError(
            f"it carries {count} values by a body of {len(graph.input)} inputs, {len(graph.output)} results"
        )
    limit = values[0] if values and values[0] is not None else None
    limit = None if limit is None else _scalar(limit, "int64", "number of turns")
    goes = values[1] if len(values) > 1 and values[1] is not None else None
    goes = None if goes is None else _scalar(goes, "bool", "condition")
    ranks = [len(entry.type.tensor_type.shape.dim) for entry in graph.input[:2]]
    body = graph_body(node, graph, opsets)
    first = [value for value in values[2:] if value is not None]

    def turn(index: Value, carried: Sequence[Value]) -> tuple[Value, list[Value], list[Value]]:
        import numpy as np

        arguments = [_ranked(index, ranks[0]), np.ones((1,) * min(ranks[1], 1), bool), *carried]
        results = importing.converted(node, body, arguments)
        goes_on = _scalar(results[0], "bool", "condition of a turn")
        return goes_on, results[1 : 1 + count], results[1 + count :]

    def turned(index: Var, carried: Sequence[Var]) -> _Turn:
        goes_on, after, parts = turn(index, carried)
        always = not isinstance(goes_on, Expr) and bool(goes_on)
        return _Turn(None if always else _as_expr(goes_on), after, parts)

    turns = None if limit is None or isinstance(limit, Expr) else max(0, int(limit))
    if goes is not None and not isinstance(goes, Expr):
        turns, goes = (turns, None) if bool(goes) else (0, None)
    try:
        return _looped(node, importing, turned, first, limit, turns, goes, (0,) * scan_count, (False,) * scan_count)
    except ModelError:
        if turns is None or turns > MAX_TURNS or goes is not None:
            raise
        unrolled = _unrolled(importing, node, turn, first, turns, scan_count)
        if unrolled is None:
            raise
        return unrolled


def _ranked(value: Value, rank: int) -> Value:
    """A scalar as the body declares it: without dimensions, or with one."""
    if not rank:
        return value
    return call("reshape", value, newshape=(1,)) if isinstance(value, Expr) else value.reshape((1,))


def scan_loop(
    node: Node, form: ScanForm, values: Sequence[Value], opsets: Mapping[str, int], importing: Importing
) -> Sequence[Value]:
    """The results of a Scan: of more turns than are written out.

    Args:
        node: it.
        form: what its attributes say.
        values: its inputs: what is carried, then what turns take slices of.
        opsets: of the model.
        importing: what converts its body.

    Raises:
        ModelError: as for `loop`.
    """
    import numpy as np

    body, states = graph_body(node, node.graph("body"), opsets), form.states

    def turned(index: Var, carried: Sequence[Var]) -> _Turn:
        slices = []
        for value, axis, backwards in zip(values[states:], form.axes, form.backwards, strict=True):
            place: Expr = index
            if backwards:
                place = call("subtract", const(np.array(form.turns - 1, np.int64)), index)
            slices.append(call("take", _as_expr(value), place, axis=axis))
        results = importing.converted(node, body, [*carried, *slices])
        return _Turn(None, results[:states], results[states:])

    limit = np.array(form.turns, np.int64)
    return _looped(node, importing, turned, values[:states], limit, form.turns, None, form.out_axes, form.out_backwards)


def _looped(
    node: Node,
    importing: Importing,
    turned: Callable[[Var, Sequence[Var]], _Turn],
    first: Sequence[Value],
    limit: Value | None,
    turns: int | None,
    goes: Expr | None,
    out_axes: Sequence[int],
    out_backwards: Sequence[bool],
) -> list[Value]:
    """The results of a loop: what it carries, then what it gathers.

    Args:
        turned: a turn, given its number and what is carried.
        first: what is carried into the first turn.
        limit: the most turns; None for any number.
        turns: the same where it is known.
        goes: whether there is a first turn; None where there is, but for the limit.
        out_axes, out_backwards: of what is gathered: the axis, and whether the first turn's comes last.
    """
    import numpy as np

    go, index = importing.variable(_FLAG), importing.variable(_COUNT)
    starts = [_as_expr(value) for value in first]
    carried = [importing.variable(start.tensor) for start in starts]
    one = turned(index, carried)
    after, parts = [_as_expr(value) for value in one.values], [_as_expr(value) for value in one.parts]
    for position, (start, value) in enumerate(zip(starts, after, strict=True)):
        if start.type is not value.type:
            raise ModelError(
                f"value {position} that it carries is {start.type} before a turn and {value.type} after it"
            )
    if parts and (turns is None or ((goes is not None or one.goes_on is not None) and turns > 0)):
        raise ModelError(
            "it gathers a result from a number of turns that only a run knows, so that its shape is not known",
            hint="give it a constant number of turns and no condition, or have it carry a tensor of full size",
        )
    if turns == 0:
        shapes = [_gathered(part, axis, 0) for part, axis in zip(parts, out_axes, strict=True)]
        return [*first, *(np.empty(shape, part.dtype) for shape, part in zip(shapes, parts, strict=True))]
    exprs: list[Expr] = []

    def note(op: str, *args: Expr, **attrs: Any) -> Expr:
        exprs.append(call(op, *args, **attrs))
        return exprs[-1]

    outs, filled = [], []
    for part, axis, backwards in zip(parts, out_axes, out_backwards, strict=True):
        assert turns is not None
        shape = _gathered(part, axis, turns)
        at = normalise_axis(axis, len(shape))
        require_memory(8 * turns + TensorType(shape, part.dtype).nbytes)
        out = importing.variable(TensorType(shape, part.dtype))
        place: Expr = note("subtract", const(np.array(turns - 1, np.int64)), index) if backwards else index
        places = np.arange(turns, dtype=np.int64).reshape([-1 if d == at else 1 for d in range(len(shape))])
        slice_ = note("reshape", part, newshape=tuple(1 if d == at else extent for d, extent in enumerate(shape)))
        outs.append(out)
        filled.append(note("where", note("equal", const(places), place), slice_, out))
    if limit is None and one.goes_on is None and goes is None:
        raise ModelError("it has no number of turns, and its condition always holds: it would never end")
    step = note("add", index, const(np.array(1, np.int64)))
    goes_on = one.goes_on
    if limit is not None:
        is_below_limit = note("less", step, _as_expr(limit))
        goes_on = is_below_limit if goes_on is None else note("logical_and", goes_on, is_below_limit)
        starts_now = note("less", const(np.array(0, np.int64)), _as_expr(limit))
        goes = starts_now if goes is None else note("logical_and", goes, starts_now)
    goes_on = const(np.array(True)) if goes_on is None else goes_on
    goes = const(np.array(True)) if goes is None else goes
    params = [go, index, *carried, *outs]
    body = Tuple([goes_on, step, *after, *filled])
    dependent, folding = _depending(body, params)
    for expr in exprs:
        importing.note(expr, node.layer)
    function, captured = _closed(importing, params, body, lambda expr: expr not in dependent and expr not in folding)
    empty = [const(np.zeros(out.shape, out.dtype)) for out in outs]
    looped = Call(
        Loop(importing.function("loop", function), len(params)),
        [goes, const(np.array(0, np.int64)), *starts, *empty, *captured],
    )
    importing.note(looped, node.layer)
    return [TupleGetItem(looped, position) for position in range(2, len(params))]


def _gathered(part: Expr, axis: int, turns: int) -> tuple[int, ...]:
    """The shape of a part of each turn along an axis of their own."""
    at = normalise_axis(axis, len(part.shape) + 1)
    return (*part.shape[:at], turns, *part.shape[at:])


def _depending(body: Expr, params: Sequence[Var]) -> tuple[set[Expr], set[Expr]]:
    """The expressions that are computed from the parameters, and those that are from constants alone."""
    dependent, folding = set[Expr](params), set[Expr]()
    for expr in post_order(body):
        parts = children(expr)
        if any(child in dependent for child in parts):
            dependent.add(expr)
        elif isinstance(expr, Constant) or (parts and all(child in folding for child in parts)):
            folding.add(expr)
    return dependent, folding


def _unrolled(
    importing: Importing,
    node: Node,
    turn: Callable[[Value, Sequence[Value]], tuple[Value, list[Value], list[Value]]],
    first: Sequence[Value],
    turns: int,
    scan_count: int,
) -> list[Value] | None:
    """The results of a loop of few turns written one after the other; None where a run says how many there are."""
    import numpy as np

    carried = list(first)
    parts: list[list[Value]] = [[] for _ in range(scan_count)]
    for number in range(turns):
        goes_on, carried, gathered = turn(np.array(number, np.int64), carried)
        for so_far, part in zip(parts, gathered, strict=True):
            so_far.append(part)
        if isinstance(goes_on, Expr):
            return None
        if not bool(goes_on):
            break
    results: list[Value] = []
    for gathered in parts:
        if not gathered:
            return None  # nobody knows the shape of what there is none of
        shapes = dict.fromkeys(part.shape for part in gathered)
        if len(shapes) > 1:
            raise ModelError(f"its turns give parts of the shapes {' and '.join(map(str, shapes))} for one result")
        if not any(isinstance(part, Expr) for part in gathered):
            require_memory(sum(part.nbytes for part in gathered if not isinstance(part, Expr)))
            results.append(np.stack([part for part in gathered if not isinstance(part, Expr)]))
            continue
        rows = [call("reshape", expr, newshape=(1, *expr.shape)) for expr in map(_as_expr, gathered)]
        stacked = call("concatenate", *rows, axis=0)
        importing.note(stacked, node.layer)
        results.append(stacked)
    return [*carried, *results]
