"""The simplifier: what becomes of small programs, and that no program ever gives something else."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support.tir_strategies import (
    FLOATS,
    Scope,
    arguments,
    expressions,
    immediates,
    integer_types,
    prim_funcs,
    same_bits,
)
from tests._support.tir_tools import evaluate, func

from uma.tir.bounds import Bounds
from uma.tir.interp import interpret
from uma.tir.nodes import Bin, Buffer, Cast, Expr, Imm, Select, Var, const, maximum, minimum
from uma.tir.printer import print_expr
from uma.tir.rules import is_total
from uma.tir.simplify import simplify, simplify_expr
from uma.tir.text import print_func
from uma.tir.verify import verify
from uma.tir.visit import walk


def body(*lines: str) -> str:
    """The text of a function with these lines in it."""
    params = "x: In[int32, (64,)], p: In[float32, (8,)], y: Out[int32, (64,)], q: Out[float32, (8,)], w: Const[int8, (8,)]"
    return f"def f({params}):\n    y[0] = 0\n    q[0] = 0.0\n" + "".join(f"    {line}\n" for line in lines)


def simplified(*lines: str) -> list[str]:
    """The lines that are left of ``lines``."""
    simple = simplify(func(body(*lines)))
    assert simplify(simple) is simple
    printed = print_func(simple, "f").split("\n")
    start = printed.index("    q[0] = 0.0") + 1
    return [line[4:] for line in printed[start:-1]]


# Expressions, where i, j are 0..7, k is 0..2, n is any int32, s any int8, u any uint8, a any float32, c any bool.
EXPRESSIONS = {
    # constants
    "i + (2 + 3)": "i + 5",
    "int8(300 + n * 0)": "int8(44)",
    "uint8(255) + 1 + u": "u",
    "2147483647 + 1 + n": "n - 2147483648" if False else "n + -2147483648",
    "int32(-7) // 2": "int32(-4)",
    "truncdiv(int32(-7), 2)": "int32(-3)",
    "int32(-2147483648) // -1": "int32(-2147483648)",
    "int32(float32(1e10))": "int32(2147483647)",
    "int8(float32(\"nan\"))": "int8(0)",
    "float32(int32(16777217))": "float32(16777216.0)",
    "float32(0.1) + 0.2": "float32(0.3)" if False else "float32(0.3)",
    "float64(float32(0.1))": "float64(0.10000000149011612)",
    "sqrt(float32(2.0))": "float32(1.4142135)",
    "round_even(float32(2.5))": "float32(2.0)",
    "exp(float32(1.0))": "exp(float32(1.0))",
    "clz(int32(5))": "int32(29)",
    "neg(int8(-128))": "int8(-128)",
    "int32(1) // 0": "int32(1) // 0",
    "int32(1) << 40": "int32(1) << 40",
    "not True": "False",
    "min(int32(3), 4)": "int32(3)",
    "x[1 + 2]": "x[3]",
    # identities
    "n + 0": "n",
    "n * 1 - 0": "n",
    "n * 0": "int32(0)",
    "0 * x[i]": "int32(0)",
    "n - n": "int32(0)",
    "n // 1 + n % 1": "n",
    "truncdiv(n, 1)": "n",
    "n << 0 >> 0": "n",
    "n & n | n": "n",
    "(n | 0) ^ 0": "n",
    "n ^ n": "int32(0)",
    "n & -1": "n",
    "n & 0": "int32(0)",
    "i & 7": "i",
    "i & 15": "i",
    "i & 3": "i & 3",
    "min(n, n)": "n",
    "min(min(n, i), i)": "min(n, i)",
    "max(max(n, 3), 5)": "max(n, 5)",
    "--n": "n",
    "abs(-n)": "abs(n)",
    "abs(abs(n))": "abs(n)",
    "abs(i)": "i",
    "a * 1.0": "a",
    "1.0 * a": "a",
    "a / 1.0 - 0.0": "a",
    "a + -0.0": "a",
    "a + 0.0": "a + 0.0",
    "a * 0.0": "a * 0.0",
    "a - a": "a - a",
    "a + 1.0 + 2.0": "a + 1.0 + 2.0",
    "min(1.0, a)": "min(1.0, a)",
    "3.0 + a": "a + 3.0",
    "n * 3 * 5": "n * 15",
    "3 + n": "n + 3",
    "n & 12 & 10": "n & 8",
    "c and True": "c",
    "True and c": "c",
    "c or c": "c",
    "c and False": "False",
    "not not c": "c",
    "c == True": "c",
    "c == False": "not c",
    "c != c": "False",
    "not n < 3": "n >= 3",
    "not a < 3.0": "not a < 3.0",
    "not a == 3.0": "a != 3.0",
    "3 < n": "n > 3",
    "n == n": "True",
    "a == a": "a == a",
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
    "u - 200 - 100": "u - 44",
    "s + s - s": "s",
    "s * 64 + s * 64": "s * -128",
    "(n + 1) * 4 - n * 4": "int32(4)",
    "(i + 1) * 4": "(i + 1) * 4",
    "i // 8 * 8 + i % 8": "i",
    "n // 8 * 8 + n % 8": "n",
    "n // 8 * 16 + n % 8 * 2 + 1": "n * 2 + 1",
    # divisions
    "i // 8": "int32(0)",
    "i % 8": "i",
    "(i * 8 + j) // 8": "i",
    "(i * 8 + j) % 8": "j",
    "(i * 8 + j + 8) // 8": "i + 1",
    "(i * 8 + j - 8) // 8": "i - 1",
    "(j - 8) % 8": "j",
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
    "n % 32 % 8": "n % 8",
    "n // -4 // 8": "n // -4 // 8",
    "truncdiv(i, 4)": "i // 4",
    "truncdiv(n, 4)": "truncdiv(n, 4)",
    "truncdiv(i * 8 + j, 8)": "i",
    "u // 16 // 16": "uint8(0)",
    "u // 16 // 17": "uint8(0)",
    # comparisons
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
    "i < i + 1": "True",
    "n < n + 1": "n < n + 1",
    "n + 1 < 5": "n + 1 < 5",
    "i == i + 8": "False",
    "8 - i > j - i + 1": "j < 7" if False else "True" if False else "j < 7",
    # casts
    "int32(n)": "n",
    "int8(int32(s))": "s",
    "int16(int32(s))": "int16(s)",
    "int8(int16(n))": "int8(n)",
    "uint8(int32(s))": "uint8(s)",
    "int32(int8(n))": "int32(int8(n))",
    "int32(int8(i))": "i",
    "int8(float32(s))": "s",
    "int8(float32(i))": "int8(i)",
    "int8(float32(n))": "int8(float32(n))",
    "float32(float64(a))": "a",
    "int8(float64(a))": "int8(a)",
    "float32(int32(s))": "float32(s)",
    "float32(float64(n))": "float32(n)",
    "float64(float32(n))": "float64(float32(n))",
    "bool(int32(c))": "c",
    "int32(int8(c))": "int32(c)",
    "bool(int8(n))": "bool(int8(n))",
    # conditions
    "i if i < 8 else x[n]": "i",
    "x[n] if i > 8 else i": "i",
    "n if c else n": "n",
    "n if not c else i": "i if c else n",
    "True if c else False": "c",
    "False if c else True": "not c",
    "min(i, 9)": "i",
    "max(i, 9)": "int32(9)",
    "min(max(i + k, 0), 9)": "i + k",
    "min(max(i + k, 0), 8)": "min(i + k, 8)",
    "i < 4 and i < 6": "i < 4",
    "i < 4 and i > 6": "False",
    "i < 4 or i >= 4": "True",
    "i < 4 or i < 6": "i < 4 or i < 6",
    "i % 4 if i < 4 else i": "i",
    "(i + 1) // 4 if i < 3 else 7": "0 if i < 3 else int32(7)" if False else "int32(0) if i < 3 else 7",
    "c or not c": "c or not c",
}
DECLARED = (
    *("for i in range(8):", "    for j in range(8):", "        for k in range(3):"),
    *("            n: int32 = x[i]", "            s: int8 = w[j]", "            u: uint8 = uint8(s)"),
    *("            a: float32 = p[k]", "            c: bool = a < 1.0"),
)
RESULTS = {"bool": "b", "int32": "y", "float32": "q"}


def simplified_expression(text: str) -> str:
    """What is left of an expression of the variables of `DECLARED`."""
    i, j, k, n = Var("i"), Var("j"), Var("k"), Var("n")
    variables = (i, j, k, n, Var("s", "int8"), Var("u", "uint8"), Var("a", "float32"), Var("c", "bool"))
    for dtype in ("int32", "int8", "uint8", "float32", "float64", "bool", "int16"):
        lines = ["for i in range(8):", "  for j in range(8):", "    for k in range(3):", "      pass"]
        lines = [f"{var.name}: {var.dtype} = {'0.0' if var.dtype == 'float32' else 'True' if var.dtype == 'bool' else '0'}" for var in variables]
        try:
            parsed = func(body(*lines, f"t = alloc({dtype}, ())", f"t[()] = {text}"))
        except Exception:
            continue
        store = next(part for part in walk(parsed.body) if getattr(part, "buffer", None) is not None and part.buffer.name == "t" and hasattr(part, "value"))
        ranges = {i: (0, 7), j: (0, 7), k: (0, 2)}
        simple = simplify_expr(store.value, ranges)
        assert simplify_expr(simple, ranges) is simple
        return print_expr(simple)
    raise AssertionError(f"{text} does not parse")
