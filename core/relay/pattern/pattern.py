"""What a plugin says that it takes: named patterns, predicates of documented clauses, ordered tables of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...errors import PluginError
from ..expr import Expr
from .conditions import plain, sentence, shown, truth
from .match import Match
from .terms import CONSTANT, Computed, Outputs, Term, key_of, terms_of

__all__ = ["Clause", "Failed", "Pattern", "PatternTable", "Rejection"]

_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")
_CLAUSE = re.compile(r"[a-z][a-z0-9_]*")
_MAX_NAME = 100


@dataclass(frozen=True)
class Failed:
    """What the test of a clause gives in place of False, to say which value failed it.

    Args:
        value: shown in the place of ``{value}``; of any type that prints on one line.
    """

    value: Any


@dataclass(frozen=True)
class Clause:
    """One condition on a match, with its reason.

    Args:
        name: identifies it within its pattern, for example ``channels_in_eights``.
        test: is given the `Match`; gives True where the condition holds, else False, or ``Failed(value)``.
        reason: one sentence for the user who wonders why an op stayed on the host, and for the table of supported
            ops: "output channels come in eights". Every ``{value}`` in it becomes the value that failed the test; where
            there is none the value follows behind.

    Raises:
        PluginError: a field is malformed.
    """

    name: str
    test: Callable[[Match], Any]
    reason: str

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not _CLAUSE.fullmatch(name):
            raise PluginError(f"{shown(name)} cannot name a clause", hint="lower-case letters, digits, _")
        if not callable(self.test):
            raise PluginError(f"the test of clause {self.name!r} is {shown(self.test)}, not a function of the match")
        sentence(self.reason, f"clause {self.name!r}")


@dataclass(frozen=True)
class Rejection:
    """Why a predicate does not hold.

    Args:
        clause: its name; of a plain function the function's.
        reason: the sentence for the user.
        value: what failed it, None where that was not said.
    """

    clause: str
    reason: str
    value: Any = None


Predicate = tuple[Clause, ...] | list[Clause] | Callable[[Match], Any] | None


@dataclass(frozen=True, eq=False)
class Pattern:
    """Something that an accelerator takes, whole.

    Args:
        name: lower-case words, digits and underscores, with dots between; becomes the region's ``Composite``.
        pattern: what it looks like, see `uma.relay.pattern.language`.
        predicate: what must hold besides: clauses, all of them; or one function of the `Match` that gives True, or
            a string that says why not, or False, for which its docstring's first line is the reason.
        lower: turns a match into loops: is given the match, whose parts are expressions of `Match.function`, and the
            target; gives a `uma.hookspecs.LoweredKernel` that takes the match's ``inputs``, in order, or None where
            this one is not for it. It may raise `uma.hookspecs.Refuse`. None leaves that to the plugin's other hooks.
        extern: turns a match of an accelerator into one `uma.relay.Extern`, a command stream or a call of a library:
            likewise, and asked before ``lower``. The extern takes the match's ``inputs``, in order.

    Raises:
        PluginError: a field is malformed; the pattern computes nothing.
    """

    name: str
    pattern: Term | Outputs
    predicate: Predicate = None
    lower: Callable[..., Any] | None = None
    extern: Callable[..., Any] | None = None
    roots: tuple[Term, ...] = field(init=False, repr=False)
    """One term per output."""
    ties: tuple[Term, ...] = field(init=False, repr=False)
    """For each root but the first a term that it shares with a root before it, whatever is optional."""
    names: tuple[str, ...] = field(init=False, repr=False)
    """The names of its parts."""
    keys: frozenset[str] = field(init=False, repr=False)
    """What it computes: names of ops, and `ITEM`."""
    size: int = field(init=False, repr=False)
    """Number of its terms."""
    private: tuple[Term, ...] = field(init=False, repr=False)
    """The terms whose values nothing outside of the match may use."""

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or len(name) > _MAX_NAME or not _NAME.fullmatch(name):
            raise PluginError(f"{shown(name)} cannot name a pattern", hint='names look like "my_device.conv2d_relu"')
        if not isinstance(self.pattern, (Term, Outputs)):
            raise PluginError(f"pattern {name!r} is {shown(self.pattern)}, not made of uma.relay.pattern's terms")
        for way in ("lower", "extern"):
            strategy = getattr(self, way)
            if strategy is not None and not callable(strategy):
                raise PluginError(f"{way} of pattern {name!r} is {shown(strategy)}, not a function")
        roots = self.pattern.roots if isinstance(self.pattern, Outputs) else (self.pattern,)
        if any(root.heads is None or CONSTANT in root.heads for root in roots):
            raise PluginError(
                f"pattern {name!r} may match an input or a constant alone, and computes nothing then",
                hint="an optional op needs another one below it",
            )
        terms = terms_of(*roots)
        object.__setattr__(self, "predicate", self._checked(self.predicate))
        object.__setattr__(self, "roots", roots)
        object.__setattr__(self, "ties", self.pattern.ties if isinstance(self.pattern, Outputs) else ())
        object.__setattr__(self, "names", tuple(dict.fromkeys(term.name for term in terms if term.name)))
        computed = (term.heads for term in terms if isinstance(term, Computed) and term.heads)
        object.__setattr__(self, "keys", frozenset().union(*computed))
        object.__setattr__(self, "size", len(terms))
        object.__setattr__(self, "private", tuple(term for term in terms if term.is_private))

    def _checked(self, predicate: object) -> object:
        if predicate is None or callable(predicate):
            return predicate
        clauses = tuple(predicate) if isinstance(predicate, (tuple, list)) else None
        if clauses is None or not all(isinstance(clause, Clause) for clause in clauses):
            raise PluginError(
                f"the predicate of pattern {self.name!r} is {shown(predicate)}", hint="a list of Clause, or a function"
            )
        names = [clause.name for clause in clauses]
        for name in names:
            if names.count(name) > 1:
                raise PluginError(f"pattern {self.name!r} has two clauses {name!r}")
        return clauses

    def rejection(self, match: Match) -> Rejection | None:
        """Why the predicate does not hold of ``match``; None where it does.

        Raises:
            PluginError: it raises, or gives what is not an answer; names pattern and clause.
        """
        if self.predicate is None:
            return None
        if callable(self.predicate):
            return self._asked(self.predicate, match)
        return next((no for clause in self.predicate if (no := self._tested(clause, match)) is not None), None)

    def _tested(self, clause: Clause, match: Match) -> Rejection | None:
        where = f"pattern {self.name!r}, clause {clause.name!r}"
        result = _answer(clause.test, match, where)
        if isinstance(result, Failed):
            reason = clause.reason if "{value}" in clause.reason else f"{clause.reason} (found {{value}})"
            return Rejection(clause.name, reason.replace("{value}", plain(result.value)), result.value)
        if (holds := truth(result)) is None:
            raise PluginError(f"a clause gave {shown(result)}", where=where, hint="True, False, or Failed(value)")
        if holds:
            return None
        if "{value}" in clause.reason:
            raise PluginError("a clause gave False, but its reason shows a value", where=where, hint="Failed(value)")
        return Rejection(clause.name, clause.reason)

    def _asked(self, predicate: Callable[[Match], Any], match: Match) -> Rejection | None:
        name = str(getattr(predicate, "__name__", "predicate"))
        where = f"pattern {self.name!r}, predicate {name!r}"
        result = _answer(predicate, match, where)
        if isinstance(result, str) and result:
            return Rejection(name, result)
        if (holds := truth(result)) is None:
            raise PluginError(f"a predicate gave {shown(result)}", where=where, hint="True, False, or the reason")
        doc = (getattr(predicate, "__doc__", None) or "").strip()
        return None if holds else Rejection(name, doc.splitlines()[0] if doc else f"{name} does not hold")


def _answer(test: Callable[[Match], Any], match: Match, where: str) -> Any:
    try:
        return test(match)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise PluginError(f"a predicate raised {type(error).__name__}: {error}", where=where) from error


class PatternTable:
    """Patterns in the order in which they were registered, which is their priority.

    Args:
        patterns: the first ones.

    Raises:
        PluginError: two have the same name, or one is not a `Pattern`.
    """

    def __init__(self, patterns: Iterable[Pattern] = ()) -> None:
        self._by_name: dict[str, Pattern] = {}
        self._by_head: dict[str, list[Pattern]] = {}
        for pattern in patterns:
            self.add(pattern)

    def add(self, pattern: Pattern) -> None:
        """Register one more, behind all others.

        Raises:
            PluginError: the name is taken, or it is not a `Pattern`.
        """
        if not isinstance(pattern, Pattern):
            raise PluginError(f"{shown(pattern)} is not a Pattern", hint="Pattern(name, pattern, predicate, lower)")
        if pattern.name in self._by_name:
            raise PluginError(f"there are two patterns {pattern.name!r}", hint="rename one of them")
        self._by_name[pattern.name] = pattern
        for head in sorted(pattern.roots[0].heads or ()):
            self._by_head.setdefault(head, []).append(pattern)

    def __iter__(self) -> Iterator[Pattern]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __getitem__(self, name: str) -> Pattern:
        """The pattern of that name; PluginError where there is none."""
        if name not in self._by_name:
            raise PluginError(f"there is no pattern {shown(name)}", hint=f"there are {', '.join(self._by_name)}")
        return self._by_name[name]

    def get(self, name: str) -> Pattern | None:
        """The pattern of that name; None where there is none."""
        return self._by_name.get(name)

    def rooted_at(self, expr: Expr) -> tuple[Pattern, ...]:
        """The patterns whose first root may be ``expr``, in their order: all that matching has to try."""
        return tuple(self._by_head.get(key_of(expr), ()))
