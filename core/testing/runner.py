"""Runs the checks, in order, over the targets of a plugin: one way in for the command line, Python and pytest."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ToolchainError, UmaError, UsageError
from ..plugins import PluginHost, default_host
from ..targets.kind import suggest
from ..toolchain.origins import PluginCodeError
from .deadline import DEFAULT_SECONDS, OutOfTime, place_in, stopped_after
from .outcome import Check, Outcome, Progress, quiet
from .record import CheckResult, Conformance
from .subject import DEFAULT_LAYERS, Subject, find_subjects
from .suite import CHECKS

__all__ = ["BoundCheck", "check", "check_names", "checks", "repeat", "run_check"]

_GRACE_S = 60.0
"""How much longer than twice its time a check may take before it is stopped in the middle of a step."""


def check_names() -> tuple[str, ...]:
    """The checks that there are, in the order in which they run."""
    return tuple(one.name for one in CHECKS)


def check(
    plugin: str,
    models: Sequence[str | os.PathLike[str]] = (),
    *,
    target: str | None = None,
    seed: int = 0,
    layers: int = DEFAULT_LAYERS,
    only: Sequence[str] = (),
    folder: str | os.PathLike[str] = "uma-check",
    plugins: PluginHost | None = None,
    progress: Progress = quiet,
    seconds: float = DEFAULT_SECONDS,
) -> tuple[Conformance, ...]:
    """Check whether a plugin keeps to the contract, and whether what it takes is computed as it must be.

    Args:
        plugin: the name of its distribution or of a kind, in any spelling, or the folder of its sources; it is
            installed.
        models: files of models, whose layers are checked besides those that are made.
        target: text of the one target to check; by default each kind with its defaults, and the targets that the
            plugin claims.
        seed: of what is drawn at random.
        layers: how many accepted layers are wanted, at least one.
        only: names of the checks to run (`check_names`); by default all of them.
        folder: where files go that repeat what was found; it is made when there is something to write.
        plugins: where targets come from (default: what is installed).
        progress: is told what is done next.
        seconds: how long one check of one target may take, more than 0. After that it begins nothing new, and its
            notes say what it did not come to. One that takes more than twice as long in a single step is stopped.

    Returns:
        What was found, for each target.

    Raises:
        UsageError: there is no such plugin, target, check or host; or the plugin serves hosts only.
        ModelError: a model cannot be read.
        PluginError: the plugin is broken or disabled, so that nothing of it can be checked.
    """
    chosen = _chosen(only)
    if type(layers) is not int or layers < 1:
        raise UsageError(f"{layers!r} is not a number of layers", hint="at least 1")
    if not seconds > 0:
        raise UsageError(f"the time limit {seconds!r} is not positive", hint="seconds, more than 0")
    subjects = find_subjects(
        plugin,
        tuple(Path(model) for model in models),
        plugins=plugins or default_host(),
        target=target,
        folder=Path(folder),
        seed=seed,
        layers=layers,
        seconds=seconds,
    )
    for subject in subjects[:1]:
        _read_models(subject)
    reports = [_conformance(subject, chosen, progress) for subject in subjects]
    return tuple(one for one in reports if one.results)  # of further targets not everything is checked again


def repeat(plugin: str, file: str | os.PathLike[str], plugins: PluginHost, progress: Progress = quiet) -> Conformance:
    """Run once more what a check has written down of a failure.

    Args:
        plugin: as of `check`.
        file: that the check wrote.
        plugins: where targets come from.
        progress: is told what is done next.

    Raises:
        UsageError: there is no such file, or it is of a target of another plugin.
        ModelError: it is none that a check wrote.
        PluginError: the plugin is broken or disabled.
        ToolchainError: nothing can be compiled on this machine.
    """
    from .fuzz import repeat as repeated
    from .fuzz.reproducers import read_file

    path = Path(file)
    written = read_file(path)
    [subject] = find_subjects(plugin, plugins=plugins, target=written.target, host=written.host)
    result = repeated(path, subject, progress)
    return _summarise(subject, (result,))


def _chosen(only: Sequence[str]) -> tuple[Check, ...]:
    for name in only:
        if name not in check_names():
            near = suggest(name, check_names())
            raise UsageError(f"there is no check {name!r}", hint=f"{near}checks: {', '.join(check_names())}")
    return tuple(one for one in CHECKS if not only or one.name in only)


def _read_models(subject: Subject) -> None:
    """Reads the models once, before anything else is done: a wrong path is said at once."""
    from ..pipeline.loading import load_model

    for path in subject.models:
        load_model(path, subject.members)


def _conformance(subject: Subject, chosen: Sequence[Check], progress: Progress) -> Conformance:
    return _summarise(subject, tuple(run_check(one, subject, progress) for one in chosen if one.concerns(subject)))


def _summarise(subject: Subject, results: tuple[CheckResult, ...]) -> Conformance:
    entry = subject.plugin.entry
    return Conformance(
        entry.distribution,
        entry.version,
        str(subject.target),
        subject.claims,
        results,
        str(subject.host),
        subject.seed,
    )


def run_check(one: Check, subject: Subject, progress: Progress) -> CheckResult:
    """One check of one target. A plugin that fails in it, so that it cannot go on, or does not come back, is a finding
    of the part that the check is about; a compiler that is missing is why it was skipped, or could not be ended."""
    steps = [one.title]

    def step(text: str) -> None:
        steps.append(text)
        progress(text)

    progress(f"{subject.target.name}: {one.title}")
    start, outcome = time.perf_counter(), Outcome(subject, one.name)
    limit_s = 2 * subject.seconds + _GRACE_S
    try:
        with stopped_after(limit_s):
            if one.runs:
                _require_libraries(subject)
            one.run(outcome, step)
    except OutOfTime as error:
        package = subject.plugin.entry.value.partition(":")[0].partition(".")[0]
        message = f"a step had no end, and was stopped after {time.perf_counter() - start:.0f} s: {steps[-1]}"
        outcome.find(one.part, message, place_in(package, error.__traceback__), "end")
    except (UsageError, ToolchainError) as error:
        if outcome.findings or outcome.notes:
            outcome.notes.append(f"could not be ended: {error.what}")
        else:
            outcome.skipped = error.what.splitlines()[0]
    except PluginCodeError as error:
        outcome.find("driver", error.what, error.where or "", "compiled")
    except UmaError as error:
        outcome.find(one.part, f"the check cannot go on: {error.what}", error.where or "")
    from .fuzz.failures import clause_findings

    for finding in clause_findings(subject, one.name):
        outcome.add(finding)
    seconds = time.perf_counter() - start
    return CheckResult(
        one.name,
        one.title,
        tuple(outcome.findings),
        tuple(outcome.notes),
        outcome.skipped,
        seconds,
        tuple(outcome.clauses),
        outcome.unchecked,
    )


def _require_libraries(subject: Subject) -> None:
    """ToolchainError where a library is missing that the target calls: that is not a fault of the plugin."""
    from ..toolchain.discovery import find_compiler
    from ..toolchain.libraries import require_library

    runtime = subject.member.runtime
    for library in () if runtime is None else runtime.libraries:
        require_library(library, find_compiler(), subject.target.name)


@dataclass(frozen=True)
class BoundCheck:
    """A check of a plugin, for a suite of tests: ``str`` names it, `run` does it.

    Args:
        plugin: as of `check`.
        name: of the check.
        target: text of the one target to check; None for all that `check` would.
        models, seed, layers, folder, plugins, seconds: as of `check`.
    """

    plugin: str
    name: str
    target: str | None = None
    models: tuple[str, ...] = ()
    seed: int = 0
    layers: int = DEFAULT_LAYERS
    folder: str = "uma-check"
    plugins: PluginHost | None = None
    seconds: float = DEFAULT_SECONDS

    def __str__(self) -> str:
        return self.name if self.target is None else f"{self.name}-{self.target}"

    def run(self) -> CheckResult:
        """What it gives, for all targets that are checked.

        Raises:
            UsageError, ModelError, PluginError: as `check`.
        """
        reports = check(
            self.plugin,
            self.models,
            target=self.target,
            seed=self.seed,
            layers=self.layers,
            only=(self.name,),
            folder=self.folder,
            plugins=self.plugins,
            seconds=self.seconds,
        )
        results = [result for one in reports for result in one.results]
        first = results[0]
        return CheckResult(
            self.name,
            first.title,
            tuple(finding for result in results for finding in result.findings),
            tuple(note for result in results for note in result.notes),
            first.skipped,
            sum(result.seconds for result in results),
            tuple(count for result in results for count in result.clauses),
            first.unchecked if all(result.unchecked for result in results) else "",
        )


def checks(
    plugin: str,
    *,
    target: str | None = None,
    models: Sequence[str | os.PathLike[str]] = (),
    seed: int = 0,
    layers: int = DEFAULT_LAYERS,
    only: Sequence[str] = (),
    folder: str | os.PathLike[str] = "uma-check",
    plugins: PluginHost | None = None,
    seconds: float = DEFAULT_SECONDS,
) -> tuple[BoundCheck, ...]:
    """The checks of a plugin, each to be run on its own: for ``pytest.mark.parametrize``. Imports no plugin::

        @pytest.mark.parametrize("check", uma.testing.checks("my_device"), ids=str)
        def test_conformance(check: uma.testing.BoundCheck) -> None:
            check.run().raise_for_findings()

    Args:
        plugin, target, models, seed, layers, only, folder, plugins, seconds: as of `check`.

    Raises:
        UsageError: there is no such check.
    """
    paths = tuple(os.fspath(model) for model in models)
    return tuple(
        BoundCheck(plugin, one.name, target, paths, seed, layers, os.fspath(folder), plugins, seconds)
        for one in _chosen(only)
    )
