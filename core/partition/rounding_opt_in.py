"""Consent to another rounding: which layers may be offered to accelerators in their own fixed points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["OptInMatch", "RoundingOptIn"]


@dataclass(frozen=True)
class RoundingOptIn:
    """What may be rounded otherwise.

    Args:
        everything: whether all may of which nothing else is said.
        layers: of single layers whether they may.
    """

    everything: bool = True
    layers: Mapping[str, bool] = field(default_factory=dict)

    def covers(self, layers: Iterable[str]) -> bool:
        """Whether an op of these layers may be rounded otherwise: none of them is kept as it is, and one is named,
        or everything may be."""
        answers = [self.layers[layer] for layer in layers if layer in self.layers]
        return all(answers) if answers else self.everything


@dataclass(frozen=True)
class OptInMatch:
    """What an accelerator took in a form of its own.

    Args:
        layers: of the model.
        owner: the accelerator's label.
        what: ``requantisation``, ``addition`` or ``average``.
        rounding: how it rounds now.
        bound: how many steps its result may be off from what it was, for the same operands.
    """

    layers: tuple[str, ...]
    owner: str
    what: str
    rounding: str
    bound: int
