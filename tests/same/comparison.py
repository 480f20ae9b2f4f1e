"""Compare two outcomes of one build: what differs, and of which kind it is."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from tests.same.builds import Build, Outcome

__all__ = ["KINDS", "Difference", "compare"]

KINDS = {
    "outcome": "one side builds and the other does not, or the class of the error (the exit code) differs",
    "message": "what the build prints, with the same exit code",
    "file": "a file that one side writes and the other does not",
    "code": "a C source, header, assembler source or build file, beyond comments",
    "comments": "the same, in comments, blank lines and trailing spaces only",
    "metadata": "a value of metadata.json; `key` is its path, with [] for each index of a list",
    "dump": "the text of a stage, or the constants beside it",
    "data": "any other file: weights",
}
"""Kinds of differences."""

Text = Callable[[str], "str | None"]
"""Gives the text of a file by its digest; None for one that is not text."""


@dataclass(frozen=True)
class Difference:
    """One difference of a build.

    Args:
        build: the model and the configuration.
        kind: one of `KINDS`.
        file: the path of the file, empty if it is not about one.
        key: of metadata, the path of the value.
        change: of metadata and files: ``added``, ``removed`` or ``changed``.
        before, after: the two texts, of metadata the values as JSON; None if there is none, or none that is text.
    """

    build: Build
    kind: str
    file: str = ""
    key: str = ""
    change: str = "changed"
    before: str | None = None
    after: str | None = None

    @property
    def key_pattern(self) -> str:
        """Return the key with ``[]`` for each index of a list."""
        return re.sub(r"\[\d+\]", "[]", self.key)

    def show(self, limit: int = 12) -> list[str]:
        """Return the lines of a short diff."""
        if self.before is None or self.after is None:
            value = self.after if self.before is None else self.before
            return [f"{'+' if self.change == 'added' else '-'} {_shorten(value)}"] if value else ["(not text)"]
        lines = list(difflib.unified_diff(self.before.splitlines(), self.after.splitlines(), lineterm="", n=1))[2:]
        shown = [_shorten(line) for line in lines[:limit]]
        return [*shown, f"... {len(lines) - limit} more lines"] if len(lines) > limit else shown


def _shorten(line: str, width: int = 160) -> str:
    line = line.splitlines()[0] if line else line
    return line if len(line) <= width else f"{line[:width]}..."


def compare(build: Build, before: Outcome, after: Outcome, text: Text) -> Iterator[Difference]:
    """Yield all differences of a build, from the base to the work tree."""
    if before.code != after.code:
        shown = (f"{describe_code(one.code)}\n{one.message}" for one in (before, after))
        yield Difference(build, "outcome", "", "", "changed", *shown)
        return
    if before.message != after.message:
        yield Difference(build, "message", "", "", "changed", before.message, after.message)
    for file in sorted({*before.files, *after.files}):
        digests = before.files.get(file), after.files.get(file)
        if digests[0] == digests[1]:
            continue
        texts = [None if digest is None else text(digest) for digest in digests]
        if None in digests:
            change = "added" if digests[0] is None else "removed"
            yield Difference(build, "dump" if file.startswith("dump/") else "file", file, "", change, *texts)
        elif file == "out/metadata.json" and None not in texts:
            yield from _metadata(build, file, before, after, text)
        else:
            kind = _kind(file, *texts)
            yield Difference(build, kind, file, "", "changed", *texts)


def describe_code(code: int | str | None) -> str:
    """Return what an exit code says of a build."""
    if isinstance(code, int):
        return "builds" if code == 0 else f"ends with exit code {code}"
    return "raises" if code is None else code


_C_FILE = re.compile(r"\.[chS]$|/Makefile$|\.txt$|\.mk$|\.cmake$")
_C_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
_HASH_LINE = re.compile(r"^\s*#.*$", re.MULTILINE)


def _kind(file: str, before: str | None, after: str | None) -> str:
    if file.startswith("dump/"):
        return "dump"
    if not _C_FILE.search(file):
        return "data"
    same = before is not None and after is not None and _strip_comments(file, before) == _strip_comments(file, after)
    return "comments" if same else "code"


def _strip_comments(file: str, text: str) -> list[str]:
    """Return the lines of a source without comments, blank lines and trailing spaces."""
    if file.endswith((".c", ".h", ".S")):
        text = _C_TOKEN.sub(lambda match: " " if match[0].startswith("/") else match[0], text)
    else:
        text = _HASH_LINE.sub("", text)
    return [line.rstrip() for line in text.splitlines() if line.strip()]


# --- metadata --------------------------------------------------------------------------------------------------------


def _metadata(build: Build, file: str, before: Outcome, after: Outcome, text: Text) -> Iterator[Difference]:
    """Yield the values that differ. Digest and size of a file, which change with the file, are not among them."""
    texts = [text(outcome.files[file]) or "" for outcome in (before, after)]
    try:
        records = [json.loads(content) for content in texts]
    except ValueError:
        yield Difference(build, "metadata", file, "(no JSON)", "changed", *texts)
        return
    pairs = zip(records, (before, after), strict=True)
    values = [dict(_flatten(_hide_digests(record, outcome), "")) for record, outcome in pairs]
    changed = False
    for path in sorted({*values[0], *values[1]}):
        pair = values[0].get(path), values[1].get(path)
        if pair[0] != pair[1]:
            changed = True
            change = "added" if pair[0] is None else "removed" if pair[1] is None else "changed"
            yield Difference(build, "metadata", file, path, change, *pair)
    if not changed and len({re.sub(r"[0-9a-f]{64}|\d+", "", content) for content in texts}) > 1:
        yield Difference(build, "metadata", file, "(order of keys, or spaces)", "changed", *texts)


def _hide_digests(value: Any, outcome: Outcome) -> Any:
    """Return the metadata without digest and size where a record has the digest of a file of the artifact."""
    sizes = {digest: outcome.sizes.get(name) for name, digest in outcome.files.items()}

    def hide(item: Any, known: Collection[object] = ()) -> Any:
        if isinstance(item, list):
            return [hide(one) for one in item]
        if isinstance(item, dict):
            digests = [one for one in item.values() if isinstance(one, str) and one in sizes]
            values_of_file = {*digests, *(sizes[digest] for digest in digests)}
            return {key: hide(one, values_of_file) for key, one in item.items()}
        return "of the file" if item in known else item

    return hide(value)


def _flatten(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield each value as JSON, by its path."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flatten(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _flatten(item, f"{path}[{index}]")
    else:
        yield path, json.dumps(value)
