"""A nest to be cut, from the plain loops of a function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..form.dtype import itemsize
from ..form.exprs import require
from ..form.nodes import Block, Buffer, Expr, Load, PrimFunc, Select, Store, Var
from ..form.visit import statements, substitute, variables
from ..proofs.affine import Affine, affine
from ..proofs.intervals import Bounds
from ..rewrites.simplify import simplify_within
from ..schedule.dependences import Use, collect
from ..schedule.regions import as_expr
from ..schedule.sites import block_site, chain
from .nest import Dimension, Instruction, LoopAxis, Nest, PaddingFill, StagedBuffer

__all__ = ["nest_of"]


def nest_of(
    func: PrimFunc,
    label: str,
    staged: Mapping[str, str],
    instructions: Sequence[Instruction] = (),
    *,
    fills: Mapping[str, PaddingFill] | None = None,
) -> Nest:
    """The loops of one block of a plain function, and what it and the blocks around it use, for `choose_tiles`.

    Axes are the loops of the block. A block after it that uses its results element by element goes with them, by the
    same axes; one before it that copies part of an input into a buffer of the function's own tells where that begins,
    and so how far it is padding. An index that is not a sum of multiples of the axes counts as if it had all values.

    Args:
        func: the function, before it is scheduled.
        label: the block whose loops are cut.
        staged: for names of buffers, the names of the memories that they are brought to.
        instructions: what the innermost loops become.
        fills: how the padding of a buffer is filled, by its name.

    Raises:
        InternalError: there is no such block or buffer, or a buffer that is staged is not used by those blocks.
    """
    facts = _NestFacts(func, label)
    buffers = tuple([facts.staged(name, memory, (fills or {}).get(name)) for name, memory in staged.items()])
    return Nest(facts.axes, buffers, tuple(instructions))


class _NestFacts:
    def __init__(self, func: PrimFunc, label: str) -> None:
        self.func = func
        site = block_site(func, label)
        self.block = site.stmt
        uses = collect(site.stmt, site.bounds)
        writes = [use for use in uses if use.writes]
        require(bool(writes), f"block {label!r} computes nothing")
        # Of several statements that whose loops are the nest is the one in most of them.
        innermost = chain(site.stmt)[-1]
        self.main = next((use for use in writes if use.stmt is innermost), max(writes, key=lambda use: len(use.loops)))
        self.known = self.main.known
        telling = {var for form in self.main.forms for term in form.terms for var in variables(term)}
        axes: dict[Var, LoopAxis] = {}
        for use in (self.main, *uses):
            for loop in use.loops:
                if loop.var not in axes:
                    extent = use.known.interval(loop.extent)[1]
                    whole = loop not in self.main.loops
                    axes[loop.var] = LoopAxis(loop.var.name, extent, loop.var not in telling, whole)
                    self.known = self.known.declare(loop.var, (0, extent - 1))
        self.vars, self.axes = axes, tuple(axes.values())
        self.forms: dict[Buffer, list[tuple[Affine, ...]]] = {}
        for use in uses:
            self.forms.setdefault(use.buffer, []).append(use.forms)
        self.produced = {use.buffer: use.forms for use in writes}
        self._follow({use.buffer: use.forms for use in writes})

    def _follow(self, produced: Mapping[Buffer, tuple[Affine, ...]]) -> None:
        """The blocks that use what was made, element by element, by the axes that made it."""
        todo, seen = dict(produced), {self.block}
        while todo:
            buffer, forms = todo.popitem()
            for block in self._blocks():
                if block in seen:
                    continue
                values = next((v for use in collect(block, Bounds({}), buffer) if (v := _solved(use, forms))), None)
                if values is None:
                    continue
                seen.add(block)
                for use in collect(block, Bounds({})):
                    axis_forms = tuple([self._in_axes(form, values) for form in use.forms])
                    self.forms.setdefault(use.buffer, []).append(axis_forms)
                    if use.writes:
                        self.produced[use.buffer] = todo[use.buffer] = axis_forms

    def _blocks(self) -> Iterator[Block]:
        return (stmt for stmt in statements(self.func.body) if isinstance(stmt, Block))

    def _in_axes(self, form: Affine, values: Mapping[Var, Expr]) -> Affine:
        return affine(simplify_within(substitute(as_expr(form), values), self.known))

    def staged(self, name: str, memory: str, fill: PaddingFill | None) -> StagedBuffer:
        buffer = next((one for one in self.forms if one.name == name), None)
        there = sorted({one.name for one in self.forms})
        require(buffer is not None, f"buffer {name!r} is not used by the blocks of the nest: they use {there}")
        assert buffer is not None
        dims = [self._dimension(buffer, dim) for dim in range(len(buffer.shape))]
        role: str = "in"
        if buffer in self.func.buffers("output"):
            role = "out"
        elif buffer in self.produced:
            role = "made"
        else:
            dims = self._from_host(buffer, dims)
        return StagedBuffer(name, memory, tuple(dims), itemsize(buffer.dtype), role, fill)  # type: ignore[arg-type]  # one of the roles

    def _dimension(self, buffer: Buffer, dim: int) -> Dimension:
        extent = buffer.shape[dim]
        forms = [self._telling(forms[dim]) for forms in self.forms[buffer]]
        terms = forms[0].terms
        plain = all(isinstance(term, Var) and term in self.vars and factor > 0 for term, factor in terms.items())
        if not plain or any(form.terms != terms for form in forms):
            return Dimension(extent, (), 0, extent - 1)
        steps = tuple([(var.name, step) for var, step in terms.items() if isinstance(var, Var)])
        low, high = min(form.constant for form in forms), max(form.constant for form in forms)
        return Dimension(extent, steps, low, high - low)

    def _telling(self, form: Affine) -> Affine:
        """Without the axes of one iteration."""
        terms = {term: step for term, step in form.terms.items() if self.known.interval(term) != (0, 0)}
        return Affine(terms, form.constant)

    def _from_host(self, buffer: Buffer, dims: list[Dimension]) -> list[Dimension]:
        """The dimensions in what a block before copies from; as they are where none does."""
        for block in self._blocks():
            store = chain(block)[-1]
            if block is self.block or not isinstance(store, Store) or store.buffer is not buffer:
                continue
            value = store.value
            loads = [value.a, value.b] if isinstance(value, Select) else [value]
            load = next((one for one in loads if isinstance(one, Load)), None)
            if load is None:
                continue
            offsets = _index_offsets(store.indices, load.indices)
            if offsets is not None and len(load.indices) == len(dims):
                pairs = zip(dims, load.buffer.shape, offsets, strict=True)
                return [Dimension(extent, dim.steps, dim.offset + by, dim.span) for dim, extent, by in pairs]
            if offsets is None:
                return self._flattened(load, store, dims)
        return dims

    def _flattened(self, load: Load, store: Store, dims: list[Dimension]) -> list[Dimension]:
        """What is copied from a buffer of which one dimension is several of the copy: a row of pixels by channels."""
        place = {var: dim for dim, var in enumerate(store.indices) if isinstance(var, Var)}
        dimensions = []
        for extent, index in zip(load.buffer.shape, load.indices, strict=True):
            form = affine(index)
            steps: dict[str, int] = {}
            offset, span = form.constant, 0
            for term, factor in form.terms.items():
                if not isinstance(term, Var) or term not in place or factor < 0:
                    return dims
                dim = dims[place[term]]
                offset, span = offset + factor * dim.offset, span + factor * dim.span
                for name, step in dim.steps:
                    steps[name] = steps.get(name, 0) + factor * step
            dimensions.append(Dimension(extent, tuple(steps.items()), offset, span))
        return dimensions


def _solved(use: Use, forms: Sequence[Affine]) -> dict[Var, Expr] | None:
    """The values of the variables by which a buffer is read, where they are its indices; None where they are not."""
    if use.writes or len(use.forms) != len(forms):
        return None
    values: dict[Var, Expr] = {}
    for index, axis_form in zip(use.forms, forms, strict=True):
        if index.constant or len(index.terms) != 1:
            if index.terms or axis_form.terms:
                return None
            continue
        ((var, factor),) = index.terms.items()
        if not isinstance(var, Var) or factor != 1:
            return None
        values[var] = as_expr(axis_form)
    return values


def _index_offsets(written: Sequence[Expr], read: Sequence[Expr]) -> list[int] | None:
    """By how much each index that is read differs from the one that is written; None where they differ otherwise."""
    if len(written) != len(read):
        return None
    offsets = []
    for index, other in zip(written, read, strict=True):
        difference = affine(other) + affine(index).scaled(-1)
        if difference.terms:
            return None
        offsets.append(difference.constant)
    return offsets
