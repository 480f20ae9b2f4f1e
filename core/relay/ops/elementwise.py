"""Arithmetic, comparisons and functions of elements: one table, a row for each op.

Arguments broadcast as in numpy. Integers are exact: what does not fit wraps around. A sum, difference, product,
quotient or square root of floats is rounded once. Functions (``exp``, ``erf``, ``pow``, ...) of float32 are defined by
`tir.maths`, or those of the C library, held to 4 units of the last place; references, by which constants are folded,
compute them in float64 and round the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...tir.form.dtype import bits, bounds, computes, is_float, is_integer, is_signed
from ...tir.form.nodes import Bin, Call, Expr, Imm, Select, Un
from ..op import Attr, Attrs, Bounds, Dtype, Specials
from ..types import TensorType
from .common import broadcast_shapes, same_dtype
from .elementwise_table import (
    FLOATS,
    KEEPS_NAN,
    NUMBERS,
    Infer,
    Numpy,
    Range,
    Row,
    Scalar,
    by_name,
    function,
    monotonous,
    register_rows,
    takes,
    wide,
)

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ROWS", "erf"]

# --- types -----------------------------------------------------------------------------------------------------------


_SIGNED = takes("signed numbers", is_signed)
_TRUTHS = takes("bool", lambda dtype: dtype == "bool")
_ORDERED = takes("numbers", lambda dtype: dtype != "bool", gives="bool")
_INTEGERS = takes("integers", is_integer)
_ANY = takes("any tensors", lambda dtype: True, gives="bool")


def _infer_where(attrs: Attrs, condition: TensorType, a: TensorType, b: TensorType) -> TensorType:
    """The condition is bool; a and b are of one dtype, any, which the result has; shapes broadcast as in numpy."""
    if condition.dtype != "bool":
        raise ModelError(f"its condition is {condition.dtype}, not bool")
    return TensorType(broadcast_shapes(condition.shape, a.shape, b.shape), same_dtype(a, b))


def _infer_cast(attrs: Attrs, data: TensorType) -> TensorType:
    """The result has the shape of the data; both dtypes may be any."""
    return TensorType(data.shape, attrs.dtype)


def _infer_bitcast(attrs: Attrs, data: TensorType) -> TensorType:
    """The result has the shape of the data; both dtypes are of as many bits, numbers, and none float16."""
    for dtype in (data.dtype, attrs.dtype):
        if dtype == "bool" or not computes(dtype):
            raise ModelError(f"it reads no {data.dtype} as {attrs.dtype}")
    if bits(data.dtype) != bits(attrs.dtype):
        raise ModelError(f"it reads {bits(data.dtype)} bits as {bits(attrs.dtype)}")
    return TensorType(data.shape, attrs.dtype)


# --- scalar expressions ----------------------------------------------------------------------------------------------


def _bin(op: str) -> Scalar:
    return lambda attrs, a, b: Bin(op, a, b)


def _extremum(op: str) -> Scalar:
    # The smaller and the larger one of the loop form are b where one of both is NaN.
    return lambda attrs, a, b: Select(a.equal(a), Bin(op, a, b), a) if is_float(a.dtype) else Bin(op, a, b)


def _divide(attrs: Attrs, a: Expr, b: Expr) -> Expr:
    return Bin("div" if is_float(a.dtype) else "truncdiv", a, b)


def _floor_mod(attrs: Attrs, a: Expr, b: Expr) -> Expr:
    if not is_float(a.dtype):
        return a % b
    rest = Call("fmod", a, b)
    return Select(rest.not_equal(0.0) & (rest < 0.0).not_equal(b < 0.0), rest + b, rest)


def _trunc_mod(attrs: Attrs, a: Expr, b: Expr) -> Expr:
    if is_float(a.dtype):
        return Call("fmod", a, b)
    return Select(b.equal(0), Imm(0, a.dtype), a - Bin("truncdiv", a, b) * b)


def _abs(attrs: Attrs, x: Expr) -> Expr:
    return Un("abs", x) if is_signed(x.dtype) else x


def _sign(attrs: Attrs, x: Expr) -> Expr:
    zero, one = Imm(0, x.dtype), Imm(1, x.dtype)
    if not is_signed(x.dtype):
        return Bin("min", x, one)
    # (The data itself, where it is a zero, or NaN.)
    return Select(x > zero, one, Select(x < zero, -one, x))


def _inverted(attrs: Attrs, x: Expr) -> Expr:
    return Bin("bitxor", x, Imm(-1 if is_signed(x.dtype) else bounds(x.dtype)[1], x.dtype))


def _cast(attrs: Attrs, x: Expr) -> Expr:
    half = "float16" in (x.dtype, attrs.dtype)
    if half and not (is_float(x.dtype) and is_float(attrs.dtype)):
        # (Of integers a float32 is as near: those that it rounds are infinite as float16.)
        x = x.astype("float32")
    return x.astype(attrs.dtype)


def _bitcast(attrs: Attrs, x: Expr) -> Expr:
    if is_float(x.dtype) and not is_float(attrs.dtype):
        x = Call("float_bits", x)
    elif is_float(attrs.dtype) and not is_float(x.dtype):
        x = Call("bits_float", x.astype(f"uint{bits(x.dtype)}"))
    return x.astype(attrs.dtype)


def _bfloat16_bits(attrs: Attrs, x: Expr) -> Expr:
    whole = Call("float_bits", x)
    rounded = (whole + 0x7FFF + ((whole >> 16) & 1)) >> 16
    return Select(x.equal(x), rounded, (whole >> 16) | 0x40).astype("uint16")


def _bfloat16_value(attrs: Attrs, x: Expr) -> Expr:
    return Call("bits_float", x.astype("uint32") << 16)


def _shifted(op: str) -> Scalar:
    """A shift by any amount: the loop form has none by the width or more."""

    def scalar(attrs: Attrs, a: Expr, b: Expr) -> Expr:
        most = bits(a.dtype) - 1
        fits = b <= most if not is_signed(b.dtype) else (b >= 0) & (b <= most)
        beyond = Bin("shr", a, Imm(most, a.dtype)) if op == "shr" and is_signed(a.dtype) else Imm(0, a.dtype)
        return Select(fits, Bin(op, a, b), beyond)

    return scalar


# --- references ------------------------------------------------------------------------------------------------------


def _by_kind(integers: Numpy, floats: Numpy) -> Numpy:
    def reference(attrs: Attrs, *arrays: np.ndarray) -> np.ndarray:
        return (floats if arrays[0].dtype.kind == "f" else integers)(attrs, *arrays)

    return reference


def _quotient(attrs: Attrs, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of integers, rounded towards zero; 0 where b is 0."""
    import numpy as np

    divisor = np.where(b == 0, b.dtype.type(1), b)
    with np.errstate(over="ignore"):  # the least number by -1 is itself again
        down = np.floor_divide(a, divisor)
    exact = down * divisor == a
    up = np.where(exact | (down >= 0), down, down + a.dtype.type(1))
    return np.asarray(np.where(b == 0, a.dtype.type(0), up))


def _inverse_root(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.asarray(1 / np.sqrt(x))


def erf(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """The error function, of float64."""
    import numpy as np

    # (numpy has none.)
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x)) if x.size else x


def _shift_reference(name: str) -> Numpy:
    def reference(attrs: Attrs, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        import numpy as np

        most = b.dtype.type(a.dtype.itemsize * 8 - 1)
        fits = (b >= 0) & (b <= most)
        beyond = np.right_shift(a, most) if name == "right_shift" else np.zeros_like(a)
        beyond = beyond if a.dtype.kind == "i" else np.zeros_like(a)
        shifted = getattr(np, name)(a, np.where(fits, b, b.dtype.type(0)))
        return np.asarray(np.where(fits, shifted, beyond))

    return reference


def _bitcast_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    bits: np.ndarray = np.ascontiguousarray(data).view(attrs.dtype)
    return bits.reshape(data.shape)


def _bfloat16_bits_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    whole = np.ascontiguousarray(data).view(np.uint32).reshape(data.shape)
    rounded = (whole + np.uint32(0x7FFF) + ((whole >> 16) & 1)) >> 16
    return np.where(np.isnan(data), (whole >> 16) | 0x40, rounded).astype(np.uint16)


def _bfloat16_value_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.asarray((data.astype(np.uint32) << 16).view(np.float32))


def _cast_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    if attrs.dtype == "float16":
        with np.errstate(over="ignore"):
            return (data if data.dtype.kind == "f" else data.astype(np.float32)).astype(np.float16)

    if data.dtype.kind == "f" and is_integer(attrs.dtype):
        low, high = bounds(attrs.dtype)
        # A float is compared with the limits exactly: 2**31 - 1 is not float32, so clipping first would round it up.
        whole = np.trunc(np.nan_to_num(data.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        inner = np.where((whole > low) & (whole < high), whole, 0).astype(attrs.dtype)
        limits = np.array([low, high], dtype=attrs.dtype)
        return np.where(whole >= high, limits[1], np.where(whole <= low, limits[0], inner))
    return data.astype(attrs.dtype)


# --- ranges of integers ----------------------------------------------------------------------------------------------


def _corners(op: Callable[[int, int], int]) -> Range:
    """Of an operation that is monotonous in each operand: those of its corners."""

    def value_range(attrs: Attrs, dtype: str, a: Bounds, b: Bounds) -> Bounds:
        values = [op(x, y) for x in a for y in b]
        return Bounds(min(values), max(values))

    return value_range


def _quotient_range(attrs: Attrs, dtype: str, a: Bounds, b: Bounds) -> Bounds:
    divisors = {y for y in (b.low, -1, 1, b.high) if b.low <= y <= b.high and y}
    values = [0, *(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x in a for y in divisors)]
    return Bounds(min(values), max(values))


def _floor_mod_range(attrs: Attrs, dtype: str, a: Bounds, b: Bounds) -> Bounds:
    return Bounds(min(b.low + 1, 0), max(b.high - 1, 0))


def _trunc_mod_range(attrs: Attrs, dtype: str, a: Bounds, b: Bounds) -> Bounds:
    most = max(abs(b.low), abs(b.high), 1) - 1
    return Bounds(max(min(a.low, 0), -most), min(max(a.high, 0), most))


def _abs_range(attrs: Attrs, dtype: str, data: Bounds) -> Bounds:
    sizes = abs(data.low), abs(data.high)
    return Bounds(0 if data.low <= 0 <= data.high else min(sizes), max(sizes))


def _sign_of(x: int) -> int:
    return (x > 0) - (x < 0)


def _inverted_range(attrs: Attrs, dtype: str, data: Bounds) -> Bounds | None:
    return Bounds(~data.high, ~data.low) if is_signed(dtype) else None


def _where_range(attrs: Attrs, dtype: str, a: Bounds, b: Bounds) -> Bounds:
    return Bounds(min(a.low, b.low), max(a.high, b.high))


_OF_BOOL = Bounds(0, 1)


def _cast_range(attrs: Attrs, dtype: str, data: Bounds = _OF_BOOL) -> Bounds | None:
    low, high = bounds(dtype)
    return Bounds(data.low, data.high) if low <= data.low and data.high <= high else None


# --- the table -------------------------------------------------------------------------------------------------------


def _two(
    name: str,
    doc: str,
    infer: Infer,
    scalar: Scalar,
    numpy: Numpy | str,
    value_range: Range | None = None,
    specials: Specials | None = KEEPS_NAN,
) -> Row:
    return Row(name, doc, infer, scalar, numpy, value_range, ("a", "b"), specials=specials)


def _either(
    name: str,
    doc: str,
    infer: Infer,
    scalar: Scalar,
    numpy: str,
    value_range: Range | None = None,
    specials: Specials | None = KEEPS_NAN,
) -> Row:
    """A row of two arguments that may change places."""
    return Row(name, doc, infer, scalar, numpy, value_range, ("a", "b"), commutative=True, specials=specials)


def _float_op(name: str, doc: str, numpy: str | None = None) -> Row:
    """A function of floats that the loop form knows by its name, and numpy by the same, or ``numpy``."""
    return Row(name, doc, FLOATS, function(name), wide(numpy or name))


_WRAPS = "Integers wrap around."

_MOVES_NAN = Specials("moved")
_COMPARES = Specials("unequal")
_CLAMPED = Specials("kept", tflite="infinite results are the largest or smallest finite number")
_EXTREMUM = Specials("kept", tflite="the second operand where one is NaN")
_CAST = Specials(
    "replaced",
    "of floats and bool NaN stays NaN, or is true; an integer is 0 for NaN, and the nearest it has for a number beyond",
    onnx="undefined in C: depends on the CPU",
    tflite="the largest integer for NaN",
)

ROWS: tuple[Row, ...] = (
    _either("add", f"a + b. {_WRAPS}", NUMBERS, _bin("add"), "add", _corners(lambda x, y: x + y), _CLAMPED),
    _two("subtract", f"a - b. {_WRAPS}", NUMBERS, _bin("sub"), "subtract", _corners(lambda x, y: x - y), _CLAMPED),
    _either("multiply", f"a * b. {_WRAPS}", NUMBERS, _bin("mul"), "multiply", _corners(lambda x, y: x * y), _CLAMPED),
    _two(
        "divide",
        f"a / b. Integers are rounded towards zero, and give 0 where b is 0. {_WRAPS}",
        NUMBERS,
        _divide,
        _by_kind(_quotient, by_name("divide")),
        _quotient_range,
        _CLAMPED,
    ),
    _two(
        "floor_mod",
        "What is left of a / b rounded down: 0, or of the sign of b. Integers give 0 where b is 0.",
        NUMBERS,
        _floor_mod,
        "mod",
        _floor_mod_range,
    ),
    _two(
        "trunc_mod",
        "What is left of a / b rounded towards zero: 0, or of the sign of a. Integers give 0 where b is 0.",
        NUMBERS,
        _trunc_mod,
        "fmod",
        _trunc_mod_range,
    ),
    Row(
        "power",
        "a to the power of b, for floats.",
        FLOATS,
        function("pow"),
        wide("power"),
        inputs=("a", "b"),
        specials=Specials("kept", "1 to the power of NaN is 1, and NaN to the power of 0, as in C"),
    ),
    _either(
        "minimum",
        "The smaller of a and b; NaN where one is NaN.",
        NUMBERS,
        _extremum("min"),
        "minimum",
        _corners(min),
        _EXTREMUM,
    ),
    _either(
        "maximum",
        "The larger of a and b; NaN where one is NaN.",
        NUMBERS,
        _extremum("max"),
        "maximum",
        _corners(max),
        _EXTREMUM,
    ),
    _either("equal", "Whether a and b are equal; NaN equals nothing.", _ANY, _bin("eq"), "equal", specials=_COMPARES),
    _either(
        "not_equal", "Whether a and b differ; NaN differs from all.", _ANY, _bin("ne"), "not_equal", specials=_COMPARES
    ),
    _two("less", "Whether a < b; not where one is NaN.", _ORDERED, _bin("lt"), "less", specials=_COMPARES),
    _two("less_equal", "Whether a <= b; not where one is NaN.", _ORDERED, _bin("le"), "less_equal", specials=_COMPARES),
    _two("greater", "Whether a > b; not where one is NaN.", _ORDERED, _bin("gt"), "greater", specials=_COMPARES),
    _two(
        "greater_equal",
        "Whether a >= b; not where one is NaN.",
        _ORDERED,
        _bin("ge"),
        "greater_equal",
        specials=_COMPARES,
    ),
    _either("logical_and", "Whether both hold.", _TRUTHS, _bin("and"), "logical_and", specials=None),
    _either("logical_or", "Whether one of both holds.", _TRUTHS, _bin("or"), "logical_or", specials=None),
    _either("logical_xor", "Whether just one of both holds.", _TRUTHS, _bin("ne"), "logical_xor", specials=None),
    Row(
        "logical_not", "Whether it does not hold.", _TRUTHS, lambda attrs, x: Un("not", x), "logical_not", specials=None
    ),
    _either(
        "bitwise_and", "The bits that both have, of integers.", _INTEGERS, _bin("bitand"), "bitwise_and", specials=None
    ),
    _either(
        "bitwise_or",
        "The bits that one of both has, of integers.",
        _INTEGERS,
        _bin("bitor"),
        "bitwise_or",
        specials=None,
    ),
    _either(
        "bitwise_xor",
        "The bits that just one has, of integers.",
        _INTEGERS,
        _bin("bitxor"),
        "bitwise_xor",
        specials=None,
    ),
    Row(
        "bitwise_not",
        "The bits that it has not, of integers.",
        _INTEGERS,
        _inverted,
        "bitwise_not",
        _inverted_range,
        specials=None,
    ),
    _two(
        "left_shift",
        "a * 2**b, of integers, without the bits that leave it: 0 where b is negative, or the width or more.",
        _INTEGERS,
        _shifted("shl"),
        _shift_reference("left_shift"),
        specials=None,
    ),
    _two(
        "right_shift",
        "a / 2**b rounded down, of integers. Where b is negative, or the width or more, no bit of a is left: it is -1 "
        "where a is negative, else 0.",
        _INTEGERS,
        _shifted("shr"),
        _shift_reference("right_shift"),
        specials=None,
    ),
    Row(
        "where",
        "a where the condition holds, else b.",
        _infer_where,
        lambda attrs, condition, a, b: Select(condition, a, b),
        "where",
        _where_range,
        ("condition", "a", "b"),
        specials=_MOVES_NAN,
    ),
    Row("abs", f"The size of the data. {_WRAPS}", NUMBERS, _abs, "abs", _abs_range),
    Row("negative", f"-data. {_WRAPS}", _SIGNED, lambda attrs, x: -x, "negative", monotonous(lambda x: -x)),
    Row("sign", "1, 0 or -1, of the sign of the data; NaN stays NaN.", NUMBERS, _sign, "sign", monotonous(_sign_of)),
    _float_op("exp", "e to the power of the data, for floats."),
    _float_op("expm1", "exp(data) - 1, for floats, exact also near 0."),
    _float_op("log1p", "log(1 + data), for floats, exact also near 0: -inf of -1, NaN of what is less."),
    _float_op("log", "Natural logarithm, for floats: -inf of 0, NaN of what is negative."),
    _float_op("sqrt", "Square root, for floats: NaN of what is negative."),
    Row(
        "rsqrt",
        "1 / sqrt(data), for floats.",
        FLOATS,
        lambda attrs, x: Imm(1.0, x.dtype) / Call("sqrt", x),
        wide(_inverse_root),
    ),
    _float_op("sin", "Sine of an angle in radians, for floats."),
    _float_op("cos", "Cosine of an angle in radians, for floats."),
    _float_op("tan", "Tangent of an angle in radians, for floats."),
    _float_op("asin", "The angle in radians whose sine it is, for floats: NaN beyond -1 .. 1.", "arcsin"),
    _float_op("acos", "The angle in radians whose cosine it is, for floats: NaN beyond -1 .. 1.", "arccos"),
    _float_op("atan", "The angle in radians whose tangent it is, for floats.", "arctan"),
    _float_op("sinh", "Hyperbolic sine, for floats."),
    _float_op("cosh", "Hyperbolic cosine, for floats."),
    _float_op("tanh", "Hyperbolic tangent, for floats."),
    _float_op("asinh", "What has it as its hyperbolic sine, for floats.", "arcsinh"),
    _float_op("acosh", "What is not negative and has it as its hyperbolic cosine, for floats: NaN below 1.", "arccosh"),
    _float_op("atanh", "What has it as its hyperbolic tangent, for floats: NaN beyond -1 .. 1.", "arctanh"),
    Row(
        "erf",
        "Error function, 2 / sqrt(pi) * integral of exp(-t**2) from 0, for floats.",
        FLOATS,
        function("erf"),
        wide(erf),
    ),
    _float_op("floor", "The largest whole number that is not larger, for floats."),
    _float_op("ceil", "The smallest whole number that is not smaller, for floats."),
    Row("round", "The nearest whole number, halves to even, for floats.", FLOATS, function("round_even"), "rint"),
    Row(
        "cast",
        "Conversion to another dtype: integers wrap around, floats truncate and saturate, NaN gives 0. A float of a "
        "smaller type is the nearest one, halves to even.",
        _infer_cast,
        _cast,
        _cast_reference,
        _cast_range,
        attrs=(Attr("dtype", Dtype, "of the result"),),
        stored=True,
        specials=_CAST,
    ),
    Row(
        "bitcast",
        "The bits of the data, read as another dtype of as many.",
        _infer_bitcast,
        _bitcast,
        _bitcast_reference,
        attrs=(Attr("dtype", Dtype, "of the result"),),
        specials=_MOVES_NAN,
    ),
    Row(
        "bfloat16_bits",
        "The bits of the bfloat16 (the upper half of a float32) that is nearest to a float32, halves to even.",
        takes("float32", lambda dtype: dtype == "float32", gives="uint16"),
        _bfloat16_bits,
        _bfloat16_bits_reference,
        specials=_MOVES_NAN,
    ),
    Row(
        "bfloat16_value",
        "The number that the bits of a bfloat16 are.",
        takes("uint16", lambda dtype: dtype == "uint16", gives="float32"),
        _bfloat16_value,
        _bfloat16_value_reference,
        specials=None,
    ),
)
"""In the order in which the documentation would name them: arithmetic, comparisons, functions, activations."""

register_rows(ROWS)
