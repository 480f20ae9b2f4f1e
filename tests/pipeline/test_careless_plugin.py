"""The careless plugin: an accelerator whose author forgot to look at something never computes anything wrongly.

Each unit below does one thing as its wiring says, and never looks at what the model says: a convolution without
padding, a requantisation that rounds half up. For everything that a model may say of it there is a layer that says
something else. With the pattern closed, as patterns are, that layer stays on the host, and the compiled model agrees
with the references to the last bit. With just that one thing opened by force the unit takes the layer, and its result
is wrong: the test could have failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from tests._support.plugins import HOST, accelerator, entry_of, members_of, module_of
from tests._support.programs import interpret_program
from tests._support.te_lowerings import Compute, lowered

import uma
from uma.errors import PluginError
from uma.hookspecs import LoweredKernel
from uma.lowering.build_targets import BuildTargets
from uma.pipeline.driver import finish_build, start_build
from uma.pipeline.loading import LoadedModel
from uma.plugins import PluginHost
from uma.program import Program
from uma.relay import (
    Call,
    Constant,
    Expr,
    FixedPoint,
    FloatScale,
    IRModule,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    call,
    const,
    post_order,
    registered_ops,
)
from uma.relay.evaluate import evaluate
from uma.relay.op import MISSING, Op, get_op
from uma.relay.pattern import Match, Pattern, Term, any_, constant, op, wildcard
from uma.targets import Target
from uma.tir import te

UP = FixedPoint((2**30,), (-3,), "up")
"""One sixteenth; every sixteenth of all integers lies between two results."""


def rounded(rounding: str) -> FixedPoint:
    return FixedPoint(UP.multiplier, UP.shift, rounding)


def var(dtype: str, *shape: int) -> Var:
    return Var(f"x_{dtype}_{'_'.join(map(str, shape))}", TensorType(shape, dtype))


def fixed(dtype: str, *shape: int) -> Constant:
    return const(numbers(TensorType(shape, dtype), seed=7))


def numbers(type_: TensorType, seed: int) -> np.ndarray:
    """Quarters, of which no sum of a few products is rounded; float64 has what float32 cannot hold. Integers take all
    of a small range.
    """
    rng = np.random.default_rng(seed)
    dtype = np.dtype(type_.dtype)
    if dtype.kind == "f":
        quarters = rng.integers(-40, 40, type_.shape) / 4
        return np.asarray(quarters + (2.0**-40 if dtype == np.float64 else 0.0)).astype(dtype)
    info = np.iinfo(dtype)
    low, high = max(info.min, -4000), min(info.max, 4000)
    return np.asarray(rng.integers(low, high, type_.shape, endpoint=True)).astype(dtype)


# --- units -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Other:
    """A layer that says something else than the wiring.

    Args:
        attr: what it says otherwise.
        value: what it says.
        args: its operands, where they are others than the unit's.
        attrs: what it says besides, which the unit looks at.
    """

    attr: str
    value: Any
    args: tuple[Expr, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Unit:
    """A unit of an accelerator that computes one op, as it is wired.

    Args:
        op: the op.
        args: operands of a layer for which the wiring is right.
        wired: the attributes that have no neutral value, and what it takes them for. It takes the others for neutral.
        others: the layers for which it is wrong.
        looks_at: attributes that it does look at.
        by: how it computes, where that is not as the op's declaration says with other attributes.
        exact: whether floats must agree to the last bit.
    """

    op: str
    args: tuple[Expr, ...]
    wired: Mapping[str, Any]
    others: tuple[Other, ...]
    looks_at: tuple[str, ...] = ()
    by: Compute | None = None
    exact: bool = True

    def __str__(self) -> str:
        return "-".join((self.op, *self.looks_at))

    def pattern(self, *opened: str) -> Term:
        """What it takes, in the fewest words that the language accepts; ``opened`` attributes whatever they are."""
        attrs = {**self.wired, **dict.fromkeys((*self.looks_at, *opened), any_)}
        return op(self.op)(*(leaf(arg) for arg in self.args), **attrs)

    def compute(self, layer: Call, args: Sequence[te.Tensor]) -> te.Tensor | tuple[te.Tensor, ...]:
        """What it makes of a layer: results of the layer's type, by its own wiring."""
        if self.by is not None:
            return self.by(layer, args)
        declared = get_op(self.op)
        assert declared.compute is not None
        attrs = declared.make_attrs({**self.wired, **{name: layer.attrs[name] for name in self.looks_at}})
        if isinstance(layer.type, TupleType):
            return declared.compute(attrs, layer.type, *args)
        made = declared.compute(attrs, TensorType(layer.shape, self.wired.get("dtype", layer.dtype)), *args)
        assert isinstance(made, te.Tensor)
        return converted(made, layer.dtype)

    def fitting(self) -> Call:
        """A layer for which the wiring is right."""
        return call(self.op, *self.args, **self.wired)

    def layer(self, other: Other) -> Call:
        attrs = {**self.wired, **other.attrs, other.attr: other.value}
        return call(self.op, *(other.args or self.args), **attrs)


def leaf(arg: Expr) -> Term:
    return constant(arg.dtype) if isinstance(arg, Constant) else wildcard(arg.dtype)


def converted(tensor: te.Tensor, dtype: str) -> te.Tensor:
    """The same numbers as another dtype; of integers the low bits."""
    if tensor.dtype == dtype:
        return tensor
    return te.compute(tensor.shape, lambda *index: tensor[index].astype(dtype), "converted")


def end_to_end(layer: Call, args: Sequence[te.Tensor]) -> te.Tensor:
    """One matrix of 16 elements after the other in memory, which is right along the first axis."""
    rows, columns = layer.shape
    pieces = [((n, 0), (1, 16), lambda _, i, x=x: x[i // 4, i % 4]) for n, x in enumerate(args)]
    whole = te.assemble((len(args), 16), layer.dtype, pieces, "whole")
    return te.compute((rows, columns), lambda i, j: whole[(i * columns + j) // 16, (i * columns + j) % 16], "result")


def in_parts(layer: Call, args: Sequence[te.Tensor]) -> tuple[te.Tensor, ...]:
    """A matrix of 4 columns as blocks of memory one after the other, which is right along the first axis."""
    (x,) = args
    made: list[te.Tensor] = []
    for type_ in get_op("split").outputs(layer.type):
        start, columns = sum(part.size for part in made), type_.shape[1]

        def at(i: Any, j: Any, start: int = start, columns: int = columns) -> Any:
            return x[(start + i * columns + j) // 4, (start + i * columns + j) % 4]

        made.append(te.compute(type_.shape, at, "part"))
    return tuple(made)


SHAPES = {1: (1, 8, 4), 2: (1, 6, 6, 4), 3: (1, 5, 6, 5, 4)}
IMAGE = SHAPES[2]
SQUARE = (4, 4)
TIED = var("int8", 64, 64)
"""In some of whose rows several elements are the largest."""


def convolution(name: str, dtype: str) -> Unit:
    rank = int(name[-2])
    data = var(dtype, *SHAPES[rank])
    others = [
        Other("strides", (2,) * rank),
        Other("padding", (1,) * 2 * rank),
        Other("dilation", (2,) * rank),
        Other("groups", 2, (data, fixed(dtype, *(3,) * rank, 2, 4))),
    ]
    if name.startswith("qnn"):
        others += [Other("input_zero_point", 3), Other("kernel_zero_point", -2)]
    return Unit(name, (data, fixed(dtype, *(3,) * rank, 4, 4)), {}, tuple(others))


def pool(name: str, dtype: str) -> Unit:
    rank = int(name[-2])
    data = var(dtype, *SHAPES[rank])
    others = [Other("pool_size", (4,) * rank), Other("strides", (2,) * rank), Other("padding", (1,) * 2 * rank)]
    if name.startswith("qnn"):
        others += [Other("rounding", "even"), Other("zero_point", 100)]
    return Unit(name, (data,), {"pool_size": (2,) * rank}, tuple(others))


def counting_pool(name: str) -> Unit:
    """A unit that pads, and always divides by what is under the window."""
    unit, rank = pool(name, "int8" if name.startswith("qnn") else "float32"), int(name[-2])
    other = Other("count_include_pad", True, attrs={"padding": (1,) * 2 * rank})
    return Unit(name, unit.args, unit.wired, (other,), looks_at=("padding",))


def reduction(name: str, dtype: str) -> Unit:
    others = [Other("axis", (0,))]
    if name == "qnn.sum":
        others.append(Other("input_zero_point", 3))
    return Unit(name, (var(dtype, *SQUARE),), {"axis": (1,), "keepdims": False}, tuple(others))


def operands(*scales: str, **wired: Any) -> Unit:
    """A quantised sum, difference or product."""
    name = wired.pop("op")
    others = [Other(scale, rounded("even")) for scale in scales]
    others += [Other(f"{side}_zero_point", 5) for side in ("lhs", "rhs", "output")]
    if "left_shift" in wired:
        others.append(Other("left_shift", 3))
    args = var("int8", *IMAGE), Var("y", TensorType(IMAGE, "int8"))
    return Unit(name, args, {**dict.fromkeys(scales, UP), **wired}, tuple(others))


SUM_SCALES = ("lhs_scale", "rhs_scale", "output_scale")
PER_CHANNEL = (0.5, 0.25, 1.0, 0.125)
PER_CHANNEL_SCALE = FixedPoint(UP.multiplier * 4, (-3, -2, -4, -1), "up")
CURVE = {"input_scale": 1 / 32, "output_scale": 1 / 128}
CURVE_OTHERS = (
    Other("input_scale", 1 / 16),
    Other("output_scale", 1 / 64),
    Other("input_zero_point", 9),
    Other("output_zero_point", 9),
)

UNITS = [
    *(convolution(name, dtype) for name, dtype in
      [("qnn.conv2d", "int8"), ("qnn.conv1d", "int8"), ("nn.conv2d", "float32"), ("nn.conv1d", "float32"),
       ("nn.conv3d", "float32")]),
    *(pool(name, dtype) for name, dtype in
      [("nn.max_pool2d", "int8"), ("nn.max_pool1d", "int8"), ("qnn.avg_pool2d", "int8"), ("qnn.avg_pool1d", "int8"),
       ("nn.avg_pool2d", "float32"), ("nn.avg_pool1d", "float32"),
       ("nn.max_pool3d", "int8"), ("nn.avg_pool3d", "float32")]),
    counting_pool("nn.avg_pool2d"),
    counting_pool("nn.avg_pool1d"),
    counting_pool("nn.avg_pool3d"),
    counting_pool("qnn.avg_pool2d"),
    counting_pool("qnn.avg_pool1d"),
    *(reduction(name, dtype) for name, dtype in
      [("sum", "int32"), ("mean", "float32"), ("qnn.sum", "int8"), ("max", "int8"), ("min", "int8"),
       ("prod", "int32")]),
    *(Unit(name, (TIED,), {"axis": 1, "dtype": "int64", "keepdims": False, "select_last": False}, (
        Other("axis", 0),
        Other("select_last", True),
    )) for name in ("argmax", "argmin")),
    *(Unit(name, (var("int32", *SQUARE),), {"axis": 1, "exclusive": False, "reverse": False}, (
        Other("axis", 0),
        Other("exclusive", True),
        Other("reverse", True),
    )) for name in ("cumsum", "cumprod")),
    Unit("topk", (var("int8", *SQUARE),), {"k": 4, "axis": 1, "largest": True, "dtype": "int64"}, (
        Other("axis", 0),
        Other("largest", False),
    )),
    Unit("scatter", (var("int32", *SQUARE), const(np.array([[1, 0, 3, 2], [0, 1, 1, 0]])), var("int32", 2, 4)),
         {"axis": 0, "reduction": "update"}, (
        Other("axis", 1, (var("int32", *SQUARE), const(np.array([[1, 0], [3, 2], [0, 2], [2, 0]])),
                          var("int32", 4, 2))),
        Other("reduction", "add"),
    )),
    *(Unit(name, (var("int8", *SQUARE), fixed("int8", 4, 4)), {},
           (Other("input_zero_point", 3), Other("kernel_zero_point", -2))) for name in ("qnn.dense", "qnn.matmul")),
    operands(*SUM_SCALES, op="qnn.add", left_shift=1),
    operands(*SUM_SCALES, op="qnn.subtract", left_shift=1),
    operands("scale", op="qnn.multiply"),
    Unit("qnn.requantize", (var("int32", *IMAGE),), {"scale": UP, "axis": -1, "dtype": "int8"}, (
        *(Other("scale", rounded(rounding)) for rounding in ("double", "even", "away")),
        Other("scale", FloatScale((1 / 16,))),
        Other("scale", FixedPoint((2**30 + 2**27,), (-3,), "up")),
        Other("scale", PER_CHANNEL_SCALE),
        Other("input_zero_point", 8),
        Other("output_zero_point", 3),
        Other("dtype", "int16"),  # (uint8 is int8 in canonical relay, with another zero point)
    )),
    Unit("qnn.requantize", (var("int32", *SQUARE),), {"scale": PER_CHANNEL_SCALE, "axis": -1, "dtype": "int8"}, (
        Other("axis", 0),
    )),
    Unit("qnn.quantize", (var("float32", *SQUARE),),
         {"scale": PER_CHANNEL, "axis": -1, "rounding": "even", "dtype": "int8"}, (
        Other("scale", PER_CHANNEL[::-1]),
        Other("axis", 0),
        Other("zero_point", 3),
        Other("rounding", "away"),
        Other("dtype", "uint8"),
    )),
    Unit("qnn.dequantize", (var("int8", *SQUARE),), {"scale": PER_CHANNEL, "axis": -1}, (
        Other("scale", PER_CHANNEL[::-1]),
        Other("axis", 0),
        Other("zero_point", 3),
    )),
    Unit("qnn.sigmoid", (var("int8", *IMAGE),), CURVE, CURVE_OTHERS),
    Unit("qnn.tanh", (var("int8", *IMAGE),), CURVE, CURVE_OTHERS),
    Unit("qnn.hard_swish", (var("int8", *IMAGE),), CURVE, CURVE_OTHERS),
    *(Unit(name, (var("int8", *IMAGE),), dict.fromkeys(scales, UP), (
        *(Other(scale, rounded("double")) for scale in scales),
        Other("input_zero_point", 9),
        Other("output_zero_point", 9),
    )) for name, *scales in [("qnn.abs", "scale"), ("qnn.leaky_relu", "scale", "negative_scale")]),
    Unit("qnn.softmax", (var("int8", *SQUARE),), {"scale": FixedPoint((2**30,), (22,), "double")}, (
        Other("scale", FixedPoint((2**30,), (20,), "double")),
    )),
    Unit("qnn.log_softmax", (var("int8", *SQUARE),), {"scale": FixedPoint((2**30,), (22,), "double")}, (
        Other("scale", FixedPoint((2**30,), (24,), "double")),
    )),
    Unit("qnn.l2_normalize", (var("int8", *SQUARE),), {}, (Other("input_zero_point", 5),)),
    Unit("nn.softmax", (var("float32", *SQUARE),), {"axis": -1}, (Other("axis", 0),), exact=False),
    Unit("nn.log_softmax", (var("float32", *SQUARE),), {"axis": -1}, (Other("axis", 0),), exact=False),
    *(Unit(name, (var("float32", *SQUARE),), {"axis": (-1,), "epsilon": 1e-5}, (
        Other("axis", (0,)),
        Other("epsilon", 4.0),
    ), exact=False) for name in ("nn.layer_norm", "nn.rms_norm")),
    Unit("nn.attention", (*(var("float32", *SQUARE) for _ in range(3)),), {"scale": 1 / 64}, (
        Other("scale", 1 / 16),
    ), exact=False),
    Unit("nn.leaky_relu", (var("float32", *SQUARE),), {"alpha": 0.25}, (Other("alpha", 0.5),)),
    Unit("nn.gelu", (var("float64", *SQUARE),), {"approximate": "none"}, (Other("approximate", "tanh"),), exact=False),
    Unit("take", (var("int8", *SQUARE), var("int32", SQUARE[0])), {"axis": 0}, (Other("axis", 1),)),
    Unit("nn.resize_nearest", (var("int8", *IMAGE),), {"rows": (0, 0, 1), "columns": (1, 0)}, (
        Other("rows", (0, 1, 1)),
        Other("columns", (1, 1)),
    )),
    Unit("clip", (var("int32", *SQUARE),), {"a_min": -5}, (Other("a_max", 6),)),
    Unit("clip", (var("int32", *SQUARE),), {"a_max": 6}, (Other("a_min", 0),)),
    Unit("cast", (var("int32", *SQUARE),), {"dtype": "int8"}, (Other("dtype", "int16"),)),
    Unit("bitcast", (var("float32", *SQUARE),), {"dtype": "int32"}, ()),
    Unit("bfloat16_bits", (var("float32", *SQUARE),), {}, ()),
    Unit("bfloat16_value", (var("uint16", *SQUARE),), {}, ()),
    Unit("concatenate", (var("int8", *SQUARE), Var("y", TensorType(SQUARE, "int8"))), {"axis": 0}, (Other("axis", 1),),
         by=end_to_end),
    Unit("layout_transform", (var("int8", 2, 2, 2),), {"src_layout": "NWC", "dst_layout": "NCW"}, (
        Other("src_layout", "CWN"),
        Other("dst_layout", "WNC"),
    )),
    Unit("nn.pad", (var("int8", *SQUARE),), {"pad_width": (1, 0, 0, 1)}, (
        Other("pad_width", (0, 1, 1, 0)),
        Other("pad_value", 3),
    )),
    Unit("split", (var("int8", *SQUARE),), {"indices": (1,), "axis": 0}, (Other("indices", (2,)),)),
    Unit("split", (var("int8", *SQUARE),), {"indices": (1,), "axis": 0}, (Other("axis", 1),), by=in_parts),
    Unit("strided_slice", (var("int8", *SQUARE),), {"begin": (0, 0), "end": (2, 4), "strides": (1, 1)}, (
        Other("begin", (1, 0)),
        Other("strides", (2, 1), attrs={"end": (4, 4)}),
    ), looks_at=("end",)),
    Unit("transpose", (var("int8", 2, 2, 2),), {"axes": (1, 0, 2)}, (Other("axes", (2, 1, 0)),)),
]  # fmt: skip

HARMLESS = {
    ("broadcast_to", "shape"): "it is the result's",
    **{("take_first", name): "what is taken follows from the result's shape" for name in ("axis", "extent")},
    ("reshape", "newshape"): "the result is the same memory",
    ("squeeze", "axis"): "the result is the same memory",
    ("sum", "keepdims"): "the result is the same memory",
    ("mean", "keepdims"): "the result is the same memory",
    ("qnn.sum", "keepdims"): "the result is the same memory",
    **{(name, "keepdims"): "the result is the same memory" for name in ("argmax", "argmin", "max", "min", "prod")},
    ("topk", "k"): "how many there are follows from the result's shape",
    **{(name, "dtype"): "the result has it" for name in ("argmax", "argmin", "topk")},
    ("qnn.softmax", "wide"): "the result's dtype says so",
    ("bitcast", "dtype"): "the result is the same memory",
    ("strided_slice", "end"): "where it ends follows from the result's shape",
    ("qnn.requantize", "form"): "another way to the same result, which hosts alone are given",
    ("qnn.requantize", "narrow"): "another way to the same result, which hosts alone are given",
    ("qnn.add", "form"): "another way to the same result, which hosts alone are given",
    ("qnn.subtract", "form"): "another way to the same result, which hosts alone are given",
}
"""What may be forgotten, and why that is right."""


def test_everything_that_can_be_said_of_an_op_is_forgotten_once() -> None:
    # (What has loops alone has no tensor expressions that a unit could be made from.)
    ops = {name: declared for name, declared in registered_ops().items() if declared.compute is not None}
    said = {(name, attr.name) for name, declared in ops.items() for attr in declared.attrs}
    forgotten = {(unit.op, other.attr) for unit in UNITS for other in unit.others}
    assert forgotten | set(HARMLESS) == said
    assert not forgotten & set(HARMLESS)


# --- builds ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """What became of a layer.

    Args:
        owners: who has its ops; None is the host.
        why: what keeps the accelerator from having it.
        got, wanted: its results, and what they should be.
    """

    owners: set[str | None]
    why: str
    got: list[np.ndarray]
    wanted: list[np.ndarray]

    def is_right(self, exact: bool = True) -> bool:
        pairs = list(zip(self.got, self.wanted, strict=True))
        assert all((a.dtype, a.shape) == (b.dtype, b.shape) for a, b in pairs)
        # (What a difference of two large numbers leaves is as exact as they are.)
        return all(
            np.array_equal(a, b) if exact else np.allclose(a, b, rtol=1e-6, atol=1e-6 * np.abs(b).max())
            for a, b in pairs
        )


def members_for(compute: Compute, *patterns: Term) -> BuildTargets:
    """An accelerator that takes these patterns and computes what it takes by ``compute``, and a host."""

    def lower(match: Match, target: Target) -> LoweredKernel:
        return lowered(match.function, compute)

    taken = [Pattern(f"careless.p{number}", pattern, lower=lower) for number, pattern in enumerate(patterns)]
    return members_of(entry_of(accelerator("npu"), patterns=lambda: taken))


def side_by_side(layers: Sequence[Expr]) -> IRModule:
    """A model whose results are those of the layers, which are called by their numbers."""
    body = Tuple([part for layer in layers for part in parts(layer)])
    spans: dict[Expr, Sequence[str]] = {
        expr: [str(number)] for number, layer in enumerate(layers) for expr in own_ops(layer)
    }
    return module_of(body, spans)


def parts(layer: Expr) -> list[Expr]:
    if isinstance(layer.type, TupleType):
        return [TupleGetItem(layer, index) for index in range(len(layer.type.fields))]
    return [layer]


def own_ops(layer: Expr) -> list[Expr]:
    return [expr for expr in post_order(layer) if isinstance(expr, Call)]


def run(layers: Sequence[Expr], members: BuildTargets, *, compiled: bool) -> list[Layer]:
    """Layers side by side, built, and run as C or by the interpreter."""
    module = side_by_side(layers)
    inputs = {param.name: numbers(param.tensor, seed) for seed, param in enumerate(module.main.params)}
    loaded = LoadedModel(module, "m")
    build = start_build(loaded, members)
    if compiled:
        got = list(finish_build(build, loaded).run(inputs).values())
    else:
        program = build.run(module)
        assert isinstance(program, Program)
        got = list(interpret_program(program, {f"in_{name}": array for name, array in inputs.items()}).values())
    assert build.placement is not None
    wanted = list(evaluate(module, inputs))
    found = []
    for number, layer in enumerate(layers):
        count = len(parts(layer))
        records = [record for record in build.placement.records() if str(number) in record.layers]
        why = "; ".join(reason.reason for record in records for reason in record.why)
        found.append(Layer({record.owner for record in records}, why, got[:count], wanted[:count]))
        del got[:count], wanted[:count]
    return found


@pytest.mark.few(8)
@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_what_was_forgotten_is_never_computed_wrongly(unit: Unit) -> None:
    layers = [unit.fitting(), *(unit.layer(other) for other in unit.others)]
    fitting, *others = run(layers, members_for(unit.compute, unit.pattern()), compiled=True)
    assert fitting.owners == {"npu"} and fitting.is_right(unit.exact)
    for other, layer in zip(unit.others, others, strict=True):
        assert layer.owners == {None} and layer.is_right(unit.exact), other
        assert f"attribute {other.attr} is " in layer.why

        opened = members_for(unit.compute, unit.pattern(other.attr))
        fitting, layer = run([unit.fitting(), unit.layer(other)], opened, compiled=False)
        assert fitting.owners == layer.owners == {"npu"}, other
        assert fitting.is_right(unit.exact) and not layer.is_right(unit.exact), other


# --- dtypes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wires:
    """A unit whose wires carry one dtype: what it is given, it takes for that.

    Args:
        op: what it computes.
        shape: of all operands.
        wired: the dtype of each operand.
        other: the dtypes of operands for which it is wrong.
        attrs: what pattern and layers say.
    """

    op: str
    shape: tuple[int, ...]
    wired: tuple[str, ...]
    other: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.op}-{'-'.join(self.other)}"

    def layer(self, dtypes: tuple[str, ...]) -> Call:
        args = [Var(f"{dtype}_{number}", TensorType(self.shape, dtype)) for number, dtype in enumerate(dtypes)]
        return call(self.op, *args, **self.attrs)

    def pattern(self, opened: bool) -> Term:
        return op(self.op)(*(wildcard(any_ if opened else dtype) for dtype in self.wired), **self.attrs)

    def compute(self, layer: Call, args: Sequence[te.Tensor]) -> te.Tensor:
        declared = get_op(self.op)
        assert declared.compute is not None
        taken = [converted(arg, dtype) for arg, dtype in zip(args, self.wired, strict=True)]
        attrs = declared.make_attrs(self.attrs)
        made = declared.compute(attrs, self.layer(self.wired).type, *taken)
        assert isinstance(made, te.Tensor)
        return converted(made, layer.dtype)


KERNEL = (3, 3, 2, 2)
WIRES = [
    Wires("nn.relu", SQUARE, ("int8",), ("uint8",)),
    Wires("nn.relu", SQUARE, ("float32",), ("float64",)),
    Wires("maximum", SQUARE, ("int8", "int8"), ("uint8", "uint8")),
    Wires("minimum", SQUARE, ("uint8", "uint8"), ("int8", "int8")),
    Wires("add", SQUARE, ("int32", "int32"), ("float32", "float32")),
    Wires("add", SQUARE, ("float32", "float32"), ("float64", "float64")),
    Wires("subtract", SQUARE, ("int8", "int8"), ("int32", "int32")),
    Wires("multiply", SQUARE, ("int32", "int32"), ("float32", "float32")),
    Wires("sum", SQUARE, ("int8",), ("int16",), {"axis": (0,), "keepdims": False}),
    Wires("transpose", SQUARE, ("int8",), ("int16",), {"axes": (1, 0)}),
    Wires("nn.max_pool2d", KERNEL, ("int8",), ("uint8",), {"pool_size": (2, 1)}),
    Wires("nn.global_max_pool", KERNEL, ("int8",), ("uint8",)),
    # (uint8 is int8 in canonical relay, with other zero points.)
    Wires("qnn.avg_pool2d", KERNEL, ("int8",), ("int16",), {"pool_size": (2, 1)}),
    Wires("qnn.conv2d", (2, 2, 2, 2), ("int8", "int8"), ("int16", "int8")),
    Wires("qnn.conv2d", (2, 2, 2, 2), ("int8", "int8"), ("int8", "int16")),
    Wires("qnn.dense", SQUARE, ("int8", "int8"), ("int16", "int8")),
    Wires("qnn.matmul", SQUARE, ("int8", "int8"), ("int8", "int16")),
    Wires("qnn.requantize", SQUARE, ("int8",), ("int16",), {"scale": UP, "axis": -1, "dtype": "int8"}),
    Wires("qnn.dequantize", SQUARE, ("int8",), ("uint8",), {"scale": 0.5, "axis": -1}),
    Wires("qnn.sum", SQUARE, ("int8",), ("int16",), {"axis": (0,), "keepdims": False}),
]


@pytest.mark.few(8)
@pytest.mark.parametrize("wires", WIRES, ids=str)
def test_a_dtype_that_was_forgotten_is_never_taken_for_another(wires: Wires) -> None:
    layers = [wires.layer(wires.wired), wires.layer(wires.other)]
    fitting, other = run(layers, members_for(wires.compute, wires.pattern(opened=False)), compiled=True)
    assert fitting.owners == {"npu"} and fitting.is_right()
    assert other.owners == {None} and other.is_right()
    assert "dtype is " in other.why
    fitting, other = run(layers, members_for(wires.compute, wires.pattern(opened=True)), compiled=False)
    assert fitting.owners == other.owners == {"npu"}
    assert fitting.is_right() and not other.is_right()


# --- a layer of several ops in one pattern ---------------------------------------------------------------------------

STACK: dict[str, dict[str, Any]] = {
    "qnn.conv2d": {},
    "add": {},
    "qnn.requantize": {"scale": UP, "axis": -1, "dtype": "int8"},
    "clip": {"a_min": -60},
}
"""The ops of a layer, and what the unit takes of what has no neutral value."""

FORGOTTEN = [
    ("qnn.conv2d", "strides", (2, 2)),
    ("qnn.conv2d", "padding", (1, 1, 1, 1)),
    ("qnn.conv2d", "dilation", (2, 2)),
    ("qnn.conv2d", "groups", 2),
    ("qnn.conv2d", "input_zero_point", -7),
    ("qnn.conv2d", "kernel_zero_point", 1),
    ("qnn.requantize", "scale", rounded("double")),
    ("qnn.requantize", "scale", rounded("even")),
    ("qnn.requantize", "scale", rounded("away")),
    ("qnn.requantize", "scale", PER_CHANNEL_SCALE),
    ("qnn.requantize", "input_zero_point", 100),
    ("qnn.requantize", "output_zero_point", 5),
    ("qnn.requantize", "dtype", "int16"),
    ("clip", "a_max", 6),
    ("clip", "a_min", -20),
]


def stack(said: tuple[str, str, Any] | None = None, data: str = "x") -> Expr:
    """A whole layer that fits the unit, but for what is ``said`` of one of its ops; of data of its own, so that it
    shares no node with another.
    """
    attrs = {name: dict(wired) for name, wired in STACK.items()}
    if said is not None:
        attrs[said[0]][said[1]] = said[2]
    # Small numbers, or the results saturate and nothing else shows.
    weight = const(fixed("int8", 3, 3, 4 // attrs["qnn.conv2d"].get("groups", 1), 4).data % 3 - 1)
    bias = const(np.array([-1500, -700, 800, 2000], np.int32))
    sums = call("qnn.conv2d", Var(data, TensorType(IMAGE, "int8")), weight, **attrs["qnn.conv2d"])
    return call("clip", call("qnn.requantize", call("add", sums, bias), **attrs["qnn.requantize"]), **attrs["clip"])


def stack_pattern(opened: tuple[str, str] | None = None) -> Term:
    attrs = {
        name: {**wired, **({opened[1]: any_} if opened and opened[0] == name else {})} for name, wired in STACK.items()
    }
    total = op("add")(op("qnn.conv2d")(wildcard("int8"), constant("int8"), **attrs["qnn.conv2d"]), constant("int32"))
    return op("clip")(op("qnn.requantize")(total, **attrs["qnn.requantize"]), **attrs["clip"])


def stack_as_wired(layer: Call, args: Sequence[te.Tensor]) -> te.Tensor:
    declared = layer.op
    assert isinstance(declared, Op) and declared.compute is not None
    wired = STACK[declared.name]
    type_ = TensorType(layer.shape, wired.get("dtype", args[0].dtype if declared.name == "clip" else layer.dtype))
    made = declared.compute(declared.make_attrs(wired), type_, *args)
    assert isinstance(made, te.Tensor)
    return converted(made, layer.dtype)


def test_one_thing_forgotten_of_a_whole_layer() -> None:
    layers = [stack(), *(stack(said, f"x{number}") for number, said in enumerate(FORGOTTEN))]
    fitting, *others = run(layers, members_for(stack_as_wired, stack_pattern()), compiled=True)
    assert fitting.owners == {"npu"} and fitting.is_right()
    for said, layer in zip(FORGOTTEN, others, strict=True):
        assert layer.owners == {None} and layer.is_right(), said
        assert f"{said[0]}: attribute {said[1]} is " in layer.why

        opened = members_for(stack_as_wired, stack_pattern(said[:2]))
        fitting, layer = run([stack(), stack(said, "y")], opened, compiled=False)
        assert fitting.owners == layer.owners == {"npu"}, said
        assert fitting.is_right() and not layer.is_right(), said


# --- what cannot even be left out ------------------------------------------------------------------------------------


def refused(patterns: Callable[[], list[Pattern]]) -> PluginError:
    """The fault of a plugin with these patterns, when a model is built for it."""
    entries = [*entry_of(accelerator("npu"), patterns=patterns), *entry_of(HOST)]
    with pytest.raises(PluginError) as caught:
        uma.build(module_of(call("nn.relu", var("int8", 4))), ["npu", "plain"], plugins=PluginHost(lambda: entries))
    return caught.value


MUST_BE_SAID = [
    (name, attr.name)
    for name, declared in registered_ops().items()
    for attr in declared.attrs
    if attr.neutral is MISSING
]


@pytest.mark.parametrize(("name", "attr"), MUST_BE_SAID, ids=[f"{name}-{attr}" for name, attr in MUST_BE_SAID])
def test_what_has_no_neutral_value_cannot_be_forgotten(name: str, attr: str) -> None:
    declared = get_op(name)
    others = {one.name: any_ for one in declared.attrs if one.name != attr}

    def patterns() -> list[Pattern]:
        return [Pattern("careless", op(name)(*(wildcard(any_) for _ in declared.inputs), **others))]

    error = refused(patterns)
    assert f"a pattern of {name} must say what it takes of {attr!r}, which has no neutral value" in error.what
    assert error.what.startswith("plugin uma-npu 1.0 failed in hook patterns: ")


@pytest.mark.parametrize("leaf", [wildcard, constant])
def test_a_dtype_cannot_be_left_out(leaf: Callable[[], Term]) -> None:
    error = refused(lambda: [Pattern("careless", op("nn.relu")(leaf()))])
    assert "plugin uma-npu 1.0 failed in hook patterns: TypeError" in error.what
    assert "'dtype'" in error.what
