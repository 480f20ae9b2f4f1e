"""The check of layers: see `uma.testing.fuzz`."""

from __future__ import annotations

from ..outcome import Check, Outcome, Progress

__all__ = ["LAYERS"]


def _run(outcome: Outcome, progress: Progress) -> None:
    from ..fuzz import check_layers

    result = check_layers(outcome.subject, progress)
    for finding in result.findings:
        outcome.add(finding)
    outcome.notes += result.notes
    outcome.skipped, outcome.clauses, outcome.unchecked = result.skipped, result.clauses, result.unchecked


LAYERS = Check("layers", "layers that the patterns take, computed three ways", "lowering", _run, "target", runs=True)
