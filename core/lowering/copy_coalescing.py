"""Taking out copies: a value that is copied to where a branch or a loop wants it is written there at once, where nobody
can tell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from ..program import Buffer, Call, If, Loop, Program, Step
from ..program.control_flow import flow_faults, live_after
from ..program.program import arguments

__all__ = ["coalesce_copies", "renamed_step"]


def renamed_step(step: Step, renamed: Mapping[str, str]) -> Step:
    """``step`` on other buffers."""
    if isinstance(step, Call):
        return replace(step, args=tuple(renamed.get(name, name) for name in step.args))
    if isinstance(step, (If, Loop)):
        return replace(step, condition=renamed.get(step.condition, step.condition))
    return step


def coalesce_copies(
    program: Program, copying: Collection[str], aligned: Collection[str]
) -> tuple[dict[str, str], list[Step]]:
    """Which buffers are what others are, by name, and the steps without the copies from the one to the other.

    Two buffers are one where neither is written while the other is needed, but by the copy, or by a function that may
    write its output over its input; and where no step writes again then what one before it wrote, outside of loops.

    Args:
        program: with branches or loops.
        copying: the functions that copy.
        aligned: buffers that a step needs to be aligned to more than their elements.
    """
    buffers = {buffer.name: buffer for buffer in program.buffers}
    merged: dict[str, str] = {}
    steps = list(program.steps)
    live = live_after(program)

    def now(name: str) -> str:
        while name in merged:
            name = merged[name]
        return name

    for position in range(len(steps) - 1, -1, -1):
        step = steps[position]
        if not isinstance(step, Call) or step.function not in copying:
            continue
        source, target = (now(name) for name in step.args)
        if source == target or not _fit(buffers[source], buffers[target], aligned):
            continue
        if all(
            _apart(program, one, after, {source, target}, now)
            for one, after in zip(steps, live, strict=True)
            if isinstance(one, Call) and not _copies(one, copying, {source, target}, now)
        ):
            merged[source] = target
            if next(flow_faults(replace(program, steps=_renamed(steps, copying, now)), buffers), None) is not None:
                del merged[source]  # written twice on one way, outside of all loops
                continue
            live = [{target if name == source else name for name in after} for after in live]
    return {name: now(name) for name in merged}, list(_renamed(steps, copying, now))


def _renamed(steps: Sequence[Step], copying: Collection[str], now: Callable[[str], str]) -> tuple[Step, ...]:
    """The steps on the buffers that there are now, without copies of what is in its place already."""
    names = {name: now(name) for step in steps if isinstance(step, Call) for name in step.args}
    renamed = (renamed_step(step, names) for step in steps)
    return tuple(
        step
        for step in renamed
        if not (isinstance(step, Call) and step.function in copying and step.args[0] == step.args[1])
    )


def _fit(source: Buffer, target: Buffer, aligned: Collection[str]) -> bool:
    if source.role != "intermediate" or target.role not in ("intermediate", "output", "state"):
        return False
    same = (source.dtype, source.nbytes, source.pool) == (target.dtype, target.nbytes, target.pool)
    return same if target.role == "intermediate" else source.nbytes == target.nbytes and source.name not in aligned


def _copies(step: Call, copying: Collection[str], pair: set[str], now: Callable[[str], str]) -> bool:
    return step.function in copying and set(map(now, step.args)) == pair


def _apart(program: Program, step: Call, after: set[str], pair: set[str], now: Callable[[str], str]) -> bool:
    """Whether a step that writes one of two buffers leaves what is needed of the other."""
    passed = [(param.role, param.buffer.name, now(name)) for param, name in arguments(program, step)]
    passed = [row for row in passed if row[2] in pair]
    outs = [(param, name) for role, param, name in passed if role in ("output", "workspace")]
    inputs = [(param, name) for role, param, name in passed if role not in ("output", "workspace")]
    if not outs:
        return True
    if len(outs) > 1 or not (pair - {outs[0][1]}).isdisjoint(after):
        return False
    allowed = set(program.functions[step.function].may_alias)
    return all((outs[0][0], param) in allowed for param, name in inputs)
