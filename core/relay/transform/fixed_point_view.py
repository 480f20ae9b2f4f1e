"""A graph in which an accelerator's own fixed points stand for rounding in floats: what it is offered with consent.

Three things change: a ``qnn.requantize`` by float scales is one by fixed points; an addition between
``qnn.dequantize`` and ``qnn.quantize`` is a ``qnn.add``; an average pool that rounds half to even rounds half away from
zero. Of each is known how far off it is at most, over all that it may be given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ...support.rounding import FixedPointForm
from ...tir.form.dtype import bounds
from ..evaluate import evaluate
from ..expr import Call, Expr, Function, Var, call
from ..fixed_point import fixed_point
from ..fixed_point_approximation import largest_deviation, nearest
from ..op import Bounds, FixedPoint, FloatScale
from ..qdq.quantised_type import QuantisedType, dequantised, quantised_type
from ..types import TensorType
from ..visit import children, with_children
from .value_range import value_range

__all__ = ["Addition", "Change", "InFixedPoints", "additions", "in_fixed_points", "rounds_in_floats"]

_DTYPES = ("int8", "uint8", "int16")
"""Of results that are requantised."""

_BYTES = ("int8", "uint8")
"""Of tensors that are added: there are few enough of their pairs to try all."""

_HEADROOM = 20
"""The ``left_shift`` of TFLite's sums of int8."""

_POOLS = ("qnn.avg_pool1d", "qnn.avg_pool2d")

Users = Callable[[Expr], list[Expr]]


@dataclass(frozen=True)
class Change:
    """What became of an op.

    Args:
        what: ``requantisation``, ``addition`` or ``average``.
        rounding: how it rounds now.
        bound: how many steps its result may be off from what it was, for the same operands.
    """

    what: str
    rounding: str
    bound: int


@dataclass(frozen=True)
class Addition:
    """An addition of two quantised tensors in floats.

    Args:
        result: the ``qnn.quantize``.
        add: the sum of two floats.
        operands: both as integers, and their types.
        between: what limits the sum before it is quantised, first op first.
        covered: all that it is, operands' ``qnn.dequantize`` first, ``result`` last.
    """

    result: Call
    add: Call
    operands: tuple[tuple[Expr, QuantisedType], tuple[Expr, QuantisedType]]
    between: tuple[Call, ...]
    covered: tuple[Expr, ...]

    @property
    def named(self) -> tuple[Expr, ...]:
        """Those of the covered whose layers it is."""
        return (self.add, *self.between, self.result)


@dataclass(frozen=True)
class InFixedPoints:
    """A graph with fixed points in it, beside the one that it was made of.

    Args:
        result: what it computes.
        replacements: for each expression of the one before that still has its like here, that.
        value: the other way around.
        stands: for each expression here those that it stands for.
        changes: the expressions here that are not what they were.
    """

    result: Expr
    replacements: Mapping[Expr, Expr]
    value: Mapping[Expr, Expr]
    stands: Mapping[Expr, tuple[Expr, ...]]
    changes: Mapping[Expr, Change]


def additions(order: Iterable[Expr], users: Users) -> Iterator[Addition]:
    """The additions in floats that a ``qnn.add`` may stand for: of two tensors of one type of 8 bits and one shape,
    whose floats nobody else uses.

    Args:
        order: the expressions of a graph.
        users: gives who uses one.
    """
    for expr in order:
        addition = _addition(expr, users)
        if addition is not None:
            yield addition


def _addition(expr: Expr, users: Users) -> Addition | None:
    if not isinstance(expr, Call) or expr.op_name != "qnn.quantize" or expr.dtype not in _BYTES:
        return None
    if expr.attrs.rounding != "even" or quantised_type(expr) is None:
        return None
    between: list[Call] = []
    inner = expr.args[0]
    while isinstance(inner, Call) and inner.op_name in ("nn.relu", "clip"):
        between.insert(0, inner)
        inner = inner.args[0]
    if not isinstance(inner, Call) or inner.op_name != "add":
        return None
    pairs = [dequantised(arg) for arg in inner.args]
    operands = [one for one in pairs if one is not None and one[1].dtype == expr.dtype and one[0].shape == expr.shape]
    if len(operands) < 2:
        return None
    covered = dict.fromkeys((*inner.args, inner, *between, expr))
    if any(user not in covered for one in covered if one is not expr for user in users(one)):
        return None
    if len({one.pin for one in covered if isinstance(one, Call)}) > 1:
        return None
    return Addition(expr, inner, (operands[0], operands[1]), tuple(between), tuple(covered))


def rounds_in_floats(expr: Expr) -> bool:
    """Whether ``expr`` is a requantisation by float scales, or an average that rounds half to even."""
    if not isinstance(expr, Call):
        return False
    if expr.op_name in _POOLS:
        return bool(expr.attrs.rounding == "even" and not (expr.attrs.count_include_pad and any(expr.attrs.padding)))
    is_scaled = expr.op_name == "qnn.requantize" and expr.attrs.form is None and expr.dtype in _DTYPES
    return is_scaled and isinstance(expr.attrs.scale, FloatScale)


def in_fixed_points(
    order: Iterable[Expr],
    users: Users,
    form: FixedPointForm,
    may: Callable[[tuple[Expr, ...]], bool],
    ranges: dict[Expr, Bounds],
) -> InFixedPoints:
    """The graph of ``order`` as an accelerator is offered it.

    Args:
        order: its expressions, the result last.
        users: gives who uses one of them.
        form: the accelerator's.
        may: whether what these ops compute may be rounded otherwise.
        ranges: bounds of integer expressions, as `value_range` keeps them.
    """
    return _Making(tuple(order), users, form, may, ranges).run()


class _Making:
    def __init__(
        self,
        order: tuple[Expr, ...],
        users: Users,
        form: FixedPointForm,
        may: Callable[[tuple[Expr, ...]], bool],
        ranges: dict[Expr, Bounds],
    ) -> None:
        self._order, self._form, self._ranges = order, form, ranges
        self._changed: dict[Expr, tuple[Call, Change]] = {}
        for expr in order:
            if rounds_in_floats(expr) and may((expr,)):
                assert isinstance(expr, Call)
                changed = self._average(expr) if expr.op_name in _POOLS else self._requantised(expr)
                if changed is not None:
                    self._changed[expr] = changed
        self._sums: dict[Expr, tuple[Addition, Call, Change]] = {}
        for one in additions(order, users) if form.additions else ():
            if may(one.named) and (added := _added(one)) is not None:
                self._sums[one.result] = one, *added

    def run(self) -> InFixedPoints:
        """The graph, in which no two of what there was are one."""
        while True:
            view = self._rebuild()
            if isinstance(view, InFixedPoints):
                return view
            # What a narrow multiplier makes alike stays apart: one of the two is left as it is.
            self._changed.pop(view, None)
            self._sums.pop(view, None)

    def _rebuild(self) -> InFixedPoints | Expr:
        """The graph; or a change that makes something like something else."""
        replacements: dict[Expr, Expr] = {}
        value: dict[Expr, Expr] = {}
        stands: dict[Expr, tuple[Expr, ...]] = {}
        changes: dict[Expr, Change] = {}
        changed: dict[Expr, Expr] = {}  # what became of a change, and of what
        inside = {expr for one, _, _ in self._sums.values() for expr in one.covered[:-1]}
        for expr in self._order:
            if expr in inside:
                continue
            if expr in self._sums:
                one, addition, change = self._sums[expr]
                steps = _steps(one, addition, replacements)
                for new, covered in steps:
                    if new in stands:
                        return changed.get(new, expr)
                    stands[new] = covered
                new = steps[-1][0]
                changes[steps[0][0]] = change
                changed.update((step, expr) for step, _ in steps)
            else:
                become = self._changed.get(expr)
                shape: Expr = expr if become is None else become[0]
                new = with_children(shape, [replacements[child] for child in children(expr)])
                if new in stands:
                    return expr if become is not None else changed[new]
                stands[new] = (expr,)
                if become is not None:
                    changes[new] = become[1]
                    changed[new] = expr
            replacements[expr] = new
            value[new] = expr
        return InFixedPoints(replacements[self._order[-1]], replacements, value, stands, changes)

    def _requantised(self, expr: Call) -> tuple[Call, Change] | None:
        attrs = expr.attrs
        fixed_point = nearest(self._form, attrs.scale)
        if fixed_point is None:
            return None
        low, high = value_range(expr.args[0], self._ranges)
        accumulators = Bounds(low - attrs.input_zero_point, high - attrs.input_zero_point)
        bound = largest_deviation(attrs.scale, fixed_point, accumulators, attrs.output_zero_point, expr.dtype)
        if bound is None:
            return None
        now = call("qnn.requantize", expr.args[0], **{**dict(attrs.items), "scale": fixed_point}).pinned(expr.pin)
        return now, Change("requantisation", fixed_point.rounding, bound)

    def _average(self, expr: Call) -> tuple[Call, Change] | None:
        if not self._form.averages:
            return None
        attrs = {**dict(expr.attrs.items), "rounding": "away", "zero_point": 0, "count_include_pad": False}
        now = call(expr.op_name or "", expr.args[0], **attrs).pinned(expr.pin)
        # Both are the nearest integer. Means that lie between two there are of even numbers of elements only.
        halves = any(expr.attrs.padding) or math.prod(expr.attrs.pool_size) % 2 == 0
        return now, Change("average", "away", int(halves))


def _steps(one: Addition, addition: Call, replacements: Mapping[Expr, Expr]) -> list[tuple[Expr, tuple[Expr, ...]]]:
    """What an addition becomes, op by op, and what each stands for."""
    qtype = quantised_type(one.result)
    assert qtype is not None
    new: Expr = with_children(addition, [replacements[data] for data, _ in one.operands])
    steps: list[tuple[Expr, tuple[Expr, ...]]] = [(new, one.covered[: -1 - len(one.between)])]
    for op in one.between:
        limited = _limited(new, op, qtype)
        if limited is new:  # every integer of that type is within the limits
            steps[-1] = new, (*steps[-1][1], op)
        else:
            assert isinstance(limited, Call)
            new = limited.pinned(one.result.pin)
            steps.append((new, (op,)))
    steps[-1] = new, (*steps[-1][1], one.result)
    return steps


def _limited(data: Expr, op: Call, qtype: QuantisedType) -> Expr:
    low, high = (0.0, math.inf) if op.op_name == "nn.relu" else (op.attrs.a_min, op.attrs.a_max)
    return qtype.clip(data, low, high)


def _added(one: Addition) -> tuple[Call, Change] | None:
    """The ``qnn.add`` that an addition becomes, with TFLite's numbers; None where it has none.

    How far it is off is found by trying all pairs of numbers.
    """
    output = quantised_type(one.result)
    assert output is not None
    (lhs, left), (rhs, right) = one.operands
    common = 2 * max(left.scale, right.scale)
    factors = [left.scale / common, right.scale / common, common / (2**_HEADROOM * output.scale)]
    if not 0 < factors[2] < 1:
        return None
    names = ("lhs_scale", "rhs_scale", "output_scale")
    scales: dict[str, FixedPoint] = {
        name: fixed_point([factor], "double") for name, factor in zip(names, factors, strict=True)
    }
    points = {
        "lhs_zero_point": left.zero_point,
        "rhs_zero_point": right.zero_point,
        "output_zero_point": output.zero_point,
    }
    now = call("qnn.add", lhs, rhs, left_shift=_HEADROOM, **scales, **points).pinned(one.result.pin)
    return now, Change("addition", "double", _addition_bound(one, now, output))


def _addition_bound(one: Addition, now: Call, output: QuantisedType) -> int:
    import numpy as np

    low, high = bounds(output.dtype)
    numbers = np.arange(low, high + 1).astype(output.dtype)
    a, b = (Var(name, TensorType(shape, output.dtype)) for name, shape in (("a", (256, 1)), ("b", (1, 256))))
    floats = [
        call("qnn.dequantize", data, scale=qtype.scale, zero_point=qtype.zero_point)
        for data, (_, qtype) in zip((a, b), one.operands, strict=True)
    ]
    before: Expr = call("add", *floats)
    after: Expr = Call(now.op, (a, b), now.attrs)
    for op in one.between:
        before, after = with_children(op, [before]), _limited(after, op, output)
    attrs = {"scale": output.scale, "zero_point": output.zero_point, "rounding": "even", "dtype": output.dtype}
    before = call("qnn.quantize", before, **attrs)
    arguments = {"a": numbers.reshape(a.shape), "b": numbers.reshape(b.shape)}
    sides = [evaluate(Function([a, b], side), arguments)[0].astype(np.int64) for side in (before, after)]
    return int(np.abs(sides[0] - sides[1]).max())
