"""Layers to begin with: made up from patterns, cut out of models, and given by the plugin; all of them taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...lowering.build_targets import BuildTargets
from ...pipeline.loading import load_model
from ...pipeline.stages import Build
from ...relay.expr import Constant, Expr, Function, Var
from ...relay.module import IRModule
from ...relay.pattern import Pattern
from ...targets import Target
from .acceptance import Acceptance, Verdict
from .acceptance_nudges import fitting
from .layer import Layer, calls_in, macs_in, with_body
from .layer_generator import OPEN_DTYPES, Choices, Maker
from .layer_rebuild import Changes, fitted, leaves_of, rebuilt
from .mutations import mutations
from .scale_constants import FITTED
from .values import Sizes

if TYPE_CHECKING:
    import numpy as np

__all__ = ["convert_samples", "generate_layers", "read_layers"]

_TRIES, _PLAIN = 60, 6
_CLIMBS, _ROUNDS = 4, 12
_MOST_MACS = 100_000


def generate_layers(
    pattern: Pattern, target: Target, acceptance: Acceptance, sizes: Sizes, rng: np.random.Generator, most: int = 6
) -> tuple[list[Layer], list[str]]:
    """Layers that a pattern takes, so that each of its alternatives, and each dtype that it takes, is in one if that
    can be had.

    Args:
        pattern: the pattern.
        target: whose it is.
        acceptance: asks it.
        sizes: what may matter to the machine.
        rng: decides what is random.
        most: how many at most.

    Returns:
        The layers, and why others were refused, each reason once.
    """
    choices = Choices(pattern)
    layers: list[Layer] = []
    reasons: dict[str, None] = {}
    near: list[tuple[int, Layer, Maker]] = []
    dtypes = dict(enumerate(OPEN_DTYPES, _PLAIN)) if choices.dtype() is None else {}
    plain = _PLAIN + len(dtypes)
    for number in range(_TRIES):
        with target:
            maker = Maker(pattern, choices, sizes, rng, plain=number < plain, dtype=dtypes.get(number))
            layer = maker.layer()
        if layer is None:
            continue
        verdict = acceptance.ask(layer, count=False)
        if verdict.is_taken:
            if choices.note(maker.chosen) or _dtypes_of(layer) not in map(_dtypes_of, layers):
                layers.append(layer)
        else:
            reasons.setdefault(_reason(verdict))
            if verdict.refused_by:
                near.append((len(verdict.refused_by), layer, maker))
        if len(layers) >= most or (choices.are_all_taken and layers and number >= plain):
            break
    near.sort(key=lambda one: one[0])
    for _, layer, maker in near[: 2 if layers else _CLIMBS]:
        if len(layers) >= most or (choices.are_all_taken and layers):
            break
        if layers and all(choices.counts[one] for one in maker.chosen):
            continue
        climbed = _climbed(layer, acceptance, sizes, rng)
        if climbed is not None:
            choices.note(maker.chosen)
            layers.append(replace(climbed, varied=()))
    return layers, list(reasons)


def _dtypes_of(layer: Layer) -> tuple[str, ...]:
    return tuple(param.dtype for param in layer.function.params)


def _reason(verdict: Verdict) -> str:
    if verdict.fault:
        return verdict.fault
    return f"clause {', '.join(verdict.refused_by)}" if verdict.refused_by else verdict.reason


def _climbed(layer: Layer, acceptance: Acceptance, sizes: Sizes, rng: np.random.Generator) -> Layer | None:
    """A layer that is taken, from one that is refused: of all that can be varied, again and again, what leaves fewer
    clauses that refuse it."""
    verdict = acceptance.ask(layer, count=False)
    for _ in range(_ROUNDS):
        better: tuple[Layer, Verdict] | None = None
        for mutation in (*fitting(layer, rng), *mutations(layer, sizes, rng)):
            if mutation.kind in ("use", "memory", "dtype") or mutation.text.startswith(FITTED):
                continue
            changed = mutation.apply(layer)
            if changed is None:
                continue
            answer = acceptance.ask(changed, count=False)
            if not (answer.reason or answer.fault) and len(answer.refused_by) < len(verdict.refused_by):
                better = changed, answer
                break
        if better is None:
            return None
        layer, verdict = better
        if verdict.is_taken:
            return layer
    return None


def read_layers(paths: Sequence[Path], members: BuildTargets) -> Iterator[Layer]:
    """What patterns take of models, each kind of layer once: in small, where it is large."""
    label = members.accelerators[0].label
    visited: set[object] = set()
    for path in paths:
        loaded = load_model(path, members)
        if not isinstance(loaded.form, IRModule):
            continue
        build = Build(loaded.name, members)
        build.run(loaded.form, "partition")
        assert build.placement is not None
        for region in build.placement.regions.values():
            for claim, call in zip(region.claims, region.calls, strict=True):
                if claim.owner != label or not isinstance(call.op, Function):
                    continue
                layer = smaller(Layer(with_body(call.op.body), claim.match.pattern.name, path.name))
                if layer is not None and _kind_of(layer) not in visited:
                    visited.add(_kind_of(layer))
                    yield layer


def _kind_of(layer: Layer) -> object:
    """What layers have in common that need not both be tried: ops, attributes and shapes, but for numbers of scales."""
    calls = calls_in(layer.function.body)
    attrs = [tuple((n, v) for n, v in call.attrs.items if isinstance(v, (int, str, tuple))) for call in calls]
    return layer.pattern, tuple((call.op_name, call.type) for call in calls), tuple(attrs)


def convert_samples(samples: Sequence[Expr | IRModule]) -> Iterator[Layer]:
    """Layers that a plugin gives, for whatever pattern takes them."""
    for sample in samples:
        body = sample.main.body if isinstance(sample, IRModule) else sample
        yield Layer(with_body(body), "", "sample")


def smaller(layer: Layer) -> Layer | None:
    """A layer with little work: the same in a smaller picture, then with fewer channels; None where that is not had."""
    for most in (9, 5, 3):
        if sum(macs_in(call) for call in calls_in(layer.function.body)) <= _MOST_MACS:
            return layer
        for place, leaf in leaves_of(layer.function.body).items():
            if not isinstance(leaf, Var) or len(leaf.shape) < 2:
                continue
            shape = (*(min(n, most) for n in leaf.shape[:-1]), min(leaf.shape[-1], 4 * most))
            body = rebuilt(layer.function.body, Changes(leaves={place: fitted(leaf, shape)}))
            layer = layer if body is None else layer.replace_body(body)
    weights = [(place, leaf) for place, leaf in leaves_of(layer.function.body).items() if isinstance(leaf, Constant)]
    for place, leaf in weights:
        if len(leaf.shape) > 1 and leaf.shape[-1] > 16:
            body = rebuilt(layer.function.body, Changes(leaves={place: fitted(leaf, (*leaf.shape[:-1], 16))}))
            layer = layer if body is None else layer.replace_body(body)
    few = sum(macs_in(call) for call in calls_in(layer.function.body)) <= 4 * _MOST_MACS
    return layer if few else None
