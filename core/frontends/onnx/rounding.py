"""Which results of a node are of a narrow type, and how they become its values: see `narrow`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ...errors import ModelError
from ...relay.expr import Call, Constant, Expr, call, const
from ...relay.ops.common import normalise_axes
from .context import Context, Value
from .narrow_dtypes import NARROW, Narrow
from .proto import OPSETS, Node

__all__ = ["STEPWISE", "fitted", "narrow_results", "stored", "widened"]

Kinds = Sequence[Narrow | None]

_ASKED = ("to", "dtype", "output_dtype", "output_datatype")
"""Attributes that say the type of the first result."""

_LIKE = ("Bernoulli", "EyeLike", "RandomNormalLike", "RandomUniformLike")
"""Operators whose result has the type of the first input, unless it is said."""

_MOVES = (
    *("Abs", "Clip", "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GatherElements", "GatherND"),
    *("Identity", "Max", "MaxPool", "GlobalMaxPool", "Min", "Neg", "Pad", "ReduceMax", "ReduceMin", "Relu", "Reshape"),
    *("Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Where"),
)
"""Operators whose results are elements of their inputs, or their negatives: there is nothing to round."""


STEPWISE = ("LogSoftmax", "Softmax")
"""Operators that ONNX's reference rounds at each step of their bodies, where their data is of a narrow type."""


MAX_PARTIAL_SUMS = 64
"""Terms of a sum of which each partial sum is rounded; longer ones are added up in float32."""


def narrow_results(node: Node, kinds: Kinds) -> list[Narrow | None]:
    """The narrow types among those of a node's results.

    Args:
        node: of ONNX's own domain, or of another.
        kinds: of its inputs, None for one that is of another type, or left out.

    Raises:
        ModelError: nothing is known of what this operator makes of a narrow type.
    """
    none: list[Narrow | None] = [None] * len(node.outputs)
    asked = next((node.integer(name) for name in _ASKED if node.has(name)), 0)
    if asked and not node.domain:
        asked_kind = NARROW.get(asked)
        other = asked_kind or next(iter(kinds), None)
        if node.op == "BitCast" and other is not None:
            raise ModelError(f"it reads no {other.name} as another type")
        return [asked_kind, *none[1:]]
    if node.op in ("Constant", "ConstantOfShape") and node.has("value"):
        return [NARROW.get(node.attributes["value"].t.data_type), *none[1:]]
    if node.op == "Constant" and node.has("sparse_value"):
        return [NARROW.get(node.attributes["sparse_value"].sparse_tensor.values.data_type), *none[1:]]
    present = [kind for kind in kinds if kind is not None]
    if not present:
        return none
    if node.domain:
        raise ModelError(f"one of its inputs is {present[0].name}, which operators of other domains do not take")
    if node.op in _LIKE:
        return [kinds[0], *none[1:]]
    formals, results = _type_names(node.op, node.opset)
    if not formals:
        raise ModelError(f"it takes no inputs, and is given {len(kinds)}")
    names = [formals[min(position, len(formals) - 1)] for position in range(len(kinds))]
    by_name = {name: kind for name, kind in zip(names, kinds, strict=True) if kind is not None}
    if node.op == "DequantizeLinear":  # from opset 23 on its result has a type of its own
        by_name.setdefault("T3", next(iter(kinds[1:]), None) or _NO)
    names_of_results = [results[min(position, len(results) - 1)] for position in range(len(node.outputs))]
    return [kind if (kind := by_name.get(name)) is not _NO else None for name in names_of_results]


_NO = Narrow("", 0, 0, "", "")


@cache
def _type_names(op: str, opset: int) -> tuple[list[str], list[str]]:
    """What the schema calls the types of an operator's inputs and results."""
    from onnx import defs

    for version in (opset if opset in OPSETS else OPSETS[-1], OPSETS[-1]):
        try:
            schema = defs.get_schema(op, version, "")
        except defs.SchemaError:
            continue
        return [formal.type_str for formal in schema.inputs], [formal.type_str for formal in schema.outputs]
    raise ModelError("nothing is known of its types")


def fitted(c: Context, value: Value, kind: Narrow | None) -> Value:
    """A result, as values of its type.

    Args:
        c: of the node that it is a result of.
        value: as the node's converter made it, of a wider type.
        kind: its type; None where that is wide enough.
    """
    if kind is None or c.node.op in _MOVES:
        return value
    if not kind.is_float and c.node.op in ("Cast", "CastLike"):
        return _wrapped(c, kind)
    if not isinstance(value, Expr):
        return kind.nearest(value)
    if isinstance(value, Constant):
        return kind.nearest(value.data)
    if kind.is_float:
        if is_widened(value):
            return value
        if c.node.op == "ReduceSum" and kind.name == "bfloat16":
            value = _summed(c, value)
        return _rounded(c, c.cast(value, kind.value_dtype), kind)
    low, high = kind.bounds
    return c.call("clip", value, a_min=low, a_max=high) if c.node.op == "QuantizeLinear" else value


def _rounded(c: Context, value: Expr, kind: Narrow) -> Expr:
    if kind.name == "float16":
        return c.cast(c.cast(value, "float16"), "float32")
    return c.call("bfloat16_value", c.call("bfloat16_bits", value))


def _summed(c: Context, value: Expr) -> Expr:
    """A sum of bfloat16 along one axis: of few terms, each partial sum is rounded, as by ONNX's reference."""
    data, kind = c.expr(0), NARROW[16]
    axes = normalise_axes(c.known_integers(1), len(data.shape)) if c.has(1) else ()
    if len(axes) != 1 or data.shape[axes[0]] > MAX_PARTIAL_SUMS:
        return value
    parts: list[Expr] = []
    for place in range(data.shape[axes[0]]):
        begin, end = [0] * len(data.shape), list(data.shape)
        begin[axes[0]], end[axes[0]] = place, place + 1
        part = c.call("strided_slice", data, begin=begin, end=end, strides=[1] * len(begin))
        parts.append(_rounded(c, c.call("add", parts[-1], part), kind) if parts else part)
    return c.reshape(parts[-1], value.shape)


def _wrapped(c: Context, kind: Narrow) -> Value:
    """What is cast to small integers: whole numbers, of which the low bits are kept."""
    value = c.value(0)
    if not isinstance(value, Expr):
        return kind.nearest(value.astype("int32"))
    low, mask = kind.bounds[0], (1 << kind.bits) - 1
    narrow = c.call("bitwise_and", c.cast(value, "int32"), const(mask))
    if low:
        # The sign bit, on its own, counts twice: once too much, once too little.
        narrow = c.call("subtract", c.call("bitwise_xor", narrow, const(-low)), const(-low))
    return c.cast(narrow, kind.value_dtype)


def widened(stored: Expr, kind: Narrow | None) -> Expr:
    """An input of the model as its values."""
    if kind is None or not kind.is_float:
        return stored
    if kind.name == "float16":
        return call("cast", stored, dtype="float32")
    return call("bfloat16_value", stored)


def stored(value: Expr, kind: Narrow | None) -> Expr:
    """An output of the model as it is stored."""
    if kind is None or not kind.is_float:
        return value
    if is_widened(value):
        assert isinstance(value, Call)
        return value.args[0]
    if kind.name == "float16":
        return call("cast", value, dtype="float16")
    return call("bfloat16_bits", value)


def is_widened(value: Expr) -> bool:
    """Whether ``value`` is what was stored as a narrow float."""
    if not isinstance(value, Call):
        return False
    return value.op_name == "bfloat16_value" or (value.op_name == "cast" and value.args[0].dtype == "float16")
