"""What may make a pattern take a layer that it refuses: zero points of 0, scales by each power of two, numbers of few
bits, multiples of a power of two, limits of few bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...relay.expr import Call, Constant, Expr, Var, const
from ...relay.op import ROUNDINGS, FixedPoint, FloatScale, Op
from ...tir.form.dtype import is_integer
from .layer import Layer, calls_in
from .layer_rebuild import OperandPosition, leaves_of
from .mutations import Mutation, changed, leaf_text, replaced

if TYPE_CHECKING:
    import numpy as np

__all__ = ["fitting"]

_BITS = range(3, 8)
_POWERS = range(-16, 2)


def fitting(layer: Layer, rng: np.random.Generator) -> Iterator[Mutation]:
    """Changes of a layer, each of which meets what some machine asks for."""
    calls = calls_in(layer.function.body)
    neutral = _neutral(calls)
    points = {number: [name for name in attrs if name.endswith("zero_point")] for number, attrs in neutral.items()}
    zeros: dict[int, dict[str, Any]] = {number: dict.fromkeys(names, 0) for number, names in points.items() if names}
    yield changed("zero points", "all zero points are 0", "attribute", zeros)
    yield changed("neutral", "all attributes are neutral", "attribute", neutral)
    for number, call in enumerate(calls):
        if call.op_name == "qnn.requantize":
            yield from _scales(number)
        if call.op_name == "clip":
            yield from _clips(number)
    for place, leaf in leaves_of(layer.function.body).items():
        if isinstance(leaf, Constant) and is_integer(leaf.dtype):
            yield from _numbers(leaf_text(calls, place), place, leaf, rng)


def _neutral(calls: Sequence[Call]) -> dict[int, dict[str, Any]]:
    """The attributes of each call that have a neutral value, with that."""
    neutral: dict[int, dict[str, Any]] = {}
    for number, call in enumerate(calls):
        for attr in call.op.attrs if isinstance(call.op, Op) else ():
            if repr(attr.neutral) != "MISSING":
                neutral.setdefault(number, {})[attr.name] = attr.neutral
    return neutral


def _clips(number: int) -> Iterator[Mutation]:
    for bits in (*_BITS, 8):
        high = float(2 ** (bits - 1) - 1)
        for low in (-high - 1, -high, 0.0):
            limits = {number: {"a_min": low, "a_max": high}}
            yield changed(f"{number}.a_min", f"clip to {low} .. {high}", "attribute", limits)


def _scales(number: int) -> Iterator[Mutation]:
    for power in _POWERS:
        for rounding in ROUNDINGS:
            fixed = FixedPoint((2**30,), (power + 1,), rounding)
            yield changed(f"{number}.scale", f"2**{power}, {rounding}", "scale", {number: {"scale": fixed}})
        floats = FloatScale((2.0**power,))
        yield changed(f"{number}.scale", f"2**{power} as float", "scale", {number: {"scale": floats}})


def _numbers(name: str, place: OperandPosition, leaf: Constant, rng: np.random.Generator) -> Iterator[Mutation]:
    def mutation(text: str, ends: tuple[int, int], step: int) -> Mutation:
        seed = int(rng.integers(1 << 30))

        def make(old: Var | Constant) -> Expr:
            import numpy as np

            values = np.random.default_rng(seed).integers(ends[0], ends[1] + 1, old.shape) * step
            return const(np.asarray(values).astype(old.dtype))

        return replaced(f"{place.call}.{place.operand} numbers", f"{name} holds {text}", "numbers", place, make)

    yield mutation("zeros", (0, 0), 1)
    if leaf.tensor.size == 1:
        for power in range(12):
            yield mutation(f"2**{power}", (1, 1), 1 << power)
        return
    for bits in _BITS:
        most = 2 ** (bits - 1) - 1
        yield mutation(f"numbers of {bits} bits", (-most, most), 1)
    if leaf.dtype == "int32":
        for power in range(1, 13):
            yield mutation(f"multiples of 2**{power}", (-3, 3), 1 << power)
