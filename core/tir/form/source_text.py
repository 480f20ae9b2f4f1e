"""A text in Python syntax: parsed into Python's own tree, with every fault at its line and column."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Mapping
from types import MappingProxyType

from ...errors import InternalError, TextError

__all__ = ["Source"]


class Source:
    """A text and what it is called.

    Args:
        text: anything; nothing is assumed of it.
        name: what errors call it, for example a file name.
    """

    def __init__(self, text: str, name: str = "<text>") -> None:
        self.text = text
        self.name = name
        self._lines: list[str] | None = None

    def parse(self, numbers: Mapping[str, int] = MappingProxyType({})) -> ast.Module:
        """The syntax tree of the whole text.

        Args:
            numbers: what names of the text stand for.

        Raises:
            TextError: it is not Python syntax, or nested more deeply than Python parses; or it declares one of the
                numbers.
            InternalError: one of the numbers is none.
        """
        tree = self._tree()
        for name, number in numbers.items():
            if not name.isidentifier() or type(number) is not int:
                raise InternalError(f"{name!r} stands for {number!r}, not for a whole number", where=self.name)
        if numbers:
            self._put_in(tree, numbers)
        return tree

    def _put_in(self, tree: ast.Module, numbers: Mapping[str, int]) -> None:
        for node in ast.walk(tree):
            declared = node.arg if isinstance(node, ast.arg) else getattr(node, "name", None)
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                declared = node.id
            if declared in numbers:
                raise self.error(node, f"{declared!r} is given as a number, and is declared here")
            for field, value in ast.iter_fields(node):
                if isinstance(value, list):
                    setattr(node, field, [_number(part, numbers) for part in value])
                else:
                    setattr(node, field, _number(value, numbers))

    def _tree(self) -> ast.Module:
        unreadable = _UNREADABLE.search(self.text)
        if unreadable:
            raise self._error_at_offset(unreadable.start(), f"the text contains {unreadable.group()!r}")
        if sys.version_info < (3, 11):
            self._require_shallow()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of escapes, and of numbers with a keyword behind: all is checked here
                return ast.parse(self.text)
        except SyntaxError as error:
            raise self._error(error.msg, error.lineno or 1, error.offset or 1) from None
        except (MemoryError, RecursionError):
            raise self._error(_TOO_DEEP, self._first_deep_line(), 1) from None

    def error(self, node: ast.AST, what: str, hint: str | None = None) -> TextError:
        """The error ``what`` at the place of a node of the tree that `parse` gave."""
        line, column_bytes = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        before = self.lines[line - 1].encode()[:column_bytes] if line <= len(self.lines) else b""
        return self._error(what, line, len(before.decode(errors="replace")) + 1, hint)

    @property
    def lines(self) -> list[str]:
        """The lines as Python counts them; `str.splitlines` knows more separators."""
        if self._lines is None:
            self._lines = re.split(r"\r\n|\r|\n", self.text)
        return self._lines

    def _error(self, what: str, line: int, column: int, hint: str | None = None) -> TextError:
        return TextError(what, source=self.text, line=line, column=max(column, 1), name=self.name, hint=hint)

    def _error_at_offset(self, position: int, what: str) -> TextError:
        before = Source(self.text[:position]).lines
        return self._error(what, len(before), len(before[-1]) + 1)

    def _first_deep_line(self) -> int:
        """The line at which Python gives up: a shorter text is at worst incomplete."""
        good, bad = 0, len(self.lines)
        while good + 1 < bad:
            middle = (good + bad) // 2
            try:
                ast.parse("\n".join(self.lines[:middle]))
                good = middle
            except SyntaxError:
                good = middle
            except (MemoryError, RecursionError):
                bad = middle
        return bad

    def _require_shallow(self) -> None:
        # Python 3.10 does not bound the recursion over left-nested operators, calls and subscripts, and crashes.
        depth = links = 0
        for token in _TOKENS.finditer(self.text):
            kind = token.lastgroup
            if kind == "link":
                links += 1
                if links > _MAX_LINKS:
                    raise self._error_at_offset(token.start(), _TOO_DEEP)
            if kind == "line" and depth <= 0:
                depth = links = 0
            elif token.group() in ("(", "[", "{"):
                depth += 1
            elif kind == "close":
                depth -= 1


def _number(node: object, numbers: Mapping[str, int]) -> object:
    """A name that stands for a number as that number; anything else as it is."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in numbers:
        return ast.copy_location(ast.Constant(numbers[node.id]), node)
    return node


_UNREADABLE = re.compile("[\0\ud800-\udfff]")
_TOO_DEEP = "the text is nested too deeply"
_MAX_LINKS = 20_000
_TOKENS = re.compile(
    r"""
      (?P<skip> \#[^\r\n]* | \\(?:\r\n|\r|\n)
              | '''(?:\\.|[^\\])*?''' | \"\"\"(?:\\.|[^\\])*?\"\"\"
              | '(?:\\.|[^'\\\r\n])*' | "(?:\\.|[^"\\\r\n])*" )
    | (?P<link> [-+*/%@&|^<>.(\[{] )
    | (?P<close> [)\]}] )
    | (?P<line> \r\n|\r|\n )
    """,
    re.VERBOSE | re.DOTALL,
)
