"""The simplifier: what becomes of small programs, and that no program ever gives something else."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support.tir_strategies import Scope, arguments, expressions, prim_funcs, same_bits
from tests._support.tir_tools import evaluate, expression, func

from uma.tir.form.dtype import COMPUTED
from uma.tir.form.interp import interpret
from uma.tir.form.nodes import Bin, Buffer, Cast, Expr, PrimFunc, Select, Var, const, maximum, minimum
from uma.tir.form.text import print_func
from uma.tir.form.verify import verify
from uma.tir.proofs.intervals import Bounds
from uma.tir.rewrites.rules import is_total
from uma.tir.rewrites.simplify import simplify, simplify_expr

i, j, k = Var("i"), Var("j"), Var("k")
n, s, u, a, d, c = (
    Var("n"),
    Var("s", "int8"),
    Var("u", "uint8"),
    Var("a", "float32"),
    Var("d", "float64"),
    Var("c", "bool"),
)
x = Buffer("x", (64,), "int32")
VARIABLES = (i, j, k, n, s, u, a, d, c)
RANGES = {i: (0, 7), j: (0, 7), k: (0, 2)}  # the others may have any value

INT32 = {
    # constants
    "i + (2 + 3)": "i + 5",
    "2147483647 + 1 + n": "n + -2147483648",
    "-7 // 2": "-4",
    "truncdiv(-7, 2)": "-3",
    "-2147483648 // -1": "-2147483648",
    "int32(float32(1e10))": "2147483647",
    "1 // 0": "0",
    "1 << 40": "1 << 40",
    "min(3, 4)": "3",
    "clz(int32(5))": "29",
    "mul_high(int32(3), 1073741824)": "2",
    "mul_high(n, 3)": "mul_high(n, 3)",
    "mul_high(i, j)": "0",
    "neg(-2147483648)": "-2147483648",
    "x[1 + 2]": "x[3]",
    "0 if 1 < int32(2) else 1": "0",
    # identities
    "n + 0": "n",
    "n * 1 - 0": "n",
    "n * 0": "0",
    "0 * x[i]": "0",
    "n - n": "0",
    "n // 1 + n % 1": "n",
    "truncdiv(n, 1)": "n",
    "n << 0 >> 0": "n",
    "n & n | n": "n",
    "(n | 0) ^ 0": "n",
    "n ^ n": "0",
    "n & -1": "n",
    "n & 0": "0",
    "i & 7": "i",
    "i & 15": "i",
    "i & 3": "i & 3",
    "n & 7": "n & 7",
    "min(n, n)": "n",
    "min(min(n, i), i)": "min(n, i)",
    "max(max(n, 3), 5)": "max(n, 5)",
    "--n": "n",
    "abs(-n)": "abs(n)",
    "abs(abs(n))": "abs(n)",
    "abs(i)": "i",
    "n * 3 * 5": "n * 15",
    "3 + n": "n + 3",
    "n & 12 & 10": "n & 8",
    # sums
    "i + 1 + 2": "i + 3",
    "i + 1 - 1": "i",
    "i + j - i": "j",
    "i + i + i": "i * 3",
    "i * 3 + j - i * 2": "i + j",
    "n - (n - i)": "i",
    "-(n - i) + n": "i",
    "i - j - (i - k)": "k - j",
    "1 - n - 1": "-n",
    "(n + 1) * 4 - n * 4": "4",
    "(i + 1) * 4": "(i + 1) * 4",
    "n * 65536 * 65536": "0",
    "i // 8 * 8 + i % 8": "i",
    "n // 8 * 8 + n % 8": "n",
    "i // 2 * 8 + (i * 4 + 1) % 8": "i * 4 + 1",
    "i // 2 * 8 + (i * 4 + 5) % 8": "i // 2 * 8 + (i * 4 + 5) % 8",
    "n // 8 * 16 + n % 8 * 2 + 1": "n * 2 + 1",
    "n // 8 * 8 + n % 4": "n // 8 * 8 + n % 4",
    # divisions
    "i // 8": "0",
    "i % 8": "i",
    "(i * 8 + j) // 8": "i",
    "(i * 8 + j) % 8": "j",
    "(i * 8 + j + 8) // 8": "i + 1",
    "(i * 8 + j - 8) // 8": "i - 1",
    "(j - 8) % 8": "j",
    "(i + 8) // 16": "0",
    "(i * 16 + j * 4 + k) // 4": "i * 4 + j",
    "(i * 16 + j * 4 + k) % 4": "k",
    "(i * 16 + j * 4 + k) // 16": "i + (j * 4 + k) // 16",
    "(i * 16 + j * 4 + k) % 16": "(j * 4 + k) % 16",
    "((i * 8 + j) * 3 + k) // 3 // 8": "i",
    "((i * 8 + j) * 3 + k) // 3 % 8": "j",
    "(n * 8 + j) // 8": "(n * 8 + j) // 8",
    "(n + 8) % 8": "(n + 8) % 8",
    "i * 4 // 8": "i // 2",
    "n // 4 // 8": "n // 32",
    "n // 65536 // 65536": "n // 65536 // 65536",
    "n % 32 % 8": "n % 8",
    "n % 8 % 32": "n % 8",
    "n // -4 // 8": "n // -4 // 8",
    "truncdiv(i, 4)": "i // 4",
    "truncdiv(n, 4)": "truncdiv(n, 4)",
    "truncdiv(i * 8 + j, 8)": "i",
    # casts
    "int32(n)": "n",
    "int32(int8(n))": "int32(int8(n))",
    "int32(int8(i))": "i",
    "int32(float64(n))": "n",
    "int32(float32(n))": "int32(float32(n))",
    "int32(int8(c))": "int32(c)",
    "int32(float64(a))": "int32(a)",
    "int32(uint8(s))": "int32(uint8(s))",
    # conditions
    "i if i < 8 else x[n]": "i",
    "x[n] if i > 8 else i": "i",
    "n if c else n": "n",
    "n if not c else i": "i if c else n",
    "min(i, 9)": "i",
    "max(i, 9)": "9",
    "min(max(i + k, 0), 9)": "i + k",
    "min(max(i + k, 0), 8)": "min(i + k, 8)",
    "i % 4 if i < 4 else i": "i",
    "(i + 1) // 4 if i < 3 else 7": "0 if i < 3 else 7",
    "(i if i < 4 else j) if i < 2 else k": "i if i < 2 else k",
}
BOOL = {
    "not True": "False",
    "c and True": "c",
    "True and c": "c",
    "c or c": "c",
    "c and c": "c",
    "False or c": "c",
    "c or False": "c",
    "c and False": "False",
    "not not c": "c",
    "c == c": "True",
    "c != c": "False",
    "c == True": "c",
    "c == False": "not c",
    "c != True": "not c",
    "True != c": "not c",
    "c != False": "c",
    "not n < 3": "n >= 3",
    "not n <= 3": "n > 3",
    "not n > 3": "n <= 3",
    "not n >= 3": "n < 3",
    "not n == 3": "n != 3",
    "not a < 3.0": "not a < 3.0",
    "not a == 3.0": "a != 3.0",
    "not a != 3.0": "a == 3.0",
    "3 < n": "n > 3",
    "n & 5 == 2": "False",
    "n & 5 != 2": "True",
    "n & 5 == 4": "n & 5 == 4",
    "n & -2 == 1": "False",
    "n | 5 != 0": "True",
    "n | 5 == 7": "n | 5 == 7",
    "n == n": "True",
    "n != n": "False",
    "n <= n": "True",
    "n < n": "False",
    "a == a": "a == a",
    "float32(1.0) < 2.0": "True",
    "i < 8": "True",
    "i >= 8": "False",
    "0 <= i": "True",
    "i < 7": "i < 7",
    "i * 8 + j < 64": "True",
    "i + 1 < 5": "i < 4",
    "0 <= i - 1": "i >= 1",
    "i * 4 < 10": "i < 3",
    "i * 4 <= 10": "i <= 2",
    "i * 4 > 10": "i > 2",
    "i * 4 >= 10": "i >= 3",
    "i * 4 == 10": "False",
    "i * 4 != 10": "True",
    "i * 4 == 12": "i == 3",
    "-i < -3": "i > 3",
    "i + k < j + k": "i < j",
    "8 - i > j - i + 1": "j < 7",
    "i < i + 1": "True",
    "n < n + 1": "n < n + 1",
    "n + 1 < 5": "n + 1 < 5",
    "i == i + 8": "False",
    "bool(int32(c))": "c",
    "bool(int8(n))": "bool(int8(n))",
    "bool(int32(s))": "bool(s)",
    "True if c else False": "c",
    "False if c else True": "not c",
    "i < 4 and i < 6": "i < 4",
    "i < 4 and i > 6": "False",
    "i < 4 or i >= 4": "True",
    "i < 4 or i < 6": "i < 4 or i < 6",
    "i >= 0 and i - 1 < 4": "i < 5",
}
OTHERS = {
    "int8": {
        "int8(int32(s))": "s",
        "int8(int16(n))": "int8(n)",
        "int8(float32(s))": "s",
        "int8(float32(i))": "int8(i)",
        "int8(float32(n))": "int8(float32(n))",
        "int8(float64(a))": "int8(a)",
        'int8(float32("nan"))': "0",
        "int8(int32(300))": "44",
        "s + s - s": "s",
        "s * 64 + s * 64": "s * -128",
        "s - -128": "s - -128",
        "neg(-128)": "-128",
        "s & -1": "s",
    },
    "uint8": {
        "255 + 1 + u": "u",
        "u - 200 - 100": "u - 44",
        "u - u - u": "0 - u",
        "u // 16 // 16": "0",
        "u // 15 // 17": "u // 255",
        "u & 255": "u",
        "uint8(int32(s))": "uint8(s)",
    },
    "uint32": {"uint32(u) - uint32(u)": "0", "uint32(s) * 0": "0", "uint32(int64(n))": "uint32(n)"},
    "int64": {
        "int64(n) + 1 - 1": "int64(n)",
        "int64(int32(s)) * 2": "int64(s) * 2",
        "int64(uint64(n))": "int64(n)",
        "int64(uint32(n))": "int64(uint32(n))",
    },
    "float32": {
        "0.1 + 0.2": "0.3",
        "1.0 / 0.0": 'float32("inf")',
        "float32(int32(16777217))": "16777216.0",
        "sqrt(2.0)": "1.4142135",
        "round_even(2.5)": "2.0",
        "exp(1.0)": "2.7182817",
        "tan(1.0)": "tan(1.0)",
        "abs(-3.0)": "3.0",
        "a * 1.0": "a",
        "1.0 * a": "a",
        "a / 1.0 - 0.0": "a",
        "a + -0.0": "a",
        "a + 0.0": "a + 0.0",
        "a * 0.0": "a * 0.0",
        "a - a": "a - a",
        "a + 1.0 + 2.0": "a + 1.0 + 2.0",
        'a + float32("inf") + float32("nan")': 'a + float32("inf") + float32("nan")',
        "3.0 + a": "a + 3.0",
        "3.0 - a": "3.0 - a",
        "min(1.0, a)": "min(1.0, a)",
        "max(a, a)": "a",
        "--a": "a",
        "abs(-a)": "abs(a)",
        "float32(float64(a))": "a",
        "float32(d)": "float32(d)",
        "float32(int32(s))": "float32(s)",
        "float32(float64(n))": "float32(n)",
        "a if c else a": "a",
    },
    "float64": {
        "float64(float32(0.1))": "0.10000000149011612",
        "float64(float32(n))": "float64(float32(n))",
        "float64(float32(d))": "float64(float32(d))",
        "float64(float32(s))": "float64(s)",
        "d - 0.0": "d",
    },
}
CASES = [
    (dtype, before, after)
    for dtype, table in {"int32": INT32, "bool": BOOL, **OTHERS}.items()
    for before, after in table.items()
]


@pytest.mark.parametrize(("dtype", "before", "after"), CASES, ids=[before for _, before, _ in CASES])
def test_expressions(dtype: str, before: str, after: str) -> None:
    simple = simplify_expr(expression(before, dtype, VARIABLES, [x]), RANGES)
    assert simple is expression(after, dtype, VARIABLES, [x])
    assert simplify_expr(simple, RANGES) is simple


# Of int8, where the parts of a sum need more room than the whole.
small, large, other, shift = Var("small", "int8"), Var("large", "int8"), Var("other", "int8"), Var("shift", "int8")
TIGHT = {small: (1, 2), large: (0, 60), other: (0, 120), shift: (60, 120)}
CAREFUL = {
    "large * 3 - small * 64": "large * 3 - small * 64",
    "(other - small * 64) // 64": "other // 64 - small",
    "(large * 3 - small * 64) // 64": "(large * 3 - small * 64) // 64",
    "(large * 3 - small * 64) % 64": "(large * 3 - small * 64) % 64",
    "other + (large - shift) + small - small": "other + (large - shift) + small - small",
    "other - shift + large + small - small": "other - shift + large",
}


@pytest.mark.parametrize("before", CAREFUL)
def test_sums_stay_within_their_type(before: str) -> None:
    simple = simplify_expr(expression(before, "int8", tuple(TIGHT)), TIGHT)
    assert simple is expression(CAREFUL[before], "int8", tuple(TIGHT))
    compared = expression(f"{before} < int8(0)", "bool", tuple(TIGHT))
    for point in ((1, 0, 0, 60), (2, 60, 120, 120), (1, 60, 120, 60), (2, 0, 0, 120), (2, 30, 60, 90)):
        values = dict(zip(TIGHT, point, strict=True))
        assert evaluate(simplify_expr(compared, TIGHT), values) == evaluate(compared, values)


PARAMS = "x: In[int32, (64,)], p: In[float32, (8,)], y: Out[int32, (64,)], t: Workspace[int32, (64,)]"
# Before, and after.
STATEMENTS = {
    "loops of one iteration": (
        """
        for i in range(1):
            for j in range(4):
                y[i * 4 + j] = x[i]
        """,
        """
        for j in range(4):
            y[j] = x[0]
        """,
    ),
    "loops of none": (
        """
        for i in range(0):
            y[i] = 1
        for j in range(min(x[0], -1)):
            y[j] = 2
        """,
        "",
    ),
    "loops that may have none": (
        """
        for i in range(8):
            for j in range(i):
                if i > 0:
                    y[j] = i // 8 + j // 7
        """,
        """
        for i in range(8):
            for j in range(i):
                y[j] = 0
        """,
    ),
    "conditions that are certain": (
        """
        for i in range(4):
            if i < 4:
                y[i] = 1
            if i > 4:
                y[i] = 2
            else:
                y[i] = 3
            if i > 4:
                y[i] = 4
        """,
        """
        for i in range(4):
            y[i] = 1
            y[i] = 3
        """,
    ),
    "conditions under conditions": (
        """
        for i in range(8):
            if i < 4:
                if i < 6:
                    y[i] = i // 4
            elif i < 4:
                y[i] = 2
            elif i > 3:
                y[i] = i // 4
        """,
        """
        for i in range(8):
            if i < 4:
                y[i] = 0
            else:
                y[i] = 1
        """,
    ),
    "a condition that cannot be": (
        """
        for i in range(8):
            if i * 2 < 6 and i > 5:
                y[i] = 1
            else:
                y[i] = 2
        """,
        """
        for i in range(8):
            y[i] = 2
        """,
    ),
    "conditions with nothing under them": (
        """
        if x[0] < 1:
            pass
        else:
            y[0] = 1
        if x[0] < 2:
            y[0] = 2
        else:
            pass
        if x[0] < 3:
            pass
        else:
            pass
        if x[0] < 4:
            y[0] = 4
        else:
            y[0] = 4
        """,
        """
        if x[0] >= 1:
            y[0] = 1
        if x[0] < 2:
            y[0] = 2
        y[0] = 4
        """,
    ),
    "names for nothing": (
        """
        v: int32 = x[0]
        for i in range(4):
            n: int32 = 3
            m: int32 = i
            w: int32 = i + m
            y[i] = m * n + w
        """,
        """
        for i in range(4):
            w: int32 = i + i
            y[i] = i * 3 + w
        """,
    ),
    "ranges of names": (
        """
        for i in range(4):
            v: int32 = i * 2
            y[v] = 1 if v < 7 else x[0]
        """,
        """
        for i in range(4):
            v: int32 = i * 2
            y[v] = 1
        """,
    ),
    "empty blocks and loops": (
        """
        with block("a"):
            for i in range(4):
                if i > 4:
                    y[0] = 1
        """,
        "",
    ),
    "buffers for nothing": (
        """
        a = alloc(int32, (4,))
        b = alloc(int32, (4,))
        b[0] = 1
        y[0] = b[0]
        """,
        """
        b = alloc(int32, (4,))
        b[0] = 1
        y[0] = b[0]
        """,
    ),
    "a condition out of a loop": (
        """
        for i in range(8):
            for j in range(8):
                if i < 4:
                    t[j] = i
        """,
        """
        for i in range(8):
            if i < 4:
                for j in range(8):
                    t[j] = i
        """,
    ),
    "a padded window": (
        """
        for i in range(8):
            for a in range(3):
                for b in range(3):
                    for c in range(2):
                        if 0 <= i + a - 1 and i + a - 1 < 8 and b + c < 4 and a < 2 and x[0] < 3:
                            t[c] += x[i + a - 1]
        """,
        """
        for i in range(8):
            for a in range(3):
                if i + a >= 1 and i + a < 9 and a < 2 and x[0] < 3:
                    for b in range(3):
                        for c in range(2):
                            t[c] += x[i + a - 1]
        """,
    ),
    "both sides of a condition out of a loop": (
        """
        for i in range(8):
            for j in parallel(8):
                if i < 4:
                    t[j] = i
                else:
                    for k in range(2):
                        t[j + k] = x[j]
        """,
        """
        for i in range(8):
            if i < 4:
                for j in parallel(8):
                    t[j] = i
            else:
                for j_1 in parallel(8):
                    for k in range(2):
                        t[j_1 + k] = x[j_1]
        """,
    ),
    "memory that the loop leaves alone": (
        """
        for i in range(8):
            if x[0] < 3 and i < 4:
                t[i] = 1
        """,
        """
        if x[0] < 3:
            for i in range(8):
                if i < 4:
                    t[i] = 1
        """,
    ),
    "memory that the loop writes": (
        """
        for i in range(8):
            if t[0] < 3:
                t[i] = 1
        """,
        """
        for i in range(8):
            if t[0] < 3:
                t[i] = 1
        """,
    ),
    "memory that the loop may write": (
        """
        may_alias(y, x)
        for i in range(8):
            if x[0] < 3:
                y[i] = 1
        """,
        """
        may_alias(y, x)
        for i in range(8):
            if x[0] < 3:
                y[i] = 1
        """,
    ),
    "what might fault before it is asked": (
        """
        for i in range(x[0]):
            if x[1] < 3:
                t[i] = 1
        for j in range(8):
            if j < 4 and x[1] // x[2] < 3:
                t[j] = 1
        """,
        """
        for i in range(x[0]):
            if x[1] < 3:
                t[i] = 1
        for j in range(8):
            if j < 4 and x[1] // x[2] < 3:
                t[j] = 1
        """,
    ),
}


def whole(text: str) -> PrimFunc:
    """A function with these statements, after one that writes its output."""
    lines = [line[4:] for line in text.strip("\n").split("\n") if line.strip()]
    aliases = [line for line in lines if "may_alias" in line]
    rest = [line for line in lines if "may_alias" not in line]
    return func(f"def f({PARAMS}):\n" + "\n".join([*aliases, "    y[63] = 0", *rest]) + "\n")


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements(name: str) -> None:
    before, after = (whole(text) for text in STATEMENTS[name])
    simple = simplify(before)
    assert print_func(simple, "f") == print_func(after, "f")
    assert simplify(simple) is simple


def test_a_new_name_is_new() -> None:
    simple = simplify(
        whole(
            """
        for j_1 in range(2):
            for j in range(8):
                if j_1 < 1:
                    t[j] = 1
                else:
                    t[j] = 2
            """
        )
    )
    verify(simple)
    assert "for j_2 in range(8):" in print_func(simple, "f")


def test_what_surely_does_not_fault() -> None:
    known = Bounds({i: (0, 7), j: (1, 7)})
    for safe in (i + j, i // j, i % 3, i << j, i >> 31, Select(i < j, i, j), (i // j) % i, Bin("truncdiv", i, n)):
        assert is_total(safe, known)
    for unsafe in (x[i], i << n, i >> 32, (i >> n) % i):
        assert not is_total(unsafe, known)


@given(st.data())
def test_simplified_functions_give_the_same(data: st.DataObject) -> None:
    given_func = data.draw(prim_funcs())
    arrays = data.draw(arguments(given_func))
    expected = interpret(given_func, arrays)
    simple = simplify(given_func)
    verify(simple)
    assert (simple.params, simple.may_alias) == (given_func.params, given_func.may_alias)
    assert simplify(simple) is simple
    found = interpret(simple, arrays)
    for name, array in expected.items():
        assert same_bits(found[name], array), print_func(simple, "simple")


@st.composite
def index_expressions(draw: st.DrawFn, depth: int = 4) -> Expr:
    """Sums of multiples, divisions and clamps of i, j, k, as indices are."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from([i, j, k, i, j, k]) | st.integers(-9, 9).map(const))
    left = draw(index_expressions(depth - 1))
    factor = draw(st.integers(1, 9))
    kind = draw(st.integers(0, 9))
    if kind < 3:
        right = draw(index_expressions(depth - 1))
        return left + right if kind < 2 else left - right
    return [
        lambda: left * factor,
        lambda: left * -factor,
        lambda: left // factor,
        lambda: left % factor,
        lambda: Bin("truncdiv", left, const(factor)),
        lambda: minimum(left, factor),
        lambda: maximum(left, factor),
    ][kind - 3]()


CONDITIONS = st.builds(
    Bin, st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]), index_expressions(), index_expressions()
)
LOOPS = {i: (0, 4), j: (-2, 3), k: (0, 1)}
POINTS = [
    dict(zip(LOOPS, point, strict=True)) for point in itertools.product(*[range(a, b + 1) for a, b in LOOPS.values()])
]


def check(expr: Expr, points: list[dict[Var, int]]) -> None:
    simple = simplify_expr(expr, LOOPS)
    assert simplify_expr(simple, LOOPS) is simple
    for point in points:
        assert evaluate(simple, point) == evaluate(expr, point)


@given(index_expressions())
def test_indices_have_the_same_values(expr: Expr) -> None:
    check(expr, POINTS)


@given(CONDITIONS, CONDITIONS, st.sampled_from(["and", "or"]))
def test_conditions_have_the_same_values(first: Expr, second: Expr, op: str) -> None:
    check(Bin(op, first, second), POINTS)


@given(CONDITIONS, index_expressions(), index_expressions())
def test_choices_have_the_same_values(condition: Expr, yes: Expr, no: Expr) -> None:
    check(Select(condition, yes, no), POINTS)


FREE = Scope(variables=(i, j, n, s, u, a, d, c))


@given(st.data(), st.sampled_from(COMPUTED))
def test_any_expression_has_the_same_value(data: st.DataObject, dtype: str) -> None:
    expr = data.draw(expressions(dtype, FREE, 4))
    simple = simplify_expr(expr, {i: (0, 7), j: (-3, 3)})
    assert simplify_expr(simple, {i: (0, 7), j: (-3, 3)}) is simple
    values = {i: data.draw(st.integers(0, 7)), j: data.draw(st.integers(-3, 3))}
    for var in (n, s, u, c, a, d):
        values[var] = data.draw(expressions(var.dtype, Scope(), 0)).value
    assert same_bits(evaluate(simple, values), evaluate(expr, values))


def test_shared_parts_cost_once() -> None:
    expr = x[i] + Cast(s, "int32")
    for step in range(40):  # 3**40 nodes, if it were a tree
        expr = Select(x[step % 64] < expr, expr - 1, expr ^ 3)
    simplify_expr(expr, {})
