"""Small hand-made programs, and random ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import strategies as st

from uma.program import Buffer, Call, Program
from uma.program.control_flow import Ways
from uma.tir.form import nodes as tir
from uma.tir.form.interp import interpret


def kernel(
    inputs: Sequence[int], output: int, *, constant: int = 0, workspace: int = 0, in_place: bool = False
) -> tir.PrimFunc:
    """``y[i] = sum of x_k[i mod its length] (+ w[i mod its length])`` on int32; through a workspace where there is one.

    With `in_place`, the output may be the memory of every input of its size.
    """
    xs = [tir.Buffer(f"x{k}", (size,), "int32") for k, size in enumerate(inputs)]
    y = tir.Buffer("y", (output,), "int32")
    params = [*(tir.Param(x, "input") for x in xs), tir.Param(y, "output")]
    i = tir.Var("i")

    def read(buffer: tir.Buffer) -> tir.Expr:
        return buffer[i if buffer.size == output else i % buffer.size]

    value: tir.Expr = tir.const(0)
    if constant:
        w = tir.Buffer("w", (constant,), "int32")
        params.append(tir.Param(w, "constant"))
        value = read(w)
    for x in xs:
        value = read(x) if isinstance(value, tir.Imm) else value + read(x)
    first: tir.Stmt = tir.seq()
    if workspace:
        t = tir.Buffer("t", (workspace,), "int32")
        params.append(tir.Param(t, "workspace"))
        first = tir.Store(t, (i % workspace,), value)
        value = t[i % workspace]
    body = tir.For(i, tir.const(output), tir.seq(first, tir.Store(y, (i,), value)))
    aliases = [("y", x.name) for x in xs if x.size == output] if in_place else []
    return tir.PrimFunc(tuple(params), body, tuple(aliases))


@st.composite
def programs(draw: st.DrawFn, max_steps: int = 12, in_place: bool = True, workspaces: bool = True) -> Program:
    """A verified program of `kernel` calls on one input, with skips, constants, states and several outputs."""
    sizes = st.sampled_from((1, 2, 3, 4, 8, 12))
    count = draw(st.integers(1, max_steps))
    buffers = [Buffer("x", "input", (4,), "int32")]
    values = {"x": 4}
    unwritten: dict[str, int] = {}
    for number, size in enumerate(draw(st.lists(sizes, max_size=2))):
        data = draw(st.binary(min_size=4 * size, max_size=4 * size))
        buffers.append(Buffer(f"h{number}", "state", (size,), "int32", draw(st.sampled_from((0, 16))), data=data))
        values[f"h{number}"] = unwritten[f"h{number}"] = size
    steps: list[Call] = []
    functions: dict[str, tir.PrimFunc] = {}
    tensors: set[str] = set()
    names = st.text(min_size=1, max_size=5).filter(lambda text: text not in tensors and not text.startswith("t"))
    for position in range(count):
        last = position == count - 1
        newest = list(values)[-1:]
        others = draw(st.lists(st.sampled_from(list(values)), max_size=2))
        args = newest + others
        same = draw(st.booleans())
        size = values[args[0]] if same else draw(sizes)
        role = "output" if last or draw(st.integers(0, 9)) == 0 else "intermediate"
        alignment = 0 if role == "output" else draw(st.sampled_from((0, 8, 16)))
        tensor = draw(st.none() | st.just("") | names)
        tensors.add(tensor or "")
        out = Buffer(f"t{position}", role, (size,), "int32", alignment, tensor=tensor)
        aliased = in_place and draw(st.booleans())
        fitting = [name for name, its in unwritten.items() if its == size and (aliased or name not in args)]
        if fitting and not last and draw(st.booleans()):
            out = next(buffer for buffer in buffers if buffer.name == fitting[0])
            del unwritten[out.name]
        else:
            buffers.append(out)
        constant = draw(st.sampled_from((0, 0, 1, 3)))
        args += [out.name]
        if constant:
            data = draw(st.binary(min_size=4 * constant, max_size=4 * constant))
            buffers.append(Buffer(f"w{position}", "constant", (constant,), "int32", data=data))
            args.append(f"w{position}")
        workspace = draw(st.sampled_from((0, 0, 2, 5))) if workspaces else 0
        if workspace:
            buffers.append(Buffer(f"s{position}", "workspace", (workspace,), "int32", draw(st.sampled_from((0, 32)))))
            args.append(f"s{position}")
        function = kernel(
            [values[name] for name in newest + others],
            size,
            constant=constant,
            workspace=workspace,
            in_place=aliased,
        )
        name = next((name for name, known in functions.items() if known is function), f"k{position}")
        functions[name] = function
        steps.append(Call(name, tuple(args), tuple(draw(st.lists(st.text(max_size=4), max_size=2)))))
        values[out.name] = size
    return Program("p", tuple(buffers), tuple(steps), functions)


def interpret_program(
    program: Program, inputs: Mapping[str, np.ndarray], states: dict[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """The outputs by buffer name, computed step by step by the interpreter of the loop form.

    `states` has what the run before left, nothing before the first; it is given what this run leaves.
    """
    buffers = {buffer.name: buffer for buffer in program.buffers}
    values = {buffer.name: np.frombuffer(buffer.data, buffer.dtype) for buffer in program.buffers if buffer.data}
    values.update({**inputs, **(states or {})})
    ways, position = Ways(program.steps), 0
    while position < len(program.steps):
        step = program.steps[position]
        position = ways.next(position, lambda name: bool(values[name].reshape(())))
        if not isinstance(step, Call):
            continue
        function = program.functions[step.function]
        passed = list(zip(function.params, step.args, strict=True))
        arrays = {
            param.buffer.name: values[name].reshape(param.buffer.shape)
            for param, name in passed
            if param.role in ("input", "constant")
        }
        results = interpret(function, arrays)
        values.update({name: results[param.buffer.name].copy() for param, name in passed if param.role == "output"})
    if states is not None:
        states.update({state.name: values[state.name] for state in program.states})
    return {name: values[name].reshape(buffers[name].shape) for name in (output.name for output in program.outputs)}


def live_ranges(program: Program) -> dict[str, tuple[int, int]]:
    """Written for tests: first and last step of each arena buffer."""
    arena = [buffer.name for buffer in program.buffers if buffer.in_arena]
    at = {name: [i for i, step in enumerate(program.steps) if name in step.args] for name in arena}
    for buffer in program.placed:  # the caller writes inputs before, and reads outputs behind
        at[buffer.name] = [-1, *at[buffer.name]] if buffer.role == "input" else [*at[buffer.name], len(program.steps)]
    return {name: (positions[0], positions[-1]) for name, positions in at.items()}


__all__ = ["interpret_program", "kernel", "live_ranges", "programs"]
