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
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from ..proofs.lanes import register_faults
from ..proofs.obligations import unproven
from .fields import Field, fields_of, named, operands, rebuild
from .machine import Machine
from .nodes import (
    INDEX,
    Alloc,
    Axis,
    Bind,
    Buffer,
    Exec,
    For,
    If,
    Intrinsic,
    Memory,
    Param,
    PrimFunc,
    Queue,
    RowForm,
    RowParam,
    Stmt,
    Store,
    Update,
    Var,
    View,
    seq,
)
from .printer import CALLS, LOOPS, ROLES, TRANSFERS, UPDATES, WINDOW, WORDS, Definitions, arguments, print_func
from .source_text import Source
from .text_exprs import OPERATOR_NODES, ExprParser, called, name_of
from .verify import MAX_NESTING, faults, intrinsic_faults

__all__ = ["Defined", "Definitions", "FuncParser", "parse_def", "parse_func", "parse_machine", "print_func"]

_LOOP_KINDS = {word: kind for kind, word in LOOPS.items()}
_ROLE_NAMES = {word: role for role, word in ROLES.items()}
_UPDATE_OPS = {word: op for op, word in UPDATES.items()}
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


class FuncParser(ExprParser):
    """Reads definitions: of loops, and the parts that those of other functions have in common with them."""

    def __init__(self, source: Source, defined: Defined) -> None:
        super().__init__(source)
        self.defined = defined
        self.lines: dict[str, int] = {}  # where each name was declared
        self.labels: dict[str, int] = {}
        self.places: dict[Stmt | Param | Buffer, ast.AST] = {}
        self.nesting = 0

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

    def buffer(self, node: ast.AST, name: str, items: Sequence[ast.expr], scope: str) -> Buffer:
        """A buffer from ``dtype, shape`` and, in any order, ``align(bytes)`` and ``scope("name")``."""
        if len(items) < 2 or not isinstance(items[1], ast.Tuple):
            raise self.error(node, f"buffer {name!r} needs a dtype and a shape, such as int8, (4, 6)")
        dtype = self.dtype(items[0])
        shape = tuple([self.integer(extent) for extent in items[1].elts])
        options: dict[str, ast.expr] = {}
        for item in items[2:]:
            word = called(item)
            if word not in ("align", "scope") or word in options:
                raise self.error(item, f'expected align(bytes) or scope("name") of {name!r}, once each')
            options[word] = self.call_arguments(item, 1)[0]
        alignment = self.integer(options["align"]) if "align" in options else 0
        if "align" in options and alignment <= 0:
            raise self.error(options["align"], "an alignment is a power of two")
        scope = self.string(options["scope"]) if "scope" in options else scope
        with self.at(node):
            return Buffer(name, shape, dtype, scope, alignment)

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

    # Statements

    def block(self, nodes: Sequence[ast.stmt]) -> Stmt:
        """The statements of one indented block; names declared in it end with it."""
        if self.nesting > MAX_NESTING:
            raise self.error(nodes[0], "statements are nested too deeply")
        self.nesting += 1
        stmts = [(node, self.statement(node)) for node in nodes if not isinstance(node, ast.Pass)]
        self.nesting -= 1
        rest: list[Stmt] = []
        for node, stmt in reversed(stmts):
            if isinstance(stmt, (Bind, Alloc)):
                self.scope.pop(named(stmt)[0])
                stmt = rebuild(stmt, operands(stmt), [seq(*reversed(rest))])
                rest = []
            self.places[stmt] = node
            rest.append(stmt)
        return seq(*reversed(rest))

    def statement(self, node: ast.stmt) -> Stmt:
        """One statement; a `Bind` or `Alloc` is still without the statements in its scope."""
        read = _STATEMENTS.get(type(node))
        if read is None:
            raise self.error(node, "not a statement of loops")
        return read(self, node)

    def assignment(self, node: ast.Assign) -> Stmt:
        return self.alloc(node) if called(node.value) == "alloc" else self.store(node)

    def augmented(self, node: ast.AugAssign) -> Stmt:
        return self.update(node, node.target, OPERATOR_NODES.get(type(node.op), "") + "=", node.value)

    def bind(self, node: ast.AnnAssign) -> Stmt:
        name = name_of(node.target)
        if not name or node.value is None:
            raise self.error(node, "expected a name, its dtype and its value: v: int32 = 3")
        dtype = self.dtype(node.annotation)
        value = self.expr(node.value, dtype)
        with self.at(node):
            bind = Bind(Var(name, dtype), value, seq())
        self.declare(node, bind.var)
        return bind

    def alloc(self, node: ast.Assign) -> Stmt:
        name = name_of(node.targets[0]) if len(node.targets) == 1 else ""
        if not name:
            raise self.error(node, "expected a name for the buffer: t = alloc(int32, (4,))")
        buffer = self.buffer(node.value, name, self.call_arguments(node.value), "local")
        self.declare(node, buffer)
        return Alloc(buffer, seq())

    def loop(self, node: ast.For) -> Stmt:
        name, word = name_of(node.target), called(node.iter)
        if not name or word not in _LOOP_KINDS or node.orelse:
            raise self.error(node, f"expected a loop such as for i in range(4), with one of {', '.join(_LOOP_KINDS)}")
        extent = self.expr(self.call_arguments(node.iter, 1)[0], INDEX)
        var = Var(name)
        self.declare(node.target, var)
        body = self.block(node.body)
        self.scope.pop(name, None)
        with self.at(node):
            return For(var, extent, body, _LOOP_KINDS[word])  # type: ignore[arg-type]  # the keys of LOOPS

    def condition(self, node: ast.If) -> Stmt:
        condition = self.expr(node.test, "bool")
        then = self.block(node.body)
        otherwise = self.block(node.orelse) if node.orelse else None
        with self.at(node.test):
            return If(condition, then, otherwise)

    def with_statement(self, node: ast.With) -> Stmt:
        """A call with statements within it, such as a block."""
        item = node.items[0]
        cls = CALLS.get(called(item.context_expr))
        if len(node.items) != 1 or cls is None or not fields_of(cls).has_body or item.optional_vars is not None:
            raise self.error(node, 'expected a label: with block("name"):')
        args = self.field_values(item.context_expr, cls)
        for field, arg in zip(arguments(cls), args, strict=False):
            if field.kind == "label":
                self.declare_label(node, arg)
        body = self.block(node.body)
        with self.at(item.context_expr):
            return cls(*[*args, body])

    def declare_label(self, node: ast.With, label: str) -> None:
        if label in self.labels:
            raise self.error(node, f"label {label!r} is used twice, first in line {self.labels[label]}")
        self.labels[label] = node.lineno

    def call_statement(self, node: ast.Expr) -> Stmt:
        """A statement that is a call: of one of `CALLS`, of an update, or of an intrinsic."""
        word = called(node)
        cls = CALLS.get(word)
        if cls is not None and not fields_of(cls).has_body:
            args = self.field_values(node.value, cls)
            with self.at(node):
                return cls(*args)
        if word in _UPDATE_OPS:
            target, value = self.call_arguments(node, 2)
            return self.update(node, target, word, value)
        if word in self.defined.intrinsics:
            return self.exec(node, self.defined.intrinsics[word])
        raise self.error(node, "not a statement of loops")

    def field_values(self, node: ast.expr, cls: type[Stmt]) -> list[Any]:
        """The fields that the arguments of a call are, those left out at the end apart."""
        nodes, fields = self.call_arguments(node), arguments(cls)
        least = sum(field.is_required for field in fields)
        if not least <= len(nodes) <= len(fields):
            usage = f"{called(node)}({', '.join(field.name for field in fields)})"
            some = f"{least} arguments" if least != 1 else "1 argument"
            some = some if least == len(fields) else f"{least} to {len(fields)} arguments"
            raise self.error(node, f"{called(node)} takes {some}, not {len(nodes)}", usage)
        args: list[Any] = []
        for field, arg in zip(fields, nodes, strict=False):
            args += self.argument(arg, field)
        return args

    def argument(self, node: ast.expr, field: Field) -> tuple[Any, ...]:
        if field.kind == "view":
            return (self.view(node),)
        if field.kind == "buffer":
            element = self.access(node)
            return element.buffer, element.indices
        if field.kind == "expr" and not field.many:
            return (self.expr(node, None),)
        if field.kind == "expr":
            if not isinstance(node, ast.Tuple):
                raise self.error(node, f"expected a tuple of indices, {field.name}")
            return (tuple([self.expr(index, INDEX) for index in node.elts]),)
        if "Queue" in field.annotation:
            return (self.queue_named(node),)
        return (self.string(node) if field.annotation == "str" else self.integer(node),)

    def store(self, node: ast.Assign) -> Stmt:
        if len(node.targets) != 1:
            raise self.error(node, "one assignment at a time")
        target = self.access(node.targets[0])
        value = self.expr(node.value, target.dtype)
        with self.at(node):
            return Store(target.buffer, target.indices, value)

    def update(self, node: ast.stmt, target: ast.expr, sign: str, value: ast.expr) -> Stmt:
        if sign not in _UPDATE_OPS:
            raise self.error(node, f"an update is one of {', '.join(UPDATES.values())}")
        element = self.access(target)
        step = self.expr(value, element.dtype)
        with self.at(node):
            return Update(_UPDATE_OPS[sign], element.buffer, element.indices, step)

    def queue_named(self, node: ast.expr) -> Queue:
        if name_of(node) not in self.defined.queues:
            raise self.error(node, "expected the name of a queue that is defined before")
        return self.defined.queues[name_of(node)]

    def exec(self, node: ast.Expr, intrinsic: Intrinsic) -> Stmt:
        params, plain = len(intrinsic.params), len(intrinsic.params) + len(intrinsic.vars)
        args = self.call_arguments(node)
        if not plain <= len(args) <= plain + 1:
            names = [*(param.name for param in intrinsic.params), *(var.name for var in intrinsic.vars), "queue"]
            what = f"{called(node)} takes {plain} to {plain + 1} arguments, not {len(args)}"
            raise self.error(node, what, f"{called(node)}({', '.join(names)})")
        views, values = [self.view(arg) for arg in args[:params]], [self.expr(arg, INDEX) for arg in args[params:plain]]
        queue = self.queue_named(args[plain]) if len(args) > plain else None
        with self.at(node):
            return Exec(intrinsic, tuple(views), tuple(values), queue)

    def view(self, node: ast.expr) -> View:
        args = self.call_arguments(node) if called(node) == "view" else []
        if not args:
            raise self.error(node, "expected a view, such as view(x[i, 0], axis(0), axis(1, 2))")
        element = self.access(args[0])
        axes = []
        for arg in args[1:]:
            numbers = [self.integer(number) for number in self.call_arguments(arg)] if called(arg) == "axis" else []
            if not 1 <= len(numbers) <= 2:
                raise self.error(arg, "expected axis(dimension) or axis(dimension, step)")
            with self.at(arg):
                axes.append(Axis(*numbers))
        with self.at(node):
            return View(element.buffer, element.indices, tuple(axes))

    # Small things

    def mixed_arguments(self, node: ast.expr, known: Sequence[str]) -> tuple[list[ast.expr], dict[str, ast.expr]]:
        """The arguments of a call, those by a name apart."""
        assert isinstance(node, ast.Call)  # the caller looked at `called`
        words = {word.arg: word.value for word in node.keywords if word.arg is not None}
        for word in node.keywords:
            if word.arg not in known:
                raise self.error(word.value, f"unknown argument {word.arg!r}; there is {', '.join(known)}")
        return node.args, words

    def declare(self, node: ast.AST, symbol: Var | Buffer) -> None:
        name, line = symbol.name, getattr(node, "lineno", 0)
        if name in self.lines:
            raise self.error(node, f"{name!r} is declared twice, first in line {self.lines[name]}")
        self.lines[name] = line
        self.scope[name] = symbol


_STATEMENTS: dict[type[ast.stmt], Callable[[FuncParser, Any], Stmt]] = {
    ast.AnnAssign: FuncParser.bind,
    ast.Assign: FuncParser.assignment,
    ast.AugAssign: FuncParser.augmented,
    ast.For: FuncParser.loop,
    ast.If: FuncParser.condition,
    ast.With: FuncParser.with_statement,
    ast.Expr: FuncParser.call_statement,
}


def _items(node: ast.Subscript) -> list[ast.expr]:
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
