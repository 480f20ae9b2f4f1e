"""The ops of a model by layers, and why targets did not take them, counted by reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..partition import OpRecord, Reason
from ..targets.values import shorten

__all__ = ["Layer", "ReasonCount", "grouped", "reason_counts"]

_NAME_CHARS = 40


@dataclass(frozen=True)
class Layer:
    """Ops that belong to one layer of the model, of which one at most has multiply-accumulates.

    Args:
        number: of the layers, in the order in which they begin.
        ops: in the order in which they are computed.
        digits: of the number, as it is written.
    """

    number: int
    ops: tuple[OpRecord, ...]
    digits: int = 2

    @property
    def name(self) -> str:
        """Its number and what its costliest op is: ``07 conv2d 3x3 64->64 s1``."""
        counted = [op for op in self.ops if not op.is_free] or self.ops
        anchor = max(counted, key=lambda op: op.macs)
        return f"{self.number:0{self.digits}} {anchor.form or anchor.op}"

    @property
    def layers(self) -> tuple[str, ...]:
        """The model's own names of it."""
        return tuple(dict.fromkeys(name for op in self.ops for name in op.layers))

    @property
    def macs(self) -> int:
        """Its multiply-accumulates."""
        return sum(op.macs for op in self.ops)

    def lines(self, place: Callable[[OpRecord], str], before: Callable[[OpRecord], Sequence[str]]) -> Iterator[str]:
        """A line for each place that has ops of it, and one below it for each reason.

        Args:
            place: where an op went, in words.
            before: the labels of the targets that could have had an op before the one that has it.
        """
        head = f"{self.name} [{shorten(', '.join(self.layers) or 'no layer', _NAME_CHARS)}]"
        counted = [op for op in self.ops if not op.is_free]
        if not counted:
            yield f"{head}: free"
        places: dict[str, list[OpRecord]] = {}
        for op in counted:
            places.setdefault(place(op), []).append(op)
        for where, ops in places.items():
            macs = sum(op.macs for op in ops)
            which = "" if len(places) == 1 else f": {_names(ops)}"
            yield f"{head}{f', {macs:,} MACs' if macs else ''}{which} -> {where}"
            why: dict[tuple[str, str], list[OpRecord]] = {}
            for op in ops:
                for reason in op.why:
                    if reason.owner in before(op):
                        why.setdefault((reason.owner, reason.sentence), []).append(op)
            for (owner, sentence), about in why.items():
                which = "" if len({id(op) for op in about}) == len(ops) else f" ({_names(about)})"
                yield f"    not {owner}{which}: {sentence}"


def _names(ops: Sequence[OpRecord]) -> str:
    return ", ".join(dict.fromkeys(op.op.rpartition(".")[2] for op in ops))


@dataclass(frozen=True)
class ReasonCount:
    """How much a reason keeps from a target.

    Args:
        first: the reason as the costliest op has it.
        ops: how many ops have it.
        layers: how many layers these are of.
        macs: their multiply-accumulates.
        varies: whether it is said of others with another value.
    """

    first: Reason
    ops: int
    layers: int
    macs: int
    varies: bool

    @property
    def sentence(self) -> str:
        """The reason for people."""
        return self.first.sentence + (" (and with other values)" if self.varies else "")

    json_fields: ClassVar = ("*first", "ops", "layers", "macs", "varies")


def grouped(ops: Sequence[OpRecord]) -> tuple[Layer, ...]:
    """The layers that ops are of, by the model's names.

    An op belongs to the first layer that has one of its names, unless both have multiply-accumulates. One without names
    is a layer of its own.
    """
    groups: list[list[OpRecord]] = []
    of_name: dict[str, int] = {}
    has_macs: set[int] = set()
    for op in ops:
        numbers = [of_name[name] for name in op.layers if name in of_name]
        at = min((n for n in numbers if not (op.macs and n in has_macs)), default=len(groups))
        if at == len(groups):
            groups.append([])
            of_name.update((name, at) for name in op.layers)  # what follows an op belongs to it, not to one before it
        groups[at].append(op)
        of_name.update((name, at) for name in op.layers if name not in of_name)
        has_macs.update([at] if op.macs else [])
    digits = max(2, len(str(len(groups) - 1)))
    return tuple(Layer(number, tuple(group), digits) for number, group in enumerate(groups))


def reason_counts(layers: Sequence[Layer], before: Callable[[OpRecord], Sequence[str]]) -> tuple[ReasonCount, ...]:
    """Why targets did not take what another has, the reason that costs most multiply-accumulates first.

    Args:
        layers: from `grouped`.
        before: the labels of the targets that could have had an op before the one that has it.
    """
    by_reason: dict[tuple[object, ...], list[tuple[Layer, OpRecord, Reason]]] = {}
    for layer in layers:
        for op in layer.ops:
            for reason in op.why:
                if reason.owner in before(op) and not op.is_free:
                    text = reason.clause or reason.sentence
                    key = (reason.owner, reason.pattern, reason.kind, text)
                    by_reason.setdefault(key, []).append((layer, op, reason))
    counts = []
    for rows in by_reason.values():
        about = {id(op): op for _, op, _ in rows}.values()
        first = max(rows, key=lambda row: row[1].macs)[2]
        varies = len({reason.sentence for _, _, reason in rows}) > 1
        macs, numbers = sum(op.macs for op in about), {layer.number for layer, _, _ in rows}
        counts.append(ReasonCount(first, len(about), len(numbers), macs, varies))
    return tuple(sorted(counts, key=lambda one: (-one.macs, -one.layers, -one.ops)))
