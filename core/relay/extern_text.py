"""The text form of externs, in the texts of modules and of programs; the bytes of blobs are kept beside it.

::

    @extern("start", queue="commands", scalars={"lanes": 4}, ports={"x": "axi"})  # the routine, and what is not empty
    def conv(
        x: In[int8, (1, 8)],
        y: Out[int8, (1, 4), align(16)],
        t: Workspace[int8, (64,), scope("spad")],
    ):
        memories(spad)                                  # defined before, as for loops
        may_alias(y, x)
        stream = blob('9f86d081...', 128, align(64))    # SHA-256, bytes
        relocate(stream, 4, "address", offset(x, 16))   # at byte 4, in that field: x + 16, from the start of its base
        relocate(stream, 8, "region", base(x))          # the number of that base
        mark(stream, 0, 'model/conv')                   # from byte 0 on for that layer

What is printed from an `Extern` parses to that very extern.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator
from typing import Literal

from ..errors import ModelError
from ..tir.form.printer import Definitions, print_definition
from ..tir.form.text import Defined, FuncParser
from ..tir.form.text_exprs import called, literal, name_of
from .extern import Blob, Extern, Relocation

__all__ = ["parse_extern", "print_extern"]

_WORDS = ("queue", "scalars", "ports")


def print_extern(extern: Extern, name: str, definitions: Definitions) -> tuple[str, dict[str, bytes]]:
    """The text of an extern under the name that its module gives it, and the bytes of its blobs by digest.

    Args:
        extern: what to print.
        name: an identifier.
        definitions: of the larger text that this is a part of.
    """
    contents = {hashlib.sha256(blob.data).hexdigest(): blob.data for blob in extern.blobs}
    mark = [repr(extern.routine)]
    if extern.queue is not None:
        mark.append(f"queue={extern.queue!r}")
    mark += [
        f"{word}={dict(values)!r}" for word, values in (("scalars", extern.scalars), ("ports", extern.ports)) if values
    ]
    lines = list(_lines(extern, definitions)) or ["pass"]
    return print_definition(f"@extern({', '.join(mark)})", name, extern.params, lines), contents


def _lines(extern: Extern, definitions: Definitions) -> Iterator[str]:
    if extern.memories:
        yield f"memories({', '.join(definitions.names[memory] for memory in extern.memories)})"
    yield from (f"may_alias({out}, {source})" for out, source in extern.may_alias)
    for blob in extern.blobs:
        digest = hashlib.sha256(blob.data).hexdigest()
        yield f"{blob.name} = blob({digest!r}, {len(blob.data)}, align({blob.alignment}))"
    for blob in extern.blobs:
        for one in blob.relocations:
            addend = f", {one.addend}" if one.addend else ""
            yield f"relocate({blob.name}, {one.at}, {one.field!r}, {one.value}({one.symbol}{addend}))"
        yield from (f"mark({blob.name}, {at}, {layer!a})" for at, layer in blob.marks)


def parse_extern(
    node: ast.FunctionDef, defined: Defined, content: Callable[[ast.AST, str], bytes]
) -> tuple[str, Extern]:
    """The name and extern that a definition marked ``@extern`` gives.

    Args:
        node: the definition, from the tree of a text.
        defined: what stands before it in the text.
        content: the bytes of a digest, or the error, at a place of the text, that there are none.

    Raises:
        TextError: it is malformed.
    """
    return _Parser(node, defined, content).extern()


class _Parser(FuncParser):
    def __init__(self, node: ast.FunctionDef, defined: Defined, content: Callable[[ast.AST, str], bytes]) -> None:
        super().__init__(defined.source, defined)
        self.node = node
        self.content = content
        self.blobs: dict[str, tuple[bytes, int]] = {}
        self.relocations: dict[str, list[Relocation]] = {}
        self.marks: dict[str, list[tuple[int, str]]] = {}

    def extern(self) -> tuple[str, Extern]:
        node = self.node
        if not node.name.isascii():
            raise self.error(node, f"{node.name!r} is not an ASCII identifier")
        self.returns_nothing(node)
        mark = node.decorator_list[0]
        args, words = self.mixed_arguments(mark, _WORDS) if isinstance(mark, ast.Call) else ([], {})
        if len(args) != 1:
            raise self.error(mark, 'an extern is marked with its routine: @extern("start")')
        routine = self.string(args[0])
        queue = self.string(words["queue"]) if "queue" in words else None
        scalars = {key: self.scalar(value) for key, value in self.mapping(words, "scalars")}
        ports = {key: self.string(value) for key, value in self.mapping(words, "ports")}
        params = tuple([self.param(arg) for arg in self.plain_arguments(node.args)])
        body = [statement for statement in node.body if not isinstance(statement, ast.Pass)]
        memories = self.declared(body.pop(0), self.defined.memories) if body and called(body[0]) == "memories" else ()
        aliases = []
        while body and called(body[0]) == "may_alias":
            aliases.append(self.may_alias(body.pop(0)))
        for statement in body:
            self.blob_statement(statement)
        try:
            blobs = [
                Blob(name, data, alignment, tuple(self.relocations[name]), tuple(self.marks[name]))
                for name, (data, alignment) in self.blobs.items()
            ]
            return node.name, Extern(params, routine, scalars, tuple(blobs), tuple(aliases), memories, queue, ports)
        except ModelError as error:
            raise self.error(node, error.what) from None

    def mapping(self, words: dict[str, ast.expr], word: str) -> Iterator[tuple[str, ast.expr]]:
        if word not in words:
            return
        node = words[word]
        if not isinstance(node, ast.Dict):
            raise self.error(node, f"{word} are a mapping from names")
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                raise self.error(value, f"{word} are a mapping from names")
            yield self.string(key), value

    def scalar(self, node: ast.expr) -> int | float:
        value = literal(node)
        if value is None or (isinstance(value, int) and value.bit_length() > 64):
            raise self.error(node, "expected a number of 64 bits")
        return value

    def blob_statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and called(node.value) == "blob":
            self.blob(node, name_of(node.targets[0]))
        elif called(node) == "relocate":
            where, at, field, value = self.call_arguments(node, 4)
            self.relocations[self.known(where)].append(self.relocation(at, field, value))
        elif called(node) == "mark":
            where, at, layer = self.call_arguments(node, 3)
            self.marks[self.known(where)].append((self.integer(at), self.string(layer)))
        else:
            raise self.error(node, "expected blob, relocate, mark, memories or may_alias")

    def blob(self, node: ast.Assign, name: str) -> None:
        args = self.call_arguments(node.value)
        if not name or len(args) != 3 or called(args[2]) != "align":
            raise self.error(node, "expected name = blob('digest', bytes, align(bytes))")
        if name in self.blobs:
            raise self.error(node, f"two blobs are called {name!r}")
        digest = self.string(args[0])
        data = self.content(args[0], digest)
        if len(data) != self.integer(args[1]) or hashlib.sha256(data).hexdigest() != digest:
            raise self.error(args[0], "the bytes of this blob are not those of its digest")
        self.blobs[name] = data, self.integer(self.call_arguments(args[2], 1)[0])
        self.relocations[name], self.marks[name] = [], []

    def known(self, node: ast.expr) -> str:
        """The name of a blob."""
        if name_of(node) not in self.blobs:
            raise self.error(node, "expected the name of a blob that is defined before")
        return name_of(node)

    def relocation(self, at: ast.expr, field: ast.expr, value: ast.expr) -> Relocation:
        word = called(value)
        args = self.call_arguments(value) if word in ("offset", "base") else []
        if not 1 <= len(args) <= 2 or not name_of(args[0]):
            raise self.error(value, "expected offset(name), offset(name, addend) or base(name)")
        addend = self.integer(args[1]) if len(args) > 1 else 0
        kind: Literal["offset", "base"] = "offset" if word == "offset" else "base"
        place, name = self.integer(at), self.string(field)
        try:
            return Relocation(place, name, name_of(args[0]), addend, kind)
        except ModelError as error:
            raise self.error(value, error.what) from None
