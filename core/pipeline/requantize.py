"""What the user consents to: layers whose float scales accelerators may take as fixed points of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from ..errors import UsageError
from ..lowering.build_targets import Members
from ..option_values import Requantize
from ..partition import RoundingOptIn
from ..program import Program
from ..relay.expr import Expr
from ..relay.module import IRModule
from ..relay.pattern import Graph
from ..relay.transform.fixed_point_view import additions, rounds_in_floats
from ..support.project_file import ProjectError, find_project
from ..targets.values import shown, suggest

__all__ = ["REQUANTIZE", "consent_to", "has_float_scales", "project_requantize"]

REQUANTIZE = ("fixed-point", "float")
"""How a layer may be requantised: in the accelerator's own fixed points, or by the float scales that the model has."""


def consent_to(form: IRModule | Program, requantize: Requantize, members: Members) -> RoundingOptIn:
    """What may be rounded otherwise, as it was said.

    Args:
        form: a model.
        requantize: see `Requantize`.
        members: the targets of the build.

    Raises:
        UsageError: it is malformed, names no layer, or a layer that has no float scale; no accelerator of the build has
            fixed points of its own; or the form is a program.
    """
    pairs = _pairs(requantize)
    if isinstance(form, Program):
        raise UsageError("a program is requantised as it says already", hint="give requantize with the model's file")
    if all(member.fixed_point is None for member in members.accelerators):
        kinds = ", ".join(dict.fromkeys(member.target.kind.name for member in members.all))
        raise UsageError(
            f"no accelerator of this build has fixed points of its own to requantise in; the kinds are {kinds}",
            hint="hosts compute what the model says; an accelerator's plugin says `fixed_point` in its TargetKind",
        )
    scaled, known = _layers(form)
    everything, layers = False, dict[str, bool]()
    for pattern, how in pairs:
        matching = [layer for layer in known if layer == pattern or fnmatchcase(layer, pattern)]
        if pattern == "*":
            everything, layers = how == REQUANTIZE[0], {}
            continue
        if not matching:
            hint = suggest(pattern, known) + "uma explain -v shows the layers' names"
            raise UsageError(f"no layer is called {shown(pattern)}, which is to be requantised in {how}", hint=hint)
        if not any(layer in scaled for layer in matching):
            raise UsageError(
                f"layer {shown(pattern)} has no float scale that fixed points could stand for",
                hint=f"these have one: {', '.join(list(scaled)[:10])}" if scaled else "the model has none at all",
            )
        layers.update(dict.fromkeys(matching, how == REQUANTIZE[0]))
    said = tuple(how if pattern == "*" else f"{pattern}={how}" for pattern, how in pairs)
    return RoundingOptIn(everything, layers, said)


def project_requantize() -> str | None:
    """How the project lets layers be requantised: ``requantize`` in ``[tool.uma]``; None where it says nothing.

    Raises:
        ProjectError: as `find_project`; or it is none of `REQUANTIZE`.
    """
    project = find_project()
    how = None if project is None else project.settings.get("requantize")
    if project is None or how is None:
        return None
    if not isinstance(how, str) or how not in REQUANTIZE:
        where, hint = f"{project.path}, in [tool.uma]", f'write requantize = "{REQUANTIZE[0]}"'
        raise ProjectError(f"nothing is requantised in {shown(how)}", where=where, hint=hint)
    return how


def _pairs(requantize: object) -> list[tuple[str, str]]:
    pairs = [("*", requantize)] if isinstance(requantize, str) else requantize
    given = list(pairs.items()) if isinstance(pairs, Mapping) else pairs
    if not isinstance(given, list) or not all(isinstance(text, str) for pair in given for text in pair):
        hint = 'requantize="fixed-point", or requantize={"conv*": "fixed-point"}'
        raise UsageError(f"{shown(requantize)} says nothing about requantising", hint=hint)
    for _, how in given:
        if how not in REQUANTIZE:
            raise UsageError(f"nothing is requantised in {shown(how)}", hint=f"one of {', '.join(REQUANTIZE)}")
    return given


def has_float_scales(module: IRModule) -> bool:
    """Whether there is anything in ``main`` that fixed points could stand for."""
    return next(_in_floats(module), None) is not None


def _in_floats(module: IRModule) -> Iterator[Expr]:
    graph = Graph(module.main)
    yield from filter(rounds_in_floats, graph.order)
    for one in additions(graph.order, graph.users):
        yield from one.named


def _layers(module: IRModule) -> tuple[dict[str, None], dict[str, None]]:
    """The layers that have a float scale, and all layers."""
    return _names(module, _in_floats(module)), _names(module, (expr for expr, _ in module.spans))


def _names(module: IRModule, exprs: Iterable[Expr]) -> dict[str, None]:
    return dict.fromkeys(layer for expr in exprs for layer in module.spans[expr])
