"""A match as an operation of the library."""

from __future__ import annotations

import math
from dataclasses import dataclass

from uma.relay.pattern import Match

from .operation import Kind, Operation, Step, Tensor

__all__ = [
    "ACTIVATIONS",
    "BINARY",
    "KEEPS_NO_NAN",
    "MAX_BATCH_DIMENSIONS",
    "SOFTMAX",
    "UNARY",
    "Unary",
    "batch_dimensions",
    "binary_shapes",
    "operation_of",
]

MAX_BATCH_DIMENSIONS = 3
"""Of a product of matrices."""


@dataclass(frozen=True)
class Unary:
    """An elementwise op of one operand.

    Args:
        alg: its number in oneDNN; of ``nn.gelu`` that of the exact one.
        attrs: attributes of the relay op that it takes.
    """

    alg: int
    attrs: tuple[str, ...] = ()


UNARY = {
    "nn.relu": Unary(0x20),
    "clip": Unary(0x2E, ("a_min", "a_max")),
    "sigmoid": Unary(0x29),
    "tanh": Unary(0x21),
    "nn.hard_swish": Unary(0x34),
    "nn.gelu": Unary(0x31, ("approximate",)),
    "nn.leaky_relu": Unary(0x20, ("alpha",)),
    "exp": Unary(0x2A),
    "log": Unary(0x2D),
    "sqrt": Unary(0x25),
    "abs": Unary(0x24),
}
"""By the name of the op in relay."""

ACTIVATIONS = ("nn.relu", "clip", "sigmoid", "tanh", "nn.hard_swish", "nn.gelu", "nn.leaky_relu")
"""Those that are done on the way, to what a product gives."""

BINARY = {
    "add": 0x1FFF0,
    "multiply": 0x1FFF1,
    "maximum": 0x1FFF2,
    "minimum": 0x1FFF3,
    "divide": 0x1FFF4,
    "subtract": 0x1FFF5,
}
"""Numbers in oneDNN by the name of the op in relay."""

SOFTMAX = {"nn.softmax": 0x30000, "nn.log_softmax": 0x30001}
"""Numbers in oneDNN by the name of the op in relay."""

KEEPS_NO_NAN = frozenset(
    {"nn.relu", "clip", "sigmoid", "exp", "maximum", "minimum", "nn.hard_swish", "nn.leaky_relu", "nn.gelu", *SOFTMAX}
)
"""Ops of which the library gives a number where an operand is NaN, or NaN of an infinity (gelu), on some CPU."""

_GELU_TANH = 0x2B
_DIRECT = 1
_POOLS = {"max": 0x1FF, "include": 0x2FF, "exclude": 0x3FF}


def operation_of(match: Match) -> Operation:
    """The operation that a match of one of the plugin's patterns is."""
    if "product" in match.captures:
        return _convolution(match) if "conv" in str(match.call("product").op_name) else _matmul(match)
    if "pool" in match.captures:
        return _pool(match)
    if "softmax" in match.captures:
        return _softmax(match)
    if "joined" in match.captures:
        return _binary(match)
    flat = Tensor("float32", (match.root.tensor.size,), (1,))
    return Operation(_unary(match, Kind.ELTWISE), flat, flat)


def _unary(match: Match, kind: int) -> Step:
    call = match.call("activation")
    alg = UNARY[str(call.op_name)].alg
    if call.op_name == "clip":
        return Step(kind, alg, call.attrs.a_min, call.attrs.a_max)
    if call.op_name == "nn.hard_swish":
        return Step(kind, alg, 1 / 6, 0.5)
    if call.op_name == "nn.leaky_relu":
        return Step(kind, alg, call.attrs.alpha)
    if call.op_name == "nn.gelu" and call.attrs.approximate == "tanh":
        alg = _GELU_TANH
    return Step(kind, alg)


def _posts(match: Match) -> tuple[Step, ...]:
    joined = (Step(Kind.POST_BINARY, BINARY["add"]),) if "other" in match.captures else ()
    return joined + ((_unary(match, Kind.POST_ELTWISE),) if "activation" in match.captures else ())


def _convolution(match: Match) -> Operation:
    core = match.call("product")
    attrs, out = core.attrs, core.tensor
    rank, groups = len(attrs.strides), int(attrs.groups)
    *kernel, depth, channels = match["weight"].shape
    steps = Tensor.dense("", match["weight"].shape).strides
    spatial = tuple(steps[:rank])
    dtype = match["data"].dtype
    if groups == 1:
        weights = Tensor(dtype, (channels, depth, *kernel), (steps[-1], steps[-2], *spatial))
    else:
        each = channels // groups
        weights = Tensor(dtype, (groups, each, depth, *kernel), (each, steps[-1], steps[-2], *spatial))
    data = match["data"].shape
    return Operation(
        Step(Kind.CONVOLUTION, _DIRECT),
        Tensor.channels_last(dtype, data),
        Tensor.channels_last(out.dtype, out.shape),
        weights,
        Tensor("float32", (channels,), (1,)) if "bias" in match.captures else None,
        Tensor.channels_last(out.dtype, out.shape) if "other" in match.captures else None,
        strides=attrs.strides,
        dilation=attrs.dilation,
        before=attrs.padding[:rank],
        after=_after(data[1:-1], out.shape[1:-1], kernel, attrs.strides, attrs.padding[:rank], attrs.dilation),
        zero_point=int(attrs.input_zero_point) if dtype == "int8" else 0,
        posts=_posts(match),
        macs=out.size * depth * math.prod(kernel),
    )


def _after(
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    kernel: list[int] | tuple[int, ...],
    strides: tuple[int, ...],
    before: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[int, ...]:
    """The padding behind that the last window reaches: less than the model says, perhaps below 0."""
    sizes = zip(inputs, outputs, kernel, strides, before, dilation, strict=True)
    return tuple((n - 1) * s + (k - 1) * d + 1 - extent - b for extent, n, k, s, b, d in sizes)


def _pool(match: Match) -> Operation:
    call = match.call("pool")
    data, out, dtype = match["data"].shape, call.shape, call.dtype
    rank = len(data) - 2
    is_max = "max" in str(call.op_name)
    alg = _POOLS["max" if is_max else "exclude"]
    if "global" in str(call.op_name):
        kernel, strides, before = data[1:-1], (1,) * rank, (0,) * rank
    else:
        kernel, strides, before = call.attrs.pool_size, call.attrs.strides, call.attrs.padding[:rank]
        if not is_max and call.attrs.count_include_pad:
            alg = _POOLS["include"]
    ones = (1,) * rank
    return Operation(
        Step(Kind.POOL, alg),
        Tensor.channels_last(dtype, data),
        Tensor.channels_last(dtype, out),
        strides=strides,
        dilation=ones,
        before=before,
        after=_after(data[1:-1], out[1:-1], kernel, strides, before, ones),
        kernel=kernel,
    )


def _softmax(match: Match) -> Operation:
    call = match.call("softmax")
    axis = call.attrs.axis % len(call.shape)
    outer, inner = math.prod(call.shape[:axis]), math.prod(call.shape[axis + 1 :])
    data = Tensor.dense("float32", (outer, call.shape[axis], inner) if inner > 1 else (outer, call.shape[axis]))
    return Operation(Step(Kind.SOFTMAX, SOFTMAX[str(call.op_name)]), data, data)


def binary_shapes(match: Match) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Extents of both operands as the library takes them; None where it does not."""
    left, right, out = match["left"].tensor, match["right"].tensor, match["joined"].tensor
    if left.shape != out.shape:
        return None
    if right.shape == out.shape:
        return (out.size,), (out.size,)
    if right.size == 1:
        return (out.size,), (1,)
    if right.shape[-1] == right.size == out.shape[-1]:
        return (out.size // right.size, right.size), (1, right.size)
    return None


def _binary(match: Match) -> Operation:
    shapes = binary_shapes(match)
    assert shapes is not None  # the clause `shapes`
    left, right = (Tensor.dense("float32", shape) for shape in shapes)
    return Operation(Step(Kind.BINARY, BINARY[str(match.call("joined").op_name)]), left, left, other=right)


# --- products of matrices --------------------------------------------------------------------------------------------


def _side(match: Match, name: str) -> Tensor:
    """An operand of a product, (..., rows, columns)."""
    transposed = f"{name}_transposed"
    axes = match.call(transposed).attrs.axes if transposed in match.captures else None
    return Tensor.dense(match[name].dtype, match[name].shape, axes)


def _sides(match: Match) -> tuple[Tensor, Tensor]:
    """Both, with as few dimensions as can be, and as many in either."""
    a, b = _side(match, "data"), _side(match, "weight")
    if match.call("product").op_name in ("nn.dense", "qnn.dense"):
        b = Tensor(b.dtype, b.dims[::-1], b.strides[::-1])
    rows = math.prod(a.dims[:-1])
    if len(b.dims) == 2 and a == Tensor.dense(a.dtype, a.dims):  # all rows lie one below the other
        return Tensor.dense(a.dtype, (rows, a.dims[-1])), b
    rank = max(len(a.dims), len(b.dims))
    return _lifted(a, rank), _lifted(b, rank)


def _lifted(tensor: Tensor, rank: int) -> Tensor:
    more = rank - len(tensor.dims)
    size = math.prod(tensor.dims)
    return Tensor(tensor.dtype, (1,) * more + tensor.dims, (size,) * more + tensor.strides)


def batch_dimensions(match: Match) -> int:
    """How many dimensions a product has besides its rows and columns."""
    return len(_sides(match)[0].dims) - 2


def _matmul(match: Match) -> Operation:
    core = match.call("product")
    a, b = _sides(match)
    batch = tuple(max(pair) for pair in zip(a.dims[:-2], b.dims[:-2], strict=True))
    result = Tensor.dense(core.dtype, (*batch, a.dims[-2], b.dims[-1]))
    columns = result.dims[-1]
    return Operation(
        Step(Kind.MATMUL),
        a,
        result,
        b,
        Tensor.dense("float32", (1,) * (len(result.dims) - 1) + (columns,)) if "bias" in match.captures else None,
        result if "other" in match.captures else None,
        zero_point=int(core.attrs.input_zero_point) if a.dtype == "int8" else 0,
        posts=_posts(match),
        macs=core.tensor.size * a.dims[-1],
    )
