"""What a run says: a table of the configurations, the rows of allowed differences, and the differences beyond them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.same.allowed import Row, explain
from tests.same.builds import TOO_LONG, Build, Outcome
from tests.same.comparison import Difference, Text, compare, describe_code

__all__ = ["Report"]

_WIDTHS = (8, 9, 8, 9, 8, 16)

MOST_GROUPS = 20
"""How many groups of differences are shown."""


class Report:
    """Compares the outcomes of two sides.

    Args:
        builds: all that were built.
        before, after: the outcomes of the base and of the work tree, by the keys of builds.
        rows: allowed differences.
        text: gives the text of a file by its digest.

    Attributes:
        unexplained: the differences that no row allows.
        counts: how many differences each row allows.
        is_complete: whether all builds were compared: none took too long.
    """

    def __init__(
        self,
        builds: Sequence[Build],
        before: Mapping[str, Outcome],
        after: Mapping[str, Outcome],
        rows: Sequence[Row],
        text: Text,
    ) -> None:
        self.rows, self.counts = rows, [0] * len(rows)
        self.unexplained: list[Difference] = []
        self._lines: dict[str, _Line] = {}
        self.is_complete = True
        self._unfinished: list[str] = []
        for build in builds:
            pair = before[build.key], after[build.key]
            differences = list(compare(build, *pair, text))
            unexplained, counts = explain(rows, differences)
            self.counts = [a + b for a, b in zip(self.counts, counts, strict=True)]
            self.unexplained += unexplained
            self._lines.setdefault(build.configuration.name, _Line()).add(pair, len(differences), len(unexplained))
            codes = [outcome.code for outcome in pair]
            self.is_complete = self.is_complete and TOO_LONG not in codes
            if any(isinstance(code, str) for code in codes):
                says = " / ".join(dict.fromkeys(map(describe_code, codes)))
                self._unfinished.append(f"  {build.model.name} for {build.configuration.name}: {says}")

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report."""
        titles = zip(("builds", "refused", "equal", "allowed", "differ", "CPU seconds"), _WIDTHS, strict=True)
        yield f"{'configuration':<14}{''.join(f'{title:>{width}}' for title, width in titles)}"
        for name, line in [*self._lines.items(), ("all", sum(self._lines.values(), _Line()))]:
            yield f"{name:<14}{line}"
        if self._unfinished:
            yield "crashed or took too long:"
            yield from self._unfinished
        for row, count in zip(self.rows, self.counts, strict=True):
            yield f"allowed, {count} differences: {row.reason}" if count else f"allowed, explains nothing: {row.reason}"
        if not self.unexplained:
            verdict = "no difference beyond these" if any(self.counts) else "no difference"
            yield verdict if self.is_complete else f"{verdict} in what did not take too long: run it again"
            return
        builds = len({difference.build for difference in self.unexplained})
        yield f"{len(self.unexplained)} differences in {builds} builds are not allowed:"
        groups = sorted(self._groups().values(), key=len, reverse=True)
        for group in groups[:MOST_GROUPS]:
            yield from _show(group)
        if len(groups) > MOST_GROUPS:
            yield f"and {len(groups) - MOST_GROUPS} more groups of differences"

    def _groups(self) -> dict[object, list[Difference]]:
        """Return the differences by what they have in common: kind, file or key, and the lines that differ."""
        groups: dict[object, list[Difference]] = {}
        for difference in self.unexplained:
            name = Path(difference.build.model.name).name.replace("-", "_")
            words = " ".join(line for line in difference.show() if line.startswith(("+", "-")))
            shown, file = (re.sub(r"\d+", "0", text.replace(name, "NAME")) for text in (words, difference.file))
            groups.setdefault((difference.kind, file, difference.key_pattern, difference.change, shown), []).append(
                difference
            )
        return groups


def _show(group: Sequence[Difference]) -> Iterator[str]:
    """Yield a heading, where the differences of a group are, and the diff of the first."""
    first = group[0]
    where = " ".join(part for part in (first.file, first.key_pattern) if part)
    yield ""
    yield f"{first.kind} {first.change}{f' in {where}' if where else ''}: {len(group)} times"
    for title, names in (
        ("configurations", Counter(one.build.configuration.name for one in group)),
        ("models", Counter(one.build.model.name for one in group)),
    ):
        shown = ", ".join(list(names)[:6])
        yield f"  {title}: {shown}{f', and {len(names) - 6} more' if len(names) > 6 else ''}"
    yield from (f"  | {line}" for line in first.show())


class _Line:
    """What one configuration adds up to."""

    def __init__(self, numbers: Sequence[float] = (0, 0, 0, 0, 0, 0, 0)) -> None:
        self._numbers = list(numbers)

    def add(self, pair: tuple[Outcome, Outcome], differences: int, unexplained: int) -> None:
        refused = all(outcome.code != 0 for outcome in pair)
        counts = (1, refused, not differences, bool(differences) and not unexplained, bool(unexplained))
        numbers = (*counts, *(outcome.cpu_seconds for outcome in pair))
        self._numbers = [a + b for a, b in zip(self._numbers, numbers, strict=True)]

    def __add__(self, other: _Line) -> _Line:
        return _Line([a + b for a, b in zip(self._numbers, other._numbers, strict=True)])

    def __str__(self) -> str:
        *counts, before, after = self._numbers
        texts = [*(str(int(count)) for count in counts), f"{before:.0f} + {after:.0f}"]
        return "".join(f"{text:>{width}}" for text, width in zip(texts, _WIDTHS, strict=True))
