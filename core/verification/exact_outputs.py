"""The exact outputs of a quantised model: to say which of two runtimes is right where they differ by a step.

The floats between DequantizeLinear and QuantizeLinear are evaluated in float64, as the file has them: integers of 16
bits times float32 scales are exact there, and sums and products of these are exact to 2**-50 or so. What is quantised
is rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..relay.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var
from ..relay.module import IRModule
from ..relay.op import Op
from ..relay.visit import post_order
from ..tir.form.dtype import bounds

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ExactCheck", "ExactOutput", "compare_exactly", "exact_outputs"]

_TIE = 2.0**-40
"""What is so near to a half, relative to its size, is a half: float64 is less exact than that after a few thousand
operations, and scales that are not ties differ by more."""


@dataclass(frozen=True, eq=False)
class ExactOutput:
    """One output.

    Args:
        value: exact, in float64; of an integer output after rounding.
        steps: what was rounded, in steps of the quantisation that the output comes from, zero point included: float64
            of the same shape; None where it comes from none.
    """

    value: np.ndarray
    steps: np.ndarray | None


@dataclass(frozen=True)
class ExactCheck:
    """Which of two results is exact where they differ.

    Args:
        differing, size: how many elements differ, and how many there are.
        index: of the first one.
        steps: its exact value before rounding, in steps; the exact value itself where nothing is rounded.
        rounded: its exact value.
        ours_off, theirs_off: how many of those that differ are not exact here, and there.
        is_float: whether the output is floats, so that ``rounded`` is not in steps.
    """

    differing: int
    size: int
    index: tuple[int, ...]
    steps: float
    rounded: float
    ours_off: int
    theirs_off: int
    is_float: bool = False

    json_fields: ClassVar = (
        "index",
        "value=steps",
        "rounded",
        "differing",
        "uma_off=ours_off",
        "other_off=theirs_off",
    )

    def describe(self, other: str) -> str:
        """Return in words who is right, where ``other`` is the other runtime."""
        tie = ", a tie" if abs(self.steps % 1.0 - 0.5) < _TIE else ""
        becomes = f"{tie}, which becomes {self.rounded:.10g}" if self.steps != self.rounded else ""
        unit = " steps" if self.is_float and becomes else ""
        count = self.differing
        each = f" in all {count}" if count > 1 else ""
        if not self.ours_off:
            verdict = f"UMA's value is exact{each}, {other}'s is off"
        elif not self.theirs_off:
            verdict = f"{other}'s value is exact{each}, UMA's is off"
        else:
            right = [count - off for off in (self.ours_off, self.theirs_off)]
            verdict = f"of {count}, UMA's value is exact in {right[0]}, {other}'s in {right[1]}"
        return f"the exact value at {list(self.index)} is {self.steps:.10g}{unit}{becomes}: {verdict}"


def compare_exactly(got: np.ndarray, theirs: np.ndarray, exact: ExactOutput, tolerance: float) -> ExactCheck | None:
    """Return who is exact where two results differ; None where they do not, or it cannot be said.

    Args:
        got, theirs: what this compiler and the other runtime give, of one type.
        exact: the exact output.
        tolerance: how far floats may be off.
    """
    import numpy as np

    value = exact.value.reshape(got.shape)
    wide, other = got.astype(np.float64), theirs.reshape(got.shape).astype(np.float64)
    allowed = tolerance if got.dtype.kind == "f" else 0.0
    places = np.argwhere(np.abs(wide - other) > allowed)
    if not len(places):
        return None
    at = tuple(places.T)
    index = tuple(int(position) for position in places[0])
    steps = value if exact.steps is None else exact.steps.reshape(got.shape)
    ours_off, theirs_off = (int((np.abs(side[at] - value[at]) > allowed).sum()) for side in (wide, other))
    is_float = got.dtype.kind == "f"
    values = float(steps[index]), float(value[index])
    return ExactCheck(len(places), got.size, index, *values, ours_off, theirs_off, is_float)


def exact_outputs(literal: IRModule, inputs: Mapping[str, np.ndarray]) -> list[ExactOutput] | None:
    """Return the exact results of a model.

    Args:
        literal: the model with the floats of its file: nothing between quantisations has become integers.
        inputs: by the names of its parameters.

    Returns:
        For each result; None where the model has control flow, calls functions, or has dynamic dimensions.
    """
    order = post_order(literal.main.body)
    values: dict[Expr, Any] = {}
    steps: dict[Expr, Any] = {}
    for expr in order:
        if isinstance(expr, Var):
            values[expr] = _wide(inputs[expr.name])
        elif isinstance(expr, Constant):
            values[expr] = _wide(expr.data)
        elif isinstance(expr, Tuple):
            values[expr] = tuple(values[field] for field in expr.fields)
        elif isinstance(expr, TupleGetItem):
            values[expr] = values[expr.tuple][expr.index]
        elif not isinstance(expr, Call) or not isinstance(expr.op, Op) or expr.op_name == "take_first":
            return None
        else:
            values[expr] = _evaluated(expr, values, steps)
    body = literal.main.body
    fields = body.fields if isinstance(body, Tuple) else (body,)
    return [ExactOutput(values[field], steps.get(field)) for field in fields]


def _wide(array: np.ndarray) -> np.ndarray:
    import numpy as np

    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _evaluated(expr: Call, values: Mapping[Expr, Any], steps: dict[Expr, Any]) -> Any:
    """The value of a call of an op; what was rounded last goes to ``steps`` where that is known."""
    import numpy as np

    assert isinstance(expr.op, Op)
    attrs, arrays = expr.attrs, [values[arg] for arg in expr.args]
    name = expr.op_name
    if name in ("qnn.quantize", "qnn.dequantize"):
        shape = [1] * arrays[0].ndim
        if len(attrs.scale) > 1 or len(attrs.zero_point) > 1:
            shape[attrs.axis] = -1
        scale = np.asarray(attrs.scale, np.float32).astype(np.float64).reshape(shape if arrays[0].ndim else ())
        zero_point = np.asarray(attrs.zero_point, np.float64).reshape(shape if arrays[0].ndim else ())
        if name == "qnn.dequantize":
            if expr.args[0] in steps:
                steps[expr] = steps[expr.args[0]]
            return (arrays[0].astype(np.float64) - zero_point) * scale
        with np.errstate(invalid="ignore", over="ignore"):
            real = arrays[0] / scale
        half = np.rint(2.0 * real) / 2.0
        real = np.where(np.abs(real - half) <= _TIE * np.maximum(np.abs(half), 1.0), half, real)
        away = np.copysign(np.floor(np.abs(real) + 0.5), real)
        whole = away if attrs.rounding == "away" else np.rint(real)
        steps[expr] = real + zero_point
        low, high = bounds(attrs.dtype)
        return np.clip(np.nan_to_num(whole, nan=-np.inf) + zero_point, low, high).astype(attrs.dtype)
    if name == "cast" and np.dtype(attrs.dtype).kind == "f":
        return arrays[0].astype(np.float64)
    result = expr.op.evaluate(attrs, *arrays)
    if expr.op.kind == "injective" and len(expr.args) == 1 and expr.args[0] in steps and not isinstance(result, tuple):
        steps[expr] = expr.op.evaluate(attrs, steps[expr.args[0]])
    return result
