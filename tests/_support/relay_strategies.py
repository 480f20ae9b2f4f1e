"""Random modules of the graph form, and inputs for them.

Floats are float64 where graphs are to be compared by their values: then what rounding does is far below what a fault
does, however a sum is ordered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from uma.errors import ModelError
from uma.relay.evaluate import evaluate, evaluate_all
from uma.relay.expr import Expr, Function, Tuple, TupleGetItem, Var, call, const
from uma.relay.module import IRModule, Signature, Spans, TensorInfo
from uma.relay.op import FixedPoint, FloatScale
from uma.relay.text import print_module
from uma.relay.types import TensorType, TupleType
from uma.relay.visit import post_order
from uma.tir.form.dtype import bounds, is_float, is_integer

T = TypeVar("T")

# Hypothesis shows a failing example by this protocol of IPython's; else it would show all that the graph consists of.
IRModule._repr_pretty_ = lambda self, printer, cycle: printer.text(print_module(self)[0])  # type: ignore[attr-defined]  # what IPython looks for

MAX_ELEMENTS = 300


class Choice:
    """What hypothesis draws, in the words of this file."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def of(self, *options: T) -> T:
        return self._draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def numbers(self, count: int, low: int, high: int) -> tuple[int, ...]:
        return tuple(self.number(low, high) for _ in range(count))

    def order(self, count: int) -> tuple[int, ...]:
        return tuple(self._draw(st.permutations(range(count))))

    def array(self, shape: Sequence[int], dtype: str) -> np.ndarray:
        return random_array(shape, dtype, self._draw(st.integers(0, 2**16)))


def random_array(shape: Sequence[int], dtype: str, seed: int) -> np.ndarray:
    """Floats within -2 .. 2, integers of the whole range of the dtype."""
    rng = np.random.default_rng(seed)
    if is_float(dtype):
        return np.asarray(rng.uniform(-2, 2, shape)).astype(dtype)
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape)).astype(dtype)
    low, high = bounds(dtype)
    return np.asarray(rng.integers(low, high, shape, dtype, endpoint=True))


def random_inputs(main: Function, seed: int) -> dict[str, np.ndarray]:
    """An array for each parameter."""
    return {p.name: random_array(p.shape, p.dtype, seed + i) for i, p in enumerate(main.params)}


Step = Callable[["Graph", Expr], "Expr | None"]


class Graph:
    """A graph in the making: values so far, and what is done to one of them."""

    def __init__(self, choice: Choice, spans: bool) -> None:
        self.choice = choice
        self.params: list[Var] = []
        self.values: list[Expr] = []
        self.spans = Spans()
        self.named = spans

    def param(self, type_: TensorType) -> Var:
        self.params.append(Var(f"x{len(self.params)}", type_))
        self.values.append(self.params[-1])
        return self.params[-1]

    def const(self, shape: Sequence[int], dtype: str) -> Expr:
        return const(self.choice.array(shape, dtype))

    def recent(self) -> Expr:
        return self.values[-1 - self.choice.number(0, min(3, len(self.values) - 1))]

    def partner(self, x: Expr) -> Expr:
        """Something that broadcasts with ``x``, of its dtype: a value made before, or a constant."""
        known = [v for v in self.values if v.dtype == x.dtype and _fits(v.shape, x.shape)]
        kind = self.choice.of("value", "value", "channels", "scalar", "ones", "whole")
        if kind == "value" and known:
            return self.choice.of(*known[-6:])
        rank = len(x.shape)
        shape = {"channels": x.shape[-1:], "scalar": (), "ones": (1,) * rank}.get(kind, x.shape)
        return self.const(shape, x.dtype)

    def add(self, x: Expr, step: Step) -> None:
        made = step(self, x)
        if made is None or math.prod(made.shape) > MAX_ELEMENTS or made in self.values:
            return
        if self.named:
            self.spans.add(made, [f"layer{len(self.values)}"])
        self.values.append(made)

    def function(self, tuple_result: bool) -> Function:
        used: set[Expr] = set()
        results = [self.values[-1]]
        if tuple_result:
            results += [self.recent() for _ in range(self.choice.number(0, 2))]
        stack: list[Expr] = list(results)
        while stack:
            expr = stack.pop()
            if expr not in used:
                used.add(expr)
                stack += getattr(expr, "args", ()) or ([expr.tuple] if isinstance(expr, TupleGetItem) else [])
        body = Tuple(results) if tuple_result else results[0]
        return Function([p for p in self.params if p in used] or self.params[:1], body)


def _fits(shape: Sequence[int], other: Sequence[int]) -> bool:
    pairs = zip(reversed(shape), reversed(other), strict=False)  # of the dimensions that both have
    return len(shape) <= len(other) and all(a in (b, 1) for a, b in pairs)


# --- steps -----------------------------------------------------------------------------------------------------------


def unary(g: Graph, x: Expr) -> Expr | None:
    if is_float(x.dtype):
        return call(g.choice.of("nn.relu", "sigmoid", "tanh", "nn.relu"), x)
    return call("nn.relu", x)


def clip(g: Graph, x: Expr) -> Expr | None:
    low, high = g.choice.of((0, math.inf), (-1, 1), (-math.inf, math.inf), (-3, math.inf), (0, 6), (-128, 127))
    if x.dtype == "uint8":
        low = max(low, 0)
    return call("clip", x, a_min=low, a_max=high)


def binary(g: Graph, x: Expr) -> Expr | None:
    name = g.choice.of("add", "subtract", "multiply", "minimum", "maximum")
    args = [x, g.partner(x)]
    return call(name, *(args if g.choice.of(True, False) else reversed(args)))


def reshape(g: Graph, x: Expr) -> Expr | None:
    shape = list(x.shape)
    kind = g.choice.of("flat", "merge", "grow", "squeeze", "split")
    if kind == "flat":
        return call("reshape", x, newshape=(shape[0], -(-math.prod(shape) // shape[0])) if shape else (1,))
    if kind == "merge" and len(shape) > 1:
        at = g.choice.number(0, len(shape) - 2)
        return call("reshape", x, newshape=(*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]))
    if kind == "grow" and len(shape) < 5:
        at = g.choice.number(0, len(shape))
        return call("reshape", x, newshape=(*shape[:at], 1, *shape[at:]))
    if kind == "squeeze":
        return call("squeeze", x, axis=())
    at = g.choice.number(0, len(shape) - 1) if shape else 0
    if shape and shape[at] % 2 == 0 and len(shape) < 5:
        return call("reshape", x, newshape=(*shape[:at], 2, shape[at] // 2, *shape[at + 1 :]))
    return None


def permutation(g: Graph, x: Expr) -> Expr | None:
    rank = len(x.shape)
    if rank == 4 and g.choice.of(True, False):
        layouts = g.choice.of(("NCHW", "NHWC"), ("NHWC", "NCHW"))
        return call("layout_transform", x, src_layout=layouts[0], dst_layout=layouts[1])
    if rank == 4 and g.choice.of(True, False):
        return call("transpose", x, axes=g.choice.of((0, 3, 1, 2), (0, 2, 3, 1)))
    return call("transpose", x, axes=g.choice.order(rank)) if rank else None


def pad(g: Graph, x: Expr) -> Expr | None:
    rank = len(x.shape)
    width = list(g.choice.numbers(2 * rank, 0, 1))
    if g.choice.of(True, False) and rank > 2:
        for d in (0, rank - 1, rank, 2 * rank - 1):
            width[d] = 0
    lowest = -math.inf if is_float(x.dtype) else bounds(x.dtype)[0]
    return call("nn.pad", x, pad_width=tuple(width), pad_value=g.choice.of(0, 0, 1, lowest))


def strided_slice(g: Graph, x: Expr) -> Expr | None:
    begins, ends, strides = [], [], []
    for extent in x.shape:
        begin = g.choice.number(0, extent - 1)
        if g.choice.of(True, True, False):
            stride, end = g.choice.number(1, 2), g.choice.number(begin + 1, extent)
        else:
            stride, end = -g.choice.number(1, 2), g.choice.number(-1, begin - 1)
        if g.choice.of(True, False):
            begin, end, stride = 0, extent, 1
        begins.append(begin)
        ends.append(end)
        strides.append(stride)
    return call("strided_slice", x, begin=tuple(begins), end=tuple(ends), strides=tuple(strides))


def concatenate(g: Graph, x: Expr) -> Expr | None:
    if not x.shape:
        return None
    axis = g.choice.number(-len(x.shape), len(x.shape) - 1)
    alike = [v for v in g.values if v.type is x.type]
    parts = [x, *(g.choice.of(*alike) for _ in range(g.choice.number(0, 2)))]
    if g.choice.of(True, False, False):
        parts.append(g.const(x.shape, x.dtype))
    return call("concatenate", *parts, axis=axis)


def split(g: Graph, x: Expr) -> Expr | None:
    axes = [d for d, extent in enumerate(x.shape) if extent > 1]
    if not axes:
        return None
    axis = g.choice.of(*axes)
    cuts = sorted({g.choice.number(1, x.shape[axis] - 1) for _ in range(g.choice.number(0, 2))})
    parts = call("split", x, indices=tuple(cuts), axis=axis)
    fields = [TupleGetItem(parts, i) for i in range(len(cuts) + 1)]
    g.values.extend(fields[1:])
    return fields[0]


def reduction(g: Graph, x: Expr) -> Expr | None:
    rank = len(x.shape)
    axes = tuple(d for d in range(rank) if g.choice.of(True, False))
    if rank == 4 and g.choice.of(True, False):
        axes = g.choice.of((1, 2), (2, 3))
    name = g.choice.of("sum", "mean") if is_float(x.dtype) else "sum"
    return call(name, x, axis=axes, keepdims=g.choice.of(True, False))


def softmax(g: Graph, x: Expr) -> Expr | None:
    if not x.shape or not is_float(x.dtype):
        return None
    return call("nn.softmax", x, axis=g.choice.number(-len(x.shape), len(x.shape) - 1))


def window(g: Graph, x: Expr) -> Expr | None:
    """A convolution or a pool over the spatial dimensions."""
    rank = len(x.shape) - 2
    if rank not in (1, 2) or x.dtype not in ("float32", "float64", "int8", "uint8"):
        return None
    quantised = is_integer(x.dtype)
    size = g.choice.numbers(rank, 1, 2)
    attrs: dict[str, Any] = {"strides": g.choice.numbers(rank, 1, 2), "padding": g.choice.numbers(2 * rank, 0, 1)}
    kind = g.choice.of("conv", "conv", "max_pool", "avg_pool", "whole")
    if kind == "conv":
        groups = g.choice.of(1, 1, x.shape[-1])
        weight = g.const((*size, x.shape[-1] // groups, groups * g.choice.number(1, 2)), x.dtype)
        attrs |= {"groups": groups, "dilation": g.choice.numbers(rank, 1, 2)}
        if quantised:
            attrs["input_zero_point"] = g.choice.of(0, 3)
        return call(f"{'qnn' if quantised else 'nn'}.conv{rank}d", x, weight, **attrs)
    if kind == "whole":
        if not quantised and g.choice.of(True, False):
            return call("nn.global_avg_pool", x)
        return call(f"nn.max_pool{rank}d", x, pool_size=x.shape[1:-1])
    name = "qnn" if quantised and kind == "avg_pool" else "nn"
    if kind == "avg_pool" and not quantised:
        attrs["count_include_pad"] = g.choice.of(True, False)
    return call(f"{name}.{kind}{rank}d", x, pool_size=size, **attrs)


def dense(g: Graph, x: Expr) -> Expr | None:
    if not x.shape or x.dtype not in ("float32", "float64", "int8", "uint8"):
        return None
    units = g.choice.number(1, 3)
    name = "qnn.dense" if is_integer(x.dtype) else "nn.dense"
    return call(name, x, g.const((units, x.shape[-1]), x.dtype))


def matmul(g: Graph, x: Expr) -> Expr | None:
    if len(x.shape) < 2 or not is_float(x.dtype):
        return None
    return call("matmul", x, g.const((x.shape[-1], g.choice.number(1, 3)), x.dtype))


def convert(g: Graph, x: Expr) -> Expr | None:
    """Another integer type, or the same."""
    if is_float(x.dtype):
        return call("cast", x, dtype=x.dtype)
    return call("cast", x, dtype=g.choice.of("int8", "int16", "int32", "uint8", x.dtype))


def quantised(g: Graph, x: Expr) -> Expr | None:
    """Integers by way of the quantised ops."""
    channels = x.shape[-1] if x.shape else 1
    count = g.choice.of(1, channels)
    if x.dtype == "float32":
        scale = tuple(2.0 ** -g.choice.number(1, 5) for _ in range(count))
        return call(
            "qnn.quantize",
            x,
            scale=scale,
            zero_point=3,
            rounding=g.choice.of("away", "even"),
            dtype="int8",
        )
    if not is_integer(x.dtype) or x.dtype not in ("int8", "uint8", "int16", "int32"):
        return None
    if g.choice.of(True, False) and x.dtype != "int32":
        zero_point = 0 if x.dtype == "uint8" else -5
        return call("qnn.sum", x, axis=g.choice.of((), (-1,)) if x.shape else (), input_zero_point=zero_point)
    shifts = g.choice.numbers(count, -12, -6)
    multipliers = tuple(2**30 + g.choice.number(0, 2**30 - 1) for _ in range(count))
    scale = FixedPoint(multipliers, shifts, g.choice.of("double", "up", "even", "away"))
    return call(
        "qnn.requantize",
        x,
        scale=scale,
        output_zero_point=g.choice.of(0, 4),
        dtype=g.choice.of("int8", "int32"),
    )


MOVES: tuple[Step, ...] = (reshape, permutation, pad, strided_slice, concatenate, split)
FLOATS: tuple[Step, ...] = (unary, clip, binary, binary, reduction, softmax, window, window, dense, matmul, *MOVES)
INTEGERS: tuple[Step, ...] = (unary, clip, binary, binary, reduction, window, dense, convert, quantised, *MOVES)
STEPS: Mapping[str, tuple[Step, ...]] = {
    "float64": (*FLOATS, permutation, permutation),
    "float32": (*FLOATS, quantised),
    "int8": INTEGERS,
    "uint8": INTEGERS,
}


@st.composite
def modules(
    draw: st.DrawFn,
    dtypes: Sequence[str] = ("float64", "int8", "uint8"),
    max_steps: int = 14,
    spans: bool = True,
) -> IRModule:
    """A module with a ``main`` of ops, on one to three inputs of one of ``dtypes``, with one result or several.

    Every op call has a layer of its own, ``layerN``.
    """
    choice = Choice(draw)
    graph = Graph(choice, spans)
    dtype = choice.of(*dtypes)
    shape = choice.of((1, 3, 4, 2), (1, 2, 4, 4), (2, 3, 1, 2), (1, 5, 3), (2, 6), (4,), ())
    for _ in range(choice.number(1, 3)):
        graph.param(TensorType(shape, dtype))
    for _ in range(choice.number(2, max_steps)):
        x = graph.recent()
        # A step that does not fit what it is given, say a window larger than the data, is left out.
        try:
            graph.add(x, choice.of(*STEPS.get(x.dtype, INTEGERS)))
        except ModelError:
            continue
    main = graph.function(choice.of(True, False))
    return IRModule.from_functions({"main": main}, graph.spans.only(post_order(main.body)), draw(signatures(main)))


def signatures(main: Function) -> st.SearchStrategy[Signature | None]:
    """None, or names of any text for the inputs and outputs, each side's all different."""
    result = main.body.type
    types = result.fields if isinstance(result, TupleType) else (main.body.tensor,)
    sides = ([param.tensor for param in main.params], types)
    named = st.builds(Signature, *(st.tuples(*map(_infos, side)).map(_distinct) for side in sides))
    return st.none() | named


def _distinct(infos: Sequence[TensorInfo]) -> tuple[TensorInfo, ...]:
    """The same under names that are all different."""
    taken: set[str] = set()
    made = []
    for number, info in enumerate(infos):
        name = info.name if info.name not in taken else f"{info.name} {number}"
        taken.add(name)
        made.append(replace(info, name=name))
    return tuple(made)


def _infos(type_: TensorType) -> st.SearchStrategy[TensorInfo]:
    plain = st.builds(TensorInfo, st.text(max_size=6))
    if not is_integer(type_.dtype):
        return plain
    low, high = bounds(type_.dtype)
    zero_points = st.integers(max(low, -(2**31)), min(high, 2**31 - 1))
    scales = st.floats(2.0**-40, 2.0**40, exclude_min=True)
    return plain | st.builds(TensorInfo, st.text(max_size=6), scales, zero_points)


SCALES = st.one_of(
    st.builds(
        lambda points, rounding: FixedPoint(tuple(m for m, _ in points), tuple(s for _, s in points), rounding),
        st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(-31, 30)), min_size=1, max_size=3),
        st.sampled_from(["double", "up", "even", "away"]),
    ),
    st.builds(FloatScale, st.lists(st.floats(2.0**-100, 2.0**100, width=32), min_size=1, max_size=3).map(tuple)),
)


# --- values ----------------------------------------------------------------------------------------------------------


def values_of(module: IRModule, seed: int) -> tuple[dict[str, np.ndarray], tuple[np.ndarray, ...], float]:
    """Inputs, results, and the largest float that occurs on the way; infinite where one is not finite."""
    inputs = random_inputs(module.main, seed)
    with np.errstate(all="ignore"):
        everything = evaluate_all(module, inputs)
        results = evaluate(module, inputs)
    arrays = [a for value in everything.values() for a in (value if isinstance(value, tuple) else (value,))]
    floats = [np.abs(a) for a in arrays if a.dtype.kind == "f"]
    largest = max((float(a.max(initial=0.0)) for a in floats), default=0.0)
    return inputs, results, largest if all(np.isfinite(a).all() for a in floats) else math.inf


def assert_same(got: Sequence[np.ndarray], expected: Sequence[np.ndarray], largest: float) -> None:
    """Equal integers, and floats that differ by what rounding does to values up to ``largest``, if that is finite."""
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.dtype.kind == "f":
            if math.isfinite(largest):
                tolerance = (1e-9 if b.dtype == np.float64 else 1e-4) * max(1.0, largest)
                np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)
        else:
            np.testing.assert_array_equal(a, b)


__all__ = [
    "SCALES",
    "Choice",
    "assert_same",
    "modules",
    "random_array",
    "random_inputs",
    "signatures",
    "values_of",
]
