"""Operators that work element by element, on tensors that are not quantised: a name for a name."""

from __future__ import annotations

from ...errors import ModelError
from ...relay.expr import Call, Expr, call, const
from ...relay.op import get_op
from ...tir.form.dtype import is_integer
from .layer import Importer, Layer, quantisation
from .quotients import quotient_of_uint8

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
        made = call(op, *operands(layer, len(get_op(op).inputs)))
        return layer.activated(made) if "activation" in layer.options else made

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
    made, *others = operands(layer, layer.count)
    for other in others:
        made = call("add", made, other)
    return made


ELEMENTWISE: dict[str, Importer] = {
    **{name: named(op) for name, op in _NAMES.items()},
    "ADD_N": _sum_of_several,
    "DIV": _divide,
    "FLOOR_DIV": _floor_div,
    "NEG": _negative,
    "SQUARE": _square,
}
