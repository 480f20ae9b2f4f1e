"""How the CPU computes what costs most: products by register tiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from uma.hookspecs import Fusion, Pass, Pattern, ScheduledKernel, Strategy
from uma.targets import Target

from .attention import ATTENTION, attended, attention_patterns
from .conv3d import volume_product
from .depthwise import windows
from .dot_products import dot
from .dsp import DSP_OPS, dsp_products
from .features import cpu_of, features_of
from .few_channels import few_channels
from .grouped_planes import multiply_planes
from .mve import mve
from .narrow_matmul import narrow_product
from .narrow_weights import narrow_weights
from .pools import POOLS, pooled
from .products import Operand, Product, product_of
from .resizes import resized
from .row_kernels import ELEMENTS, ROW_OPS, along_rows, by_elements
from .scalar_depthwise import small_planes
from .scalar_products import core_of, small_products
from .schedules import is_known, tiled
from .tiles import Tile, choose
from .transposes import transposed
from .vector_units import VectorModel, unit_of

__all__ = ["passes_of", "patterns_of", "strategies_of"]

_FLOATS = ("nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.dense", "matmul")
_INTEGERS = ("qnn.conv1d", "qnn.conv2d", "qnn.dense", "qnn.matmul")
_TRANSPOSITIONS = ("layout_transform", "transpose")


@dataclass(frozen=True)
class _Dot:
    """How products of small integers are added.

    Args:
        dtype: of the data.
        group: products that are added at once.
        cost: multiply-adds of `Unit` that this takes.
        spare: registers that it needs besides accumulators and weights.
    """

    dtype: str
    group: int
    cost: float
    spare: int


_BYTES: Mapping[str, _Dot] = {
    "avx512_vnni": _Dot("uint8", 4, 1, 1),
    "avx_vnni": _Dot("uint8", 4, 1, 1),
    "asimddp": _Dot("int8", 4, 1, 1),
    "asimd": _Dot("int8", 2, 2, 2),
}
"""Of bytes, with weights of int8, by the feature that a CPU has, the best first."""
_WORDS: Mapping[str, _Dot] = {"avx2": _Dot("int16", 2, 1.5, 2), "asimd": _Dot("int16", 2, 4, 4)}
"""Of int16."""
_REQUANTISED = 4.0
"""Cycles that it takes to make a vector of sums of products int8."""


def strategies_of(target: Target) -> list[Strategy]:
    """The strategies for a CPU: none where it has no vector unit that is known, or where size is what counts."""
    features = features_of(target)
    core = core_of(features, is_brief=target.get_attr("opt") == "s")
    if core is not None and target.get_attr("opt") != "0":
        paired = "dsp" in features and target.get_attr("opt") in ("2", "3", "s")
        vectors = [Strategy(name, lambda fusion, _: mve(fusion, features)) for name in _INTEGERS]
        pairs = [Strategy(name, lambda fusion, _: dsp_products(fusion, core.is_brief)) for name in DSP_OPS]
        planes = Strategy("qnn.conv2d", lambda fusion, _: small_planes(fusion, core))
        tiles = [Strategy(name, lambda fusion, _: small_products(fusion, core)) for name in _INTEGERS]
        return [*(vectors if "mve" in features else []), *(pairs if paired else []), planes, *tiles]
    unit = _float_unit(target)
    if unit is None:
        return []
    strategies = [Strategy(name, lambda fusion, _: _floats(fusion, unit)) for name in _FLOATS]
    strategies += [Strategy(name, lambda fusion, _: attended(fusion, unit)) for name in ATTENTION]
    if any(name in features for name in _WORDS):
        strategies += [Strategy(name, lambda fusion, _: _integers(fusion, unit, features)) for name in _INTEGERS]
    strategies += [Strategy(name, lambda fusion, _: pooled(fusion, unit)) for name in POOLS]
    strategies += [Strategy(name, lambda fusion, _: along_rows(fusion, unit)) for name in ROW_OPS]
    strategies += [Strategy(name, lambda fusion, _: by_elements(fusion, unit)) for name in ELEMENTS]
    strategies += [Strategy(name, lambda fusion, _: transposed(fusion, unit)) for name in _TRANSPOSITIONS]
    return [*strategies, Strategy("nn.resize_nearest", lambda fusion, _: resized(fusion))]


def patterns_of(target: Target) -> list[Pattern]:
    """What is computed together by a strategy of its own."""
    unit = _float_unit(target)
    return [] if unit is None else attention_patterns(unit)


def passes_of(target: Target) -> list[Pass]:
    """Weights that memory gives slowly, in few bits; pictures with the channels first, multiplied as planes."""
    unit = _float_unit(target)
    return [] if unit is None else [multiply_planes(4 * unit.lanes), narrow_weights(8 * unit.cache_bytes)]


def _float_unit(target: Target) -> VectorModel | None:
    """The vector unit of a CPU by whose tiles floats are computed; None where there is none, or size is what counts."""
    features = features_of(target)
    is_fast = "fma" in features and target.get_attr("opt") in ("2", "3")
    return unit_of(cpu_of(target), features) if is_fast else None


_OFTEN = 8
"""Rows that are multiplied by the same weights; of small integers, which gain more, half of them are enough."""


def _floats(fusion: Fusion, unit: VectorModel) -> ScheduledKernel | None:
    assert fusion.anchor is not None
    if fusion.anchor.dtype != "float32":
        return None
    if (narrow := narrow_product(fusion, unit)) is not None:
        return narrow
    is_volume = fusion.anchor.op_name == "nn.conv3d"
    product = volume_product(fusion) if is_volume else product_of(fusion, Operand("float32"))
    if product is None or not _worthwhile(fusion, product):
        return None
    if (few := few_channels(fusion, product, unit)) is not None:
        return few
    tile = choose(
        _pixels(product),
        product.shape[-1],
        math.prod(product.taps),
        4,
        unit,
        row=product.row,
        pitch=4 * product.pitch,
    )
    return None if tile is None else tiled(fusion, product, tile, unit)


def _integers(fusion: Fusion, unit: VectorModel, features: Collection[str]) -> ScheduledKernel | None:
    """Products of bytes, four at a time, where the CPU has an instruction for that; else of int16, two at a time. Where
    each channel has data of its own, one at a time.
    """
    assert fusion.anchor is not None
    data, weight = (arg.dtype for arg in fusion.anchor.args)
    attrs = fusion.anchor.attrs
    zero, weight_zero = attrs.input_zero_point, attrs.kernel_zero_point
    if data == "int16" and (zero or weight_zero):
        return None
    call = fusion.anchor
    is_depthwise = dict(attrs.items).get("groups", 1) == call.args[0].shape[-1] == call.shape[-1] > 1
    if is_depthwise:
        scheduled = windows(fusion, unit, features)
        if scheduled is not None:
            return scheduled
    by_bytes = weight == "int8" and not weight_zero and data in ("int8", "uint8") and not is_depthwise
    how = next((dot for name, dot in _BYTES.items() if name in features), None) if by_bytes else None
    if how is not None:
        up = 0 if data == how.dtype else 128 if data == "int8" else -128
        operand, kept = Operand(how.dtype, up, zero + up, how.group), "int8"
    else:
        how = next(dot for name, dot in _WORDS.items() if name in features)
        operand = Operand(how.dtype, -zero, 0, 1 if is_depthwise else how.group)
        # Bytes are widened where they are loaded: they are half of what the cache has to give.
        kept = "int32" if is_depthwise else "int8" if weight == "int8" and not weight_zero else "int16"
    product = product_of(fusion, operand)
    if product is None or not _worthwhile(fusion, product):
        return None
    tile = _integer_tile(product, how, operand, kept, unit)
    if tile is None:
        return None
    merged = _merged(fusion, product, tile, lambda other: _integer_tile(other, how, operand, kept, unit), operand, unit)
    product, tile = merged or (product, tile)
    if kept != "int8":
        product = replace(product, weight=product.less(weight_zero, kept))
    if is_depthwise:
        return tiled(fusion, product, tile, unit)
    instruction = dot(operand.group, tile.lanes, operand.dtype, kept)
    return tiled(fusion, product, tile, unit, instruction, operand.zero)


_FASTER, _LARGER = 1.1, 2.0
"""Groups of channels are merged where that is at least so many times as fast, and takes less than so many times the
memory for weights."""


def _merged(
    fusion: Fusion,
    product: Product,
    tile: Tile,
    tile_of: Callable[[Product], Tile | None],
    operand: Operand,
    unit: VectorModel,
) -> tuple[Product, Tile] | None:
    """Return the product of integers with several groups of channels merged into one that fills at most a vector, and
    its tile; None where no such product is faster.
    """
    groups, channels = product.groups, product.shape[-1]
    best, cycles = None, tile.cycles * groups / _FASTER
    for count in range(2, min(groups, unit.lanes // channels) + 1):
        other = product_of(fusion, operand, count) if groups % count == 0 else None
        wider = None if other is None else tile_of(other)
        if other is None or wider is None or wider.cycles * other.groups >= cycles:
            continue
        if _packed(other, wider, operand) < _LARGER * _packed(product, tile, operand):
            best, cycles = (other, wider), wider.cycles * other.groups
    return best


def _packed(product: Product, tile: Tile, operand: Operand) -> int:
    """Return how many weights a product has in the order in which tiles read them."""
    return product.groups * -(-product.shape[-1] // tile.channels) * tile.channels * _steps(product, operand)


def _steps(product: Product, operand: Operand) -> int:
    """Return how often something is added to each sum of integers."""
    return -(-product.taps[-1] // operand.group) * math.prod(product.taps[:-1])


def _integer_tile(product: Product, how: _Dot, operand: Operand, kept: str, unit: VectorModel) -> Tile | None:
    """The tile of a product of integers whose weights are of the dtype ``kept``; None where there is none."""
    return choose(
        _pixels(product),
        product.shape[-1],
        _steps(product, operand),
        operand.group * np.dtype(kept).itemsize,
        unit,
        cost=how.cost,
        epilogue=_REQUANTISED,
        spare=how.spare,
        row=product.row,
        pitch=np.dtype(operand.dtype).itemsize * product.pitch,
    )


def _pixels(product: Product) -> int:
    return product.shape[-2] if len(product.shape) > 1 else 1


def _worthwhile(fusion: Fusion, product: Product) -> bool:
    """Whether weights that are not constants, which are brought into order in each run, are read often enough."""
    assert fusion.anchor is not None
    enough = _OFTEN if fusion.anchor.dtype == "float32" else _OFTEN // 2
    return is_known(fusion) or math.prod(product.shape[product.batches : -1]) >= enough
