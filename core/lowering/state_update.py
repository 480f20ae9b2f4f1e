"""When the new values of states are computed, and when they are written over the old ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..program import Program
from ..program.program import arguments
from ..relay.expr import Expr, Function, Tuple, Var
from ..relay.module import Signature
from ..relay.visit import children, post_order, users

__all__ = ["can_update_in_place", "evaluation_order", "parallel_copies"]


def evaluation_order(main: Function, signature: Signature) -> list[Expr]:
    """The expressions of ``main`` in an order in which they can be computed.

    What serves the new value of a state alone comes as soon as what it is made from is there and nobody needs the old
    value any more: left to the end, it would keep alive what it is made from.
    """
    order = post_order(main.body)
    alone = _serving_alone(order, main, signature)
    common = [expr for expr in order if expr not in alone]
    at = {expr: position for position, expr in enumerate(common)}
    used_by = users(order)
    after: dict[int, list[Expr]] = {}
    for number, state in enumerate(signature.states):
        branch = [expr for expr in order if alone.get(expr) == number]
        needed = {child for expr in branch for child in children(expr) if not isinstance(child, Var)}
        needed.update(used_by.get(main.params[state.input], ()))
        # The last of all is the result of main, which needs everything.
        last = max((at.get(expr, len(common) - 2) for expr in needed.difference(branch)), default=-1)
        after.setdefault(min(last, len(common) - 2), []).extend(branch)
    result = after.get(-1, [])
    for position, expr in enumerate(common):
        result += [expr, *after.get(position, ())]
    return result


def _serving_alone(order: Sequence[Expr], main: Function, signature: Signature) -> dict[Expr, int]:
    """The expressions that serve the new value of one state and nothing else, with that state's number."""
    results: dict[Expr, int] = {}
    if not isinstance(main.body, Tuple):
        return results
    roots = {main.body.fields[state.output]: number for number, state in enumerate(signature.states)}
    used_by = users(order)
    for expr in reversed(order):
        if isinstance(expr, Var) or expr is main.body:
            continue
        whose = {results.get(user) for user in used_by[expr]}
        if expr in roots and used_by[expr] == [main.body]:
            whose = {roots[expr]}
        number = whose.pop()
        if not whose and number is not None:
            results[expr] = number
    return results


def can_update_in_place(program: Program, state: str, value: str) -> bool:
    """Whether the step that gives ``value`` can write it over ``state`` at once: nobody needs the old value after it,
    and the step itself, where it does, allows that."""
    written = False
    for _, step in program.calls:
        passed = [(param.role, param.buffer.name, name) for param, name in arguments(program, step)]
        outs = [param for role, param, name in passed if role == "output" and name == value]
        inputs = [param for _, param, name in passed if name == state]
        if outs:
            written = True
            allowed = set(program.functions[step.function].may_alias)
            if any((out, param) not in allowed for out in outs for param in inputs):
                return False
        elif written and inputs:
            return False
    return written


def parallel_copies(sources: Mapping[str, str]) -> Iterator[tuple[str | None, str]]:
    """Copies, one after the other, that do what ``sources`` says all at once.

    Args:
        sources: name of a state -> name of another buffer, perhaps of another state, whose value it takes.

    Yields:
        Name of a state and of what to copy to it; None and the name of a state whose old value is to be set aside,
        which later pairs then mean by its name.
    """
    pending = dict(sources)
    aside: set[str] = set()
    while pending:
        needed = set(pending.values()) - aside
        ready = [state for state in pending if state not in needed]
        for state in ready:
            yield state, pending.pop(state)
        if not ready:
            state = next(iter(pending))
            aside.add(state)
            yield None, state
