"""Inputs that the caller gives row by row: what was asked for, and the calls that take the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..errors import RequirementError, UsageError
from ..program import Program, with_copies
from ..relay.expr import Expr, Function
from ..relay.module import IRModule, Signature
from ..targets.values import suggest

__all__ = ["HINT", "check_stream_inputs", "with_streams"]

HINT = "give the input as a whole; uma explain --memory says which layers can be run by rows, and why others cannot"


def check_stream_inputs(names: Sequence[str], form: IRModule | Program) -> tuple[str, ...]:
    """The inputs that the caller gives row by row, by the model's names.

    Args:
        names: of inputs, each once.
        form: the model.

    Raises:
        UsageError: the model has no such input, or is a program, which says it itself.
    """
    if names and isinstance(form, Program):
        what = "inputs were named to be given row by row, and a program says itself which are"
        raise UsageError(what, hint="leave them out, or build the model that the program was made of")
    if isinstance(form, Program):
        return ()
    signature = form.signature or Signature.from_function(form.main)
    known = [info.name for info in signature.inputs]
    for name in names:
        if name not in known:
            hint = f"{suggest(name, known)}its inputs: {', '.join(map(repr, known))}"
            raise UsageError(f"the model has no input {name!r}", hint=hint)
    return tuple(names)


def with_streams(
    program: Program,
    kernels: Mapping[int, tuple[Expr, Mapping[str, int]]],
    names: Sequence[str],
    main: Function,
    buffers_of: Callable[[Expr], tuple[str, ...] | None],
) -> tuple[Program, dict[int, tuple[Expr, Mapping[str, int]]], dict[int, str]]:
    """A program with calls that copy inputs by rows.

    Args:
        program: of the model, without blocks of rows.
        kernels: the kernels that one step each computes, with the heights of what they use, as `Lowered` has them.
        names: of the inputs, as the model has them.
        main: of the fused module.
        buffers_of: where the program has its values.

    Returns:
        The program; its kernels, the inputs with the copies among them; the buffer of the input of each copy, by the
        position of that.

    Raises:
        RequirementError: an input has no rows, or nobody reads it.
    """
    heights: dict[str, int] = {}
    for buffer in program.inputs:
        if buffer.tensor not in names:
            continue
        what = f"input {buffer.tensor!r} cannot be given row by row"
        readers = [at for at, step in program.calls if buffer.name in step.args]
        if buffer.extents is not None:
            raise RequirementError(f"{what}: its extents are open", where=program.name, hint=HINT)
        if not readers:
            raise RequirementError(f"{what}: no layer reads it", where=program.name, hint=HINT)
        windows = {kernels[at][1].get(buffer.name, 1) if at in kernels else 1 for at in readers}
        if len(windows) > 1:
            seen = " and ".join(map(str, sorted(windows)))
            raise RequirementError(f"{what}: layers see {seen} rows in it", where=program.name, hint=HINT)
        heights[buffer.name] = windows.pop()
        if heights[buffer.name] == 1:
            shape = list(buffer.shape)
            raise RequirementError(f"{what}: no layer sees rows in {shape}", where=program.name, hint=HINT)
    copied = with_copies(program, heights)
    params = {held[0]: param for param in main.params if (held := buffers_of(param)) is not None and len(held) == 1}
    renumbered: dict[int, tuple[Expr, Mapping[str, int]]] = {}
    for at, (kernel, known) in kernels.items():
        copies = {copied.copies[name]: height for name, height in heights.items()}
        renumbered[copied.positions[at]] = kernel, {**known, **copies}
    for at, name in copied.copied.items():
        renumbered[at] = params[name], {name: heights[name], copied.copies[name]: heights[name]}
    return copied.program, renumbered, dict(copied.copied)
