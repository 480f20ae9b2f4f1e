"""Sigmoid and tanh of quantised tensors: float arithmetic on 256 possible values, so a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...tir import te
from ...tir.form.dtype import bounds
from ..op import Attr, Attrs, Int, Op, Real, register_op
from ..types import TensorType
from .common import require_integers
from .qnn import check_zero_point

if TYPE_CHECKING:
    import numpy as np

__all__: list[str] = []


def _infer(attrs: Attrs, data: TensorType) -> TensorType:
    """Data is int8 or uint8, and the result of its type. Scales are from 2**-126 to below 2**126."""
    require_integers(data, within=("int8", "uint8"))
    check_zero_point(attrs.input_zero_point, data.dtype)
    check_zero_point(attrs.output_zero_point, data.dtype)
    for scale in (attrs.input_scale, attrs.output_scale):
        if not 2.0**-126 <= scale < 2.0**126:
            raise ModelError(f"scale {scale} is not a positive float32")
    return data


def _apply(attrs: Attrs, data: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """``function`` of every element; it maps float64 to float64, rounded to float32 afterwards."""
    import numpy as np

    f32 = np.float32
    with np.errstate(over="ignore"):
        real = f32(attrs.input_scale) * (data.astype(np.int32) - attrs.input_zero_point).astype(f32)
        product = function(real) * (f32(1) / f32(attrs.output_scale))
    # float64 holds a float32 and its half exactly.
    wide = product.astype(np.float64)
    rounded = np.copysign(np.floor(np.abs(wide) + 0.5), wide)
    low, high = bounds(data.dtype.name)
    result: np.ndarray = np.clip(rounded + attrs.output_zero_point, low, high).astype(data.dtype)
    return result


def _sigmoid(x: np.ndarray) -> np.ndarray:
    import numpy as np

    one = np.float32(1)
    with np.errstate(over="ignore"):
        power = np.exp(-x.astype(np.float64)).astype(np.float32)
    result: np.ndarray = one / (one + power)
    return result


def _tanh(x: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.tanh(x.astype(np.float64)).astype(np.float32)


def _declare(name: str, formula: str, operator: str, function: Callable[[np.ndarray], np.ndarray]) -> None:
    def reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
        return _apply(attrs, data, function)

    def compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
        import numpy as np

        low, high = bounds(out.dtype)
        table = te.constant(_apply(attrs, np.arange(low, high + 1).astype(out.dtype), function), "table")
        return te.compute(out.shape, lambda *i: table[data[i].astype("int32") - low], name)

    register_op(
        Op(
            name=f"qnn.{name}",
            doc=(
                f"{formula} of x = input_scale * (data - input_zero_point), divided by output_scale and rounded half "
                f"away from zero, plus output_zero_point, saturated; in float32. TFLite's reference {operator}."
            ),
            inputs=("data",),
            attrs=(
                Attr("input_scale", Real, "scale of the data"),
                Attr("output_scale", Real, "scale of the result"),
                Attr("input_zero_point", Int, "zero point of the data", neutral=0),
                Attr("output_zero_point", Int, "zero point of the result", neutral=0),
            ),
            infer=_infer,
            reference=reference,
            compute=compute,
            kind="elementwise",
        )
    )


_declare("sigmoid", "1 / (1 + exp(-x))", "LOGISTIC", _sigmoid)
_declare("tanh", "tanh(x)", "TANH", _tanh)
