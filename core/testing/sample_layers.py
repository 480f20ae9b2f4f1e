"""A few small layers that the plugin takes, for checks that need something to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..artifact import Artifact
from ..pipeline.driver import make_artifact
from ..pipeline.line_buffering import RowsAsked
from ..pipeline.stages import Build
from ..program import Program, plan
from ..relay.expr import Expr, Function
from ..relay.module import IRModule
from ..relay.visit import post_order
from .fuzz.acceptance import acceptance_of
from .fuzz.layer import Layer, module_of
from .fuzz.seeds import convert_samples, generate_layers, read_layers
from .fuzz.values import sizes_of
from .outcome import Progress
from .subject import Subject

if TYPE_CHECKING:
    from ..lowering.build_targets import BuildTargets

__all__ = ["artifact_of", "built", "small_layers", "uses_device"]

_PER_PATTERN = 2


def small_layers(subject: Subject, progress: Progress, most: int = 8) -> list[Layer]:
    """Layers that the patterns take, of each pattern the first ones that were found; those of models and samples first.

    Args:
        subject: what is checked.
        progress: told of each pattern.
        most: how many at most.
    """
    key = f"small layers of {subject.target}"
    if key not in subject.cache:
        subject.cache[key] = _find_samples(subject, progress)
    layers: list[Layer] = subject.cache[key]
    return layers[:most]


def _find_samples(subject: Subject, progress: Progress) -> list[Layer]:
    import numpy as np

    member = subject.member
    acceptance, sizes = acceptance_of(subject), sizes_of(member)
    rng = np.random.default_rng(subject.seed)
    groups: list[list[Layer]] = []
    with subject.members.known_ops():
        samples: list[Layer] = []
        for layer in [*read_layers(subject.models, subject.members), *convert_samples(_samples(subject))]:
            names = [layer.pattern] if layer.pattern else [pattern.name for pattern in member.patterns]
            accepted = (name for name in names if acceptance.ask(replace(layer, pattern=name), False).is_taken)
            if (name := next(accepted, None)) is not None:
                samples.append(replace(layer, pattern=name))
        for pattern in member.patterns:
            progress(f"layers of {pattern.name}")
            matching = [layer for layer in samples if layer.pattern == pattern.name]
            if len(matching) < _PER_PATTERN:
                matching += generate_layers(
                    pattern, member.target, acceptance, sizes, rng, most=_PER_PATTERN - len(matching)
                )[0]
            groups.append(matching)
    # Of each pattern one before the second of any.
    return [layers[turn] for turn in range(max(map(len, groups), default=0)) for layers in groups if turn < len(layers)]


def _samples(subject: Subject) -> Sequence[Expr | IRModule]:
    samples = subject.claims.samples
    return () if samples is None else subject.plugin.run("Claims.samples", samples, subject.target)


def built(layers: Sequence[Layer], members: BuildTargets, name: str = "checked") -> tuple[Build, Program]:
    """Layers as one program, and the build that it comes from.

    Raises:
        UmaError: what keeps them from being built.
    """
    build = Build(name, members, rows=RowsAsked())
    program = build.run(module_of(layers))
    assert isinstance(program, Program)
    return build, program


def artifact_of(program: Program, members: BuildTargets) -> Artifact:
    """The C of a program, and what runs it.

    Raises:
        UmaError: what keeps it from being made.
    """
    from ..toolchain.packing_engine import packing_engine

    return make_artifact(program, plan(program, engine=packing_engine), members)


def uses_device(program: Program, label: str) -> bool:
    """Whether a call of the program is for the target of that label."""
    return label in program.devices


def macs_or_elements(layer: Layer) -> int:
    """How much work a layer is: multiply-accumulates, or elements of its results where there are none."""
    from ..relay.expr import Call, macs_of

    calls = [expr for expr in post_order(layer.function.body) if isinstance(expr, Call)]
    macs = sum(int(macs_of(call) or 0) for call in calls if not isinstance(call.op, Function))
    return macs or sum(result.tensor.size for result in layer.results)
