"""Differences that an issue allows: the rows of `allowed.toml`."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.same.comparison import KINDS, Difference
from tests.same.errors import SameError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["FILE", "Row", "explain", "read"]

FILE = Path(__file__).with_name("allowed.toml")


@dataclass(frozen=True)
class Row:
    """One row: which differences, and why. Patterns are those of file names: ``*`` stands for any text.

    Args:
        reason: the issue and the point that make the difference.
        kinds: of `KINDS`; all if there are none.
        models, configurations, files, keys: patterns, one of which must match each; all by default.
        changes: ``added``, ``removed``, ``changed``; all by default.
        renamed: the old and the new path of a metadata key; values, and what is below the key, must be the same.
    """

    reason: str
    kinds: tuple[str, ...] = ()
    models: tuple[str, ...] = ("*",)
    configurations: tuple[str, ...] = ("*",)
    files: tuple[str, ...] = ("*",)
    keys: tuple[str, ...] = ("*",)
    changes: tuple[str, ...] = ()
    renamed: tuple[str, ...] = ()

    def explains(self, difference: Difference) -> bool:
        """Whether the row is about this difference."""
        return (
            (not self.kinds or difference.kind in self.kinds)
            and (not self.changes or difference.change in self.changes)
            and _matches(difference.build.model.name, self.models)
            and _matches(difference.build.configuration.name, self.configurations)
            and _matches(difference.file, self.files)
            and _matches(difference.key_pattern, self.keys)
        )

    def renames(self, differences: Sequence[Difference]) -> set[int]:
        """Return the positions of the differences of one build that are the renamed key."""
        old, new = self.renamed
        removed = _find_below(old, "removed", differences)
        added = _find_below(new, "added", differences)
        pairs = ((removed[path], added[path]) for path in removed.keys() & added.keys())
        return {at for a, b in pairs if differences[a].before == differences[b].after for at in (a, b)}


def _matches(text: str, patterns: Sequence[str]) -> bool:
    # A pattern of a key may have [] in it, which is not a set of characters.
    return any(fnmatchcase(text, pattern.replace("[", "[[]")) for pattern in patterns)


def _find_below(key: str, change: str, differences: Sequence[Difference]) -> dict[tuple[str, ...], int]:
    """Return the positions of the differences at or below a key, by all that their paths have besides the key."""
    # The indices of lists within the key tell values apart.
    pattern = re.compile(r"\[(\d+)\]".join(map(re.escape, key.split("[]"))) + r"($|[.\[].*)")
    positions = {}
    for position, difference in enumerate(differences):
        match = pattern.fullmatch(difference.key)
        if match and difference.kind == "metadata" and difference.change == change:
            positions[match.groups()] = position
    return positions


def read(path: Path = FILE) -> list[Row]:
    """Return the rows of a file, ``[[allowed]]`` tables whose keys are the arguments of `Row`.

    Raises:
        SameError: a row is not one.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("allowed", [])
    except ValueError as error:
        raise SameError(f"{path} is not TOML: {error}", "see the comment at its beginning") from error
    return [_row(path, number, table) for number, table in enumerate(tables, 1)]


def _row(path: Path, number: int, table: dict[str, Any]) -> Row:
    known = [field.name for field in fields(Row)]
    if not table.get("reason"):
        raise SameError(f"row {number} of {path} has no reason", "name the issue and the point that allow it")
    for key in table:
        if key not in known:
            raise SameError(f"row {number} of {path} has the key {key!r}", f"keys: {', '.join(known)}")
    for kind in table.get("kinds", ()):
        if kind not in KINDS:
            raise SameError(f"row {number} of {path} has the kind {kind!r}", f"kinds: {', '.join(KINDS)}")
    for key, value in table.items():
        if key != "reason" and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            raise SameError(f"row {number} of {path}: {key} is not a list of texts", f'write {key} = ["..."]')
    if len(table) == 1:
        raise SameError(f"row {number} of {path} allows every difference", f"add one of {', '.join(known[1:])}")
    if len(table.get("renamed", ["old", "new"])) != 2:
        raise SameError(f"row {number} of {path}: renamed has not two keys", 'write renamed = ["OLD", "NEW"]')
    lists = {key: tuple(value) for key, value in table.items() if key != "reason"}
    return Row(table["reason"], **lists)


def explain(rows: Sequence[Row], differences: Sequence[Difference]) -> tuple[list[Difference], list[int]]:
    """Return the differences of one build that no row explains, and how many each row explains.

    Where several rows explain a difference, it counts for the first.
    """
    counts, left = [0] * len(rows), list(differences)
    for position, row in enumerate(rows):
        renames = row.renames(left) if row.renamed else range(len(left))
        explained = {at for at in renames if row.explains(left[at])}
        counts[position] = len(explained)
        left = [difference for at, difference in enumerate(left) if at not in explained]
    return left, counts
