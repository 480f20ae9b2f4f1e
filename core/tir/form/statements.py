"""Statements of the loop form; see `nodes`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ...support.interning import Node
from .dtype import computes, is_float
from .exprs import INDEX, Bin, Buffer, Expr, Var, check_access, require
from .fields import DECLARED, LABEL, UPDATED, WRITTEN

__all__ = ["Alloc", "Bind", "Block", "For", "If", "LoopKind", "Seq", "Stmt", "Store", "Update", "seq"]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Stmt(Node):
    """A statement."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Seq(Stmt):
    """Statements in order. Built by `seq`, which keeps it flat; the empty one does nothing."""

    stmts: tuple[Stmt, ...]

    def __post_init__(self) -> None:
        scopes = self.stmts[:-1]
        flat = len(self.stmts) != 1 and not any(isinstance(s, Seq) for s in self.stmts)
        require(flat and not any(isinstance(s, (Bind, Alloc)) for s in scopes), "a Seq is not flat: build it with seq")

    @classmethod
    def from_fields(cls, *fields: Any) -> Stmt:
        return seq(*fields[0])


def seq(*stmts: Stmt) -> Stmt:
    """The statements one after the other, in the one normal form.

    Nested sequences are flattened. A `Bind` or `Alloc` takes what follows into its scope, which changes nothing
    since names are unique, and makes the text form unambiguous.
    """
    flat: list[Stmt] = []
    for stmt in stmts:
        flat.extend(stmt.stmts if isinstance(stmt, Seq) else (stmt,))
    for position, stmt in enumerate(flat[:-1]):
        if isinstance(stmt, Bind):
            rest = seq(stmt.body, *flat[position + 1 :])
            return seq(*flat[:position], Bind(stmt.var, stmt.value, rest))
        if isinstance(stmt, Alloc):
            rest = seq(stmt.body, *flat[position + 1 :])
            return seq(*flat[:position], Alloc(stmt.buffer, rest))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


LoopKind = Literal["serial", "parallel", "unrolled", "vectorized"]

_LOOP_KINDS = get_args(LoopKind)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class For(Stmt):
    """``body`` for ``var`` = 0 .. ``extent`` - 1.

    Iterations of a ``parallel`` or ``vectorized`` loop must not depend on one another. Those of a ``vectorized`` loop,
    the extent of which is a constant, become the lanes of vectors in C, where the body is written once.
    """

    var: Var = field(metadata=DECLARED)
    extent: Expr
    body: Stmt
    kind: LoopKind = "serial"

    def __post_init__(self) -> None:
        require(self.extent.dtype == self.var.dtype == INDEX, f"loop {self.var.name!r} does not count in {INDEX}")
        require(self.kind in _LOOP_KINDS, f"unknown loop kind {self.kind!r}")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class If(Stmt):
    """``then`` where ``condition`` holds, else ``otherwise``, if there is one."""

    condition: Expr
    then: Stmt
    otherwise: Stmt | None = None

    def __post_init__(self) -> None:
        require(self.condition.dtype == "bool", f"condition is {self.condition.dtype}, not bool")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Bind(Stmt):
    """``var = value`` within ``body``."""

    var: Var = field(metadata=DECLARED)
    value: Expr
    body: Stmt

    def __post_init__(self) -> None:
        require(self.var.dtype == self.value.dtype, f"{self.var.name!r} is {self.var.dtype}, not {self.value.dtype}")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Alloc(Stmt):
    """``buffer`` exists within ``body``, uninitialised at first."""

    buffer: Buffer = field(metadata=DECLARED)
    body: Stmt


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Store(Stmt):
    """``buffer[indices] = value``."""

    buffer: Buffer = field(metadata=WRITTEN)
    indices: tuple[Expr, ...]
    value: Expr

    def __post_init__(self) -> None:
        check_access(self.buffer, self.indices)
        require(self.value.dtype == self.buffer.dtype, f"{self.value.dtype} stored to {self.buffer.name!r}")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Update(Stmt):
    """``buffer[indices] = op(buffer[indices], value)`` with ``op`` one of add, mul, min, max: one step of a reduction.

    The operands of ``min`` and ``max`` of floats are in the other order, see `result`.

    A rewrite may reorder steps of one reduction for integers, never for floats. A schedule may reorder both: it is what
    chooses the order.
    """

    op: str
    buffer: Buffer = field(metadata=UPDATED)
    indices: tuple[Expr, ...]
    value: Expr

    def __post_init__(self) -> None:
        check_access(self.buffer, self.indices)
        require(self.op in ("add", "mul", "min", "max"), f"unknown reduction {self.op!r}")
        require(self.value.dtype == self.buffer.dtype, f"{self.value.dtype} stored to {self.buffer.name!r}")
        require(computes(self.value.dtype), f"{self.op} does not take {self.value.dtype}: cast it to float32")

    @property
    def ignores_nan(self) -> bool:
        """Whether it is the minimum or maximum of floats: its first operand is the value, its second the buffer."""
        return self.op in ("min", "max") and is_float(self.buffer.dtype)

    def result(self, old: Expr) -> Expr:
        """Return the expression that the element has as its new value.

        Args:
            old: the element before.
        """
        return Bin(self.op, self.value, old) if self.ignores_nan else Bin(self.op, old, self.value)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Block(Stmt):
    """``body`` under a label, unique in its function, by which passes and schedules address it."""

    label: str = field(metadata=LABEL)
    body: Stmt

    def __post_init__(self) -> None:
        require(self.label.isidentifier(), f"{self.label!r} is not a label")
