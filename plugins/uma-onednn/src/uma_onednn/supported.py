"""What oneDNN takes: patterns, and the conditions that they cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uma.hookspecs import Clause, Failed, Pattern
from uma.relay.pattern import Match, Term, any_, any_of, constant, op, optional, where, wildcard

from .exact import LARGEST_EXACT, largest_sum
from .match_reader import (
    ACTIVATIONS,
    BINARY,
    KEEPS_NO_NAN,
    MAX_BATCH_DIMENSIONS,
    SOFTMAX,
    UNARY,
    batch_dimensions,
    binary_shapes,
)

__all__ = ["make_patterns"]

_WINDOWED = {"strides": any_, "padding": any_}
_CONVOLVED = {**_WINDOWED, "dilation": any_, "groups": any_}


def make_patterns(*, int8: bool, keep_nan: bool) -> list[Pattern]:
    """The patterns, the largest first.

    Args:
        int8: whether integer products are among them.
        keep_nan: whether ops are left out whose results the library computes otherwise where data is not finite.
    """
    left_out = KEEPS_NO_NAN if keep_nan else frozenset()
    patterns = [_convolution(rank, left_out) for rank in (1, 2, 3)]
    patterns += [_product("nn.dense", left_out), _product("matmul", left_out)]
    if int8:
        patterns += [_int8_convolution(rank) for rank in (1, 2)] + [_int8_dense()]
    # The library's largest element is the smallest finite number where all are -inf or NaN.
    pooled = {"max": "int8" if keep_nan else ("float32", "int8"), "avg": "float32"}
    patterns += [_pool(rank, kind, dtypes) for kind, dtypes in pooled.items() for rank in (1, 2, 3)]
    patterns += [_global_pool(kind, dtypes) for kind, dtypes in pooled.items()]
    patterns += [_unary(name) for name in UNARY if name not in left_out]
    patterns += [_softmax(name) for name in SOFTMAX if name not in left_out]
    patterns += [_binary(name) for name in BINARY if name not in left_out]
    return patterns


def _name(relay_op: str) -> str:
    return f"onednn.{relay_op.replace('nn.', '')}" if not relay_op.startswith("qnn.") else f"onednn.int8_{relay_op[4:]}"


# --- what follows a product ------------------------------------------------------------------------------------------


def _finished(product: Term, left_out: frozenset[str]) -> Term:
    """A product, perhaps with a constant bias, perhaps with a residual, perhaps under an activation."""
    value = optional(product, lambda sums: op("add")(sums, constant("float32").named("bias")).named("biased"))
    value = optional(value, lambda sums: op("add")(sums, wildcard("float32").named("other")).named("joined"))
    activations = [_activation(value, name) for name in ACTIVATIONS if name not in left_out]
    return any_of(*activations, value)


def _activation(value: Term, name: str) -> Term:
    return op(name)(value, **dict.fromkeys(UNARY[name].attrs, any_)).named("activation")


def _bias_per_channel(match: Match) -> Failed | bool:
    bias = match.get("bias")
    if bias is None:
        return True
    product = match["product"]
    one_each = bias.shape[-1:] == product.shape[-1:] and bias.tensor.size == product.shape[-1]
    return (one_each and match["biased"].shape == product.shape) or Failed(bias.shape)


def _residual_shape(match: Match) -> Failed | bool:
    other = match.get("other")
    return other is None or other.shape == match["product"].shape or Failed(other.shape)


_FINISHED = (
    Clause("bias_per_channel", _bias_per_channel, "a bias has one number per channel; this has shape {value}"),
    Clause("residual_shape", _residual_shape, "what is added has the shape of the result; this has {value}"),
)


# --- float32 ---------------------------------------------------------------------------------------------------------


def _convolution(rank: int, left_out: frozenset[str]) -> Pattern:
    name = f"nn.conv{rank}d"
    product = op(name)(wildcard("float32").named("data"), constant("float32").named("weight"), **_CONVOLVED)
    return Pattern(_name(name), _finished(product.named("product"), left_out), _FINISHED)


def _keeps_rows_or_columns(axes: tuple[int, ...]) -> bool:
    return len(axes) - 1 in axes[-2:]


_AXES = where(_keeps_rows_or_columns, "permutations that leave the last dimension among the last two")


def _side(name: str) -> Term:
    data = wildcard("float32").named(name)
    return any_of(op("transpose")(data, axes=_AXES).named(f"{name}_transposed"), data)


def _product(name: str, left_out: frozenset[str]) -> Pattern:
    if name == "nn.dense":
        product = op(name)(wildcard("float32").named("data"), _side("weight")).named("product")
    else:
        product = op(name)(_side("data"), _side("weight")).named("product")
    few = Clause(
        "few_batch_dimensions",
        _few_batch_dimensions,
        f"a product has {MAX_BATCH_DIMENSIONS} dimensions besides its rows and columns at most; this has {{value}}",
    )
    return Pattern(_name(name), _finished(product, left_out), [*_FINISHED, few])


def _few_batch_dimensions(match: Match) -> Failed | bool:
    count = batch_dimensions(match)
    return count <= MAX_BATCH_DIMENSIONS or Failed(count)


_Dtypes = str | tuple[str, ...]


def _pool(rank: int, kind: str, dtypes: _Dtypes) -> Pattern:
    name = f"nn.{kind}_pool{rank}d"
    opened: Mapping[str, Any] = _WINDOWED if kind == "max" else {**_WINDOWED, "count_include_pad": any_}
    data = wildcard(dtypes).named("data")
    return Pattern(_name(name), op(name)(data, pool_size=any_, **opened).named("pool"))


def _global_pool(kind: str, dtypes: _Dtypes) -> Pattern:
    name = f"nn.global_{kind}_pool"
    data = wildcard(dtypes).named("data")
    few = Clause("few_dimensions", _few_dimensions, "the space has at most 3 dimensions; this has {value}")
    return Pattern(_name(name), op(name)(data).named("pool"), [few])


def _few_dimensions(match: Match) -> Failed | bool:
    space = len(match["data"].shape) - 2
    return space <= 3 or Failed(space)


def _unary(name: str) -> Pattern:
    return Pattern(_name(name), _activation(wildcard("float32").named("data"), name))


def _softmax(name: str) -> Pattern:
    return Pattern(_name(name), op(name)(wildcard("float32").named("data"), axis=any_).named("softmax"))


def _binary(name: str) -> Pattern:
    term = op(name)(wildcard("float32").named("left"), wildcard("float32").named("right")).named("joined")
    shapes = Clause(
        "shapes",
        lambda match: binary_shapes(match) is not None or Failed(f"{match['left'].shape} and {match['right'].shape}"),
        "the second operand is as large as the first, has one number for each of its channels, or one for all; these "
        "are {value}",
    )
    return Pattern(_name(name), term, [shapes])


# --- int8 ------------------------------------------------------------------------------------------------------------


def _int8_convolution(rank: int) -> Pattern:
    return _int8(f"qnn.conv{rank}d", _CONVOLVED)


def _int8_dense() -> Pattern:
    return _int8("qnn.dense", {})


def _int8(name: str, opened: Mapping[str, Any]) -> Pattern:
    data, weight = wildcard("int8").named("data"), constant("int8").named("weight")
    product = op(name)(data, weight, input_zero_point=any_, **opened).named("product")
    return Pattern(_name(name), product, [_EXACT])


def _sums_are_exact(match: Match) -> Failed | bool:
    largest = largest_sum(match)
    return largest <= LARGEST_EXACT or Failed(largest)


_EXACT = Clause(
    "exact_sums",
    _sums_are_exact,
    f"sums pass through float32, which holds whole numbers up to {LARGEST_EXACT}; of these weights they may be "
    "{value}",
)
