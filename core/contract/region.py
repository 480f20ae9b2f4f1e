"""What a target's patterns took of a model, in one piece: what the hooks that lower it are given."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import PluginError
from ..relay.expr import Call, Constant, Expr, Function, Tuple
from ..relay.pattern import Match
from ..relay.views import strip_views
from .lowered import Refuse

__all__ = ["MatchedRegion", "RegionMatch", "UnmatchedCall"]


@dataclass(frozen=True, eq=False)
class RegionMatch(Match):
    """A match in a region. Its parts are expressions of `function`, which computes just this.

    Args:
        value: the call in the region that stands for it, of `function`: what it gives, and what to `Refuse`.
        layers: of the model, whose work it is.
        model_match: the same match in the whole model, of which the predicate holds: for what is proven of values.
    """

    value: Call = field(kw_only=True)
    layers: tuple[str, ...] = field(kw_only=True)
    model_match: Match = field(kw_only=True)

    def operand(self, name: str) -> Expr:
        """Where the part of that name lives: a parameter of the region, or what another match gives, whose ``value``
        or a field of it this is; perhaps reshaped. Of a part that reshapes what the match is given, that.

        Raises:
            PluginError: as for ``match[name]``; or the match computes it, so that it lives nowhere.
        """
        part = self[name]
        inner = part if part in self.function.params else strip_views(part)
        for param, arg in zip(self.function.params, self.value.args, strict=True):
            if inner is param:
                return arg
        if isinstance(inner, Constant):
            return inner
        raise PluginError(
            f"{name!r} of pattern {self.pattern.name!r} is computed in the match: it lives nowhere outside of it",
            hint="operands are what wildcards and constants stand for",
        )


@dataclass(frozen=True)
class UnmatchedCall:
    """A call in a region that is not a match: the model itself, or a pass, put it there.

    Args:
        value: the call.
        reason: why it is none, for the user.
    """

    value: Call
    reason: str


@dataclass(frozen=True, eq=False)
class MatchedRegion:
    """Matches of a target's patterns that are one function.

    Args:
        name: of the function in the module.
        function: takes the region's inputs; its body calls a function for each match.
        calls: what its body calls, each after what it needs; reshapes, which move nothing, are left out.
    """

    name: str
    function: Function
    calls: tuple[RegionMatch | UnmatchedCall, ...]

    @property
    def matches(self) -> tuple[RegionMatch, ...]:
        """The matches, each after those that it needs.

        Raises:
            Refuse: there is something else as well. Let it pass, and the core says so; look at ``calls`` to take it.
        """
        matches: list[RegionMatch] = []
        for one in self.calls:
            if isinstance(one, UnmatchedCall):
                raise Refuse(one.reason, at=one.value)
            matches.append(one)
        return tuple(matches)

    @property
    def results(self) -> tuple[Expr, ...]:
        """What the region gives: one expression, or the fields of the tuple of several."""
        body = self.function.body
        return body.fields if isinstance(body, Tuple) else (body,)
