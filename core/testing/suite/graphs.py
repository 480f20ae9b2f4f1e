"""The check of whole graphs: see `uma.testing.fuzz`."""

from __future__ import annotations

from ..outcome import Check, Outcome, Progress

__all__ = ["GRAPHS"]


def _run(outcome: Outcome, progress: Progress) -> None:
    from ..fuzz import check_graphs

    result = check_graphs(outcome.subject, progress)
    for finding in result.findings:
        outcome.add(finding)
    outcome.notes += result.notes
    outcome.skipped, outcome.unchecked = result.skipped, result.unchecked


GRAPHS = Check("graphs", "random graphs around the layers, with the host and with others", "lowering", _run, "target")
