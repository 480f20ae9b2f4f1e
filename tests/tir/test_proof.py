"""What is proven of every lowered function: it stays within its buffers, and writes all of its outputs."""

from __future__ import annotations

import re

import pytest
from tests._support.tir_tools import func

from uma.errors import TextError
from uma.relay.text import parse_module
from uma.tir.form.nodes import Axis, Buffer, Exec, For, Intrinsic, Param, PrimFunc, Store, Var, View, const, seq
from uma.tir.form.text import parse_func
from uma.tir.proofs.indices import index_faults
from uma.tir.proofs.obligations import unproven
from uma.tir.proofs.written import output_faults

PROVEN = {
    "a part of what a quotient bounds above": """
def f(x: In[int32, (2, 5)], y: Out[int32, (2, 5)]):
    for a in range(2):
        for b in range(3):
            if a * 3 + b < 5:
                for c in range(2):
                    t: int32 = (a * 3 + b) * 2 + c
                    y[t // 5, t % 5] = 1 if t // 5 > 0 else x[0, b * 2 + c]
""",
    "a part of what a quotient bounds below": """
def f(x: In[int32, (5,)], y: Out[int32, (10,)]):
    for b in range(5):
        for c in range(2):
            y[b * 2 + c] = x[b * 2 + c - 5] if (b * 2 + c) // 5 > 0 else 1
""",
    "a sum of loops": """
def f(x: In[int32, (8, 5)], y: Out[int32, (8,)]):
    for i in range(8):
        y[i] = x[i, 4]
""",
    "tiles of which the last is smaller": """
def f(x: In[int32, (10,)], y: Out[int32, (10,)]):
    for t in range(3):
        for i in range(min(10 - t * 4, 4)):
            y[t * 4 + i] = x[t * 4 + i]
""",
    "tiles of which the last is guarded": """
def f(x: In[int32, (10,)], y: Out[int32, (10,)]):
    for t in range(3):
        for i in range(4):
            if t * 4 + i < 10:
                y[t * 4 + i] = x[t * 4 + i]
""",
    "tiles in two dimensions, the last smaller in both": """
def f(x: In[int32, (10, 7)], y: Out[int32, (10, 7)]):
    for t in range(3):
        for s in range(3):
            for i in range(min(10 - t * 4, 4)):
                for j in range(min(7 - s * 3, 3)):
                    y[t * 4 + i, s * 3 + j] = x[t * 4 + i, s * 3 + j]
""",
    "the same, flat": """
def f(x: In[int32, (70,)], y: Out[int32, (70,)]):
    for t in range(3):
        for s in range(3):
            for i in range(min(10 - t * 4, 4)):
                for j in range(min(7 - s * 3, 3)):
                    y[(t * 4 + i) * 7 + s * 3 + j] = x[(t * 4 + i) * 7 + s * 3 + j]
""",
    "rows of a picture, that its padding moves in a tile": """
def f(x: In[int8, (340,)], y: Out[int32, ()]):
    y[()] = 0
    for t in range(2):
        for i in range(max(t * 4 - 1 + min(3 - t * 2, 2) * 2 - max(t * 4 - 1, 0), 0)):
            for j in range(2):
                for k in range(17):
                    y[()] += int32(x[max(t * 4 - 1, 0) * 85 - t * 340 + 119 + i * 85 + j * 17 + k])
""",
    "a tile that reads what is around it": """
def f(x: In[int32, (10,)], y: Out[int32, (10,)]):
    for t in range(3):
        first: int32 = max(t * 4 - 1, 0)
        last: int32 = min(t * 4 + 5, 10)
        for i in range(last - first):
            s: int32 = x[first + i]
            if first + i >= t * 4 and first + i < min(t * 4 + 4, 10):
                y[first + i] = s
""",
    "a window under a condition": """
def f(x: In[int32, (6, 6)], y: Out[int32, (6, 6)]):
    for i in range(6):
        for j in range(6):
            y[i, j] = 0
            for a in range(3):
                for b in range(3):
                    if i + a >= 1 and i + a < 7 and j + b > 0 and j + b <= 6:
                        y[i, j] += x[i + a - 1, j + b - 1]
""",
    "windows over a volume of open extents, flat": """
def f(x: In[int32, (18,)], k: In[int32, (9,)], extent: In[int32, (1,)], y: Out[int32, (36,)]):
    partial(y)
    n: int32 = max(min(extent[0], 3), 1)
    for i in range(4 - n):
        for j in range(n):
            for l in range(5 - n):
                y[(i * 3 + j) * 4 + l] = 0
                for a in range(n):
                    if i + a * 2 >= 2:
                        for b in range(n):
                            if l + b >= 1 and l + b < 3:
                                y[(i * 3 + j) * 4 + l] += x[((i + a * 2 - 2) * 3 + j) * 2 + l + b - 1] * k[a * 3 + b]
""",
    "windows of open extents over a batch of volumes, flat": """
def f(x: In[int32, (160,)], extent: In[int32, (1,)], y: Out[int32, ()]):
    y[()] = 0
    n: int32 = max(min(extent[0], 3), 1)
    for i in range(2):
        for d in range(9 - 2 * n):
            for h in range(12 - 2 * n):
                for w in range(9 - 2 * n):
                    for a in range(n):
                        if d + a * 2 >= 3:
                            for b in range(n):
                                if h + b * 2 >= 3 and h + b * 2 < 8:
                                    for c in range(n):
                                        if w + c * 2 >= 1 and w + c * 2 < 5:
                                            y[()] += x[((i * 4 + d + a * 2 - 3) * 5 + h + b * 2) * 4 + w + c * 2 - 13]
""",
    "a strided, dilated window in a select": """
def f(x: In[int32, (9,)], y: Out[int32, (5,)]):
    for i in range(5):
        y[i] = 0
        for a in range(3):
            y[i] += x[i * 2 + a * 2 - 2] if i * 2 + a * 2 - 2 >= 0 and i * 2 + a * 2 < 11 else 0
""",
    "nested selects": """
def f(x: In[int32, (4,)], y: Out[int32, (12,)]):
    for i in range(12):
        y[i] = x[i] if i < 4 else (x[i - 4] if i < 8 else x[i - 8])
""",
    "an index that a select clamps": """
def f(x: In[int32, (4,)], y: Out[int32, (9,)]):
    for i in range(9):
        y[i] = x[0 if i < 3 else (i - 3 if i < 7 else 3)]
""",
    "a ring": """
def f(x: In[int32, (20,)], y: Out[int32, (20,)]):
    t = alloc(int32, (3,))
    for i in range(20):
        t[i % 3] = x[i]
        y[i] = t[(i + 3) % 3]
""",
    "a split index": """
def f(x: In[int32, (6, 4)], y: Out[int32, (24,)]):
    for i in range(24):
        y[i] = x[i // 4, i % 4]
""",
    "a split index put together": """
def f(x: In[int32, (24,)], y: Out[int32, (24,)]):
    for i in range(24):
        y[i // 4 * 4 + i % 4] = x[(i >> 2) * 4 + (i & 3)]
""",
    "the rows of a triangle": """
def f(x: In[int32, (5, 5)], y: Out[int32, (5, 5)]):
    for i in range(5):
        for j in range(5):
            y[i, j] = 0
        for j2 in range(i + 1):
            y[i, j2] = x[i - j2, j2]
""",
    "what data decide, clamped": """
def f(n: In[int8, (4,)], x: In[int32, (16,)], y: Out[int32, (4,)]):
    for i in range(4):
        y[i] = x[min(max(int32(n[i]), 0), 15)]
""",
    "what data decide, asked for before": """
def f(n: In[int32, (4,)], x: In[int32, (16,)], y: Out[int32, (4,)]):
    for i in range(4):
        y[i] = x[n[i]] if n[i] >= 0 and n[i] < 16 else 0
        if n[i] > 0 and n[i] <= 16:
            y[i] += x[n[i] - 1]
""",
    "what data decide, held in a variable": """
def f(n: In[int32, (4,)], t: Workspace[int32, (4,)], y: Out[int32, (4,)]):
    for i in range(4):
        y[i] = 0
        v: int32 = n[i]
        if v >= 0 and v < 4:
            t[v] = 1
            y[v] = 2
""".replace("t: Workspace[int32, (4,)], y: Out[int32, (4,)]", "y: Out[int32, (4,)], t: Workspace[int32, (4,)]"),
    "an extent that data decide, for all that its type holds": """
def f(n: In[uint8, ()], x: In[int32, (255,)], y: Out[int32, ()]):
    y[()] = 0
    for i in range(int32(n[()])):
        y[()] += x[i]
""",
    "both branches write": """
def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
    for i in range(4):
        if x[i] > 0:
            y[i] = 1
        else:
            y[i] = 2
""",
    "both branches write, in loops of their own": """
def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
    if x[0] > 0:
        for i in range(4):
            y[i] = 1
    else:
        for j in range(4):
            y[3 - j] = 2
""",
    "parts that make a whole": """
def f(x: In[int32, (4,)], y: Out[int32, (3, 4)]):
    for i in range(3):
        y[i, 0] = 0
        for j in range(3):
            y[i, j + 1] = x[j]
""",
    "a scalar": """
def f(x: In[int32, ()], y: Out[int32, ()]):
    y[()] = x[()]
""",
}

REFUSED = {
    "more than a quotient bounds": (
        """
def f(x: In[int32, (4,)], y: Out[int32, (10,)]):
    for b in range(5):
        for c in range(2):
            y[b * 2 + c] = 1 if (b * 2 + c) // 5 > 0 else x[b * 2 + c]
""",
        "within dimension 0 of 'x', which has 4",
    ),
    "far out": (
        """
def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
    for i in range(4):
        y[i] = x[i + 100000]
""",
        "index i + 100000 may be 100000 to 100003, outside of dimension 0 of 'x', which has 4",
    ),
    "one too many": (
        """
def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
    for i in range(5):
        y[i] = 0
""",
        "index i may be 0 to 4, and is not proven to be within dimension 0 of 'y', which has 4",
    ),
    "a negative one": (
        """
def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
    for i in range(4):
        y[i] = x[i - 1] if i <= 3 else 0
""",
        "index i - 1 may be -1 to 2, and is not proven",
    ),
    "a tile that does not shrink": (
        """
def f(x: In[int32, (10,)], y: Out[int32, (10,)]):
    for t in range(3):
        for i in range(min(11 - t * 4, 4)):
            y[t * 4 + i] = x[0]
""",
        "index t * 4 + i may be 0 to 11, and is not proven to be within dimension 0 of 'y', which has 10",
    ),
    "the wrong branch": (
        """
def f(x: In[int32, (4,)], y: Out[int32, (8,)]):
    for i in range(8):
        y[i] = 0 if i < 4 else x[i]
""",
        "index i may be 4 to 7, outside of dimension 0 of 'x'",
    ),
    "what data decide": (
        """
def f(n: In[int8, (4,)], x: In[int32, (16,)], y: Out[int32, (4,)]):
    for i in range(4):
        y[i] = x[int32(n[i])]
""",
        "index int32(n[i]) may be -128 to 127, and is not proven",
    ),
    "an extent that data decide": (
        """
def f(n: In[uint8, ()], x: In[int32, (254,)], y: Out[int32, ()]):
    y[()] = 0
    for i in range(int32(n[()])):
        y[()] += x[i]
""",
        "index i may be 0 to 254",
    ),
    "what was asked for and has changed": (
        """
def f(x: In[int32, (4,)], y: Out[int32, (4,)], t: Workspace[int32, (1,)]):
    for i in range(4):
        y[i] = 0
    t[0] = 1
    if t[0] >= 0 and t[0] < 4:
        t[0] = 9
        y[t[0]] = 2
""",
        "index t[0] may be -2147483648 to 2147483647",
    ),
    "what was asked for of memory that may be the same": (
        """
def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
    may_alias(y, x)
    for i in range(4):
        y[i] = 9
    if x[0] >= 0 and x[0] < 4:
        y[x[0]] = 2
        y[x[0]] = 3
""",
        "index x[0] may be -2147483648 to 2147483647",
    ),
    "arithmetic that wraps around": (
        """
def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
    for i in range(4):
        y[i] = x[(i + 2147483647) * 2 - i - 2147483647 + 2147483647 - i]
""",
        "and is not proven",
    ),
    "an output that nobody writes all of": (
        """
def f(x: In[int32, (4,)], y: Out[int32, (3, 4)]):
    for i in range(3):
        for j in range(3):
            y[i, j] = x[j]
""",
        "element [0, 3] of output 'y' is not surely written, nor are 2 others of its 12",
    ),
    "an output that data decide about": (
        """
def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
    for i in range(4):
        if x[i] > 0:
            y[i] = 1
""",
        "element [0] of output 'y' is not surely written, nor are 3 others of its 4",
    ),
    "branches that write different elements": (
        """
def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
    for i in range(4):
        if x[i] > 0:
            y[i] = 1
        else:
            y[3 - i] = 1
""",
        "element [0] of output 'y' is not surely written, nor are 3 others",
    ),
    "a loop that may not run": (
        """
def f(n: In[uint8, ()], y: Out[int32, (4,)]):
    for i in range(min(int32(n[()]), 4)):
        y[i] = 0
""",
        "element [0] of output 'y' is not surely written",
    ),
    "an output that is too large to count": (
        """
def f(x: In[int32, (4,)], y: Out[int8, (2000000000,)]):
    y[0] = 1
""",
        "output 'y' is not proven to be written in full: that takes more than",
    ),
    "an element that only is added to": (
        """
def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
    for i in range(4):
        y[i] += x[i]
""",
        "element [0] of output 'y' is not surely written",
    ),
}


@pytest.mark.parametrize("text", PROVEN.values(), ids=PROVEN)
def test_what_is_right_is_proven(text: str) -> None:
    made = func(text)
    assert list(index_faults(made)) == []
    assert list(output_faults(made)) == []


@pytest.mark.parametrize(("text", "what"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_proven_says_so(text: str, what: str) -> None:
    found = unproven(func(text))
    assert found is not None
    assert what in found.what


def test_a_text_is_refused_with_line_and_column() -> None:
    text = "\n@prim_func" + REFUSED["far out"][0]
    with pytest.raises(TextError, match=re.escape("index i + 100000 may be 100000 to 100003")) as caught:
        parse_module(text, name="dump.py")
    assert caught.value.where == "dump.py:5:9"
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("runs", "found"),
    [
        ([(0, 8), (8, 8), (3, 8)], []),
        ([(8, 8), (12, 4)], []),  # the parameter would go beyond, what is accessed does not
        (
            [(8, 8), (9, 8)],
            ["a view from 9 on may be 9 to 16, and is not proven to be within dimension 0 of 'y'"],
        ),
        ([(16, 0)], ["a view from 16 on is 16, outside of dimension 0 of 'y', which has 16"]),
        (
            [(0, 8), (0, 9), (0, 9)],
            ["index i may be 0 to 8, and is not proven to be within dimension 0 of 'a'"] * 2,
        ),
    ],
)
def test_each_execution_of_an_intrinsic(runs: list[tuple[int, int]], found: list[str]) -> None:
    a, y, i, n = Buffer("a", (8,), "int8"), Buffer("y", (16,), "int8"), Var("i"), Var("n")
    clear = Intrinsic("clear", (a,), (n,), For(i, n, Store(a, (i,), const(0, "int8"))), "clear({a}, {n})")
    done = [Exec(clear, (View(y, (const(at),), (Axis(0),)),), (const(count),)) for at, count in runs]
    faults = [fault.what for fault in index_faults(PrimFunc((Param(y, "output"),), seq(*done)))]
    assert len(faults) == len(found) and all(map(str.startswith, faults, found)), faults


def test_what_an_instruction_adds_up_takes_no_rounds_of_the_proof() -> None:
    text = """
@intrinsic(statement="dots({y}, {x})")
def dots(y: Operand[int32, (8,)], x: Operand[int8, (8, 4000)]):
    for i in range(8):
        s = alloc(int32, (1,))
        s[0] = 0
        for k in range(4000):
            s[0] += int32(x[i, k])
        y[i] = s[0]

@prim_func
def f(x: In[int8, (32000,)], y: Out[int32, (8192,)]):
    for n in range(1024):
        dots(view(y[n * 8], axis(0)), view(x[0], axis(0, 4000), axis(0)))
"""
    assert unproven(parse_func(text)[1]) is None
