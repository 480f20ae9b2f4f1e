"""Findings of clauses that raise, each with the smallest layer on which it does."""

from __future__ import annotations

import time

from ..record import Finding
from ..subject import Subject
from .acceptance import Acceptance, ClauseFailures, failures_of
from .layer import Layer
from .reproducers import layer_text
from .shrinking import measure, reductions

__all__ = ["clause_findings"]

_SHRINK_S = 5.0
"""CPU seconds for which a layer on which a clause raises is made smaller."""


def clause_findings(subject: Subject, check: str) -> list[Finding]:
    """Return a finding for each clause or test that raised, in whatever check of the target, and is in none yet.

    Args:
        subject: the target.
        check: the name of the check that reports them.
    """
    failures, findings = failures_of(subject), list[Finding]()
    with subject.members.known_ops():
        for key in [key for key in failures.smallest if key not in failures.reported]:
            failures.reported.add(key)
            layer, text = _shrunk(subject, key, *failures.smallest[key])
            message = f"a clause fails, which ends each build of such a layer: {text} ({layer.title})"
            findings.append(Finding("pattern", check, message, f"pattern {layer.pattern}", layer_text(layer)))
    return findings


def _shrunk(subject: Subject, key: tuple[str, ...], layer: Layer, text: str) -> tuple[Layer, str]:
    """The smallest layer that can be had on which the same line raises, and the text of that."""
    until = time.process_time() + _SHRINK_S
    while time.process_time() < until:
        for candidate in reductions(layer):
            if not candidate.function.params or measure(candidate) >= measure(layer):
                continue
            failures = ClauseFailures()
            Acceptance(subject.member, failures).ask(candidate, count=False)
            if key in failures.smallest:
                layer, text = failures.smallest[key]
                break
            if time.process_time() > until:
                break
        else:
            break
    return layer, text
