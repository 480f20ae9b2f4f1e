"""Regions as hooks see them: which match each call of a composite function is.

What the partitioner found is handed over as it is. What came in a model, or was rewritten by a pass, is matched anew,
and the predicate asked: first of the function by itself, then of what it is in the whole model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

from ..contract.region import MatchedRegion, RegionMatch, UnmatchedCall
from ..errors import PluginError
from ..partition import Placement
from ..relay.expr import Call, Expr, Function, GlobalVar, Tuple, TupleGetItem
from ..relay.module import IRModule
from ..relay.op import Op
from ..relay.pattern import Graph, Match, Mismatch, Pattern, match
from ..relay.pattern.function_match import outlined, whole_matches
from ..relay.views import is_view
from ..relay.visit import children, post_order, with_children
from .build_targets import BuildTarget, BuildTargets
from .error_attribution import add_location

__all__ = ["Matches", "match_alone"]


class Matches:
    """What the composite functions in the regions of a build are.

    Args:
        members: the targets of the build.
        placement: of the regions; None if a partitioner made none of them.
    """

    def __init__(self, members: BuildTargets, placement: Placement | None = None) -> None:
        self._members, self._placement = members, placement

    @cached_property
    def _taken(self) -> dict[Call, tuple[Match, Match]]:
        """The match of each call in the partitioner's regions: in its function, and in the model."""
        regions = () if self._placement is None else self._placement.regions.values()
        return {
            call: (outlined(claim.owner_match, claim.owner_nodes, call.op), claim.owner_match)
            for region in regions
            for claim, call in zip(region.claims, region.calls, strict=True)
            if isinstance(call.op, Function)
        }

    def region(self, module: IRModule, var: GlobalVar) -> MatchedRegion:
        """A region of a module.

        Raises:
            PluginError: a test or a predicate of its target's plugin is at fault.
        """
        function = module.functions[var]
        assert isinstance(function, Function)
        member = self._members[function.attr("Compiler") or ""]
        calls = (expr for expr in post_order(function.body) if isinstance(expr, Call) and not is_view(expr))
        return MatchedRegion(var.name, function, tuple(self._one(module, call, member) for call in calls))

    def _one(self, module: IRModule, call: Call, member: BuildTarget) -> RegionMatch | UnmatchedCall:
        outcome = self._taken.get(call) or self._sought(module, call, member)
        if isinstance(outcome, str):
            return UnmatchedCall(call, outcome)
        inner, whole = outcome
        return RegionMatch(**vars(inner), value=call, layers=module.spans[call], model_match=whole)

    def _sought(self, module: IRModule, call: Call, member: BuildTarget) -> tuple[Match, Match] | str:
        """The match that a call is, in its function and in the model; else why there is none."""
        label, function = member.label, call.op
        if isinstance(function, Op):
            return f"{function.name} stands for itself in a region of {label!r}, which takes what its patterns match"
        if isinstance(function, GlobalVar):
            return f"{function.name!r}, a function of the module, is not a pattern of {label!r}"
        if not isinstance(function, Function):
            return f"control flow is not a pattern of {label!r}"
        name = function.attr("Composite")
        pattern = None if name is None else member.patterns.get(name)
        if pattern is None:
            return f"{name!r} is not a pattern of {label!r}" if name else f"it is not a match of a pattern of {label!r}"
        with _asking(member, module.spans[call]):
            reason = None
            for inner in whole_matches(pattern, function):
                rejection = pattern.rejection(inner)
                if rejection is None:
                    return inner, inner
                reason = reason or f"clause {rejection.clause}: {rejection.reason}"
                sites = [inner.with_replacements(site) for site in _sites(module, call)]
                if len(sites) == 1 and pattern.rejection(sites[0]) is None:
                    return inner, sites[0]
            return reason or _mismatch(pattern, function)


def match_alone(member: BuildTarget, pattern: Pattern, function: Function, layers: Sequence[str]) -> Match | None:
    """The match of a target's pattern that a function is, and of which the predicate holds; None where there is none.

    Raises:
        PluginError: a test or a predicate of the plugin is at fault.
    """
    with _asking(member, layers):
        return next((one for one in whole_matches(pattern, function) if pattern.rejection(one) is None), None)


@contextmanager
def _asking(member: BuildTarget, layers: Sequence[str]) -> Iterator[None]:
    """Within, tests and predicates of a target are asked; what they do wrong names its plugin and the layers."""
    with member.target:
        try:
            yield
        except PluginError as fault:
            error = member.plugin.fault(f"has a pattern that fails: {fault.what}")
            places = filter(None, [fault.where, member.plugin.entry.raised_at(fault)])
            raise add_location(error, *layers, *places) from fault


def _mismatch(pattern: Pattern, function: Function) -> str:
    body = function.body
    outcome = match(pattern, body.fields[0] if isinstance(body, Tuple) else body, Graph(function))
    if isinstance(outcome, Mismatch):
        return outcome.failure.reason
    return f"a function that is called {pattern.name!r} computes more than this pattern takes"


def _sites(module: IRModule, wanted: Call) -> list[Mapping[Expr, Expr]]:
    """What the expressions of the function that ``wanted`` calls are in the model without functions, wherever ``main``
    comes to that call."""
    sites: list[Mapping[Expr, Expr]] = []

    def inlined(function: Function, args: Sequence[Expr]) -> dict[Expr, Expr]:
        values: dict[Expr, Expr] = dict(zip(function.params, args, strict=True))
        for expr in post_order(function.body):
            if expr in values:
                continue
            rebuilt = with_children(expr, [values[child] for child in children(expr)])
            if isinstance(rebuilt, TupleGetItem) and isinstance(rebuilt.tuple, Tuple):
                rebuilt = rebuilt.tuple.fields[rebuilt.index]
            elif isinstance(rebuilt, Call):
                called = module.functions[rebuilt.op] if isinstance(rebuilt.op, GlobalVar) else rebuilt.op
                if isinstance(called, Function):
                    inside = inlined(called, rebuilt.args)
                    rebuilt = inside[called.body]
                    if expr is wanted:
                        sites.append(inside)
            values[expr] = rebuilt
        return values

    inlined(module.main, module.main.params)
    return sites
