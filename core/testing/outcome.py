"""What a check is, and what it gives."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from .record import ClauseCount, Finding, Part
from .subject import Subject

__all__ = ["Check", "Outcome", "Progress", "quiet"]

Progress: TypeAlias = Callable[[str], None]
"""Is told what is done next, in a few words."""


def quiet(step: str) -> None:
    """Progress that nobody looks at."""


@dataclass
class Outcome:
    """What a check gives; it is filled while the check runs.

    Args:
        subject: what is checked.
        check: the name of the check.
        findings, notes, skipped, clauses, unchecked: as of `CheckResult`.
    """

    subject: Subject
    check: str
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: str = ""
    clauses: tuple[ClauseCount, ...] = ()
    unchecked: str = ""

    def find(self, part: Part, what: str, where: str = "", about: str = "") -> None:
        """Adds a finding that needs no layer to be shown.

        Args:
            part, what, where: as of `Finding`.
            about: what the check looked at, behind its name: ``attributes`` for ``registration.attributes``.
        """
        self.add(Finding(part, f"{self.check}.{about}" if about else self.check, what, where))

    def add(self, finding: Finding) -> None:
        """Adds a finding; where it has no command that repeats it, that which runs this check again."""
        subject = self.subject
        command = ["uma", "check", subject.plugin.entry.distribution, *map(str, subject.models), "--only", self.check]
        command += ["--target", str(subject.target), *(["--seed", str(subject.seed)] if subject.seed else [])]
        self.findings.append(finding if finding.repeat else replace(finding, repeat=shlex.join(command)))

    def note(self, text: str) -> None:
        """Adds a note, once."""
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True)
class Check:
    """One check.

    Args:
        name: by which it is asked for: ``registration``.
        title: what it looks at, in words.
        part: of the plugin that is at fault where the plugin fails and the check cannot go on.
        run: does it.
        scope: whether it is done once for a ``plugin``, for each ``kind`` of it, or for each ``target``.
        runs: whether it runs what the plugin gives, so that libraries have to be there with which that is linked.
    """

    name: str
    title: str
    part: Part
    run: Callable[[Outcome, Progress], None]
    scope: Literal["plugin", "kind", "target"]
    runs: bool = False

    def concerns(self, subject: Subject) -> bool:
        """Whether it is done for this target, of all those of the plugin."""
        return self.scope == "target" or (subject.leads if self.scope == "plugin" else subject.is_first)
