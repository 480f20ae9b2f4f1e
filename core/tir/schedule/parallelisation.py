"""Which loops of a function are run by several threads: those whose iterations do not depend on one another, where that
is predicted to pay.

What a loop takes is counted roughly, in cycles of a CPU with vectors: an operation is half of one and a read of memory
a quarter, whether it is of a vector or of a number, and of what is not yet a loop of vectors a compiler is taken to run
several iterations at once. To have other threads begin and to wait for them is `HANDOVER` cycles, and a loop of fewer
than `LEAST` is left to one thread. At 3 GHz these are 1 us and 5 us.

Where a loop has too few iterations for even shares it becomes one with the loop within it, or that is the one that is
shared: what is predicted to be the fastest. Reductions are never parted, so that the bits are those of one thread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..form.dtype import itemsize
from ..form.functions import FUNCTIONS
from ..form.nodes import (
    INDEX,
    Alloc,
    Bin,
    Bind,
    Block,
    Call,
    Copy,
    Exec,
    Expr,
    For,
    If,
    Imm,
    Load,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    Update,
    Var,
    const,
)
from ..form.verify import verify
from ..form.visit import buffers, child_statements, declared, fresh_name, operands, rebuild, statements, uses_device
from ..proofs.alias import may_alias
from ..proofs.intervals import Bounds
from .dependences import carried

__all__ = ["HANDOVER", "LEAST", "in_threads", "is_parallel", "predicted_cycles"]

HANDOVER = 3000.0
"""Cycles that it takes to have a loop run by several threads, beside its work."""

LEAST = 15000.0
"""Cycles of the shortest loop that is run by several threads."""

_OPERATION = 0.5
_READ = 0.25
_WIDE = 64
"""Bytes of a vector: what is wider counts as several."""
_MADE_VECTORS = 4
"""Iterations of a loop, not yet one of vectors, that a compiler runs at once."""
_LATE = 0.1
"""Of an iteration, by which threads are late: many short iterations are better than few long ones."""
_GAIN = 0.97
"""What another way must take of the time to be worth it."""
_TURN = 1.0
"""Cycles that an iteration of a loop takes besides its body."""


def is_parallel(func: PrimFunc) -> bool:
    """Whether there is a loop in it that several threads may run."""
    return any(isinstance(part, For) and part.kind == "parallel" for part in statements(func.body))


def in_threads(func: PrimFunc, threads: int) -> PrimFunc:
    """``func`` with loops of kind ``parallel`` where ``threads`` threads are predicted to be faster than one.

    It computes the same bits. Loops that use a device, run row by row, or are in a function that has a parallel loop
    already, are left as they are.

    Args:
        func: as it is lowered.
        threads: 1 or more.
    """
    if threads == 1 or func.rows is not None or uses_device(func) or is_parallel(func):
        return func
    marker = _Marker(threads, declared(func))
    body = marker.best(func.body, Bounds({})).stmt
    if body is func.body:
        return func
    aliases = may_alias(func.params, body) if func.may_alias else ()
    result = replace(func, body=body, may_alias=tuple(pair for pair in func.may_alias if pair in aliases), overlaps=())
    verify(result)
    return result


def predicted_cycles(stmt: Stmt) -> float:
    """How long one thread is predicted to take, at most, in cycles: good to compare with `LEAST`, not to a factor of
    two."""
    return _Cycles(Bounds({})).estimate(stmt)


@dataclass(frozen=True)
class _Way:
    """A statement, and how long it takes."""

    stmt: Stmt
    cycles: float


class _Marker:
    """Marks loops.

    Args:
        threads: how many there are.
        names: that the function has.
    """

    def __init__(self, threads: int, names: set[str]) -> None:
        self.threads = threads
        self.names = names

    def best(self, stmt: Stmt, bounds: Bounds) -> _Way:
        """The fastest way of a statement."""
        serial = _Cycles(bounds).estimate(stmt)
        if serial < LEAST or isinstance(stmt, (Exec, Copy)):
            return _Way(stmt, serial)
        if isinstance(stmt, For) and stmt.kind in ("vectorized", "unrolled"):
            return _Way(stmt, serial)
        parts = [self.best(body, inner) for body, inner in bounds.children(stmt)]
        marked = rebuild(stmt, operands(stmt), [part.stmt for part in parts])
        if all(part.stmt is body for part, body in zip(parts, child_statements(stmt), strict=True)):
            marked = stmt
        before = sum(_Cycles(inner).estimate(body) for body, inner in bounds.children(stmt))
        saved = before - sum(part.cycles for part in parts)
        if not isinstance(stmt, For):
            return _Way(marked, serial - saved)
        count = bounds.interval(stmt.extent)[1]
        ways = [_Way(marked, serial - count * saved), *self.shared(stmt, bounds, serial)]
        return min(ways, key=lambda way: way.cycles)

    def shared(self, loop: For, bounds: Bounds, serial: float) -> list[_Way]:
        """The ways to have a loop run by all threads."""
        ways: list[_Way] = []
        for one in (loop, self.fused(loop)):
            if one is None:
                continue
            cycles = self.time(one, bounds, serial)
            if cycles < _GAIN * min([serial, *(way.cycles for way in ways)]) and carried(one, bounds) is None:
                ways += [_Way(For(one.var, one.extent, one.body, "parallel"), cycles)] if _is_apart(one) else []
        return ways

    def time(self, loop: For, bounds: Bounds, serial: float) -> float:
        """Of a loop that all threads run, which one runs in ``serial`` cycles."""
        count = max(1, bounds.interval(loop.extent)[1])
        return HANDOVER + serial * (-(-count // self.threads) + _LATE) / count

    def fused(self, loop: For) -> For | None:
        """A loop and the only thing in it, which is one as well, as one; None where they are not so, or the inner one
        is left to a compiler to make vectors of."""
        inner = loop.body
        if not isinstance(inner, For) or inner.kind != "serial" or _is_innermost(inner):
            return None
        if not (isinstance(loop.extent, Imm) and isinstance(inner.extent, Imm)):
            return None
        count = int(loop.extent.value) * int(inner.extent.value)
        if count >= 2**31:
            return None
        both = Var(fresh_name(f"{loop.var.name}_{inner.var.name}", self.names))
        self.names.add(both.name)
        body: Stmt = Bind(inner.var, Bin("floormod", both, inner.extent), inner.body)
        return For(both, const(count), Bind(loop.var, Bin("floordiv", both, inner.extent), body))


def _is_apart(loop: For) -> bool:
    """Whether all that the body uses of what the function itself allocates has an address: it is handed to threads."""
    allocated = {part.buffer for part in statements(loop.body) if isinstance(part, Alloc)}
    return all(
        buffer.scope == "global" or (buffer.scope == "local" and bool(buffer.shape))
        for part in statements(loop.body)
        for buffer in buffers(part)
        if buffer not in allocated
    )


def _is_innermost(loop: For) -> bool:
    return not any(isinstance(part, (For, Exec)) for part in statements(loop.body))


class _Cycles:
    """Counts cycles.

    Args:
        known: what is known of variables there.
    """

    def __init__(self, known: Bounds) -> None:
        self.known = known

    def estimate(self, stmt: Stmt, vector: bool = False) -> float:
        """Of one execution."""
        if isinstance(stmt, For):
            return self.loop(stmt, vector)
        cycles = sum(self.expr(expr) for expr in operands(stmt)) if isinstance(stmt, (Bind, If, Store, Update)) else 0.0
        inner = [_Cycles(bounds).estimate(body, vector) for body, bounds in self.known.children(stmt)]
        if isinstance(stmt, If):
            return cycles + max(inner)
        if isinstance(stmt, (Seq, Block, Alloc, Bind)):
            return cycles + sum(inner)
        if isinstance(stmt, Copy):
            count = 1
            for extent in stmt.shape:
                count *= max(0, self.known.interval(extent)[1])
            return count * itemsize(stmt.to.buffer.dtype) / _WIDE
        if isinstance(stmt, Store) and stmt.buffer.scope == "register":
            return cycles
        return cycles + _OPERATION

    def loop(self, loop: For, vector: bool) -> float:
        ((body, bounds),) = self.known.children(loop)
        count = max(0, self.known.interval(loop.extent)[1])
        once = _Cycles(bounds).estimate(body, vector or loop.kind == "vectorized")
        if loop.kind == "vectorized":
            widest = max((itemsize(b.dtype) for part in statements(body) for b in buffers(part)), default=1)
            return once * -(-count * widest // _WIDE)
        if loop.kind == "unrolled":
            return once * count
        if _is_innermost(loop) and not vector:
            return (once + _TURN) * (count if count < _MADE_VECTORS else count / _MADE_VECTORS)
        return (once + _TURN) * count

    def expr(self, expr: Expr) -> float:
        """What computing it takes, each part once; of what is read, not its place."""
        total, waiting, seen = 0.0, [expr], {expr}
        while waiting:
            part = waiting.pop()
            if isinstance(part, (Imm, Var)) or (part.dtype == INDEX and not buffers(part)):
                continue
            if isinstance(part, Load):
                total += 0.0 if part.buffer.scope == "register" else _READ
                continue
            total += _OPERATION * (FUNCTIONS[part.name].cost if isinstance(part, Call) else 1)
            for inner in operands(part):
                if inner not in seen:
                    seen.add(inner)
                    waiting.append(inner)
        return total
