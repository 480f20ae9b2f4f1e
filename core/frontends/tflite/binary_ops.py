"""Quantised operands that are compared, chosen, or met element by element in other ways than sums and products."""

from __future__ import annotations

from ...errors import ModelError
from ...relay.expr import Expr, call, const
from ...relay.fixed_point import fixed_point
from .elementwise import named, operands
from .layer import QUANTISED, Importer, Layer, quantisation

__all__ = ["PAIRS"]


def _is_quantised(layer: Layer, *positions: int) -> bool:
    tensors = [layer.tensor(position) for position in positions]
    return all(t.quantisation is not None and t.dtype in (*QUANTISED, "int16") for t in tensors)


def _centred(layer: Layer, position: int) -> Expr:
    """An operand less its zero point, int32."""
    wide = call("cast", layer.value(position), dtype="int32")
    _, zero_point = quantisation(layer.tensor(position))
    return call("subtract", wide, const(zero_point)) if zero_point else wide


def _scaled(value: Expr, factor: float) -> Expr:
    """An int32 scaled by a fixed point that rounds twice."""
    return call("qnn.requantize", value, scale=fixed_point([factor], "double"), dtype="int32")


def _below_one(layer: Layer, role: str, factor: float) -> float:
    if not factor < 1:
        raise ModelError(f"{role} is {factor}", hint="the kernels take one below 1")
    return factor


def _comparison(op: str, float_form: Importer) -> Importer:
    """Operands are brought to one scale, times 256: TFLite's ``BroadcastComparison4DSlowWithScaling``."""

    def build(layer: Layer) -> Expr:
        if not _is_quantised(layer, 0, 1):
            comparison = float_form(layer)
            assert isinstance(comparison, Expr)
            return comparison
        layer_dtypes = {layer.tensor(0).dtype, layer.tensor(1).dtype}
        if len(layer_dtypes) != 1 or not layer_dtypes <= set(QUANTISED):
            raise ModelError(f"it is of {' and '.join(sorted(layer_dtypes))}", hint="supported: int8, uint8")
        sides = []
        for position in (0, 1):
            scale, _ = quantisation(layer.tensor(position))
            wide = call("multiply", _centred(layer, position), const(1 << 8))
            sides.append(_scaled(wide, _below_one(layer, f"the scale of operand {position}", scale)))
        return call(op, *sides)

    return build


def _squared_difference(layer: Layer) -> Expr:
    """TFLite's ``SquaredDifference`` of int8: operands gain 7 bits and are brought to twice the larger scale."""
    if not _is_quantised(layer, 0, 1):
        difference = call("subtract", *operands(layer, 2))
        return call("multiply", difference, difference)
    layer.dtypes("int8")
    scales = [quantisation(layer.tensor(position))[0] for position in (0, 1)]
    out_scale, out_zero = quantisation(layer.output())
    common = 2 * max(scales)
    factor = _below_one(layer, "the factor of its result", common * common / ((1 << 14) * out_scale))
    sides = []
    for position, scale in enumerate(scales):
        wide = call("multiply", _centred(layer, position), const(1 << 7))
        sides.append(_scaled(wide, scale / common))
    difference = call("subtract", *sides)
    square = call("multiply", difference, difference)
    final = fixed_point([factor], "double")
    return call("qnn.requantize", square, scale=final, output_zero_point=out_zero, dtype="int8")


def _prelu(layer: Layer) -> Expr:
    """TFLite's ``BroadcastPrelu4DSlow``: what is negative is multiplied by its slope, and scaled by both scales."""
    if not _is_quantised(layer, 0, 1):
        data, slope = operands(layer, 2)
        is_negative = call("less", data, const(0, data.dtype))
        return call("where", is_negative, call("multiply", data, slope), data)
    dtype = layer.dtypes(*QUANTISED)
    (scale, _), (slope_scale, _), (out_scale, out_zero) = map(
        quantisation, (layer.tensor(0), layer.tensor(1), layer.output())
    )
    data, slope = _centred(layer, 0), _centred(layer, 1)
    sides = []
    for value, factor in ((data, scale / out_scale), (call("multiply", data, slope), scale * slope_scale / out_scale)):
        attrs = {"scale": fixed_point([factor], "double"), "output_zero_point": out_zero, "dtype": dtype}
        sides.append(call("qnn.requantize", value, **attrs))
    return call("where", call("greater_equal", data, const(0)), *sides)


def _chosen(importer: Importer) -> Importer:
    """SELECT, SELECT_V2: of quantised numbers too, which mean the same before and after."""

    def build(layer: Layer) -> Expr:
        if _is_quantised(layer, 1, 2):
            layer.same_quantisation(layer.output(), layer.tensor(1), layer.tensor(2))
        result = importer(layer)
        assert isinstance(result, Expr)
        return result

    return build


def _where(layer: Layer) -> Expr:
    return call("where", *(layer.value(position) for position in range(3)))


def _where_of_parts(layer: Layer) -> Expr:
    """As SELECT_V2; but a condition of one dimension chooses among the parts along the first."""
    condition, a, b = (layer.value(position) for position in range(3))
    if len(condition.shape) == 1 < len(a.shape):
        condition = call("reshape", condition, newshape=(*condition.shape, *(1 for _ in a.shape[1:])))
    return call("where", condition, a, b)


_COMPARISONS: dict[str, str] = {
    "EQUAL": "equal",
    "GREATER": "greater",
    "GREATER_EQUAL": "greater_equal",
    "LESS": "less",
    "LESS_EQUAL": "less_equal",
    "NOT_EQUAL": "not_equal",
}

PAIRS: dict[str, Importer] = {
    **{name: _comparison(op, named(op)) for name, op in _COMPARISONS.items()},
    "PRELU": _prelu,
    "SELECT": _chosen(_where_of_parts),
    "SELECT_V2": _chosen(_where),
    "SQUARED_DIFFERENCE": _squared_difference,
}
