"""Activations: a table, a row for each. See `rows`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...tir.form.dtype import bounds, is_float, is_integer
from ...tir.form.nodes import Call, Expr, Imm, Select, maximum, minimum
from ...tir.form.scalar_semantics import round_float32
from ..op import Attr, Attrs, Bounds, Choice, Real, Specials
from ..types import TensorType
from .elementwise import erf
from .elementwise_table import FLOATS, NUMBERS, Row, monotonous, register_rows, wide

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ROWS", "clip_limits", "sigmoid", "stable_sigmoid"]


def sigmoid(attrs: Attrs, x: Expr) -> Expr:
    """1 / (1 + exp(-x)) in the loop form."""
    # exp(-x) overflows to infinity for very negative x, and 1 / infinity is the 0 that is wanted.
    one = Imm(1.0, x.dtype)
    return one / (one + Call("exp", -x))


def stable_sigmoid(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """The same of float64."""
    import numpy as np

    # exp of a negative number only, so that nothing overflows.
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1 / (1 + e), e / (1 + e)))


def _relu_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    result: np.ndarray = np.maximum(data, data.dtype.type(0))
    return result


def _leaky_relu(attrs: Attrs, x: Expr) -> Expr:
    return Select(x < 0.0, x * attrs.alpha, x)


def _leaky_reference(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.where(x < 0, x * x.dtype.type(attrs.alpha), x)


def _hard_swish(attrs: Attrs, x: Expr) -> Expr:
    zero, six = Imm(0.0, x.dtype), Imm(6.0, x.dtype)
    return x * minimum(six, maximum(zero, x + 3.0)) * (1 / 6)


def _hard_swish_reference(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.asarray(x * np.minimum(np.maximum(x + 3, 0), 6) / 6)


def _gelu(attrs: Attrs, x: Expr) -> Expr:
    if attrs.approximate == "none":
        return x * 0.5 * (Call("erf", x * math.sqrt(0.5)) + 1.0)
    return x * 0.5 * (Call("tanh", (x * x * x * 0.044715 + x) * math.sqrt(2 / math.pi)) + 1.0)


def _gelu_reference(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    import numpy as np

    if attrs.approximate == "none":
        return np.asarray(0.5 * x * (1 + erf(attrs, x / math.sqrt(2))))
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def clip_limits(attrs: Attrs, dtype: str) -> tuple[float | int | None, float | int | None]:
    """The limits of a clip that do something, as ``dtype`` holds them; None for one that does nothing."""
    if is_float(dtype):
        low, high = attrs.a_min, attrs.a_max
        if dtype == "float32":
            low, high = round_float32(low), round_float32(high)
        return (None if low == -math.inf else low), (None if high == math.inf else high)
    least, greatest = bounds(dtype)
    return (
        None if attrs.a_min <= least else int(attrs.a_min),
        None if attrs.a_max >= greatest else int(attrs.a_max),
    )


def _infer_clip(attrs: Attrs, data: TensorType) -> TensorType:
    """The result is of the type of the data, any dtype but bool. ``a_min`` is at most ``a_max``; for integers both are
    whole numbers or infinite, and leave a part of the dtype.
    """
    if not attrs.a_min <= attrs.a_max:
        raise ModelError(f"clip to {attrs.a_min} .. {attrs.a_max}, which holds nothing")
    if is_integer(data.dtype):
        least, greatest = bounds(data.dtype)
        if attrs.a_min > greatest or attrs.a_max < least:
            raise ModelError(f"clip to {attrs.a_min} .. {attrs.a_max}, outside of {data.dtype}")
        if any(math.isfinite(x) and x != int(x) for x in (attrs.a_min, attrs.a_max)):
            raise ModelError(f"clip of {data.dtype} to {attrs.a_min} .. {attrs.a_max}: these must be whole numbers")
    return NUMBERS(attrs, data)


def _clip(attrs: Attrs, x: Expr) -> Expr:
    low, high = clip_limits(attrs, x.dtype)
    if low is not None:
        x = maximum(Imm(low, x.dtype), x)
    return x if high is None else minimum(Imm(high, x.dtype), x)


def _clip_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    low, high = clip_limits(attrs, data.dtype.name)
    if low is not None:
        data = np.maximum(data, data.dtype.type(low))
    return data if high is None else np.minimum(data, data.dtype.type(high))


def _clip_range(attrs: Attrs, dtype: str, data: Bounds) -> Bounds:
    low, high = clip_limits(attrs, dtype)

    def limited(value: int) -> int:
        value = value if low is None else max(value, int(low))
        return value if high is None else min(value, int(high))

    return Bounds(limited(data.low), limited(data.high))


ROWS: tuple[Row, ...] = (
    Row("sigmoid", "1 / (1 + exp(-data)), for floats.", FLOATS, sigmoid, wide(stable_sigmoid)),
    Row(
        "nn.relu",
        "max(data, 0); NaN stays NaN.",
        NUMBERS,
        lambda attrs, x: maximum(Imm(0, x.dtype), x),
        _relu_reference,
        monotonous(lambda x: max(x, 0)),
    ),
    Row(
        "nn.leaky_relu",
        "The data where it is not negative, else data * alpha, for floats.",
        FLOATS,
        _leaky_relu,
        _leaky_reference,
        attrs=(Attr("alpha", Real, "slope of what is negative"),),
    ),
    Row(
        "nn.hard_swish",
        "data * min(max(data + 3, 0), 6) / 6, for floats.",
        FLOATS,
        _hard_swish,
        wide(_hard_swish_reference),
        specials=Specials("kept", "-inf is NaN; above 5.6e37 the product overflows to inf", onnx="no overflow"),
    ),
    Row(
        "nn.gelu",
        "data / 2 * (1 + erf(data / sqrt(2))), for floats; or, approximated, data / 2 * (1 + tanh(sqrt(2 / pi) * "
        "(data + 0.044715 * data**3))).",
        FLOATS,
        _gelu,
        wide(_gelu_reference),
        specials=Specials("kept", "-inf is NaN"),
        attrs=(Attr("approximate", Choice("none", "tanh"), "whether by tanh", default="none"),),
        terms=lambda attrs, x: x / 2,  # 1 + erf and 1 + tanh cancel where x is negative
    ),
    Row(
        "clip",
        "min(max(data, a_min), a_max); NaN stays NaN. For integers, limits outside of the dtype do nothing.",
        _infer_clip,
        _clip,
        _clip_reference,
        _clip_range,
        attrs=(
            Attr("a_min", Real, "lower limit", neutral=-math.inf),
            Attr("a_max", Real, "upper limit", neutral=math.inf),
        ),
        specials=Specials("kept", "a limit that ONNX's Clip leaves out is the smallest or largest finite number"),
    ),
)

register_rows(ROWS)
