"""What a front-end folds and drops of a file, told in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from .model import clean_text

__all__ = ["Simplified"]

_SHOWN = 5
"""How many names a sentence has."""

_NAME_CHARS = 60


@dataclass
class Simplified:
    """What was folded and dropped.

    Args:
        computed: the operators that were computed at import, how often each.
        idle: layer and operator of those that give what they were given.
        unneeded: layer and operator of those that no output depends on.
        results: result, layer and operator of those results that nothing uses, of operators that have others.
        constants, inputs: names of those that nothing uses which an output depends on.
    """

    computed: Counter[str] = field(default_factory=Counter)
    idle: list[tuple[str, str]] = field(default_factory=list)
    unneeded: list[tuple[str, str]] = field(default_factory=list)
    results: list[tuple[str, str, str]] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)

    def sentences(self) -> tuple[str, ...]:
        """The same for people."""
        ops = [f"{times} {_shown(op)}" for op, times in sorted(self.computed.items())]
        results = [f"{_quoted(name)} of {_layer(*node)}" for name, *node in self.results]
        entries = (
            (self.computed.total(), "operator", "computed at import, from constants and shapes", ", ".join(ops)),
            (len(self.idle), "operator", "left out, for what it is given is what it gives", _layers(self.idle)),
            (len(self.unneeded), "operator", "left out, for no output depends on it", _layers(self.unneeded)),
            (len(results), "result", "left out, for nothing uses it", _listed(results)),
            (len(self.constants), "constant", "left out, for no output depends on it", _names(self.constants)),
            (len(self.inputs), "input", "kept, though no output depends on it", _names(self.inputs)),
        )
        return tuple(
            f"{count} {noun}{'s are' if count > 1 else ' is'} {why}: {shown}"
            for count, noun, why, shown in entries
            if count
        )

    def note_unused(self, constants: Sequence[str], inputs: Sequence[str], used: Collection[str]) -> None:
        """Note those that are not ``used``."""
        self.constants += [name for name in constants if name not in used]
        self.inputs += [name for name in inputs if name not in used]


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more


def _layers(layers: Sequence[tuple[str, str]]) -> str:
    return _listed([_layer(*one) for one in layers])


def _names(names: Sequence[str]) -> str:
    return _listed([_quoted(name) for name in names])


def _layer(layer: str, op: str) -> str:
    return f"{_quoted(layer)} ({_shown(op)})"


def _quoted(name: str) -> str:
    return f"'{_shown(name)}'"


def _shown(name: str) -> str:
    text = clean_text(name)
    return text if len(text) <= _NAME_CHARS else f"{text[: _NAME_CHARS - 3]}..."
