"""Which tensors of a computation get loops and memory of their own, and which are written into their consumers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ..form.dtype import bounds, is_float
from ..form.functions import FUNCTIONS
from ..form.nodes import Bin, Buffer, Call, Cast, Expr, Imm, Load, Select, Un, Var
from ..form.symbolic_dims import Symbol, symbols_of
from ..form.visit import operands, rewrite, substitute, variables, walk
from ..proofs.intervals import Interval
from ..rewrites.simplify import simplify_expr
from .tensors import (
    Assemble,
    Compute,
    Constant,
    Definition,
    Fragment,
    IterVar,
    Reduce,
    Reduction,
    Reshape,
    Tensor,
    is_computed,
)

__all__ = [
    "Nest",
    "identity_of",
    "in_order",
    "knows",
    "loads",
    "map_definition",
    "nests",
    "owns",
    "plan_stages",
    "still_read",
    "symbols_in",
]


@dataclass(frozen=True)
class Nest:
    """The expressions of one stage, or piece of a stage, that stand in one nest of loops.

    Args:
        axes: the indices of the element that is computed, less ``offsets``.
        offsets: first element of the piece.
        loops: ``axes`` and the axes of the reduction.
        exprs: what is evaluated.
    """

    axes: tuple[IterVar, ...]
    offsets: tuple[Any, ...]
    loops: tuple[IterVar, ...]
    exprs: tuple[Expr, ...]

    @property
    def steps(self) -> int:
        """How often the expressions are evaluated."""
        return prod(axis.most for axis in self.loops)


def nests(definition: Definition) -> tuple[Nest, ...]:
    """The nests of loops of a stage."""
    if isinstance(definition, Compute):
        return (Nest(definition.axes, (0,) * len(definition.axes), definition.axes, (definition.value,)),)
    if isinstance(definition, Reduce):
        reduction = definition.reduction
        exprs = (reduction.value,) if reduction.where is None else (reduction.value, reduction.where)
        return (Nest(definition.axes, (0,) * len(definition.axes), (*definition.axes, *reduction.axes), exprs),)
    if isinstance(definition, Assemble):
        return tuple(Nest(piece.axes, piece.offsets, piece.axes, (piece.value,)) for piece in definition.pieces)
    return ()


def identity_of(op: str, dtype: str) -> Imm:
    """What a reduction by ``op`` is where nothing is reduced."""
    if op in ("add", "mul"):
        return Imm(int(op == "mul"), dtype)
    if is_float(dtype):
        return Imm(float("-inf") if op == "max" else float("inf"), dtype)
    low, high = bounds(dtype)
    return Imm(low if op == "max" else high, dtype)


def map_definition(definition: Definition, function: Callable[[Expr], Expr]) -> Definition:
    """``definition`` with ``function`` applied to each of its expressions."""
    if isinstance(definition, Compute):
        return Compute(definition.axes, function(definition.value))
    if isinstance(definition, Reduce):
        old = definition.reduction
        where = None if old.where is None else function(old.where)
        return Reduce(definition.axes, Reduction(old.op, function(old.value), old.axes, where))
    if isinstance(definition, Assemble):
        return Assemble(tuple(Fragment(p.offsets, p.axes, function(p.value)) for p in definition.pieces))
    return definition


def loads(exprs: Sequence[Expr]) -> tuple[Load, ...]:
    """The loads within ``exprs``, each once, in order of first use."""
    return tuple(dict.fromkeys(part for expr in exprs for part in walk(expr) if isinstance(part, Load)))


def owns(index: Expr, axis: IterVar) -> bool:
    """Whether ``index``, into a dimension of the extent of ``axis``, is that very axis."""
    return index is axis or axis.most == 1


def plan_stages(
    outputs: Sequence[Tensor], constants: Collection[Tensor] = (), keep: Collection[Tensor] = ()
) -> dict[Tensor, Definition]:
    """The tensors that get loops of their own, each after those that it reads, and their definitions with all others
    written in.

    What reads constants only gets none: it is computed at build time, and is then read as a constant.

    Args:
        outputs: computed tensors.
        constants: placeholders of contents that are known at build time.
        keep: computed tensors that are not written into others.
    """
    all_stages = in_order({}, outputs)
    fixed = _fixed(all_stages, constants, outputs)
    stages = {tensor: _simplified(definition) for tensor, definition in in_order({}, outputs, fixed).items()}
    for tensor, definition in reversed(list(stages.items())):
        if isinstance(definition, Compute) and tensor not in outputs and tensor not in keep:
            uses = _uses(stages, tensor)
            if _stays_shallow(definition.value, uses) and _worth_inlining(tensor, definition.value, uses, stages):
                del stages[tensor]
                rule = _inlining(tensor, definition)
                for user in dict.fromkeys(user for user, _, _ in uses):
                    stages[user] = map_definition(stages[user], rule)
    simplified = {tensor: _simplified(definition) for tensor, definition in stages.items()}
    return in_order(simplified, outputs, fixed)


def still_read(
    stages: Mapping[Tensor, Definition], outputs: Sequence[Tensor], constants: Sequence[Tensor]
) -> list[Tensor]:
    """``constants`` without those that only what is computed at build time reads; what nothing reads stays.

    Args:
        stages: of ``outputs``.
        outputs: computed tensors.
        constants: placeholders.
    """
    first, now = (
        {_base(buffer) for definition in some.values() for buffer in _reads(definition)}
        for some in (in_order({}, outputs), stages)
    )
    return [tensor for tensor in constants if tensor in now or tensor not in first]


def knows(stages: Mapping[Tensor, Definition], constants: Collection[Tensor]) -> Callable[[Buffer], bool]:
    """Whether something that ``stages`` read is known at build time."""

    def known(buffer: Buffer) -> bool:
        return _base(buffer) in constants or _is_constant(buffer) or (is_computed(buffer) and buffer not in stages)

    return known


def symbols_in(definition: Definition) -> tuple[Symbol, ...]:
    """The symbols of open extents that a stage depends on, by name."""
    symbols: dict[str, Symbol] = {}
    for nest in nests(definition):
        open_ = symbols_of([*(axis.extent for axis in nest.loops), *nest.offsets])
        used = [var for expr in nest.exprs for var in variables(expr)]
        symbols.update((var.name, var) for var in (*open_, *used) if isinstance(var, Symbol))
    return tuple(symbols[name] for name in sorted(symbols))


def _fixed(
    stages: Mapping[Tensor, Definition], constants: Collection[Tensor], outputs: Collection[Tensor]
) -> frozenset[Tensor]:
    """The stages that read constants, and nothing that is not known at build time. What reads nothing at all is better
    computed where it is used."""
    is_fixed: dict[Buffer, bool] = {}
    """Whether something is a constant, of what is known at build time."""
    for tensor, definition in stages.items():
        reads = _reads(definition)
        for buffer in reads:
            if buffer not in stages and (_base(buffer) in constants or _is_constant(buffer)):
                is_fixed[buffer] = True
        if tensor not in outputs and all(buffer in is_fixed for buffer in reads) and not symbols_in(definition):
            is_fixed[tensor] = any(is_fixed[buffer] for buffer in reads)
    return frozenset(tensor for tensor in stages if is_fixed.get(tensor))


def _reads(definition: Definition) -> list[Buffer]:
    return [load.buffer for load in loads([expr for body in nests(definition) for expr in body.exprs])]


def _is_constant(buffer: Buffer) -> bool:
    return isinstance(buffer, Tensor) and isinstance(buffer.definition, Constant)


def _base(buffer: Buffer) -> Buffer:
    """What a view is of."""
    definition = buffer.definition if isinstance(buffer, Tensor) else None
    return definition.base if isinstance(definition, Reshape) else buffer


def _simplified(definition: Definition) -> Definition:
    ranges: dict[Var, Interval] = {axis: (0, axis.most - 1) for body in nests(definition) for axis in body.loops}
    ranges.update((symbol, (symbol.low, symbol.high)) for symbol in symbols_in(definition))
    return map_definition(definition, lambda expr: simplify_expr(expr, ranges))


def in_order(
    stages: Mapping[Tensor, Definition], outputs: Sequence[Tensor], known: Collection[Tensor] = ()
) -> dict[Tensor, Definition]:
    """All computed tensors that ``outputs`` need, each after those that it reads, but for those that are ``known`` and
    what only they need. Those not in ``stages`` have the definition that they were made with.
    """
    done: dict[Tensor, Definition] = {}
    stack = [(tensor, False) for tensor in reversed(outputs)]
    while stack:
        tensor, ready = stack.pop()
        definition = stages.get(tensor, tensor.definition)
        needs = nests(definition)
        if tensor in done or tensor in known or not needs:
            continue
        if ready:
            done[tensor] = definition
        else:
            stack.append((tensor, True))
            read = loads([expr for body in needs for expr in body.exprs])
            stack.extend((load.buffer, False) for load in reversed(read) if isinstance(load.buffer, Tensor))
    return done


Use = tuple[Tensor, Nest, Load]


def _uses(stages: Mapping[Tensor, Definition], tensor: Tensor) -> list[Use]:
    return [
        (user, body, load)
        for user, definition in stages.items()
        for body in nests(definition)
        for load in loads(body.exprs)
        if load.buffer is tensor
    ]


def _inlining(tensor: Tensor, definition: Compute) -> Callable[[Expr], Expr]:
    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer is tensor:
            return substitute(definition.value, dict(zip(definition.axes, node.indices, strict=True)))
        return None

    return lambda expr: rewrite(expr, rule)


_MAX_DEPTH = 60
"""Operands nest no deeper than that when stages are written into one another: `verify` allows little more."""


def _stays_shallow(value: Expr, uses: Sequence[Use]) -> bool:
    depth = _depth([value])
    return all(_depth(body.exprs) + depth <= _MAX_DEPTH for _, body, _ in uses)


def _depth(exprs: Sequence[Expr]) -> int:
    level, depth = set(exprs), 0
    while level:
        level = {part for node in level for part in operands(node)}
        depth += 1
    return depth


_CHEAP = 4
"""The most operations that are worth repeating any number of times: those of ``(x - zero_point) * scale`` for an
integer ``x``. Keeping the result would take four times the memory of ``x``.
"""

_MEMORY = 8
"""Writing an element and reading it back, in operations."""


def _worth_inlining(tensor: Tensor, value: Expr, uses: Sequence[Use], stages: Mapping[Tensor, Definition]) -> bool:
    steps = sum(body.steps for _, body, _ in uses)
    cost = _cost(value)
    # Distinct loads multiply the size of the consumer's text, from stage to stage: they are few.
    cheap = cost <= _CHEAP and len(uses) <= 8
    if not cheap and (steps - tensor.most) * cost > _MEMORY * tensor.most:
        return False
    # Fused, a reduction and what follows it need one row of memory. Written into a consumer that reads in another
    # order, what follows would leave the whole result of the reduction in memory.
    whole = any(
        isinstance(load.buffer, Tensor)
        and isinstance(stages.get(load.buffer), Reduce)
        and load.buffer.most >= tensor.most
        for load in loads([value])
    )
    return not whole or all(_same_element(user, body, load) for user, body, load in uses)


def _same_element(user: Tensor, body: Nest, load: Load) -> bool:
    # (Whether two extents that are open are one may depend on their values: here they are those that are written so.)
    if list(map(str, user.shape)) != list(map(str, load.buffer.shape)) or body.offsets != (0,) * len(body.offsets):
        return False
    return all(owns(index, axis) for index, axis in zip(load.indices, body.axes, strict=True))


_COSTS = dict.fromkeys(("div", "floordiv", "floormod", "truncdiv"), 4)


def _cost(value: Expr) -> int:
    """Operations, an addition being one, without those of indices."""
    total = 0
    seen = {value}
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, Bin):
            total += _COSTS.get(node.op, 1)
        elif isinstance(node, Call):
            total += FUNCTIONS[node.name].cost
        elif isinstance(node, (Un, Cast, Select)):
            total += 1
        fresh = [] if isinstance(node, Load) else [part for part in operands(node) if part not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return total
