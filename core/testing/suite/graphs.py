"""The check of whole graphs: see `uma.testing.fuzz`."""

from __future__ import annotations

from ..outcome import Check, Outcome, Progress

__all__ = ["GRAPHS"]


def _run(outcome: Outcome, progress: Progress) -> None:
    from ..fuzz import check_graphs

    found = check_graphs(outcome.subject, progress)
    for finding in found.findings:
        outcome.add(finding)
    outcome.notes += found.notes
    outcome.skipped, outcome.unchecked = found.skipped, found.unchecked


GRAPHS = Check("graphs", "random graphs around the layers, with the host and with others", "lowering", _run, "target")
