"""Images of another height and width."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Expr, call, const
from .layer import Importer, Layer
from .shape import raw

if TYPE_CHECKING:
    import numpy as np

__all__ = ["RESIZE"]

MAX_SIDE = 1 << 14
"""Of an image that is resized: a call says for each row and column of its result where it comes from."""


def _sizes(layer: Layer) -> tuple[Expr, tuple[int, ...], bool, bool]:
    """The data, height and width of the result, and whether corners are aligned, and pixels are at their centres."""
    data, size = raw(layer), layer.integers(1, "size")
    layer.same_quantisation(layer.tensor(0), layer.output())
    aligned, centred = (bool(layer.options[name]) for name in ("align_corners", "half_pixel_centers"))
    if len(data.shape) != 4 or len(size) != 2 or min(size) < 1 or max(size) > MAX_SIDE:
        raise ModelError(f"it resizes data of {len(data.shape)} dimensions to {size}", hint=f"sides: 1 to {MAX_SIDE}")
    return data, size, aligned, centred


def _resize_nearest(layer: Layer) -> Expr:
    data, size, aligned, centred = _sizes(layer)
    rows, columns = (_nearest(e, count, aligned, centred) for e, count in zip(data.shape[1:3], size, strict=True))
    return call("nn.resize_nearest", data, rows=rows, columns=columns)


def _nearest(extent: int, count: int, aligned: bool, centred: bool) -> list[int]:
    """The nearest of ``extent`` elements to each of ``count``. In float32, as TFLite's ``GetNearestNeighbor``."""
    import numpy as np

    ends = aligned and count > 1
    scale = np.float32(extent - 1 if ends else extent) / np.float32(count - 1 if ends else count)
    at = (np.arange(count, dtype=np.float32) + np.float32(0.5 if centred else 0)) * scale
    # Halves go up, as nothing is negative; float64 holds a float32 and its half.
    positions = np.floor(at.astype(np.float64) + (0.5 if aligned else 0))
    return [min(int(place), extent - 1) for place in positions]


# --- bilinear --------------------------------------------------------------------------------------------------------

_BITS = 10
"""Of the places in images of integers, behind the point."""


def _bilinear(layer: Layer) -> Expr:
    """Each element of the result is a mean of four, weighted by how near they are.

    Of floats, and of uint8 with a half added and cut off, in float32; of int8 and int16 in fixed points of ten bits,
    rounded half away from zero: TFLite's ``reference_ops::ResizeBilinear`` and ``ResizeBilinearInteger``.
    """
    dtype = layer.tensor(0).dtype
    if dtype not in ("float32", "int8", "uint8", "int16"):
        raise ModelError(f"it is of {dtype}", hint="supported: float32, int8, uint8, int16")
    data, size, aligned, centred = _sizes(layer)
    if aligned and centred:
        raise ModelError("it aligns corners of pixels at their centres")
    find_places = _fixed_places if dtype in ("int8", "int16") else _real_places
    rows, columns = (find_places(e, count, aligned, centred) for e, count in zip(data.shape[1:3], size, strict=True))
    wide = {"int8": "int32", "int16": "int64"}.get(dtype, "float32")
    total: Expr | None = None
    for x in (0, 1):
        for y in (0, 1):
            part: Expr = call("nn.resize_nearest", data, rows=rows[y][0].tolist(), columns=columns[x][0].tolist())
            part = part if wide == dtype else call("cast", part, dtype=wide)
            part = call("multiply", part, const(rows[y][1].astype(wide)[:, None, None]))
            part = call("multiply", part, const(columns[x][1].astype(wide)[:, None]))
            total = part if total is None else call("add", total, part)
    assert total is not None
    if dtype == "float32":
        return total
    if dtype == "uint8":
        return call("cast", call("add", total, const(0.5, "float32")), dtype=dtype)
    half = const(1 << (2 * _BITS - 1), wide)
    is_positive = call("greater", total, const(0, wide))
    total = call("add", total, call("where", is_positive, half, call("negative", half)))
    return call("cast", call("divide", total, const(1 << 2 * _BITS, wide)), dtype=dtype)


_Places = list[tuple["np.ndarray", "np.ndarray"]]
"""Of the element before each place and the one behind it: which it is, and its weight."""


def _real_places(extent: int, count: int, aligned: bool, centred: bool) -> _Places:
    import numpy as np

    f32 = np.float32
    scale = f32(extent) / f32(count)
    if aligned and count > 1:
        scale = f32(extent - 1) / f32(count - 1)
    at = np.arange(count, dtype=f32)
    at = (at + f32(0.5)) * scale - f32(0.5) if centred else at * scale
    before = np.maximum(np.floor(at).astype(np.int64), 0)
    behind = np.minimum(np.ceil(at).astype(np.int64), extent - 1)
    before = np.minimum(before, extent - 1)
    share = at - before.astype(f32)
    return [(before, f32(1) - share), (behind, share)]


def _fixed_places(extent: int, count: int, aligned: bool, centred: bool) -> _Places:
    import numpy as np

    one = 1 << _BITS
    scale = (one * extent + count // 2) // count
    if aligned and count > 1:
        scale = (one * (extent - 1) + (count - 1) // 2) // (count - 1)
    at = np.arange(count, dtype=np.int64) * scale
    if centred:
        at += scale // 2 - one // 2
    # (C's division cuts off; what is negative goes to 0 either way.)
    before = np.minimum(np.maximum(at >> _BITS, 0), extent - 1)
    behind = np.minimum(np.maximum(at + one - 1, 0) >> _BITS, extent - 1)
    share = at - one * before
    return [(before, one - share), (behind, share)]


RESIZE: dict[str, Importer] = {
    "RESIZE_BILINEAR": _bilinear,
    "RESIZE_NEAREST_NEIGHBOR": _resize_nearest,
}
