"""Operators that work element by element, on tensors that are not quantised: a name for a name."""

from __future__ import annotations

import math

from ...errors import ModelError
from ...relay.expr import Call, Expr, call, const
from ...relay.op import get_op
from ...tir.form.dtype import bits, is_integer
from ..compositions import bit_cast
from .layer import Importer, Layer, quantisation
from .uint8_division import quotient_of_uint8

__all__ = ["ELEMENTWISE", "named", "operands"]

_NAMES = {
    "CEIL": "ceil",
    "COS": "cos",
    "FLOOR": "floor",
    "FLOOR_MOD": "floor_mod",
    "LOGICAL_AND": "logical_and",
    "LOGICAL_NOT": "logical_not",
    "LOGICAL_OR": "logical_or",
    "POW": "power",
    "ROUND": "round",
    "SIN": "sin",
}


def operands(layer: Layer, count: int) -> list[Expr]:
    """The operands; ModelError where a number is quantised: what its kernel computes then is other arithmetic."""
    tensors = [*(layer.tensor(i) for i in range(count)), layer.output()]
    for tensor in tensors:
        if tensor.quantisation is not None and is_integer(tensor.dtype):
            raise ModelError(f"{tensor.name!r} is quantised", hint="supported: numbers that are not")
    return [layer.value(i) for i in range(count)]


def named(op: str) -> Importer:
    """An operator that is an op."""

    def build(layer: Layer) -> Expr:
        result = call(op, *operands(layer, len(get_op(op).inputs)))
        return layer.activated(result) if "activation" in layer.options else result

    return build


def _negative(layer: Layer) -> Expr:
    """The kernels know no zero point, and let -128 be."""
    tensors = layer.tensor(0), layer.output()
    if tensors[0].dtype == "int8" and all(tensor.quantisation is not None for tensor in tensors):
        layer.same_quantisation(*tensors)
        if quantisation(tensors[0])[1]:
            raise ModelError("its int8 has a zero point that is not 0")
        return call("negative", layer.value(0))
    return call("negative", *operands(layer, 1))


def _square(layer: Layer) -> Call:
    return call("multiply", *operands(layer, 1) * 2)


def _divide(layer: Layer) -> Expr:
    tensors = layer.tensor(0), layer.tensor(1), layer.output()
    if all(tensor.dtype == "uint8" and tensor.quantisation is not None for tensor in tensors):
        return quotient_of_uint8(layer)
    return layer.activated(call("divide", *operands(layer, 2)))


def _floor_div(layer: Layer) -> Call:
    a, b = operands(layer, 2)
    if not is_integer(a.dtype):
        return call("floor", call("divide", a, b))
    # One less than what is cut off, where something is left that has not the sign of b.
    rest, zero = call("trunc_mod", a, b), const(0, a.dtype)
    is_left = call("not_equal", rest, zero)
    has_other_sign = call("not_equal", call("less", rest, zero), call("less", b, zero))
    one_less = call("cast", call("logical_and", is_left, has_other_sign), dtype=a.dtype)
    return call("subtract", call("divide", a, b), one_less)


def _sum_of_several(layer: Layer) -> Expr:
    total, *others = operands(layer, max(1, layer.count))
    for other in others:
        total = call("add", total, other)
    return total


def _sign(layer: Layer) -> Call:
    layer.dtypes("float32", "float64", "int32")
    return call("sign", *operands(layer, 1))


def _angle(layer: Layer) -> Expr:
    """The angle of the point (x, y) from its octant: that of C's ``atan2``, also of zeros and infinities."""
    dtype = layer.dtypes("float32", "float64")
    y, x = operands(layer, 2)
    up, right = call("abs", y), call("abs", x)
    # (Two zeros have the slope 0, two infinities 1.)
    slope = call("divide", call("minimum", up, right), call("maximum", up, right))
    angle = call("atan", call("where", call("equal", up, right), call("sign", up), slope))
    angle = call("where", call("greater", up, right), call("subtract", const(math.pi / 2, dtype), angle), angle)
    angle = call("where", _has_sign(x), call("subtract", const(math.pi, dtype), angle), angle)
    return call("where", _has_sign(y), call("negative", angle), angle)


def _has_sign(value: Expr) -> Expr:
    """Return whether floats are below 0, or -0."""
    codes = call("bitcast", value, dtype=f"int{bits(value.dtype)}")
    return call("less", codes, const(0, codes.dtype))


def _bit_cast(layer: Layer) -> Expr:
    """The first bits first where a number becomes several, along a new last dimension, or several become one."""
    import numpy as np

    data, dtype = layer.value(0), layer.output().dtype
    if "bool" in (data.dtype, dtype):
        if dtype not in ("bool", "int8", "uint8") or data.dtype != "bool":
            raise ModelError(f"it reads {data.dtype} as {dtype}", hint="supported: of bool its bytes")
        return bit_cast(layer, data, dtype)
    source, target = bits(data.dtype), bits(dtype)
    if source == target:
        return bit_cast(layer, data, dtype)
    wide, count = f"uint{max(source, target)}", max(source, target) // min(source, target)
    steps = const(np.arange(count) * min(source, target), wide)
    codes = bit_cast(layer, data, f"uint{source}")
    if source > target:
        apart = call("right_shift", layer.reshape(codes, (*data.shape, 1)), steps)
        return bit_cast(layer, layer.cast(apart, f"uint{target}"), dtype)
    if data.shape[-1:] != (count,):
        raise ModelError(f"it reads {data.type} as {dtype}: {count} elements, along the last dimension, are one")
    shifted = call("left_shift", layer.cast(codes, wide), steps)
    return bit_cast(layer, call("sum", shifted, axis=(-1,)), dtype)


def _fake_quantised(layer: Layer) -> Expr:
    """Floats as they are after quantisation: TFLite's ``NudgeQuantizationRange`` and ``FakeQuantizeArray``."""
    import numpy as np

    layer.dtypes("float32")
    (data,) = operands(layer, 1)
    low, high, width = (layer.options[name] for name in ("min", "max", "num_bits"))
    if layer.options["narrow_range"]:
        raise ModelError("its range is narrow", hint="supported: the whole range, as in LiteRT")
    if not 2 <= width <= 16:
        raise ModelError(f"it has {width} bits", hint="supported: 2 to 16")
    f32 = np.float32
    steps = f32(2**width - 1)
    with np.errstate(all="ignore"):
        scale = (f32(high) - f32(low)) / steps
        inverse = f32(1) / scale
        zero = np.clip(-f32(low) / scale, f32(0), steps)
        zero = np.floor(zero + f32(0.5)) if zero - np.floor(zero) >= 0.5 else np.floor(zero)
        least, most = -zero * scale, (steps - zero) * scale
    if not (scale > 0 and np.isfinite([inverse, least, most]).all()):
        raise ModelError(f"its range is from {low} to {high}")
    first = const(least)
    limited = call("clip", data, a_min=float(least), a_max=float(most))
    steps_up = call("multiply", call("subtract", limited, first), const(inverse))
    floors = call("floor", steps_up)
    is_half = call("greater_equal", call("subtract", steps_up, floors), const(0.5, "float32"))
    floors = call("where", is_half, call("add", floors, const(1.0, "float32")), floors)
    return call("add", call("multiply", floors, const(scale)), first)


ELEMENTWISE: dict[str, Importer] = {
    **{name: named(op) for name, op in _NAMES.items()},
    "ADD_N": _sum_of_several,
    "ATAN2": _angle,
    "BITCAST": _bit_cast,
    "DIV": _divide,
    "FAKE_QUANT": _fake_quantised,
    "FLOOR_DIV": _floor_div,
    "NEG": _negative,
    "SIGN": _sign,
    "SQUARE": _square,
}
