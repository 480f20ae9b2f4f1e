"""Recurrent layers: what is computed of one step after the other.

The share of the inputs in the gates of all steps is given: it is one product of matrices, which is better done at once.
The rest is loops over time. Activations are those that ONNX names, with its alpha and beta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir.form.nodes import (
    Alloc,
    Bind,
    Buffer,
    Call,
    Expr,
    For,
    If,
    Imm,
    Param,
    PrimFunc,
    Select,
    Stmt,
    Store,
    Update,
    Var,
    const,
    maximum,
    minimum,
    seq,
)
from ...tir.form.symbolic_dims import Dim, Extent, OpenExtentError, symbols_of, upper_bounds
from ...tir.form.visit import substitute
from ..op import STEP_OPERATIONS, Attr, Attrs, Boolean, Choice, Real, Specials, define_op
from ..types import TensorType, TupleType
from .activation import sigmoid, stable_sigmoid
from .common import require_float, require_integers

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ACTIVATIONS", "Activation"]


_NONE = Attrs(())

# --- activations -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Activation:
    """A function of one number.

    Args:
        scalar: ``scalar(x, alpha, beta)`` in the loop form.
        numpy: the same of arrays of float64.
        alpha, beta: what ONNX takes where a model says nothing.
    """

    scalar: Callable[[Expr, float, float], Expr]
    numpy: Callable[[Any, float, float], Any]
    alpha: float = 0.0
    beta: float = 0.0


def _hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    return maximum(Imm(0.0, x.dtype), minimum(Imm(1.0, x.dtype), x * alpha + beta))


def _where(condition: Any, a: Any, b: Any) -> Any:
    import numpy as np

    return np.where(condition, a, b)


def _ufunc(name: str) -> Callable[[Any, float, float], Any]:
    def function(x: Any, alpha: float, beta: float) -> Any:
        import numpy as np

        return getattr(np, name)(x)

    return function


ACTIVATIONS: Mapping[str, Activation] = {
    "affine": Activation(lambda x, a, b: x * a + b, lambda x, a, b: a * x + b),
    "elu": Activation(
        lambda x, a, b: Select(x < 0.0, Call("expm1", x) * a, x),
        lambda x, a, b: _where(x < 0, a * _ufunc("expm1")(x, a, b), x),
        1.0,
    ),
    "hard_sigmoid": Activation(_hard_sigmoid, lambda x, a, b: (a * x + b).clip(0, 1), 0.2, 0.5),
    "leaky_relu": Activation(lambda x, a, b: Select(x < 0.0, x * a, x), lambda x, a, b: _where(x < 0, a * x, x), 0.01),
    "relu": Activation(lambda x, a, b: maximum(Imm(0.0, x.dtype), x), lambda x, a, b: _where(x < 0, 0, x)),
    "scaled_tanh": Activation(lambda x, a, b: Call("tanh", x * b) * a, lambda x, a, b: a * _ufunc("tanh")(b * x, a, b)),
    "sigmoid": Activation(lambda x, a, b: sigmoid(_NONE, x), lambda x, a, b: stable_sigmoid(_NONE, x)),
    "softplus": Activation(
        lambda x, a, b: maximum(x, 0.0) + Call("log1p", Call("exp", minimum(x, -x))),
        lambda x, a, b: _ufunc("log1p")(_ufunc("exp")(-abs(x), a, b), a, b) + x.clip(0),
    ),
    "softsign": Activation(lambda x, a, b: x / (maximum(x, -x) + 1.0), lambda x, a, b: x / (1 + abs(x))),
    "tanh": Activation(lambda x, a, b: Call("tanh", x), _ufunc("tanh")),
    "thresholded_relu": Activation(
        lambda x, a, b: Select(x > a, x, Imm(0.0, x.dtype)), lambda x, a, b: _where(x > a, x, 0), 1.0
    ),
}
"""By the names that attributes have."""


def _attrs(*activations: str) -> tuple[Attr, ...]:
    """What each of the activations is called in the attributes of an op, which come in threes."""
    attrs = []
    for name in activations:
        default = "sigmoid" if name == "gate" else "tanh"
        attrs += [
            Attr(name, Choice(*ACTIVATIONS), f"activation of the {name}", default=default),
            Attr(f"{name}_alpha", Real, "its alpha", default=0.0),
            Attr(f"{name}_beta", Real, "its beta", default=0.0),
        ]
    return (
        *attrs,
        Attr("clip", Real, "what goes into the activations stays within +-clip", neutral=math.inf),
        Attr("reverse", Boolean, "from the last step to the first", default=False),
    )


def clip_symmetrically(x: Expr, limit: float) -> Expr:
    """Return ``x`` limited to ``-limit .. limit``; ``limit`` may be infinite, and NaN stays NaN."""
    if not math.isfinite(limit):
        return x
    return minimum(Imm(limit, x.dtype), maximum(Imm(-limit, x.dtype), x))


def _scalar(attrs: Attrs, name: str) -> Callable[[Expr], Expr]:
    """An activation in the loop form, behind the clip."""
    activation, alpha, beta = ACTIVATIONS[attrs[name]], attrs[f"{name}_alpha"], attrs[f"{name}_beta"]
    limit = attrs.clip

    def function(x: Expr) -> Expr:
        return activation.scalar(x if name == "output" else clip_symmetrically(x, limit), alpha, beta)

    return function


def _numpy(attrs: Attrs, name: str) -> Callable[[Any], Any]:
    """An activation of arrays, behind the clip."""
    activation, alpha, beta = ACTIVATIONS[attrs[name]], attrs[f"{name}_alpha"], attrs[f"{name}_beta"]

    def function(x: Any) -> Any:
        limited = x if name == "output" else x.clip(-attrs.clip, attrs.clip)
        return activation.numpy(limited, alpha, beta)

    return function


# --- types -----------------------------------------------------------------------------------------------------------


def _infer(count: int, others: Mapping[int, tuple[int, ...]], states: Sequence[int]) -> Callable[..., TupleType]:
    """Of a layer with ``count`` gates.

    Args:
        count: of gates.
        others: how many rows of one per unit further arguments have, by their positions; () for one row.
        states: positions of the states, (batch, units).
    """

    def infer(attrs: Attrs, *types: TensorType) -> TupleType:
        """Gates (time, batch, gates * units) of a float dtype, which all have but the lengths, int32 (batch,). Weights
        are (units, gates * units), states (batch, units). The results are the outputs of all steps, (time, batch,
        units), and the last states.
        """
        for name, value in attrs.items:
            if name.endswith("clip") and not value > 0:
                raise ModelError(f"its {name} {value} is not positive")
        gates, weight, lengths = types[0], types[1], types[-1]
        dtype = require_float(gates)
        if len(gates.shape) != 3 or gates.shape[2] % count:
            raise ModelError(f"its gates have the shape {gates.shape}, not (time, batch, {count} * units)")
        time, batch, units = gates.shape[0], gates.shape[1], gates.shape[2] // count
        require_integers(lengths, allowed=("int32",))
        wanted = {1: (units, count * units), len(types) - 1: (batch,), **dict.fromkeys(states, (batch, units))}
        wanted.update({position: (*rows, units) for position, rows in others.items()})
        for position, shape in wanted.items():
            if types[position].shape != shape:
                raise ModelError(f"its argument {position} has the shape {types[position].shape}, not {shape}")
            if position != len(types) - 1 and types[position].dtype != dtype:
                raise ModelError(f"its argument {position} is {types[position].dtype}, its gates are {dtype}")
        state = TensorType((batch, units), weight.dtype)
        return TupleType((TensorType((time, batch, units), dtype), *(state for _ in states)))

    return infer


def _macs(count: int) -> Callable[..., Dim]:
    def macs(attrs: Attrs, out: TupleType, gates: TensorType, *others: TensorType) -> Dim:
        macs: Dim = gates.size * (gates.shape[2] // count)
        return macs

    return macs


# --- references ------------------------------------------------------------------------------------------------------

Step = Callable[..., "tuple[np.ndarray, ...]"]


def _steps(
    attrs: Attrs, step: Step, gates: np.ndarray, states: Sequence[np.ndarray], lengths: np.ndarray
) -> tuple[np.ndarray, ...]:
    """The outputs of all steps and the last states; ``step(gates, *states)`` gives the next states of one element of
    the batch, the first of which is the output.
    """
    import numpy as np

    time, batch, _ = gates.shape
    last = [state.astype(np.float64) for state in states]
    outputs = np.zeros((time, batch, states[0].shape[1]))
    for b in range(batch):
        count = int(np.clip(lengths[b], 0, time))
        for t in reversed(range(count)) if attrs.reverse else range(count):
            results = step(gates[t, b].astype(np.float64), *(state[b] for state in last))
            for state, new in zip(last, results, strict=True):
                state[b] = new
            outputs[t, b] = results[0]
    return tuple(array.astype(gates.dtype) for array in (outputs, *last))


def _rnn_reference(attrs: Attrs, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    gates, weight, hidden, lengths = arrays
    f = _numpy(attrs, "candidate")
    return _steps(attrs, lambda x, h: (f(x + h @ weight),), gates, [hidden], lengths)


def _gru_reference(attrs: Attrs, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    import numpy as np

    gates, weight, bias, hidden, lengths = arrays
    units = hidden.shape[1]
    f, g = _numpy(attrs, "gate"), _numpy(attrs, "candidate")

    def step(x: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, ...]:
        update, reset = np.split(f(x[: 2 * units] + h @ weight[:, : 2 * units]), 2)
        if attrs.linear_before_reset:
            candidate = reset * (h @ weight[:, 2 * units :] + bias)
        else:
            candidate = (reset * h) @ weight[:, 2 * units :] + bias
        return ((1 - update) * g(x[2 * units :] + candidate) + update * h,)

    return _steps(attrs, step, gates, [hidden], lengths)


def _lstm_reference(attrs: Attrs, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    import numpy as np

    gates, weight, peephole, hidden, cell, lengths = arrays
    f, g, last = (_numpy(attrs, name) for name in ("gate", "candidate", "output"))

    def step(x: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, ...]:
        i, o, forget, new = np.split(x + h @ weight, 4)
        cell = f(forget + peephole[2] * c) * c + f(i + peephole[0] * c) * g(new)
        cell = cell.clip(-attrs.cell_clip, attrs.cell_clip)
        return f(o + peephole[1] * cell) * last(cell), cell

    return _steps(attrs, step, gates, [hidden, cell], lengths)


def _effort(attrs: Attrs, out: TupleType, gates: TensorType, *others: TensorType) -> int:
    """Some twenty calls of numpy for each step of each element of the batch."""
    return 20 * STEP_OPERATIONS * math.prod(upper_bounds(gates.shape[:2]))


# --- loops -----------------------------------------------------------------------------------------------------------


class _Loops:
    """The kernel of a layer: parameters, and the loops over the batch and over time around one step.

    How many steps there are may be open: then the symbols of that are inputs behind the others, in order.

    Raises:
        OpenExtentError: another extent is open.
    """

    def __init__(self, attrs: Attrs, out: TupleType, types: Sequence[TensorType], count: int) -> None:
        self.attrs = attrs
        if symbols_of([*types[0].shape[1:], *(dim for type_ in types[1:] for dim in type_.shape)]):
            raise OpenExtentError("of a recurrent layer nothing but the number of steps can be open")
        self.steps = types[0].shape[0]
        self.inputs = [Buffer(f"x{i}", upper_bounds(type_.shape), type_.dtype) for i, type_ in enumerate(types)]
        self.outputs = [Buffer(f"y{i}", upper_bounds(field.shape), field.dtype) for i, field in enumerate(out.fields)]
        self.time, self.batch, self.units = self.outputs[0].shape
        self.gates = Buffer("g", (count * self.units,), types[0].dtype, "local", 64)
        self.count = count
        self.b, self.t, self.place = Var("b"), Var("t"), Var("place")
        self._loops = 0

    def over(self, extent: int, body: Callable[[Var], Stmt]) -> Stmt:
        """A loop of its own variable."""
        self._loops += 1
        var = Var(f"i{self._loops}")
        return For(var, const(extent), body(var))

    def product(self, into: Buffer, first: int, columns: int, vector: Callable[[Var], Expr], at: int = 0) -> Stmt:
        """``into`` from element ``at`` on grows by a vector times columns of the weights, from ``first`` on."""
        weight = self.inputs[1]
        # All columns take one element of the vector, so that the innermost loop has no sum.
        return self.over(
            self.units,
            lambda k: self.over(columns, lambda j: Update("add", into, (j + at,), weight[k, j + first] * vector(k))),
        )

    def func(self, states: Sequence[Buffer], step: Stmt, scratch: Sequence[Buffer] = ()) -> PrimFunc:
        """The kernel, from what one step does with the gates of its inputs in ``gates``.

        Args:
            states: inputs with which the states begin, in the order of the outputs behind the first.
            step: writes the new states to the outputs behind the first.
            scratch: what it needs besides.
        """
        b, t, place, y = self.b, self.t, self.place, self.outputs[0]
        lengths, last = self.inputs[-1], self.outputs[1:]
        length = Var("length")
        begin = seq(
            *(
                self.over(self.units, lambda j, new=new, old=old: Store(new, (b, j), old[b, j]))  # type: ignore[misc]  # mypy infers no lambda with a default
                for new, old in zip(last, states, strict=True)
            )
        )
        load_gates = self.over(self.count * self.units, lambda j: Store(self.gates, (j,), self.inputs[0][place, b, j]))
        store_outputs = self.over(self.units, lambda j: Store(y, (place, b, j), last[0][b, j]))
        # (Limits are for the proof that no index leaves the data.)
        turn = maximum(length - 1 - t, 0) if self.attrs.reverse else t
        run = If(t < length, Bind(place, turn, seq(load_gates, step, store_outputs)))
        symbols = {symbol: Var(f"n{i}") for i, symbol in enumerate(symbols_of([self.steps]))}
        most: Expr = const(self.time)
        if isinstance(self.steps, Extent):
            most = minimum(substitute(self.steps.expression("int32"), dict(symbols.items())), self.time)
        # All of the output is written before it is known how much of it is steps.
        zero = Imm(0.0, y.dtype)
        clear = self.over(self.time, lambda i: self.over(self.units, lambda j: Store(y, (i, b, j), zero)))
        clamped = minimum(maximum(lengths[b], 0), most)
        body: Stmt = Bind(length, clamped, For(t, most, run))
        whole: Stmt = For(b, const(self.batch), seq(begin, clear, body))
        for buffer in (self.gates, *scratch):
            whole = Alloc(buffer, whole)
        extents: list[Buffer] = []
        for symbol, var in symbols.items():
            # Whoever calls it has checked the extent. Clamped, all is proven whatever it was given.
            extents.append(Buffer(f"{var.name}_given", (1,), "int32"))
            whole = Bind(var, maximum(minimum(extents[-1][0], symbol.high), symbol.low), whole)
        inputs = (Param(x, "input") for x in (*self.inputs, *extents))
        params = [*inputs, *(Param(y, "output") for y in self.outputs)]
        return PrimFunc(tuple(params), whole)


def _rnn_loops(attrs: Attrs, out: TupleType, *types: TensorType) -> PrimFunc:
    loops = _Loops(attrs, out, types, 1)
    b, hidden, f = loops.b, loops.outputs[1], _scalar(attrs, "candidate")
    step = seq(
        loops.product(loops.gates, 0, loops.units, lambda k: hidden[b, k]),
        loops.over(loops.units, lambda j: Store(hidden, (b, j), f(loops.gates[j]))),
    )
    return loops.func([loops.inputs[2]], step)


def _gru_loops(attrs: Attrs, out: TupleType, *types: TensorType) -> PrimFunc:
    loops = _Loops(attrs, out, types, 3)
    b, units, gates, hidden, bias = loops.b, loops.units, loops.gates, loops.outputs[1], loops.inputs[2]
    f, g = _scalar(attrs, "gate"), _scalar(attrs, "candidate")
    candidate = Buffer("own", (units,), gates.dtype, "local", 64)
    both = loops.product(gates, 0, 2 * units, lambda k: hidden[b, k])
    if attrs.linear_before_reset:
        third = seq(
            loops.over(units, lambda j: Store(candidate, (j,), bias[j])),
            loops.product(candidate, 2 * units, units, lambda k: hidden[b, k]),
            loops.over(units, lambda j: Update("add", gates, (j + 2 * units,), f(gates[j + units]) * candidate[j])),
        )
    else:
        third = seq(
            loops.over(units, lambda j: Store(candidate, (j,), f(gates[j + units]) * hidden[b, j])),
            loops.over(units, lambda j: Update("add", gates, (j + 2 * units,), bias[j])),
            loops.product(gates, 2 * units, units, lambda k: candidate[k], at=2 * units),
        )
    update = loops.over(units, lambda j: Store(gates, (j,), f(gates[j])))
    new = loops.over(
        units,
        lambda j: Store(
            hidden, (b, j), (Imm(1.0, gates.dtype) - gates[j]) * g(gates[j + 2 * units]) + gates[j] * hidden[b, j]
        ),
    )
    return loops.func([loops.inputs[3]], seq(both, third, update, new), [candidate])


def _lstm_loops(attrs: Attrs, out: TupleType, *types: TensorType) -> PrimFunc:
    loops = _Loops(attrs, out, types, 4)
    b, units, gates, peephole = loops.b, loops.units, loops.gates, loops.inputs[2]
    _, hidden, cell = loops.outputs
    f, g, last = (_scalar(attrs, name) for name in ("gate", "candidate", "output"))

    def new_cell(j: Var) -> Stmt:
        kept = f(gates[j + 2 * units] + peephole[2, j] * cell[b, j]) * cell[b, j]
        added = f(gates[j] + peephole[0, j] * cell[b, j]) * g(gates[j + 3 * units])
        limit, new = attrs.cell_clip, kept + added
        return Store(cell, (b, j), clip_symmetrically(new, limit))

    def output(j: Var) -> Stmt:
        return Store(hidden, (b, j), f(gates[j + units] + peephole[1, j] * cell[b, j]) * last(cell[b, j]))

    product = loops.product(gates, 0, 4 * units, lambda k: hidden[b, k])
    return loops.func(loops.inputs[3:5], seq(product, loops.over(units, new_cell), loops.over(units, output)))


# --- the ops ---------------------------------------------------------------------------------------------------------

_ALL = "Steps behind the length of a sequence leave the states as they are and give zeros."


def _declare(
    name: str,
    doc: str,
    inputs: tuple[str, ...],
    attrs: tuple[Attr, ...],
    infer: Callable[..., TupleType],
    reference: Callable[..., tuple[np.ndarray, ...]],
    loops: Callable[..., PrimFunc],
    count: int,
) -> None:
    define_op(
        name=name,
        doc=f"{doc} {_ALL}",
        inputs=("gates", "weight", *inputs, "lengths"),
        attrs=attrs,
        infer=infer,
        reference=reference,
        compute=None,
        loops=loops,
        open_loops=True,
        kind="opaque",
        specials=Specials("kept", "a step and all steps behind it"),
        macs=_macs(count),
        effort=_effort,
    )


_declare(
    "nn.rnn",
    "h = candidate(gates + h * weight), step by step.",
    ("hidden",),
    _attrs("candidate"),
    _infer(1, {}, [2]),
    _rnn_reference,
    _rnn_loops,
    1,
)
_declare(
    "nn.gru",
    "A gated recurrent unit: update and reset z, r = gate(gates + h * weight); n = candidate(gates + (r * h) * weight "
    "+ bias), or with ``linear_before_reset`` candidate(gates + r * (h * weight + bias)); h = (1 - z) * n + z * h.",
    ("bias", "hidden"),
    (
        *_attrs("gate", "candidate"),
        Attr("linear_before_reset", Boolean, "the reset applies to the product", default=False),
    ),
    _infer(3, {2: ()}, [3]),
    _gru_reference,
    _gru_loops,
    3,
)
_declare(
    "nn.lstm",
    "A long short-term memory: i, o, f, n = gates + h * weight; c = gate(f + p2 * c) * c + gate(i + p0 * c) * "
    "candidate(n); h = gate(o + p1 * c) * output(c), with p the rows of peephole.",
    ("peephole", "hidden", "cell"),
    (
        *_attrs("gate", "candidate", "output"),
        Attr("cell_clip", Real, "the cell stays within +-cell_clip", neutral=math.inf),
    ),
    _infer(4, {2: (3,)}, [3, 4]),
    _lstm_reference,
    _lstm_loops,
    4,
)
