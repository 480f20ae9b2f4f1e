"""A pattern in words: what it takes, as text that people read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from .conditions import Anything, Condition, TensorCondition, Where
from .pattern import Pattern
from .terms import AnyOf, ConstantTerm, Item, OpTerm, Term, Wildcard

__all__ = ["describe"]

_LONGEST_CYCLE = 8
_NUMBERED = re.compile(r"\bv([0-9]+)\b")


def describe(pattern: Pattern) -> str:
    """What ``pattern`` looks like: a line for every term, operands before what uses them, results last.

    A leaf is ``data: int8`` or ``weight: constant int8``, a call ``sums = nn.dense(data, weight)`` or
    ``y = clip(sums, a_min=0.0, a_max=any)``: it shows every attribute with what it may be, a value, ``any``, or what a
    test asks for in angle brackets. Where all may be anything ``...`` stands for them. ``a | b`` is the first of these
    that fits. What has no name is numbered: ``v1``. The predicate is not part of it.
    """
    terms = _operands_first(pattern.roots)
    # Alternatives may share a name, and the blocks of a chain do.
    count = Counter(term.name for term in terms)
    names: dict[Term, str] = {}
    for term in terms:
        names[term] = term.name if term.name is not None and count[term.name] == 1 else f"v{len(names) + 1}"
    # What stands at two places has a line of its own, which says that it is one and the same there.
    uses = Counter(part for term in terms for part in term.parts())
    leaves = [term for term in terms if isinstance(term, (Wildcard, ConstantTerm))]
    inlined: dict[Term, str] = {term: _leaf(term) for term in leaves if term.name is None and uses[term] < 2}
    lines = [_line(term, {**names, **inlined}) for term in names if term not in inlined]
    lines.append(f"result: {', '.join(names[root] for root in pattern.roots)}")
    return "\n".join(_folded(_renumbered(lines)))


def _operands_first(roots: tuple[Term, ...]) -> list[Term]:
    terms: dict[Term, None] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        term, is_ready = stack.pop()
        if is_ready:
            terms[term] = None
        elif term not in terms:
            stack.append((term, True))
            stack.extend((part, False) for part in reversed(term.parts()) if part not in terms)
    return list(terms)


def _line(term: Term, names: Mapping[Term, str]) -> str:
    called = f" as {term.name}" if term.name is not None and names[term] != term.name else ""
    head = f"{names[term]}{called}"
    if isinstance(term, (Wildcard, ConstantTerm)):
        return f"{head}: {_leaf(term)}"
    typed = f": {_tensor(term.tensor)}" if term.tensor != TensorCondition() else ""
    private = "  # nothing else uses it" if term.is_private else ""
    return f"{head}{typed} = {_spelling(term, names)}{private}"


def _spelling(term: Term, names: Mapping[Term, str]) -> str:
    if isinstance(term, OpTerm):
        return _call(term, names)
    if isinstance(term, AnyOf):
        return " | ".join(names[option] for option in term.options)
    assert isinstance(term, Item)
    return f"{names[term.value]}[{term.index}]"


def _call(term: OpTerm, names: Mapping[Term, str]) -> str:
    operands = [names[arg] for arg in term.args]
    pairs = zip(term.op.attrs, term.attrs, strict=True)
    attributes = [f"{attr.name}={_wanted(condition)}" for attr, condition in pairs]
    if attributes and all(isinstance(condition, Anything) for condition in term.attrs):
        attributes = ["..."]
    return f"{term.op.name}({', '.join(operands + attributes)})"


def _wanted(condition: Condition) -> str:
    if isinstance(condition, Anything):
        return "any"
    return f"<{condition.wanted()}>" if isinstance(condition, Where) else condition.wanted()


def _leaf(term: Term) -> str:
    return f"{'constant ' if isinstance(term, ConstantTerm) else ''}{_tensor(term.tensor)}"


def _tensor(tensor: TensorCondition) -> str:
    dtypes = "any" if tensor.dtypes is None else " or ".join(tensor.dtypes)
    if tensor.shape is not None:
        return f"{dtypes}[{', '.join(map(_wanted, tensor.shape))}]"
    return dtypes if tensor.rank is None else f"{dtypes} of rank {tensor.rank}"


def _renumbered(lines: list[str]) -> list[str]:
    """Numbers without gaps, which leaves that have no line of their own left."""
    heads = [match[1] for line in lines if (match := re.match(r"v([0-9]+)\b", line))]
    numbers = {old: str(new) for new, old in enumerate(heads, 1)}
    return [_NUMBERED.sub(lambda reference: f"v{numbers.get(reference[1], reference[1])}", line) for line in lines]


def _folded(lines: list[str]) -> Iterator[str]:
    """The lines, but of what is there again and again, as in a chain, the first time and how often."""
    relative = [_relative(line) for line in lines]
    position = 0
    while position < len(lines):
        length, times = _repeats(relative, position)
        yield from lines[position : position + length]
        if times > 1:
            last = _NUMBERED.search(lines[position + length * times - 1])
            yield f"... and the same {times - 1} times more, up to {last[0] if last else 'here'}"
        position += length * times


def _relative(line: str) -> str:
    """A line in which numbers count from its own."""
    first = re.match(r"v([0-9]+)\b", line)
    base = int(first[1]) if first else 0
    return _NUMBERED.sub(lambda reference: f"v{int(reference[1]) - base:+d}", line)


def _repeats(lines: list[str], start: int) -> tuple[int, int]:
    """How many lines from ``start`` on are a cycle, and how often it is there: three times at least, else once."""
    for length in range(1, _LONGEST_CYCLE + 1):
        cycle, times = lines[start : start + length], 1
        while lines[start + times * length : start + (times + 1) * length] == cycle:
            times += 1
        if times > 2:
            return length, times
    return 1, 1
