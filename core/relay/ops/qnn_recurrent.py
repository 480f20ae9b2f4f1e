"""A long short-term memory of int8, whose gates and cell are int16: TFLite's integer LSTM (8x8_16)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir.form.dtype import bounds
from ...tir.form.nodes import (
    Alloc,
    Bind,
    Buffer,
    Expr,
    For,
    Param,
    PrimFunc,
    Stmt,
    Store,
    Update,
    Var,
    const,
    maximum,
    minimum,
    seq,
)
from ..fixed_point import scale_array
from ..op import STEP_OPERATIONS, Attr, Attrs, FixedPoint, Int, Scale, define_op
from ..types import TensorType, TupleType
from .common import require_integers
from .gemmlowp import ARRAYS, LOOPS, Numbers, product
from .gemmlowp16 import MOST_INTEGER_BITS, sigmoid16, tanh16
from .qnn import check_zero_point

if TYPE_CHECKING:
    import numpy as np

__all__: list[str] = []

_LOW, _HIGH = bounds("int16")

_GATE_BITS = 3
"""Integer bits of the gates before their activations."""


def _infer(
    attrs: Attrs, gates: TensorType, weight: TensorType, bias: TensorType, hidden: TensorType, cell: TensorType
) -> TupleType:
    """Gates (time, batch, 4 * units) are int16, the weight (units, 4 * units) int8, the bias (4 * units,) int32, the
    states (batch, units) int8 and int16. The results are the outputs of all steps, int8 (time, batch, units), and the
    last states.
    """
    if len(gates.shape) != 3 or gates.shape[2] % 4:
        raise ModelError(f"its gates have the shape {gates.shape}, not (time, batch, 4 * units)")
    time, batch, units = gates.shape[0], gates.shape[1], gates.shape[2] // 4
    wanted = (
        ("gates", gates, (time, batch, 4 * units), "int16"),
        ("weight", weight, (units, 4 * units), "int8"),
        ("bias", bias, (4 * units,), "int32"),
        ("hidden", hidden, (batch, units), "int8"),
        ("cell", cell, (batch, units), "int16"),
    )
    for name, type_, shape, dtype in wanted:
        require_integers(type_, allowed=(dtype,))
        if type_.shape != shape:
            raise ModelError(f"its {name} has the shape {type_.shape}, not {shape}")
    for name, count in (("scale", 4), ("hidden_scale", 1)):
        if (
            not isinstance(attrs[name], FixedPoint)
            or len(attrs[name]) not in {1, count}
            or attrs[name].rounding != "double"
        ):
            raise ModelError(f"{name} must be {count} fixed points of rounding 'double', not {attrs[name]}")
    check_zero_point(attrs.output_zero_point, "int8")
    if not -15 <= attrs.cell_exponent <= MOST_INTEGER_BITS - 15:
        raise ModelError(f"its cell has the scale 2**{attrs.cell_exponent}, not 2**-15 .. 2**{MOST_INTEGER_BITS - 15}")
    if attrs.cell_clip < 0 or attrs.cell_clip > _HIGH:
        raise ModelError(f"its cell_clip {attrs.cell_clip} is not a positive int16")
    return TupleType((TensorType((time, batch, units), "int8"), hidden, cell))


def _half_away(numbers: Numbers, value: Any, bits: int) -> Any:
    half, value = (1 << bits) >> 1, numbers.name(value)
    return numbers.where(value < 0, 0 - ((0 - value + half) >> bits), (value + half) >> bits)


def _new_cell(attrs: Attrs, numbers: Numbers, i: Any, f: Any, n: Any, cell: Any) -> Any:
    """From the gates behind their activations."""
    kept = _half_away(numbers, f * cell, 15)
    added = _half_away(numbers, i * n, 30 + attrs.cell_exponent)
    limit = attrs.cell_clip
    low, high = (-limit, limit) if limit else (_LOW, _HIGH)
    return numbers.most(numbers.least(numbers.most(numbers.least(kept + added, _HIGH), _LOW), high), low)


def _reference(attrs: Attrs, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    import numpy as np

    gates, weight, bias, hidden, cell = (array.astype(np.int64) for array in arrays)
    units = hidden.shape[1]
    scale = attrs.scale
    many = units if len(scale) == 4 else 1
    multipliers, shifts = (tuple(n for n in each for _ in range(many)) for each in (scale.multiplier, scale.shift))
    fixed = FixedPoint(multipliers, shifts, scale.rounding)
    outputs = []
    for inputs in gates:
        sums = (hidden @ weight + bias).astype(np.int32)
        total = np.clip(inputs + scale_array(sums, fixed, 1), _LOW, _HIGH)
        i, o, f, n = np.split(total, 4, axis=1)
        i, o, f = (sigmoid16(ARRAYS, gate, _GATE_BITS) for gate in (i, o, f))
        cell = _new_cell(attrs, ARRAYS, i, f, tanh16(ARRAYS, n, _GATE_BITS), cell)
        shown = tanh16(ARRAYS, cell, 15 + attrs.cell_exponent)
        scaled_hidden = scale_array(o * shown, attrs.hidden_scale, 0) + attrs.output_zero_point
        hidden = np.clip(scaled_hidden, *bounds("int8"))
        outputs.append(hidden)
    return np.stack(outputs).astype(np.int8), hidden.astype(np.int8), cell.astype(np.int16)


# --- loops -----------------------------------------------------------------------------------------------------------


class _Named:
    """What an element is computed of, each of it once.

    Args:
        place: a word, of variables that no others have.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._bindings: list[tuple[Var, Expr]] = []
        self.numbers = replace(LOOPS, name=self.name)

    def name(self, value: Any) -> Any:
        """A variable that stands for an expression."""
        if not isinstance(value, Expr):
            return value
        var = Var(f"{self._place}{len(self._bindings)}", value.dtype)
        self._bindings.append((var, value))
        return var

    def around(self, body: Stmt) -> Stmt:
        """``body``, which may use the variables."""
        for var, value in reversed(self._bindings):
            body = Bind(var, value, body)
        return body


def _scaled(numbers: Numbers, value: Expr, multiplier: int, shift: int) -> Expr:
    """An int32 as `FixedPoint` scales it, ``double``, as int64."""
    wide = (value << shift if shift > 0 else value).astype("int64")
    scaled_value: Expr = _half_away(numbers, product(wide, multiplier), max(-shift, 0))
    return scaled_value


def _loops(attrs: Attrs, out: TupleType, *types: TensorType) -> PrimFunc:
    names = ("gates", "weight", "bias", "hidden", "cell")
    gates, weight, bias, first_hidden, first_cell = (
        Buffer(name, type_.shape, type_.dtype) for name, type_ in zip(names, types, strict=True)
    )
    y, hidden, cell = (Buffer(f"y{i}", field.shape, field.dtype) for i, field in enumerate(out.fields))
    time, batch, units = y.shape
    sums = Buffer("sums", (4 * units,), "int32", "local", 64)
    total = Buffer("total", (4 * units,), "int32", "local", 64)
    t, b = Var("t"), Var("b")
    count = [0]

    def over(extent: int, body: Any) -> Stmt:
        count[0] += 1
        var = Var(f"i{count[0]}")
        return For(var, const(extent), body(var))

    def gate(number: int) -> Stmt:
        """The sums of a gate, scaled and saturated."""
        multiplier = attrs.scale.multiplier[number % len(attrs.scale)]
        shift = attrs.scale.shift[number % len(attrs.scale)]

        def one(j: Var) -> Stmt:
            named, at = _Named(f"gate{number}_"), j + number * units
            total_sum = _scaled(named.numbers, sums[at], multiplier, shift) + gates[t, b, at].astype("int64")
            total_sum = minimum(maximum(total_sum, _LOW), _HIGH).astype("int32")
            return named.around(Store(total, (at,), total_sum))

        return over(units, one)

    def new_cell(j: Var) -> Stmt:
        named = _Named("new_")
        numbers = named.numbers
        i, f = (sigmoid16(numbers, total[j + at * units], _GATE_BITS) for at in (0, 2))
        n = tanh16(numbers, total[j + 3 * units], _GATE_BITS)
        updated = _new_cell(attrs, numbers, named.name(i), named.name(f), named.name(n), cell[b, j].astype("int32"))
        return named.around(Store(cell, (b, j), updated.astype("int16")))

    def output(j: Var) -> Stmt:
        named = _Named("shown_")
        numbers = named.numbers
        o = named.name(sigmoid16(numbers, total[j + units], _GATE_BITS))
        shown = named.name(tanh16(numbers, cell[b, j].astype("int32"), 15 + attrs.cell_exponent))
        fixed = attrs.hidden_scale
        scaled_hidden = _scaled(numbers, o * shown, fixed.multiplier[0], fixed.shift[0]) + attrs.output_zero_point
        low, high = bounds("int8")
        return named.around(Store(hidden, (b, j), minimum(maximum(scaled_hidden, low), high).astype("int8")))

    begin = seq(
        over(units, lambda j: Store(hidden, (b, j), first_hidden[b, j])),
        over(units, lambda j: Store(cell, (b, j), first_cell[b, j])),
    )
    products = over(
        units,
        lambda k: over(
            4 * units,
            lambda j: Update("add", sums, (j,), weight[k, j].astype("int32") * hidden[b, k].astype("int32")),
        ),
    )
    step = seq(
        over(4 * units, lambda j: Store(sums, (j,), bias[j])),
        products,
        *(gate(number) for number in range(4)),
        over(units, new_cell),
        over(units, output),
        over(units, lambda j: Store(y, (t, b, j), hidden[b, j])),
    )
    whole: Stmt = For(b, const(batch), seq(begin, For(t, const(time), step)))
    for buffer in (sums, total):
        whole = Alloc(buffer, whole)
    inputs = (gates, weight, bias, first_hidden, first_cell)
    params = [*(Param(x, "input") for x in inputs), *(Param(x, "output") for x in (y, hidden, cell))]
    return PrimFunc(tuple(params), whole)


define_op(
    name="qnn.lstm",
    doc=(
        "A long short-term memory: i, o, f, n = saturate(gates + scale(bias + h * weight)) of 3 integer bits; c = "
        "sigmoid(f) * c + sigmoid(i) * tanh(n), within cell_clip; h = saturate(hidden_scale(sigmoid(o) * tanh(c)) "
        "+ output_zero_point). TFLite's integer LSTM, whose sigmoid and tanh are gemmlowp's of 16 bits."
    ),
    inputs=("gates", "weight", "bias", "hidden", "cell"),
    attrs=(
        Attr("scale", Scale, "of the sums of each of the four gates, or of all"),
        Attr("hidden_scale", Scale, "of the products that are the outputs"),
        Attr("cell_exponent", Int, "that of the scale of the cell, -15 .. -11"),
        Attr("cell_clip", Int, "what the cell is kept within, in its own scale; 0 for nothing", neutral=0),
        Attr("output_zero_point", Int, "added to the outputs", neutral=0),
    ),
    infer=_infer,
    reference=_reference,
    compute=None,
    loops=_loops,
    kind="opaque",
    macs=lambda attrs, out, gates, *others: gates.size * (gates.shape[2] // 4),
    # Some hundred calls of numpy for each step, most of them for sigmoids and hyperbolic tangents.
    effort=lambda attrs, out, gates, *others: 100 * STEP_OPERATIONS * gates.shape[0],
)
