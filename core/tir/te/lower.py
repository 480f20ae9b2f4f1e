"""Tensor expressions made into loops that a C compiler turns into vector code as they stand.

- Cheap intermediate tensors are written into their consumers (`stages`); the others have loops of their own.
- Stages that follow one another share their outer loops as far as each reads the others at the very element, or row,
  that these loops stand at. What passes between them is then a row, on the stack where it is small, else in a
  workspace. So a convolution with bias and requantisation is one nest: per pixel a row of accumulators, then a row of
  results; and a softmax is maximum, exponentials, sum and quotients, row by row.
- Rows that only pass through are cut into blocks of constant length, which fit registers.
- A reduction accumulates a row at a time, by several steps at once, where all that it reads lies still or side by side
  along the row; otherwise an element at a time, the axis along which it reads side by side innermost. A float reduction
  then has several partial results, so that the compiler need not reorder anything, and folds them pairwise at the end.
- Conditions of a reduction stand as far out as they can be decided.

Loop variables, buffers and labels are named by their order: equal computations give equal functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ...errors import InternalError
from ..form.dtype import is_float, itemsize
from ..form.nodes import (
    INDEX,
    Alloc,
    Bin,
    Block,
    Buffer,
    Expr,
    For,
    If,
    Imm,
    Load,
    LoopKind,
    Param,
    PrimFunc,
    Role,
    Seq,
    Stmt,
    Store,
    Update,
    Var,
    seq,
)
from ..form.visit import may_fault, rewrite, variables, walk
from ..proofs.affine import flat_index
from ..proofs.alias import may_alias
from ..proofs.bounds import Bounds, Interval
from ..rewrites.common_subexpressions import share
from .finish import STACK_BYTES
from .layouts import lay_out_constants, seen_through
from .stages import Nest, identity_of, loads, nests, owns, plan_stages, still_read
from .tensors import PARAM_ALIGNMENT, Definition, IterVar, Kernel, Placeholder, Reduce, Reduction, Reshape, Tensor

__all__ = ["lower"]

_BLOCK = 64
"""Elements of a row of accumulators: four vectors of 512 bits, or eight of 256, of 32-bit elements."""

_STEPS = 8
"""Most steps of a reduction that are added to a row of accumulators at once."""

_LANES_BYTES = 128
"""Partial results of a float reduction: two vectors of 512 bits."""

_NOTHING = Seq(())

_PREFIXES: dict[Role, str] = {"input": "x", "output": "out", "constant": "w", "workspace": "s"}


def lower(inputs: Sequence[Tensor], outputs: Sequence[Tensor], constants: Sequence[Tensor]) -> Kernel:
    """The kernel that computes ``outputs``; see `te.prim_func`.

    Raises:
        InternalError: a placeholder that is read is no parameter.
    """
    return _Lowering(inputs, outputs, constants).kernel()


@dataclass(frozen=True)
class _Place:
    """Where a tensor is kept: its element ``indices`` is ``buffer[indices[dropped:]]``, since the loops around stand
    at the leading ones; or ``buffer[lane]`` where it is one block of a row.
    """

    buffer: Buffer
    dropped: int
    is_block: bool = False


@dataclass(frozen=True)
class _Scope:
    """What the loops around stand at: a value for each axis, and the position within the block of a row."""

    values: Mapping[Var, Expr]
    lane: Expr

    def at(self, axes: Iterable[IterVar], value: Expr) -> _Scope:
        return replace(self, values={**self.values, **dict.fromkeys(axes, value)})


@dataclass(frozen=True)
class _Loop:
    """A loop to be made: ``axis`` runs over ``extent`` values from ``base``."""

    axis: IterVar
    extent: int
    base: Expr
    is_lane: bool = False
    kind: LoopKind = "serial"


_ZERO = Imm(0, INDEX)


def _whole(axis: IterVar) -> _Loop:
    return _Loop(axis, axis.extent, _ZERO)


class _Lowering:
    def __init__(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], constants: Sequence[Tensor]) -> None:
        stages = plan_stages(outputs, constants)
        constants = still_read(stages, outputs, constants)
        inputs = seen_through(stages, inputs)
        self.stages, self.held = lay_out_constants(stages, seen_through(stages, constants))
        self.users: dict[Buffer, list[Tensor]] = {tensor: [] for tensor in self.stages}
        for user, definition in self.stages.items():
            for load in loads([expr for body in nests(definition) for expr in body.exprs]):
                if load.buffer in self.users:
                    self.users[load.buffer].append(user)
        self.counts: Counter[str] = Counter()
        self.ranges: dict[Var, Interval] = {}
        self.local_bytes = 0
        self.params: dict[Role, list[Buffer]] = {"input": [], "output": [], "constant": [], "workspace": []}
        self.places: dict[Buffer, _Place] = {}
        given: tuple[tuple[Role, Sequence[Tensor]], ...] = (
            ("input", inputs),
            ("output", outputs),
            ("constant", tuple(self.held)),
        )
        for role, tensors in given:
            for tensor in tensors:
                self.places[tensor] = _Place(self.param(role, tensor.shape, tensor.dtype), 0)

    def kernel(self) -> Kernel:
        body = self.fused(list(self.stages), 0, _Scope({}, _ZERO))
        params = tuple(Param(buffer, role) for role, buffers in self.params.items() for buffer in buffers)
        func = PrimFunc(params, body, may_alias(params, body))
        return Kernel(func, tuple(self.held))

    # Names and memory

    def name(self, prefix: str) -> str:
        self.counts[prefix] += 1
        return f"{prefix}{self.counts[prefix] - 1}"

    def param(self, role: Role, shape: Sequence[int], dtype: str) -> Buffer:
        alignment = PARAM_ALIGNMENT if role in ("constant", "workspace") else 0
        buffer = Buffer(self.name(_PREFIXES[role]), tuple(shape), dtype, alignment=alignment)
        self.params[role].append(buffer)
        return buffer

    def local(self, shape: Sequence[int], dtype: str) -> Buffer:
        # A vector of accumulators that crosses a cache line costs two accesses.
        alignment = 64 if shape else 0
        return Buffer(self.name("a"), tuple(shape), dtype, "local", alignment)

    def memory(self, shape: Sequence[int], dtype: str) -> Buffer:
        """Memory for a tensor: on the stack while there is room."""
        buffer = Buffer("a", tuple(shape), dtype)
        if self.local_bytes + buffer.nbytes > STACK_BYTES:
            return self.param("workspace", shape, dtype)
        self.local_bytes += buffer.nbytes
        return self.local(shape, dtype)

    def place(self, tensor: Buffer) -> _Place:
        found = self.places.get(tensor)
        if found is None:
            assert isinstance(tensor, Tensor)
            if isinstance(tensor.definition, (Placeholder, Reshape)):
                raise InternalError(f"{tensor.name!r} is read and is no parameter", where="tensor expression")
            self.held.append(tensor)
            found = self.places[tensor] = _Place(self.param("constant", tensor.shape, tensor.dtype), 0)
        return found

    # Loops

    def index(self, extent: int) -> Expr:
        if extent == 1:
            return _ZERO
        var = Var(self.name("i"))
        self.ranges[var] = (0, extent - 1)
        return var

    def nest(
        self,
        loops: Sequence[_Loop],
        scope: _Scope,
        make: Callable[[_Scope], Stmt],
        conditions: Sequence[Expr] = (),
    ) -> Stmt:
        """Loops around ``make`` of the scope within them, which is executed where all ``conditions`` hold."""
        indices = [self.index(loop.extent) for loop in loops]
        levels: dict[Var, int] = {}
        for level, (loop, index) in enumerate(zip(loops, indices, strict=True), 1):
            scope = scope.at([loop.axis], _sum(loop.base, index))
            if loop.is_lane:
                scope = replace(scope, lane=index)
            levels[loop.axis] = level
        guards: list[list[Expr]] = [[] for _ in range(len(loops) + 1)]
        latest = 0
        for condition in conditions:
            level = max((levels.get(var, 0) for var in variables(condition)), default=0)
            if any(isinstance(part, Expr) and may_fault(part) for part in walk(condition)):
                # What stands before it in the conjunction may be what makes it valid.
                level = max(level, latest)
            latest = max(latest, level)
            guards[level].append(self.value(condition, scope))
        stmt = make(scope)
        for level in range(len(loops), -1, -1):
            stmt = self.guarded(guards[level], stmt)
            if level:
                stmt = _loop(indices[level - 1], loops[level - 1].extent, stmt, loops[level - 1].kind)
        return stmt

    def guarded(self, conditions: Sequence[Expr], stmt: Stmt) -> Stmt:
        known = Bounds(self.ranges)
        for condition in reversed(conditions):
            decided = known.decide(condition)
            if decided is None:
                stmt = (
                    If(condition, stmt)
                    if not isinstance(stmt, If) or stmt.otherwise
                    else If(Bin("and", condition, stmt.condition), stmt.then)
                )
            elif not decided:
                return _NOTHING
        return stmt

    # Elements

    def value(self, expr: Expr, scope: _Scope) -> Expr:
        """``expr`` with axes and tensors replaced by what stands for them in the loops."""

        def rule(node: Expr) -> Expr | None:
            if isinstance(node, Var):
                return scope.values[node]
            if isinstance(node, Load):
                return Load(*self.element(node.buffer, node.indices, scope))
            return None

        return rewrite(expr, rule)

    def element(self, tensor: Buffer, indices: Sequence[Expr], scope: _Scope) -> tuple[Buffer, tuple[Expr, ...]]:
        place = self.place(tensor)
        return place.buffer, (scope.lane,) if place.is_block else tuple(indices[place.dropped :])

    def target(self, tensor: Tensor, body: Nest, scope: _Scope) -> tuple[Buffer, tuple[Expr, ...]]:
        """The element of ``tensor`` that the loops stand at."""
        offsets = [Imm(offset, INDEX) for offset in body.offsets]
        indices = [_sum(offset, scope.values[axis]) for offset, axis in zip(offsets, body.axes, strict=True)]
        return self.element(tensor, indices, scope)

    def store(self, tensor: Tensor, body: Nest, scope: _Scope) -> Stmt:
        buffer, indices = self.target(tensor, body, scope)
        (expr,) = body.exprs
        return share(self.value(expr, scope), lambda: self.name("v"), lambda value: Store(buffer, indices, value))

    def update(self, reduction: Reduction, buffer: Buffer, indices: tuple[Expr, ...], scope: _Scope) -> Stmt:
        return share(
            self.value(reduction.value, scope),
            lambda: self.name("v"),
            lambda value: Update(reduction.op, buffer, indices, value),
        )

    # Stages

    def fused(self, stages: Sequence[Tensor], depth: int, scope: _Scope) -> Stmt:
        """Stages within the loops over their first ``depth`` axes."""
        runs = self.runs(stages, depth)
        parts: list[Stmt] = []
        for run in runs:
            for tensor in run:
                if tensor not in self.places and not set(self.users[tensor]) <= set(run):
                    buffer = self.memory(tensor.shape[depth:], tensor.dtype)
                    self.places[tensor] = _Place(buffer, depth)
                    if buffer.scope == "local":
                        parts.append(Alloc(buffer, _NOTHING))
        parts.extend(self.run(run, depth, scope) for run in runs)
        return seq(*parts)

    def runs(self, stages: Sequence[Tensor], depth: int) -> list[list[Tensor]]:
        """The stages divided into runs that can share a loop over axis ``depth``."""
        runs: list[list[Tensor]] = []
        for tensor in stages:
            if runs and self.joins(runs[-1], tensor, depth):
                runs[-1].append(tensor)
            else:
                runs.append([tensor])
        return runs

    def joins(self, run: Sequence[Tensor], tensor: Tensor, depth: int) -> bool:
        if any(len(member.shape) <= depth for member in (run[0], tensor)):
            return False
        extent = tensor.shape[depth]
        if run[0].shape[depth] != extent or not all(_covers(self.stages[t], depth, extent) for t in (run[0], tensor)):
            return False
        return all(
            owns(load.indices[depth], body.axes[depth])
            for body in nests(self.stages[tensor])
            for load in loads(body.exprs)
            if load.buffer in run
        )

    def run(self, run: Sequence[Tensor], depth: int, scope: _Scope) -> Stmt:
        first = run[0]
        rank = max(len(tensor.shape) for tensor in run)
        if len(run) == 1 and (rank == depth or not isinstance(self.stages[first], Reduce)):
            return self.alone(first, depth, scope)
        if rank == depth + 1:
            return self.rows(run, depth, scope)
        index = self.index(first.shape[depth])
        axes = [body.axes[depth] for tensor in run for body in nests(self.stages[tensor])]
        return _loop(index, first.shape[depth], self.fused(run, depth + 1, scope.at(axes, index)))

    def alone(self, tensor: Tensor, depth: int, scope: _Scope) -> Stmt:
        """A stage with all the loops that it has left, none of which it shares."""
        if isinstance(self.stages[tensor], Reduce):
            return self.label("reduce", self.one_element(tensor, scope))
        stmts = [
            self.nest([_whole(axis) for axis in body.axes[depth:]], scope, partial(self.store, tensor, body))
            for body in nests(self.stages[tensor])
        ]
        return self.label("compute", seq(*stmts))

    def rows(self, run: Sequence[Tensor], depth: int, scope: _Scope) -> Stmt:
        """Stages that have one loop left, in which each reads the others at the same element only."""
        extent = run[0].shape[depth]
        passing = any(tensor not in self.places or self.by_row(tensor) for tensor in run)
        if not passing or extent <= _BLOCK:
            return self.block(run, depth, scope, extent, _ZERO)
        length = _block_length(extent)
        count, rest = divmod(extent, length)
        index = self.index(count)
        start = Bin("mul", index, Imm(length, INDEX))
        parts = [_loop(index, count, self.block(run, depth, scope, length, start))]
        if rest:
            parts.append(self.block(run, depth, scope, rest, Imm(count * length, INDEX)))
        return seq(*parts)

    def block(self, run: Sequence[Tensor], depth: int, scope: _Scope, length: int, base: Expr) -> Stmt:
        """``length`` elements of a row, from ``base``."""
        parts: list[Stmt] = []
        passing = [tensor for tensor in run if tensor not in self.places]
        for tensor in passing:
            buffer = self.local((length,), tensor.dtype)
            parts.append(Alloc(buffer, _NOTHING))
            self.places[tensor] = _Place(buffer, depth, is_block=True)
        for tensor in run:
            row = [_Loop(body.axes[depth], length, base, is_lane=True) for body in nests(self.stages[tensor])]
            if self.by_row(tensor):
                parts.append(self.label("reduce", self.one_row(tensor, row[0], scope)))
            elif isinstance(self.stages[tensor], Reduce):
                parts.append(self.label("reduce", self.nest(row, scope, partial(self.one_element, tensor))))
            else:
                stmts = [
                    self.nest([loop], scope, partial(self.store, tensor, body))
                    for loop, body in zip(row, nests(self.stages[tensor]), strict=True)
                ]
                parts.append(self.label("compute", seq(*stmts)))
        for tensor in passing:
            del self.places[tensor]
        return seq(*parts)

    def label(self, kind: str, stmt: Stmt) -> Stmt:
        return Block(self.name(kind), stmt)

    # Reductions

    def by_row(self, tensor: Tensor) -> bool:
        """Whether a reduction accumulates a row at a time."""
        definition = self.stages[tensor]
        if not isinstance(definition, Reduce) or not definition.axes:
            return False
        row = definition.axes[-1]
        strides = _strides(definition.reduction, row)
        if row.extent == 1 or not strides <= {0, 1}:
            return False
        inner = _contiguous(definition.reduction)
        # A few elements do not fill a vector; a long sum does.
        return inner is None or row.extent >= 8 or inner.extent < 4 * row.extent

    def one_row(self, tensor: Tensor, row: _Loop, scope: _Scope) -> Stmt:
        definition = self.stages[tensor]
        assert isinstance(definition, Reduce)
        reduction = definition.reduction
        place = self.places[tensor]
        sums = place.buffer if place.is_block else self.local((row.extent,), tensor.dtype)
        identity = identity_of(reduction.op, tensor.dtype)
        parts = [
            self.nest([row], scope, lambda inner: Store(sums, (inner.lane,), identity)),
            self.row_steps(reduction, sums, row, scope),
        ]
        if place.is_block:
            return seq(*parts)
        (body,) = nests(definition)
        copy = self.nest(
            [row], scope, lambda inner: Store(*self.target(tensor, body, inner), Load(sums, (inner.lane,)))
        )
        return seq(Alloc(sums, _NOTHING), *parts, copy)

    def row_steps(self, reduction: Reduction, sums: Buffer, row: _Loop, scope: _Scope) -> Stmt:
        """Adds all steps of ``reduction`` to a row of accumulators: several steps at a time, where they can be, so that
        the row is read and written once for all of them.
        """
        conditions = _conjunction(reduction.where)
        outer = [axis for axis in reduction.axes if axis.extent > 1]
        inner = outer[-1] if outer else None
        steps = 1
        if inner is not None and all(inner not in variables(condition) for condition in conditions):
            steps = max(n for n in range(1, _STEPS + 1) if inner.extent % n == 0)

        def update(s: _Scope) -> Stmt:
            return self.update(reduction, sums, (s.lane,), s)

        if inner is None or steps == 1:
            return self.nest([*map(_whole, reduction.axes), row], scope, update, conditions)

        def along(s: _Scope) -> Stmt:
            count = inner.extent // steps
            index = self.index(count)
            start = Bin("mul", index, Imm(steps, INDEX)) if count > 1 else _ZERO
            unrolled = _Loop(inner, steps, start, kind="unrolled")
            return _loop(index, count, self.nest([row, unrolled], s, update))

        others = [_whole(axis) for axis in reduction.axes if axis is not inner]
        return self.nest(others, scope, along, conditions)

    def one_element(self, tensor: Tensor, scope: _Scope) -> Stmt:
        """The reduction for one element, all of whose axes have values."""
        definition = self.stages[tensor]
        assert isinstance(definition, Reduce)
        reduction = definition.reduction
        (body,) = nests(definition)
        buffer, indices = self.target(tensor, body, scope)
        is_register = buffer.scope == "local" and not indices
        total = buffer if is_register else self.local((), tensor.dtype)
        parts = [Store(total, (), identity_of(reduction.op, tensor.dtype)), *self.steps(reduction, total, scope)]
        if is_register:
            return seq(*parts)
        return seq(Alloc(total, _NOTHING), *parts, Store(buffer, indices, Load(total, ())))

    def steps(self, reduction: Reduction, total: Buffer, scope: _Scope) -> list[Stmt]:
        """Adds all steps of ``reduction`` to ``total``."""
        conditions = _conjunction(reduction.where)
        inner = _contiguous(reduction)
        if inner is None:
            loops = [_whole(axis) for axis in reduction.axes]
            return [self.nest(loops, scope, lambda s: self.update(reduction, total, (), s), conditions)]
        loops = [_whole(axis) for axis in reduction.axes if axis is not inner]
        lanes = _LANES_BYTES // itemsize(total.dtype)
        while lanes >= 8 and inner.extent < 2 * lanes:
            lanes //= 2
        decided = all(inner not in variables(condition) for condition in conditions)
        if not is_float(total.dtype) or lanes < 8 or not decided:
            loops.append(_whole(inner))
            return [self.nest(loops, scope, lambda s: self.update(reduction, total, (), s), conditions)]
        return self.partial_sums(reduction, total, scope, loops, inner, lanes)

    def partial_sums(
        self, reduction: Reduction, total: Buffer, scope: _Scope, outer: Sequence[_Loop], inner: IterVar, lanes: int
    ) -> list[Stmt]:
        """The steps of ``reduction`` to ``lanes`` partial results in turn, which are then folded into ``total``."""
        sums = self.local((lanes,), total.dtype)
        lane = IterVar("lane", lanes)
        identity = identity_of(reduction.op, total.dtype)

        def chunk(outer_scope: _Scope, base: Expr, extent: int) -> Stmt:
            loop = _Loop(inner, extent, base, is_lane=True)
            return self.nest([loop], outer_scope, lambda s: self.update(reduction, sums, (s.lane,), s))

        def fold(upper: Expr, s: _Scope) -> Stmt:
            at = s.values[lane]
            return Update(reduction.op, sums, (at,), Load(sums, (_sum(upper, at),)))

        def along(outer_scope: _Scope) -> Stmt:
            count, rest = divmod(inner.extent, lanes)
            index = self.index(count)
            parts = [_loop(index, count, chunk(outer_scope, Bin("mul", index, Imm(lanes, INDEX)), lanes))]
            if rest:
                parts.append(chunk(outer_scope, Imm(count * lanes, INDEX), rest))
            return seq(*parts)

        parts = [
            Alloc(sums, _NOTHING),
            self.nest([_whole(lane)], scope, lambda s: Store(sums, (s.values[lane],), identity)),
            self.nest(outer, scope, along, _conjunction(reduction.where)),
        ]
        while lanes > 1:
            lanes //= 2
            half = _Loop(lane, lanes, _ZERO)
            upper = Imm(lanes, INDEX)
            parts.append(self.nest([half], scope, partial(fold, upper)))
        parts.append(Update(reduction.op, total, (), Load(sums, (_ZERO,))))
        return parts


def _sum(a: Expr, b: Expr) -> Expr:
    if a is _ZERO:
        return b
    return a if b is _ZERO else Bin("add", b, a)


def _loop(index: Expr, extent: int, body: Stmt, kind: LoopKind = "serial") -> Stmt:
    if body is _NOTHING or not isinstance(index, Var):
        return body
    return For(index, Imm(extent, INDEX), body, kind)


def _block_length(extent: int) -> int:
    """A length, at most `_BLOCK`, that divides ``extent`` and fills vectors; else `_BLOCK`, with a tail."""
    for length in range(_BLOCK, _BLOCK // 2, -8):
        if extent % length == 0:
            return length
    return _BLOCK


def _covers(definition: Definition, depth: int, extent: int) -> bool:
    """Whether each nest of a stage goes over the whole of axis ``depth``."""
    return all(body.offsets[depth] == 0 and body.axes[depth].extent == extent for body in nests(definition))


def _conjunction(condition: Expr | None) -> list[Expr]:
    """The parts of ``condition`` that must all hold, in order."""
    if condition is None:
        return []
    if isinstance(condition, Bin) and condition.op == "and":
        return [*_conjunction(condition.a), *_conjunction(condition.b)]
    return [condition]


def _strides(reduction: Reduction, axis: IterVar) -> set[int | None]:
    """By how much the elements that ``reduction`` reads lie apart along ``axis``; None where that varies."""
    return {flat_index(load.buffer, load.indices).stride(axis) for load in loads([reduction.value])}


def _contiguous(reduction: Reduction) -> IterVar | None:
    """The longest axis of ``reduction`` along which all that it reads lies still or side by side, and something side
    by side.
    """
    fitting = [axis for axis in reduction.axes if 1 in (strides := _strides(reduction, axis)) and strides <= {0, 1}]
    return max(fitting, key=lambda axis: axis.extent, default=None)
