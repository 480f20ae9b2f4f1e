"""Constants and scales that go together: sums that are halves of both signs, or beside halves by one, and sums that a
shift at its limit still tells from each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ...relay.expr import Call, Constant, Expr, const
from ...relay.op import ROUNDINGS, FixedPoint, FloatScale
from .layer import Layer, calls_in
from .layer_generator import largest_of
from .layer_rebuild import Changes, OperandPosition, fitted, leaves_of, rebuilt
from .values import SHIFTS

if TYPE_CHECKING:
    import numpy as np

__all__ = ["BESIDE", "EVERY_SHIFT", "FITTED", "HALVES", "scaled_numbers"]

EVERY_SHIFT, HALVES, BESIDE = "every shift", "halves of both signs", "beside halves of both signs"
FITTED = (EVERY_SHIFT, "shift ", HALVES, BESIDE)
"""How the texts of what changes many numbers at once begin."""

_MULTIPLIERS = (2**30, 2**31 - 1, 2**30 + 1)
"""The ends; others are random."""

_BESIDE = (5, 3, 15, 7, 17, 9, 13, 11)
"""Sums that are scaled to numbers beside a half, less by one and more by one in turns."""

Apply = Callable[[Layer], "Layer | None"]


def scaled_numbers(calls: Sequence[Call], rng: np.random.Generator) -> Iterator[tuple[int, str, Apply]]:
    """For each requantisation its number, what is different in words, and what makes a layer so."""
    for number, call in enumerate(calls):
        if call.op_name != "qnn.requantize":
            continue
        for rounding in ROUNDINGS:
            text = f"{EVERY_SHIFT}, a channel each, rounding {rounding}, sums to suit"
            yield number, text, _shifts(number, SHIFTS, rounding, int(rng.integers(1 << 30)), text)
        for rounding in (*ROUNDINGS, "float"):
            for channels in (False, True):
                kinds = "scales per channel" if channels else "one scale"
                text = f"{HALVES}, {kinds}, rounding {rounding}"
                yield number, text, _halves(number, rounding, channels, int(rng.integers(1 << 30)), text)
                if rounding != "float":
                    text = f"{BESIDE}, {kinds}, rounding {rounding}"
                    yield number, text, _beside(number, rounding, channels, int(rng.integers(1 << 30)), text)
        for axis, extent in enumerate(call.shape[:-1]):
            if extent > 1:
                yield number, f"scales along dimension {axis}", _along(number, axis)
        for shift in sorted(SHIFTS):
            for rounding in ROUNDINGS:
                text = f"shift {shift}, rounding {rounding}, sums to suit"
                yield number, text, _shifts(number, (shift,), rounding, int(rng.integers(1 << 30)), text)


def _with_numbers(body: Expr, make: Callable[[Constant], np.ndarray | None]) -> Expr | None:
    """A body whose constants hold other numbers."""
    leaves: dict[OperandPosition, Expr] = {}
    for place, leaf in leaves_of(body).items():
        if isinstance(leaf, Constant):
            numbers = make(leaf)
            if numbers is not None:
                leaves[place] = const(numbers.astype(leaf.dtype))
    return rebuilt(body, Changes(leaves=leaves)) if leaves else body


def _small_sums(layer: Layer, rng: np.random.Generator) -> Expr | None:
    """A body with few weights other than 0, those 1 and -1, so that sums are small and take every value."""
    import numpy as np

    def make(leaf: Constant) -> np.ndarray | None:
        if leaf.dtype == "int32":
            return rng.integers(-40, 41, leaf.shape) if leaf.tensor.size > 1 else None
        if leaf.dtype in ("int8", "int16") and len(leaf.shape) > 1:
            fan = max(1, leaf.tensor.size // max(leaf.shape[0], leaf.shape[-1]))
            return np.where(rng.random(leaf.shape) < 3 / fan, rng.choice([-1, 1], leaf.shape), 0)
        return None

    return _with_numbers(layer.function.body, make)


def _halves(number: int, rounding: str, channels: bool, seed: int, text: str) -> Apply:
    """Scales by powers of two, of which sums that take every value are often halves."""

    def apply(layer: Layer) -> Layer | None:
        import numpy as np

        rng = np.random.default_rng(seed)
        body = _small_sums(layer, rng)
        if body is None or number >= len(calls_in(body)):
            return None
        call = calls_in(body)[number]
        largest = largest_of(call.args[0], rng)
        shift = -max(1, int(np.ceil(np.log2(max(2.0, largest / 100)))))
        count = call.shape[-1] if channels and call.shape else 1
        shifts = tuple(shift - at % 2 for at in range(count))
        scale: FixedPoint | FloatScale = FloatScale(tuple(2.0**s for s in shifts))
        if rounding != "float":
            scale = FixedPoint((2**30,) * count, tuple(s + 1 for s in shifts), rounding)
        return _scaled(layer, body, number, scale, text)

    return apply


def _beside(number: int, rounding: str, channels: bool, seed: int, text: str) -> Apply:
    """Scales of which the products of one small sum each are one less, or one more, than a half."""

    def apply(layer: Layer) -> Layer | None:
        import numpy as np

        body = _small_sums(layer, np.random.default_rng(seed))
        if body is None or number >= len(calls_in(body)):
            return None
        call = calls_in(body)[number]
        count = call.shape[-1] if channels and call.shape else 1
        multipliers = tuple(_multiplier(_BESIDE[at % len(_BESIDE)]) for at in range(count))
        scale = FixedPoint(multipliers, (0,) * count, rounding)
        return _scaled(layer, body, number, scale, text)

    return apply


def _multiplier(size: int) -> int:
    """The multiplier with which ``size``, an odd number, makes an odd multiple of 2**30 and one, less or more."""
    ends = (odd * 2**30 + by for odd in range(size + 2, 2 * size, 2) for by in (-1, 1))
    return next(end // size for end in ends if end % size == 0)


def _scaled(layer: Layer, body: Expr, number: int, scale: FixedPoint | FloatScale, text: str) -> Layer | None:
    axis = {"axis": -1} if len(scale) > 1 else {}
    new_body = rebuilt(body, Changes({number: {"scale": scale, **axis}}))
    return None if new_body is None else layer.replace_body(new_body, text)


def _shifts(number: int, shifts: Sequence[int], rounding: str, seed: int, text: str) -> Apply:
    """One shift for all channels, or as many channels as shifts."""

    def apply(layer: Layer) -> Layer | None:
        import numpy as np

        rng = np.random.default_rng(seed)
        body: Expr | None = layer.function.body
        if len(shifts) > 1:
            body = _of_channels(layer.function.body, number, len(shifts))
        if body is None:
            return None
        many = np.array(shifts)
        target = np.minimum(2.0**31 - 2.0**20, np.maximum(4.0, 100 * 2.0 ** (1.0 - many)))
        few = np.broadcast_to(many > -3, (len(shifts),))

        def make(leaf: Constant) -> np.ndarray | None:
            per_channel = leaf.shape[-1:] == (len(shifts),) or len(shifts) == 1
            if leaf.dtype == "int32" and leaf.tensor.size > 1 and per_channel:
                return np.asarray(rng.uniform(-1, 1, leaf.shape) * target).astype("int64")
            if leaf.dtype == "int8" and len(leaf.shape) > 1:
                # Where nothing is shifted to the right, or to the left, sums are small.
                sparse = np.where(rng.random(leaf.shape) < 0.1, rng.choice([-1, 1], leaf.shape), 0)
                at_end = leaf.shape[-1] == len(shifts)
                which = few if at_end or len(shifts) == 1 else few.reshape(-1, *(1,) * (len(leaf.shape) - 1))
                fits = len(shifts) == 1 or at_end or leaf.shape[0] == len(shifts)
                return np.where(which, sparse, leaf.data) if fits else None
            return None

        body = _with_numbers(body, make)
        if body is None:
            return None
        ends = [*_MULTIPLIERS, *(int(rng.integers(2**30, 2**31)) for _ in range(4))]
        multipliers = tuple(ends[(5 * at + 3) % len(ends)] for at in range(len(shifts)))
        axis = {"axis": -1} if len(shifts) > 1 else {}
        body = rebuilt(body, Changes({number: {"scale": FixedPoint(multipliers, tuple(shifts), rounding), **axis}}))
        return None if body is None else layer.replace_body(body, text)

    return apply


def _along(number: int, axis: int) -> Apply:
    """Scales along another dimension than the channels."""

    def apply(layer: Layer) -> Layer | None:
        calls = calls_in(layer.function.body)
        scale = getattr(calls[number].attrs, "scale", None) if number < len(calls) else None
        if not isinstance(scale, FixedPoint) or len(calls[number].shape) <= axis + 1:
            return None
        count = calls[number].shape[axis]
        shifts = tuple(max(-31, scale.shift[0] - at % 2) for at in range(count))
        new_scale = FixedPoint(scale.multiplier[:1] * count, shifts, scale.rounding)
        body = rebuilt(layer.function.body, Changes({number: {"scale": new_scale, "axis": axis}}))
        return None if body is None or count < 2 else layer.replace_body(body, f"scales along dimension {axis}")

    return apply


def _of_channels(body: Expr, number: int, count: int) -> Expr | None:
    """A body whose requantisation has so many channels: with as many of the weights, or of the data."""
    for place, leaf in reversed(leaves_of(body).items()):
        if len(leaf.shape) < 2:
            continue
        for at in (len(leaf.shape) - 1, 0):
            shape = (*leaf.shape[:at], count, *leaf.shape[at + 1 :])
            new_body = rebuilt(body, Changes(leaves={place: fitted(leaf, shape)}))
            calls = [] if new_body is None else calls_in(new_body)
            if number < len(calls) and calls[number].shape[-1:] == (count,):
                return new_body
    return None
