"""Resize by the nearest neighbour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.expr import Expr
from .context import Context, Converter
from .moves import repeated
from .windows import channels_first, channels_last

if TYPE_CHECKING:
    import numpy as np

__all__ = ["RESIZE"]

MAX_SIDE = 1 << 14
"""Of data that is resized: a call says for each row and column of its result where it comes from."""

_COORDINATES = ("align_corners", "asymmetric", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel")
_ROUNDINGS = ("ceil", "floor", "round_prefer_ceil", "round_prefer_floor")


def _resize(c: Context) -> Expr:
    """Of images and sequences any; of other data that which repeats every element."""
    node, data = c.node, c.expr(0)
    mode = node.text("mode", "nearest")
    if mode != "nearest":
        raise ModelError(f"its mode is {mode!r}; nearest is supported")
    coordinates = node.text("coordinate_transformation_mode", "half_pixel")
    rounding = node.text("nearest_mode", "round_prefer_floor")
    if coordinates not in _COORDINATES or rounding not in _ROUNDINGS:
        raise ModelError(f"it finds the nearest element by {coordinates!r} and {rounding!r}, which is not supported")
    if node.has("axes") or node.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise ModelError("it has axes or a keep_aspect_ratio_policy, which is not supported")
    places = [
        _places(extent, count, scale, coordinates, rounding)
        for extent, count, scale in zip(data.shape, *_sizes(c, data.shape), strict=True)
    ]
    unchanged = [isinstance(taken, range) for taken in places]
    if all(unchanged):
        return data
    if len(places) in (3, 4) and all(unchanged[:2]) and max(map(len, places[2:])) <= MAX_SIDE:
        return _image(c, data, places[2:])
    times = [len(taken) // extent for taken, extent in zip(places, data.shape, strict=True)]
    if not all(same or _repeats(taken, n) for taken, same, n in zip(places, unchanged, times, strict=True)):
        raise ModelError(
            f"it resizes {data.shape} to {tuple(map(len, places))}",
            hint="supported: the space of images and sequences, and whole numbers of times",
        )
    return repeated(c, data, times, each=True)


def _sizes(c: Context, shape: Sequence[int]) -> tuple[list[int], list[float]]:
    """The extents of the result, and the scales, which are float32."""
    import numpy as np

    given = c.known(3 if c.has(3) else 2)
    if given.shape != (len(shape),):
        raise ModelError(f"it has scales or sizes of shape {given.shape} for {len(shape)} dimensions")
    extents = np.array(shape, np.float32)
    counts = given if c.has(3) else np.floor(extents * given.astype(np.float32))
    scales = counts.astype(np.float32) / extents if c.has(3) else given.astype(np.float32)
    changes = zip(counts, shape, scales, strict=True)
    if not all(1 <= count <= MAX_SIDE or (count, scale) == (extent, 1) for count, extent, scale in changes):
        raise ModelError(f"it resizes by {given.tolist()}", hint=f"extents of the result are from 1 to {MAX_SIDE}")
    return [int(count) for count in counts], [float(scale) for scale in scales]


def _repeats(places: Sequence[int], times: int) -> bool:
    """Whether every element is taken so many times, in order."""
    return times > 0 and places == [i // times for i in range(len(places))]


def _places(extent: int, count: int, scale: float, coordinates: str, rounding: str) -> Sequence[int]:
    """The nearest of ``extent`` elements to each of ``count``: in float32, as onnxruntime finds it. A range if these
    are all as they lie: data that stays may have more than `MAX_SIDE`.
    """
    import numpy as np

    if (count, scale) == (extent, 1):
        return range(extent)
    f32 = np.float32
    index, factor = np.arange(count, dtype=f32), f32(scale)
    if coordinates == "align_corners":
        at = index * f32(extent - 1) / f32(max(1, count - 1))
    elif coordinates == "asymmetric":
        at = index / factor
    else:
        # Where nothing is cut off, half pixels are symmetric; else onnxruntime's ties are not known.
        if coordinates == "half_pixel_symmetric" and factor * f32(extent) != count:
            raise ModelError(f"it resizes {extent} elements by {scale} with {coordinates!r}", hint="give its sizes")
        at = (index + f32(0.5)) / factor - f32(0.5)
    if coordinates == "pytorch_half_pixel" and count == 1:
        at = np.zeros(1, f32)
    places: list[int] = np.clip(_rounded(at.astype(np.float64), rounding), 0, extent - 1).astype(int).tolist()
    return range(extent) if count == extent and places == list(range(extent)) else places


def _rounded(at: np.ndarray, rounding: str) -> np.ndarray:
    import numpy as np

    result: np.ndarray
    if rounding in ("floor", "round_prefer_ceil"):
        result = np.floor(at if rounding == "floor" else at + 0.5)
    else:
        result = np.ceil(at if rounding == "ceil" else at - 0.5)
    return result


def _image(c: Context, data: Expr, places: Sequence[Sequence[int]]) -> Expr:
    """Images, or sequences as images of one row."""
    image = channels_last(c, data)
    batch, *_, depth = image.shape
    if len(places) == 2:
        return channels_first(c, c.call("nn.resize_nearest", image, rows=places[0], columns=places[1]))
    row = c.reshape(image, (batch, 1, image.shape[1], depth))
    made = c.call("nn.resize_nearest", row, rows=(0,), columns=places[0])
    return channels_first(c, c.reshape(made, (batch, len(places[0]), depth)))


RESIZE: Mapping[str, Converter] = {"Resize": _resize}
