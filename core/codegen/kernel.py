"""A function of the loop form as a function of C99, for gcc and clang to vectorise.

The text needs ``uma_math.h`` alone, calls no allocator, and compiles without a warning under ``-Wall -Wextra``.
Pointers are ``restrict`` unless they may be the same memory, trip counts are constants where they are in the loop
form, and alignment is told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from ..tir.bounds import Bounds
from ..tir.dtype import is_float, itemsize
from ..tir.nodes import (
    INDEX,
    Alloc,
    Bin,
    Bind,
    Block,
    Buffer,
    Cast,
    Expr,
    For,
    If,
    Imm,
    Load,
    Param,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    Update,
    Var,
)
from ..tir.simplify import simplify_expr
from ..tir.sums import exact_sums
from ..tir.visit import buffers_written, map_expressions, substitute, walk
from .expressions import C_TYPES, Printer

__all__ = ["C_TYPES", "kernel_source"]

_INDENT = "    "


def kernel_source(name: str, func: PrimFunc) -> str:
    """The definition of a static function.

    Args:
        name: of the function, an identifier of C.
        func: well-formed loops. The parameters are pointers, in the same order, ``const`` for inputs and constants.

    Returns:
        The text, which ends with a line break. It depends on ``name`` and ``func`` only.
    """
    return _Writer(func).function(name)


# Beside keywords, these are what letters followed by digits may mean in C: functions of math.h, and macros that
# compilers define when they are not asked for strict C.
_PLAIN = re.compile(r"[a-z]+[0-9]+")
_TAKEN = ("j0", "j1", "y0", "y1", "atan2", "exp2", "exp10", "expm1", "log2", "log10", "pow10", "i386", "mc68000")


class _Writer:
    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.lines: list[str] = []
        self.depth = 1
        # What is read in the text so far; compilers warn of the rest.
        self.read: set[Var | Buffer] = set()
        self.exact = exact_sums(func)

    def function(self, name: str) -> str:
        shared = {name for pair in self.func.may_alias for name in pair}
        params = [_param(param, param.buffer.name in shared) for param in self.func.params]
        self.stmt(self.func.body, Bounds({}))
        written = set(buffers_written(self.func.body))
        head = []
        for param in self.func.params:
            buffer = param.buffer
            if buffer not in self.read and buffer not in written:
                head.append(f"{_INDENT}(void){_name(buffer)};")
            elif buffer.alignment > itemsize(buffer.dtype):
                head.append(f"{_INDENT}{_name(buffer)} = UMA_ASSUME_ALIGNED({_name(buffer)}, {buffer.alignment});")
        signature = f"static void {name}({', '.join(params)})"
        if len(signature) > 120:
            signature = f"static void {name}({','.join(f'{chr(10)}{_INDENT}{param}' for param in params)})"
        return "\n".join([signature, "{", *head, *self.lines, "}", ""])

    def line(self, text: str) -> None:
        self.lines.append(f"{_INDENT * self.depth}{text}")

    def declared(self, symbol: Var | Buffer, body: Stmt, known: Bounds) -> None:
        """The scope of what the last line declares."""
        position = len(self.lines)
        self.stmt(body, known)
        if symbol not in self.read:
            self.lines.insert(position, f"{_INDENT * self.depth}(void){_name(symbol)};")

    def braced(self, head: str, body: Stmt, known: Bounds) -> None:
        self.line(f"{head} {{")
        self.depth += 1
        self.stmt(body, known)
        self.depth -= 1
        self.line("}")

    def stmt(self, stmt: Stmt, known: Bounds) -> None:
        printer = Printer(known, _name, self.read)
        if isinstance(stmt, Seq):
            for inner in stmt.stmts:
                self.stmt(inner, known)
        elif isinstance(stmt, Block):
            self.braced(f"/* {stmt.label} */", stmt.body, known)
        elif isinstance(stmt, For):
            self.loop(stmt, known, printer)
        elif isinstance(stmt, If):
            self.condition(stmt, known, printer)
        elif isinstance(stmt, Bind):
            self.line(f"const {C_TYPES[stmt.var.dtype]} {_name(stmt.var)} = {printer.text(stmt.value)};")
            if not is_float(stmt.var.dtype):
                known = known.declare(stmt.var, known.of(stmt.value))
            self.declared(stmt.var, stmt.body, known)
        elif isinstance(stmt, Alloc):
            self.line(f"{_local(stmt.buffer)};")
            self.declared(stmt.buffer, stmt.body, known)
        elif isinstance(stmt, Store):
            # Compilers warn of a variable that is assigned to itself.
            if _as_stored(stmt.value) is not Load(stmt.buffer, stmt.indices):
                self.line(f"{printer.element(stmt.buffer, stmt.indices)} = {printer.text(stmt.value)};")
        else:
            assert isinstance(stmt, Update)  # the last kind there is
            self.update(stmt, printer)

    def update(self, stmt: Update, printer: Printer) -> None:
        target = printer.element(stmt.buffer, stmt.indices)
        # Compilers know sums of products by their plain form only.
        if (is_float(stmt.buffer.dtype) and stmt.op in ("add", "mul")) or stmt.buffer in self.exact:
            self.line(f"{target} {'+' if stmt.op == 'add' else '*'}= {printer.text(stmt.value)};")
        else:
            value = Bin(stmt.op, Load(stmt.buffer, stmt.indices), stmt.value)
            self.line(f"{target} = {printer.text(value)};")

    def loop(self, stmt: For, known: Bounds, printer: Printer) -> None:
        if stmt.kind == "unrolled" and isinstance(stmt.extent, Imm):
            for step in range(int(stmt.extent.value)):
                at = partial(_substituted, values={stmt.var: Imm(step, INDEX)})
                body = map_expressions(stmt.body, at)
                if any(isinstance(inner, (Alloc, Bind)) for inner in walk(stmt.body)):
                    self.braced(f"/* {stmt.var.name} = {step} */", body, known)
                else:
                    self.stmt(body, known)
            return
        var = _name(stmt.var)
        end = printer.text(stmt.extent)
        head = f"for (int32_t {var} = 0; {var} < {end}; ++{var})"
        if not isinstance(stmt.extent, (Imm, Var)):
            # What it is computed from may change within the loop.
            head = f"for (int32_t {var} = 0, {var}_end = {end}; {var} < {var}_end; ++{var})"
        self.braced(head, stmt.body, known.declare(stmt.var, (0, max(0, known.of(stmt.extent)[1] - 1))))

    def condition(self, stmt: If, known: Bounds, printer: Printer) -> None:
        # Where the bounds contradict the condition, what is guarded is never executed: any bounds will do.
        self.braced(f"if ({printer.text(stmt.condition)})", stmt.then, known.assume(stmt.condition) or known)
        if stmt.otherwise is not None:
            self.lines.pop()
            self.braced("} else", stmt.otherwise, known.assume(stmt.condition, holds=False) or known)


def _substituted(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    # Folded: compilers warn of some arithmetic on constants.
    return simplify_expr(substitute(expr, values), {})


def _as_stored(value: Expr) -> Expr:
    """``value`` without conversions to the type that it has."""
    while isinstance(value, Cast) and value.dtype == value.a.dtype:
        value = value.a
    return value


def _name(symbol: Var | Buffer) -> str:
    """The identifier for a variable or buffer: itself, or one that nothing else has."""
    name = symbol.name
    if name.startswith("_"):
        return f"u{name}_0"
    # No other name of the language or its headers ends in an underscore.
    return name if _PLAIN.fullmatch(name) and name not in _TAKEN else f"{name}_"


def _param(param: Param, may_alias: bool) -> str:
    buffer = param.buffer
    const = "const " if param.role in ("input", "constant") else ""
    return f"{const}{C_TYPES[buffer.dtype]} *{'' if may_alias else 'restrict '}{_name(buffer)}"


def _local(buffer: Buffer) -> str:
    aligned = f" UMA_ALIGNED({buffer.alignment})" if buffer.alignment > itemsize(buffer.dtype) else ""
    size = f"[{buffer.size}]" if buffer.shape else ""
    return f"{C_TYPES[buffer.dtype]} {_name(buffer)}{size}{aligned}"
