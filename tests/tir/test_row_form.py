"""The row form of functions: that it computes the same in the rows that it says, and why others have none."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from textwrap import dedent, indent

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests._support.c_programs import SANITIZED, Run, run_compiled
from tests._support.rows import by_least_rows

from uma.errors import TextError
from uma.tir import NoRows, PrimFunc, RowParam, interpret, parse_func, print_func, row_form
from uma.tir.form.source_text import Source
from uma.tir.form.text import Defined, parse_def
from uma.tir.proofs.indices import index_faults
from uma.tir.proofs.obligations import unproven
from uma.tir.proofs.rows import around, is_made_anew


def _func(text: str) -> PrimFunc:
    return parse_func(f"@prim_func\n{dedent(text).strip()}\n")[1]


def _arrays(func: PrimFunc, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    given = [param.buffer for param in func.params if param.role in ("input", "constant")]
    return {buffer.name: rng.integers(-50, 50, buffer.shape).astype(buffer.dtype) for buffer in given}


def _checked(func: PrimFunc, heights: dict[str, int]) -> PrimFunc:
    """The row form, which gives what the function gives, in one piece and with least rows."""
    made = row_form(func, heights)
    assert isinstance(made, PrimFunc), made
    assert made.rows is not None and unproven(made) is None
    arrays = _arrays(func)
    expected = interpret(func, arrays)
    for found in (interpret(made, arrays), by_least_rows(made, arrays)):
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)
    return made


WINDOWS = """
def f(x: In[int8, (80,)], y: Out[int32, (40,)]):
    for r in range(4):
        for c in range(10):
            y[r * 10 + c] = 0
            for i in range(3):
                if r * 2 + i >= 1 and r * 2 + i < 9:
                    for j in range(3):
                        if c + j >= 1 and c + j < 11:
                            y[r * 10 + c] += int32(x[(r * 2 + i - 1) * 10 + (c + j - 1)])
"""
PACKED = """
def f(x: In[int8, (60,)], y: Out[int32, (60,)], t: Workspace[int8, (36,)]):
    with block("rows_of_y"):
        for r in range(6):
            for i in range(3):
                for c in range(12):
                    inside = alloc(bool, ())
                    inside[()] = r + i >= 1 and r + i < 7 and c >= 1 and c < 11
                    if inside[()]:
                        t[i * 12 + c] = x[max(min((r + i - 1) * 10 + (c - 1), 59), 0)]
                    else:
                        t[i * 12 + c] = 3
            for d in range(10):
                y[r * 10 + d] = int32(t[d]) + int32(t[d + 1]) + int32(t[d + 24])
"""
CLAMPED = """
def f(x: In[int8, (6, 3)], y: Out[int8, (6, 3)]):
    for r in range(6):
        for c in range(3):
            y[r, c] = x[max(r - 1, 0), c] + x[min(r + 2, 5), c]
"""
PIXELS = """
def f(x: In[int8, (96,)], z: In[int8, (96,)], y: Out[int8, (48,)]):
    with block("b"):
        for p in range(24):
            for c in range(2):
                y[p * 2 + c] = x[p * 4 + c] + z[p * 4 + c + 2]
"""
PADDED = """
def f(x: In[int8, (12,)], y: Out[int8, (24,)]):
    t = alloc(int8, (4,))
    for i in range(4):
        t[i] = -7
    for r in range(6):
        for c in range(4):
            y[r * 4 + c] = -7
    for s in range(4):
        for d in range(3):
            y[(s + 1) * 4 + d] = x[s * 3 + d]
"""
STACKED = """
def f(x: In[int8, (12,)], z: In[int8, (9,)], y: Out[int8, (21,)]):
    for r in range(4):
        for c in range(3):
            y[r * 3 + c] = x[r * 3 + c]
    for s in range(3):
        for d in range(3):
            y[12 + s * 3 + d] = z[s * 3 + d]
"""
AROUND = """
def f(x: In[int8, (4, 5)], y: Out[int32, (4, 5)], w: Const[int32, (2,)]):
    v: int32 = w[0] + w[1]
    t = alloc(int32, (5,))
    u = alloc(int32, ())
    u[()] = v * 3
    for r in range(4):
        for c in range(5):
            t[c] = int32(x[r, c]) * u[()]
        for d in range(5):
            y[r, d] = t[4 - d]
"""
RESIZED = """
def f(x: In[int8, (4, 3)], y: Out[int8, (8, 3)]):
    for r in range(8):
        for c in range(3):
            y[r, c] = x[r // 2, c]
"""
TWO_RESULTS = """
def f(x: In[int8, (4, 3)], y: Out[int8, (4, 3)], z: Out[int8, (4, 2)]):
    for r in range(4):
        for c in range(3):
            y[r, c] = x[r, c]
        for d in range(2):
            z[r, d] = x[r, d + 1]
"""


@pytest.mark.parametrize(
    ("text", "heights", "params"),
    [
        (WINDOWS, {"x": 8, "y": 4}, [RowParam("x", 8, 3, 2, 1), RowParam("y", 4)]),
        (PACKED, {"x": 6, "y": 6}, [RowParam("x", 6, 5, 1, 2), RowParam("y", 6)]),
        (CLAMPED, {"x": 6, "y": 6}, [RowParam("x", 6, 4, 1, 1), RowParam("y", 6)]),
        (PIXELS, {"x": 6, "z": 6, "y": 6}, [RowParam("x", 6), RowParam("z", 6), RowParam("y", 6)]),
        (PIXELS, {"x": 6, "y": 6}, [RowParam("x", 6), RowParam("y", 6)]),
        (PIXELS, {"x": 24, "z": 24, "y": 24}, [RowParam("x", 24), RowParam("z", 24), RowParam("y", 24)]),
        (STACKED, {"x": 4, "z": 3, "y": 7}, [RowParam("x", 4), RowParam("z", 3, before=4), RowParam("y", 7)]),
        (AROUND, {"x": 4, "y": 4}, [RowParam("x", 4), RowParam("y", 4)]),
        (RESIZED, {"x": 4, "y": 8}, [RowParam("y", 8)]),
        (TWO_RESULTS, {"x": 4, "y": 4, "z": 4}, [RowParam("x", 4), RowParam("y", 4), RowParam("z", 4)]),
    ],
)
def test_what_is_made_by_rows(text: str, heights: dict[str, int], params: list[RowParam]) -> None:
    made = _checked(_func(text), heights)
    assert made.rows is not None
    assert list(made.rows.params) == params
    assert made.rows.kept == ()
    assert row_form(made, heights) is made


SUMMED = """
def f(x: In[{dtype}, (6, 4, 3)], y: Out[{dtype}, (3,)]):
    a = alloc({dtype}, (3,))
    with block("sums"):
        for i in range(3):
            a[i] = {zero}
        for r in range(6):
            for c in range(4):
                for k in range(3):
                    a[k] += x[r, c, k]
    with block("ends"):
        for j in range(3):
            y[j] = a[j]
"""
LARGEST = """
def f(x: In[float32, (72,)], y: Out[float32, (1,)], t: Workspace[float32, (1,)]):
    m = alloc(float32, ())
    m[()] = float32("-inf")
    for p in range(24):
        t[0] = x[p * 3]
        for k in range(2):
            update_max(t[0], x[p * 3 + k + 1])
        update_max(m[()], t[0])
    y[0] = m[()]
"""
TWICE = """
def f(x: In[int8, (8, 2)], y: Out[int32, ()]):
    y[()] = 0
    for r in range(4):
        for i in range(2):
            for c in range(2):
                y[()] += int32(x[r * 2 + i, c])
"""


@pytest.mark.parametrize(
    ("text", "heights", "params", "kept"),
    [
        (SUMMED.format(dtype="int32", zero="0"), {"x": 6, "y": 1}, [RowParam("x", 6)], ("a",)),
        (SUMMED.format(dtype="float32", zero="0.0"), {"x": 6}, [RowParam("x", 6)], ("a",)),
        (LARGEST, {"x": 6}, [RowParam("x", 6)], ("m",)),
        (TWICE, {"x": 8}, [RowParam("x", 8, 2, 2)], ()),
    ],
)
def test_what_is_added_up_by_rows(
    text: str, heights: dict[str, int], params: list[RowParam], kept: tuple[str, ...]
) -> None:
    made = _checked(_func(text), heights)
    assert made.rows is not None
    assert (list(made.rows.params), made.rows.kept) == (params, kept)


def _with(lines: str, params: str = "x: In[int8, (24,)], y: Out[int8, (24,)]") -> str:
    return f"def f({params}):\n{indent(dedent(lines).strip(), '    ')}"


@pytest.mark.parametrize(
    ("text", "heights", "reason"),
    [
        (
            _with("for c in range(4):\n    for r in range(6):\n        y[r * 4 + c] = x[r * 4 + c]"),
            {"x": 6, "y": 6},
            "its outermost loop, 'c', does not go over the rows of 'y'",
        ),
        (
            _with("for r in range(3):\n    for i in range(8):\n        y[r * 8 + i] = x[r * 8 + i]"),
            {"x": 6, "y": 6},
            "a tile takes 2 rows of 'y' at once",
        ),
        (
            _with("for p in range(8):\n    for i in range(3):\n        y[p * 3 + i] = x[p * 3 + i]"),
            {"x": 6, "y": 6},
            "its outermost loop, 'p', goes through 'y' by 3 elements, and a row has 4",
        ),
        (
            _with("for r in range(5):\n    for i in range(8):\n        y[r * 4 + i] = x[r * 4 + i]"),
            {"x": 6, "y": 6},
            "a round of its outermost loop, 'r', writes several rows of 'y'",
        ),
        (
            _with(
                """
                t = alloc(int8, (24,))
                for i in range(24):
                    t[i] = x[i]
                for r in range(6):
                    for c in range(4):
                        y[r * 4 + c] = t[r * 4 + c]
                """
            ),
            {"x": 6, "y": 6},
            "'t' is made before the loop over rows, and would be made anew for each",
        ),
        (
            _with(
                """
                t = alloc(int8, (4,))
                for r in range(6):
                    for c in range(4):
                        t[c] = x[r * 4 + c] if r < 1 else t[c] + x[r * 4 + c]
                        y[r * 4 + c] = t[c]
                """
            ),
            {"x": 6, "y": 6},
            "'t' is kept from row to row",
        ),
        (
            _with(
                """
                t = alloc(int8, (4,))
                for r in range(6):
                    for c in range(2):
                        t[c] = x[r * 4 + c]
                        y[r * 4 + c] = t[c]
                for s in range(6):
                    for d in range(2):
                        y[s * 4 + d + 2] = t[d]
                """
            ),
            {"x": 6, "y": 6},
            "'t' is made by one loop over rows and read by another",
        ),
        (
            _with(
                """
                t = alloc(int8, (4,))
                for r in range(6):
                    for c in range(2):
                        t[c] = x[r * 4 + c]
                        y[r * 4 + c] = t[c]
                for s in range(6):
                    for d in range(2):
                        t[d] = x[s * 4 + d]
                        y[s * 4 + d + 2] = 3
                """
            ),
            {"x": 6, "y": 6},
            "'t' is used by several loops over rows",
        ),
        (
            _with("for r in range(6):\n    for c in range(4):\n        y[r * 4 + c] = x[r]\ny[3] = 1"),
            {"x": 6, "y": 6},
            "part of its result is written outside of its loops over rows",
        ),
        (_with("y[0] = 1", "y: Out[int8, (2,)]"), {"y": 2}, "part of its result is written outside of its loops"),
        (
            _with("if y[0] > 1:\n    for r in range(6):\n        for c in range(4):\n            y[r * 4 + c] = 1"),
            {"y": 6},
            "what stands around its loops reads what they write",
        ),
        (
            _with("for r in range(int32(x[0])):\n    y[r] = 1"),
            {"y": 6},
            "its outermost loop, 'r', is one over vectors or of no constant extent",
        ),
        (
            _with(
                """
                for r in range(3):
                    for c in range(4):
                        y[r * 4 + c] = x[r * 4 + c]
                        z[(r + 3) * 4 + c] = x[r * 4 + c]
                """,
                "x: In[int8, (24,)], y: Out[int8, (24,)], z: Out[int8, (24,)]",
            ),
            {"y": 6, "z": 6},
            "a round of its outermost loop writes different rows of its results",
        ),
        (
            _with(
                "for r in range(6):\n    y[r] = x[r]\n    z[r] = x[r]",
                "x: In[int8, (6,)], y: Out[int8, (6,)], z: Out[int8, (6,)]",
            ),
            {"y": 6, "z": 3},
            "its results have different numbers of rows",
        ),
        (_with("for r in range(24):\n    y[r] = x[r]"), {"x": 5, "y": 6}, "'x' is not 5 equal parts"),
        (_with("for r in range(24):\n    y[r] = x[r]"), {}, "neither what it reads nor what it makes has several rows"),
        (
            _with("partial(y)\nfor r in range(24):\n    y[r] = x[r]"),
            {"y": 6},
            "how much it makes is known when it runs",
        ),
        (
            _with(
                """
                for c in range(4):
                    y[c] = 0
                    for r in range(6):
                        y[c] += x[r * 4 + c]
                """,
                "x: In[int8, (24,)], y: Out[int8, (4,)]",
            ),
            {"x": 6},
            "its outermost loop that reads 'x', 'c', does not go over its rows",
        ),
        (
            _with(
                """
                y[0] = 0
                for r in range(24):
                    y[0] += x[r]
                for s in range(24):
                    y[0] *= x[s]
                """,
                "x: In[int8, (24,)], y: Out[int8, (1,)]",
            ),
            {"x": 24},
            "several loops over rows read 'x'",
        ),
        (
            _with("y[0] = x[0]", "x: In[int8, (2,)], y: Out[int8, (1,)]"),
            {"x": 2},
            "no outermost loop over rows read 'x'",
        ),
        (
            _with(
                """
                y[0] = 0
                v: int8 = y[0]
                for r in range(24):
                    y[0] += x[r] + v
                """,
                "x: In[int8, (24,)], y: Out[int8, (1,)]",
            ),
            {"x": 24},
            "what stands around its loop over rows reads what that writes",
        ),
        (
            _with(
                """
                a = alloc(int8, (16,), scope("register"))
                for i in vectorized(16):
                    a[i] = 0
                for r in range(3):
                    for j in vectorized(16):
                        a[j] += x[r * 16 + j]
                for k in vectorized(16):
                    y[k] = a[k]
                """,
                "x: In[int8, (48,)], y: Out[int8, (16,)]",
            ),
            {"x": 3},
            "'a', which it adds up in, is in registers",
        ),
        (
            _with(
                """
                for i in vectorized(16):
                    y[i] = x[i]
                """,
                "x: In[int8, (16,)], y: Out[int8, (16,)]",
            ),
            {"x": 4},
            "its outermost loop, 'i', is one over vectors",
        ),
    ],
)
def test_what_has_no_row_form(text: str, heights: dict[str, int], reason: str) -> None:
    found = row_form(_func(text), heights)
    assert isinstance(found, NoRows), found
    assert reason in found.reason


def test_what_an_accelerator_does_has_no_row_form() -> None:
    text = "q = queue('wait({device}, {pending})')\n@prim_func\ndef f(x: In[int8, (4,)], y: Out[int8, (4,)]):\n"
    text += "    queues(q)\n    wait(q)\n    for r in range(4):\n        y[r] = x[r]\n"
    assert row_form(parse_func(text)[1], {"y": 4}) == NoRows("it uses an accelerator")


INSTRUCTION = """
@intrinsic(statement="copy4({{y}}, {{x}}, {{n}})")
def copy4(y: Operand[int8, (4,)], x: Operand[int8, (4,), align({align})], n: int32):
    for i in range(n):
        y[i] = x[i]

@prim_func
def f(x: In[int8, ({size},), align(4)], y: Out[int8, (18,)], z: Out[int8, (18,)]):
    for r in range(6):
        copy4(view(y[r * 3], axis(0)), view(x[r * {row}], axis(0)), 3)
        for n in range(3):
            copy4(view(z[r * 3 + n], axis(0)), view(x[r * {row}], axis(0)), min(n + 1, 3 - n))
"""


def test_what_instructions_touch_is_read_in_their_descriptions() -> None:
    _, func = parse_func(INSTRUCTION.format(align=4, size=24, row=4))
    made = row_form(func, {"x": 6, "y": 6, "z": 6})
    assert isinstance(made, PrimFunc) and made.rows is not None
    assert list(made.rows.params) == [RowParam(name, 6) for name in "xyz"]
    made = row_form(parse_func(INSTRUCTION.format(align=1, size=24, row=4))[1], {"x": 12, "y": 6, "z": 6})
    assert isinstance(made, PrimFunc) and made.rows is not None
    assert made.rows.of("x") == RowParam("x", 12, 2, 2)


def test_an_instruction_is_given_rows_that_are_aligned_for_it() -> None:
    found = row_form(parse_func(INSTRUCTION.format(align=4, size=36, row=6))[1], {"x": 6, "y": 6, "z": 6})
    assert isinstance(found, NoRows)
    assert "'copy4' takes as 'x' what is aligned to 4 bytes; rows of 'x', held from any one on, have 6" in found.reason


@pytest.mark.few(1)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_c_of_one_row_stands_the_sanitizers(compiler: str, tmp_path: Path) -> None:
    several = [
        (WINDOWS, {"x": 8, "y": 4}),
        (PACKED, {"x": 6, "y": 6}),
        (CLAMPED, {"x": 6, "y": 6}),
        (PIXELS, {"x": 6, "z": 6, "y": 6}),
        (STACKED, {"x": 4, "z": 3, "y": 7}),
        (AROUND, {"x": 4, "y": 4}),
        (RESIZED, {"x": 4, "y": 8}),
        (SUMMED.format(dtype="int32", zero="0"), {"x": 6}),
        (SUMMED.format(dtype="float32", zero="0.0"), {"x": 6}),
        (LARGEST, {"x": 6}),
        (TWICE, {"x": 8}),
    ]
    runs, expected = [], []
    for text, heights in several:
        func = _func(text)
        made = row_form(func, heights)
        assert isinstance(made, PrimFunc)
        runs.append(Run(made, _arrays(func)))
        expected.append(interpret(func, _arrays(func)))
    for found, wanted in zip(run_compiled(runs, compiler, SANITIZED, tmp_path), expected, strict=True):
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    ("promise", "is_proven"),
    [
        ("by_rows(x, 8, window=3, stride=2, before=1)", True),
        ("by_rows(x, 8, window=4, stride=2, before=1)", True),
        ("by_rows(x, 8, window=4, stride=2, before=2)", True),
        ("by_rows(x, 8, window=2, stride=2, before=1)", False),
        ("by_rows(x, 8, window=2, stride=2)", False),
        ("by_rows(x, 8, window=3, stride=2)", False),
        ("by_rows(x, 8, window=3, before=1)", False),
        ("by_rows(x, 4, window=2, before=1)", True),
        ("by_rows(x, 4)", False),
        ("by_rows(x, 8, window=8)", True),  # as rows before the first are none
        ("by_rows(x, 8, window=4)", False),
        ("pass", True),
    ],
)
def test_a_promise_of_rows_is_proven_wherever_it_is_from(promise: str, is_proven: bool) -> None:
    made = row_form(_func(WINDOWS), {"x": 8, "y": 4})
    assert isinstance(made, PrimFunc)
    told = "    by_rows(x, 8, window=3, stride=2, before=1)\n"
    assert told in print_func(made, "f")
    text = print_func(made, "f").replace(told, "" if promise == "pass" else f"    {promise}\n")
    found = unproven(parse_func(text)[1])
    if is_proven:
        assert found is None
        return
    assert found is not None and "a round touches rows of 'x' other than those that it says" in found.what
    with pytest.raises(TextError, match="a round touches rows of 'x' other than those that it says"):
        parse_def(ast.parse(text).body[0], Defined(Source(text)))  # type: ignore[arg-type]  # it is a function


def test_a_row_other_than_its_own_is_no_row_of_an_output() -> None:
    made = row_form(_func(CLAMPED), {"x": 6, "y": 6})
    assert isinstance(made, PrimFunc)
    text = print_func(made, "f").replace("y[row, c]", "y[5 - row, c]")
    found = unproven(parse_func(text)[1])
    assert found is not None and "a round touches rows of 'y' other than those that it says" in found.what


def test_a_workspace_that_is_not_kept_is_made_anew() -> None:
    made = row_form(_func(LARGEST), {"x": 6})
    assert isinstance(made, PrimFunc)
    text = print_func(made, "f").replace("    kept(m)\n", "")
    found = unproven(parse_func(text)[1])
    assert found is not None
    assert found.what == "workspace 'm' is not proven to be written in each round before it is read there"
    assert found.hint == "write it first, or say kept(m), so that its contents last"


OTHERS = "for i in range(3):\n    y[r * 3 + i] = 1"
WORKSPACE = """
def f(x: In[int8, (12,)], y: Out[int8, (12,)], t: Workspace[int8, (4,)]):
    rows(r, 4)
    by_rows(x, 4)
    by_rows(y, 4)
"""


@pytest.mark.parametrize(
    ("lines", "is_anew"),
    [
        ("for i in range(3):\n    t[i] = x[r * 3 + i]\nfor j in range(3):\n    y[r * 3 + j] = t[j]", True),
        ("for i in range(3):\n    t[i] = x[r * 3 + i]\nfor j in range(3):\n    y[r * 3 + j] = t[j + 1]", False),
        ("for i in range(3):\n    t[i] = x[r * 3 + i]\n    y[r * 3 + i] = t[i]", True),
        ("for i in range(3):\n    t[0] = x[r * 3]\n    y[r * 3 + i] = t[i]", False),
        ("for i in range(3):\n    y[r * 3 + i] = t[0]\n    t[0] = x[r * 3]", False),
        ("if r > 0:\n    t[0] = 1\nelse:\n    t[0] = 2\nfor i in range(3):\n    y[r * 3 + i] = t[0]", True),
        ("if r > 0:\n    t[0] = 1\nfor i in range(3):\n    y[r * 3 + i] = t[0]", False),
        ("if x[r * 3] > 0:\n    t[0] = 1\n    y[r * 3] = t[0]\n" + OTHERS, True),
        ("if x[r * 3] > 0:\n    t[0] = 1\nelse:\n    y[r * 3] = t[0]\n" + OTHERS, False),
        ("t[r] = 1\nfor i in range(3):\n    y[r * 3 + i] = t[r]", False),
        ("t[0] = 1\nv: int8 = t[0]\nfor i in range(3):\n    y[r * 3 + i] = v + t[0]", True),
        ("v: int8 = t[0]\nfor i in range(3):\n    y[r * 3 + i] = v\nt[0] = 1", False),
        ("k: int32 = 2\nt[k] = 1\nfor i in range(3):\n    y[r * 3 + i] = t[k]\n    t[k] += 1", True),
        ("for j in range(int32(x[r * 3])):\n    t[1] = 2\n    y[r * 3] = t[1]\n" + OTHERS, False),
        ("y[r * 3] = 1\nfor i in range(2001):\n    t[0] = 1\n    y[r * 3 + 1] = t[0]\n    y[r * 3 + 2] = 1", False),
    ],
)
def test_what_is_read_of_a_workspace_was_written_in_the_same_round(lines: str, is_anew: bool) -> None:
    func = _func(WORKSPACE + indent(lines, "    "))
    assert func.rows is not None
    assert is_made_anew(func.params[2].buffer, func.body, around(func.rows)) is is_anew
    assert next(index_faults(func), None) is None


@st.composite
def windows(draw: st.DrawFn) -> tuple[str, dict[str, int]]:
    """A sum over windows, written in one of several ways, and the heights of its parameters."""
    height, width, channels = draw(st.integers(2, 7)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    rows, stride, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    before, behind, columns = draw(st.integers(-1, rows)), draw(st.integers(0, rows)), draw(st.integers(2, 3))
    made = (height + before + behind - (rows - 1) * dilation - 1) // stride + 1
    assume(made >= 2)
    row, column = f"r * {stride} + i * {dilation} - {before}", "c + j - 1"
    inside = f"{row} >= 0 and {row} < {height} and {column} >= 0 and {column} < {width}"
    element = f"int32(x[(({row}) * {width} + ({column})) * {channels} + k])"
    place = f"(r * {width} + c) * {channels}"
    way = draw(st.sampled_from(["guarded", "chosen", "packed"]))
    step = {
        "guarded": f"if {inside}:\n                    y[{place} + k] += {element}",
        "chosen": f"y[{place} + k] += {element} if {inside} else 2",
        "packed": f"t[j * {channels} + k] = {element} if {inside} else 2",
    }[way]
    packed = f"""
            for j2 in range({columns}):
                for k2 in range({channels}):
                    y[{place} + k2] += t[j2 * {channels} + k2]"""
    text = f"""
def f(x: In[int8, ({height * width * channels},)], y: Out[int32, ({made * width * channels},)]):
    t = alloc(int32, ({columns * channels},))
    for r in range({made}):
        for c in range({width}):
            for k1 in range({channels}):
                y[{place} + k1] = 0
            for i in range({rows}):
                for j in range({columns}):
                    for k in range({channels}):
                        {step.replace(chr(10), chr(10) + "        ")}
{indent(packed, "    ") if way == "packed" else ""}
"""
    return text, {"x": height, "y": made}


@given(windows())
@settings(max_examples=settings().max_examples // 2)
def test_random_windows_by_rows(drawn: tuple[str, dict[str, int]]) -> None:
    text, heights = drawn
    made = _checked(_func(text), heights)
    assert made.rows is not None
    row = made.rows.of("x")
    if row is None:  # each round touches all
        return
    arrays = _arrays(made)
    for other in ({"window": row.window - 1}, {"window": row.window - 1, "before": row.before - 1}):
        if row.window > 1:
            rows = tuple(replace(row, **other) if one is row else one for one in made.rows.params)
            short = replace(made, rows=replace(made.rows, params=rows))
            if unproven(short) is None:  # as the rows left out lie outside, or are touched in no round
                assert by_least_rows(short, arrays)["y"].tolist() == interpret(made, arrays)["y"].tolist()
