"""Operators that move elements."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ModelError
from ...relay.expr import Expr, TupleGetItem, call, const
from ...relay.fixed_point import find_fixed_point
from ...relay.op import Bounds
from ..compositions import repeated
from .layer import Importer, Layer, quantisation

__all__ = ["SHAPE", "axis_of", "raw"]


def raw(layer: Layer, position: int = 0) -> Expr:
    """The operand that is moved; its elements must mean the same before and after."""
    source = layer.tensor(position)
    for i in range(layer.outputs):
        if layer.output(i).dtype != source.dtype:
            raise ModelError(f"it turns {source.dtype} into {layer.output(i).dtype}")
    return layer.value(position)


def axis_of(axis: int, rank: int) -> int:
    """``axis`` counted from the front; ModelError where there is none."""
    if not -rank <= axis < rank:
        raise ModelError(f"its axis {axis} is not one of {rank} dimensions")
    return axis % rank


def _reshape(layer: Layer) -> Expr:
    data = raw(layer)
    shape = layer.integers(1, "shape") if layer.has(1) else layer.options["new_shape"]
    if shape == (0,):
        shape = ()  # how old converters wrote a scalar
    product = 1
    for extent in shape:
        product *= 1 if extent == -1 else extent
    if list(shape).count(-1) > 1 or any(extent < -1 for extent in shape) or product < 1:
        raise ModelError(f"its shape is {shape}")
    return call("reshape", data, newshape=[data.tensor.size // product if extent == -1 else extent for extent in shape])


def _transpose(layer: Layer) -> Expr:
    data = raw(layer)
    rank = len(data.shape)
    axes = [axis_of(axis, rank) for axis in layer.integers(1, "permutation")]
    return call("transpose", data, axes=axes)


def _squeeze(layer: Layer) -> Expr:
    data = raw(layer)
    dims = tuple(sorted({axis_of(axis, len(data.shape)) for axis in layer.options["squeeze_dims"]}))
    return call("squeeze", data, axis=dims)


def _expand_dims(layer: Layer) -> Expr:
    data = raw(layer)
    axis = axis_of(layer.integer(1, "axis"), len(data.shape) + 1)
    return call("reshape", data, newshape=(*data.shape[:axis], 1, *data.shape[axis:]))


def _concatenation(layer: Layer) -> Expr:
    dtype = layer.dtypes("float32", "int8", "uint8", "int16", "int32", "int64", "bool")
    values = [layer.value(i) for i in range(max(1, layer.count))]
    if dtype == "uint8" and layer.output().quantisation is not None:
        values = [_rescaled(layer, i) for i in range(layer.count)]
    else:
        layer.same_quantisation(layer.output(), *(layer.tensor(i) for i in range(layer.count)))
    axis = axis_of(layer.options["axis"], len(values[0].shape))
    return layer.activated(call("concatenate", *values, axis=axis))


def _rescaled(layer: Layer, position: int) -> Expr:
    """A uint8 operand with the scale and zero point of the result.

    The kernel computes ``round(stored * scale + bias) + zero point`` in float32, halves away from zero (TFLite,
    ``ConcatenationWithScaling``; of int8 it takes only what needs no scaling).
    """
    import numpy as np

    source, target = quantisation(layer.tensor(position)), quantisation(layer.output())
    if source == target:
        return layer.value(position)
    (_, zero_point), (out_scale, out_zero) = source, target
    with np.errstate(all="ignore"):
        scale = np.float32(source[0]) * (np.float32(1) / np.float32(out_scale))
        real = np.arange(256, dtype=np.float32) * scale + np.float32(-zero_point) * scale
    table = np.copysign(np.floor(np.abs(real.astype(np.float64)) + 0.5), real)
    fixed_point = None
    if np.isfinite(table).all():
        fixed_point = find_fixed_point(table, -zero_point, float(scale), Bounds(-out_zero, 255 - out_zero))
    if fixed_point is None:
        raise ModelError(f"operand {position} is scaled by a float32 that no fixed point equals")
    zeros = {"input_zero_point": zero_point, "output_zero_point": out_zero}
    return call("qnn.requantize", layer.value(position), scale=fixed_point, dtype="uint8", **zeros)


def _parts(layer: Layer, data: Expr, axis: int, sizes: Sequence[int]) -> list[Expr]:
    if len(sizes) != layer.outputs or sum(sizes) != data.shape[axis] or min(sizes) < 1:
        raise ModelError(
            f"it splits {data.shape[axis]} elements of axis {axis} into {layer.outputs} parts of {list(sizes)}"
        )
    if len(sizes) == 1:
        return [data]
    cuts = [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)]
    parts = call("split", data, indices=cuts, axis=axis)
    return [TupleGetItem(parts, i) for i in range(len(sizes))]


def _split(layer: Layer) -> list[Expr]:
    data = raw(layer, 1)
    axis = axis_of(layer.integer(0, "axis"), len(data.shape))
    return _parts(layer, data, axis, [data.shape[axis] // layer.outputs] * layer.outputs)


def _split_v(layer: Layer) -> list[Expr]:
    data = raw(layer)
    axis = axis_of(layer.integer(2, "axis"), len(data.shape))
    sizes = list(layer.integers(1, "sizes"))
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = data.shape[axis] - sum(sizes) - 1
    return _parts(layer, data, axis, sizes)


def _slice(layer: Layer) -> Expr:
    data = raw(layer)
    begin, size = layer.integers(1, "begin"), layer.integers(2, "size")
    if not len(begin) == len(size) == len(data.shape):
        raise ModelError(f"its begin {begin} and size {size} do not name {len(data.shape)} dimensions")
    ranges = zip(begin, size, data.shape, strict=True)
    end = [extent if count == -1 else first + count for first, count, extent in ranges]
    return call("strided_slice", data, begin=begin, end=end, strides=(1,) * len(begin))


def _strided_slice(layer: Layer) -> Expr:
    """Slices as Python's, entry by entry; masks say what an entry is instead."""
    data = raw(layer)
    begins, ends, strides = (layer.integers(i, role) for i, role in ((1, "begin"), (2, "end"), (3, "strides")))
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
                index = 0 if masked("begin", i) else axis_of(begins[i], extent)
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
    if any(not len(positions) for positions in slices):
        raise ModelError("it takes no element at all")
    cut = call(
        "strided_slice",
        data,
        begin=[positions.start for positions in slices],
        end=[positions.stop for positions in slices],
        strides=[positions.step for positions in slices],
    )
    return cut if cut.shape == tuple(shape) else call("reshape", cut, newshape=shape)


def _broadcast_to(layer: Layer) -> Expr:
    data = raw(layer)
    layer.same_quantisation(layer.tensor(0), layer.output())
    return call("broadcast_to", data, shape=layer.integers(1, "shape"))


def _tile(layer: Layer) -> Expr:
    data, counts = raw(layer), layer.integers(1, "multiples")
    layer.same_quantisation(layer.tensor(0), layer.output())
    if len(counts) != len(data.shape):
        raise ModelError(f"its {len(counts)} multiples do not fit {len(data.shape)} dimensions")
    return repeated(layer, data, counts, each=False)


def _pack(layer: Layer) -> Expr:
    parts = [raw(layer, i) for i in range(max(1, layer.count))]
    layer.same_quantisation(layer.output(), *(layer.tensor(i) for i in range(layer.count)))
    axis = axis_of(layer.options["axis"], len(parts[0].shape) + 1)
    wide = [call("reshape", part, newshape=(*part.shape[:axis], 1, *part.shape[axis:])) for part in parts]
    return call("concatenate", *wide, axis=axis)


def _unpack(layer: Layer) -> list[Expr]:
    data = raw(layer)
    axis = axis_of(layer.options["axis"], len(data.shape))
    shape = (*data.shape[:axis], *data.shape[axis + 1 :])
    return [call("reshape", part, newshape=shape) for part in _parts(layer, data, axis, [1] * layer.outputs)]


def _fill(layer: Layer) -> Expr:
    """One value, of any tensor, as often as a shape says."""
    value, shape = raw(layer, 1), layer.integers(0, "shape")
    layer.same_quantisation(layer.tensor(1), layer.output())
    if value.tensor.size != 1:
        raise ModelError(f"it repeats {value.tensor.size} values, not one")
    return call("broadcast_to", call("reshape", value, newshape=()), shape=shape)


def _zeros(layer: Layer) -> Expr:
    data = raw(layer)
    if data.dtype not in ("float32", "int32", "int64"):
        raise ModelError(f"it is of {data.dtype}", hint="supported: float32, int32, int64")
    return call("broadcast_to", const(0, data.dtype), shape=data.shape)


SHAPE: dict[str, Importer] = {
    "BROADCAST_TO": _broadcast_to,
    "CONCATENATION": _concatenation,
    "EXPAND_DIMS": _expand_dims,
    "FILL": _fill,
    "PACK": _pack,
    "RESHAPE": _reshape,
    "SLICE": _slice,
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "SQUEEZE": _squeeze,
    "STRIDED_SLICE": _strided_slice,
    "TILE": _tile,
    "TRANSPOSE": _transpose,
    "UNPACK": _unpack,
    "ZEROS_LIKE": _zeros,
}
