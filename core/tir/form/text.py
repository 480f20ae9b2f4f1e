"""The text form of loops: Python syntax, read with `ast`.

Grammar::

    text       = { definition } function
    definition = NAME "= memory(" INT ["," align] { "," NAME "=" STRING } ")" NEWLINE
               | NAME "= queue(" STRING ["," INT] { "," NAME "=" STRING } ")" NEWLINE
               | "@intrinsic(" [STRING] { [","] NAME "=" STRING } ")" NEWLINE "def" NAME "(" { operand [","] } ")" body
    operand    = NAME ": Operand[" buffer "]" | NAME ": int32"
    function   = "@prim_func" NEWLINE "def" NAME "(" { NAME ":" role "[" buffer "]" [","] } "):" NEWLINE INDENT
                 ["memories(" names ")" NEWLINE] ["queues(" names ")" NEWLINE]
                 { "may_alias(" NAME "," NAME ")" NEWLINE } { "overlaps(" NAME "," NAME "," ["-"] INT ")" NEWLINE }
                 { "partial(" NAME ")" NEWLINE } [rows] { statement } DEDENT
    rows       = "rows(" NAME "," INT ")" NEWLINE { by_rows NEWLINE } { "kept(" NAME ")" NEWLINE }
    by_rows    = "by_rows(" NAME "," INT ["," "window=" INT] ["," "stride=" INT] ["," "before=" INT] ")"
    role       = "In" | "Out" | "Const" | "Workspace"
    buffer     = dtype "," shape ["," align] [", scope(" STRING ")"]
    align      = "align(" INT ")"

    body       = ":" NEWLINE INDENT statement { statement } DEDENT
    statement  = "for" NAME "in" ("range" | "parallel" | "unrolled" | "vectorized") "(" expr ")" body
               | "if" expr body { "elif" expr body } ["else" body]
               | NAME ":" dtype "=" expr NEWLINE
               | NAME "= alloc(" buffer ")" NEWLINE
               | element "=" expr NEWLINE
               | element ("+=" | "*=") expr NEWLINE
               | ("update_min" | "update_max") "(" element "," expr ")" NEWLINE
               | "with" call body | call NEWLINE | "pass" NEWLINE
    call       = NAME "(" [ argument { "," argument } ] ")"
    argument   = view | shape | STRING | expr
    view       = "view(" element { ", axis(" INT ["," INT] ")" } ")"
    element    = NAME "[" expr { "," expr } "]" | NAME "[()]"
    shape      = "(" [ expr { "," expr } [","] ] ")"
    names      = NAME { "," NAME }

    expr       = operation ["if" expr "else" expr]
    operation  = { "not" | "-" } term { operator { "not" | "-" } term }
    term       = NAME | element | "(" expr ")" | INT | FLOAT | "True" | "False"
               | NAME "(" (STRING | expr { "," expr }) ")"
    operator   = "or" | "and" | "==" | "!=" | "<" | "<=" | ">" | ">=" | "|" | "^" | "&" | "<<" | ">>"
               | "+" | "-" | "*" | "/" | "//" | "%"
    dtype      = NAME

Operators bind as in Python. What is called in an expression is a dtype (a cast, or a constant of that type), a row of
`FUNCTIONS`, ``min``, ``max``, ``truncdiv``, ``abs`` or ``neg``; as a statement, one of `CALLS` or an intrinsic. ::

    spad = memory(1024, align(8), start_in="dma_in({device}, {queue}, {to}, {from}, {row_bytes})")
    dma = queue("dma_wait({device}, {pending})")        # its index, if not 0, comes second

    # its code in C, and what starts it on a queue: one of both will do. One of the host has a statement="..." instead
    @intrinsic("add({device}, {a}, {n})", start="add_start({device}, {queue}, {a}, {n})")
    def add(a: Operand[int32, (16,), scope("spad")], n: int32):
        for i in range(n):                              # what it does
            a[i] += 1

    @prim_func
    def scale(x: In[int32, (8, 16)], y: Out[int8, (8, 16), align(16)], w: Const[int32, (16,)]):
        memories(spad)                                  # those that the function uses
        queues(dma)
        may_alias(y, x)                                 # y and x may be the same memory
        overlaps(y, x, -8)                              # or y over x, which begins 8 bytes before it, or later
        with block("rows"):                             # a label
            for i in range(8):
                t = alloc(int32, (16,), scope("spad"))  # exists to the end of the body
                copy(view(t[0], axis(0)), view(x[i, 0], axis(1)), (16,), dma)  # to, source, extents, queue
                wait(dma)                               # for all; wait(dma, 1) for all but the last one
                add(view(t[0], axis(0)), 16)            # or 16, dma)
                for j in range(16):
                    v: int32 = x[i, j] * w[j]           # a name for a value, to the end of the body
                    y[i, j] = int8(v) if 0 <= v and v < 9 else -1

A function that says ``rows`` does one round of what it does: all of it is the round for each row. Of what lies by rows
it says how many rows there are, and which of them a round touches: `RowParam`. ::

    @prim_func
    def sum3(x: In[int8, (64,)], y: Out[int8, (64,)]):
        rows(r, 8)                                      # for r = 0 .. 7
        by_rows(x, 8, window=3, before=1)               # rows r - 1 to r + 1 of 8, as far as there are
        by_rows(y, 8)                                   # row r of 8; kept(a) is a workspace that keeps what is in it
        for i in range(8):
            y[r * 8 + i] = x[r * 8 + i] + (x[r * 8 + i - 8] if r > 0 else 0) + (x[r * 8 + i + 8] if r < 7 else 0)

A text of definitions alone is a machine (`parse_machine`); texts of functions that are read with it (`parse_func`)
need not define them again. Names may stand for numbers that the caller gives.

A view starts at an element; ``axis(1, 2)`` goes along dimension 1 by steps of 2. Where two functions of a text have
different things of one name, ``name="spad"`` keeps the name that a definition cannot have.

Constants take the type of what they stand beside, else they are written ``int8(3)``. Booleans are ``True`` and
``False``; floats that are not finite ``float32("inf")``, ``float32("-inf")``, ``float32("nan")``. A constant has its
sign with it: ``-3``; the operation on one is ``neg(3)``. A scalar buffer is accessed as ``t[()]``.

What is printed from a function that `verify` accepts parses to that very function.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from ..proofs.lanes import register_faults
from ..proofs.obligations import unproven
from .machine import Machine
from .nodes import (
    INDEX,
    Buffer,
    Intrinsic,
    Memory,
    Param,
    PrimFunc,
    Queue,
    RowForm,
    RowParam,
    Var,
    seq,
)
from .printer import ROLES, TRANSFERS, WINDOW, WORDS, Definitions, print_func
from .source_text import Source
from .text_exprs import called, name_of
from .text_statements import StatementParser
from .verify import faults, intrinsic_faults

__all__ = ["Defined", "Definitions", "FuncParser", "parse_def", "parse_func", "parse_machine", "print_func"]

_ROLE_NAMES = {word: role for role, word in ROLES.items()}
_EXAMPLES = {"memory": "spad = memory(1024)", "queue": 'dma = queue("dma_wait({device}, {pending})")'}

Item = TypeVar("Item")


_NO_NUMBERS: Mapping[str, int] = MappingProxyType({})


def parse_machine(text: str, numbers: Mapping[str, int] = _NO_NUMBERS, source_name: str = "<text>") -> Machine:
    """The memories, queues and intrinsics that ``text`` defines, whether or not anything uses them.

    Args:
        text: their definitions.
        numbers: what names in the text stand for: sizes that depend on a target's attributes, for example.
        source_name: what errors call the text.

    Raises:
        TextError: the text is something else, or a definition is wrong, or contradicts those before it.
        InternalError: one of the numbers is none.
    """
    source = Source(text, source_name)
    defined = Defined(source)
    machine = Machine()
    for node in source.parse(numbers).body:
        if not defined.take(node):
            what = "a machine consists of memories, queues and intrinsics: NAME = memory(...), NAME = queue(...)"
            raise source.error(node, f"{what} and functions that are marked @intrinsic(...)")
        with FuncParser(source, defined).at(node):
            machine = defined.machine()
    return machine


def parse_func(
    text: str,
    source_name: str = "<text>",
    *,
    machine: Machine | None = None,
    numbers: Mapping[str, int] = _NO_NUMBERS,
) -> tuple[str, PrimFunc]:
    """The one function that ``text`` defines, after the memories, queues and intrinsics that it needs, and its name.

    Args:
        text: the function.
        source_name: what errors call the text.
        machine: what it may use besides, by its own names.
        numbers: what names in the text stand for.

    Raises:
        TextError: the text is not such a function, or not one that `verify` accepts. Whether it stays within its
            buffers is not asked: the interpreter sees that.
        InternalError: one of the numbers is none.
    """
    source = Source(text, source_name)
    defined = Defined(source, machine)
    statements = [node for node in source.parse(numbers).body if not defined.take(node)]
    if len(statements) != 1 or not isinstance(statements[0], ast.FunctionDef):
        at = next((node for node in statements if not isinstance(node, ast.FunctionDef)), None)
        place = at or (statements[1] if statements else ast.Module([], []))
        raise source.error(place, "expected one function, marked @prim_func")
    return FuncParser(source, defined).function(statements[0])


def parse_def(node: ast.FunctionDef, defined: Defined, *, is_unrolled: bool = False) -> tuple[str, PrimFunc]:
    """The name and function that a definition within a larger text gives.

    Args:
        node: the definition, from the tree of the text.
        defined: what stands before it in the text.
        is_unrolled: whether loops are unrolled at this stage, so that every register is known.

    Raises:
        TextError: it is not a function that `verify` accepts and that `unproven` and `register_faults` find nothing on.
    """
    parser = FuncParser(defined.source, defined)
    name, func = parser.function(node)
    fault = unproven(func) or next(register_faults(func, early=not is_unrolled), None)
    if fault is not None:
        place = node if fault.place is None else parser.places.get(fault.place, node)
        raise parser.source.error(place, fault.what, fault.hint)
    return name, func


class Defined:
    """The memories, queues and intrinsics that a text has defined so far, by the names it gives them.

    Args:
        source: the text.
        machine: what is there before it, by its own names.
    """

    def __init__(self, source: Source, machine: Machine | None = None) -> None:
        machine = machine or Machine()
        self.source = source
        self.memories = {memory.name: memory for memory in machine.memories}
        self.queues = {queue.name: queue for queue in machine.queues}
        self.intrinsics = {intrinsic.name: intrinsic for intrinsic in machine.intrinsics}

    def machine(self) -> Machine:
        """All of them."""
        return Machine(tuple(self.memories.values()), tuple(self.queues.values()), tuple(self.intrinsics.values()))

    def take(self, node: ast.stmt) -> bool:
        """Read a statement of the text if it defines a memory, a queue or an intrinsic.

        Returns:
            Whether it does.

        Raises:
            TextError: it does so wrongly, or by a name that is taken.
        """
        word = called(node.value) if isinstance(node, ast.Assign) else ""
        if isinstance(node, ast.Assign) and word in _EXAMPLES:
            name = name_of(node.targets[0]) if len(node.targets) == 1 else ""
            if not name:
                raise self.source.error(node, f"expected a name for the {word}: {_EXAMPLES[word]}")
            self._free(node, name)
            if word == "memory":
                self.memories[name] = FuncParser(self.source, self).memory(node.value, name)
            else:
                self.queues[name] = FuncParser(self.source, self).queue(node.value, name)
            return True
        if isinstance(node, ast.FunctionDef) and [called(mark) for mark in node.decorator_list] == ["intrinsic"]:
            self._free(node, node.name)
            self.intrinsics[node.name] = FuncParser(self.source, self).intrinsic(node)
            return True
        return False

    def _free(self, node: ast.stmt, name: str) -> None:
        if name in self.memories or name in self.queues or name in self.intrinsics:
            raise self.source.error(node, f"{name!r} is defined twice")


class FuncParser(StatementParser):
    """Reads definitions: of loops, and the parts that those of other functions have in common with them."""

    def __init__(self, source: Source, defined: Defined) -> None:
        super().__init__(source, defined.queues, defined.intrinsics)
        self.defined = defined

    # Memories, queues and intrinsics

    def memory(self, node: ast.expr, name: str) -> Memory:
        args, words = self.mixed_arguments(node, (*TRANSFERS, "ports", "name"))
        align = args[1] if len(args) > 1 else None
        if not 1 <= len(args) <= 2 or (align is not None and called(align) != "align"):
            raise self.error(node, "expected memory(bytes) or memory(bytes, align(bytes))")
        alignment = 1 if align is None else self.integer(self.call_arguments(align, 1)[0])
        texts = {key: self.string(value) for key, value in words.items()}
        with self.at(node):
            ports = tuple(texts.pop("ports", "").split())
            return Memory(texts.pop("name", name), self.integer(args[0]), alignment, **texts, ports=ports)

    def queue(self, node: ast.expr, name: str) -> Queue:
        args, words = self.mixed_arguments(node, ("poll", "name"))
        if not 1 <= len(args) <= 2:
            raise self.error(node, 'expected queue("how to wait for it") or queue("how to wait for it", index)')
        index = self.integer(args[1]) if len(args) > 1 else 0
        texts = {key: self.string(value) for key, value in words.items()}
        with self.at(node):
            return Queue(texts.pop("name", name), self.string(args[0]), index, **texts)

    def intrinsic(self, node: ast.FunctionDef) -> Intrinsic:
        mark = node.decorator_list[0]
        args, words = self.mixed_arguments(mark, (*WORDS, "name"))
        if len(args) > 1 or not (args or "start" in words or "statement" in words):
            raise self.error(mark, 'an intrinsic is marked with its code: @intrinsic("f({device}, {a})")')
        self.returns_nothing(node)
        params: list[Buffer] = []
        variables: list[Var] = []
        for arg in self.plain_arguments(node.args):
            if isinstance(arg.annotation, ast.Subscript) and name_of(arg.annotation.value) == "Operand":
                if variables:
                    raise self.error(arg, "operands come before variables")
                params.append(self.buffer(arg.annotation, arg.arg, _items(arg.annotation), "global"))
                self.declare(arg, params[-1])
                self.places[params[-1]] = arg
            elif arg.annotation is not None and name_of(arg.annotation) == INDEX:
                variables.append(Var(arg.arg))
                self.declare(arg, variables[-1])
            else:
                raise self.error(arg, f"{arg.arg!r} needs a type such as Operand[int8, (4, 6)] or {INDEX}")
        description = self.block(node.body)
        name = self.string(words["name"]) if "name" in words else node.name
        code = self.string(args[0]) if args else ""
        texts = {word: self.string(words[word]) for word in WORDS if word in words}
        with self.at(mark):
            intrinsic = Intrinsic(name, tuple(params), tuple(variables), description, code, **texts)
        for what, place in intrinsic_faults(intrinsic):
            raise self.error(self.places.get(place, node), what)
        return intrinsic

    # Functions

    def function(self, node: ast.FunctionDef) -> tuple[str, PrimFunc]:
        decorators = [item.id for item in node.decorator_list if isinstance(item, ast.Name)]
        if decorators != ["prim_func"] or len(node.decorator_list) != 1:
            raise self.error(node, "a function of loops is marked @prim_func, and nothing else")
        if not node.name.isascii():
            raise self.error(node, f"{node.name!r} is not an ASCII identifier")
        if getattr(node, "type_params", None):
            raise self.error(node, "a function has no type parameters")
        self.returns_nothing(node)
        params = tuple([self.param(arg) for arg in self.plain_arguments(node.args)])
        body = list(node.body)
        memories = self.declared(body.pop(0), self.defined.memories) if called(body[0]) == "memories" else ()
        queues = self.declared(body.pop(0), self.defined.queues) if body and called(body[0]) == "queues" else ()
        aliases = []
        while body and called(body[0]) == "may_alias":
            aliases.append(self.may_alias(body.pop(0)))
        overlaps = []
        while body and called(body[0]) == "overlaps":
            overlaps.append(self.overlaps(body.pop(0)))
        partial = []
        while body and called(body[0]) == "partial":
            partial.append(self.partial(body.pop(0)))
        rows = self.rows(body) if body and called(body[0]) == "rows" else None
        stmts = self.block(body) if body else seq()
        with self.at(node):
            func = PrimFunc(
                params, stmts, tuple(aliases), memories, queues, tuple(partial), rows=rows, overlaps=tuple(overlaps)
            )
        for what, place in faults(func):
            raise self.error(self.places.get(place, node), what)
        return node.name, func

    def returns_nothing(self, node: ast.FunctionDef) -> None:
        if node.returns is not None:
            raise self.error(node.returns, "a function of loops returns nothing: results are Out parameters")

    def plain_arguments(self, args: ast.arguments) -> list[ast.arg]:
        extra = [*args.posonlyargs, *args.kwonlyargs, *(arg for arg in (args.vararg, args.kwarg) if arg is not None)]
        for node in (*extra, *args.defaults):
            raise self.error(node, "parameters are plain: no defaults, no *, no /")
        return args.args

    def param(self, arg: ast.arg) -> Param:
        note = arg.annotation
        if not isinstance(note, ast.Subscript) or name_of(note.value) not in _ROLE_NAMES:
            words = ", ".join(ROLES.values())
            raise self.error(arg, f"parameter {arg.arg!r} needs a type such as In[int8, (4, 6)]", f"one of {words}")
        buffer = self.buffer(note, arg.arg, _items(note), "global")
        with self.at(note):
            param = Param(buffer, _ROLE_NAMES[name_of(note.value)])  # type: ignore[arg-type]  # the keys of ROLES
        self.declare(arg, buffer)
        self.places[param] = arg
        return param

    def may_alias(self, node: ast.stmt) -> tuple[str, str]:
        args = self.call_arguments(node, 2)
        names = [name_of(arg) for arg in args]
        for name, arg in zip(names, args, strict=True):
            if name not in self.scope:
                raise self.error(arg, "may_alias takes the names of an output and an input")
        return names[0], names[1]

    def overlaps(self, node: ast.stmt) -> tuple[str, str, int]:
        *args, distance = self.call_arguments(node, 3)
        names = [name_of(arg) for arg in args]
        for name, arg in zip(names, args, strict=True):
            if name not in self.scope:
                raise self.error(arg, "overlaps takes the names of an output and an input, and a number of bytes")
        return names[0], names[1], self.integer(distance)

    def partial(self, node: ast.stmt) -> str:
        (arg,) = self.call_arguments(node, 1)
        if name_of(arg) not in self.scope:
            raise self.error(arg, "partial takes the name of an output")
        return name_of(arg)

    def rows(self, body: list[ast.stmt]) -> RowForm:
        """The row form, which stands first in ``body``, and is taken from there."""
        node = body.pop(0)
        args = self.call_arguments(node, 2)
        if not name_of(args[0]):
            raise self.error(args[0], "expected a name for the row, and how many there are: rows(r, 8)")
        var, extent = Var(name_of(args[0])), self.integer(args[1])
        self.declare(args[0], var)
        params, kept = [], []
        while body and called(body[0]) == "by_rows":
            params.append(self.by_rows(body.pop(0)))
        while body and called(body[0]) == "kept":
            (arg,) = self.call_arguments(body[0], 1)
            if name_of(arg) not in self.scope:
                raise self.error(arg, "kept takes the name of a workspace")
            kept.append(name_of(arg))
            body.pop(0)
        with self.at(node):
            return RowForm(var, extent, tuple(params), tuple(kept))

    def by_rows(self, node: ast.stmt) -> RowParam:
        assert isinstance(node, ast.Expr)  # the caller looked at `called`
        args, words = self.mixed_arguments(node.value, tuple(WINDOW))
        if len(args) != 2 or name_of(args[0]) not in self.scope:
            what = "by_rows takes the name of an input or output and how many rows it has"
            raise self.error(node, what, "by_rows(x, 8, window=3, stride=1, before=1)")
        settings = {word: self.integer(value) for word, value in words.items()}
        with self.at(node):
            return RowParam(name_of(args[0]), self.integer(args[1]), **settings)

    def declared(self, node: ast.stmt, known: Mapping[str, Item]) -> tuple[Item, ...]:
        """What a function uses of the memories, or of the queues, of the text."""
        items = []
        for arg in self.call_arguments(node):
            if name_of(arg) not in known:
                raise self.error(arg, f"{called(node)} takes the names of {called(node)} that are defined before")
            items.append(known[name_of(arg)])
        return tuple(items)

    def mixed_arguments(self, node: ast.expr, known: Sequence[str]) -> tuple[list[ast.expr], dict[str, ast.expr]]:
        """The arguments of a call, those by a name apart."""
        assert isinstance(node, ast.Call)  # the caller looked at `called`
        words = {word.arg: word.value for word in node.keywords if word.arg is not None}
        for word in node.keywords:
            if word.arg not in known:
                raise self.error(word.value, f"unknown argument {word.arg!r}; there is {', '.join(known)}")
        return node.args, words


def _items(node: ast.Subscript) -> list[ast.expr]:
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
