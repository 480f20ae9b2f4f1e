"""Operators that work element by element, on tensors that are not quantised: a name for a name."""

from __future__ import annotations

from ...errors import ModelError
from ...relay.expr import Call, Expr, call
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


ELEMENTWISE: dict[str, Importer] = {
    **{name: _named(op) for name, op in _NAMES.items()},
    "GELU": _gelu,
    "SELECT": _select,
    "SQUARE": _square,
    "SQUARED_DIFFERENCE": _squared_difference,
}
