"""Operators that go along one axis: places of extrema, running sums, logarithms of softmax."""

from __future__ import annotations

from ...errors import ModelError
from ...relay.expr import Expr, call
from ...tir.form.dtype import is_integer
from .layer import Importer, Layer

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
    return call("nn.log_softmax", _plain(layer, "float32"), axis=-1)


ALONG: dict[str, Importer] = {
    "ARG_MAX": _place("argmax"),
    "ARG_MIN": _place("argmin"),
    "CUMSUM": _running_sum,
    "LOG_SOFTMAX": _log_softmax,
}
