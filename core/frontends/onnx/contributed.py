"""Float operators of the domain com.microsoft that onnxruntime's optimiser writes into models.

Source: ContribOperators.md of onnxruntime.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Constant, Expr
from ...relay.ops.common import broadcast_shapes
from ...tir.form.dtype import is_float
from ..compositions import positions
from .activations import ACTIVATIONS
from .arith import ARITH
from .context import Context, Converter, Value
from .conv_pool import WINDOWS
from .data_movement import MOVES
from .fold import limited
from .narrow_dtypes import NARROW
from .quant import dequantized

if TYPE_CHECKING:
    import numpy as np

__all__ = ["CONTRIBUTED"]


def _one(result: Value | Sequence[Value]) -> Expr:
    assert isinstance(result, Expr)
    return result


def _float(c: Context, index: int) -> Expr:
    """Return input `index`; ModelError if it is not a float tensor."""
    data = c.expr(index)
    if not is_float(data.dtype):
        raise ModelError(f"its input {index} is {data.dtype}, not a float")
    return data


def _require_shape(name: str, expr: Expr, *shapes: tuple[int, ...]) -> Expr:
    """Return `expr`; ModelError unless it has one of `shapes`."""
    if expr.shape not in shapes:
        raise ModelError(f"its {name} has the shape {expr.shape}, not {' or '.join(map(str, dict.fromkeys(shapes)))}")
    return expr


# --- activations -----------------------------------------------------------------------------------------------------

_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "Clip": ("min", "max"),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Selu": ("alpha", "gamma"),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}
"""The parameters of each activation that a fused operator applies to its result."""


def _activated(c: Context, data: Expr, parameters: Callable[[tuple[str, ...]], Mapping[str, float]]) -> Expr:
    """Apply the activation that the node names to `data`.

    Args:
        c: the node.
        data: its result before the activation.
        parameters: returns the values of the parameters of these names.
    """
    from onnx import helper

    name = c.node.text("activation", "")
    if not name:
        return data
    if name not in _PARAMETERS:
        raise ModelError(f"its activation {name!r} is not supported", hint=f"supported: {', '.join(_PARAMETERS)}")
    values = parameters(_PARAMETERS[name])
    if name == "Clip":
        low, high = values["min"], values["max"]
        if not low <= high:
            raise ModelError(f"its Clip activation has the limits {low} and {high}")
        return c.call("clip", data, a_min=low, a_max=high)
    attributes = {key: helper.make_attribute(key, value) for key, value in values.items()}
    converter = ACTIVATIONS.get(name) or ARITH[name]
    return _one(converter(replace(c, node=replace(c.node, attributes=attributes), values=[data])))


def _fused_conv(c: Context) -> Expr:
    """Conv, plus a tensor Z of the result's shape, then an activation."""
    result = _one(
        WINDOWS["Conv"](c.with_inputs(*(_float(c, i) if c.has(i) else None for i in range(min(3, len(c.values))))))
    )
    if c.has(3):
        result = c.call("add", result, _require_shape("addend Z", _float(c, 3), result.shape))

    def parameters(names: tuple[str, ...]) -> Mapping[str, float]:
        values = c.node.reals("activation_params") if c.node.has("activation_params") else ()
        if len(values) != len(names):
            raise ModelError(f"it has {len(values)} activation_params; {c.node.text('activation')} has {len(names)}")
        return dict(zip(names, values, strict=True))

    return _activated(c, result, parameters)


def _fused_gemm(c: Context) -> Expr:
    """Gemm, then an activation, whose parameters are those of ONNX's operator unless the node has others."""
    result = _one(ARITH["Gemm"](c.with_inputs(*(_float(c, i) if c.has(i) else None for i in range(len(c.values))))))

    def parameters(names: tuple[str, ...]) -> Mapping[str, float]:
        return {n: c.node.real(f"activation_{n}") for n in names if c.node.has(f"activation_{n}")}

    return _activated(c, result, parameters)


def _fused_matmul(c: Context) -> Expr:
    """alpha * A @ B, each perhaps with its first dimension moved before the last, then its last two swapped."""

    def operand(index: int, letter: str) -> Expr:
        data = _float(c, index)
        axes = list(range(len(data.shape)))
        if len(axes) > 1 and c.node.integer(f"transBatch{letter}", 0):
            axes.insert(len(axes) - 2, axes.pop(0))
        if len(axes) > 1 and c.node.integer(f"trans{letter}", 0):
            axes[-2:] = reversed(axes[-2:])
        return c.permute(data, axes) if axes != sorted(axes) else data

    a, b, alpha = operand(0, "A"), operand(1, "B"), c.node.real("alpha", 1.0)
    if isinstance(b, Constant):
        b, alpha = c.constant((b.data * alpha).astype(b.dtype)), 1.0
    return c.scaled(_one(ARITH["MatMul"](c.with_inputs(a, b))), alpha)


def _biased(c: Context) -> Expr:
    """Return the data plus a bias of its last dimension, if the node has one."""
    data = _float(c, 0)
    return c.call("add", data, _require_shape("bias", c.expr(1), data.shape[-1:])) if c.has(1) else data


def _gelu(approximate: str) -> Converter:
    return lambda c: c.call("nn.gelu", _biased(c), approximate=approximate)


def _quick_gelu(c: Context) -> Expr:
    data = _float(c, 0)
    return c.call("multiply", data, c.call("sigmoid", c.scaled(data, c.node.real("alpha", 1.702))))


# --- normalisation ---------------------------------------------------------------------------------------------------


def _normalised(c: Context, op: str, data: Expr, gamma: Expr, beta: Expr | None) -> Expr:
    """Return `data` normalised over its last dimension by `op`, times gamma, plus beta."""
    hidden = data.shape[-1:]
    result = c.call(op, data, axis=(len(data.shape) - 1,), epsilon=c.node.real("epsilon", 1e-12))
    result = c.call("multiply", result, _require_shape("gamma", gamma, hidden))
    return result if beta is None else c.call("add", result, _require_shape("beta", beta, hidden))


def _skip_norm(op: str, is_centred: bool) -> Converter:
    """Return the converter of a normalised sum of data, skip and bias; the sum itself is the fourth result."""

    def convert(c: Context) -> Sequence[Value]:
        data, skip = _float(c, 0), _float(c, 1)
        if len(data.shape) not in (2, 3):
            raise ModelError(f"its data has the shape {data.shape}, not 2 or 3 dimensions")
        skips = (data.shape, data.shape[1:], (1, *data.shape[1:])) if len(data.shape) == 3 else (data.shape,)
        total: Expr = c.call("add", data, _require_shape("skip", skip, *skips))
        bias = 4 if is_centred else 3
        if c.has(bias):
            total = c.call("add", total, _require_shape("bias", c.expr(bias), data.shape[-1:]))
        if any(name and c.uses[name] for name in c.node.outputs[1:3]):
            raise ModelError("its mean or inv_std_var is used, which only training does")
        beta = c.expr(3) if is_centred and c.has(3) else None
        result = _normalised(c, op, total, c.expr(2), beta)
        return [result, result, result, total]

    return convert


def _embedding(c: Context) -> Sequence[Value]:
    """Return the normalised sum of rows for words, positions and segments, the count of unmasked words, the sum."""
    import numpy as np

    ids = c.expr(0)
    if len(ids.shape) != 2:
        raise ModelError(f"its input_ids have the shape {ids.shape}, not (batch, sequence)")

    def rows(table: int, indices: Expr) -> Expr:
        if len(c.value(table).shape) != 2 or c.value(table).shape[1] != c.value(2).shape[-1]:
            raise ModelError(f"its table {c.node.inputs[table]!r} has the shape {c.value(table).shape}")
        return _one(MOVES["Gather"](c.with_inputs(_float(c, table), indices)))

    total = rows(2, ids)
    if c.has(8):
        places = _require_shape("position_ids", c.expr(8), ids.shape, (1, ids.shape[1]))
        total = c.call("add", total, rows(3, places))
    else:
        table, length = _float(c, 3), ids.shape[1]
        if len(table.shape) != 2 or table.shape[1] != total.shape[-1] or not table.shape[0] >= length:
            raise ModelError(f"its position table of shape {table.shape} does not fit {length} words")
        end = (length, table.shape[1])
        total = c.call("add", total, c.call("strided_slice", table, begin=(0, 0), end=end, strides=(1, 1)))
    if c.has(1) != c.has(4):
        raise ModelError("it has segment ids or a segment table without the other")
    if c.has(1):
        total = c.call("add", total, rows(4, _require_shape("segment_ids", c.expr(1), ids.shape)))
    count: Expr = c.call("broadcast_to", c.constant(np.zeros(1, np.int32)), shape=ids.shape[:1])
    if c.has(7):
        mask = _require_shape("mask", c.expr(7), ids.shape)
        ones = c.cast(c.call("equal", mask, c.scalar(1, mask)), "int32")
        count = c.call("sum", ones, axis=(1,), keepdims=False)
    return [_normalised(c, "nn.layer_norm", total, c.expr(5), c.expr(6)), count, total]


# --- attention -------------------------------------------------------------------------------------------------------


def _attention(c: Context) -> Expr:
    """Multi-head attention of data with itself, with one product for queries, keys and values."""
    data, weight, heads = _float(c, 0), _float(c, 1), c.node.integer("num_heads")
    if c.has(4) or c.has(6) or c.node.integer("past_present_share_buffer", 0):
        raise ModelError("it has a past state, which is not supported", hint="export the model without a cache")
    if c.node.integer("do_rotary", 0):
        raise ModelError("it has do_rotary, which is not supported")
    if len(data.shape) != 3 or len(weight.shape) != 2 or weight.shape[0] != data.shape[2]:
        raise ModelError(f"it has data of shape {data.shape} and weights of shape {weight.shape}")
    batch, length, _ = data.shape
    third = weight.shape[1] // 3
    sizes = c.node.integers("qkv_hidden_sizes", (third, third, third))
    if (
        heads < 1
        or len(sizes) != 3
        or sizes[0] != sizes[1]
        or sum(sizes) != weight.shape[1]
        or any(size < 1 or size % heads for size in sizes)
    ):
        raise ModelError(f"its weights of shape {weight.shape} do not divide into sizes {sizes} of {heads} heads")
    joint = _one(ARITH["MatMul"](c.with_inputs(data, weight)))
    if c.has(2):
        joint = c.call("add", joint, _require_shape("bias", c.expr(2), weight.shape[1:]))
    parts = c.call("split", joint, indices=(sizes[0], sizes[0] + sizes[1]), axis=2)

    def by_head(index: int) -> Expr:
        apart = c.reshape(c.field(parts, index), (batch, length, heads, sizes[index] // heads))
        return c.permute(apart, (0, 2, 1, 3))

    scale = c.node.real("scale", 0.0) or 1 / math.sqrt(sizes[0] // heads)
    queries, keys, values = map(by_head, range(3))
    mask = _attention_mask(c, batch, length)
    if c.has(5):
        bias = c.expr(5)
        shape = (batch, heads, length, length)
        if len(bias.shape) != 4 or bias.shape[2:] != shape[2:] or broadcast_shapes(bias.shape, shape) != shape:
            raise ModelError(f"its attention_bias has the shape {bias.shape}, not {shape}")
        mask = bias if mask is None else c.call("add", mask, bias)
    mixed = c.call("nn.attention", queries, keys, values, *(() if mask is None else (mask,)), scale=scale)
    return c.reshape(c.permute(mixed, (0, 2, 1, 3)), (batch, length, sizes[2]))


def _attention_mask(c: Context, batch: int, length: int) -> Expr | None:
    """Return what the node adds to scores, which broadcasts to (batch, heads, queries, keys); None for nothing."""
    import numpy as np

    data = c.expr(0)
    mask = _masked(c, batch, length)
    if mask is not None:
        away = c.scalar(c.node.real("mask_filter_value", -10000.0), data)
        mask = c.call("where", mask, c.scalar(0, data), away)
    if not c.node.integer("unidirectional", 0):
        return mask
    past = c.call("less_equal", positions(c, length, 4, 3), positions(c, length, 4, 2))
    least = c.scalar(float(np.finfo(data.dtype).min), data)
    return c.call("where", past, c.scalar(0, data) if mask is None else mask, least)


def _masked(c: Context, batch: int, length: int) -> Expr | None:
    """Return which keys the mask keeps, (batch, 1, 1 or queries, keys); None if it keeps all."""
    if not c.has(3):
        return None
    mask = c.expr(3)
    if mask.dtype != "int32":
        raise ModelError(f"its mask_index is {mask.dtype}, not int32")
    if mask.shape in ((batch,), (2 * batch,)):
        place = positions(c, length, 4, 3)
        ends = c.call("strided_slice", mask, begin=(0,), end=(batch,), strides=(1,))
        is_inside = c.call("less", place, c.reshape(ends, (batch, 1, 1, 1)))
        if mask.shape == (batch,):
            return is_inside
        begins = c.call("strided_slice", mask, begin=(batch,), end=(2 * batch,), strides=(1,))
        return c.call("logical_and", is_inside, c.call("greater_equal", place, c.reshape(begins, (batch, 1, 1, 1))))
    if mask.shape in ((batch, length), (batch, length, length)):
        is_inside = c.call("greater", mask, c.scalar(0, mask))
        return c.reshape(is_inside, (batch, *(1 for _ in range(4 - len(mask.shape))), *mask.shape[1:]))
    if mask.shape in ((batch, 1), (1, 1)):
        return None  # the same is added to all scores, which changes nothing
    message = f"its mask_index has the shape {mask.shape} for {batch} sequences of {length}"
    raise ModelError(message, hint="(B), (2 B), (B, S) and (B, S, S) are supported")


# --- weights of few bits ---------------------------------------------------------------------------------------------


def _unpacked(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """Return the first `count` numbers of each row of bytes, which hold several numbers, the lowest bits first."""
    import numpy as np

    narrow = {2: NARROW[25], 4: NARROW[21]}.get(bits)
    if narrow is None:
        return packed[:, :count]
    each = 8 // bits
    limited((packed.size, each), np.uint8)
    return narrow.decoded(packed.reshape(-1), packed.size * each).reshape(len(packed), -1)[:, :count]


def _matmul_nbits(c: Context) -> Expr:
    """A product with the transpose of weights (N, K) of 2, 4 or 8 bits, which have a scale per block of a row."""
    import numpy as np

    data, packed = _float(c, 0), c.known(1)
    bits, block = c.node.integer("bits", 4), c.node.integer("block_size")
    rows, depth = c.node.integer("N"), c.node.integer("K")
    if c.has(4):
        raise ModelError("it has g_idx, which is not supported", hint="quantise the model without act_order")
    if c.node.integer("weight_prepacked", 0):
        raise ModelError("its weight is prepacked for a GPU, which is not supported")
    if bits not in (2, 4, 8) or block < 16 or block & (block - 1) or rows < 1 or depth < 1:
        message = f"it has {rows} rows of {depth} weights of {bits} bits in blocks of {block}"
        raise ModelError(message, hint="bits are 2, 4 or 8, block_size is a power of 2 from 16 on")
    if not data.shape or data.shape[-1] != depth:
        raise ModelError(f"its data has the shape {data.shape}, its weights {depth} columns")
    blocks = -(-depth // block)
    limited((rows, blocks, block), np.uint8)
    shape = (rows, blocks, block * bits // 8)
    if packed.dtype != np.uint8 or packed.shape != shape:
        raise ModelError(f"its weight is {packed.dtype} of shape {packed.shape}, not uint8 of {shape}")
    codes = _unpacked(packed.reshape(rows, -1), bits, depth)
    scales = c.known(2)
    if scales.size != rows * blocks or scales.dtype != data.dtype:
        raise ModelError(f"its scales are {scales.dtype} of shape {scales.shape}, not {data.dtype} of {rows, blocks}")
    zeros = np.full((rows, blocks), 1 << (bits - 1), np.uint8)
    if c.has(3):
        zeros = c.known(3)
        if zeros.dtype == np.uint8 and zeros.size == rows * -(-blocks * bits // 8):
            zeros = _unpacked(zeros.reshape(rows, -1), bits, blocks)
        elif zeros.dtype != data.dtype or zeros.size != rows * blocks:
            raise ModelError(f"its zero points are {zeros.dtype} of shape {zeros.shape} for {rows, blocks} blocks")
    parameters = (c.constant(array.reshape(rows, blocks)) for array in (scales, zeros))
    weight = dequantized(c.with_inputs(data, *parameters), c.constant(codes), 1, 1)
    result: Expr = c.call("nn.dense", data, weight)
    return c.call("add", result, _require_shape("bias", c.expr(5), (rows,))) if c.has(5) else result


CONTRIBUTED: Mapping[str, tuple[Callable[[Context], Value | Sequence[Value]], str]] = {
    "Attention": (
        _attention,
        "do_rotary mask_filter_value num_heads past_present_share_buffer qkv_hidden_sizes rotary_embedding_dim scale "
        "unidirectional",
    ),
    "BiasGelu": (_gelu("none"), ""),
    "EmbedLayerNormalization": (_embedding, "epsilon mask_index_type"),
    "FastGelu": (_gelu("tanh"), ""),
    "FusedConv": (
        _fused_conv,
        "activation activation_params auto_pad dilations group kernel_shape pads strides",
    ),
    "FusedGemm": (
        _fused_gemm,
        "activation activation_alpha activation_beta activation_gamma alpha beta transA transB",
    ),
    "FusedMatMul": (_fused_matmul, "alpha transA transB transBatchA transBatchB"),
    "Gelu": (_gelu("none"), ""),
    "MatMulNBits": (_matmul_nbits, "K N accuracy_level bits block_size weight_prepacked"),
    "QuickGelu": (_quick_gelu, "alpha"),
    "SkipLayerNormalization": (_skip_norm("nn.layer_norm", True), "epsilon"),
    "SkipSimplifiedLayerNormalization": (_skip_norm("nn.rms_norm", False), "epsilon"),
}
"""How each operator of com.microsoft becomes expressions, and the names of its attributes."""
