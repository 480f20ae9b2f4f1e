"""Functions of rows, programs of them, random ones, and what programs with rows compute, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from uma.program import Buffer, Call, Program, Rows, by_rows, streamed, with_copies
from uma.program.row_schedule import Move, chain, schedule
from uma.tir.form import nodes as tir
from uma.tir.form.interp import interpret_row

ROW = tir.Var("row")


def conv(height: int, width: int, kernel: int = 3, stride: int = 1, before: int = 1, extent: int = 0) -> tir.PrimFunc:
    """``y[r, j] = r + sum over k of (k + 1) * x[r * stride - before + k, j]``, of rows that there are; int32, flat."""
    extent = extent or (height + 2 * before - kernel) // stride + 1
    x, y = tir.Buffer("x", (height * width,), "int32"), tir.Buffer("y", (extent * width,), "int32")
    j = tir.Var("j")
    value: tir.Expr = ROW + 0
    for k in range(kernel):
        row = ROW * stride + (k - before)
        read = x[row * width + j] * (k + 1)
        inside = tir.Bin("and", tir.Bin("le", tir.const(0), row), tir.Bin("lt", row, tir.const(height)))
        value = value + tir.Select(inside, read, tir.const(0))
    body = tir.For(j, tir.const(width), tir.Store(y, (ROW * width + j,), value))
    form = tir.RowForm(ROW, extent, (tir.RowParam("x", height, kernel, stride, before), tir.RowParam("y", extent)))
    return tir.PrimFunc((tir.Param(x, "input"), tir.Param(y, "output")), body, rows=form)


def point(height: int, width: int, wide: int) -> tir.PrimFunc:
    """``y[r, i] = 3 * x[r, i mod width] + i`` through a workspace of one row."""
    x, y = tir.Buffer("x", (height * width,), "int32"), tir.Buffer("y", (height * wide,), "int32")
    t = tir.Buffer("t", (wide,), "int32")
    i, j = tir.Var("i"), tir.Var("j")
    body = tir.seq(
        tir.For(i, tir.const(wide), tir.Store(t, (i,), x[ROW * width + i % width] * 3)),
        tir.For(j, tir.const(wide), tir.Store(y, (ROW * wide + j,), t[j] + j)),
    )
    form = tir.RowForm(ROW, height, (tir.RowParam("x", height), tir.RowParam("y", height)))
    return tir.PrimFunc((tir.Param(x, "input"), tir.Param(y, "output"), tir.Param(t, "workspace")), body, rows=form)


def add(height: int, width: int, in_place: bool = True) -> tir.PrimFunc:
    """``y[r, i] = x0[r, i] + 2 * x1[r, i]``, over either of them."""
    x0, x1, y = (tir.Buffer(name, (height * width,), "int32") for name in ("x0", "x1", "y"))
    i = tir.Var("i")
    at = ROW * width + i
    body = tir.For(i, tir.const(width), tir.Store(y, (at,), x0[at] + x1[at] * 2))
    form = tir.RowForm(ROW, height, tuple(tir.RowParam(name, height) for name in ("x0", "x1", "y")))
    params = (tir.Param(x0, "input"), tir.Param(x1, "input"), tir.Param(y, "output"))
    return tir.PrimFunc(params, body, (("y", "x0"), ("y", "x1")) if in_place else (), rows=form)


def total(height: int, width: int) -> tir.PrimFunc:
    """``y[i] = sum over rows of x[r, i]``: sums that are kept from row to row."""
    x, y = tir.Buffer("x", (height * width,), "int32"), tir.Buffer("y", (width,), "int32")
    t = tir.Buffer("t", (width,), "int32")
    i, j, k = tir.Var("i"), tir.Var("j"), tir.Var("k")
    body = tir.seq(
        tir.If(tir.Bin("eq", ROW, tir.const(0)), tir.For(i, tir.const(width), tir.Store(t, (i,), tir.const(0)))),
        tir.For(j, tir.const(width), tir.Store(t, (j,), t[j] + x[ROW * width + j])),
        tir.If(tir.Bin("eq", ROW, tir.const(height - 1)), tir.For(k, tir.const(width), tir.Store(y, (k,), t[k]))),
    )
    form = tir.RowForm(ROW, height, (tir.RowParam("x", height),), ("t",))
    return tir.PrimFunc((tir.Param(x, "input"), tir.Param(y, "output"), tir.Param(t, "workspace")), body, rows=form)


@dataclass(frozen=True)
class Value:
    """A buffer of so many rows of so many elements."""

    name: str
    height: int
    width: int


class Builder:
    """Puts together a program of such calls."""

    def __init__(self, height: int, width: int) -> None:
        self.x = Value("x", height, width)
        self.buffers = [Buffer("x", "input", (height, width), "int32")]
        self.steps: list[Call] = []
        self.functions: dict[str, tir.PrimFunc] = {}

    def call(self, func: tir.PrimFunc, *given: Value) -> Value:
        assert func.rows is not None
        out = func.buffers("output")[0]
        rows = func.rows.extent if func.rows.of("y") is not None else 1
        made = Value(f"t{len(self.steps)}", rows, out.size // rows)
        self.buffers.append(Buffer(made.name, "intermediate", (rows, made.width), "int32"))
        names = [*(value.name for value in given), made.name]
        for space in func.buffers("workspace"):
            names.append(f"w{len(self.steps)}")
            self.buffers.append(Buffer(names[-1], "workspace", space.shape, "int32"))
        name = next((name for name, known in self.functions.items() if known is func), f"f{len(self.functions)}")
        self.functions[name] = func
        self.steps.append(Call(name, tuple(names), (f"layer {len(self.steps)}",)))
        return made

    def program(self, *results: Value) -> Program:
        """It, with outputs for the results."""
        named = {value.name: f"y{number}" for number, value in enumerate(results)}
        buffers = tuple(
            Buffer(named[b.name], "output", b.shape, b.dtype) if b.name in named else b for b in self.buffers
        )
        steps = tuple(Call(s.function, tuple(named.get(n, n) for n in s.args), s.layers) for s in self.steps)
        return Program("p", buffers, steps, self.functions)


def three() -> Program:
    """A convolution, one of stride 2, and a pointwise one."""
    b = Builder(8, 2)
    x = b.call(conv(8, 2), b.x)
    y = b.call(conv(8, 2, stride=2), x)
    return b.program(b.call(point(4, 2, 3), y))


def residual() -> Program:
    """Two residual blocks, the second one of stride 2 with a layer on its skip; then the sum over rows."""
    b = Builder(8, 2)
    x = b.call(conv(8, 2), b.x)
    z = b.call(conv(8, 2), b.call(conv(8, 2), x))
    x = b.call(add(8, 2), z, x)
    z = b.call(conv(4, 2), b.call(conv(8, 2, stride=2), x))
    x = b.call(add(4, 2), b.call(conv(8, 2, kernel=1, stride=2, before=0, extent=4), x), z)
    return b.program(b.call(total(4, 2), x))


def row_forms(program: Program) -> dict[str, tir.PrimFunc]:
    """The functions of a program, all of which have rows, by name."""
    return {name: function for name, function in program.functions.items() if isinstance(function, tir.PrimFunc)}


def streaming(program: Program) -> Program:
    """A program that `row_programs` gives, with all of its calls by rows, and its input given row by row."""
    made = with_copies(program, {"x": program.inputs[0].shape[0]})
    forms = row_forms(made.program)
    return streamed(by_rows(made.program, [(0, len(made.program.steps) - 1)], forms), {"x"})


@st.composite
def row_programs(draw: st.DrawFn, most: int = 6) -> Program:
    """Chains of 2 to ``most`` layers with windows, strides, paddings and skips; all of their calls are of rows."""
    b = Builder(draw(st.integers(1, 12)), draw(st.integers(1, 3)))
    values = [b.x]
    count = draw(st.integers(2, most))
    for number in range(count):
        x = values[-1]
        same = [value for value in values[:-1] if (value.height, value.width) == (x.height, x.width)]
        kinds = ["conv", "conv", "point", *(["add", "add"] if same else []), *(["total"] if number > 1 else [])]
        kind = draw(st.sampled_from(kinds))
        if kind == "conv":
            kernel, stride, before = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 1))
            extent = (x.height + 2 * before - kernel) // stride + 1
            if extent < 1:
                kernel, stride, before, extent = 1, 1, 0, x.height
            made = b.call(conv(x.height, x.width, kernel, stride, before, extent), x)
        elif kind == "point":
            made = b.call(point(x.height, x.width, draw(st.integers(1, 4))), x)
        elif kind == "add":
            other = draw(st.sampled_from(same))
            made = b.call(add(x.height, x.width, draw(st.booleans())), *draw(st.permutations([x, other])))
        else:
            made = b.call(total(x.height, x.width), x)
        values.append(made)
    unread = [v for v in values[1:] if sum(v.name in step.args for step in b.steps) == 1]
    more = [v for v in values[1:] if v not in unread and draw(st.integers(0, 9)) == 0]
    return b.program(*unread, *more)


def form_of(program: Program, step: Call) -> tir.RowForm:
    """How the function of a call runs by rows."""
    function = program.functions[step.function]
    assert isinstance(function, tir.PrimFunc) and function.rows is not None
    return function.rows


def interpret_rows(program: Program, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by buffer name, of a program of functions of rows: those within blocks row by row, on line buffers of
    the heights that the program gives them."""
    buffers = {buffer.name: buffer for buffer in program.buffers}
    memory: dict[str, list[object]] = {name: [None] * buffer.size for name, buffer in buffers.items()}
    memory |= {name: array.ravel().tolist() for name, array in inputs.items()}

    def run(call: Call, row: int, first: Mapping[str, int]) -> None:
        function = program.functions[call.function]
        assert isinstance(function, tir.PrimFunc)
        named = dict(zip((param.buffer.name for param in function.params), call.args, strict=True))
        held = {name: memory[name] for name in call.args}
        for form in form_of(program, call).params if first else ():
            # Towards the end of a tensor a buffer has room for rows that there are not.
            size = next(p.buffer.size for p in function.params if p.buffer.name == form.name) // form.height
            held[named[form.name]] = held[named[form.name]][: (form.height - first[form.name]) * size]
        interpret_row(function, row, {param: held[name] for param, name in named.items()}, first)
        for name, elements in held.items():
            memory[name][: len(elements)] = elements

    inner: set[int] = set()
    for position, step in enumerate(program.steps):
        if isinstance(step, Call) and position not in inner:
            for row in range(form_of(program, step).extent):
                run(step, row, {})
        elif isinstance(step, Rows):
            one = chain(program, position)
            inner |= set(one.calls)
            for event in schedule(program, position):
                if isinstance(event, Move):
                    held = memory[event.buffer]
                    size = len(held) // one.lines[event.buffer].held
                    begin = (event.first - event.held) * size
                    held[: event.rows * size] = held[begin : begin + event.rows * size]
                    held[event.rows * size :] = [None] * (len(held) - event.rows * size)
                else:
                    call = one.calls[event.position]
                    first = {form.name: at for (form, _), at in zip(call.passed, event.first, strict=True)}
                    step = program.steps[event.position]
                    assert isinstance(step, Call)
                    run(step, event.row, first)
    return {b.name: np.array(memory[b.name], b.dtype).reshape(b.shape) for b in program.outputs}
