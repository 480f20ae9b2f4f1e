"""Which layers a pattern takes: asked of its clauses, which are counted, and of the partitioner that a build has."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...errors import PluginError, UmaError
from ...lowering.build_targets import BuildTarget, BuildTargets
from ...pipeline.stages import Build
from ...relay.pattern import Graph, Mismatch, Pattern, match
from ...relay.pattern.matcher import Search
from ..deadline import place_in
from ..record import ClauseCount
from ..subject import Subject
from .layer import Layer, module_of, number_of, work_of

__all__ = ["Acceptance", "ClauseFailures", "Verdict", "acceptance_of", "failure_text", "failures_of", "placed"]


@dataclass(frozen=True)
class Verdict:
    """What a pattern says of a layer.

    Args:
        refused_by: the clauses that do not hold; empty where all do.
        reason: why it does not match at all; empty where it does.
        fault: what a clause or a test raised; empty where none did.
    """

    refused_by: tuple[str, ...] = ()
    reason: str = ""
    fault: str = ""

    @property
    def is_taken(self) -> bool:
        return not (self.refused_by or self.reason or self.fault)


class ClauseFailures:
    """Records the clauses and tests of patterns that raise: a build in which one does ends, so each is a mistake.

    Attributes:
        smallest: for each of them the layer with the least work on which it raises, and the text of `failure_text`.
        reported: the keys of those that are in a finding.
    """

    def __init__(self) -> None:
        self.smallest: dict[tuple[str, ...], tuple[Layer, str]] = {}
        self.reported: set[tuple[str, ...]] = set()

    def record(self, layer: Layer, error: PluginError, member: BuildTarget) -> str:
        """Record that a clause or a test raised on ``layer``, and return the text of that."""
        text, line = failure_text(error, member), _line_of(error, member)
        # The same line fails in the same way, whatever values the text shows.
        key = layer.pattern, type(error.__cause__).__name__, line or error.where or error.what
        if key not in self.smallest or work_of(layer) < work_of(self.smallest[key][0]):
            self.smallest[key] = layer, text
        return text


def failure_text(error: PluginError, member: BuildTarget) -> str:
    """Describe a clause or a test that raised: the exception, the pattern and clause, the plugin's file and line."""
    places = ", ".join(filter(None, (error.where, _line_of(error, member))))
    return f"{error.what}{f' ({places})' if places else ''}"


def _line_of(error: PluginError, member: BuildTarget) -> str:
    """The line of the plugin that raised, as file:line, else the line that did; empty where nothing was raised."""
    raised = None if error.__cause__ is None else error.__cause__.__traceback__
    package = member.plugin.entry.value.partition(":")[0].partition(".")[0]
    frames = traceback.extract_tb(raised)
    return place_in(package, raised) or (f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "")


def failures_of(subject: Subject) -> ClauseFailures:
    """The `ClauseFailures` that all checks of a target share."""
    failures: ClauseFailures = subject.cache.setdefault(f"clause failures of {subject.target}", ClauseFailures())
    return failures


def acceptance_of(subject: Subject) -> Acceptance:
    """An `Acceptance` of the accelerator under test that records clauses that raise for all checks of the target."""
    return Acceptance(subject.member, failures_of(subject))


class Acceptance:
    """Asks the patterns of one accelerator, and counts what their clauses answer.

    Args:
        member: the accelerator.
        failures: gets the clauses that raise.
    """

    def __init__(self, member: BuildTarget, failures: ClauseFailures | None = None) -> None:
        self._member = member
        self.failures = failures or ClauseFailures()
        self._single: dict[str, tuple[Pattern, ...]] = {}
        self._counts: dict[tuple[str, str], ClauseCount] = {}
        for pattern in member.patterns:
            for name in self._names(pattern):
                self._counts[pattern.name, name] = ClauseCount(pattern.name, name, 0, 0, 0)

    @property
    def counts(self) -> tuple[ClauseCount, ...]:
        """Of each clause, in the order of patterns and clauses."""
        return tuple(self._counts.values())

    def _names(self, pattern: Pattern) -> list[str]:
        return [
            single.predicate[0].name if isinstance(single.predicate, tuple) else _name(single)
            for single in self._singles(pattern)
        ]

    def _singles(self, pattern: Pattern) -> tuple[Pattern, ...]:
        """The pattern with each clause alone."""
        if pattern.name not in self._single:
            clauses = pattern.predicate
            if isinstance(clauses, (tuple, list)):
                singles = tuple(replace(pattern, predicate=(clause,)) for clause in clauses)
            else:
                singles = () if clauses is None else (pattern,)
            self._single[pattern.name] = singles
        return self._single[pattern.name]

    def ask(self, layer: Layer, count: bool = True) -> Verdict:
        """What the pattern of a layer says of it.

        Args:
            layer: the layer.
            count: whether the answers count.
        """
        pattern, graph = self._member.patterns[layer.pattern], Graph(layer.function)
        with self._member.target:
            try:
                return self._asked(pattern, layer, graph, count)
            except PluginError as error:
                return Verdict(fault=self.failures.record(layer, error, self._member))

    def _asked(self, pattern: Pattern, layer: Layer, graph: Graph, count: bool) -> Verdict:
        best: tuple[str, ...] | None = None
        for root in dict.fromkeys(layer.results):
            for candidate in Search(pattern, root, graph):
                refused: list[str] = []
                for single, name in zip(self._singles(pattern), self._names(pattern), strict=True):
                    try:
                        if single.rejection(candidate) is not None:
                            refused.append(name)
                    except PluginError:
                        if not refused:
                            raise
                        # It relies on the clauses before it, of which one does not hold.
                if best is None or len(refused) < len(best):
                    best = tuple(refused)
                if not refused:
                    break
        if best is None:
            said = match(pattern, layer.results[0], graph)
            return Verdict(reason=said.failure.reason if isinstance(said, Mismatch) else "it is not an output")
        if count:
            for name in self._names(pattern):
                counts = self._counts[pattern.name, name]
                no = name in best
                self._counts[pattern.name, name] = replace(
                    counts,
                    accepted=counts.accepted + (not no),
                    refused=counts.refused + no,
                    decisive=counts.decisive + (best == (name,)),
                )
        return Verdict(best)


def _name(pattern: Pattern) -> str:
    return str(getattr(pattern.predicate, "__name__", "predicate"))


def placed(layers: Sequence[Layer], members: BuildTargets) -> list[tuple[str, ...] | str]:
    """By which patterns each layer is taken in a build, in order: what the partitioner gave accelerators of it. A text
    where the build does not get as far, and says why."""
    if not layers:
        return []
    build = Build("attack", members, reuse=False)
    try:
        build.run(module_of(layers), "partition")
    except UmaError as error:
        if len(layers) == 1:
            return [f"{error.what}{f' ({error.where})' if error.where else ''}"]
        half = len(layers) // 2
        return [*placed(layers[:half], members), *placed(layers[half:], members)]
    patterns: list[list[str]] = [[] for _ in layers]
    assert build.placement is not None
    for region in build.placement.regions.values():
        for claim, call in zip(region.claims, region.calls, strict=True):
            for name in build.placement.module.spans[call]:
                number = number_of(name)
                if number is not None:
                    patterns[number].append(claim.match.pattern.name)
    return [tuple(names) for names in patterns]
