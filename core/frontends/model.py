"""What the front-ends give."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..relay.module import IRModule

if TYPE_CHECKING:
    import numpy as np

__all__ = ["MAX_FILE_BYTES", "ImportedModel", "clean_text", "distinct_names", "variable_names"]

MAX_FILE_BYTES = 2**31 - 1
"""Of a model file, and of those that it keeps beside it."""


@dataclass(frozen=True)
class ImportedModel:
    """A model in the graph form.

    Args:
        module: with ``main``, whose parameters are the model's inputs, in their order; its signature says what the
            model calls them.
        notes: what the import did that a user may want to know.
        constants: inputs of the file that were fixed to a value, by name.
        simplified: what the import folded and dropped, in sentences.
        literal: the module with the floats that the file has between quantisations, where ``module`` has integers.
        hybrid_layers: the layers with float32 data and int8 weights that are computed as LiteRT does.
    """

    module: IRModule
    notes: tuple[str, ...] = ()
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    simplified: tuple[str, ...] = ()
    literal: IRModule | None = None
    hybrid_layers: tuple[str, ...] = ()


def clean_text(text: str) -> str:
    """A name from a file as it can be shown: what is not printable is replaced."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return ``names`` with a number appended to each repetition: ``o``, ``o_1``, ``o_2``.

    The first occurrence keeps its name, and a number that would repeat another of ``names`` is skipped.
    """
    used = set(names)
    repeated: dict[str, int] = {}
    result = []
    for name in names:
        if name in repeated:
            while (numbered := f"{name}_{repeated[name]}") in used:
                repeated[name] += 1
            used.add(numbered)
            result.append(numbered)
        else:
            repeated[name] = 1
            result.append(name)
    return result


def variable_names(names: Iterable[str]) -> list[str]:
    """Different identifiers of ASCII letters, digits and underscores that resemble ``names``, in their order."""
    used: set[str] = set()
    result = []
    for name in names:
        base = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:60]
        if not base or base[0].isdigit() or keyword.iskeyword(base):
            base = f"x_{base}" if base else "x"
        identifier, count = base, 1
        while identifier in used:
            count += 1
            identifier = f"{base}_{count}"
        used.add(identifier)
        result.append(identifier)
    return result
