"""Operators that move elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...errors import ModelError
from ...relay.expr import Constant, Expr, TupleGetItem, call
from ...relay.op import Bounds
from ...relay.scaling import find_fixed_point
from .layer import QUANTISED, Importer, Layer, quantisation

__all__ = ["SHAPE"]

MAX_SIDE = 1 << 14
"""Of an image that is resized: a call says for each row and column of its result where it comes from."""


def _raw(layer: Layer, position: int = 0) -> Expr:
    """The operand that is moved; its elements must mean the same before and after."""
    source = layer.tensor(position)
    for i in range(layer.outputs):
        if layer.output(i).dtype != source.dtype:
            raise ModelError(f"it turns {source.dtype} into {layer.output(i).dtype}")
    return layer.value(position)


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ModelError(f"its axis {axis} is not one of {rank} dimensions")
    return axis % rank


def _reshape(layer: Layer) -> Expr:
    data = _raw(layer)
    shape = layer.integers(1, "shape") if layer.has(1) else layer.options["new_shape"]
    if shape == (0,):
        shape = ()  # how old converters wrote a scalar
    known = 1
    for extent in shape:
        known *= 1 if extent == -1 else extent
    if list(shape).count(-1) > 1 or any(extent < -1 for extent in shape) or known < 1:
        raise ModelError(f"its shape is {shape}")
    return call("reshape", data, newshape=[data.tensor.size // known if extent == -1 else extent for extent in shape])


def _transpose(layer: Layer) -> Expr:
    data = _raw(layer)
    rank = len(data.shape)
    axes = [_axis(axis, rank) for axis in layer.integers(1, "permutation")]
    return call("transpose", data, axes=axes)


def _squeeze(layer: Layer) -> Expr:
    data = _raw(layer)
    dims = tuple(sorted({_axis(axis, len(data.shape)) for axis in layer.options["squeeze_dims"]}))
    return call("squeeze", data, axis=dims)


def _expand_dims(layer: Layer) -> Expr:
    data = _raw(layer)
    axis = _axis(layer.integer(1, "axis"), len(data.shape) + 1)
    return call("reshape", data, newshape=(*data.shape[:axis], 1, *data.shape[axis:]))


def _concatenation(layer: Layer) -> Expr:
    dtype = layer.dtypes("float32", "int8", "uint8", "int16", "int32", "int64", "bool")
    values = [layer.value(i) for i in range(max(1, layer.count))]
    if dtype == "uint8" and layer.output().quantisation is not None:
        values = [_rescaled(layer, i) for i in range(layer.count)]
    else:
        layer.same_quantisation(layer.output(), *(layer.tensor(i) for i in range(layer.count)))
    axis = _axis(layer.options["axis"], len(values[0].shape))
    return layer.activated(call("concatenate", *values, axis=axis))


def _rescaled(layer: Layer, position: int) -> Expr:
    """A uint8 operand with the scale and zero point of the result.

    The kernel computes ``round(stored * scale + bias) + zero point`` in float32, halves away from zero (TFLite,
    ``ConcatenationWithScaling``; of int8 it takes only what needs no scaling).
    """
    import numpy as np

    given, wanted = quantisation(layer.tensor(position)), quantisation(layer.output())
    if given == wanted:
        return layer.value(position)
    (_, zero_point), (out_scale, out_zero) = given, wanted
    with np.errstate(all="ignore"):
        scale = np.float32(given[0]) * (np.float32(1) / np.float32(out_scale))
        real = np.arange(256, dtype=np.float32) * scale + np.float32(-zero_point) * scale
    table = np.copysign(np.floor(np.abs(real.astype(np.float64)) + 0.5), real)
    found = None
    if np.isfinite(table).all():
        found = find_fixed_point(table, -zero_point, float(scale), Bounds(-out_zero, 255 - out_zero))
    if found is None:
        raise ModelError(f"operand {position} is scaled by a float32 that no fixed point equals")
    zeros = {"input_zero_point": zero_point, "output_zero_point": out_zero}
    return call("qnn.requantize", layer.value(position), scale=found, dtype="uint8", **zeros)


def _parts(layer: Layer, data: Expr, axis: int, sizes: Sequence[int]) -> list[Expr]:
    if len(sizes) != layer.outputs or sum(sizes) != data.shape[axis] or min(sizes) < 1:
        raise ModelError(
            f"it splits {data.shape[axis]} elements of axis {axis} into {layer.outputs} parts of {list(sizes)}"
        )
    if len(sizes) == 1:
        return [data]
    cuts = [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)]
    whole = call("split", data, indices=cuts, axis=axis)
    return [TupleGetItem(whole, i) for i in range(len(sizes))]


def _split(layer: Layer) -> list[Expr]:
    data = _raw(layer, 1)
    axis = _axis(layer.integer(0, "axis"), len(data.shape))
    return _parts(layer, data, axis, [data.shape[axis] // layer.outputs] * layer.outputs)


def _split_v(layer: Layer) -> list[Expr]:
    data = _raw(layer)
    axis = _axis(layer.integer(2, "axis"), len(data.shape))
    sizes = list(layer.integers(1, "sizes"))
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = data.shape[axis] - sum(sizes) - 1
    return _parts(layer, data, axis, sizes)


def _slice(layer: Layer) -> Expr:
    data = _raw(layer)
    begin, size = layer.integers(1, "begin"), layer.integers(2, "size")
    if not len(begin) == len(size) == len(data.shape):
        raise ModelError(f"its begin {begin} and size {size} do not name {len(data.shape)} dimensions")
    taken = zip(begin, size, data.shape, strict=True)
    end = [extent if count == -1 else first + count for first, count, extent in taken]
    return call("strided_slice", data, begin=begin, end=end, strides=(1,) * len(begin))


def _strided_slice(layer: Layer) -> Expr:
    """Slices as Python's, entry by entry; masks say what an entry is instead."""
    data = _raw(layer)
    begins, ends, strides = (layer.integers(i, what) for i, what in ((1, "begin"), (2, "end"), (3, "strides")))
    if not len(begins) == len(ends) == len(strides):
        raise ModelError("its begin, end and strides are not equally many")

    def masked(name: str, entry: int) -> bool:
        return bool(layer.options[f"{name}_mask"] >> entry & 1)

    entries = range(len(begins))
    wide = [i for i in entries if masked("ellipsis", i)]
    named = sum(not masked("new_axis", i) for i in entries if i not in wide)
    rank = len(data.shape)
    if len(wide) > 1 or named > rank:
        raise ModelError(f"its {len(begins)} entries do not fit {rank} dimensions")
    slices: list[range] = []
    shape: list[int] = []
    for i in entries:
        if i in wide:
            for extent in data.shape[len(slices) : len(slices) + rank - named]:
                slices.append(range(extent))
                shape.append(extent)
        elif masked("new_axis", i):
            shape.append(1)
        else:
            extent = data.shape[len(slices)]
            if masked("shrink_axis", i):
                # The kernels let the mask of begin win, where TensorFlow lets the one index of a shrunk axis.
                index = 0 if masked("begin", i) else _axis(begins[i], extent)
                slices.append(range(index, index + 1))
                continue
            if strides[i] == 0:
                raise ModelError("it has the stride 0")
            end = begins[i] + ends[i] if layer.options["offset"] else ends[i]
            bounds = slice(None if masked("begin", i) else begins[i], None if masked("end", i) else end, strides[i])
            slices.append(range(*bounds.indices(extent)))
            shape.append(len(slices[-1]))
    for extent in data.shape[len(slices) :]:
        slices.append(range(extent))
        shape.append(extent)
    if any(not len(taken) for taken in slices):
        raise ModelError("it takes no element at all")
    cut = call(
        "strided_slice",
        data,
        begin=[taken.start for taken in slices],
        end=[taken.stop for taken in slices],
        strides=[taken.step for taken in slices],
    )
    return cut if cut.shape == tuple(shape) else call("reshape", cut, newshape=shape)


def _gather(layer: Layer) -> Expr:
    """Indices that are computed and leave the data are brought into it; there is no saying what the kernels read."""
    data, indices = _raw(layer), layer.value(1)
    layer.same_quantisation(layer.tensor(0), layer.output())
    extent = data.shape[_axis(layer.options["axis"], len(data.shape))]
    if layer.options["batch_dims"] != 0:
        raise ModelError(f"it has {layer.options['batch_dims']} dimensions of batches")
    if isinstance(indices, Constant) and not 0 <= indices.data.min() <= indices.data.max() < extent:
        raise ModelError(f"its indices leave the {extent} elements of axis {layer.options['axis']}")
    return call("take", data, indices, axis=layer.options["axis"])


def _broadcast_to(layer: Layer) -> Expr:
    data = _raw(layer)
    layer.same_quantisation(layer.tensor(0), layer.output())
    return call("broadcast_to", data, shape=layer.integers(1, "shape"))


def _pad(layer: Layer) -> Expr:
    """With zeros, which are the zero point of the result where it is quantised, or with the given value."""
    data, output = _raw(layer), layer.output()
    layer.same_quantisation(layer.tensor(0), output)
    before, after = zip(*_pairs(layer, 1, "paddings", len(data.shape)), strict=True)
    value = 0.0
    if layer.has(2):
        array = layer.constant(2)
        if array is None or array.size != 1 or array.dtype.name != data.dtype:
            raise ModelError(f"its value to pad with is no constant {data.dtype}")
        value = array.item()
    elif output.dtype in QUANTISED and output.quantisation is not None:
        value = quantisation(output)[1]
    return call("nn.pad", data, pad_width=(*before, *after), pad_value=value)


def _mirror_pad(layer: Layer) -> Expr:
    data = _raw(layer)
    layer.same_quantisation(layer.tensor(0), layer.output())
    edge = {0: 1, 1: 0}.get(layer.options["mode"])  # the elements at the border that are not repeated
    if edge is None:
        raise ModelError(f"its mode has the number {layer.options['mode']}")
    for axis, (before, after) in enumerate(_pairs(layer, 1, "paddings", len(data.shape))):
        extent = data.shape[axis]
        if not 0 <= min(before, after) <= max(before, after) <= extent - edge:
            raise ModelError(f"it mirrors {before} and {after} of {extent} elements of axis {axis}")
        front = [_reversed(data, axis, edge, before)] if before else []
        back = [_reversed(data, axis, extent - edge - after, after)] if after else []
        data = call("concatenate", *front, data, *back, axis=axis)
    return data


def _reversed(data: Expr, axis: int, first: int, count: int) -> Expr:
    """``count`` elements of an axis from ``first`` on, the last one foremost."""
    rank = len(data.shape)
    begin, end, strides = [0] * rank, list(data.shape), [1] * rank
    begin[axis], end[axis], strides[axis] = first + count - 1, first - 1, -1
    return call("strided_slice", data, begin=begin, end=end, strides=strides)


def _pairs(layer: Layer, position: int, what: str, count: int) -> list[tuple[int, int]]:
    """The elements of a constant operand of ``count`` pairs of integers."""
    found = layer.integers(position, what)
    if len(found) != 2 * count:
        raise ModelError(f"its {what} are {len(found)} numbers, not {2 * count}")
    return list(zip(found[::2], found[1::2], strict=True))


def _resize_nearest(layer: Layer) -> Expr:
    data, size = _raw(layer), layer.integers(1, "size")
    layer.same_quantisation(layer.tensor(0), layer.output())
    aligned, centred = (bool(layer.options[name]) for name in ("align_corners", "half_pixel_centers"))
    if len(data.shape) != 4 or len(size) != 2 or min(size) < 1 or max(size) > MAX_SIDE:
        raise ModelError(f"it resizes data of {len(data.shape)} dimensions to {size}", hint=f"sides: 1 to {MAX_SIDE}")
    rows, columns = (_nearest(e, count, aligned, centred) for e, count in zip(data.shape[1:3], size, strict=True))
    return call("nn.resize_nearest", data, rows=rows, columns=columns)


def _nearest(extent: int, count: int, aligned: bool, centred: bool) -> list[int]:
    """The nearest of ``extent`` elements to each of ``count``. In float32, as TFLite's ``GetNearestNeighbor``."""
    import numpy as np

    ends = aligned and count > 1
    scale = np.float32(extent - 1 if ends else extent) / np.float32(count - 1 if ends else count)
    at = (np.arange(count, dtype=np.float32) + np.float32(0.5 if centred else 0)) * scale
    # Halves go up, as nothing is negative; float64 holds a float32 and its half.
    whole = np.floor(at.astype(np.float64) + (0.5 if aligned else 0))
    return [min(int(place), extent - 1) for place in whole]


def _pack(layer: Layer) -> Expr:
    parts = [_raw(layer, i) for i in range(max(1, layer.count))]
    layer.same_quantisation(layer.output(), *(layer.tensor(i) for i in range(layer.count)))
    axis = _axis(layer.options["axis"], len(parts[0].shape) + 1)
    wide = [call("reshape", part, newshape=(*part.shape[:axis], 1, *part.shape[axis:])) for part in parts]
    return call("concatenate", *wide, axis=axis)


def _unpack(layer: Layer) -> list[Expr]:
    data = _raw(layer)
    axis = _axis(layer.options["axis"], len(data.shape))
    shape = (*data.shape[:axis], *data.shape[axis + 1 :])
    return [call("reshape", part, newshape=shape) for part in _parts(layer, data, axis, [1] * layer.outputs)]


def _blocks(layer: Layer, data: Expr, what: str) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """Sides of the blocks of spatial dimensions, and what is put around or taken off them."""
    sides = layer.integers(1, "block shape")
    if len(data.shape) not in (3, 4) or len(sides) != len(data.shape) - 2 or min(sides) < 1:
        raise ModelError(f"its block shape {sides} does not fit {len(data.shape)} dimensions")
    around = _pairs(layer, 2, what, len(sides))
    if min(map(min, around)) < 0:
        raise ModelError(f"its {what} are {around}")
    return sides, around


def _space_to_batch(layer: Layer) -> Expr:
    """Elements that lie a block's side apart become neighbours, in batches of their own."""
    data = _raw(layer)
    layer.same_quantisation(layer.tensor(0), layer.output())
    sides, around = _blocks(layer, data, "paddings")
    before, after = zip((0, 0), *around, (0, 0), strict=True)
    zero = quantisation(layer.output())[1] if layer.output().dtype in QUANTISED else 0
    data = call("nn.pad", data, pad_width=(*before, *after), pad_value=zero)
    batch, *extents, depth = data.shape
    if any(extent % side for extent, side in zip(extents, sides, strict=True)):
        raise ModelError(f"its padded data of {extents} elements is not made of blocks of {list(sides)}")
    split = [part for extent, side in zip(extents, sides, strict=True) for part in (extent // side, side)]
    data = call("reshape", data, newshape=(batch, *split, depth))
    last = len(split) + 1
    data = call("transpose", data, axes=(*range(2, last, 2), 0, *range(1, last, 2), last))
    rows = [extent // side for extent, side in zip(extents, sides, strict=True)]
    return call("reshape", data, newshape=(batch * math.prod(sides), *rows, depth))


def _batch_to_space(layer: Layer) -> Expr:
    """What undoes SPACE_TO_BATCH_ND."""
    data = _raw(layer)
    layer.same_quantisation(layer.tensor(0), layer.output())
    sides, around = _blocks(layer, data, "crops")
    batches, *extents, depth = data.shape
    count = len(sides)
    if batches % math.prod(sides):
        raise ModelError(f"its {batches} batches are not made of blocks of {list(sides)}")
    batch = batches // math.prod(sides)
    data = call("reshape", data, newshape=(*sides, batch, *extents, depth))
    inner = [axis for d in range(count) for axis in (count + 1 + d, d)]
    data = call("transpose", data, axes=(count, *inner, 2 * count + 1))
    wide = [extent * side for extent, side in zip(extents, sides, strict=True)]
    data = call("reshape", data, newshape=(batch, *wide, depth))
    begin, after = zip(*around, strict=True)
    end = [extent - cut for extent, cut in zip(wide, after, strict=True)]
    if any(first >= last for first, last in zip(begin, end, strict=True)):
        raise ModelError(f"its crops {around} leave nothing of {wide}")
    bounds = {"begin": (0, *begin, 0), "end": (batch, *end, depth), "strides": (1,) * len(data.shape)}
    return call("strided_slice", data, **bounds)


SHAPE: dict[str, Importer] = {
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "BROADCAST_TO": _broadcast_to,
    "CONCATENATION": _concatenation,
    "EXPAND_DIMS": _expand_dims,
    "GATHER": _gather,
    "MIRROR_PAD": _mirror_pad,
    "PACK": _pack,
    "PAD": _pad,
    "PADV2": _pad,
    "RESHAPE": _reshape,
    "RESIZE_NEAREST_NEIGHBOR": _resize_nearest,
    "SLICE": _slice,
    "SPACE_TO_BATCH_ND": _space_to_batch,
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "SQUEEZE": _squeeze,
    "STRIDED_SLICE": _strided_slice,
    "TRANSPOSE": _transpose,
    "UNPACK": _unpack,
}
