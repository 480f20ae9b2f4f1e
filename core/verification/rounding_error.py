"""How far floats may be from their references: a bound on the growth of rounding errors.

Each rounded operation is off by at most the unit roundoff u of its type, relative to its result. Rounding errors are
treated as independent and with mean zero. Then a result behind n such operations is off by more than
``CONFIDENCE * sqrt(n) * u`` with a probability of at most ``2 * exp(-CONFIDENCE**2 / 2)``: N. J. Higham and T. Mary, "A
New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41 (2019), theorem 2.4. n is the longest
chain of operations from what is known exactly (an input, a constant, an integer tensor) to the result; so it grows with
the number of layers and with the number of terms of their sums.

The theorem's error is relative to the sum of the absolute terms; the range of the tensor over the samples is used in
its place. Where terms cancel or a function is steep, that is too little. `sampled_error` measures how the model at hand
amplifies rounding: it evaluates the references with every operand off by as much as the op's own rounding (Monte Carlo
arithmetic: D. S. Parker, "Monte Carlo Arithmetic", UCLA CSD-970002, 1997).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..relay.evaluate import evaluate
from ..relay.expr import Call, Expr, Function, GlobalVar, If, Loop, Tuple, TupleGetItem, macs_of, tensors_of
from ..relay.module import IRModule
from ..relay.op import Attrs, Op
from ..relay.types import TensorType, TupleType
from ..relay.visit import children, post_order
from ..tir import te
from ..tir.form import exprs
from ..tir.form.dtype import is_float
from ..tir.form.functions import FUNCTIONS
from ..tir.form.visit import operands
from ..tir.te.stage_planning import nests
from ..tir.te.tensors import Reduce, Reshape, Tensor
from .results import Bound

if TYPE_CHECKING:
    import numpy as np

__all__ = ["CONFIDENCE", "FORMULA", "relative_bounds", "rounding_bounds", "sampled_error", "underflow", "unit_roundoff"]

CONFIDENCE = 8.0
"""How many standard deviations an error may be large. An error of correct arithmetic is larger with a probability of
2.5e-14: of 1e10 compared elements, none is expected to be."""

FORMULA = "8 * sqrt(n) * u * range + 8 * sampled error"
"""The tolerance of a float, for people: n rounded operations in sequence, u the unit roundoff of the type, and the
largest absolute value over the samples as range. The second part, and `underflow`, are added only where the first is
exceeded."""

_DRAWS = 3
"""How often the sampled error is drawn. The largest counts: one of them may happen to be small."""

_ROUNDED = ("add", "sub", "mul", "div")
_UNIT_ROUNDOFF = {"float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
_UNDERFLOW = {"float16": 2.0**-24, "float32": 2.0**-126, "float64": 2.0**-1022}


def unit_roundoff(dtype: str) -> float:
    """Return the largest relative error of one rounding to nearest in ``dtype``; 0 for what is not a float."""
    return _UNIT_ROUNDOFF.get(dtype, 0.0)


def underflow(dtype: str) -> float:
    """Return how far a result may be off, absolutely, because it is tiny; 0 for what is not a float.

    That is the smallest normal number: a function may give 0 for less. A float16 is computed as a float32, and then
    rounded: it may be off by its smallest positive number.
    """
    return _UNDERFLOW.get(dtype, 0.0)


def relative_bounds(model: IRModule | Function) -> tuple[float, ...]:
    """Return for each result of a model, or of a function, how far it may be off, relative to its range.

    Args:
        model: a module, of which ``main`` is looked at, or a function that calls no global one.

    Returns:
        ``CONFIDENCE * sqrt(sum of u**2 of the longest chain of rounded operations)`` for floats, 0 for integers.
    """
    main, functions = (model.main, model.functions) if isinstance(model, IRModule) else (model, {})
    variances = _Variances(functions).results(main, [0.0] * len(main.params))
    return tuple(CONFIDENCE * math.sqrt(variance) for variance in variances)


def rounding_bounds(
    relative: Sequence[float],
    model: IRModule | Function,
    inputs: Mapping[str, np.ndarray],
    expected: Sequence[np.ndarray],
    extents: Mapping[str, int] = MappingProxyType({}),
) -> list[Bound]:
    """Return how far each result of a model, or of a function, may be off.

    Args:
        relative: its `relative_bounds`.
        model, inputs, expected, extents: as for `sampled_error`, which is only called where it decides.
    """
    sampled = functools.cache(lambda: sampled_error(model, inputs, expected, extents))

    def noise(number: int) -> float:
        return CONFIDENCE * sampled()[number] + underflow(expected[number].dtype.name)

    return [Bound(share, functools.partial(noise, number)) for number, share in enumerate(relative)]


class _Variances:
    """Adds up the squares of unit roundoffs along the longest chain of operations."""

    def __init__(self, functions: Mapping[GlobalVar, Any]) -> None:
        self._functions = functions
        self._calls: dict[Call, float] = {}

    def results(self, function: Function, params: Sequence[float]) -> list[float]:
        """That of each tensor that a function gives, from those of its parameters."""
        values: dict[Expr, list[float]] = {
            param: [value] * len(tensors_of(param.type)) for param, value in zip(function.params, params, strict=True)
        }
        for expr in post_order(function.body):
            if expr not in values:
                values[expr] = self._value(expr, [values[child] for child in children(expr)])
        return values[function.body]

    def _value(self, expr: Expr, operands: list[list[float]]) -> list[float]:
        if isinstance(expr, Tuple):
            return [value for field in operands for value in field]
        if isinstance(expr, TupleGetItem):
            return [operands[0][expr.index]]
        tensors = tensors_of(expr.type)
        if not isinstance(expr, Call):
            return [0.0] * len(tensors)
        before = max((value for field in operands for value in field), default=0.0)
        if isinstance(expr.op, Op):
            after = [before + self.of_call(expr)] * len(tensors)
        else:
            # (What a loop's further iterations add, the sampled error has.)
            callees = (expr.op.then, expr.op.otherwise) if isinstance(expr.op, If) else (expr.op,)
            bodies = [callee.body if isinstance(callee, Loop) else callee for callee in callees]
            functions = [self._functions[body] if isinstance(body, GlobalVar) else body for body in bodies]
            each = [self.results(one, [before] * len(one.params)) for one in functions if isinstance(one, Function)]
            after = [max(values) for values in zip(*each, strict=True)] if each else [before] * len(tensors)
        # An integer is exact, or it is wrong: what follows begins anew.
        return [value if is_float(tensor.dtype) else 0.0 for value, tensor in zip(after, tensors, strict=True)]

    def of_call(self, expr: Call) -> float:
        """The sum of the squares of the roundings of one call of an op."""
        if expr not in self._calls:
            self._calls[expr] = _variance(expr)
        return self._calls[expr]


def _variance(expr: Call) -> float:
    op = expr.op
    assert isinstance(op, Op)
    tensors = tensors_of(expr.type)
    if not any(is_float(tensor.dtype) for tensor in tensors):
        return 0.0
    args = [arg.type for arg in expr.args]
    if op.compute is None or not all(isinstance(arg, TensorType) for arg in args):
        # Of recurrent layers: all multiply-accumulates that the last state depends on.
        smallest = min(int(tensor.bound.size) for tensor in tensors)
        terms = macs_of(expr) // max(smallest, 1)
        return (terms + 1) * max(unit_roundoff(tensor.dtype) for tensor in tensors) ** 2
    inputs = [te.placeholder(arg.shape, arg.dtype, f"x{at}") for at, arg in enumerate(expr.args)]
    result = op.compute(expr.attrs, expr.type, *inputs)
    counted: dict[Tensor, float] = {}
    return max(_of_tensor(one, counted) for one in (result if isinstance(result, tuple) else (result,)))


def _of_tensor(tensor: Tensor, counted: dict[Tensor, float]) -> float:
    """The sum of the squares of the roundings on the longest chain to a tensor of a tensor expression."""
    if tensor in counted:
        return counted[tensor]
    counted[tensor] = 0.0
    if not is_float(tensor.dtype):
        return 0.0
    definition = tensor.definition
    if isinstance(definition, Reshape):
        counted[tensor] = _of_tensor(definition.base, counted)
        return counted[tensor]
    total = 0.0
    for nest in nests(definition):
        variance, below = _of_expressions(nest.exprs, counted)
        total = max(total, variance + below)
    if isinstance(definition, Reduce) and definition.reduction.op in ("add", "mul"):
        total += math.prod(axis.most for axis in definition.reduction.axes) * unit_roundoff(tensor.dtype) ** 2
    counted[tensor] = total
    return total


def _of_expressions(roots: Sequence[exprs.Expr], counted: dict[Tensor, float]) -> tuple[float, float]:
    """The roundings of expressions, and the largest of what they read."""
    variance = below = 0.0
    seen, stack = set(roots), list(roots)
    while stack:
        node = stack.pop()
        if isinstance(node, exprs.Load):
            below = max(below, _of_tensor(node.buffer, counted) if isinstance(node.buffer, Tensor) else 0.0)
            continue  # indices are exact
        unit = unit_roundoff(node.dtype) ** 2
        if isinstance(node, exprs.Bin) and node.op in _ROUNDED:
            variance += unit
        elif isinstance(node, exprs.Call):
            variance += FUNCTIONS[node.name].cost * unit
        elif isinstance(node, exprs.Cast):
            variance += unit
        fresh = [part for part in operands(node) if part not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return variance, below


def sampled_error(
    model: IRModule | Function,
    inputs: Mapping[str, np.ndarray],
    expected: Sequence[np.ndarray],
    extents: Mapping[str, int] = MappingProxyType({}),
) -> tuple[float, ...]:
    """Return how far the results of the references move at most when every operation rounds otherwise.

    Every float operand of each op is off, independently and relative to itself, with the standard deviation of the op's
    own roundings; so is the result of an op with `Op.terms`, relative to these. Integers stay what they are without
    that: they are compared exactly, and what follows one is compared with what follows the same.

    Args:
        model, inputs, extents: as for `evaluate`.
        expected: the results without that.
    """
    import numpy as np

    variances = _Variances(model.functions if isinstance(model, IRModule) else {})
    integers: list[Any] = []

    def record(call: Call, attrs: Attrs, arrays: Sequence[Any]) -> Any:
        assert isinstance(call.op, Op)
        result = call.op.evaluate(attrs, *arrays)
        fields = result if isinstance(result, tuple) else (result,)
        integers.append([None if field.dtype.kind == "f" else field for field in fields])
        return result

    largest = [0.0] * len(expected)
    evaluate(model, inputs, extents, apply=record)
    for draw in range(_DRAWS):
        rng, draws = np.random.default_rng(draw), iter(integers)

        def apply(
            call: Call,
            attrs: Attrs,
            arrays: Sequence[Any],
            rng: np.random.Generator = rng,
            fixed: Iterator[Any] = draws,
        ) -> Any:
            assert isinstance(call.op, Op)
            fields = next(fixed)
            if all(field is not None for field in fields):
                return tuple(fields) if isinstance(call.type, TupleType) else fields[0]
            # Uniform in -a .. a has the standard deviation a / sqrt(3).
            width = math.sqrt(3.0 * variances.of_call(call))
            off = [
                (array * (1.0 + width * rng.uniform(-1.0, 1.0, array.shape))).astype(array.dtype)
                if width and array.dtype.kind == "f"
                else array
                for array in arrays
            ]
            result = call.op.evaluate(attrs, *off)
            if not isinstance(result, tuple):
                if call.op.terms is None:
                    return result
                shift = width * rng.uniform(-1.0, 1.0, result.shape) * call.op.terms(attrs, *off)
                return (result + shift).astype(result.dtype)
            return tuple(new if old is None else old for old, new in zip(fields, result, strict=True))

        with np.errstate(all="ignore"):
            results = evaluate(model, inputs, extents, apply=apply)
            for number, (one, other) in enumerate(zip(results, expected, strict=True)):
                distance = np.abs(one.astype(np.float64) - other.astype(np.float64).reshape(one.shape))
                largest[number] = max(largest[number], float(distance[np.isfinite(distance)].max(initial=0.0)))
    return tuple(largest)
