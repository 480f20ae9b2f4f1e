"""Random tensor expressions with their inputs, and what they mean, element by element."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tests._support.tir_strategies import arrays, immediates

from uma.tir import te
from uma.tir.form.dtype import is_float
from uma.tir.form.functions import FUNCTIONS
from uma.tir.form.nodes import Bin, Cast, Expr, Imm, Load, Select, Var, const, maximum, minimum
from uma.tir.form.scalar_semantics import binary, cast, unary
from uma.tir.form.visit import operands

Draw = Any
DTYPES = ("int8", "uint8", "int16", "int32", "int64", "uint32", "float32", "float64")


@dataclass
class Computation:
    """What `te.prim_func` takes, and the contents of its placeholders. Float sums are exact, in whatever order."""

    inputs: list[te.Tensor] = field(default_factory=list)
    constants: list[te.Tensor] = field(default_factory=list)
    outputs: list[te.Tensor] = field(default_factory=list)
    contents: dict[te.Tensor, np.ndarray] = field(default_factory=dict)

    def kernel(self) -> te.Kernel:
        return te.prim_func(self.inputs, self.outputs, constants=self.constants)

    def arguments(self, kernel: te.Kernel) -> dict[str, np.ndarray]:
        """Arrays for the parameters of the kernel, by name."""
        given = [*(self.contents[tensor] for tensor in self.inputs), *kernel.bind(self.contents)]
        buffers = (*kernel.func.buffers("input"), *kernel.func.buffers("constant"))
        return {buffer.name: array.reshape(buffer.shape) for buffer, array in zip(buffers, given, strict=True)}


def meaning(tensor: te.Tensor, contents: Mapping[te.Tensor, np.ndarray]) -> np.ndarray:
    """What a tensor holds, straight from its definition; sums are formed in order of the axes."""
    known = dict(contents)

    def of(tensor: te.Tensor) -> np.ndarray:
        if tensor not in known:
            known[tensor] = define(tensor)
        return known[tensor]

    def define(tensor: te.Tensor) -> np.ndarray:
        definition = tensor.definition
        if isinstance(definition, te.Constant):
            return definition.array
        result = np.zeros(tensor.shape, tensor.dtype)
        if isinstance(definition, te.Assemble):
            for piece in definition.pieces:
                for at in steps(piece.axes):
                    place = tuple(o + i for o, i in zip(piece.offsets, at.values(), strict=True))
                    result[place] = value(piece.value, at)
        elif isinstance(definition, te.Compute):
            for at in steps(definition.axes):
                result[tuple(at.values())] = value(definition.value, at)
        else:
            assert isinstance(definition, te.Reduce)
            reduction = definition.reduction
            fold = binary(reduction.op, tensor.dtype)
            for at in steps(definition.axes):
                total: Any = 0.0 if is_float(tensor.dtype) else 0
                if reduction.op != "add":
                    sign = -1 if reduction.op == "max" else 1
                    info = None if is_float(tensor.dtype) else np.iinfo(tensor.dtype)
                    total = sign * math.inf if info is None else int(info.min if sign < 0 else info.max)
                for along in steps(reduction.axes):
                    here = {**at, **along}
                    if reduction.where is None or value(reduction.where, here):
                        total = fold(total, value(reduction.value, here))
                result[tuple(at.values())] = total
        return result

    def value(expr: Expr, at: Mapping[Var, int]) -> Any:
        if isinstance(expr, Var):
            return at[expr]
        if isinstance(expr, Imm):
            return expr.value
        if isinstance(expr, Select):
            return value(expr.a if value(expr.condition, at) else expr.b, at)
        if isinstance(expr, Bin) and expr.op in ("and", "or"):
            left = value(expr.a, at)
            return value(expr.b, at) if left == (expr.op == "and") else left
        parts = [value(part, at) for part in operands(expr)]
        if isinstance(expr, Load):
            assert isinstance(expr.buffer, te.Tensor)
            assert all(0 <= i < extent for i, extent in zip(parts, expr.buffer.shape, strict=True))
            return of(expr.buffer)[tuple(parts)].item()
        if isinstance(expr, Bin):
            return binary(expr.op, expr.a.dtype)(*parts)
        if isinstance(expr, Cast):
            return cast(expr.a.dtype, expr.dtype)(*parts)
        if hasattr(expr, "args"):
            return FUNCTIONS[expr.name].value(expr.args[0].dtype)(*parts)
        return unary(expr.op, expr.dtype)(*parts)

    return of(tensor)


def steps(axes: tuple[te.IterVar, ...]) -> list[dict[Var, int]]:
    """Every value of the axes, the last one fastest."""
    return [
        dict(zip(axes, values, strict=True)) for values in itertools.product(*(range(axis.extent) for axis in axes))
    ]


@st.composite
def computations(draw: Draw, max_stages: int = 5) -> Computation:
    """A computation of a few stages that read one another, and memory, in many ways."""
    made = Computation()
    builder = _Builder(draw, made)
    tensors = [builder.placeholder(draw(_shapes()), draw(st.sampled_from(DTYPES)))]
    for _ in range(draw(st.integers(1, max_stages))):
        kind = draw(st.sampled_from(["elementwise", "elementwise", "row", "product", "window", "assemble"]))
        tensor = getattr(builder, kind)(tensors)
        if tensor is not None:
            tensors.append(tensor)
    computed = [tensor for tensor in tensors if not isinstance(tensor.definition, (te.Placeholder, te.Constant))]
    if not computed:
        computed = [builder.elementwise(tensors)]
    others = st.lists(st.sampled_from(computed), max_size=2)
    made.outputs = list(dict.fromkeys([computed[-1], *draw(others)]))
    return made


def _shapes() -> st.SearchStrategy[tuple[int, ...]]:
    small = st.lists(st.integers(1, 6), max_size=3)
    # Long enough for several partial sums, and for blocks with a tail.
    long = st.builds(lambda rows, row: [*rows, row], st.lists(st.integers(1, 2), max_size=1), st.integers(60, 150))
    return st.one_of(small, small, small, long).map(tuple)


class _Builder:
    """Makes tensors from those there are. Float elements that are added are whole numbers from -8 to 8."""

    MAX_STEPS = 6000

    def __init__(self, draw: Draw, made: Computation) -> None:
        self.draw = draw
        self.made = made

    def placeholder(self, shape: tuple[int, ...], dtype: str) -> te.Tensor:
        kind = self.draw(st.sampled_from(["input", "input", "weights", "table"]))
        if is_float(dtype):
            values = st.lists(st.integers(-8, 8), min_size=math.prod(shape), max_size=math.prod(shape))
            data = np.array(self.draw(values), dtype).reshape(shape)
        else:
            data = self.draw(arrays(te.placeholder(shape, dtype, "t")))
        if kind == "table":
            return te.constant(data, "table")
        tensor = te.placeholder(shape, dtype, kind)
        self.made.contents[tensor] = data
        (self.made.inputs if kind == "input" else self.made.constants).append(tensor)
        return tensor

    def leaf(self, load: Expr, dtype: str) -> Expr:
        value = load.astype(dtype)
        return minimum(maximum(value, -8), 8) if is_float(dtype) else value

    def combine(self, values: list[Expr], dtype: str) -> Expr:
        """An expression of ``values``."""
        total = values[0]
        ops = ["add", "sub", "mul", "min", "max"]
        for value in values[1:]:
            total = Bin(self.draw(st.sampled_from(ops)), total, value)
        for _ in range(self.draw(st.integers(0, 2))):
            op = self.draw(st.sampled_from([*ops, "select", "twice", "cast"]))
            constant = Imm(self.draw(st.integers(0, 5)), dtype)
            if op == "select":
                total = Select(total > constant, total, values[-1] + constant)
            elif op == "twice":
                total = (total - constant) * total
            elif op == "cast":
                through = self.draw(st.sampled_from(["int32", "int64", "float64"]))
                total = total.astype(through).astype(dtype)
            else:
                total = Bin(op, total, constant)
        return total

    # Elements of other tensors

    def index(self, extent: int, axes: list[te.IterVar]) -> tuple[Expr, list[Expr]]:
        """An index into a dimension, and what must hold for it to be valid."""
        fitting = [axis for axis in axes if axis.extent <= extent]
        kinds = ["constant", "guarded", "modulo"] + ["axis", "shifted", "reversed"] * (3 if fitting else 0)
        kind = self.draw(st.sampled_from(kinds if axes else ["constant"]))
        if kind == "constant":
            return const(self.draw(st.integers(0, extent - 1))), []
        if kind == "modulo":
            return (self.draw(st.sampled_from(axes)) * self.draw(st.integers(1, 3))) % extent, []
        if kind == "guarded":
            index = self.draw(st.sampled_from(axes)) * self.draw(st.integers(1, 2)) + self.draw(st.sampled_from(axes))
            index = index - self.draw(st.integers(0, 2))
            return index, [index >= 0, index < extent]
        axis = self.draw(st.sampled_from(fitting))
        if kind == "shifted":
            return axis + self.draw(st.integers(0, extent - axis.extent)), []
        return (axis if kind == "axis" else extent - 1 - axis), []

    def read(self, tensor: te.Tensor, axes: list[te.IterVar]) -> tuple[Expr, list[Expr]]:
        """An element of ``tensor``, most often the one at the leading or trailing axes."""
        rank = len(tensor.shape)
        starts = [0, len(axes) - rank] if rank <= len(axes) else []
        starts = [i for i in starts if tuple(axis.extent for axis in axes[i : i + rank]) == tensor.shape]
        if starts and self.draw(st.integers(0, 3)):
            start = self.draw(st.sampled_from(starts))
            return tensor[tuple(axes[start : start + rank])], []
        indices, conditions = [], []
        for extent in tensor.shape:
            index, needs = self.index(extent, axes)
            indices.append(index)
            conditions += needs
        return tensor[tuple(indices)], conditions

    def guarded(self, tensor: te.Tensor, axes: list[te.IterVar], dtype: str) -> Expr:
        load, conditions = self.read(tensor, axes)
        value = self.leaf(load, dtype)
        for condition in reversed(conditions):
            value = Select(condition, value, Imm(0, dtype))
        return value

    def sources(self, tensors: list[te.Tensor]) -> list[te.Tensor]:
        recent = st.sampled_from(tensors[-3:])
        chosen = self.draw(st.lists(recent, min_size=1, max_size=3))
        if self.draw(st.integers(0, 3)) == 0:
            shape = chosen[0].shape[self.draw(st.integers(0, len(chosen[0].shape))) :]
            chosen.append(self.placeholder(shape, self.draw(st.sampled_from(DTYPES))))
        return chosen

    # Stages

    def elementwise(self, tensors: list[te.Tensor]) -> te.Tensor:
        dtype = self.draw(st.sampled_from(DTYPES))
        sources = self.sources(tensors)
        shape = sources[0].shape
        if self.draw(st.integers(0, 3)) == 0:
            shape = tuple(self.draw(st.permutations(shape)))

        def element(*axes: te.IterVar) -> Expr:
            return self.combine([self.guarded(source, list(axes), dtype) for source in sources], dtype)

        return te.compute(shape, element, "elementwise")

    def reduction(
        self,
        shape: tuple[int, ...],
        extents: tuple[int, ...],
        values: Callable[..., tuple[list[Expr], list[Expr]]],
        dtype: str,
    ) -> te.Tensor | None:
        if math.prod(shape) * math.prod(extents) > self.MAX_STEPS:
            return None
        loops = [te.reduce_axis(extent, f"k{position}") for position, extent in enumerate(extents)]
        fold = self.draw(st.sampled_from([te.sum, te.sum, te.max, te.min]))

        def element(*axes: te.IterVar) -> te.Reduction:
            parts, conditions = values(list(axes), loops)
            where = None
            for condition in conditions:
                where = condition if where is None else where & condition
            product = parts[0]
            for part in parts[1:]:
                product = product * part
            return fold(product, loops, where=where)

        return te.compute(shape, element, "reduction")

    def row(self, tensors: list[te.Tensor]) -> te.Tensor | None:
        """Over the last axes of one tensor."""
        source = self.draw(st.sampled_from(tensors[-3:]))
        split = self.draw(st.integers(0, len(source.shape)))
        dtype = self.draw(st.sampled_from(DTYPES))
        return self.reduction(
            source.shape[:split],
            source.shape[split:],
            lambda axes, loops: ([self.leaf(source[(*axes, *loops)], dtype)], []),
            dtype,
        )

    def product(self, tensors: list[te.Tensor]) -> te.Tensor | None:
        """A matrix product, with weights in either order."""
        source = self.draw(st.sampled_from(tensors[-3:]))
        if not source.shape:
            return None
        units, depth = self.draw(st.integers(1, 20)), source.shape[-1]
        dtype = self.draw(st.sampled_from(DTYPES))
        transposed = self.draw(st.booleans())
        weights = self.placeholder((units, depth) if transposed else (depth, units), self.draw(st.sampled_from(DTYPES)))

        def values(axes: list[te.IterVar], loops: list[te.IterVar]) -> tuple[list[Expr], list[Expr]]:
            (k,) = loops
            weight = weights[axes[-1], k] if transposed else weights[k, axes[-1]]
            return [self.leaf(source[(*axes[:-1], k)], dtype), self.leaf(weight, dtype)], []

        return self.reduction((*source.shape[:-1], units), (depth,), values, dtype)

    def window(self, tensors: list[te.Tensor]) -> te.Tensor | None:
        """A window that moves over the first axis or two of one tensor, out of its bounds."""
        source = self.draw(st.sampled_from(tensors[-3:]))
        if not source.shape:
            return None
        moving = self.draw(st.integers(1, min(2, len(source.shape))))
        stride, dilation, pad = (self.draw(st.integers(low, 2)) for low in (1, 1, 0))
        sizes = tuple(self.draw(st.integers(1, 3)) for _ in range(moving))
        dtype = self.draw(st.sampled_from(DTYPES))
        extents = [
            max(1, (extent + 2 * pad - dilation * (size - 1) - 1) // stride + 1)
            for extent, size in zip(source.shape, sizes, strict=False)
        ]

        def values(axes: list[te.IterVar], loops: list[te.IterVar]) -> tuple[list[Expr], list[Expr]]:
            moved = [axis * stride + k * dilation - pad for axis, k in zip(axes, loops, strict=False)]
            conditions = [c for i, extent in zip(moved, source.shape, strict=False) for c in (i >= 0, i < extent)]
            return [self.leaf(source[(*moved, *axes[moving:])], dtype)], conditions

        return self.reduction((*extents, *source.shape[moving:]), sizes, values, dtype)

    def assemble(self, tensors: list[te.Tensor]) -> te.Tensor | None:
        """A padded tensor, or two behind one another."""
        first = self.draw(st.sampled_from(tensors[-3:]))
        if not first.shape:
            return None
        axis = self.draw(st.integers(0, len(first.shape) - 1))
        if self.draw(st.booleans()):
            before, after = self.draw(st.integers(0, 2)), self.draw(st.integers(0, 2))
            shape = tuple(extent + (before + after) * (d == axis) for d, extent in enumerate(first.shape))
            offsets = tuple(before * (d == axis) for d in range(len(shape)))
            fill = self.draw(immediates(first.dtype)) if not is_float(first.dtype) else Imm(3, first.dtype)
            pieces = [((0,) * len(shape), shape, lambda *i: fill), (offsets, first.shape, lambda *i: first[i])]
            return te.assemble(shape, first.dtype, pieces, "pad")
        second = self.draw(st.sampled_from(tensors[-3:]))
        if second.dtype != first.dtype or len(second.shape) != len(first.shape):
            second = first
        if any(a != b for d, (a, b) in enumerate(zip(first.shape, second.shape, strict=True)) if d != axis):
            second = first
        shape = tuple(a + b * (d == axis) for d, (a, b) in enumerate(zip(first.shape, second.shape, strict=True)))
        offsets = tuple(first.shape[axis] * (d == axis) for d in range(len(shape)))
        pieces = [
            ((0,) * len(shape), first.shape, lambda *i: first[i]),
            (offsets, second.shape, lambda *i: second[i]),
        ]
        return te.assemble(shape, first.dtype, pieces, "concatenate")
