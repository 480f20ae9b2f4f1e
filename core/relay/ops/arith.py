"""Elementwise arithmetic, with numpy's broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.dtype import bounds, is_float, is_integer
from ...tir.nodes import Bin, Call, Expr, Imm, Select, maximum, minimum
from ...tir.scalar import round_float32
from ..op import Attr, Attrs, Bounds, Dtype, Op, Real, register_op
from ..types import TensorType
from .common import Types, broadcast_shapes, require_float, same_dtype

if TYPE_CHECKING:
    import numpy as np

__all__ = ["broadcast_load", "clip_limits"]


def broadcast_load(tensor: te.Tensor, index: tuple[Any, ...]) -> Expr:
    """The element of ``tensor`` that numpy's broadcasting puts at ``index`` of the result."""
    own = index[len(index) - len(tensor.shape) :]
    return tensor[tuple(0 if extent == 1 else i for extent, i in zip(tensor.shape, own, strict=True))]


def _infer_binary(attrs: Attrs, a: TensorType, b: TensorType) -> TensorType:
    """Both of one dtype, any but bool, which the result has; shapes broadcast as in numpy."""
    dtype = same_dtype(a, b)
    if dtype == "bool":
        raise ModelError("it takes numbers, not bool")
    return TensorType(broadcast_shapes(a.shape, b.shape), dtype)


def _binary(
    name: str, op: str, ufunc: str, doc: str, value_range: Callable[..., Bounds], *, commutative: bool = True
) -> None:
    def reference(attrs: Attrs, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        import numpy as np

        result: np.ndarray = getattr(np, ufunc)(a, b)
        return result

    def at(a: Expr, b: Expr) -> Expr:
        value = Bin(op, a, b)
        # The smaller and the larger one of the loop form are b where one of both is NaN.
        return Select(a.equal(a), value, a) if op in ("min", "max") and is_float(a.dtype) else value

    def compute(attrs: Attrs, out: TensorType, a: te.Tensor, b: te.Tensor) -> te.Tensor:
        return te.compute(out.shape, lambda *i: at(broadcast_load(a, i), broadcast_load(b, i)), name)

    def bounded(attrs: Attrs, out: TensorType, types: Types, a: Bounds | None, b: Bounds | None) -> Bounds | None:
        return None if a is None or b is None else value_range(a, b)

    register_op(
        Op(
            name=name,
            doc=doc,
            inputs=("a", "b"),
            infer=_infer_binary,
            reference=reference,
            compute=compute,
            kind="broadcast",
            value_range=bounded,
            commutative=commutative,
        )
    )


def _corners(op: Callable[[int, int], int]) -> Callable[[Bounds, Bounds], Bounds]:
    """Bounds of an operation that is monotonous in each operand: those of its corners."""

    def value_range(a: Bounds, b: Bounds) -> Bounds:
        values = [op(x, y) for x in a for y in b]
        return Bounds(min(values), max(values))

    return value_range


_WRAPS = "Integers wrap around."
_binary("add", "add", "add", f"a + b. {_WRAPS}", _corners(lambda x, y: x + y))
_binary("subtract", "sub", "subtract", f"a - b. {_WRAPS}", _corners(lambda x, y: x - y), commutative=False)
_binary("multiply", "mul", "multiply", f"a * b. {_WRAPS}", _corners(lambda x, y: x * y))
_binary("minimum", "min", "minimum", "The smaller of a and b; NaN where one is NaN.", _corners(min))
_binary("maximum", "max", "maximum", "The larger of a and b; NaN where one is NaN.", _corners(max))


def _infer_same(attrs: Attrs, data: TensorType) -> TensorType:
    """The result is of the type of the data, any dtype but bool."""
    if data.dtype == "bool":
        raise ModelError("it takes numbers, not bool")
    return data


def _relu_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    result: np.ndarray = np.maximum(data, data.dtype.type(0))
    return result


def _relu_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    zero = Imm(0, out.dtype)
    return te.compute(out.shape, lambda *i: maximum(zero, data[i]), "relu")


def _relu_range(attrs: Attrs, out: TensorType, types: Types, data: Bounds | None) -> Bounds | None:
    return None if data is None else Bounds(max(data.low, 0), max(data.high, 0))


register_op(
    Op(
        name="nn.relu",
        doc="max(data, 0); NaN stays NaN.",
        inputs=("data",),
        infer=_infer_same,
        reference=_relu_reference,
        compute=_relu_compute,
        kind="elementwise",
        value_range=_relu_range,
    )
)


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
    return _infer_same(attrs, data)


def _clip_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    low, high = clip_limits(attrs, data.dtype.name)
    if low is not None:
        data = np.maximum(data, data.dtype.type(low))
    return data if high is None else np.minimum(data, data.dtype.type(high))


def _clip_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    low, high = clip_limits(attrs, out.dtype)

    def at(*index: Any) -> Expr:
        value: Expr = data[index]
        if low is not None:
            value = maximum(Imm(low, out.dtype), value)
        return value if high is None else minimum(Imm(high, out.dtype), value)

    return te.compute(out.shape, at, "clip")


def _clip_range(attrs: Attrs, out: TensorType, types: Types, data: Bounds | None) -> Bounds | None:
    if data is None:
        return None
    low, high = clip_limits(attrs, out.dtype)

    def limited(value: int) -> int:
        value = value if low is None else max(value, int(low))
        return value if high is None else min(value, int(high))

    return Bounds(limited(data.low), limited(data.high))


register_op(
    Op(
        name="clip",
        doc="min(max(data, a_min), a_max); NaN stays NaN. For integers, limits outside of the dtype do nothing.",
        inputs=("data",),
        attrs=(
            Attr("a_min", Real, "lower limit", neutral=-math.inf),
            Attr("a_max", Real, "upper limit", neutral=math.inf),
        ),
        infer=_infer_clip,
        reference=_clip_reference,
        compute=_clip_compute,
        kind="elementwise",
        value_range=_clip_range,
    )
)


def _infer_float(attrs: Attrs, data: TensorType) -> TensorType:
    """The result is of the type of the data, any float dtype."""
    require_float(data)
    return data


def _sigmoid_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    # exp of a negative number only, so that nothing overflows.
    e = np.exp(-np.abs(data.astype(np.float64)))
    return np.where(data >= 0, 1 / (1 + e), e / (1 + e)).astype(data.dtype)


def _sigmoid(x: Expr) -> Expr:
    # exp(-x) overflows to infinity for very negative x, and 1 / infinity is the 0 that is wanted.
    one = Imm(1.0, x.dtype)
    return one / (one + Call("exp", -x))


def _tanh_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.tanh(data.astype(np.float64)).astype(data.dtype)


def _pointwise(f: Callable[[Expr], Expr], name: str) -> Callable[[Attrs, TensorType, te.Tensor], te.Tensor]:
    return lambda attrs, out, data: te.compute(out.shape, lambda *i: f(data[i]), name)


register_op(
    Op(
        name="sigmoid",
        doc="1 / (1 + exp(-data)), for floats.",
        inputs=("data",),
        infer=_infer_float,
        reference=_sigmoid_reference,
        compute=_pointwise(_sigmoid, "sigmoid"),
        kind="elementwise",
    )
)
register_op(
    Op(
        name="tanh",
        doc="Hyperbolic tangent, for floats.",
        inputs=("data",),
        infer=_infer_float,
        reference=_tanh_reference,
        compute=_pointwise(lambda x: Call("tanh", x), "tanh"),
        kind="elementwise",
    )
)


def _infer_cast(attrs: Attrs, data: TensorType) -> TensorType:
    """The result has the shape of the data; both dtypes may be any."""
    return TensorType(data.shape, attrs.dtype)


def _cast_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    if data.dtype.kind == "f" and is_integer(attrs.dtype):
        low, high = bounds(attrs.dtype)
        # A float is compared with the limits exactly: 2**31 - 1 is no float32, so clipping first would round it up.
        whole = np.trunc(np.nan_to_num(data.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        inner = np.where((whole > low) & (whole < high), whole, 0).astype(attrs.dtype)
        limits = np.array([low, high], dtype=attrs.dtype)
        return np.where(whole >= high, limits[1], np.where(whole <= low, limits[0], inner))
    return data.astype(attrs.dtype)


def _cast_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    return te.compute(out.shape, lambda *i: data[i].astype(out.dtype), "cast")


def _cast_range(attrs: Attrs, out: TensorType, types: Types, data: Bounds | None) -> Bounds | None:
    if data is None or not is_integer(out.dtype):
        return None
    low, high = bounds(out.dtype)
    return Bounds(data.low, data.high) if low <= data.low and data.high <= high else None


register_op(
    Op(
        name="cast",
        doc="Conversion to another dtype: integers wrap around, floats truncate and saturate, NaN gives 0.",
        inputs=("data",),
        attrs=(Attr("dtype", Dtype, "of the result"),),
        infer=_infer_cast,
        reference=_cast_reference,
        compute=_cast_compute,
        kind="elementwise",
        value_range=_cast_range,
    )
)
