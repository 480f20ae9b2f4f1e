"""Operators that move elements."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ModelError
from ...relay.expr import Expr, TupleGetItem, call
from .layer import QUANTISED, Importer, Layer, quantisation

__all__ = ["SHAPE"]


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
    layer.dtypes("float32", "int8", "uint8", "int16", "int32", "int64", "bool")
    values = [layer.value(i) for i in range(max(1, layer.count))]
    layer.same_quantisation(layer.output(), *(layer.tensor(i) for i in range(layer.count)))
    axis = _axis(layer.options["axis"], len(values[0].shape))
    return layer.activated(call("concatenate", *values, axis=axis))


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


def _pad(layer: Layer) -> Expr:
    """With zeros, which are the zero point of the result where it is quantised, or with the given value."""
    data, output = _raw(layer), layer.output()
    layer.same_quantisation(layer.tensor(0), output)
    widths = layer.integers(1, "paddings")
    rank = len(data.shape)
    if len(widths) != 2 * rank:
        raise ModelError(f"its paddings are {len(widths)} numbers, not {2 * rank}")
    value = 0.0
    if layer.has(2):
        array = layer.constant(2)
        if array is None or array.size != 1 or array.dtype.name != data.dtype:
            raise ModelError(f"its value to pad with is no constant {data.dtype}")
        value = array.item()
    elif output.dtype in QUANTISED and output.quantisation is not None:
        value = quantisation(output)[1]
    return call("nn.pad", data, pad_width=(*widths[::2], *widths[1::2]), pad_value=value)


SHAPE: dict[str, Importer] = {
    "CONCATENATION": _concatenation,
    "EXPAND_DIMS": _expand_dims,
    "PAD": _pad,
    "PADV2": _pad,
    "RESHAPE": _reshape,
    "SLICE": _slice,
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "SQUEEZE": _squeeze,
    "STRIDED_SLICE": _strided_slice,
    "TRANSPOSE": _transpose,
}
