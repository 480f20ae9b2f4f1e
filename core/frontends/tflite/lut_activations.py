"""Functions of one tensor, quantised: tables of what each number becomes.

Of int8 and uint8 a table has every number. Of int16 it has 513 places with straight lines between: TFLite's
``LUTPopulate`` and ``LUTLookup``. Functions are computed in float32, as the kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...relay.expr import Expr, call, const
from ...relay.fixed_point import quantize_multiplier, scale_integer
from ...relay.ops.gemmlowp import ARRAYS, inverse_root
from ...tir.form.dtype import bounds
from .elementwise import named, operands
from .layer import Importer, Layer, quantisation

if TYPE_CHECKING:
    import numpy as np

__all__ = ["CURVES"]

Curve = Callable[["np.ndarray", float, int], "np.ndarray"]
"""``curve(x, scale, zero_point)``: float32 to float32; scale and zero point are the result's."""


def _quantised(layer: Layer, *dtypes: str) -> bool:
    """Whether a layer of one operand is to be computed on quantised numbers, of one of ``dtypes``."""
    source, output = layer.tensor(0), layer.output()
    if source.quantisation is None or source.dtype not in ("int8", "uint8", "int16"):
        return False
    if source.dtype != output.dtype or source.dtype not in dtypes:
        raise ModelError(f"it turns {source.dtype} into {output.dtype}", hint=f"supported: {', '.join(dtypes)}")
    return True


def _away(values: Any) -> np.ndarray:
    """Floats rounded half away from zero; float64 holds a float32 and its half."""
    import numpy as np

    wide = np.asarray(values, np.float64)
    return np.asarray(np.copysign(np.floor(np.abs(wide) + 0.5), wide))


def lookup(layer: Layer, table: np.ndarray) -> Expr:
    """What stands in a table of 256 in the order of the numbers, for each of an 8-bit operand."""
    low, _ = bounds(layer.tensor(0).dtype)
    place = call("cast", layer.value(0), dtype="int32")
    if low:
        place = call("subtract", place, const(low))
    return call("take", const(table.astype(layer.output().dtype)), place, axis=0)


def _clipped(values: np.ndarray, dtype: str) -> np.ndarray:
    """Floats that are whole numbers as those of a dtype, saturated; NaN gives the least."""
    import numpy as np

    low, high = bounds(dtype)
    return np.asarray(np.clip(np.nan_to_num(values, nan=-math.inf, posinf=math.inf, neginf=-math.inf), low, high))


def _table(layer: Layer, curve: Curve) -> np.ndarray:
    """round(f(scale * (i - zero point)) * (1 / scale)) + zero point, of every 8-bit number i."""
    import numpy as np

    f32 = np.float32
    (scale, zero_point), (out_scale, out_zero) = quantisation(layer.tensor(0)), quantisation(layer.output())
    low, high = bounds(layer.tensor(0).dtype)
    with np.errstate(all="ignore"):
        real = f32(scale) * (np.arange(low, high + 1) - zero_point).astype(f32)
        values = curve(real, out_scale, out_zero) * (f32(1) / f32(out_scale))
        return _clipped(_away(values) + out_zero, layer.output().dtype)


_SEGMENTS = 512


def _lines(layer: Layer, curve: Curve) -> Expr:
    """Of int16: places of a table are 128 numbers apart; each is moved by half of what a line is off in the middle."""
    import numpy as np

    f32 = np.float32
    (scale, zero_point), (out_scale, out_zero) = quantisation(layer.tensor(0)), quantisation(layer.output())
    if zero_point or out_zero:
        raise ModelError(f"int16 has the zero points {zero_point} and {out_zero}, not 0")
    low, high = bounds("int16")
    with np.errstate(all="ignore"):
        first, last = f32(scale) * f32(low), f32(scale) * f32(high)
        step = (last - first) / f32(_SEGMENTS)
        inverse = f32(high - low + 1) / (f32(out_scale) * f32(high) - f32(out_scale) * f32(low))
        edges = first + np.arange(_SEGMENTS + 1).astype(f32) * step
        at = curve(edges, out_scale, out_zero) * inverse
        middle = _away(curve(edges[:-1] + step / f32(2), out_scale, out_zero) * inverse).astype(f32)
        sample = _away(at).astype(f32)
        line = _away((at[1:] + sample[:-1]) / f32(2)).astype(f32)
        samples = sample[:-1] - _away((line - middle) / f32(2)).astype(f32)
        end = _away(curve(np.array([last]), out_scale, out_zero) * inverse)
        values = np.append(samples.astype(np.float64), end)
    if np.isnan(values).any():
        raise ModelError(f"its function overflows at its scale {scale}: there is no saying what the kernels give")
    table = _clipped(values, "int16").astype(np.int32)
    wide = call("cast", layer.value(0), dtype="int32")
    place = call("add", call("right_shift", wide, const(7)), const(_SEGMENTS // 2))
    rest = call("bitwise_and", wide, const(127))
    here = call("take", const(table[:-1]), place, axis=0)
    slope = call("take", const(np.diff(table)), place, axis=0)
    rise = call("right_shift", call("add", call("multiply", slope, rest), const(64)), const(7))
    return call("cast", call("add", here, rise), dtype="int16")


def _curved(curve: Curve, float_form: Importer, *dtypes: str) -> Importer:
    def build(layer: Layer) -> Expr:
        if not _quantised(layer, *dtypes):
            return _one(float_form(layer))
        if layer.tensor(0).dtype == "int16":
            return _lines(layer, curve)
        return lookup(layer, _table(layer, curve))

    return build


def _one(result: Any) -> Expr:
    assert isinstance(result, Expr)
    return result


# --- the functions ---------------------------------------------------------------------------------------------------


def _exp(x: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    import numpy as np

    return np.asarray(np.exp(x.astype(np.float64)).astype(np.float32))


def _elu(x: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    import numpy as np

    return np.asarray(np.where(x < 0, np.expm1(np.minimum(x, 0).astype(np.float64)).astype(np.float32), x))


def _log(x: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    """What has no logarithm becomes the least number there is."""
    import numpy as np

    low = -(1 << 7) if x.size == 256 else -(1 << 15)
    least = np.float32(low - zero_point) * np.float32(scale)
    return np.asarray(np.where(x <= 0, least, np.log(np.maximum(x, 1e-45).astype(np.float64)).astype(np.float32)))


def _rsqrt16(x: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    import numpy as np

    most = np.float32(bounds("int16")[1]) * np.float32(scale)
    return np.asarray(np.where(x <= 0, most, np.float32(1) / np.sqrt(np.maximum(x, np.float32(1e-45)))))


def _float_elu(layer: Layer) -> Expr:
    (data,) = operands(layer, 1)
    zero = const(0, data.dtype)
    below = call("expm1", call("minimum", data, zero))
    return call("where", call("greater", data, zero), data, below)


def _float_gelu(layer: Layer) -> Expr:
    return call("nn.gelu", *operands(layer, 1), approximate="tanh" if layer.options["approximate"] else "none")


def _gelu(layer: Layer) -> Expr:
    import numpy as np

    def curve(x: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
        f32 = np.float32
        wide = x.astype(np.float64)
        if layer.options["approximate"]:
            inner = f32(math.sqrt(2 / math.pi)) * (x + f32(0.044715) * (x * x * x))
            gate = np.tanh(inner.astype(np.float64)).astype(f32) + f32(1)
        else:
            erfc = np.array([math.erfc(value * -math.sqrt(0.5)) for value in wide])
            gate = erfc.astype(f32)
        return np.asarray(f32(0.5) * x * gate, f32)

    return _one(_curved(curve, _float_gelu, "int8", "uint8")(layer))


# --- roots -----------------------------------------------------------------------------------------------------------


def _rsqrt(layer: Layer) -> Expr:
    """Of int8 in fixed points; what is not positive becomes the largest number there is (the kernels stop at it)."""
    import numpy as np

    if not _quantised(layer, "int8", "int16"):
        return _one(named("rsqrt")(layer))
    if layer.tensor(0).dtype == "int16":
        return _lines(layer, _rsqrt16)
    (scale, zero_point), (out_scale, out_zero) = quantisation(layer.tensor(0)), quantisation(layer.output())
    f32 = np.float32
    with np.errstate(all="ignore"):
        factor = 1.0 / float(np.sqrt(f32(scale)) * f32(out_scale))
    if not factor < 2.0**30:
        raise ModelError(f"its scales {scale} and {out_scale} are too small")
    multiplier, shift = quantize_multiplier(factor)
    low, high = bounds("int8")
    table = []
    for value in range(low - zero_point, high - zero_point + 1):
        if value <= 0:
            table.append(high)
            continue
        root, places = (int(part) for part in inverse_root(ARRAYS, np.int64(value)))
        code = scale_integer(1, root, places + 20, "double")
        code = scale_integer(code, multiplier, shift - 20, "double") + out_zero
        table.append(max(low, min(code, high)))
    return lookup(layer, np.array(table))


def _sqrt(layer: Layer) -> Expr:
    """Of int8: cut off, not rounded; what is negative becomes what 0 does (the kernels stop at it)."""
    import numpy as np

    if not _quantised(layer, "int8"):
        return _one(named("sqrt")(layer))
    f32 = np.float32
    (scale, zero_point), (out_scale, out_zero) = quantisation(layer.tensor(0)), quantisation(layer.output())
    low, high = bounds("int8")
    with np.errstate(all="ignore"):
        real = f32(scale) * np.maximum(np.arange(low, high + 1) - zero_point, 0).astype(f32)
        values = np.trunc(np.sqrt(real) / f32(out_scale)).astype(np.float64)
    return lookup(layer, _clipped(values + out_zero, "int8"))


CURVES: dict[str, Importer] = {
    "ELU": _curved(_elu, _float_elu, "int8"),
    "EXP": _curved(_exp, named("exp"), "int8", "int16"),
    "GELU": _gelu,
    "LOG": _curved(_log, named("log"), "int8", "int16"),
    "RSQRT": _rsqrt,
    "SQRT": _sqrt,
}
