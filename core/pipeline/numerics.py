"""Opt-ins to results that differ from the model's arithmetic: which layers and passes they apply to, and how far the
results may differ."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from ..artifact.record import DifferenceRecord
from ..contract.passes import PHASES
from ..errors import UsageError
from ..lowering.build_targets import BuildTargets
from ..lowering.graph_queries import has_loops
from ..option_values import Allowed
from ..partition import OptInMatch, Placement, RoundingOptIn
from ..program import Program
from ..relay.expr import Expr
from ..relay.module import IRModule
from ..relay.pattern import Graph
from ..relay.transform.fixed_point_view import additions, rounds_in_floats
from ..support.opt_ins import OPT_INS
from ..targets.values import shown, suggest
from .passes import TargetPass, Tolerated, ordered

__all__ = [
    "find_passes",
    "find_rounding",
    "has_float_scales",
    "list_differences",
    "match_difference",
    "pass_difference",
    "passes_with_tolerance",
    "passes_withheld",
]


def find_rounding(form: IRModule | Program, allow: Allowed, members: BuildTargets) -> RoundingOptIn | None:
    """Return the layers that accelerators may round in their own fixed points; None without such an opt-in.

    Args:
        form: a model.
        allow: the opt-ins of the build.
        members: the targets of the build.

    Raises:
        UsageError: an entry names no layer, or a layer without float scales; no accelerator of the build has fixed
            points of its own; or the form is a program.
    """
    rules = allow.rules("rounding")
    if not rules:
        return None
    if isinstance(form, Program):
        raise UsageError("the rounding of a program is fixed", hint="give allow with the model's file")
    if all(member.fixed_point is None for member in members.accelerators):
        kinds = ", ".join(dict.fromkeys(member.target.kind.name for member in members.all))
        raise UsageError(
            f"no accelerator of this build has fixed points of its own to round in; the kinds are {kinds}",
            hint="hosts compute what the model says; an accelerator's plugin declares `fixed_point` in its TargetKind",
        )
    scaled, layers = _names(form, _in_floats(form)), _names(form, (expr for expr, _ in form.spans))
    everything, choices = False, dict[str, bool]()
    for pattern, is_allowed in rules:
        if pattern == "*":
            everything, choices = is_allowed, {}
            continue
        matches = _matches(pattern, layers)
        if not matches:
            hint = suggest(pattern, layers) + "uma explain -v shows the layers' names"
            raise UsageError(f"no layer is called {shown(pattern)}, as in --allow rounding:{pattern}", hint=hint)
        if not any(layer in scaled for layer in matches):
            raise UsageError(
                f"layer {shown(pattern)} has no float scale that fixed points could stand for",
                hint=f"these have one: {', '.join(list(scaled)[:10])}" if scaled else "the model has none at all",
            )
        choices.update(dict.fromkeys(matches, is_allowed))
    return RoundingOptIn(everything, choices)


def has_float_scales(module: IRModule) -> bool:
    """Whether there is anything in ``main`` that fixed points could stand for."""
    return next(_in_floats(module), None) is not None


def _in_floats(module: IRModule) -> Iterator[Expr]:
    graph = Graph(module.main)
    yield from filter(rounds_in_floats, graph.order)
    for one in additions(graph.order, graph.users):
        yield from one.named


def _names(module: IRModule, exprs: Iterable[Expr]) -> dict[str, None]:
    return dict.fromkeys(layer for expr in exprs for layer in module.spans[expr])


def _matches(pattern: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name == pattern or fnmatchcase(name, pattern)]


def passes_with_tolerance(members: BuildTargets) -> tuple[TargetPass, ...]:
    """Return the passes of a build that declare a tolerance, in the order in which they would run.

    Raises:
        PluginError: as `ordered`.
    """
    return tuple(
        step for phase in PHASES for step in ordered(members.all, phase) if step.definition.tolerance is not None
    )


def passes_withheld(members: BuildTargets, allowed: Collection[str]) -> tuple[TargetPass, ...]:
    """Return those passes that are not run, because they are not among ``allowed``."""
    return tuple(step for step in passes_with_tolerance(members) if step.name not in allowed)


def find_passes(form: IRModule | Program, allow: Allowed, members: BuildTargets) -> Allowed:
    """Return ``allow`` with the names of the passes that may change results in place of their patterns.

    Args:
        form: a model.
        allow: the opt-ins of the build.
        members: the targets of the build.

    Raises:
        UsageError: an entry matches no pass that declares a tolerance; or the model was lowered already.
        PluginError: as `ordered`.
    """
    rules = allow.rules("pass")
    if rules and (isinstance(form, Program) or has_loops(form)):
        what = "the passes that change results within a tolerance have no business with a form that was lowered already"
        raise UsageError(what, hint="give allow with the model's file")
    names = [step.name for step in passes_with_tolerance(members)] if rules else []
    choices: dict[str, bool] = {}
    for pattern, is_allowed in rules:
        matches = _matches(pattern, names)
        if not matches:
            there = f"these do: {', '.join(names)}" if names else "none of this build does"
            what = f"no pass that declares a tolerance is called {shown(pattern)}"
            raise UsageError(what, hint=suggest(pattern, ["rounding", "hybrid", *names]) + there)
        choices.update(dict.fromkeys(matches, is_allowed))
    others = {key: value for key, value in allow.entries.items() if key not in dict(rules)}
    return Allowed({**others, **{name: OPT_INS["pass"][0] for name in names if choices.get(name)}})


def match_difference(match: OptInMatch, members: BuildTargets) -> DifferenceRecord:
    """Return how far the results of a match that is rounded differently may be off."""
    entry = members[match.owner].plugin.entry
    plugin = f"{entry.distribution} {entry.version}"
    return DifferenceRecord(
        "rounding", match.what, match.rounding, match.layers, match.owner, plugin, match.bound, None
    )


def pass_difference(step: TargetPass) -> DifferenceRecord:
    """Return how far a pass that declares a tolerance may change results."""
    (definition, tolerance), member = (step.definition, step.definition.tolerance), step.member
    assert tolerance is not None
    results = "results of each region" if definition.scope == "regions" else "results of the model"
    plugin = f"{member.plugin.entry.distribution} {member.plugin.entry.version}"
    bounds = tolerance.steps, float(tolerance.relative)
    return DifferenceRecord(step.name, results, definition.phase, (), member.label, plugin, *bounds)


def list_differences(
    placement: Placement | None, tolerated: Sequence[Tolerated], hybrid_layers: Sequence[str], members: BuildTargets
) -> tuple[DifferenceRecord, ...]:
    """Return the parts of a model whose results may differ from the model's arithmetic.

    Args:
        placement: of its ops; None where the model was lowered already.
        tolerated: the effects of passes that declare a tolerance.
        hybrid_layers: the layers that are computed as LiteRT does.
        members: the targets of the build.
    """
    rows = [match_difference(match, members) for match in (() if placement is None else placement.consented)]
    rows += dict.fromkeys(pass_difference(one.step) for one in tolerated)
    if hybrid_layers:
        how = OPT_INS["hybrid"][0]
        rows.append(DifferenceRecord("hybrid", "hybrid layers", how, tuple(hybrid_layers), None, None, None, None))
    return tuple(rows)
