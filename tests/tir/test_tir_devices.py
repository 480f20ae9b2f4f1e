"""Memories, views, copies and intrinsics: what can be built, what is well-formed, how it is written, what it means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tests._support.tir_devices import ADD, DEFINITIONS, MAC, MEMORIES, SPAD, SUM, device_funcs

from uma.errors import InternalError, TextError
from uma.program import Buffer as ProgramBuffer
from uma.program import Call as ProgramCall
from uma.program import Program
from uma.program.text import print_program
from uma.relay.module import IRModule
from uma.relay.text import parse_module, print_module
from uma.tir.form.ctext import fault_in, fill, placeholders
from uma.tir.form.interp import InterpreterError, interpret
from uma.tir.form.nodes import (
    Alloc,
    Axis,
    Buffer,
    Copy,
    Exec,
    For,
    Intrinsic,
    Memory,
    Param,
    PrimFunc,
    Stmt,
    Store,
    Update,
    Var,
    View,
    const,
    seq,
)
from uma.tir.form.text import Definitions, parse_func, print_func
from uma.tir.form.verify import faults, intrinsic_faults, verify
from uma.tir.form.visit import (
    buffers,
    buffers_read,
    buffers_written,
    intrinsics,
    map_fields,
    operands,
    rebuild,
    uses_device,
    variables,
    views,
)
from uma.tir.proofs.alias import may_alias
from uma.tir.rewrites.simplify import simplify

zero, i = const(0), Var("i")
x, y = Buffer("x", (4, 8), "int8"), Buffer("y", (4, 8), "int8")
q = Buffer("q", (16,), "int32")
t, u = Buffer("t", (4, 8), "int8", "spad"), Buffer("u", (16,), "int32", "acc")


def whole(buffer: Buffer) -> View:
    rank = len(buffer.shape)
    return View(buffer, (zero,) * rank, tuple(Axis(dim) for dim in range(rank)))


def moved(to: Buffer, source: Buffer) -> Copy:
    """All of ``source`` copied."""
    return Copy(whole(to), whole(source), tuple(const(extent) for extent in source.shape))


def function(*stmts: Stmt, memories: tuple[Memory, ...] = MEMORIES) -> PrimFunc:
    """A function of x, y and q that writes y and q, then does ``stmts``."""
    params = (Param(x, "input"), Param(y, "output"), Param(q, "output"))
    return PrimFunc(params, seq(moved(y, x), Store(q, (zero,), zero), *stmts), (), memories)


def parsed(text: str) -> PrimFunc:
    return parse_func(f"{DEFINITIONS}\n@prim_func\n{dedent(text).strip()}\n")[1]


# What can be built


def intrinsic(code: str, *params: Buffer, variables: tuple[Var, ...] = (), name: str = "go") -> Intrinsic:
    return Intrinsic(name, params, variables, seq(), code)


a = Buffer("a", (4,), "int8", "spad")
POINT = View(x, (zero, zero), ())

UNBUILDABLE: list[tuple[Callable[[], object], str]] = [
    (lambda: Memory("größe", 4), "'größe' cannot be a name: it must be an ASCII identifier"),
    (lambda: Memory("for", 4), "'for' cannot be a name"),
    (lambda: Memory("local", 4), "a memory cannot be called 'local', which is the host's"),
    (lambda: Memory("m", 0), "memory 'm' has 0 bytes"),
    (lambda: Memory("m", 2**32 + 1), "memory 'm' has 4294967297 bytes"),
    (lambda: Memory("m", True), "memory 'm' has True bytes"),
    (lambda: Memory("m", 4, 3), "memory 'm' has alignment 3"),
    (lambda: Memory("m", 4, 0), "memory 'm' has alignment 0"),
    (lambda: Memory("m", 4, 1, "f({to}, {from})"), "copy_in of memory 'm': {row_bytes} is not mentioned"),
    (
        lambda: Memory("m", 4, 1, "", "f({to}, {from}, {row_bytes}, {rows}, {to_stride})"),
        "copy_out of memory 'm': {from_stride} is not mentioned",
    ),
    (lambda: Memory("m", 4, 1, "f({to}, {from}, {bytes})"), "copy_in of memory 'm': unknown placeholder {bytes}"),
    (lambda: Axis(-1), "an axis runs along dimension -1"),
    (lambda: Axis(0, -1), "an axis has step -1"),
    (lambda: Axis(True), "an axis runs along dimension True"),
    (lambda: View(x, (zero,), ()), "'x' has 2 dimensions and is accessed with 1 indices"),
    (lambda: View(x, (zero, zero), (Axis(2),)), "a view of 'x' has no dimension 2 to run along"),
    (lambda: Copy(whole(y), whole(x), (zero,)), "a copy to 'y' has views of 2 and 2 axes and 1 extents"),
    (lambda: Copy(whole(u), whole(x), ()), "a copy to 'u' has views of 1 and 2 axes and 0 extents"),
    (lambda: Copy(View(q, (zero,), ()), View(x, (zero, zero), ()), ()), "int8 copied to 'q', of int32"),
    (lambda: moved(t, replace(t, name="s")), "a copy from 'spad' to 'spad' does not pass through the host"),
    (lambda: Copy(whole(q), whole(u), (const(3, "int8"),)), "an extent of a copy to 'q' is int8, not int32"),
    (lambda: intrinsic("1", name="no!"), "'no!' cannot be a name"),
    (lambda: intrinsic("f({a})", replace(a, scope="local")), "parameter 'a' of 'go' has scope 'local'"),
    (lambda: intrinsic("f({n})", variables=(Var("n", "int8"),)), "variable 'n' of 'go' is int8, not int32"),
    (lambda: intrinsic("f({device})", replace(a, name="device")), "two placeholders of 'go' are called 'device'"),
    (
        lambda: intrinsic("f({a}, {a_stride0})", a, variables=(Var("a_stride0"),)),
        "two placeholders of 'go' are called 'a_stride0'",
    ),
    (lambda: intrinsic("f({device})", a), "code of 'go': {a} is not mentioned"),
    (lambda: intrinsic("f({a}, {a_stride1})", a), "code of 'go': unknown placeholder {a_stride1}; there is {device}"),
    (lambda: Exec(ADD, (), ()), "'add' takes 3 views and 1 values, not 0 and 0"),
    (lambda: Exec(SUM, (whole(u), whole(u)), (zero,)), "'sum' takes as 'out' a view in scope 'global', not 'acc'"),
    (
        lambda: Exec(SUM, (View(q, (zero,), ()), whole(q)), (zero,)),
        "'sum' takes as 'a' a view in scope 'acc', not 'global'",
    ),
    (
        lambda: Exec(SUM, (View(x, (zero, zero), ()), whole(u)), (zero,)),
        "'sum' takes as 'out' a view of int32, not int8",
    ),
    (lambda: Exec(SUM, (whole(q), whole(u)), (zero,)), "'sum' takes as 'out' a view of 0 axes, not 1"),
    (
        lambda: Exec(SUM, (View(q, (zero,), ()), whole(u)), (const(1, "int8"),)),
        "'sum' takes as 'n' a value of int32, not int8",
    ),
    (lambda: Param(t, "input"), "parameter 't' has scope 'spad'"),
    (lambda: Param(replace(t, scope="local"), "workspace"), "parameter 't' has scope 'local'"),
    (lambda: PrimFunc((), seq(), (), (SPAD, Memory("spad", 8))), "two memories share a name"),
]


@pytest.mark.parametrize(("build", "what"), UNBUILDABLE, ids=[what for _, what in UNBUILDABLE])
def test_what_cannot_be_built(build: Callable[[], object], what: str) -> None:
    with pytest.raises(InternalError) as caught:
        build()
    assert what in caught.value.what


def test_equal_nodes_are_one_and_short_to_show() -> None:
    assert moved(t, x) is moved(t, x)
    assert Axis(1) is Axis(1, 1) and Axis(1) is not Axis(1, 2)
    assert Memory("spad", 64) is not Memory("spad", 65)
    assert repr(whole(x)) == "<View of x>" and repr(ADD) == "<Intrinsic add>" and repr(moved(t, x)) == "<Copy>"
    assert View(x, (zero, zero), (Axis(1), Axis(0, 2), Axis(0, 0))).strides() == (1, 16, 0)


# C texts


def test_a_text_is_one_expression_of_c() -> None:
    for text in ("f({a})", "({a} + 1) * g[2] == -3 ? x.y : ~b", "a->b(1, 2)"):
        assert fault_in(text, ["a"], []) is None
    assert placeholders("f({a}, {b_1}, {a})") == {"a", "b_1"}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("f(); g()", "';' cannot stand"),
        ("f({a}", "mind brackets and commas"),
        ("f(]", "mind brackets and commas"),
        ("f) + (1", "mind brackets and commas"),
        ("f(1), 2", "mind brackets and commas"),
        ("  ", "it is not one expression"),
        ("1 // 2", "'//' cannot stand"),
        ("1 /* 2", "'/*' cannot stand"),
        ("1 ??/ 2", "'??' cannot stand"),
        ("<% 1 %>", "'<%' cannot stand"),
        ("f({a.b})", "'{' cannot stand"),
        ("f({})", "'{' cannot stand"),
        ("f({a!r})", "'{' cannot stand"),
        ('f("x")', "'\"' cannot stand"),
        ("f(\n1)", "'\\n' cannot stand"),
        ("f(é)", "'é' cannot stand"),
        ("f({b})", "unknown placeholder {b}; there is {a}"),
        ("f(1)", "{a} is not mentioned"),
    ],
)
def test_texts_that_are_more_or_less_than_that(text: str, what: str) -> None:
    fault = fault_in(text, ["a"], ["a"] if text == "f(1)" else [])
    assert fault is not None and what in fault


def test_operands_stand_in_parentheses_where_they_need_them() -> None:
    values = {"a": "x + 1", "b": "n", "c": "&y[2]"}
    assert fill("f({a}, {b}, {c})", values) == "f(x + 1, n, &y[2])"
    assert fill("{a} * {b} - g( {a} ) + {c}", values) == "(x + 1) * n - g( x + 1 ) + (&y[2])"
    assert fill("f(-{a}, {a}[0])", values) == "f(-(x + 1), (x + 1)[0])"


# Walking


def test_the_parts_of_copies_and_executions() -> None:
    copy = Copy(View(t, (i, zero), (Axis(1),)), View(x, (zero, i), (Axis(1),)), (i + 1,))
    run = Exec(SUM, (View(q, (i,), ()), View(u, (zero,), (Axis(0),))), (i,))
    assert operands(copy) == (i, zero, zero, i, i + 1)
    assert operands(run) == (i, zero, i)
    assert views(copy) == (copy.to, copy.source) and views(run) == run.args and views(seq()) == ()
    assert variables(seq(copy, run)) == (i,)
    shifted = rebuild(copy, [zero, zero, zero, const(1), const(2)], ())
    assert shifted is Copy(View(t, (zero, zero), (Axis(1),)), View(x, (zero, const(1)), (Axis(1),)), (const(2),))
    assert rebuild(run, [zero, const(2), const(3)], ()) is Exec(
        SUM, (View(q, (zero,), ()), View(u, (const(2),), (Axis(0),))), (const(3),)
    )
    assert rebuild(run, operands(run), ()) is run
    assert map_fields(run, view=lambda view: view) is run
    both = seq(copy, run)
    assert buffers_read(both) == (x, q, u) and buffers_written(both) == (t, q) and buffers(both) == (t, x, q, u)
    assert uses_device(function(copy)) and uses_device(function(run)) and not uses_device(function())
    assert intrinsics(function(run, run)) == (SUM,)


def test_simplifying_keeps_what_an_execution_mentions_and_drops_empty_copies() -> None:
    idle = Intrinsic("idle", (Buffer("a", (4, 8), "int8", "spad"),), (), seq(), "f({a})")
    func = function(Alloc(t, Exec(idle, (whole(t),))))
    assert simplify(func) is func
    for extent in (const(0), const(-1)):
        empty = Copy(View(t, (zero, zero), (Axis(1),)), View(x, (zero, zero), (Axis(1),)), (extent,))
        assert simplify(function(Alloc(t, empty))) is simplify(function())
    varying = For(i, const(4), Alloc(t, Copy(whole(t), whole(x), (i * 1 + 0, const(8)))))
    assert "(i, 8))" in print_func(simplify(function(varying)), "f")


# What is well-formed


def misaligned() -> Stmt:
    wide = Intrinsic("wide", (Buffer("a", (4, 8), "int8", "spad", 16),), (), seq(), "f({a})")
    return Alloc(t, Exec(wide, (whole(t),)))


def described(description: Stmt, *params: Buffer) -> Stmt:
    """An execution of an intrinsic of ``t`` that does ``description``."""
    inner = Intrinsic("inner", (replace(a, shape=(4, 8)), *params), (Var("n"),), description, "f({a}, {n})")
    return Alloc(t, Exec(inner, (whole(t),), (zero,)))


WRITER = Intrinsic(
    "writer", (Buffer("o", (), "int8"),), (), Store(Buffer("o", (), "int8"), (), const(1, "int8")), "f({o})"
)
TOTAL = Buffer("big", (2048,), "int8", "spad")


@pytest.mark.parametrize(
    ("func", "what", "where"),
    [
        (
            function(Alloc(replace(t, scope="moon"), seq())),
            "buffer 't' is in scope 'moon', which is not a memory",
            "t = al",
        ),
        (
            PrimFunc((Param(y, "output"), Param(t, "workspace")), moved(y, replace(y, name="y"))),
            "buffer 't' is in scope 'spad', which is not a memory of the function",
            "parameter 't'",
        ),
        (
            function(Alloc(t, Store(t, (zero, zero), const(0, "int8")))),
            "'t' is in memory 'spad', which the host",
            "t[0, 0]",
        ),
        (function(Alloc(t, Update("add", t, (zero, zero), const(0, "int8")))), "'t' is in memory 'spad'", "t[0, 0] +="),
        (
            function(Alloc(t, Store(y, (zero, zero), t[zero, zero]))),
            "'t' is in memory 'spad', which the host",
            "y[0, 0] =",
        ),
        (function(moved(t, x)), "'t' is used outside its scope", "copy(view(t[0, 0]"),
        (function(Alloc(t, moved(x, t))), "input 'x' is written", "copy(view(x[0, 0]"),
        (function(Exec(WRITER, (POINT,))), "input 'x' is written", "writer(view(x[0, 0]))"),
        (
            function(Alloc(t, moved(t, x)), memories=(Memory("spad", 64),)),
            "memory 'spad' has no transfer from the host, copy_in",
            "copy(",
        ),
        (
            function(Alloc(t, moved(y, t)), memories=(Memory("spad", 64),)),
            "memory 'spad' has no transfer to the host, copy_out",
            "copy(",
        ),
        (
            function(*[Alloc(replace(TOTAL, name=f"b{n}"), seq()) for n in range(3)]),
            "memory 'spad' has 4096 bytes; with 'b2', buffers take 6144 bytes at once",
            "b2 = alloc(",
        ),
        (function(misaligned()), "'wide' takes as 'a' what is aligned to 16 bytes; 't' is aligned to 8", "wide("),
        (
            function(
                Exec(WRITER, (View(y, (zero, zero), ()),)),
                Exec(replace(WRITER, code="g({o})"), (View(y, (zero, zero), ()),)),
            ),
            "two intrinsics are called 'writer'",
            "writer(view(y[0, 0]))",
        ),
        (
            function(described(moved(y, x))),
            "intrinsic 'inner', copy(view(y[0, 0], axis(0), axis(1)), view(x[0, 0]",
            "inner(",
        ),
        (
            function(described(Store(q, (zero,), zero))),
            "intrinsic 'inner', q[0] = 0: 'q' is used outside its scope",
            "inner(",
        ),
        (function(described(Store(q, (i,), zero))), "intrinsic 'inner', q[i] = 0: 'i' is used outside", "inner("),
        (
            function(described(Alloc(Buffer("s", (1,), "int8", "spad"), seq()))),
            "intrinsic 'inner', s = alloc(int8, (1,), scope(\"spad\")): buffer 's' is allocated in scope 'spad'",
            "inner(",
        ),
    ],
)
def test_malformed_functions(func: PrimFunc, what: str, where: str) -> None:
    with pytest.raises(InternalError) as caught:
        verify(func)
    assert f"malformed loops: {what}" in caught.value.what
    assert caught.value.where is not None and caught.value.where.startswith(where)


def test_memory_is_free_again_after_its_scope_and_aligned_by_itself() -> None:
    blocks = [For(Var(f"i{n}"), const(2), Alloc(replace(TOTAL, name=f"b{n}"), seq())) for n in range(5)]
    assert list(faults(function(*blocks))) == []
    aligned = Intrinsic("aligned", (Buffer("a", (4, 8), "int8", "spad", 8),), (), seq(), "f({a})")
    assert list(faults(function(Alloc(t, Exec(aligned, (whole(t),)))))) == []


def test_an_intrinsic_by_itself() -> None:
    for good in (ADD, MAC, SUM):
        assert list(intrinsic_faults(good)) == []
    twice = Intrinsic("twice", (a, Buffer("b", (4,), "int8", "spad", 8192)), (), seq(), "f({a}, {b})")
    assert [what for what, _ in intrinsic_faults(twice)] == ["buffer 'b' is aligned to more than 4096 bytes"]
    loop = Intrinsic("loop", (), (Var("n"),), For(Var("n"), const(3), seq()), "f({n})")
    assert [what for what, _ in intrinsic_faults(loop)] == ["'n' is declared twice"]


# How it is written

EVERYTHING = """\
spad = memory(4096, align(8), copy_in="f({to}, {from}, {row_bytes}, {rows}, {to_stride}, {from_stride})")
regs = memory(64, copy_out="g({device}, {to}, {from}, {row_bytes})")

@intrinsic("h({device}, {a}, {a_stride1}, {b}, {n})")
def step(
    a: Operand[int8, (4, 8), align(8), scope("spad")],
    b: Operand[int32, ()],
    n: int32,
):
    b[()] = n
    for k in range(n):
        t = alloc(int32, ())
        t[()] = int32(a[k, 0])
        b[()] += t[()]

@intrinsic("halt()")
def halt():
    pass

@prim_func
def f(
    x: In[int8, (4, 8)],
    y: Out[int32, (4,)],
    s: Workspace[int8, (4, 8), align(8), scope("spad")],
):
    memories(spad, regs)
    may_alias(y, x)
    for i in range(4):
        copy(view(s[i, 0], axis(1)), view(x[0, i], axis(0, 0)), (8,))
        copy(view(s[0, 0]), view(x[i, i]), ())
        step(view(s[0, 0], axis(0), axis(1)), view(y[i]), i + 1)
        v = alloc(int32, (), scope("regs"))
        copy(view(y[i]), view(v[()]), ())
    halt()
"""


def test_the_whole_language() -> None:
    name, func = parse_func(EVERYTHING)
    assert print_func(func, name) == EVERYTHING
    assert [memory.name for memory in func.memories] == ["spad", "regs"]
    assert [found.name for found in intrinsics(func)] == ["step", "halt"]


@settings(suppress_health_check=list(HealthCheck), max_examples=8)
@given(device_funcs())
def test_what_is_printed_parses_to_the_very_function(func: PrimFunc) -> None:
    assert parse_func(print_func(func, "f")) == ("f", func)


def test_different_things_of_one_name_share_a_text() -> None:
    _, small = parse_func(EVERYTHING)
    _, large = parse_func(EVERYTHING.replace("4096", "8192").replace('"halt()"', '"halt(1)"'))
    definitions = Definitions([small, large], ["f", "g", "step"])
    text = "\n".join([*definitions.texts(), print_func(large, "g", definitions)])
    assert 'spad_1 = memory(8192, align(8), copy_in="f({to}' in text and ', name="spad")' in text
    assert '@intrinsic("halt(1)", name="halt")\ndef halt_1():' in text
    assert "def step_1(" in text and text.count("def step") == 1
    assert "    memories(spad_1, regs)\n" in text
    assert parse_func(text) == ("g", large)
    module = IRModule.from_functions({"f": small, "g": large})
    printed, constants = print_module(module)
    assert parse_module(printed, constants) == module
    assert printed.count(" = memory(") == 3


def test_words_of_statements_are_no_names_of_intrinsics() -> None:
    odd = Intrinsic("copy", (), (), seq(), "halt()")
    func = function(Exec(odd, ()))
    text = print_func(func, "f")
    assert '@intrinsic("halt()", name="copy")\ndef copy_1():' in text
    assert parse_func(text) == ("f", func)


def test_programs_define_memories_and_intrinsics_once() -> None:
    _, kernel = parse_func(EVERYTHING.replace("    may_alias(y, x)\n", ""))
    table = (
        ProgramBuffer("x", "input", (4, 8), "int8"),
        ProgramBuffer("y", "output", (4,), "int32"),
        ProgramBuffer("s", "workspace", (4, 8), "int8", 8),
    )
    program = Program("net", table, (ProgramCall("halt", ("x", "y", "s")),), {"halt": kernel})
    text, _ = print_program(program)
    assert text.count(" = memory(") == 2 and "def halt_1():" in text
    assert text.index("@program") < text.index("= memory(") < text.index("@prim_func")


HEAD = EVERYTHING[: EVERYTHING.index("@prim_func")]
PARAMS = "x: In[int8, (4, 8)], y: Out[int32, (4,)]"


def within(line: str) -> str:
    """A text whose function has just one line, which is at fault."""
    return f"{HEAD}@prim_func\ndef f({PARAMS}):\n    {line}\n"


@pytest.mark.parametrize(
    ("marked", "what"),
    [
        ("§a, b = memory(3)", "expected a name for the memory"),
        ("m = §memory()", "expected memory(bytes) or memory(bytes, align(bytes))"),
        ("m = §memory(1, 2)", "expected memory(bytes) or memory(bytes, align(bytes))"),
        ("m = memory(§1.5)", "expected a whole number"),
        ("m = memory(8, align(§x))", "expected a whole number"),
        ("m = memory(8, name=§3)", "expected a string"),
        (
            "m = memory(8, size=§3)",
            "unknown argument 'size'; there is copy_in, copy_out, start_in, start_out, ports, name",
        ),
        ("m = §memory(8, align(3))", "memory 'm' has alignment 3"),
        ('m = §memory(8, copy_in="f(")', "copy_in of memory 'm'"),
        ("m = memory(8)\n§m = memory(8)", "'m' is defined twice"),
        ("m = memory(8)\n@intrinsic('f()')\n§def m(): pass", "'m' is defined twice"),
        ("@§intrinsic()\ndef m(): pass", "an intrinsic is marked with its code"),
        ("@§intrinsic('f(')\ndef m(): pass", "code of 'm': it is not one expression"),
        ("@intrinsic(§3)\ndef m(): pass", "expected a string"),
        ("@intrinsic('f()')\ndef m() -> §int32: pass", "returns nothing"),
        ("@intrinsic('f()')\ndef m(§a): pass", "'a' needs a type such as Operand[int8, (4, 6)] or int32"),
        ("@intrinsic('f()')\ndef m(§a: In[int8, (4,)]): pass", "'a' needs a type such as Operand"),
        ("@intrinsic('f()')\ndef m(n: int32, §a: Operand[int8, (4,)]): pass", "operands come before variables"),
        ("@intrinsic('f({n})')\ndef m(n: int32):\n    §copy(n)", "copy takes 3 to 4 arguments, not 1"),
        ("@intrinsic('f({n})')\ndef m(n: int32):\n    §b[0] = n", "expected an element of a buffer"),
        (
            "@intrinsic('f({a})')\ndef m(a: Operand[int8, (4,)]):\n    t = alloc(int8, (4,))\n"
            "    §copy(view(a[0]), view(t[0]), ())",
            "a description consists of loops, without copies, waits and intrinsics",
        ),
        ("@intrinsic('f({a})')\ndef m(§a: Operand[int8, (4,), align(8192)]): pass", "aligned to more than 4096 bytes"),
        (within("memories(§moon)"), "memories takes the names of memories that are defined before"),
        (within("§moon(3)"), "not a statement of loops"),
        (within("copy(view(y[0]), view(y[1]), §3)"), "expected a tuple of indices, shape"),
        (within("copy(§y, view(y[1]), ())"), "expected a view, such as view(x[i, 0], axis(0), axis(1, 2))"),
        (within("copy(§view(), view(y[1]), ())"), "expected a view"),
        (within("copy(view(§y), view(y[1]), ())"), "expected an element of a buffer"),
        (within("copy(view(y[0], §1), view(y[1]), ())"), "expected axis(dimension) or axis(dimension, step)"),
        (within("copy(view(y[0], §axis()), view(y[1]), ())"), "expected axis(dimension)"),
        (within("copy(view(y[0], §axis(0, -1)), view(y[1]), ())"), "an axis has step -1"),
        (within("copy(§view(y[0], axis(1)), view(y[1]), ())"), "a view of 'y' has no dimension 1 to run along"),
        (within("§copy(view(y[0]), view(x[0, 0]), ())"), "int8 copied to 'y', of int32"),
        (within("§step(view(y[0]))"), "step takes 3 to 4 arguments, not 1"),
        (within("§step(view(y[0]), view(y[0]), 1)"), "'step' takes as 'a' a view of int8, not int32"),
        (within("y[0] = 1\n    §copy(view(x[0, 0]), view(x[0, 1]), ())"), "input 'x' is written"),
    ],
)
def test_errors_point_at_their_place(marked: str, what: str) -> None:
    before = marked[: marked.index("§")].split("\n")
    with pytest.raises(TextError) as caught:
        parse_func(marked.replace("§", ""))
    assert what in caught.value.what
    assert (caught.value.line, caught.value.column) == (len(before), len(before[-1]) + 1)


def test_a_text_of_definitions_alone_has_no_function() -> None:
    with pytest.raises(TextError, match="expected one function, marked @prim_func"):
        parse_func(HEAD)


# What it means


def test_copies_and_intrinsics_do_what_they_say() -> None:
    func = parsed(
        """
        def f(x: In[int8, (4, 8)], y: Out[int8, (8,)], q: Out[int32, (2, 2)], r: Out[int32, ()]):
            memories(spad, acc)
            t = alloc(int8, (2, 8), scope("spad"))
            copy(view(t[0, 0], axis(0), axis(1)), view(x[1, 0], axis(0, 2), axis(1)), (2, 8))
            add(view(t[0, 0], axis(1)), view(t[1, 0], axis(1)), view(t[1, 0], axis(1)), 8)
            copy(view(y[0], axis(0)), view(t[1, 0], axis(1)), (8,))
            for i in range(2):
                for j in range(2):
                    q[i, j] = 10 * i + j
            m = alloc(int32, (4,), scope("acc"))
            copy(view(m[0], axis(0, 2), axis(0)), view(q[0, 0], axis(0), axis(1)), (2, 2))
            for k in range(2):
                mac(view(t[0, k], axis(0), axis(1)), view(t[0, k + 4], axis(1), axis(0)),
                    view(m[0], axis(0, 2), axis(0)), 2, 2, 1)
            copy(view(q[0, 0], axis(0), axis(1)), view(m[0], axis(0, 2), axis(0)), (2, 2))
            sum(view(r[()]), view(m[1], axis(0, 2)), 2)
        """
    )
    x_ = np.arange(32, dtype=np.int8).reshape(4, 8)
    found = interpret(func, {"x": x_})
    tile = np.stack([x_[1], x_[1] + x_[3]]).astype(np.int32)
    assert found["y"].tolist() == tile[1].tolist()
    product = np.array([[0, 1], [10, 11]]) + tile[:, :2] @ tile[:, 4:6].T
    assert found["q"].tolist() == product.tolist()
    assert found["r"].item() == product[:, 1].sum()


START = """
def f(x: In[int8, (4, 8)], z: In[int32, ()], y: Out[int8, (8,)], q: Out[int32, (4,)]):
    memories(spad, acc)
    t = alloc(int8, (2, 8), scope("spad"))
    m = alloc(int32, (4,), scope("acc"))
"""


@pytest.mark.parametrize(
    ("lines", "what", "where"),
    [
        (
            "copy(view(t[0, 0], axis(1)), view(x[0, z[()]], axis(1)), (8,))",
            "index 8 is outside dimension 1 of 'x', of 8",
            "copy(view(t[0, 0], axis(1)), view(x[0, z[()]]",
        ),
        ("copy(view(t[0, 0], axis(1)), view(x[0, 0], axis(1)), (-z[()],))", "a copy has extents [-3]", "copy("),
        (
            "copy(view(t[0, 0], axis(1, 0)), view(x[0, 0], axis(1)), (2,))",
            "a copy writes elements of 't' twice, or reads what it writes",
            "copy(",
        ),
        (
            "for i in range(8):\n        y[i] = 0\n    copy(view(y[1], axis(0)), view(y[0], axis(0)), (2,))",
            "a copy writes elements of 'y' twice, or reads what it writes",
            "copy(",
        ),
        (
            "copy(view(y[0], axis(0)), view(t[0, 0], axis(1)), (8,))",
            "an element of 't' is copied before it is",
            "copy(",
        ),
        (
            "add(view(t[0, 0], axis(1)), view(t[0, 0], axis(1)), view(t[1, 0], axis(1)), 8)",
            "an element of 'a' is read before it is written, in 'add' at out[i] = a[i] + b[i]   with i = 0",
            "add(",
        ),
        (
            "copy(view(t[0, 0], axis(1)), view(x[0, 0], axis(1)), (8,))\n"
            "    add(view(t[0, 6], axis(1)), view(t[0, 0], axis(1)), view(t[1, 0], axis(1)), z[()])",
            "index 8 is outside dimension 1 of 't', of 8, in 'add' at out[i] = a[i] + b[i]   with i = 2",
            "add(",
        ),
        (
            "copy(view(t[0, 0], axis(1)), view(x[0, 0], axis(1)), (8,))\n"
            "    add(view(t[0, 0], axis(1)), view(t[0, 0], axis(1, 0)), view(t[1, 0], axis(1)), 9)",
            "index 8 is outside dimension 0 of 'a', of 8, in 'add'",
            "add(",
        ),
        (
            "copy(view(t[0, 0], axis(1)), view(x[0, 0], axis(1)), (8,))\n"
            "    copy(view(t[1, 0], axis(1)), view(x[0, 0], axis(1)), (8,))\n    narrow(view(t[0, z[()]], axis(1)))",
            "what is given for 'a' starts 3 bytes into 't', not at a multiple of 4 bytes",
            "narrow(",
        ),
    ],
)
def test_faults_are_found_at_their_statement(lines: str, what: str, where: str) -> None:
    narrow = '\n@intrinsic("f({a})")\ndef narrow(a: Operand[int8, (4,), align(4), scope("spad")]):\n    a[0] = 1\n'
    text = f"{DEFINITIONS}{narrow}\n@prim_func{START}    {lines}\n    y[0] = 0\n    q[0] = 0\n"
    func = parse_func(text)[1]
    arrays = {"x": np.zeros((4, 8), np.int8), "z": np.array(3, np.int32)}
    with pytest.raises(InterpreterError) as caught:
        interpret(func, arrays)
    assert what in caught.value.what
    assert caught.value.where is not None and caught.value.where.startswith(where)


# In place


def aliases(text: str) -> tuple[tuple[str, str], ...]:
    func = parsed(text)
    return may_alias(func.params, func.body)


def test_a_kernel_that_copies_a_tile_in_before_it_copies_it_out_may_work_in_place() -> None:
    tiled = """
    def f(x: In[int8, (4, 8)], y: Out[int8, (4, 8)]):
        memories(spad)
        for i in range(4):
            t = alloc(int8, (8,), scope("spad"))
            copy(view(t[0], axis(0)), view(x[{read}, 0], axis(1)), ({count},))
            add(view(t[0], axis(0)), view(t[0], axis(0)), view(t[0], axis(0)), 8)
            copy(view(y[i, 0], axis(1)), view(t[0], axis(0)), (8,))
    """
    assert aliases(tiled.format(read="i", count=8)) == (("y", "x"),)
    assert aliases(tiled.format(read="min(i + 1, 3)", count=8)) == ()
    assert aliases(tiled.format(read="i", count=9)) == (), "a row and the next one's first element"


def test_what_one_statement_does_is_not_done_in_place() -> None:
    copied = """
    def f(x: In[int8, (4, 8)], y: Out[int8, (4, 8)]):
        copy(view(y[0, 0], axis(0), axis(1)), view(x[0, 0], axis(0), axis(1)), (4, 8))
    """
    assert aliases(copied) == ()


def test_an_intrinsic_counts_with_the_largest_shape_of_its_parameters() -> None:
    summed = """
    def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
        memories(acc)
        m = alloc(int32, (16,), scope("acc"))
        for i in range(4):
            copy(view(m[i]), view(x[i]), ())
            sum(view(y[{written}]), view(m[0], axis(0)), 1)
    """
    assert aliases(summed.format(written="i")) == (("y", "x"),)
    assert aliases(summed.format(written="3 - i")) == ()
