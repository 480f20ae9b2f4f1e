"""Two devices of the kind under test in one image, with other attributes where there are: what they share shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...errors import UmaError
from ...lowering.build_targets import BuildTargets, resolve_targets
from ...pipeline.pins import pin_layers
from ...targets import Target
from ..subject import Subject
from .acceptance import Acceptance, failures_of
from .layer import Layer, layer_name, module_of, work_of
from .layer_images import BuildFailed, Image
from .triage import Judge, LayerFailure

if TYPE_CHECKING:
    from ...runtime.model_process import Isolation

__all__ = ["check_devices"]

_MOST = 6
_FIRST, _SECOND = "first_device", "second_device"


def check_devices(
    subject: Subject, layers: Sequence[Layer], isolation: Isolation, notes: list[str]
) -> list[LayerFailure]:
    """What is wrong with layers that are computed rightly on one device, where there are two.

    Args:
        subject: the target.
        layers: some that it takes and computes rightly.
        isolation: the process that they run in.
        notes: is told what was done.
    """
    import numpy as np

    for other in (_other(subject.target), Target(subject.target.kind, dict(subject.target.attrs))):
        members = _members(subject, other)
        if members is None:
            continue
        asked = Acceptance(members[_SECOND], failures_of(subject))
        chosen: dict[str, Layer] = {}
        # What is varied may have ops that only the host takes, which cannot be pinned.
        for layer in sorted((one for one in layers if not one.varied), key=work_of):
            is_new = members[_SECOND].patterns.get(layer.pattern) is not None and layer.pattern not in chosen
            if is_new and len(chosen) < _MOST and asked.ask(layer, count=False).is_taken:
                chosen[layer.pattern] = layer
        pair = [*chosen.values(), *chosen.values()]
        if not pair:
            continue
        pins = {layer_name(at): _FIRST if at < len(chosen) else _SECOND for at in range(len(pair))}
        try:
            module = pin_layers(module_of(pair), pins, members)
            image = Image(pair, members, isolation, module)
        except (UmaError, BuildFailed):
            continue
        notes.append(f"{len(chosen)} layers ran on two devices in one image, the second one {other}")
        judge = Judge(image, np.random.default_rng(subject.seed), tolerance=subject.claims.tolerance)
        failures = judge.run(contexts=False, loops=False)
        message = "it is computed rightly on one device, and not where there are two"
        # What is wrong in the loops is so with the other attributes alone.
        return [
            fault
            if fault.part == "lowering"
            else replace(fault, part="driver", way="wrong beside a second device", what=f"{message}: {fault.what}")
            for fault in failures
        ]
    notes.append("two devices of the kind could not be had in one image")
    return []


def _members(subject: Subject, other: Target) -> BuildTargets | None:
    first = Target(subject.target.kind, dict(subject.target.attrs))
    targets: dict[str, Any] = {_FIRST: first, _SECOND: other, "the_host": subject.host}
    try:
        return resolve_targets(targets, subject.plugins)
    except UmaError:
        return None


def _other(target: Target) -> Target:
    """A target of the kind with other numbers, twice as large where they may be."""
    attrs: dict[str, object] = dict(target.attrs)
    for attribute in target.kind.attributes:
        value = target.get_attr(attribute.name)
        if attribute.type is int and attribute.name != "base" and type(value) is int and value > 1:
            doubled = 2 * value
            if attribute.high is None or doubled <= attribute.high:
                attrs[attribute.name] = doubled
    try:
        return Target(target.kind, attrs)
    except UmaError:
        return Target(target.kind, dict(target.attrs))
