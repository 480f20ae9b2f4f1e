"""Whether a text follows the grammar in a module's docstring, told by nothing but that grammar.

A rule is ``name = ..`` and the lines under it that are indented further: literals in quotes, names of rules, the tokens
of Python in capitals, ``[optional]``, ``{any number}``, ``(a group)`` and ``|`` between alternatives.
"""

from __future__ import annotations

import io
import keyword
import re
import tokenize
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

Token = tuple[str, str]
_PARTS = re.compile(r'"[^"]*"|[A-Za-z_]+|[\[\]{}()|]')
_LITERAL = re.compile(r"\w+|==|!=|<=|>=|<<|>>|//|\+=|\*=|->|\S")
_CLOSES = {"[": "]", "{": "}", "(": ")"}


def tokens(text: str) -> list[Token]:
    """The kinds and texts of Python's tokens; numbers are INT or FLOAT, and no keyword is a NAME."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "NUMBER":
            kind = "FLOAT" if re.search(r"[.eE]", token.string) else "INT"
        elif keyword.iskeyword(token.string):
            kind = "KEYWORD"
        if kind not in ("NL", "COMMENT", "ENDMARKER"):
            found.append((kind, token.string))
    return found


class Grammar:
    """The grammar in the docstring of ``module``; its first rule is that of whole texts.

    Args:
        module: which has it after a line ``Grammar::``.
        others: rules that other grammars have, by the names that they have here: the grammar, and its name there.
    """

    def __init__(self, module: ModuleType, **others: tuple[Grammar, str]) -> None:
        assert module.__doc__ is not None
        (block,) = re.findall(r"^Grammar::\n\n((?:    .*\n|\n)+)", module.__doc__, re.M)
        self.rules: dict[str, Any] = {name: grammar.rules[there] for name, (grammar, there) in others.items()}
        for rule in re.split(r"\n    (?=\w+ +=)", "\n" + block)[1:]:
            name, _, parts = rule.partition("=")
            self.rules[name.strip()] = self._alternatives(iter(_PARTS.findall(parts)), "")
        self.first = re.findall(r"^    (\w+)", block)[0]

    def _alternatives(self, parts: Iterator[str], end: str) -> Any:
        choices: list[list[Any]] = [[]]
        for part in parts:
            if part == end:
                break
            if part == "|":
                choices.append([])
            elif part in _CLOSES:
                choices[-1].append((part, self._alternatives(parts, _CLOSES[part])))
            elif part.startswith('"'):
                choices[-1] += [("literal", text) for text in _LITERAL.findall(part[1:-1])]
            elif part.isupper():
                choices[-1].append(("token", part))
            else:
                choices[-1].append(("rule", (self, part)))
        return choices

    def accepts(self, text: str) -> bool:
        """Whether ``text`` is a sentence of the grammar."""
        found = tokens(text)
        memo: dict[tuple[int, int], frozenset[int]] = {}

        def choices(node: list[list[Any]], at: int) -> frozenset[int]:
            key = (id(node), at)
            if key not in memo:
                memo[key] = frozenset()  # a rule that begins with itself adds nothing
                memo[key] = frozenset(end for sequence in node for end in follow(sequence, at))
            return memo[key]

        def follow(sequence: list[Any], at: int) -> set[int]:
            ends = {at}
            for part in sequence:
                ends = {end for start in ends for end in one(part, start)}
            return ends

        def one(part: tuple[str, Any], at: int) -> Iterable[int]:
            kind, what = part
            if kind in ("literal", "token"):
                fits = at < len(found) and found[at][kind == "literal"] == what
                return {at + 1} if fits else set()
            if kind == "rule":
                grammar, name = what
                return choices(grammar.rules[name], at)
            ends = choices(what, at)
            if kind == "(":
                return ends
            reached = {at, *ends}
            fresh = set(ends) if kind == "{" else set()
            while fresh:
                fresh = {end for start in fresh for end in choices(what, start)} - reached
                reached |= fresh
            return reached

        return len(found) in choices(self.rules[self.first], 0)
