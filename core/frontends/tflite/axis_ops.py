"""Operators that go along one axis: places of extrema, running sums, logarithms of softmax, vectors of length 1."""

from __future__ import annotations

from ...errors import ModelError
from ...relay.expr import Expr, TupleGetItem, call, const
from ...tir.form.dtype import is_integer
from ..compositions import local_response
from .arith import exponent_scale
from .layer import Importer, Layer, quantisation

__all__ = ["ALONG"]


def _place(op: str) -> Importer:
    def build(layer: Layer) -> Expr:
        """Codes of one scale are in the order of what they stand for."""
        output = layer.output().dtype
        if output not in ("int32", "int64"):
            raise ModelError(f"its result is {output}")
        return call(op, layer.value(0), axis=layer.integer(1, "axis"), dtype=output)

    return build


def _plain(layer: Layer, *dtypes: str) -> Expr:
    """The data; ModelError where it is quantised, or of another dtype."""
    source = layer.tensor(0)
    if source.dtype not in dtypes:
        raise ModelError(f"it is of {source.dtype}", hint=f"supported: {', '.join(dtypes)}")
    if source.quantisation is not None and is_integer(source.dtype):
        raise ModelError(f"{source.name!r} is quantised", hint="supported: numbers that are not")
    return layer.value(0)


def _running_sum(layer: Layer) -> Expr:
    data, options = _plain(layer, "float32", "int32", "int64"), layer.options
    how = {"exclusive": bool(options["exclusive"]), "reverse": bool(options["reverse"])}
    return call("cumsum", data, axis=layer.integer(1, "axis"), **how)


def _log_softmax(layer: Layer) -> Expr:
    source, output = layer.tensor(0), layer.output()
    if source.dtype == "float32" or source.quantisation is None:
        return call("nn.log_softmax", _plain(layer, "float32"), axis=-1)
    layer.dtypes("int8")
    out_scale, out_zero = quantisation(output)
    if out_scale != 1 / 16 or out_zero != 127:
        raise ModelError(f"its result has scale {out_scale} and zero point {out_zero}, not 1/16 and 127")
    return call("qnn.log_softmax", layer.value(0), scale=exponent_scale(quantisation(source)[0]))


def _l2_normalization(layer: Layer) -> Expr:
    """Of floats a length below 1e-6 counts as that; of quantised numbers one of 0 as 1."""
    dtype = layer.dtypes("float32", "int8", "uint8")
    if layer.options["activation"] != 0:
        raise ModelError(f"its fused activation has the number {layer.options['activation']}", hint="supported: none")
    data = layer.value(0)
    if not data.shape:
        raise ModelError("its data has no dimensions")
    if dtype == "float32":
        square = call("sum", call("multiply", data, data), axis=(-1,), keepdims=True)
        return call("divide", data, call("maximum", call("sqrt", square), const(1e-6, "float32")))
    (_, zero_point), (out_scale, out_zero) = quantisation(layer.tensor(0)), quantisation(layer.output())
    expected = 128 if dtype == "uint8" else 0
    if out_scale != 1 / 128 or out_zero != expected:
        raise ModelError(f"its result has scale {out_scale} and zero point {out_zero}, not 1/128 and {expected}")
    return call("qnn.l2_normalize", data, input_zero_point=zero_point)


def _top(layer: Layer) -> list[Expr]:
    """The largest elements along the last dimension, in order, and their places."""
    data, k = layer.value(0), layer.integer(1, "k")
    if layer.outputs != 2 or layer.output(1).dtype not in ("int32", "int64"):
        raise ModelError(f"its results are {', '.join(layer.output(i).dtype for i in range(layer.outputs))}")
    layer.same_quantisation(layer.tensor(0), layer.output())
    top = call("topk", data, k=k, axis=-1, dtype=layer.output(1).dtype)
    return [TupleGetItem(top, position) for position in range(2)]


def _local_response(layer: Layer) -> Expr:
    """Over the channels of an image, the last dimension."""
    data, options = _plain(layer, "float32"), layer.options
    radius = options["radius"]
    if len(data.shape) != 4 or radius < 0:
        raise ModelError(f"it has the radius {radius} and data of {len(data.shape)} dimensions, not 4")
    radius = min(radius, data.shape[3] - 1)
    alpha = options["alpha"] * (2 * radius + 1)  # of a mean, where the kernel has a sum
    return local_response(layer, data, 3, (radius, radius), alpha=alpha, bias=options["bias"], beta=options["beta"])


ALONG: dict[str, Importer] = {
    "ARG_MAX": _place("argmax"),
    "ARG_MIN": _place("argmin"),
    "CUMSUM": _running_sum,
    "L2_NORMALIZATION": _l2_normalization,
    "LOCAL_RESPONSE_NORMALIZATION": _local_response,
    "LOG_SOFTMAX": _log_softmax,
    "TOPK_V2": _top,
}
