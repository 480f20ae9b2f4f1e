"""The schedule of what is computed along rows: softmax, normalisations, with what is done to their elements before and
after; and of some that is computed element by element. All stages of a row follow one another while it is in the cache
of a core, in vectors.

Sums of a row have as many parts as the default schedule gives them, and are folded as there: so a result has the same
bits whatever vectors a machine has. (Where squares are added in one operation, if the CPU has it, that makes another.)
"""

from __future__ import annotations

from dataclasses import replace

from uma.hookspecs import Declined, Fusion, ScheduledKernel
from uma.relay import Call, Constant, Expr, Function, TensorType, Var, const, post_order
from uma.tir import PrimFunc
from uma.tir import Var as Loop
from uma.tir.schedule import Schedule, VectorUnit

from .schedules import looks_up, widest
from .vector_units import VectorModel

__all__ = ["ELEMENTS", "PARTS", "ROW_OPS", "along_rows", "by_elements", "folded", "spread"]

ROW_OPS = ("nn.softmax", "nn.log_softmax", "nn.layer_norm", "nn.rms_norm")

ELEMENTS = ("sin", "cos", "exp", "sigmoid")
"""Of which compilers make no vectors by themselves, as what large angles take is a branch; or slower ones."""

_WITHOUT_AXES = frozenset({"a_max", "a_min", "alpha", "approximate", "dtype"})
"""Attributes of elementwise ops that mean the same whatever dimensions a tensor is seen with."""

PARTS = 32
"""Of a sum, in the default schedule."""


def along_rows(fusion: Fusion, unit: VectorModel) -> ScheduledKernel | Declined | None:
    """The loops of a fusion whose anchor works along the last axis; or why it has none here.

    Args:
        fusion: whose anchor it is.
        unit: of the CPU.
    """
    call, result = fusion.anchor, fusion.function.body.type
    assert call is not None
    if (
        not isinstance(result, TensorType)
        or call.dtype != "float32"
        or any(c.shape != call.shape for c in fusion.calls)
    ):
        return None
    shape = call.shape
    if shape[-1] < 2 * PARTS:
        return Declined(f"no vectors along rows of {shape[-1]} elements: they have less than {2 * PARTS}")
    kernel = fusion.plain()
    if any(looks_up(kernel.func, label) for label in kernel.labels.values()):
        # Look-ups are done one by one: once for each element, not once for each stage that reads it.
        data = [tensor for arg in call.args if arg in fusion.prologue for tensor in fusion.tensors.by_expr[arg]]
        kernel = fusion.plain(None, data)
    stages = list(kernel.labels.items())
    rank = len(shape) - 1
    if any(stage.shape not in (shape, shape[:-1]) for stage, _ in stages) or not rank:
        return Declined("no vectors along rows: it works along other axes than the last")
    s = Schedule(kernel.func, VectorUnit(unit.bytes, unit.registers))
    at = s.merge(*(s.loops(label)[0] for _, label in stages), levels=rank)[-1]
    s.store_at([kernel.buffers[stage] for stage, _ in stages[:-1]], at)
    for stage, label in stages:
        loops = s.loops(label)
        if len(loops) == rank or looks_up(kernel.func, label):
            continue
        lanes = _lanes(kernel.func, label, unit)
        if stage.shape == shape:
            spread(s, label, shape[-1], lanes)
        else:
            folded(s, loops[-1], lanes)
    return ScheduledKernel(replace(kernel, func=s.func))


def by_elements(fusion: Fusion, unit: VectorModel) -> ScheduledKernel | None:
    """The loops of a fusion that is elementwise throughout; None where it is not one stage of float32, or a row of it
    does not fill a vector.

    Args:
        fusion: that.
        unit: of the CPU.
    """
    result = fusion.function.body.type
    if not isinstance(result, TensorType) or result.dtype != "float32" or not result.shape:
        return None
    row = _as_one_row(fusion, result)
    kernel, extent = (fusion.plain(), result.shape[-1]) if row is None else (row.plain(), result.size)
    (label, *others) = kernel.labels.values()
    if others or extent < unit.lanes or looks_up(kernel.func, label):
        return None
    s = Schedule(kernel.func, VectorUnit(unit.bytes, unit.registers))
    spread(s, label, extent, _lanes(kernel.func, label, unit))
    return ScheduledKernel(replace(kernel, func=s.func))


def _lanes(func: PrimFunc, label: str, unit: VectorModel) -> int:
    """Return how many of the widest numbers that a block reads or writes fit a vector, at most its floats."""
    return min(unit.lanes, unit.bytes // widest(func, label))


def _as_one_row(fusion: Fusion, result: TensorType) -> Fusion | None:
    """The same of tensors that are seen as one row each; None where they are not all of one shape, or one is known."""
    function, row = fusion.function, (result.size,)
    params: dict[Expr, Var] = {param: Var(param.name, TensorType(row, param.dtype)) for param in function.params}
    scalars: dict[Expr, Expr] = {**params}
    for expr in post_order(function.body):
        if isinstance(expr, Constant):
            scalars[expr] = const(expr.data.reshape(()))
        elif expr.tensor.shape != result.shape:
            return None
        elif isinstance(expr, Var):
            continue
        elif not isinstance(expr, Call) or not _WITHOUT_AXES.issuperset(dict(expr.attrs.items)):
            return None
        else:
            scalars[expr] = Call(expr.op, [scalars[arg] for arg in expr.args], expr.attrs)
    if fusion.known or fusion.by_rows or scalars[function.body].tensor.shape != row:
        return None
    return Fusion(Function(list(params.values()), scalars[function.body]))


def spread(s: Schedule, label: str, extent: int, lanes: int) -> None:
    """What is computed element by element, in vectors: what is left in the end in ever smaller ones, as functions of
    single numbers take as much code and time as those of vectors."""
    while extent > 1:
        outer, lane = s.split(s.loops(label)[-1], lanes, tail="peel")
        extent %= lanes
        if extent & (extent - 1):
            s.peel(outer)
        s.vectorize(lane)
        if not extent & (extent - 1):
            return
        lanes = 1 << (extent.bit_length() - 1)


def folded(s: Schedule, loop: Loop, lanes: int) -> None:
    """A sum over a row in `PARTS` parts, which are folded pairwise."""
    _, part = s.split(loop, PARTS, tail="peel")
    parts = s.rfactor(part, pairwise=True).name
    for several in (part, f"{parts}_init"):
        vector, lane = s.split(several, lanes, tail="peel")
        s.unroll(vector)
        s.vectorize(lane)
    half = PARTS // 2
    for level in range(PARTS.bit_length() - 2):
        fold = f"{parts}_fold_{level}" if level else f"{parts}_fold"
        if half > lanes:
            vector, lane = s.split(fold, lanes)
            s.unroll(vector)
            s.vectorize(lane)
        else:
            s.vectorize(fold)
        half //= 2
