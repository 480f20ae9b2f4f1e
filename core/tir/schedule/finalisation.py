"""The function that a schedule made: loops parted, kinds given, all checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..form.dtype import itemsize
from ..form.nodes import (
    Alloc,
    Bin,
    Bind,
    Block,
    Buffer,
    Expr,
    For,
    If,
    Imm,
    Load,
    LoopKind,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Store,
    Update,
    Var,
    const,
    seq,
)
from ..form.verify import verify
from ..form.visit import (
    accesses,
    buffers_read,
    buffers_written,
    child_statements,
    fresh_name,
    operands,
    rebuild,
    statements,
    variables,
    walk,
)
from ..proofs.alias import may_alias
from ..proofs.intervals import Bounds
from ..proofs.lanes import lane_faults
from ..rewrites.simplify import simplify
from .loops import parted, require_independent
from .rows import in_rows
from .sites import Names, copy_with_new_names, illegal, simplify_expressions, site_of, substitute_variables
from .state import State

__all__ = ["VectorUnit", "finalise_schedule", "in_loops"]


@dataclass(frozen=True)
class VectorUnit:
    """What a machine has for vectors.

    Args:
        bytes: of its widest vector.
        registers: how many vectors it holds.
    """

    bytes: int
    registers: int


def finalise_schedule(state: State, unit: VectorUnit | None) -> PrimFunc:
    """The function of a schedule: loops parted where they were cut, of the kinds that they were given, simplified,
    and verified.

    Raises:
        ScheduleError: a loop cannot be of its kind, or the vectors do not fit the unit.
        InternalError: the function is malformed.
    """
    state = _all_parted(state)
    func = simplify(replace(state.func, body=simplify_expressions(state.func.body, Bounds({}))))
    func = replace(func, body=_Kinds(state, Names(func), unit).apply(func.body, Bounds.at_entry(func)))
    for loop in _loops(func.body):
        if loop.kind == "parallel":
            site = site_of(func.body, lambda stmt, loop=loop: stmt is loop)  # type: ignore[misc]  # mypy infers no lambda with a default
            assert site is not None
            require_independent(site, loop.kind)
    aliases = may_alias(func.params, func.body) if func.may_alias else ()
    func = replace(func, may_alias=tuple(pair for pair in func.may_alias if pair in aliases))
    nested = next((one for loop in _loops(func.body) if loop.kind == "vectorized" for one in _vectors_in(loop)), None)
    if nested is not None:
        raise illegal(f"loop {nested.var.name!r} cannot be vectorized: it is within another one", "unroll one of them")
    for fault in lane_faults(func):
        raise illegal(fault.what, fault.hint)
    if state.heights is not None:
        func = in_rows(func, state.heights)
    if unit is not None:
        _check_registers(func.body, unit, [], None)
        _check_lanes(func.body, unit)
    verify(func)
    return func


def in_loops(state: State) -> PrimFunc:
    """The function of a schedule as it is: loops parted where they were cut, of the kinds that they were given.

    Raises:
        ScheduleError: a loop cannot be of its kind.
    """
    state = _all_parted(state)
    func = replace(
        state.func,
        body=_Kinds(state, state.names(), None).apply(state.func.body, Bounds.at_entry(state.func)),
        may_alias=(),
    )
    return func if state.heights is None else in_rows(func, state.heights)


def _all_parted(state: State) -> State:
    while state.cuts:
        state, _ = parted(state, next(iter(state.cuts)))
    return state


def _vectors_in(loop: For) -> list[For]:
    return [inner for inner in _loops(loop.body) if inner.kind == "vectorized"]


def _loops(stmt: Stmt) -> list[For]:
    itself = [stmt] if isinstance(stmt, For) else []
    return [*itself, *(loop for body in child_statements(stmt) for loop in _loops(body))]


_LEAST, _MOST = 4, 64
"""Lanes of a vector that pays, and of the widest that there is."""


@dataclass(frozen=True)
class _Kinds:
    """Gives loops the kinds that they were given; vectors that no machine has are parted or unrolled.

    Args:
        state: has the kinds.
        names: that are taken.
        unit: of the machine.
    """

    state: State
    names: Names
    unit: VectorUnit | None

    def apply(self, stmt: Stmt, known: Bounds) -> Stmt:
        """``stmt`` with its loops of their kinds; ``known`` is so around it."""
        inner_bounds = list(known.children(stmt))
        inner = [self.apply(body, bounds) for body, bounds in inner_bounds]
        if not isinstance(stmt, For) or stmt.var not in self.state.kinds:
            return rebuild(stmt, operands(stmt), inner)
        kind = self.state.kinds[stmt.var]
        if kind == "parallel":
            return For(stmt.var, stmt.extent, inner[0], kind)
        if not isinstance(stmt.extent, Imm):
            raise illegal(
                f"loop {stmt.var.name!r} cannot be {kind}: its extent is not constant", "peel the tail of its split"
            )
        count = int(stmt.extent.value)
        is_whole = not count & (count - 1)
        lane_counts = _register_lanes(inner[0], stmt.var)
        if kind == "vectorized" and any(lanes > count for lanes in lane_counts):
            kind = "unrolled"  # parts of registers are taken one by one
        if kind == "vectorized" and not is_whole:
            if not lane_counts and _is_side_by_side(inner[0], stmt.var, inner_bounds[0][1]):
                return self._in_smaller_vectors(stmt.var, inner[0], count)
            kind = "unrolled"
        return For(stmt.var, stmt.extent, inner[0], kind)

    def _in_smaller_vectors(self, lane: Var, body: Stmt, count: int) -> Stmt:
        """As many lanes as no vector has, in vectors of which the last begins so much earlier that it is full, where
        what is done twice then may be; else in ever smaller vectors, and what is left one by one.
        """
        most = _MOST
        if self.unit is not None:
            used = (use.buffer for part in walk(body) for use in accesses(part))
            most = min(most, self.unit.bytes // max((itemsize(buffer.dtype) for buffer in used), default=1))
        # (What was stored as a small vector, and is loaded at once a little shifted, comes late.)
        again = count >= 2 * _LEAST and _may_be_repeated(body, self.state.func.may_alias)
        parts: list[Stmt] = []
        first = 0
        while first < count:
            rest = count - first
            kind: LoopKind = "vectorized"
            width = min(most, 1 << (rest.bit_length() - 1))
            if again and parts:
                width = min(most, max(_LEAST, 1 << (rest - 1).bit_length()))
            elif width < _LEAST:
                width, kind = rest, "unrolled"
            at = min(first, count - width)
            loop: Stmt = For(lane, const(width), substitute_variables(body, {lane: lane + at} if at else {}), kind)
            parts.append(copy_with_new_names(loop, lambda name: fresh_name(name, self.names.taken))[0] if at else loop)
            first = at + width
        return seq(*parts)


def _is_side_by_side(body: Stmt, lane: Var, bounds: Bounds) -> bool:
    """Whether lanes of any number are plainly lanes of vectors: elements that lie side by side, or one for all, and
    nothing that one lane does and another does not.
    """
    varying = {lane, *(stmt.var for stmt in statements(body) if isinstance(stmt, Bind))}
    for stmt in statements(body):
        if not isinstance(stmt, (Store, Update, Bind, If, For, Seq, Block)):
            return False
        if isinstance(stmt, (If, For)) and not varying.isdisjoint(
            variables(stmt.condition if isinstance(stmt, If) else stmt.extent)
        ):
            return False
    chosen = (arm for part in walk(body) if isinstance(part, Select) for arm in (part.a, part.b))
    asked = (part for arm in chosen for part in walk(arm) if isinstance(part, Load))
    if not all(_is_there(load, bounds) for load in asked):
        return False  # both arms are computed
    places = [part.indices for part in walk(body) if isinstance(part, (Load, Store, Update)) and part.indices]
    outer = (index for indices in places for index in indices[:-1])
    return all(varying.isdisjoint(variables(index)) for index in outer) and all(
        _steps_by_one(at[-1], lane, varying) for at in places
    )


def _is_there(load: Load, bounds: Bounds) -> bool:
    """Whether an element lies in its buffer whatever is asked before it is read."""
    ends = (bounds.interval(index) for index in load.indices)
    return all(0 <= low and high < extent for (low, high), extent in zip(ends, load.buffer.shape, strict=True))


def _steps_by_one(index: Expr, lane: Var, varying: set[Var]) -> bool:
    """Whether an index is the lane and what is the same for all, or the same for all."""
    if index is lane or varying.isdisjoint(variables(index)):
        return True
    if not isinstance(index, Bin) or index.op != "add":
        return False
    parts = [part for part in (index.a, index.b) if not varying.isdisjoint(variables(part))]
    return len(parts) == 1 and _steps_by_one(parts[0], lane, varying)


def _may_be_repeated(body: Stmt, may_alias: Sequence[tuple[str, str]]) -> bool:
    """Whether doing ``body`` once more changes nothing: it reads nothing that it stores, and does nothing else."""
    read, written = ({buffer.name for buffer in accessed(body)} for accessed in (buffers_read, buffers_written))
    pairs = [set(pair) for pair in may_alias]
    return (
        all(isinstance(stmt, (Store, Bind, If, For, Seq, Block)) for stmt in statements(body))
        and not read & written
        and not any(pair & read and pair & written for pair in pairs)
    )


def _register_lanes(body: Stmt, lane: Var) -> list[int]:
    """How many lanes the registers have that ``lane`` is one of."""
    uses = (part for part in walk(body) if isinstance(part, (Load, Store, Update)) and part.indices)
    lane_counts = (use for use in uses if use.buffer.scope == "register" and lane in variables(use.indices[-1]))
    return [use.buffer.shape[-1] for use in lane_counts]


def _check_registers(stmt: Stmt, unit: VectorUnit, held: Sequence[tuple[Buffer, int]], loop: For | None) -> None:
    """Raise if the buffers in registers that exist at one time take more of them than there are."""
    if isinstance(stmt, For):
        loop = stmt
    if isinstance(stmt, Alloc) and stmt.buffer.scope == "register":
        held = [*held, (stmt.buffer, _vectors(stmt.buffer, unit))]
        total = sum(count for _, count in held)
        if total > unit.registers:
            where = "" if loop is None else f", in loop {loop.var.name!r}"
            names = " and ".join(f"{buffer.name!r} ({count})" for buffer, count in held)
            raise illegal(
                f"{names} take {total} vectors at once{where}; the machine has {unit.registers}", "take smaller tiles"
            )
    for body in child_statements(stmt):
        _check_registers(body, unit, held, loop)


def _vectors(buffer: Buffer, unit: VectorUnit) -> int:
    lanes = buffer.shape[-1] if buffer.shape else 1
    return buffer.size // lanes * -(-lanes * itemsize(buffer.dtype) // unit.bytes)


def _check_lanes(body: Stmt, unit: VectorUnit) -> None:
    """Raise if a vector is wider than the machine's."""
    for loop in _loops(body):
        if loop.kind != "vectorized" or not isinstance(loop.extent, Imm):
            continue
        for part in walk(loop.body):
            for use in accesses(part):
                nbytes = int(loop.extent.value) * itemsize(use.buffer.dtype)
                if nbytes > unit.bytes:
                    what = f"loop {loop.var.name!r} makes vectors of {nbytes} bytes of {use.buffer.name!r}"
                    raise illegal(f"{what}; those of the machine have {unit.bytes}", "split off fewer lanes")
