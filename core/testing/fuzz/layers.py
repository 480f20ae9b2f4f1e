"""The check of layers: made up, varied, run three ways; what differs shrunk, and written down."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UmaError
from ...relay.expr import Expr
from ...relay.module import IRModule
from ...relay.op import Op
from ..deadline import OUT_OF_TIME, Deadline
from ..record import CheckResult, Finding
from ..subject import Subject
from .acceptance import Acceptance, acceptance_of
from .devices import check_devices
from .failures import clause_findings
from .interpreter_runs import key_of_lowered
from .layer import Layer, calls_in
from .layer_images import images_of, lowered_of
from .reach import Reach
from .reproducers import command, layer_text, read_file, write_file
from .seeds import convert_samples, generate_layers, read_layers
from .selection import Attack
from .shrinking import Shrinker, measure
from .triage import ALL_WORK, IGNORED, LARGE, Judge, LayerFailure, fault_of_unbuilt, ignored_attribute
from .values import sizes_of

if TYPE_CHECKING:
    import numpy as np

    from ...runtime.model_process import Isolation

__all__ = ["STEP_LIMIT_S", "check_layers", "findings_of", "repeat", "run_layers"]

Progress = Callable[[str], None]

_IMAGE = 60
"""Layers of one image."""

_LEAST = 6
"""Layers of one pattern, whatever is wanted in all."""

_SHRINK_S, _ALL_SHRINK_S = 25.0, 100.0
"""How long one failure is made smaller, and all of a check."""

STEP_LIMIT_S = 10.0
"""How long one step may take before it hangs."""

_LEAST_SHRINK_S = 20.0
"""How long failures are made smaller, even if there is no time left."""

_MADE_SHARE = 0.5
"""Of the time that there is, in which layers are made up; the rest is for running them."""

_SHARES = 3
"""A pattern may take so many times its equal share: others take less."""

_ALIKE = 2
"""Failures of one part that show alike, of one pattern, that are looked at: they may be different."""


def check_layers(subject: Subject, progress: Progress) -> CheckResult:
    """Try to break the promise that all that the patterns of a target take is computed as the ops mean it.

    Args:
        subject: the target.
        progress: told of each part of the work that begins.

    Raises:
        ToolchainError: nothing can be compiled on this machine.
        PluginError: the plugin gives no patterns.
    """
    import numpy as np

    from ...runtime.model_process import Isolation

    start, member, deadline = time.perf_counter(), subject.member, Deadline(subject.seconds)
    rng = np.random.default_rng(subject.seed)
    notes: list[str] = []
    findings: list[Finding] = []
    with subject.members.known_ops(), Isolation(STEP_LIMIT_S) as isolation:
        acceptance, reach = acceptance_of(subject), Reach(member)
        attacks: list[Attack] = []
        layers = _layers(subject, acceptance, progress, rng, notes, findings, deadline.part(_MADE_SHARE), attacks)
        wrong: set[Layer] = set()
        faults = run_layers(subject, layers, isolation, progress, notes, None, wrong, deadline, reach)
        if alone := [one for attack in attacks for one in _missed(attack, reach)]:
            faults += run_layers(subject, alone, isolation, progress, notes, None, wrong, deadline, reach)
        if layers and deadline.is_over:
            notes.append(f"{OUT_OF_TIME}layers were not run on two devices in one image")
        elif layers:
            progress("two devices in one image")
            wrong |= {fault.layer for fault in faults}
            faults += check_devices(subject, [layer for layer in layers if layer not in wrong], isolation, notes)
        findings += findings_of(subject, acceptance, faults, isolation, progress, notes, "layers", deadline)
        at_fault = {fault.layer.pattern for fault in faults}
        findings += reach.findings([pattern.name for pattern in member.patterns if pattern.name not in at_fault])
        findings = clause_findings(subject, "layers") + findings
    return CheckResult(
        "layers",
        "layers that the patterns take, computed three ways",
        tuple(findings),
        tuple(notes),
        "" if len(member.patterns) else "the target has no patterns",
        time.perf_counter() - start,
        acceptance.counts,
        "" if reach.layers else "no layer was built",
    )


def _missed(attack: Attack, reach: Reach) -> Iterator[Layer]:
    """What is varied in layers that did not reach the device, each by itself: another variation may be why."""
    for layer, pack in attack.packs.items():
        if layer in reach.missed:
            yield from attack.alone(pack)


def _layers(
    subject: Subject,
    acceptance: Acceptance,
    progress: Progress,
    rng: np.random.Generator,
    notes: list[str],
    findings: list[Finding],
    deadline: Deadline,
    attacks: list[Attack],
) -> list[Layer]:
    """The layers to run: of each pattern, of the models, and of the plugin. Each pattern has its share of the time.
    ``attacks`` gets that of each pattern."""
    member = subject.member
    sizes, patterns = sizes_of(member), list(member.patterns)
    cut: dict[str, list[Layer]] = {}
    of_each = dict.fromkeys((path.name for path in subject.models), 0)
    for layer in read_layers(subject.models, subject.members):
        cut.setdefault(layer.pattern, []).append(layer)
        of_each[layer.origin] += 1
    notes += [f"{name}: {count} kinds of layers that the patterns take" for name, count in of_each.items()]
    for layer in convert_samples(_samples(subject)):
        accepting = next(
            (p.name for p in patterns if acceptance.ask(replace(layer, pattern=p.name), False).is_taken), None
        )
        if accepting is None:
            notes.append(f"no pattern takes the sample {layer.title}")
        else:
            cut.setdefault(accepting, []).append(replace(layer, pattern=accepting))
    share = max(_LEAST, subject.layers // max(1, len(patterns)))
    chosen: list[Layer] = []
    for number, pattern in enumerate(patterns):
        if deadline.is_over:
            missing = ", ".join(other.name for other in patterns[number:])
            notes.append(f"{OUT_OF_TIME}no layers were made of {missing}")
            break
        progress(f"layers of {pattern.name}")
        until = deadline.part(min(1.0, _SHARES / (len(patterns) - number)))
        seeds, reasons = generate_layers(pattern, member.target, acceptance, sizes, rng)
        seeds += cut.get(pattern.name, [])
        if not seeds:
            said = f" ({'; '.join(reasons[:3])})" if reasons else ""
            problem = f"no layer was found that pattern {pattern.name} takes{said}"
            if reasons and (pattern.lower is not None or pattern.extern is not None):
                findings.append(
                    Finding("pattern", "layers", f"{problem}: it is never matched", f"pattern {pattern.name}")
                )
            else:
                notes.append(f"{problem}; give one with Claims.samples")
            continue
        attack = Attack(seeds, acceptance, sizes, rng, until)
        attacks.append(attack)
        some = attack.layers(share, number)
        notes.append(
            f"{pattern.name}: {len(seeds)} layers made up, {attack.tried} variations tried, {attack.refused} refused; "
            f"{len(some)} layers run, with {attack.opened_run} of {attack.opened} variations of opened attributes"
        )
        if attack.out_of_time:
            notes.append(f"{OUT_OF_TIME}not all that can be varied of {pattern.name} was tried")
        notes += [f"{pattern.name}: {edge.text}" for edge in attack.edges]
        chosen += some
    return chosen


def _samples(subject: Subject) -> Sequence[Expr | IRModule]:
    if subject.claims.samples is None:
        return ()
    samples: Sequence[Expr | IRModule] = subject.plugin.run(
        "the samples of its claims", subject.claims.samples, subject.target
    )
    return samples


def run_layers(
    subject: Subject,
    layers: Sequence[Layer],
    isolation: Isolation,
    progress: Progress,
    notes: list[str],
    before: Mapping[str, np.ndarray] | None = None,
    wrong: set[Layer] | None = None,
    deadline: Deadline | None = None,
    reach: Reach | None = None,
) -> list[LayerFailure]:
    """What is wrong with layers, at most one fault of each.

    Args:
        subject: what they are built for.
        layers: the layers.
        isolation: the process that they run in.
        progress: told of each part of the work that begins.
        notes: is told what was done.
        before: what the only layer is given before all else; None for nothing.
        wrong: gets the layers that differ, and were not looked into.
        deadline: after which no more images are made; None for none.
        reach: gets where layers run; None where nobody asks.
    """
    import numpy as np

    start, interpreted, deadline = time.perf_counter(), 0, deadline or Deadline()
    faults: list[LayerFailure] = []
    accepted = count = at = 0
    most = _IMAGE
    while at < len(layers):
        if deadline.is_over:
            missing = Counter(layer.pattern for layer in layers[at:])
            said = ", ".join(f"{number} of {pattern}" for pattern, number in missing.items())
            notes.append(f"{OUT_OF_TIME}{len(layers) - at} layers were not run: {said}")
            break
        some, began = layers[at : at + most], time.monotonic()
        at += len(some)
        progress(f"compile layers {at - len(some) + 1} to {at} of {len(layers)}")
        images, unbuilt = images_of(some, subject.members, isolation, most)
        faults += [fault_of_unbuilt(one) for one in unbuilt]
        for image in images:
            progress(f"run layers {at - len(some) + 1} to {at} of {len(layers)}")
            accepted += sum(bool(names) for names in image.patterns)
            if reach is not None:
                reach.record(image)
            share = ALL_WORK * len(image.layers) // len(layers)
            rng, tolerance = np.random.default_rng(subject.seed), subject.claims.tolerance
            judge = Judge(image, rng, tolerance=tolerance, before=before, all_work=share)
            faults += judge.run()
            if judge.more:
                if wrong is not None:
                    wrong.update(judge.more)
                notes.append(f"{len(judge.more)} more layers of one image differ, and were not looked into")
            interpreted += judge.interpreted
        count += len(images)
        one_s = (time.monotonic() - began) / len(some)
        most = max(1, int(min(_IMAGE, deadline.seconds_left / one_s)))
    seconds = time.perf_counter() - start
    notes.append(
        f"{at} layers in {count} images, {accepted} of them on the accelerator, {interpreted} interpreted, "
        f"in {seconds:.0f} s"
    )
    return faults


def findings_of(
    subject: Subject,
    acceptance: Acceptance | None,
    faults: Sequence[LayerFailure],
    isolation: Isolation,
    progress: Progress,
    notes: list[str],
    check: str,
    deadline: Deadline | None = None,
) -> list[Finding]:
    """Findings, one for faults that are alike, each with the smallest layer that shows it and a file that repeats
    it."""
    groups: dict[tuple[str, ...], list[LayerFailure]] = {}
    for fault in faults:
        pattern = fault.layer.pattern if fault.part in ("pattern", "lowering") else ""
        groups.setdefault((fault.part, fault.way, pattern), []).append(fault)
    shrinker = Shrinker(subject.members, acceptance, isolation, subject.claims.tolerance, subject.seed)
    left_s = _ALL_SHRINK_S if deadline is None else max(_LEAST_SHRINK_S, min(_ALL_SHRINK_S, deadline.seconds_left))
    until = time.process_time() + left_s
    smallest: dict[object, tuple[LayerFailure, int]] = {}
    # Of a large layer it is not known what is wrong until it is smaller: where that fails, others may say it.
    for group in sorted(groups.values(), key=lambda some: some[0].way == LARGE):
        group.sort(key=lambda fault: measure(fault.layer))
        for fault in group[:_ALIKE]:
            progress(f"make a failure smaller: {fault.part}, {fault.way}")
            small = shrinker.shrunk(fault, min(_SHRINK_S, until - time.process_time()))
            small = _named(shrinker.interpreted(small) if small.way == LARGE else small, subject)
            if small.way == LARGE and smallest:
                notes.append(f"one more layer differs, and is too large to tell why: {small.layer.title}")
                continue
            key = small.part, small.way, *_features(small.layer)
            if key not in smallest:
                smallest[key] = small, 0
            best, count = smallest[key]
            count += len(group) - min(len(group), _ALIKE) + 1 if fault is group[0] else 1
            smallest[key] = min(best, small, key=lambda one: measure(one.layer)), count
    findings = []
    for small, alike_count in smallest.values():
        path = write_file(small, subject, check)
        alike = f"; so do {alike_count - 1} layers more" if alike_count > 1 else ""
        sample = f", fed {small.sample}" if small.sample else ""
        message = f"{small.what}{sample} ({small.layer.title}{alike})"
        where = f"pattern {small.layer.pattern}" if small.layer.pattern else str(subject.target)
        findings.append(Finding(small.part, check, message, where, layer_text(small.layer), command(path, subject)))
    return findings


def _named(fault: LayerFailure, subject: Subject) -> LayerFailure:
    """A fault of the lowering that is the pattern's: it opened an attribute that the lowering does not look at."""
    if fault.part != "lowering" or fault.got is None:
        return fault
    try:
        module, results = lowered_of([fault.layer], subject.members)
        ignored = ignored_attribute(fault, key_of_lowered(module, results[0]), subject.members)
    except UmaError:
        return fault
    return replace(fault, part="pattern", way=IGNORED, what=ignored) if ignored else fault


def _features(layer: Layer) -> tuple[object, ...]:
    """What is likely the cause of a fault of a layer that is as small as it gets: the ops and attributes in it."""
    calls = calls_in(layer.function.body)
    busy = [
        f"{call.op_name}.{attr.name}"
        for call in calls
        for attr in (call.op.attrs if isinstance(call.op, Op) else ())
        if repr(attr.neutral) != "MISSING" and getattr(call.attrs, attr.name) != attr.neutral
    ]
    return tuple(busy) or tuple(call.op_name for call in calls)


def repeat(path: Path, subject: Subject, progress: Progress) -> CheckResult:
    """Run once more what a file has that `check_layers` or `check_graphs` wrote.

    Args:
        path: the file.
        subject: the target that it names, of the plugin.
        progress: told of each part of the work that begins.

    Raises:
        UsageError: there is no such file.
        ModelError: it is none that a check wrote.
        ToolchainError: nothing can be compiled on this machine.
    """
    from ...runtime.model_process import Isolation

    start, written = time.perf_counter(), read_file(path)
    notes = [f"it was found as {written.part}: {written.way}"]
    with subject.members.known_ops(), Isolation(STEP_LIMIT_S) as isolation:
        faults = run_layers(
            replace(subject, seed=written.seed), [written.layer], isolation, progress, notes, written.arrays
        )
    findings = []
    for fault in (_named(one, subject) for one in faults):
        again = f"uma check {shlex.quote(subject.plugin.entry.distribution)} --repeat {shlex.quote(str(path))}"
        where = f"pattern {fault.layer.pattern}" if fault.layer.pattern else str(subject.target)
        findings.append(Finding(fault.part, written.check, fault.what, where, layer_text(fault.layer), again))
    if not findings:
        notes.append("nothing is wrong with it now")
    title = f"what {path.name} has, once more"
    return CheckResult("repeat", title, tuple(findings), tuple(notes), "", time.perf_counter() - start)
