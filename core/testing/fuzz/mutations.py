"""What is varied of a layer, one thing at a time: each attribute, extent, dtype, constant, and what uses its values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import UmaError
from ...relay.expr import Call, Constant, Expr, Tuple, Var, const
from ...relay.op import FixedPoint, FloatScale, Op
from ...relay.types import TupleType
from ...relay.visit import substitute
from ...tir.form.dtype import bounds, is_integer
from .inputs import random_array
from .layer import Layer, calls_in
from .layer_generator import largest_of
from .layer_rebuild import Changes, OperandPosition, fitted, leaves_of, rebuilt
from .scale_constants import scaled_numbers
from .values import SHIFTS, Sizes, attribute_values, scale_makers

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Mutation", "changed", "leaf_text", "mutations", "replaced"]

_SCALE = "FixedPoint or FloatScale"
_DTYPES = ("int8", "uint8", "int16", "int32", "float32")


@dataclass(frozen=True, eq=False)
class Mutation:
    """One thing that is made different.

    Args:
        slot: what it is about: of two with one slot the later counts.
        text: what is different, in words.
        apply: gives the layer with it; None where there is no such layer.
        kind: ``attribute``, ``scale``, ``extent``, ``memory``, ``dtype``, ``numbers`` or ``use``.
    """

    slot: str
    text: str
    apply: Callable[[Layer], Layer | None]
    kind: str


def mutations(layer: Layer, sizes: Sizes, rng: np.random.Generator) -> Iterator[Mutation]:
    """All that can be varied of a layer.

    Args:
        layer: what it is begun with; each mutation can be applied to what others made of it as well.
        sizes: what may matter to the machine.
        rng: decides the numbers of constants.
    """
    body = layer.function.body
    calls = calls_in(body)
    for number, call in enumerate(calls):
        if isinstance(call.op, Op):
            yield from _attributes(number, call, call_text(calls, number), rng)
    leaves = leaves_of(body)
    for place, leaf in leaves.items():
        yield from _extents(calls, place, leaf, sizes)
        yield from _dtypes(calls, place, leaf)
        yield from _contents(calls, place, leaf, rng)
        yield from _shapes(calls, place, leaf)
    for number, text, apply in scaled_numbers(calls, rng):
        which = call_text(calls, number)
        text = text if which == calls[number].op_name else f"{text}, of {which}"
        yield Mutation(f"{number}.scale", text, apply, "scale")
    yield from _memories(calls, leaves, sizes)
    yield from _uses(layer, calls, leaves, rng)


def changed(slot: str, text: str, kind: str, attrs: dict[int, dict[str, Any]] | None = None) -> Mutation:
    """A mutation of attributes, by the numbers of calls; for the others see `Mutation`."""

    def apply(layer: Layer) -> Layer | None:
        body = rebuilt(layer.function.body, Changes(attrs or {}))
        return None if body is None or body is layer.function.body else layer.replace_body(body, text)

    return Mutation(slot, text, apply, kind)


def call_text(calls: Sequence[Call], number: int) -> str:
    """Name a call for people: its op, and which call of that op it is behind the first one."""
    name = calls[number].op_name or ""
    before = sum(call.op_name == name for call in calls[:number])
    return f"{name} {before + 1}" if before else name


def _attributes(number: int, call: Call, which: str, rng: np.random.Generator) -> Iterator[Mutation]:
    assert isinstance(call.op, Op)
    types = [arg.tensor for arg in call.args]
    for attr in call.op.attrs:
        now = getattr(call.attrs, attr.name)
        slot = f"{number}.{attr.name}"
        if attr.type.name == _SCALE:
            channels = call.shape[-1] if call.op.name == "qnn.requantize" and call.shape else 1
            # Those of sums have shifts at their limits with sums to suit.
            shifts = () if call.op.name == "qnn.requantize" else SHIFTS
            for text, _ in scale_makers(1.0, channels, shifts):
                yield _scaled(number, attr.name, which, text, shifts, rng)
            continue
        for value in attribute_values(call.op, attr, types):
            try:
                normal = attr.normalise(value, call.op.name)
            except UmaError:
                continue
            if normal != now:
                text = f"{attr.name} of {which} is {normal}"
                yield changed(slot, text, "attribute", {number: {attr.name: normal}})
    if "a_min" in dict(call.attrs.items) and call.op.name == "clip":
        for low, high in ((5.0, 5.0), (-128.0, -100.0), (100.0, 127.0), (-300.0, 300.0), (-0.5, 6.5)):
            text = f"{which} to {low} .. {high}"
            yield changed(f"{number}.a_min", text, "attribute", {number: {"a_min": low, "a_max": high}})


def _scaled(number: int, name: str, which: str, kind: str, shifts: Sequence[int], rng: np.random.Generator) -> Mutation:
    """A scale that suits the sums as they are when it is put in."""
    seed, text = int(rng.integers(1 << 30)), f"{name} of {which} is {kind}"

    def apply(layer: Layer) -> Layer | None:
        import numpy as np

        calls = calls_in(layer.function.body)
        if number >= len(calls) or name not in dict(calls[number].attrs.items):
            return None
        call = calls[number]
        of_sums = call.op_name == "qnn.requantize"
        factor = _factor(getattr(call.attrs, name))
        if of_sums and call.args[0].dtype == "int32":
            factor = 100 / max(1.0, largest_of(call.args[0], np.random.default_rng(seed)))
        make = dict(scale_makers(factor, call.shape[-1] if of_sums and call.shape else 1, shifts)).get(kind)
        if make is None:
            return None
        scale = make()
        axis = {"axis": -1} if len(scale) > 1 else {}
        body = rebuilt(layer.function.body, Changes({number: {name: scale, **axis}}))
        return None if body is None or body is layer.function.body else layer.replace_body(body, text)

    return Mutation(f"{number}.{name}", text, apply, "scale")


def _factor(scale: FixedPoint | FloatScale) -> float:
    if isinstance(scale, FloatScale):
        return float(scale.scale[0])
    return max(1.0, scale.multiplier[0]) * 2.0 ** (scale.shift[0] - 31)


def leaf_text(calls: Sequence[Call], place: OperandPosition) -> str:
    """What an operand is called, for people."""
    op = calls[place.call].op
    assert isinstance(op, Op)
    names = op.inputs
    name = f"operand {place.operand}" if names[:1] == ("*data",) else names[place.operand]
    return f"{name} of {call_text(calls, place.call)}"


def replaced(
    slot: str, text: str, kind: str, place: OperandPosition, make: Callable[[Var | Constant], Expr]
) -> Mutation:
    """A mutation that puts something else in the place of an input or a constant."""

    def apply(layer: Layer) -> Layer | None:
        leaf = leaves_of(layer.function.body).get(place)
        if leaf is None:
            return None
        try:
            new = make(leaf)
        except (UmaError, ValueError, OverflowError):
            return None
        body = rebuilt(layer.function.body, Changes(leaves={place: new}))
        return None if body is None or body is layer.function.body else layer.replace_body(body, text)

    return Mutation(slot, text, apply, kind)


def _extents(calls: Sequence[Call], place: OperandPosition, leaf: Var | Constant, sizes: Sizes) -> Iterator[Mutation]:
    name = leaf_text(calls, place)
    if isinstance(leaf, Constant) and leaf.dtype == "int32":
        return  # a bias and its like follow what they are added to
    for dimension, now in enumerate(leaf.shape):
        for extent in sizes.extents:
            if extent == now:
                continue

            def make(old: Var | Constant, at: int = dimension, to: int = extent) -> Expr:
                if at >= len(old.shape):
                    raise ValueError("it has fewer dimensions")
                return fitted(old, (*old.shape[:at], to, *old.shape[at + 1 :]))

            slot = f"{place.call}.{place.operand}[{dimension}]"
            yield replaced(slot, f"extent {dimension} of {name} is {extent}", "extent", place, make)


def _dtypes(calls: Sequence[Call], place: OperandPosition, leaf: Var | Constant) -> Iterator[Mutation]:
    for dtype in _DTYPES:
        if dtype != leaf.dtype:
            slot = f"{place.call}.{place.operand} dtype"
            text = f"dtype of {leaf_text(calls, place)} is {dtype}"
            yield replaced(slot, text, "dtype", place, lambda old, dtype=dtype: fitted(old, old.shape, dtype))  # type: ignore[misc]  # mypy infers no lambda with a default


def _contents(
    calls: Sequence[Call], place: OperandPosition, leaf: Var | Constant, rng: np.random.Generator
) -> Iterator[Mutation]:
    if not isinstance(leaf, Constant) or not is_integer(leaf.dtype):
        return
    low, high = bounds(leaf.dtype)
    slot = f"{place.call}.{place.operand} numbers"
    ones = [(str(n), (n,)) for n in (1, -1, 2, 127, -128, 128, 3000, -(2**15), 2**20)] if leaf.tensor.size == 1 else []
    for word, numbers in (
        *ones,
        ("lowest", (low,)),
        ("highest", (high,)),
        ("zeros", (0,)),
        ("ends", (low, high)),
        ("sparse", (0, 1, 0, -1)),
    ):
        text = f"{leaf_text(calls, place)} holds {word}"
        if low == 0 and word == "sparse":
            continue

        def make(old: Var | Constant, numbers: Sequence[int] = numbers, seed: int = int(rng.integers(1 << 30))) -> Expr:
            import numpy as np

            make_rng = np.random.default_rng(seed)
            return const(make_rng.choice(np.array(numbers, "int64"), old.shape).astype(old.dtype))

        yield replaced(slot, text, "numbers", place, make)


def _shapes(calls: Sequence[Call], place: OperandPosition, leaf: Var | Constant) -> Iterator[Mutation]:
    """More dimensions, and constants that are one number, or one for each element."""
    slot, name = f"{place.call}.{place.operand} shape", leaf_text(calls, place)
    if isinstance(leaf, Var):
        for front in ((1,), (2,), (1, 1)):
            text = f"{name} has {len(front)} dimension{'s' if len(front) > 1 else ''} more, {list(front)}"
            yield replaced(slot, text, "extent", place, lambda old, front=front: fitted(old, (*front, *old.shape)))  # type: ignore[misc]  # mypy infers no lambda with a default
        if len(leaf.shape) > 1:
            text = f"{name} has a dimension less"
            yield replaced(slot, text, "extent", place, lambda old: fitted(old, old.shape[1:]))
    elif leaf.dtype in ("int32", "float32") and len(calls[place.call].args) == 2:
        other = calls[place.call].args[1 - place.operand].shape
        rows = tuple(n if at == len(other) - 2 else 1 for at, n in enumerate(other))
        for shape in ((1,), other[-1:], other, rows, ()):
            if shape != leaf.shape and shape is not None:
                text = f"{name} is of shape {list(shape)}"
                yield replaced(slot, text, "extent", place, lambda old, shape=shape: fitted(old, shape))  # type: ignore[misc]  # mypy infers no lambda with a default


def _memories(calls: Sequence[Call], leaves: dict[OperandPosition, Var | Constant], sizes: Sizes) -> Iterator[Mutation]:
    """Inputs and weights that are larger than each memory, and just as large."""
    for place, leaf in leaves.items():
        if len(leaf.shape) < 2 or leaf.dtype not in ("int8", "uint8", "int16", "float32"):
            continue
        width = {"int16": 2, "float32": 4}.get(leaf.dtype, 1)
        for nbytes in sizes.memories:
            if nbytes > 1 << 16:
                continue
            for word, limit_bytes in (("larger than", nbytes + nbytes // 8), ("about as large as", nbytes)):

                def make(old: Var | Constant, most_elements: int = limit_bytes // width) -> Expr:
                    shape = list(old.shape)
                    at = len(shape) - 2 if isinstance(old, Var) else len(shape) - 1
                    rest = old.tensor.size // shape[at]
                    shape[at] = max(1, -(-most_elements // rest))
                    if shape[at] > 4096:
                        raise ValueError("too long")
                    return fitted(old, shape)

                text = f"{leaf_text(calls, place)} is {word} {nbytes} bytes"
                yield replaced(f"{place.call}.{place.operand} memory", text, "memory", place, make)


def _uses(
    layer: Layer, calls: Sequence[Call], leaves: dict[OperandPosition, Var | Constant], rng: np.random.Generator
) -> Iterator[Mutation]:
    """Values inside of it that are results as well, one tensor as two operands, and data that is constant."""
    for number, call in enumerate(calls):
        if not isinstance(call.type, TupleType) and call not in layer.results:
            text = f"the value of {call_text(calls, number)} is used outside as well"

            def apply(changed: Layer, number: int = number, text: str = text) -> Layer | None:
                inner_calls = calls_in(changed.function.body)
                if number >= len(inner_calls) or inner_calls[number] in changed.results:
                    return None
                return changed.replace_body(Tuple([*changed.results, inner_calls[number]]), text)

            yield Mutation(f"{number} used outside", text, apply, "use")
    variables = {place: leaf for place, leaf in leaves.items() if isinstance(leaf, Var)}
    for place in variables:
        yield from _same_operands(calls, variables, place)
        if len(variables) > 1:
            yield _constant_operand(calls, place, int(rng.integers(1 << 30)))


def _same_operands(
    calls: Sequence[Call], variables: dict[OperandPosition, Var], place: OperandPosition
) -> Iterator[Mutation]:
    """One tensor as the operand at ``place`` and as one before it."""
    for other in itertools.takewhile(lambda one: one != place, variables):
        if variables[other].type is variables[place].type:
            text = f"{leaf_text(calls, place)} is {leaf_text(calls, other)} as well"

            def apply(changed: Layer, other: OperandPosition = other, text: str = text) -> Layer | None:
                leaves_now = leaves_of(changed.function.body)
                old, new = leaves_now.get(place), leaves_now.get(other)
                if old is None or new is None or old is new or old.type is not new.type:
                    return None
                return changed.replace_body(substitute(changed.function.body, {old: new}), text)

            yield Mutation(f"{place.call}.{place.operand} same", text, apply, "use")


def _constant_operand(calls: Sequence[Call], place: OperandPosition, seed: int) -> Mutation:
    """The operand at ``place`` as a constant."""
    text = f"{leaf_text(calls, place)} is a constant"

    def apply(changed: Layer) -> Layer | None:
        import numpy as np

        old = leaves_of(changed.function.body).get(place)
        if not isinstance(old, Var) or len(changed.function.params) < 2:
            return None
        data = random_array(np.random.default_rng(seed), old.shape, old.dtype)
        return changed.replace_body(substitute(changed.function.body, {old: const(data)}), text)

    return Mutation(f"{place.call}.{place.operand} constant", text, apply, "use")
