"""Results of which a run says how long they are: they have memory for the most there can be, and a number beside them.

Elements beyond that number are zeros. `take_first` makes a dynamic dimension of the number, so that later ops compute
only so many elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir import te
from ...tir.form.nodes import (
    Buffer,
    ExprLike,
    For,
    If,
    Imm,
    Param,
    PrimFunc,
    Stmt,
    Store,
    Var,
    const,
    maximum,
    minimum,
    seq,
)
from ...tir.form.nodes import Expr as Scalar
from ...tir.form.symbolic_dims import Extent, OpenExtentError, bounds_of, is_open, upper_bounds
from ...tir.te.symbolic_loops import with_symbols
from ..op import STEP_OPERATIONS, Attr, Attrs, Boolean, Bounds, Int, Specials, define_op
from ..types import TensorType, TupleType
from .common import Types, normalise_axis

if TYPE_CHECKING:
    import numpy as np

__all__ = ["COUNT"]

COUNT = TensorType((1,), "int32")
"""Of the number of elements of a result."""


# --- an extent that is computed --------------------------------------------------------------------------------------


def _infer_take_first(attrs: Attrs, data: TensorType, count: TensorType) -> TensorType:
    """Data of any dtype, which the result has; the count is int32 (1,). The extent, a symbol of its own or a number, is
    at most that of the data along the axis, and takes its place.
    """
    if count is not COUNT:
        raise ModelError(f"the count must be {COUNT}, not {count}")
    axis, extent = normalise_axis(attrs.axis, len(data.shape)), attrs.extent
    if isinstance(extent, Extent) and extent != Extent.from_symbol(extent.symbols[0]):
        raise ModelError(f"the extent {extent} is computed of others; it must be one symbol")
    least, most = bounds_of(data.shape[axis])
    # What a run computes is a part of what there is; a number must be that for every extent.
    if bounds_of(extent)[1] > (most if isinstance(extent, Extent) else least):
        raise ModelError(f"{extent} elements are not part of the {data.shape[axis]} of the data")
    return TensorType((*data.shape[:axis], extent, *data.shape[axis + 1 :]), data.dtype)


def _take_first_reference(attrs: Attrs, data: np.ndarray, count: np.ndarray) -> np.ndarray:
    axis = normalise_axis(attrs.axis, data.ndim)
    return data[(slice(None),) * axis + (slice(attrs.extent),)].copy()


def _take_first_compute(attrs: Attrs, out: TensorType, data: te.Tensor, count: te.Tensor) -> te.Tensor:
    return te.compute(out.shape, lambda *i: data[i], "take_first")


def _same_range(attrs: Attrs, out: TensorType, types: Types, data: Bounds | None, *others: object) -> Bounds | None:
    return None if data is None else Bounds(data.low, data.high)


define_op(
    name="take_first",
    doc="The first elements of the data along an axis, as many as a run computes: ``extent`` is an open extent of "
    "which the count is the value. All calls with one extent receive the same count.",
    inputs=("data", "count"),
    attrs=(Attr("axis", Int, "the axis"), Attr("extent", Int, "the extent of the result along the axis")),
    infer=_infer_take_first,
    reference=_take_first_reference,
    compute=_take_first_compute,
    kind="opaque",
    specials=Specials("moved"),
    stored=True,
    value_range=_same_range,
)


# --- loops -----------------------------------------------------------------------------------------------------------


def _loops(names: str, extents: Sequence[Any], body: Callable[..., Stmt]) -> Stmt:
    """Loops within one another, each with a variable of its own."""
    variables = [Var(f"{names}{d}") for d in range(len(extents))]
    loops = body(*variables)
    for variable, extent in zip(reversed(variables), reversed(extents), strict=True):
        loops = For(variable, const(extent), loops)
    return loops


def _params(inputs: Sequence[Buffer], outputs: Sequence[Buffer], spaces: Sequence[Buffer] = ()) -> tuple[Param, ...]:
    return (
        *(Param(buffer, "input") for buffer in inputs),
        *(Param(buffer, "output") for buffer in outputs),
        *(Param(buffer, "workspace") for buffer in spaces),
    )


def _buffers(prefix: str, types: Sequence[TensorType]) -> list[Buffer]:
    return [Buffer(f"{prefix}{i}", upper_bounds(type_.shape), type_.dtype) for i, type_ in enumerate(types)]


def _put(into: Buffer, value: ExprLike, *at: ExprLike) -> Stmt:
    return Store(into, tuple(map(const, at)), const(value, into.dtype))


def _zeros(into: Buffer, names: str) -> Stmt:
    return _loops(names, into.shape, lambda *at: _put(into, 0, *at))


# --- elements that are not zero --------------------------------------------------------------------------------------


def _infer_nonzero(attrs: Attrs, data: TensorType) -> TupleType:
    """Data of any dtype, of 1 dimension or more: places int64 (dimensions, elements), and how many int32 (1,)."""
    if not data.shape:
        raise ModelError("data must have 1 dimension or more")
    return TupleType((TensorType((len(data.shape), data.size), "int64"), COUNT))


def _nonzero_reference(attrs: Attrs, data: np.ndarray) -> tuple[np.ndarray, ...]:
    import numpy as np

    nonzeros = np.stack(np.nonzero(data))
    places = np.zeros((data.ndim, data.size), np.int64)
    places[:, : nonzeros.shape[1]] = nonzeros
    return places, np.array([nonzeros.shape[1]], np.int32)


def _nonzero_loops(attrs: Attrs, out: TupleType, data: TensorType) -> PrimFunc:
    (x,), (places, count) = _buffers("x", [data]), _buffers("y", out.fields)
    most = places.shape[1]

    def visit(*at: Var) -> Stmt:
        place = minimum(maximum(count[0], 0), most - 1)
        noted = [_put(places, index.astype("int64"), d, place) for d, index in enumerate(at)]
        return If(_differs(x[at]), seq(*noted, _put(count, count[0] + 1, 0)))

    begin = seq(_zeros(places, "z"), _put(count, 0, 0))
    return with_symbols(PrimFunc(_params([x], [places, count]), seq(begin, _loops("i", data.shape, visit))))


def _differs(value: Scalar) -> Scalar:
    return value if value.dtype == "bool" else value.not_equal(Imm(0, value.dtype))


define_op(
    name="nonzero",
    doc="Where data is not zero: places, in row-major order, one column each, behind which there are zeros, and "
    "how many there are. ONNX's NonZero, with `take_first`.",
    inputs=("data",),
    infer=_infer_nonzero,
    reference=_nonzero_reference,
    compute=None,
    loops=_nonzero_loops,
    open_loops=True,
    kind="opaque",
    specials=Specials("unequal", "NaN is not zero"),
)


# --- boxes that do not overlap ---------------------------------------------------------------------------------------


def _infer_nms(
    attrs: Attrs, boxes: TensorType, scores: TensorType, most: TensorType, overlap: TensorType, score: TensorType
) -> TupleType:
    """Boxes float32 (batch, boxes, 4), scores float32 (batch, classes, boxes), most int64 (1,), overlap and score
    float32 (1,). Gives places int64 (batch * classes * limit, 3), and how many int32 (1,).
    """
    fits = len(boxes.shape) == len(scores.shape) == 3 and boxes.dtype == scores.dtype == "float32"
    if not fits or boxes.shape != (scores.shape[0], scores.shape[2], 4):
        raise ModelError(f"boxes {boxes} do not fit scores {scores}")
    if is_open(scores.shape[:2]):
        raise OpenExtentError(f"the batch and the classes of scores {scores} must be fixed")
    wanted = (TensorType((1,), "int64"), TensorType((1,), "float32"), TensorType((1,), "float32"))
    if (most, overlap, score) != wanted:
        raise ModelError(f"most, overlap and score must be {', '.join(map(str, wanted))}")
    if not 1 <= attrs.limit <= bounds_of(boxes.shape[1])[1]:
        raise ModelError(f"at most {attrs.limit} of {boxes.shape[1]} boxes are no limit")
    return TupleType((TensorType((scores.shape[0] * scores.shape[1] * attrs.limit, 3), "int64"), COUNT))


def _suppressed_reference(a: np.ndarray, b: np.ndarray, center: bool, limit: np.ndarray) -> bool:
    """Whether of boxes (4,) of float32 ``a`` overlaps ``b`` by more than ``limit``."""
    import numpy as np

    sides = []
    for box in (a, b):
        if center:
            half = box[2:] / np.float32(2)
            sides.append(((box[0] - half[0], box[0] + half[0]), (box[1] - half[1], box[1] + half[1])))
        else:
            sides.append((tuple(sorted(box[1::2])), tuple(sorted(box[0::2]))))
    low = [max(sides[0][d][0], sides[1][d][0]) for d in range(2)]
    high = [min(sides[0][d][1], sides[1][d][1]) for d in range(2)]
    if high[0] <= low[0] or high[1] <= low[1]:
        return False
    both = (high[0] - low[0]) * (high[1] - low[1])
    areas = [(x[1] - x[0]) * (y[1] - y[0]) for x, y in sides]
    union = areas[0] + areas[1] - both
    if both <= 0 or min(areas) <= 0 or union <= 0:
        return False
    return bool(both / union > limit)


def _nms_reference(attrs: Attrs, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    import numpy as np

    boxes, scores, most, overlap, threshold = arrays
    batch, classes, _ = scores.shape
    selected: list[tuple[int, int, int]] = []
    with np.errstate(all="ignore"):
        for b, c in np.ndindex(batch, classes):
            class_scores = scores[b, c]
            open_ = np.flatnonzero((class_scores > threshold[0]) | np.isnan(threshold[0]))
            chosen: list[int] = []
            for i in open_[np.argsort(-class_scores[open_], kind="stable")]:
                if len(chosen) >= min(int(most[0]), attrs.limit):
                    break
                hit = (_suppressed_reference(boxes[b, i], boxes[b, j], attrs.center, overlap[0]) for j in chosen)
                if not any(hit):
                    chosen.append(int(i))
            selected += [(b, c, i) for i in chosen]
    places = np.zeros((batch * classes * attrs.limit, 3), np.int64)
    places[: len(selected)] = np.array(selected, np.int64).reshape(-1, 3)
    return places, np.array([len(selected)], np.int32)


class _Pair:
    """Whether one box overlaps another: its steps, each of which needs one rounding, are kept in memory."""

    _NAMES = ("ax0", "ax1", "ay0", "ay1", "bx0", "bx1", "by0", "by1", "wide", "high", "a", "b", "both", "union")

    def __init__(self, boxes: Buffer, memory: Buffer, center: bool) -> None:
        self._boxes, self._memory, self._center = boxes, memory, center
        self._at: Mapping[str, int] = {name: i for i, name in enumerate(self._NAMES)}

    def __getitem__(self, name: str) -> Scalar:
        return self._memory[self._at[name]]

    def _keep(self, **values: Scalar) -> Stmt:
        return seq(*(_put(self._memory, value, self._at[name]) for name, value in values.items()))

    def _sides(self, name: str, b: Scalar, i: Scalar) -> Stmt:
        """The limits of a box along x and y."""
        first, second, third, fourth = (self._boxes[b, i, k] for k in range(4))
        two = Imm(2.0, "float32")
        if self._center:
            limits = (first - third / two, first + third / two, second - fourth / two, second + fourth / two)
        else:
            limits = (minimum(second, fourth), maximum(second, fourth), minimum(first, third), maximum(first, third))
        return self._keep(
            **{f"{name}{side}": value for side, value in zip(("x0", "x1", "y0", "y1"), limits, strict=False)}
        )

    def compared(self, b: Scalar, i: Scalar, j: Scalar, limit: Scalar, then: Stmt) -> Stmt:
        """``then``, where box i overlaps box j, of batch b, by more than ``limit``."""
        zero = Imm(0.0, "float32")
        wide = minimum(self["ax1"], self["bx1"]) - maximum(self["ax0"], self["bx0"])
        high = minimum(self["ay1"], self["by1"]) - maximum(self["ay0"], self["by0"])
        a = (self["ax1"] - self["ax0"]) * (self["ay1"] - self["ay0"])
        of_b = (self["bx1"] - self["bx0"]) * (self["by1"] - self["by0"])
        counts = (self["both"], self["a"], self["b"], self["union"])
        inner: Stmt = If(self["both"] / self["union"] > limit, then)
        for value in reversed(counts):
            inner = If(value > zero, inner)
        areas = seq(
            self._keep(a=a, b=of_b, both=self["wide"] * self["high"]),
            self._keep(union=self["a"] + self["b"] - self["both"]),
            inner,
        )
        return seq(
            self._sides("a", b, i),
            self._sides("b", b, j),
            self._keep(wide=wide, high=high),
            If(self["wide"] > zero, If(self["high"] > zero, areas)),
        )


def _nms_loops(attrs: Attrs, out: TupleType, *types: TensorType) -> PrimFunc:
    inputs, (places, count) = _buffers("x", types), _buffers("y", out.fields)
    boxes, scores, most, overlap, threshold = inputs
    batch, classes, number = types[1].shape
    extent, rows = scores.shape[2], places.shape[0]
    is_candidate = Buffer("left", (extent,), "uint8")
    # The box with the best score, and whether there may be a further one.
    state = Buffer("state", (2,), "int32")
    memory = Buffer("pair", (len(_Pair._NAMES),), "float32")
    pair = _Pair(boxes, memory, attrs.center)
    b, c, k, i0, i1, i2 = (Var(name) for name in ("b", "c", "k", "i0", "i1", "i2"))
    one = Imm(1, "uint8")
    best = minimum(maximum(state[0], 0), extent - 1)
    limit = threshold[0]
    is_open = (scores[b, c, i0] > limit) | limit.not_equal(limit)
    begin = seq(_put(state, 1, 1), For(i0, const(number), _put(is_candidate, is_open.astype("uint8"), i0)))
    score, highest = scores[b, c, i1], scores[b, c, best]
    # A score that is NaN is below all others.
    better = (state[0] < 0) | (score > highest) | (highest.not_equal(highest) & score.equal(score))
    search = seq(
        _put(state, -1, 0),
        For(i1, const(number), If(is_candidate[i1].equal(one), If(better, _put(state, i1, 0)))),
    )
    row = minimum(maximum(count[0], 0), rows - 1)
    location = (b.astype("int64"), c.astype("int64"), best.astype("int64"))
    noted = seq(
        *(_put(places, value, row, d) for d, value in enumerate(location)),
        _put(count, count[0] + 1, 0),
        _put(is_candidate, 0, best),
        For(
            i2,
            const(number),
            If(is_candidate[i2].equal(one), pair.compared(b, i2, best, overlap[0], _put(is_candidate, 0, i2))),
        ),
    )
    step = seq(search, If(state[0] >= 0, noted, _put(state, 0, 1)))
    wanted = state[1].equal(Imm(1, "int32")) & (k.astype("int64") < most[0])
    chosen = seq(begin, For(k, const(attrs.limit), If(wanted, step)))
    whole = For(b, const(batch), For(c, const(classes), chosen))
    start = seq(_zeros(places, "z"), _put(count, 0, 0))
    return with_symbols(PrimFunc(_params(inputs, [places, count], [is_candidate, state, memory]), seq(start, whole)))


def _nms_effort(attrs: Attrs, out: TupleType, boxes: TensorType, scores: TensorType, *others: TensorType) -> int:
    """Ten steps for each pair of a box and one that was taken."""
    batch, classes, number = upper_bounds(scores.shape)
    return 10 * STEP_OPERATIONS * batch * classes * number * min(number, bounds_of(attrs.limit)[1])


define_op(
    name="nn.non_max_suppression",
    doc="Boxes by falling score, of equal ones the first, without those that overlap one that was taken by more "
    "than ``overlap``: the quotient of what both cover and what one of them covers. A box is given by two opposite "
    "corners (y, x, y, x), or by its center and extents (x, y, width, height). Of each batch and class at most "
    "``most`` are taken, of scores above ``score`` where that is not a NaN. Rows (batch, class, box), behind which "
    "there are zeros, and how many. ONNX's NonMaxSuppression, with `take_first`.",
    inputs=("boxes", "scores", "most", "overlap", "score"),
    attrs=(
        Attr("limit", Int, "of the boxes of one batch and class, for memory"),
        Attr("center", Boolean, "boxes are given by their centers", default=False),
    ),
    infer=_infer_nms,
    reference=_nms_reference,
    compute=None,
    loops=_nms_loops,
    open_loops=True,
    kind="opaque",
    specials=Specials("smallest", "scores; such a box is taken last, and not where there is a threshold"),
    effort=_nms_effort,
)
