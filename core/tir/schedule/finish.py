"""The function that a schedule made: loops parted, kinds given, all checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..form.dtype import itemsize
from ..form.nodes import Alloc, Buffer, For, Imm, Load, PrimFunc, Stmt, Store, Update, Var
from ..form.verify import verify
from ..form.visit import accesses, bodies, operands, rebuild, variables, walk
from ..proofs.alias import may_alias
from ..proofs.bounds import Bounds
from ..proofs.lanes import lane_faults
from ..rewrites.simplify import simplify
from .loops import parted, require_independent
from .nest import illegal, site_of, tidied
from .rows import in_rows
from .state import State

__all__ = ["VectorUnit", "finished", "in_loops"]


@dataclass(frozen=True)
class VectorUnit:
    """What a machine has for vectors.

    Args:
        bytes: of its widest vector.
        registers: how many vectors it holds.
    """

    bytes: int
    registers: int


def finished(state: State, unit: VectorUnit | None) -> PrimFunc:
    """The function of a schedule: loops parted where they were cut, of the kinds that they were given, simplified,
    and verified.

    Raises:
        ScheduleError: a loop cannot be of its kind, or the vectors do not fit the unit.
        InternalError: the function is malformed.
    """
    state = _all_parted(state)
    func = simplify(replace(state.func, body=tidied(state.func.body, Bounds({}))))
    func = replace(func, body=_of_kinds(func.body, state))
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
    func = replace(state.func, body=_of_kinds(state.func.body, state), may_alias=())
    return func if state.heights is None else in_rows(func, state.heights)


def _all_parted(state: State) -> State:
    while state.cuts:
        state, _ = parted(state, next(iter(state.cuts)))
    return state


def _vectors_in(loop: For) -> list[For]:
    return [inner for inner in _loops(loop.body) if inner.kind == "vectorized"]


def _loops(stmt: Stmt) -> list[For]:
    own = [stmt] if isinstance(stmt, For) else []
    return [*own, *(loop for body in bodies(stmt) for loop in _loops(body))]


def _of_kinds(stmt: Stmt, state: State) -> Stmt:
    """``stmt`` with its loops of the kinds that they were given; vectors that no machine has are unrolled."""
    inner = [_of_kinds(body, state) for body in bodies(stmt)]
    if not isinstance(stmt, For) or stmt.var not in state.kinds:
        return rebuild(stmt, operands(stmt), inner)
    kind = state.kinds[stmt.var]
    if kind != "parallel":
        if not isinstance(stmt.extent, Imm):
            raise illegal(
                f"loop {stmt.var.name!r} cannot be {kind}: its extent is not constant", "peel the tail of its split"
            )
        count = int(stmt.extent.value)
        if kind == "vectorized" and (count & (count - 1) or _is_part(inner[0], stmt.var, count)):
            kind = "unrolled"
    return For(stmt.var, stmt.extent, inner[0], kind)


def _is_part(body: Stmt, lane: Var, count: int) -> bool:
    """Whether ``count`` lanes are fewer than the vectors have that they are of, as in a tail."""
    uses = (part for part in walk(body) if isinstance(part, (Load, Store, Update)) and part.indices)
    held = (use for use in uses if use.buffer.scope == "register" and lane in variables(use.indices[-1]))
    return any(use.buffer.shape[-1] > count for use in held)


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
    for body in bodies(stmt):
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
