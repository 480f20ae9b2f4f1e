"""uint8 becomes int8: 128 less, values and zero points alike, so that nothing else changes.

Two calls that differ in nothing but that are one call then, for patterns and for kernels. What says how numbers are
stored, the model's inputs, outputs and states, keeps its type, and is converted where it meets what computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..expr import Call, Constant, Expr, Tuple, TupleGetItem, call, const
from ..module import IRModule, Spans
from ..op import FixedPoint, Op
from ..rewriter import Rewriter
from ..types import TensorType, TupleType
from ..visit import children, post_order, with_children

__all__ = ["to_signed"]

OFFSET = 128
"""What an int8 is less than the uint8 that it stands for."""

ONE = FixedPoint((1 << 30,), (1,), "up")

_RESULT = -1
"""In the place of an argument's position."""

_PADDED = {"input_zero_point": 0, "kernel_zero_point": 1}
_ONE = {"input_zero_point": 0, "output_zero_point": _RESULT}
_BOTH = {"lhs_zero_point": 0, "rhs_zero_point": 1, "output_zero_point": _RESULT}

_COMPUTING: Mapping[str, Mapping[str, int]] = {
    "qnn.conv1d": _PADDED,
    "qnn.conv2d": _PADDED,
    "qnn.dense": _PADDED,
    "qnn.matmul": _PADDED,
    "qnn.requantize": _ONE,
    "qnn.add": _BOTH,
    "qnn.subtract": _BOTH,
    "qnn.multiply": _BOTH,
    "qnn.sum": {"input_zero_point": 0},
    "qnn.avg_pool1d": {"zero_point": 0},
    "qnn.avg_pool2d": {"zero_point": 0},
    "qnn.sigmoid": _ONE,
    "qnn.tanh": _ONE,
    "qnn.hard_swish": _ONE,
    "qnn.leaky_relu": _ONE,
    "qnn.abs": _ONE,
    "qnn.softmax": {},
}
"""Ops that compute with what the integers stand for, and for each of their attributes that moves with a tensor the
position of that tensor. All that they take and give as uint8 becomes int8."""

_JUST_MOVING = (
    "reshape",
    "squeeze",
    "transpose",
    "layout_transform",
    "strided_slice",
    "concatenate",
    "split",
    "minimum",
    "maximum",
    "nn.relu",
    "nn.max_pool1d",
    "nn.max_pool2d",
    "nn.global_max_pool",
    "nn.resize_nearest",
    "broadcast_to",
    "take",
    "where",
)

_MOVING: Mapping[str, Mapping[str, int]] = {
    **{name: {} for name in _JUST_MOVING},
    "clip": {"a_min": _RESULT, "a_max": _RESULT},
    "nn.pad": {"pad_value": _RESULT},
    "qnn.quantize": {"zero_point": _RESULT},
}
"""Ops that move and compare elements, or make them of floats. A net of these becomes int8 where something that does
computes with what it gives or gives what it takes; else it stays as it is."""


def to_signed(module: IRModule) -> IRModule:
    """``module`` with int8 in ``main`` where quantised numbers were uint8. Doing it twice changes nothing more.

    Parameters and results of ``main`` keep their types, states among them; so does what casts, wraps around or calls
    functions. Where both kinds meet stands a ``qnn.requantize`` by 1.
    """
    order = post_order(module.main.body)
    if not any(_is_unsigned(expr) for expr in order):
        return module
    rewriter = Rewriter(module)
    return rewriter.with_main(_Signed(order, rewriter.spans).run())


def _is_unsigned(expr: Expr) -> bool:
    """Whether ``expr`` is a uint8, or a tuple with one."""
    type_ = expr.type
    fields: Sequence[object] = type_.fields if isinstance(type_, TupleType) else (type_,)
    return any(isinstance(field, TensorType) and field.dtype == "uint8" for field in fields)


def _is_moving(expr: Expr) -> bool:
    """Whether ``expr`` is of the ops of `_MOVING`, on uint8."""
    if not _is_unsigned(expr):
        return False
    if isinstance(expr, TupleGetItem):
        return isinstance(expr.tuple, Call) and expr.tuple.op_name == "split"
    return isinstance(expr, Call) and expr.op_name in _MOVING


def _is_computing(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.op_name in _COMPUTING


def _converted(order: Sequence[Expr]) -> set[Expr]:
    """The calls of `_MOVING` that become int8: all that are joined, through others, to what computes."""
    joined: dict[Expr, list[Expr]] = {}
    reached: list[Expr] = []
    for expr in order:
        for child in children(expr):
            if not _is_unsigned(child):
                continue
            if _is_moving(expr) and _is_moving(child):
                joined.setdefault(expr, []).append(child)
                joined.setdefault(child, []).append(expr)
            elif _is_moving(expr) and _is_computing(child):
                reached.append(expr)
            elif _is_computing(expr) and _is_moving(child):
                reached.append(child)
    exprs: set[Expr] = set()
    while reached:
        expr = reached.pop()
        if expr not in exprs:
            exprs.add(expr)
            reached += joined.get(expr, ())
    return exprs


class _Signed:
    """Builds the graph anew, from the inputs on.

    Args:
        order: its expressions, arguments first.
        spans: of the graph; what is new is added.
    """

    def __init__(self, order: Sequence[Expr], spans: Spans) -> None:
        self._order = order
        self._spans = spans
        self._converted = _converted(order)
        self._signed: dict[Expr, Expr] = {}
        """What stands for an expression as int8, where it was made so."""
        self._plain: dict[Expr, Expr] = {}
        """Every expression, rebuilt, of its own type; where it is needed."""

    def run(self) -> Expr:
        for expr in self._order:
            signed = self._compute(expr) if _is_computing(expr) or expr in self._converted else self._read(expr)
            if signed is None:
                signed = with_children(expr, [self._as_is(child) for child in children(expr)])
            if signed is not expr:
                self._spans.record_rewrite(expr, signed)
            if _is_unsigned(expr) and not _is_unsigned(signed):
                self._signed[expr] = signed
            else:
                self._plain[expr] = signed
        return self._as_is(self._order[-1])

    def _as_is(self, expr: Expr) -> Expr:
        """``expr``, rebuilt, of its own type."""
        if expr not in self._plain:
            signed = self._signed[expr]
            if isinstance(expr.type, TupleType):
                self._plain[expr] = Tuple(
                    [self._unsigned(TupleGetItem(signed, i), expr) for i in range(len(expr.type.fields))]
                )
            else:
                self._plain[expr] = self._unsigned(signed, expr)
        return self._plain[expr]

    def _unsigned(self, signed: Expr, layer: Expr) -> Expr:
        return self._handed(_requantised(signed, 0, OFFSET, "uint8"), layer)

    def _as_int8(self, expr: Expr, user: Expr) -> Expr:
        """``expr`` as int8 where it is a uint8, for ``user``; else as it is."""
        if not _is_unsigned(expr):
            return self._as_is(expr)
        if isinstance(expr, Constant):
            return const((expr.data.astype("int16") - OFFSET).astype("int8"))
        if expr not in self._signed:
            self._signed[expr] = _requantised(self._as_is(expr), OFFSET, 0, "int8")
        signed = self._signed[expr]
        return signed if expr in self._converted or _is_computing(expr) else self._handed(signed, user)

    def _handed(self, new: Expr, layer: Expr) -> Expr:
        self._spans.record_rewrite(layer.tuple if isinstance(layer, TupleGetItem) else layer, new)
        return new

    def _compute(self, expr: Expr) -> Expr:
        """``expr`` with int8 wherever it has uint8."""
        args = [self._as_int8(child, expr) for child in children(expr)]
        if isinstance(expr, TupleGetItem):
            return TupleGetItem(args[0], expr.index)
        assert isinstance(expr, Call) and isinstance(expr.op, Op)
        name = expr.op.name
        if name == "nn.relu" and _is_unsigned(expr):
            return args[0]
        moves = {**_COMPUTING, **_MOVING}[name]
        attrs = {attr: _less(expr.attrs[attr]) for attr, at in moves.items() if _is_unsigned(_at(expr, at))}
        if _is_unsigned(expr) and "dtype" in dict(expr.attrs.items):
            attrs["dtype"] = "int8"
        changed = expr.attrs.replace(**attrs)
        signed = Call(expr.op, args, changed, expr.pin)
        return args[0] if attrs and _does_nothing(signed) else signed

    def _read(self, expr: Expr) -> Expr | None:
        """What takes a uint8 but gives none, from the int8 where there is one; None for all else."""
        if not isinstance(expr, Call):
            return None
        if expr.op_name in ("add", "subtract"):
            return self._with_constant(expr)
        source = expr.args[0]
        if not _is_unsigned(source) or not self._is_computed(source):
            return None
        data = self._as_int8(source, expr)
        if expr.op_name == "qnn.dequantize":
            attrs = expr.attrs.replace(zero_point=_less(expr.attrs.zero_point))
            return call("qnn.dequantize", data, **attrs).pinned(expr.pin)
        if expr.op_name == "cast" and expr.dtype in _WIDE:
            wide = call("cast", data, dtype=expr.dtype).pinned(expr.pin)
            return self._add(wide, OFFSET, expr)
        return None

    def _is_computed(self, expr: Expr) -> bool:
        return _is_computing(expr) or expr in self._converted

    def _with_constant(self, expr: Call) -> Expr | None:
        """A number added to a uint8 that was made wider, or subtracted from it: with what the int8 is less."""
        data, number = expr.args
        source = data.args[0] if isinstance(data, Call) and data.op_name == "cast" else data
        if data.type is not expr.type or data.dtype not in _WIDE or not isinstance(number, Constant):
            return None
        if not _is_unsigned(source) or not self._is_computed(source) or not (number.data == number.data.flat[0]).all():
            return None
        assert isinstance(data, Call)
        wide = call("cast", self._as_int8(source, expr), dtype=data.dtype).pinned(data.pin)
        value = int(number.data.flat[0])
        if expr.op_name == "subtract":
            return self._add(self._handed(wide, data), -(value - OFFSET), expr, "subtract")
        return self._add(self._handed(wide, data), value + OFFSET, expr)

    def _add(self, wide: Expr, value: int, layer: Call, name: str = "add") -> Expr:
        """``wide`` plus ``value``, by a call of ``name``."""
        import numpy as np

        if not value:
            return wide
        stored = np.int64(value if name == "add" else -value).astype(wide.dtype)
        return call(name, self._handed(wide, layer), const(stored)).pinned(layer.pin)


_WIDE = ("int16", "int32", "int64")


def _at(expr: Call, position: int) -> Expr:
    return expr if position == _RESULT else expr.args[position]


def _less(value: Any) -> Any:
    """A number, or several, in the scale of int8."""
    if isinstance(value, tuple):
        return tuple(number - OFFSET for number in value)
    return value if math.isinf(value) else value - OFFSET


def _does_nothing(expr: Call) -> bool:
    """Whether ``expr`` is a requantisation by 1 that changes no number."""
    if expr.op_name != "qnn.requantize" or expr.type is not expr.args[0].type:
        return False
    attrs = expr.attrs
    return bool(attrs.input_zero_point == attrs.output_zero_point and attrs.scale.is_one)


def _requantised(data: Expr, input_zero_point: int, output_zero_point: int, dtype: str) -> Expr:
    """``data`` with another zero point; itself where nothing changes."""
    if data.dtype == dtype and input_zero_point == output_zero_point:
        return data
    zero_points = {"input_zero_point": input_zero_point, "output_zero_point": output_zero_point}
    return call("qnn.requantize", data, scale=ONE, **zero_points, dtype=dtype)
