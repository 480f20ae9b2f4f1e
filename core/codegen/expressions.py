"""Expressions of the loop form as C99.

The text of an expression has exactly the value that the loop form gives it. Its type in C is that of its dtype, or
``int`` for a dtype that C promotes to it. Where intervals show that nothing overflows the plain operators of C are
used, which is what compilers vectorise; else unsigned arithmetic, or a helper of ``uma_math.h``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..support.c_text import C_TYPES
from ..tir.form.dtype import bits, bounds, is_float, is_signed, itemsize
from ..tir.form.exprs import flat_element
from ..tir.form.functions import FUNCTIONS
from ..tir.form.nodes import (
    ADDRESSED_SCOPES,
    COMPARISONS,
    HOST_SCOPES,
    INDEX,
    Bin,
    Buffer,
    Call,
    Cast,
    Expr,
    Imm,
    Load,
    Select,
    Un,
    Var,
)
from ..tir.form.scalar_semantics import round_float32
from ..tir.form.visit import walk
from ..tir.maths import is_defined
from ..tir.proofs.intervals import Bounds, fits
from ..tir.rewrites.simplify import simplify_within

__all__ = ["CHOICE", "C_FUNCTIONS", "OPERATORS", "PRIMARY", "SUFFIXES", "UNARY", "Elements", "Names", "Printer", "Text"]

SUFFIXES = {
    **{f"{sign}int{size}": f"{sign or 'i'}{size}" for sign in ("", "u") for size in (8, 16, 32, 64)},
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
}
"""Of the helpers in ``uma_math.h``."""


class Text(NamedTuple):
    """C text and how tightly it binds: operands in parentheses unless every reader knows that they need none."""

    text: str
    rank: int


PRIMARY, UNARY, _PRODUCT, _SUM, _OTHER, _COMPARISON, _AND, _OR, CHOICE = 9, 8, 7, 6, 5, 4, 3, 2, 1

OPERATORS = {
    "add": ("+", _SUM),
    "sub": ("-", _SUM),
    "mul": ("*", _PRODUCT),
    "div": ("/", _PRODUCT),
    "floordiv": ("/", _PRODUCT),
    "truncdiv": ("/", _PRODUCT),
    "floormod": ("%", _PRODUCT),
    "shl": ("<<", _OTHER),
    "shr": (">>", _OTHER),
    "bitand": ("&", _OTHER),
    "bitor": ("|", _OTHER),
    "bitxor": ("^", _OTHER),
    "eq": ("==", _COMPARISON),
    "ne": ("!=", _COMPARISON),
    "lt": ("<", _COMPARISON),
    "le": ("<=", _COMPARISON),
    "gt": (">", _COMPARISON),
    "ge": (">=", _COMPARISON),
    "and": ("&&", _AND),
    "or": ("||", _OR),
}

C_FUNCTIONS = {"clz": "uma_clz", "mul_high": "uma_mul_high", "fma": "uma_fma", "round_even": "rint"}
"""The functions that math.h does not have by the same name. For float32 the names end in ``f``."""

_ROUNDED = {"float32": 2.0**22, "float64": 2.0**31 - 1}
"""Up to what size helpers round to the nearest int32."""

Names = Callable[[Var | Buffer], str]

Elements = Callable[[Buffer, tuple[Expr, ...], bool], str]
"""An element of a buffer in registers, from its indices, and whether it is read."""


class Printer:
    """Prints the expressions of one place of a function.

    Args:
        known: what is known of variables there.
        names: what variables and buffers are called in C.
        read: the variables and buffers that are read in what was printed are added to it.
        registers: what elements of buffers in registers are called, where there are any.
        held: for each buffer of which only a part is in memory the first element of that.
    """

    def __init__(
        self,
        known: Bounds,
        names: Names,
        read: set[Var | Buffer],
        registers: Elements | None = None,
        held: Mapping[Buffer, Var] = MappingProxyType({}),
    ) -> None:
        self.known = known
        self.names = names
        self.read = read
        self.registers = registers
        self.held = held

    def text(self, expr: Expr) -> str:
        """``expr`` as it may stand between parentheses, or after an ``=``."""
        return self._print(expr).text

    def element(self, buffer: Buffer, indices: tuple[Expr, ...], is_read: bool = False) -> str:
        """An element of a buffer, to read or to assign to; a local scalar is a variable."""
        if self.registers is not None and buffer.scope == "register":
            return self.registers(buffer, indices, is_read)
        if buffer.scope == "local" and not buffer.shape:
            return self.names(buffer)
        return f"{self.names(buffer)}[{self.text(self._bounded(buffer, flat_element(buffer, indices)))}]"

    def _bounded(self, buffer: Buffer, element: Expr) -> Expr:
        """The position of an element in the part of its buffer that is held."""
        return Bin("sub", element, self.held[buffer]) if buffer in self.held else element

    def address(self, buffer: Buffer, element: Expr) -> str:
        """The address of the element at that position of a buffer: a pointer, or a number where the host has none."""
        self.read.add(buffer)
        name = self.names(buffer)
        if buffer.scope not in HOST_SCOPES:
            offset = simplify_within(Bin("mul", element, Imm(itemsize(buffer.dtype), INDEX)), self.known)
            return name if offset is Imm(0, INDEX) else f"{name} + {self._operand(offset, _PRODUCT)}"
        if buffer.scope == "local" and not buffer.shape:
            return f"&{name}"
        position = simplify_within(self._bounded(buffer, element), self.known)
        return name if position is Imm(0, INDEX) else f"&{name}[{self.text(position)}]"

    def _print(self, expr: Expr) -> Text:
        return _PRINTED[type(expr)](self, expr)

    def _variable(self, expr: Var) -> Text:
        self.read.add(expr)
        return Text(self.names(expr), PRIMARY)

    def _constant(self, expr: Imm) -> Text:
        text = _literal(expr)
        return Text(text, UNARY if text.startswith("-") else PRIMARY)

    def _load(self, expr: Load) -> Text:
        self.read.add(expr.buffer)
        return Text(self.element(expr.buffer, expr.indices, is_read=True), PRIMARY)

    def _select(self, expr: Select) -> Text:
        if is_float(expr.dtype) and self._may_read(expr.a) and self._may_read(expr.b):
            # Arguments are read whatever the condition says, so that compilers need no branch, and vectorise it.
            return self._helper("select", expr.dtype, expr.condition, expr.a, expr.b)
        parts = [self._operand(part, _OTHER) for part in (expr.condition, expr.a, expr.b)]
        return Text("{} ? {} : {}".format(*parts), CHOICE)

    def _may_read(self, expr: Expr) -> bool:
        """Whether ``expr`` is an element of a buffer that can be read in any case."""
        if not isinstance(expr, Load) or expr.buffer.scope not in ADDRESSED_SCOPES or expr.buffer in self.held:
            return False
        pairs = zip((self.known.interval(index) for index in expr.indices), expr.buffer.shape, strict=True)
        return all(0 <= low and high < extent for (low, high), extent in pairs)

    def _function(self, expr: Call) -> Text:
        if is_defined(expr):
            return self._helper(expr.name, "float32", *expr.args)
        name = C_FUNCTIONS.get(expr.name, expr.name)
        if expr.name == "clz":
            return self._call(name, expr.args[0].astype("uint32"))
        if expr.name in ("float_bits", "bits_float"):
            return self._helper(expr.name, expr.dtype if is_float(expr.dtype) else expr.args[0].dtype, *expr.args)
        return self._call(f"{name}f" if expr.dtype == "float32" else name, *expr.args)

    def _call(self, name: str, *args: Expr) -> Text:
        return Text(f"{name}({', '.join(self.text(arg) for arg in args)})", PRIMARY)

    def _helper(self, name: str, dtype: str, *args: Expr) -> Text:
        return self._call(f"uma_{name}_{SUFFIXES[dtype]}", *args)

    def _operand(self, expr: Expr, rank: int) -> str:
        """``expr`` in parentheses unless it binds at least as tightly as ``rank``."""
        text, precedence = self._print(expr)
        return text if precedence >= rank else f"({text})"

    def _unsigned(self, expr: Expr) -> str:
        """``expr``, of at least 32 bits, as an unsigned number of equal low bits."""
        width = max(32, bits(expr.dtype))
        return f"(uint{width}_t){self._operand(expr, UNARY)}"

    # Operators

    def _plain(self, op: str, a: Expr, b: Expr) -> Text:
        sign, rank = OPERATORS[op]
        left = right = UNARY
        if rank in (_PRODUCT, _SUM):
            left, right = rank, rank + 1
        elif rank == _COMPARISON:
            left = right = _SUM
        elif rank in (_AND, _OR):
            # A chain of one operator; compilers warn of a mixture without parentheses.
            left = rank if isinstance(a, Bin) and a.op == op else _COMPARISON
            right = _COMPARISON
        elif op == "bitxor":
            left = PRIMARY + 1 if isinstance(a, Imm) else left  # compilers take 2 ^ 3 for a power
        return Text(f"{self._operand(a, left)} {sign} {self._operand(b, right)}", rank)

    def _binary(self, expr: Bin) -> Text:
        op, a, b, dtype = expr.op, expr.a, expr.b, expr.a.dtype
        if op in ("min", "max"):
            return self._helper(op, dtype, a, b)
        if op in COMPARISONS:
            decided = self._decide(expr)
            return self._plain(op, a, b) if decided is None else Text(str(decided).lower(), PRIMARY)
        if is_float(dtype) or dtype == "bool" or op in ("bitand", "bitor", "bitxor", "shr"):
            return self._plain(op, a, b)
        if op in ("floordiv", "floormod", "truncdiv"):
            return self._division(expr)
        return self._wrapping(expr)

    def _decide(self, expr: Bin) -> bool | None:
        """The result of a comparison where it is certain, of which compilers would warn."""
        op, a, b = expr.op, expr.a, expr.b
        if a is b and not is_float(a.dtype):
            return op in ("eq", "le", "ge")
        if op in ("eq", "ne"):
            for bitwise, other in ((a, b), (b, a)):
                if isinstance(other, Imm) and not is_float(a.dtype) and _never_equal(bitwise, int(other.value)):
                    return op == "ne"
        return self.known.decide(expr)

    def _wrapping(self, expr: Bin) -> Text:
        """Addition, subtraction, multiplication and left shift, of integers."""
        op, a, b, dtype = expr.op, expr.a, expr.b, expr.dtype
        exact = self.known.exact(expr)
        computed = dtype if bits(dtype) >= 32 else "int32"
        # Shifting a negative number left is undefined however small the result.
        defined = op != "shl" or self.known.interval(a)[0] >= 0
        if (defined and fits(exact, computed)) or not is_signed(computed):
            plain = self._plain(op, a, b)
            if op in ("add", "sub") and exact[0] < 0 and fits(exact, "int8") and bits(dtype) >= 32 and _of_bytes(expr):
                # gcc 12 takes what is computed in a byte for unsigned where VNNI multiplies it: 16 bits are not byte.
                return self._converted(plain, "int16")
            return plain if bits(dtype) >= 32 or fits(exact, dtype) else self._converted(plain, dtype)
        sign, _ = OPERATORS[op]
        right = self._operand(b, UNARY) if op == "shl" else self._unsigned(b)
        return self._converted(Text(f"{self._unsigned(a)} {sign} {right}", _OTHER), dtype)

    def _division(self, expr: Bin) -> Text:
        op, a, b, dtype = expr.op, expr.a, expr.b, expr.dtype
        low, divisor = self.known.interval(a)[0], self.known.interval(b)
        if divisor[0] <= 0 <= divisor[1]:  # C has no result for 0
            return self._helper("floordiv" if op == "truncdiv" and not is_signed(dtype) else op, dtype, a, b)
        if not is_signed(dtype) or (low >= 0 and divisor[0] >= 0):
            return self._plain(op, a, b)
        if op == "truncdiv" and not self.known.may_wrap(expr):
            return self._plain(op, a, b)
        size = divisor[0]
        if op != "truncdiv" and divisor == (size, size) and size > 0 and size & (size - 1) == 0:
            # Rounds to minus infinity, as these do.
            if op == "floordiv":
                return self._plain("shr", a, Imm(size.bit_length() - 1, dtype))
            return self._plain("bitand", a, Imm(size - 1, dtype))
        return self._helper(op, dtype, a, b)

    def _unary(self, expr: Un) -> Text:
        a, dtype = expr.a, expr.dtype
        if expr.op == "not":
            return Text(f"!{self._operand(a, PRIMARY)}", UNARY)
        if expr.op == "abs" and is_float(dtype):
            return self._call("fabsf" if dtype == "float32" else "fabs", a)
        if expr.op == "abs" or (not is_float(dtype) and self.known.may_wrap(expr)):
            return self._helper(expr.op, dtype, a)
        return Text(f"-{self._operand(a, PRIMARY)}", UNARY)

    # Conversions

    def _converted(self, value: Text, dtype: str) -> Text:
        text = value.text if value.rank >= UNARY else f"({value.text})"
        return Text(f"({C_TYPES[dtype]}){text}", UNARY)

    def _cast(self, expr: Cast) -> Text:
        a, dtype = expr.a, expr.dtype
        if dtype == a.dtype:
            return self._print(a)
        if dtype == "bool":
            return Text(f"{self._operand(a, _SUM)} != 0", _COMPARISON)
        if "float16" in (a.dtype, dtype):
            return self._call(f"uma_{SUFFIXES[a.dtype]}_to_{SUFFIXES[dtype]}", a)
        if is_float(a.dtype) and not is_float(dtype):
            low, high = bounds(dtype)
            values = self.float_interval(a)
            if values is None or values[0] <= low - 1 or values[1] >= high + 1:
                return self._call(f"uma_{SUFFIXES[a.dtype]}_to_{SUFFIXES[dtype]}", a)
            if isinstance(a, Call) and a.name == "round_even" and max(map(abs, values)) <= _ROUNDED[a.dtype]:
                rounded = self._call(f"uma_round_{SUFFIXES[a.dtype]}_to_i32", a.args[0])
                return rounded if dtype == "int32" else self._converted(rounded, dtype)
        return self._converted(self._print(a), dtype)

    def float_interval(self, expr: Expr) -> tuple[float, float] | None:
        """The values of a float expression where it is never NaN, as far as clamps and roundings tell."""
        if isinstance(expr, Imm):
            return None if math.isnan(expr.value) else (float(expr.value), float(expr.value))
        if isinstance(expr, Cast) and not is_float(expr.a.dtype):
            low, high = (float(end) for end in self.known.interval(expr.a))
            return (low, high) if expr.dtype == "float64" else (round_float32(low), round_float32(high))
        if isinstance(expr, Call) and expr.name in ("round_even", "floor", "ceil", "trunc"):
            values = self.float_interval(expr.args[0])
            whole = FUNCTIONS[expr.name].value(expr.dtype)
            return None if values is None else (whole(values[0]), whole(values[1]))
        if isinstance(expr, Bin) and expr.op in ("min", "max"):
            # The result is b, or an a that compares with b: NaN only where b is.
            b = self.float_interval(expr.b)
            if b is None:
                return None
            a = self.float_interval(expr.a) or (-math.inf, math.inf)
            return (min(a[0], b[0]), min(a[1], b[1])) if expr.op == "min" else (max(a[0], b[0]), max(a[1], b[1]))
        return None


_PRINTED: dict[type[Expr], Callable[[Printer, Any], Text]] = {
    Var: Printer._variable,
    Imm: Printer._constant,
    Load: Printer._load,
    Bin: Printer._binary,
    Un: Printer._unary,
    Cast: Printer._cast,
    Select: Printer._select,
    Call: Printer._function,
}
"""The C of an expression."""


def _of_bytes(expr: Expr) -> bool:
    """Whether ``expr`` is computed of unsigned bytes."""
    return any(isinstance(e, Expr) and e.dtype == "uint8" for e in walk(expr))


def _never_equal(expr: Expr, value: int) -> bool:
    """Whether ``expr`` masks bits that ``value`` has, or sets bits that it has not."""
    if isinstance(expr, Bin) and expr.op in ("bitand", "bitor"):
        for mask in (expr.a, expr.b):
            if isinstance(mask, Imm):
                return (value & ~int(mask.value) if expr.op == "bitand" else int(mask.value) & ~value) != 0
    return False


def _literal(constant: Imm) -> str:
    value, dtype = constant.value, constant.dtype
    if dtype == "bool":
        return "true" if value else "false"
    if dtype == "float16":
        return f"0x{struct.unpack('<H', struct.pack('<e', value))[0]:04x}"
    if is_float(dtype):
        return _float_literal(float(value), dtype)
    value = int(value)
    size = bits(dtype)
    if is_signed(dtype):
        # The smallest value has no literal: -2147483648 is the negative of a number that is not an int.
        if size >= 32 and value == bounds(dtype)[0]:
            return f"INT{size}_MIN"
        return f"INT64_C({value})" if size == 64 else str(value)
    return f"UINT{size}_C({value})" if size >= 32 else str(value)


def _float_literal(value: float, dtype: str) -> str:
    """A float as an expression of C of exactly this value."""
    suffix = "f" if dtype == "float32" else ""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    # A short decimal number that is exact is what its writer had in mind.
    if abs(value) < 1e6 and (value * 1024).is_integer():
        return f"{value!r}{suffix}"
    mantissa, exponent = value.hex().split("p")
    whole, _, digits = mantissa.partition(".")
    digits = digits.rstrip("0")
    return f"{whole}.{digits}p{exponent}{suffix}" if digits else f"{whole}p{exponent}{suffix}"
