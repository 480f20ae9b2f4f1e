"""What matching works on, and what it gives."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from ...errors import PluginError
from ..expr import Call, Constant, Expr, Function
from ..visit import post_order, users
from .conditions import shown
from .terms import Computed, ConstantTerm, Term, Wildcard, key_of

if TYPE_CHECKING:
    from .pattern import Pattern

__all__ = ["Graph", "Match"]

_E = TypeVar("_E", bound=Expr)


class Graph:
    """An index of all that a function, or an expression, is computed from. Made once for many matches.

    Args:
        root: a function, whose body is meant, or the result itself.
    """

    def __init__(self, root: Expr) -> None:
        self.result = root.body if isinstance(root, Function) else root
        self.order = tuple(post_order(self.result))
        self._users = users(self.order)
        self._positions = {expr: position for position, expr in enumerate(self.order)}
        self._by_key: dict[str, list[Expr]] = {}
        for expr in self.order:
            self._by_key.setdefault(key_of(expr), []).append(expr)

    def users(self, expr: Expr) -> list[Expr]:
        """Who uses ``expr``, in order; one that uses it twice is named twice."""
        return self._users[expr]

    def __contains__(self, expr: Expr) -> bool:
        return expr in self._positions

    def position(self, expr: Expr) -> int:
        """Where ``expr`` stands in ``order``."""
        return self._positions[expr]

    def keyed(self, key: str) -> Sequence[Expr]:
        """The expressions of that `key_of`, in order."""
        return self._by_key.get(key, ())

    def sorted(self, exprs: Iterable[Expr]) -> tuple[Expr, ...]:
        """``exprs``, each once, in the order in which they are computed."""
        return tuple(sorted(dict.fromkeys(exprs), key=self._positions.__getitem__))


@dataclass(frozen=True)
class Match:
    """A place where a pattern matches.

    Args:
        pattern: the pattern.
        roots: what the pattern gives: one expression, or one per output.
        nodes: all that the pattern computes, roots included, in the order in which it is computed.
        inputs: what its wildcards match, in the order of the operands, each once.
        constants: what its constants match, likewise.
        escapes: of ``nodes`` those that are not roots, but used outside of the match, or the function's result.
        captures: what each named term matches. A term in an alternative that was not taken matches nothing; one in a
            chain's block several expressions, in the order in which they are computed.
        outlined: for a lowering the function that computes just this: all the others are expressions of its body then,
            and ``inputs`` are its parameters.
    """

    pattern: Pattern
    roots: tuple[Expr, ...]
    nodes: tuple[Expr, ...]
    inputs: tuple[Expr, ...]
    constants: tuple[Constant, ...]
    escapes: tuple[Expr, ...]
    captures: Mapping[str, tuple[Expr, ...]] = field(hash=False)
    outlined: Function | None = None

    @property
    def root(self) -> Expr:
        """The first root, for a pattern of one output the only one."""
        return self.roots[0]

    @property
    def interior(self) -> tuple[Expr, ...]:
        """The nodes that are not roots."""
        return tuple(node for node in self.nodes if node not in self.roots)

    @property
    def function(self) -> Function:
        """The function that computes just this, in a lowering. Constants are inside; several results are a tuple.

        Raises:
            PluginError: it was not taken yet, as while its predicate is asked.
        """
        if self.outlined is None:
            message = f"a match of pattern {self.pattern.name!r} is asked for its function before it was taken"
            raise PluginError(message, hint="there is one in lowerings; a predicate looks at the parts: match['name']")
        return self.outlined

    def __contains__(self, name: str) -> bool:
        """Whether the part of that name is there; PluginError where the pattern has no such name."""
        return bool(self.all(name))

    def __getitem__(self, name: str) -> Expr:
        """The one expression of that name.

        Raises:
            PluginError: the pattern has no such name, or it stands for none here, or for several.
        """
        captured = self.all(name)
        if len(captured) != 1:
            raise PluginError(
                f"{name!r} of pattern {self.pattern.name!r} matches {len(captured) or 'no'} nodes here",
                hint=f"match.all({name!r}) gives them all" if captured else f"match.get({name!r}) gives None then",
            )
        return captured[0]

    def call(self, name: str) -> Call:
        """The one call of that name, with its attributes: ``match.call("conv").attrs.strides``.

        Raises:
            PluginError: as for ``match[name]``, or it is not a call.
        """
        return self._one(name, Call, "a call")

    def constant(self, name: str) -> Constant:
        """The one constant of that name, with its values: ``match.constant("weight").data``.

        Raises:
            PluginError: as for ``match[name]``, or it is not a constant.
        """
        return self._one(name, Constant, "a constant")

    def _one(self, name: str, kind: type[_E], description: str) -> _E:
        captured = self[name]
        if not isinstance(captured, kind):
            raise PluginError(
                f"{name!r} of pattern {self.pattern.name!r} is not {description} here, but {key_of(captured)}",
                hint=f"match[{name!r}] gives it, whatever it is",
            )
        return captured

    def get(self, name: str) -> Expr | None:
        """The one expression of that name, None where there is none; PluginError as for ``match[name]``."""
        return self[name] if self.all(name) else None

    def all(self, name: str) -> tuple[Expr, ...]:
        """The expressions of that name, in the order in which they are computed.

        Raises:
            PluginError: the pattern has no such name.
        """
        if name not in self.pattern.names:
            close = difflib.get_close_matches(str(name), self.pattern.names, 1)
            raise PluginError(
                f"pattern {self.pattern.name!r} names no part {shown(name)}",
                hint=f"did you mean {close[0]!r}?" if close else f"it names {', '.join(self.pattern.names) or 'none'}",
            )
        return self.captures.get(name, ())

    def with_replacements(self, new: Mapping[Expr, Expr], function: Function | None = None) -> Match:
        """The same match of what was put in the place of its expressions.

        Args:
            new: what became of an expression; what is not in it stayed.
            function: the function that it became, if it is the body of one.
        """

        def all_of(exprs: Iterable[Expr]) -> tuple[Expr, ...]:
            return tuple(dict.fromkeys(new.get(expr, expr) for expr in exprs))

        return Match(
            self.pattern,
            roots=all_of(self.roots),
            nodes=all_of(self.nodes),
            inputs=all_of(self.inputs) if function is None else function.params,
            constants=self.constants,
            escapes=all_of(self.escapes),
            captures=MappingProxyType({name: all_of(exprs) for name, exprs in self.captures.items()}),
            outlined=function,
        )


def make_match(pattern: Pattern, bound: Mapping[Term, Expr], graph: Graph) -> Match:
    """A match from what each term matches, in the order in which they were matched."""
    roots = tuple(bound[root] for root in pattern.roots)
    bindings = list(bound.items())
    computed = {expr: None for term, expr in bindings if isinstance(term, Computed)}
    inner = {expr: None for term, expr in bindings if isinstance(term, ConstantTerm)}
    outer = {expr: None for term, expr in bindings if isinstance(term, Wildcard)}
    nodes = graph.sorted(computed)
    captures: dict[str, list[Expr]] = {}
    for term, expr in bindings:
        if term.name is not None:
            captures.setdefault(term.name, []).append(expr)
    return Match(
        pattern=pattern,
        roots=roots,
        nodes=nodes,
        inputs=tuple(expr for expr in outer if expr not in computed and expr not in inner),
        constants=tuple(expr for expr in inner if isinstance(expr, Constant)),
        escapes=tuple(node for node in nodes if node not in roots and _escapes(node, computed, graph)),
        captures=MappingProxyType({name: graph.sorted(exprs) for name, exprs in captures.items()}),
    )


def _escapes(node: Expr, computed: Mapping[Expr, None], graph: Graph) -> bool:
    return node is graph.result or any(user not in computed for user in graph.users(node))
