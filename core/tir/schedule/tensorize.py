"""Loops replaced by the instruction whose description they equal.

Both sides are brought into one normal form: the values that the author gives are put into the description, names of
parts are written out, and all is simplified. Then the loops are unified with the description: the same statements and
operations, operands of commutative ones in either order. Each parameter becomes a view, whose steps follow from how
the indices of both sides move with the loops. What is equal only by other arithmetic is not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, permutations
from typing import Any

from ..form.dtype import is_float, itemsize
from ..form.fields import accesses
from ..form.nodes import (
    ADDRESSED_SCOPES,
    INDEX,
    Alloc,
    Axis,
    Bin,
    Bind,
    Block,
    Buffer,
    Call,
    Cast,
    Exec,
    Expr,
    For,
    If,
    Imm,
    Intrinsic,
    Load,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    Un,
    Update,
    Var,
    View,
    const,
)
from ..form.printer import headline, print_expr
from ..form.visit import buffers_read, child_statements, operands, rebuild, substitute, variables
from ..proofs.affine import Affine, affine, flat_index
from ..proofs.alias import reach
from ..proofs.intervals import Bounds
from ..rewrites.simplify import simplify, simplify_within
from .cache_stages import flattened, realigned
from .dependences import inner_loops, span
from .regions import as_expr
from .sites import ScheduleError, illegal, substitute_variables
from .state import State

__all__ = ["tensorize"]


def tensorize(state: State, var: Var | str, intrinsic: Intrinsic, values: Mapping[str, int | Expr]) -> State:
    """A loop with all within it as one execution of an instruction."""
    site, loop = state.loop(var)
    what = f"loop {loop.var.name!r} is not {intrinsic.name!r}"
    variables_by_name = {one.name: one for one in intrinsic.vars}
    for name in values:
        if name not in variables_by_name:
            raise illegal(
                f"{intrinsic.name!r} has no variable {name!r}", f"it has {', '.join(variables_by_name) or 'none'}"
            )
    values_by_var = {variables_by_name[name]: const(value) for name, value in values.items()}
    description = _normal(substitute_variables(intrinsic.description, values_by_var))
    matcher = _Matcher(intrinsic, {one.var for one in inner_loops(loop)})
    fault: ScheduleError | None = None
    # A loop of one iteration stands for the loop of the instruction in its place; if that fails, for none.
    for program in dict.fromkeys((_normal(loop, keeps_single=True), _normal(loop))):
        for bindings in matcher.statement(description, program, _Bindings(values=values_by_var)):
            try:
                result = _replaced(state, loop, site.bounds, intrinsic, bindings, what)
            except ScheduleError as error:
                fault = fault or error
            else:
                if isinstance(result, State):
                    return result
                return tensorize(flattened(state, result), var, intrinsic, values)
    if fault is not None:
        raise fault
    raise illegal(f"{what}: {matcher.mismatch}", _REMEDY)


_REMEDY = "write the stage and the description of the instruction by one formula; order and split loops as it has them"


def _normal(stmt: Stmt, keeps_single: bool = False) -> Stmt:
    """Loops without labels and names of parts, simplified; with those of one iteration, or without."""
    one = Var("_one")
    body = simplify(PrimFunc((), _with_extents(_plain(stmt), const(1), one) if keeps_single else _plain(stmt))).body
    return _with_extents(body, one, const(1)) if keeps_single else body


def _with_extents(stmt: Stmt, old: Expr, new: Expr) -> Stmt:
    result = rebuild(stmt, operands(stmt), [_with_extents(body, old, new) for body in child_statements(stmt)])
    return replace(result, extent=new) if isinstance(result, For) and result.extent is old else result


def _plain(stmt: Stmt) -> Stmt:
    if isinstance(stmt, Block):
        return _plain(stmt.body)
    if isinstance(stmt, Bind) and not buffers_read(stmt.value):
        return _plain(substitute_variables(stmt.body, {stmt.var: stmt.value}))
    if isinstance(stmt, Bind):
        inner = _plain(stmt.body)
        # What is loaded does not change before the one statement that uses it.
        lasts = isinstance(inner, (Store, Update))
        return substitute_variables(inner, {stmt.var: stmt.value}) if lasts else Bind(stmt.var, stmt.value, inner)
    kind = {"kind": "serial"} if isinstance(stmt, For) else {}
    result = rebuild(stmt, operands(stmt), [_plain(body) for body in child_statements(stmt)])
    return replace(result, **kind) if kind else result


# What equals what


@dataclass(frozen=True)
class _Bindings:
    """What was found to stand for the parts of a description.

    Args:
        loops: for its loop variables, those of the program; 0 where this has no loop, for one iteration.
        values: for the variables of the instruction.
        own: for what it allocates, what the program does.
        uses: each parameter's indices, beside the buffer and the indices of the program.
        size: how many nodes were found equal.
    """

    loops: Mapping[Var, Expr] = field(default_factory=dict)
    values: Mapping[Var, Expr] = field(default_factory=dict)
    allocated: Mapping[Buffer, Buffer] = field(default_factory=dict)
    uses: tuple[tuple[Buffer, tuple[Expr, ...], Buffer, tuple[Expr, ...]], ...] = ()
    size: int = 0

    def more(self, **changes: Any) -> _Bindings:
        return replace(self, size=self.size + 1, **changes)

    @property
    def bound(self) -> dict[Var, Expr]:
        """All variables of the description that something stands for."""
        return {**self.loops, **self.values}


_COMMUTATIVE = ("add", "mul", "bitand", "bitor", "bitxor", "eq", "ne")


class _Matcher:
    """Unifies a description with a program: each way to do so, one after the other.

    Args:
        intrinsic: whose description it is.
        inner: the loop variables of the program.
    """

    def __init__(self, intrinsic: Intrinsic, inner: set[Var]) -> None:
        self.intrinsic = intrinsic
        self.inner = inner
        self.deepest = -1
        self.mismatch = "it has other statements"

    def fails(self, size: int, what: str) -> Iterator[_Bindings]:
        """Nothing; what was in the way of the longest try is what an error says."""
        if size > self.deepest:
            self.deepest, self.mismatch = size, what
        return iter(())

    def statement(self, a: Stmt, b: Stmt, bindings: _Bindings) -> Iterator[_Bindings]:
        """The ways in which ``b``, of the program, is ``a``, of the description."""
        if isinstance(a, For):
            return chain(self.loop(a, b, bindings) if isinstance(b, For) else (), self.single(a, b, bindings))
        if type(a) is not type(b):
            return self.fails(bindings.size, f"`{headline(b)}` stands where the instruction has `{headline(a)}`")
        if isinstance(a, (Store, Update)) and isinstance(b, (Store, Update)):
            return self.write(a, b, bindings)
        if isinstance(a, Seq) and isinstance(b, Seq) and len(a.stmts) == len(b.stmts):
            return self.several(a.stmts, b.stmts, bindings)
        if isinstance(a, If) and isinstance(b, If) and (a.otherwise is None) == (b.otherwise is None):
            return (done for one in self.expr(a.condition, b.condition, bindings) for done in self.children(a, b, one))
        if isinstance(a, Alloc) and isinstance(b, Alloc) and _alike(a.buffer, b.buffer):
            return self.children(a, b, bindings.more(allocated={**bindings.allocated, a.buffer: b.buffer}))
        return self.fails(bindings.size, f"`{headline(b)}` is not `{headline(a)}`")

    def children(self, a: Stmt, b: Stmt, bindings: _Bindings) -> Iterator[_Bindings]:
        return self.several(child_statements(a), child_statements(b), bindings)

    def several(self, a: Sequence[Stmt], b: Sequence[Stmt], bindings: _Bindings) -> Iterator[_Bindings]:
        if not a:
            yield bindings
            return
        for one in self.statement(a[0], b[0], bindings):
            yield from self.several(a[1:], b[1:], one)

    def loop(self, a: For, b: For, bindings: _Bindings) -> Iterator[_Bindings]:
        what = f"loop {b.var.name!r} has extent {print_expr(b.extent)}, that of the instruction {print_expr(a.extent)}"
        extents = list(self.expr(a.extent, b.extent, bindings))
        if not extents:
            yield from self.fails(bindings.size + 1, what)
        for one in extents:
            yield from self.statement(a.body, b.body, one.more(loops={**one.loops, a.var: b.var}))

    def single(self, a: For, b: Stmt, bindings: _Bindings) -> Iterator[_Bindings]:
        """Where the program has no loop: one iteration of one that a variable of the instruction is the extent of."""
        extent = a.extent
        if (
            isinstance(extent, Var)
            and extent in self.intrinsic.vars
            and bindings.values.get(extent, const(1)) is const(1)
        ):
            one = bindings.more(loops={**bindings.loops, a.var: const(0)}, values={**bindings.values, extent: const(1)})
            yield from self.statement(a.body, b, one)
        else:
            yield from self.fails(bindings.size, f"`{headline(b)}` stands where the instruction has `{headline(a)}`")

    def write(self, a: Store | Update, b: Store | Update, bindings: _Bindings) -> Iterator[_Bindings]:
        if isinstance(a, Update) and isinstance(b, Update) and a.op != b.op:
            yield from self.fails(bindings.size, f"it reduces with {b.op}, the instruction with {a.op}")
            return
        for one in self.element(a.buffer, a.indices, b.buffer, b.indices, bindings):
            yield from self.expr(a.value, b.value, one)

    def element(
        self, a: Buffer, a_at: tuple[Expr, ...], b: Buffer, b_at: tuple[Expr, ...], bindings: _Bindings
    ) -> Iterator[_Bindings]:
        if a in bindings.allocated or b in bindings.allocated.values():
            at = tuple([self.known(index, bindings) for index in a_at])
            if bindings.allocated.get(a) is b and at == b_at:
                yield bindings.more()
            return
        other = next((use[2] for use in bindings.uses if use[0] is a and use[2] is not b), None)
        if other is not None:
            what = f"operand {a.name!r} of the instruction would be {other.name!r} and {b.name!r}"
            yield from self.fails(bindings.size, what)
        elif a.dtype != b.dtype:
            what = f"operand {a.name!r} of the instruction is {a.dtype}, {b.name!r} is {b.dtype}"
            yield from self.fails(bindings.size, what)
        else:
            yield bindings.more(uses=(*bindings.uses, (a, a_at, b, b_at)))

    def known(self, expr: Expr, bindings: _Bindings) -> Expr:
        """An expression of the description in terms of the program."""
        return simplify_within(substitute(expr, bindings.bound), Bounds({}))

    def expr(self, a: Expr, b: Expr, bindings: _Bindings) -> Iterator[_Bindings]:
        """The ways in which ``b``, of the program, is ``a``, of the description."""
        if isinstance(a, Var) and a not in bindings.bound:
            if a in self.intrinsic.vars and b.dtype == INDEX and not set(variables(b)) & self.inner and not _loads(b):
                yield bindings.more(values={**bindings.values, a: b})
            else:
                yield from self.fails(bindings.size, f"`{print_expr(b)}` changes in the loops, `{a.name}` does not")
            return
        if not _loads(a) and all(var in bindings.bound for var in variables(a)) and self.known(a, bindings) is b:
            yield bindings.more()
            return
        if isinstance(a, Load) and isinstance(b, Load):
            yield from self.element(a.buffer, a.indices, b.buffer, b.indices, bindings)
            return
        if _head(a) != _head(b) or isinstance(a, (Var, Imm, Load)):
            what = f"`{print_expr(b)}` stands where the instruction has `{print_expr(a)}`"
            yield from self.fails(bindings.size, what)
            return
        orders = [operands(b)]
        if isinstance(b, Bin) and (b.op in _COMMUTATIVE or (b.op in ("min", "max") and not is_float(b.dtype))):
            orders.append((b.b, b.a))
        for order in orders:
            yield from self.operands(operands(a), order, bindings.more())

    def operands(self, a: Sequence[Expr], b: Sequence[Expr], bindings: _Bindings) -> Iterator[_Bindings]:
        if not a:
            yield bindings
            return
        for one in self.expr(a[0], b[0], bindings):
            yield from self.operands(a[1:], b[1:], one)


def _alike(a: Buffer, b: Buffer) -> bool:
    return (a.shape, a.dtype) == (b.shape, b.dtype)


def _loads(expr: Expr) -> bool:
    return bool(buffers_read(expr))


def _head(expr: Expr) -> object:
    """What an expression is, but for its operands."""
    op = expr.op if isinstance(expr, (Bin, Un)) else expr.name if isinstance(expr, Call) else None
    return type(expr), op, expr.dtype if isinstance(expr, Cast) else None, len(operands(expr))


# The execution


def _replaced(
    state: State, loop: For, bounds: Bounds, intrinsic: Intrinsic, bindings: _Bindings, what: str
) -> State | Buffer:
    """The function with an execution in the place of a loop; or the buffer that has to be of one dimension first."""
    for var in intrinsic.vars:
        if var not in bindings.values:
            raise illegal(f"{what}: nothing tells the value of {var.name!r}", f"give it: {var.name}=..")
    asked: list[Expr] = []
    for one in inner_loops(loop):
        if bounds.interval(one.extent)[0] < 1 and one.extent not in asked:
            asked.append(one.extent)
        bounds = bounds.declare(one.var, (0, max(0, bounds.interval(one.extent)[1] - 1)))
    views: list[View] = []
    for param in intrinsic.params:
        uses = [_Pair(_forms(use[1], bindings), use[2], use[3]) for use in bindings.uses if use[0] is param]
        if not uses:
            raise illegal(f"{what}: nothing stands for its operand {param.name!r}", _REMEDY)
        buffer = uses[0].buffer
        _check_operand(param, uses, bounds, what)
        inner = {var for var in bindings.loops.values() if isinstance(var, Var)}
        shown = _view(param, uses, inner, bounds, [[affine(index) for index in use.at] for use in uses])
        if shown is None:
            flat = [[affine(simplify_within(as_expr(flat_index(buffer, use.at)), bounds))] for use in uses]
            if len(buffer.shape) < 2 or _view(param, uses, inner, bounds, flat) is None:
                raise illegal(
                    f"{what}: the steps through {buffer.name!r} are not those through {param.name!r}", _REMEDY
                )
            role = next((p.role for p in state.func.params if p.buffer is buffer), "workspace")
            if role != "workspace":
                hint = "read it through cache_read, or in the shape that the instruction needs, by te.reshape"
                through = f"goes through several dimensions of {role} {buffer.name!r} at once"
                raise illegal(f"{what}: operand {param.name!r} {through}", hint)
            return buffer
        views.append(View(buffer, *shown))
        _check_start(param, views[-1], bounds, what)
    values = tuple(bindings.values[var] for var in intrinsic.vars)
    alone = Exec(intrinsic, tuple(views), values)
    _check_apart(alone, bounds, what)
    execution: Stmt = alone
    for extent in asked:
        # Of loops that have no iterations nothing is executed, wherever views would begin.
        execution = If(extent > 0, execution)
    result = state.put(loop, execution)
    for param, view in zip(intrinsic.params, views, strict=True):
        result = realigned(result, view.buffer.name, param.alignment)
    return result


def _forms(indices: Sequence[Expr], bindings: _Bindings) -> tuple[Affine, ...]:
    return tuple([affine(substitute(index, bindings.bound)) for index in indices])


@dataclass(frozen=True)
class _Pair:
    """One use of an operand: its indices in the description, in terms of the program, and those of the program."""

    forms: tuple[Affine, ...]
    buffer: Buffer
    at: tuple[Expr, ...]


def _check_operand(param: Buffer, uses: Sequence[_Pair], bounds: Bounds, what: str) -> None:
    buffer = uses[0].buffer
    scope = "global" if buffer.scope in ADDRESSED_SCOPES else buffer.scope
    if scope != param.scope:
        hint = "bring it there by cache_read, cache_write or set_scope"
        is_in = f"{buffer.name!r} is in {buffer.scope!r}, operand {param.name!r} in {param.scope!r}"
        raise illegal(f"{what}: {is_in}", hint)
    for use in uses:
        for form, extent in zip(use.forms, param.shape, strict=True):
            high = span(form, bounds)[1]
            if high >= extent:
                takes = f"operand {param.name!r} has at most {extent} elements along it, {high + 1} are used"
                raise illegal(f"{what}: {takes}", "split the loops, so that an execution does less")


def _check_apart(execution: Exec, bounds: Bounds, what: str) -> None:
    """Raise if an instruction, which may read and write in any order, writes to what another operand of it is."""
    uses = list(zip(execution.intrinsic.params, accesses(execution), strict=True))
    for (param, use), (other, beside) in permutations(uses, 2):
        if not use.writes or use.buffer is not beside.buffer:
            continue
        ahead = flat_index(beside.buffer, beside.start) + flat_index(use.buffer, use.start).scaled(-1)
        low, high = span(ahead, bounds)
        if -reach(beside, bounds) <= high and low <= reach(use, bounds):
            shared = f"operands {param.name!r}, which is written, and {other.name!r} may share elements of"
            raise illegal(f"{what}: {shared} {use.buffer.name!r}", "have the result in a buffer of its own")


def _check_start(param: Buffer, view: View, bounds: Bounds, what: str) -> None:
    """Raise unless a view starts at a multiple of what its parameter is aligned to."""
    start = affine(simplify_within(as_expr(flat_index(view.buffer, view.start)), bounds))
    for number in (start.constant, *start.terms.values()):
        if number * itemsize(param.dtype) % param.alignment:
            where = f"{view.buffer.name!r}, {print_expr(as_expr(start))} elements on"
            raise illegal(f"{what}: {where}, is not aligned to {param.alignment} bytes as {param.name!r} must be")


def _view(
    param: Buffer, uses: Sequence[_Pair], inner: set[Var], bounds: Bounds, at: Sequence[Sequence[Affine]]
) -> tuple[tuple[Expr, ...], tuple[Axis, ...]] | None:
    """Start and axes of the view that shows an operand: each use has ``index = start + step * index of the operand``.

    Args:
        param: the operand.
        uses: its uses.
        inner: the loop variables of the program.
        bounds: the bounds within all loops.
        at: for each use, the indices of the program, by dimension of the buffer.
    """
    starts: list[Expr] = []
    axes: list[Axis | None] = [None] * len(param.shape)
    for dim in range(len(at[0])):
        steps = _steps([(use.forms, forms[dim]) for use, forms in zip(uses, at, strict=True)], inner)
        if steps is None:
            return None
        for axis, step in enumerate(steps):
            if step and axes[axis] is not None:
                return None
            axes[axis] = Axis(dim, step) if step else axes[axis]
        offsets: set[Expr] = set()
        for use, forms in zip(uses, at, strict=True):
            rest = forms[dim]
            for form, step in zip(use.forms, steps, strict=True):
                rest += form.scaled(-step)
            offsets.add(simplify_within(as_expr(rest), bounds))
        if len(offsets) != 1 or set(variables(next(iter(offsets)))) & inner:
            return None
        starts += offsets
    shown = tuple(axis if axis is not None else Axis(0, 0) for axis in axes)
    return tuple(starts), shown


def _steps(pairs: Sequence[tuple[Sequence[Affine], Affine]], inner: set[Var]) -> list[int] | None:
    """By how much an index grows with each index of an operand; None where that is not the same everywhere."""
    steps: list[int | None] = [None] * len(pairs[0][0])
    equations: list[tuple[dict[int, int], int]] = []
    for forms, index in pairs:
        if any(not isinstance(term, Var) and set(variables(term)) & inner for term in index.terms):
            return None
        equations += [
            ({axis: form.terms[var] for axis, form in enumerate(forms) if var in form.terms}, index.terms.get(var, 0))
            for var in sorted(inner, key=lambda var: var.name)
        ]
        # Also between uses, as those of rows 1 and 2.
        ahead = {axis: form.constant - pairs[0][0][axis].constant for axis, form in enumerate(forms)}
        equations.append(({axis: far for axis, far in ahead.items() if far}, index.constant - pairs[0][1].constant))
    changed = True
    while changed:
        changed = False
        for factors, total in equations:
            unsolved = [axis for axis in factors if steps[axis] is None]
            rest = total - sum(factor * (steps[axis] or 0) for axis, factor in factors.items())
            if not unsolved and rest:
                return None
            if len(unsolved) == 1:
                step, over = divmod(rest, factors[unsolved[0]])
                if over or step < 0:
                    return None
                steps[unsolved[0]], changed = step, True
    return [step or 0 for step in steps]
