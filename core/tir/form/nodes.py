"""The loop form: nodes and what they mean.

Expressions are pure, statements have effects, and both are interned. Names are unique within a `PrimFunc`: no
variable or buffer is declared twice, so that nothing ever has to be renamed to be moved.

Arithmetic means the same in the interpreter and in generated C:

- Integers wrap around in two's complement. ``floordiv`` and ``floormod`` round to minus infinity, ``truncdiv`` to
  zero; all three give 0 where the divisor is 0, and the smallest integer divided by -1 is itself. Shifting by less than
  0 or by the width or more is a fault. ``shr`` keeps the sign.
- ``float32`` and ``float64`` are IEEE 754, round to nearest even; a compiler may contract ``a * b + c``. ``float16`` is
  IEEE 754's too, and is stored: it is computed with as a ``float32``, which is rounded to nearest even when it is cast.
- ``min(a, b)`` is ``a if a < b else b`` and ``max(a, b)`` is ``a if a > b else b``: where one is NaN, or both are
  zeros, the result is ``b``. So ``min(max(x, low), high)`` is never NaN, and ``max(0, x)`` keeps NaN. An `Update` has
  the buffer as ``b`` where it is of floats: a value that is NaN changes nothing, so that a reduction ignores NaN in
  whatever order and in however many parts it is computed.
- `Cast` from float to integer truncates and saturates, NaN gives 0; between integers it wraps; to bool it is ``!= 0``.
- `Select` evaluates one branch only, ``and`` and ``or`` the right side only when needed: guarded loads are legal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ...support.interning import Node
from .device_nodes import ADDRESSED_SCOPES, HOST_SCOPES, Axis, Copy, Exec, Intrinsic, Memory, Queue, View, Wait
from .exprs import (
    BINARY,
    COMPARISONS,
    INDEX,
    Bin,
    Buffer,
    Call,
    Cast,
    Expr,
    ExprLike,
    Imm,
    Load,
    Select,
    Un,
    Var,
    const,
    maximum,
    minimum,
    require,
)
from .rows import RowForm, RowParam
from .statements import Alloc, Bind, Block, For, If, LoopKind, Seq, Stmt, Store, Update, seq

__all__ = [
    "ADDRESSED_SCOPES",
    "BINARY",
    "COMPARISONS",
    "HOST_SCOPES",
    "INDEX",
    "Alloc",
    "Axis",
    "Bin",
    "Bind",
    "Block",
    "Buffer",
    "Call",
    "Cast",
    "Copy",
    "Exec",
    "Expr",
    "ExprLike",
    "For",
    "If",
    "Imm",
    "Intrinsic",
    "Load",
    "LoopKind",
    "Memory",
    "Param",
    "PrimFunc",
    "Queue",
    "Role",
    "RowForm",
    "RowParam",
    "Select",
    "Seq",
    "Stmt",
    "Store",
    "Un",
    "Update",
    "Var",
    "View",
    "Wait",
    "const",
    "maximum",
    "minimum",
    "seq",
]

Role = Literal["input", "output", "constant", "workspace"]


@dataclass(frozen=True, eq=False, slots=True)
class Param(Node):
    """A parameter of a `PrimFunc`. Inputs and constants are read, outputs written, workspaces both.

    Only a workspace may be in an accelerator's memory.
    """

    buffer: Buffer
    role: Role

    def __post_init__(self) -> None:
        require(self.role in _ROLES, f"parameter {self.buffer.name!r} has unknown role {self.role!r}")
        scope = self.buffer.scope
        fits = scope == "global" or (self.role == "workspace" and scope not in HOST_SCOPES)
        require(fits, f"parameter {self.buffer.name!r} has scope {scope!r}")


_ROLES = ("input", "output", "constant", "workspace")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class PrimFunc(Node):
    """A kernel. It has no name: a module names it, and two that are equal are one.

    Args:
        params: inputs, then outputs, constants and workspaces.
        body: what it does; every output element is written before it is read.
        may_alias: pairs (output, input) of parameter names that may be the same memory; all others are distinct.
        memories: the accelerator's memories that it uses.
        queues: the accelerator's queues that it uses.
        partial: names of outputs that have as many elements as they may at most need: what is behind those that the
            extents of this run have is not written, and nobody reads it.
        rows: where the body is one round of the function, which runs it for each row; indices are those of whole
            parameters all the same. None where the body is all of it.
        overlaps: triples (output, input, bytes) of parameter names: the output may lie over the input where the address
            of the input less that of the output is as many bytes, or more, whatever their sizes and dtypes. It may be
            negative.
    """

    params: tuple[Param, ...]
    body: Stmt
    may_alias: tuple[tuple[str, str], ...] = ()
    memories: tuple[Memory, ...] = ()
    queues: tuple[Queue, ...] = ()
    partial: tuple[str, ...] = ()
    rows: RowForm | None = None
    overlaps: tuple[tuple[str, str, int], ...] = ()

    def __post_init__(self) -> None:
        order = [_ROLES.index(param.role) for param in self.params]
        require(order == sorted(order), "parameters must come as inputs, outputs, constants, workspaces")
        roles = {param.buffer.name: param.role for param in self.params}
        require(len(roles) == len(self.params), "two parameters share a name")
        for out, source in self.may_alias:
            fits = roles.get(out) == "output" and roles.get(source) == "input"
            require(fits, f"may_alias names ({out!r}, {source!r}), not an output and an input")
        for out, source, distance in self.overlaps:
            fits = roles.get(out) == "output" and roles.get(source) == "input"
            require(fits, f"overlaps names ({out!r}, {source!r}), not an output and an input")
            require(type(distance) is int, f"overlaps of ({out!r}, {source!r}) by {distance!r}, not a number of bytes")
        require(len({pair[:2] for pair in self.overlaps}) == len(self.overlaps), "overlaps names a pair twice")
        for name in self.partial:
            require(roles.get(name) == "output", f"partial names {name!r}, which is not an output")
        scopes = {memory.name for memory in self.memories}
        require(len(scopes) == len(self.memories), "two memories share a name")
        for what in ("name", "index"):
            distinct = {getattr(queue, what) for queue in self.queues}
            require(len(distinct) == len(self.queues), f"two queues share {'an' if what == 'index' else 'a'} {what}")
        if self.rows is not None:
            _check_rows(self.rows, self.params)

    def whole(self) -> PrimFunc:
        """The same function without row form: its body does all rounds, in a loop."""
        if self.rows is None:
            return self
        return replace(self, body=For(self.rows.var, const(self.rows.extent), self.body), rows=None)

    def buffers(self, role: Role) -> tuple[Buffer, ...]:
        """The parameters of one role, in order."""
        return tuple(param.buffer for param in self.params if param.role == role)


def _check_rows(rows: RowForm, params: tuple[Param, ...]) -> None:
    tensors = {param.buffer.name: param for param in params if param.role in ("input", "output")}
    require(all(rows.var.name != param.buffer.name for param in params), f"row {rows.var.name!r} is a parameter too")
    workspaces = {param.buffer.name for param in params if param.role == "workspace"}
    for name in rows.kept:
        require(name in workspaces, f"{name!r} is kept from row to row, and is not a workspace")
    for row in rows.params:
        what = f"{row.name!r} lies by rows"
        require(row.name in tensors, f"{what}, and is neither an input nor an output")
        size = tensors[row.name].buffer.size
        require(size % row.height == 0, f"{what}, and its {size} elements are not {row.height} equal rows")
        if tensors[row.name].role == "output":
            one = (row.height, row.window, row.stride, row.before) == (rows.extent, 1, 1, 0)
            form = f"an output made by {rows.extent} rows: height {rows.extent}, window 1, stride 1, before 0"
            require(one, f"{what}, and is not {form}")
