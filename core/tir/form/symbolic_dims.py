"""Extents that are known when a model runs: numbers between bounds, and what is computed of them.

A `Symbol` stands for a number that the caller gives or the model computes, an `Extent` is a polynomial of symbols. An
extent does what an integer does as far as that holds for every value that its symbols can have: it is added,
multiplied, divided where nothing is left over, and ordered where all values are ordered alike. All else is an
`OpenExtentError`. Two extents are equal where they are the same polynomial: what may be equal for some values is not.
So a computation with shapes that ends is right for the whole range: it never saw a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ...errors import ModelError
from .exprs import INDEX, Expr, Imm, Symbolic, Var, require

__all__ = [
    "MAX_BOUND",
    "Dim",
    "Extent",
    "OpenExtentError",
    "Symbol",
    "bounds_of",
    "equal",
    "format_extents",
    "is_open",
    "may_be_empty",
    "parse_extent",
    "parse_extents",
    "substitute_symbols",
    "symbols_of",
    "upper_bounds",
]

MAX_BOUND = 2**31 - 1
"""Extents are int32."""


class OpenExtentError(ModelError):
    """What is asked of an extent depends on its value."""


@dataclass(frozen=True, eq=False, slots=True, init=False)
class Symbol(Var):
    """A number that the caller of a model gives, or the model computes: ``low`` .. ``high``, both included.

    Args:
        name: an identifier, the name of the parameter that has it; or that of what is computed, as ``take_first`` names
            it.
        low: 0 at least; 1 where the caller gives it.
        high: more than ``low``; what can have one value only is not a symbol.
    """

    low: int
    high: int

    def __init__(self, name: str, low: int, high: int) -> None:
        Var.__init__(self, name, INDEX)
        require(0 <= low < high <= MAX_BOUND, f"extent {name!r} is {low} to {high}")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def __str__(self) -> str:
        return f"{self.name}[{self.low}:{self.high}]"


Product = tuple[Symbol, ...]


class Extent(Symbolic):
    """A sum of products of symbols, each with a factor that is not 0; one that has a symbol at least.

    Made by `Extent.from_symbol` and by arithmetic, which gives a plain integer where no symbol is left.

    Args:
        terms: the factor of each product of symbols, which are sorted by name; ``()`` is the constant.
    """

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Product, int]) -> None:
        self.terms: Mapping[Product, int] = dict(sorted(terms.items(), key=_order))
        self._hash = hash(("extent", tuple(self.terms.items())))

    @staticmethod
    def from_symbol(symbol: Symbol) -> Extent:
        """The number that a symbol stands for."""
        return Extent({(symbol,): 1})

    # What is known of it

    @property
    def low(self) -> int:
        """No value is less."""
        return self._bounds()[0]

    @property
    def high(self) -> int:
        """No value is more."""
        return self._bounds()[1]

    def _bounds(self) -> tuple[int, int]:
        low = high = 0
        for symbols, factor in self.terms.items():
            ends = prod(s.low for s in symbols), prod(s.high for s in symbols)
            low += factor * ends[factor < 0]
            high += factor * ends[factor > 0]
        return low, high

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """Those that it is computed of, by name."""
        by_name = {symbol.name: symbol for symbols in self.terms for symbol in symbols}
        return tuple(by_name[name] for name in sorted(by_name))

    def at(self, values: Mapping[str, int]) -> int:
        """Its value where the symbols have theirs, by name."""
        return sum(factor * prod(values[s.name] for s in symbols) for symbols, factor in self.terms.items())

    def with_values(self, values: Mapping[str, Dim]) -> Dim:
        """It where some of the symbols have values, by name, open ones among them."""
        total: Dim = 0
        for symbols, factor in self.terms.items():
            product: Dim = factor
            for symbol in symbols:
                product = product * values.get(symbol.name, Extent.from_symbol(symbol))
            total = total + product
        return total

    def expression(self, dtype: str) -> Expr:
        """It as an expression of the loop form, of type int32 and cast from there."""
        total: Expr | None = None
        for symbols, factor in self.terms.items():
            part: Expr | None = None if symbols and factor == 1 else Imm(factor, INDEX)
            for symbol in symbols:
                part = symbol if part is None else part * symbol
            assert part is not None
            total = part if total is None else total + part
        assert total is not None
        return total.astype(dtype)

    # Arithmetic

    def __add__(self, other: Any) -> Dim:
        if not _is_number(other):
            return NotImplemented
        terms = dict(self.terms)
        for symbols, factor in _terms(other).items():
            terms[symbols] = terms.get(symbols, 0) + factor
        return _from_terms(terms)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Any) -> Dim:
        return self + -other if _is_number(other) else NotImplemented

    def __rsub__(self, other: Any) -> Dim:
        return -self + other if _is_number(other) else NotImplemented

    def __mul__(self, other: Any) -> Dim:
        if not _is_number(other):
            return NotImplemented
        terms: dict[Product, int] = {}
        for mine, factor in self.terms.items():
            for others, times in _terms(other).items():
                symbols = tuple(sorted(mine + others, key=lambda symbol: symbol.name))
                terms[symbols] = terms.get(symbols, 0) + factor * times
        return _from_terms(terms)

    __rmul__ = __mul__

    def __divmod__(self, other: Any) -> tuple[Dim, Dim]:
        if not _is_number(other):
            return NotImplemented
        divisors = list(_terms(other).items())
        if len(divisors) == 1 and divisors[0][1] > 0:
            (divisor, by), quotient, rest = divisors[0], dict[Product, int](), 0
            for symbols, factor in self.terms.items():
                reduced = _without(symbols, divisor)
                if reduced is None or factor % by:
                    if symbols or divisor:
                        break
                    rest = factor % by
                quotient[reduced or ()] = factor // by
            else:
                return _from_terms(quotient), rest
        raise OpenExtentError(f"what is left of {self} divided by {other} depends on the extent")

    def __floordiv__(self, other: Any) -> Dim:
        return divmod(self, other)[0] if _is_number(other) else NotImplemented

    def __mod__(self, other: Any) -> Dim:
        return divmod(self, other)[1] if _is_number(other) else NotImplemented

    def __rfloordiv__(self, other: Any) -> Dim:
        raise OpenExtentError(f"{other} divided by {self} depends on the extent")

    __rmod__ = __rfloordiv__

    # Comparisons

    def _less(self, other: Any) -> tuple[int, int]:
        """The bounds of what it has more than ``other``."""
        return bounds_of(self - other)

    def _decide(self, yes: bool, no: bool, what: str, other: Any) -> bool:
        if yes == no:
            raise OpenExtentError(f"whether {self} {what} {other} depends on the extent")
        return yes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extent) and self.terms == other.terms

    def equals(self, other: Dim) -> bool:
        """Whether it is ``other``, of which `==` tells only where it is that whatever the symbols are."""
        low, high = self._less(other)
        return self._decide(low == high == 0, low > 0 or high < 0, "is", other)

    def __lt__(self, other: Any) -> bool:
        if not _is_number(other):
            return NotImplemented
        low, high = self._less(other)
        return self._decide(high < 0, low >= 0, "is less than", other)

    def __ge__(self, other: Any) -> bool:
        return not self < other if _is_number(other) else NotImplemented

    def __gt__(self, other: Any) -> bool:
        if not _is_number(other):
            return NotImplemented
        low, high = self._less(other)
        return self._decide(low > 0, high <= 0, "is more than", other)

    def __le__(self, other: Any) -> bool:
        return not self > other if _is_number(other) else NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __bool__(self) -> bool:
        return not self.equals(0)

    # What takes a number that is known

    def __index__(self) -> int:
        raise OpenExtentError(f"a number is needed where the extent is {self}")

    __int__ = __index__

    def __float__(self) -> float:
        raise OpenExtentError(f"a number is needed where the extent is {self}")

    # Text

    def __str__(self) -> str:
        parts = []
        for symbols, factor in self.terms.items():
            factors = [*([] if symbols and abs(factor) == 1 else [str(abs(factor))]), *map(str, symbols)]
            parts.append((" - " if factor < 0 else " + ") + "*".join(factors))
        text = "".join(parts)
        return text[3:] if text.startswith(" + ") else f"-{text[3:]}"

    __repr__ = __str__


Dim = int | Extent
"""An extent of a tensor that is open, or not."""


def _is_number(value: object) -> bool:
    return isinstance(value, Extent) or (isinstance(value, int) and not isinstance(value, bool))


def _order(term: tuple[Product, int]) -> tuple[bool, int, list[str]]:
    symbols, _ = term
    return not symbols, -len(symbols), [symbol.name for symbol in symbols]


def _terms(value: Dim) -> Mapping[Product, int]:
    return value.terms if isinstance(value, Extent) else {(): value}


def _from_terms(terms: Mapping[Product, int]) -> Dim:
    nonzero = {symbols: factor for symbols, factor in terms.items() if factor}
    return Extent(nonzero) if any(nonzero) else nonzero.get((), 0)


def _without(symbols: Product, divisor: Product) -> Product | None:
    remaining = list(symbols)
    for symbol in divisor:
        if symbol not in remaining:
            return None
        remaining.remove(symbol)
    return tuple(remaining)


def equal(a: Dim, b: Dim) -> bool:
    """Whether two extents are one, where that does not depend on their values.

    Raises:
        OpenExtentError: it does.
    """
    return a.equals(b) if isinstance(a, Extent) else b.equals(a) if isinstance(b, Extent) else a == b


def is_open(extents: Iterable[object]) -> bool:
    """Whether one of some extents is open."""
    return any(isinstance(extent, Extent) for extent in extents)


def may_be_empty(extent: Dim) -> bool:
    """Whether an extent can be 0."""
    return bounds_of(extent)[0] < 1


def bounds_of(extent: Dim) -> tuple[int, int]:
    """The least and the largest value."""
    return (extent.low, extent.high) if isinstance(extent, Extent) else (extent, extent)


def upper_bounds(extents: Iterable[Dim]) -> tuple[int, ...]:
    """The largest values of some extents: what memory is planned for."""
    return tuple([bounds_of(extent)[1] for extent in extents])


def symbols_of(extents: Iterable[object]) -> tuple[Symbol, ...]:
    """The symbols of some extents, by name."""
    symbols = {s.name: s for extent in extents if isinstance(extent, Extent) for s in extent.symbols}
    return tuple(symbols[name] for name in sorted(symbols))


def substitute_symbols(extents: Sequence[Dim], values: Mapping[str, int]) -> tuple[int, ...]:
    """Extents where the symbols have values, by name."""
    return tuple([extent.at(values) if isinstance(extent, Extent) else extent for extent in extents])


def format_extents(extents: Iterable[Dim]) -> str:
    """Extents as one text, which `parse_extents` reads."""
    return ", ".join(map(str, extents))


def parse_extents(text: str) -> tuple[Dim, ...]:
    """The extents of which one at least is open that `format_extents` formats as ``text``.

    Raises:
        ModelError: it shows none so.
    """
    extents = tuple(map(parse_extent, text.split(", ")))
    if not is_open(extents):
        raise ModelError(f"{text[:80]!r} has no open extent")
    return extents


_SYMBOL = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\[([0-9]{1,10}):([0-9]{1,10})\]", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


def parse_extent(text: str) -> Dim:
    """The extent that ``str`` shows as ``text``.

    Raises:
        ModelError: it shows none so.
    """
    wrong = ModelError(f"{text[:80]!r} is not an extent", hint="for example 12*tokens[1:128] + 3")
    total: Dim = 0
    spaced = f" + {text}" if not text.startswith("-") else f" - {text[1:]}"
    for sign, part in re.findall(r" ([+-]) ([^ ]*)", spaced):
        product: Dim = 1 if sign == "+" else -1
        for factor in part.split("*"):
            symbol = _SYMBOL.fullmatch(factor)
            if symbol is not None:
                name, low, high = symbol[1], int(symbol[2]), int(symbol[3])
                if not 0 <= low < high <= MAX_BOUND:
                    raise wrong
                product = product * Extent.from_symbol(Symbol(name, low, high))
            elif _NUMBER.fullmatch(factor):
                product = product * int(factor)
            else:
                raise wrong
        total = total + product
    if str(total) != text:
        raise wrong
    return total
