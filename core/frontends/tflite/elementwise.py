"""Operators that work element by element, on tensors that are not quantised: a name for a name."""

from __future__ import annotations

from ...errors import ModelError
from ...relay.expr import Call, Expr, call, const
from ...relay.op import get_op
from ...tir.form.dtype import is_integer
from .layer import Importer, Layer

__all__ = ["ELEMENTWISE"]

_NAMES = {
    "CEIL": "ceil",
    "COS": "cos",
    "DIV": "divide",
    "EQUAL": "equal",
    "EXP": "exp",
    "FLOOR": "floor",
    "FLOOR_MOD": "floor_mod",
    "GREATER": "greater",
    "GREATER_EQUAL": "greater_equal",
    "LESS": "less",
    "LESS_EQUAL": "less_equal",
    "LOG": "log",
    "LOGICAL_AND": "logical_and",
    "LOGICAL_NOT": "logical_not",
    "LOGICAL_OR": "logical_or",
    "NEG": "negative",
    "NOT_EQUAL": "not_equal",
    "POW": "power",
    "ROUND": "round",
    "RSQRT": "rsqrt",
    "SELECT_V2": "where",
    "SIN": "sin",
    "SQRT": "sqrt",
}


def _operands(layer: Layer, count: int) -> list[Expr]:
    """The operands; ModelError where a number is quantised: what its kernel computes then is other arithmetic."""
    tensors = [*(layer.tensor(i) for i in range(count)), layer.output()]
    for tensor in tensors:
        if tensor.quantisation is not None and is_integer(tensor.dtype):
            raise ModelError(f"{tensor.name!r} is quantised", hint="supported: numbers that are not")
    return [layer.value(i) for i in range(count)]


def _named(op: str) -> Importer:
    def build(layer: Layer) -> Expr:
        made = call(op, *_operands(layer, len(get_op(op).inputs)))
        return layer.activated(made) if "activation" in layer.options else made

    return build


def _select(layer: Layer) -> Expr:
    """As SELECT_V2; but a condition of one dimension chooses among the parts along the first."""
    condition, a, b = _operands(layer, 3)
    if len(condition.shape) == 1 < len(a.shape):
        condition = call("reshape", condition, newshape=(*condition.shape, *(1 for _ in a.shape[1:])))
    return call("where", condition, a, b)


def _gelu(layer: Layer) -> Call:
    return call("nn.gelu", *_operands(layer, 1), approximate="tanh" if layer.options["approximate"] else "none")


def _square(layer: Layer) -> Call:
    return call("multiply", *_operands(layer, 1) * 2)


def _squared_difference(layer: Layer) -> Call:
    difference = call("subtract", *_operands(layer, 2))
    return call("multiply", difference, difference)


def _zero(like: Expr) -> Expr:
    import numpy as np

    return const(np.array(0, like.dtype))


def _elu(layer: Layer) -> Call:
    (data,) = _operands(layer, 1)
    below = call("expm1", call("minimum", data, _zero(data)))
    return call("where", call("greater", data, _zero(data)), data, below)


def _prelu(layer: Layer) -> Call:
    data, slope = _operands(layer, 2)
    return call("where", call("less", data, _zero(data)), call("multiply", data, slope), data)


def _floor_div(layer: Layer) -> Call:
    a, b = _operands(layer, 2)
    if is_integer(a.dtype):
        return call("divide", call("subtract", a, call("floor_mod", a, b)), b)
    return call("floor", call("divide", a, b))


def _sum_of_several(layer: Layer) -> Expr:
    made, *others = _operands(layer, layer.count)
    for other in others:
        made = call("add", made, other)
    return made


ELEMENTWISE: dict[str, Importer] = {
    **{name: _named(op) for name, op in _NAMES.items()},
    "ADD_N": _sum_of_several,
    "ELU": _elu,
    "FLOOR_DIV": _floor_div,
    "PRELU": _prelu,
    "GELU": _gelu,
    "SELECT": _select,
    "SQUARE": _square,
    "SQUARED_DIFFERENCE": _squared_difference,
}
