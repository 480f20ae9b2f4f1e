"""Elements picked by indices, and elements repeated by broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.nodes import Expr, Imm, Select, const, maximum, minimum
from ...tir.form.symbolic_dims import may_be_empty
from ..op import Attr, Attrs, Bounds, Int, Ints, Specials, define_op
from ..types import TensorType
from .common import Types, broadcast_shapes, normalise_axis, require_elements, require_integers
from .elementwise_table import broadcast_load

if TYPE_CHECKING:
    import numpy as np

__all__: list[str] = []


def _infer_take(attrs: Attrs, data: TensorType, indices: TensorType) -> TensorType:
    """Data of any dtype, which the result has; indices are int32 or int64. Their shape takes the place of the axis."""
    require_integers(indices, allowed=("int32", "int64"))
    axis = normalise_axis(attrs.axis, len(data.shape))
    if not any(map(may_be_empty, indices.shape)):
        require_elements(data.shape[axis])
    return TensorType((*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]), data.dtype)


def _take_reference(attrs: Attrs, data: np.ndarray, indices: np.ndarray) -> np.ndarray:
    import numpy as np

    extent = data.shape[attrs.axis]
    places = np.where(indices < 0, indices + indices.dtype.type(extent), indices).clip(0, extent - 1)
    return np.take(data, places, attrs.axis)


def _take_compute(attrs: Attrs, out: TensorType, data: te.Tensor, indices: te.Tensor) -> te.Tensor:
    axis = normalise_axis(attrs.axis, len(data.shape))
    behind, extent = axis + len(indices.shape), data.shape[axis]
    first, last = Imm(0, indices.dtype), const(extent - 1, indices.dtype)

    def at(*index: Any) -> Expr:
        position = indices[index[axis:behind]]
        place = Select(position < 0, position + extent, position)
        # (Where there may be nothing to take, the first place is still one of the memory's.)
        near = maximum(minimum(place, last), first) if may_be_empty(extent) else minimum(maximum(place, first), last)
        return data[(*index[:axis], near.astype("int32"), *index[behind:])]

    return te.compute(out.shape, at, "take")


def _same_range(attrs: Attrs, out: TensorType, types: Types, data: Bounds | None, *others: object) -> Bounds | None:
    return None if data is None else Bounds(data.low, data.high)


define_op(
    name="take",
    doc="What stands in the data at indices along an axis. Indices below 0 count from the end, as numpy's do; what "
    "is still outside is taken from the nearest end.",
    inputs=("data", "indices"),
    attrs=(Attr("axis", Int, "the axis"),),
    infer=_infer_take,
    reference=_take_reference,
    compute=_take_compute,
    kind="injective",
    value_range=_same_range,
)


def _infer_resize(attrs: Attrs, data: TensorType) -> TensorType:
    """Data (batch, height, width, channels) of any dtype, which the result has; its height and width are as many as
    ``rows`` and ``columns``, which are those of the data.
    """
    if len(data.shape) != 4:
        raise ModelError("data must have 4 dimensions", hint="channels last")
    for side, places, extent in zip(("rows", "columns"), (attrs.rows, attrs.columns), data.shape[1:3], strict=True):
        if not places or not 0 <= min(places) <= max(places) < extent:
            raise ModelError(f"{side} {places} are not some of 0 .. {extent - 1}")
    return TensorType((data.shape[0], len(attrs.rows), len(attrs.columns), data.shape[3]), data.dtype)


def _resize_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    return data[:, list(attrs.rows)][:, :, list(attrs.columns)]


def _resize_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    row = _place(attrs.rows, data.shape[1], "rows")
    column = _place(attrs.columns, data.shape[2], "columns")
    return te.compute(out.shape, lambda n, y, x, c: data[n, row(y), column(x), c], "resize")


def _place(places: tuple[int, ...], extent: int, name: str) -> Callable[[Expr], Expr]:
    """The place that an index of the result is taken from: a quotient where each is repeated as often, else a table."""
    import numpy as np

    times = len(places) // extent
    if times and places == tuple(i // times for i in range(len(places))):
        return lambda index: index if times == 1 else index // times
    table = te.constant(np.array(places, np.int32), name)
    first, last = Imm(0, "int32"), Imm(extent - 1, "int32")
    # Limits are for the proof that no index leaves the data.
    return lambda index: minimum(maximum(table[index], first), last)


define_op(
    name="nn.resize_nearest",
    doc="An image of another height and width: element (y, x) is that of row rows[y] and column columns[x] of the "
    "data. TFLite's RESIZE_NEAREST_NEIGHBOR, ONNX's Resize of mode nearest.",
    inputs=("data",),
    attrs=(
        Attr("rows", Ints(), "the row of the data for each row of the result"),
        Attr("columns", Ints(), "the column of the data for each column of the result"),
    ),
    infer=_infer_resize,
    reference=_resize_reference,
    compute=_resize_compute,
    kind="injective",
    value_range=_same_range,
)


def _infer_broadcast(attrs: Attrs, data: TensorType) -> TensorType:
    """Any dtype, which the result has; ``shape`` is what numpy broadcasts the data's shape with it to."""
    if broadcast_shapes(data.shape, attrs.shape) != attrs.shape:
        raise ModelError(f"shape {data.shape} does not broadcast to {attrs.shape}")
    return TensorType(attrs.shape, data.dtype)


def _broadcast_reference(attrs: Attrs, data: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.broadcast_to(data, attrs.shape).copy()


def _broadcast_compute(attrs: Attrs, out: TensorType, data: te.Tensor) -> te.Tensor:
    return te.compute(out.shape, lambda *i: broadcast_load(data, i), "broadcast_to")


define_op(
    name="broadcast_to",
    doc="The data, repeated along dimensions of extent 1 and new ones, as numpy's broadcasting does.",
    inputs=("data",),
    attrs=(Attr("shape", Ints(), "extents of the result"),),
    infer=_infer_broadcast,
    reference=_broadcast_reference,
    compute=_broadcast_compute,
    kind="broadcast",
    specials=Specials("moved"),
    stored=True,
    value_range=_same_range,
)
