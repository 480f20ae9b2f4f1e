"""Strips of columns: layers over a wide picture computed for some of its columns, then for the others.

A strip is a slice of what the layers are given, with as many columns more as their windows look over its border; the
layers, padded at the outer sides only; and the results side by side. What lies at a border is computed twice, and each
element of the same ones, as it is without strips.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..expr import Call, Constant, Expr, Function, Tuple, Var, call
from ..module import IRModule
from ..op import Op
from ..ops.shape import layout_axes
from ..rewriter import Rewriter
from ..types import TensorType
from ..views import is_view
from ..visit import post_order, users

__all__ = ["COLUMNS", "ROWS", "Chain", "Leading", "Window", "fits", "in_strips", "leading", "products", "window_of"]

ROWS, COLUMNS, CHANNELS = 1, 2, 3
"""The dimensions of a picture: (1, rows, columns, channels)."""

_CONVOLUTIONS = ("nn.conv2d", "qnn.conv2d")
_MOVES = ("transpose", "layout_transform")
_POOLS = ("nn.max_pool2d", "nn.avg_pool2d", "qnn.avg_pool2d")


@dataclass(frozen=True)
class Window:
    """What a call looks at along a dimension.

    Args:
        size: from the first to the last element under the window.
        stride: how far it goes from one result to the next.
        before, after: padding.
    """

    size: int = 1
    stride: int = 1
    before: int = 0
    after: int = 0

    def touched(self, low: int, high: int, extent: int) -> tuple[int, int]:
        """The elements, of so many, that the results from ``low`` to before ``high`` are made of."""
        first, last = low * self.stride - self.before, (high - 1) * self.stride - self.before + self.size
        return max(first, 0), min(last, extent)

    def padding(self, low: int, high: int, extent: int) -> tuple[int, int]:
        """What these results take of the padding, before the elements and behind them."""
        first, last = low * self.stride - self.before, (high - 1) * self.stride - self.before + self.size
        return max(-first, 0), max(last - extent, 0)


@dataclass(frozen=True)
class Chain:
    """Calls of which strips can be made: nothing but ``end`` is used by others.

    Args:
        source: the picture that they are given.
        members: all of them, in order.
    """

    source: Expr
    members: tuple[Call, ...]

    @property
    def end(self) -> Call:
        """The last of them."""
        return self.members[-1]


@dataclass(frozen=True)
class Leading:
    """What can be computed in strips from a picture on.

    Args:
        source: the picture.
        members: the calls, in order.
        ends: where chains may end, by their positions.
        reasons: why what follows the members is none.
    """

    source: Expr
    members: tuple[Call, ...]
    ends: tuple[int, ...]
    reasons: Mapping[Expr, str]

    def chain(self, end: int) -> Chain:
        """The chain that ends at a position."""
        return Chain(self.source, self.members[: end + 1])


def window_of(expr: Call, dimension: int) -> Window:
    """What a member of a chain looks at along rows or columns of the pictures that it is given."""
    side, attrs = dimension - 1, expr.attrs
    if expr.op_name == "nn.pad":
        return Window(1, 1, attrs.pad_width[dimension], attrs.pad_width[dimension + 4])
    if expr.op_name in _CONVOLUTIONS:
        extent = expr.args[1].tensor.shape[side]
        size = (extent - 1) * attrs.dilation[side] + 1
    elif expr.op_name in _POOLS:
        size = attrs.pool_size[side]
    else:
        return Window()
    return Window(size, attrs.strides[side], attrs.padding[side], attrs.padding[side + 2])


def _why_no_member(expr: Expr, pictures: Callable[[Expr], bool]) -> str | None:
    """Why no strips can be made of what an expression computes; None where they can.

    Args:
        expr: an expression.
        pictures: whether there are strips of one of those that it is computed from.
    """
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or expr.op.loops is not None or is_view(expr):
        return "it is not computed by windows, nor element by element"
    if not _is_picture(expr):
        return "it gives no picture: (1, rows, columns, channels)"
    if expr.op_name in (*_CONVOLUTIONS, *_POOLS):
        if not pictures(expr.args[0]) or any(map(pictures, expr.args[1:])):
            return "its window is not over the picture"
        return None
    if expr.op_name == "nn.pad":
        return None if not any(expr.attrs.pad_width[side] for side in (0, 3, 4, 7)) else "it pads channels"
    if expr.op_name == "concatenate":
        along = expr.attrs.axis % 4
        return None if along == CHANNELS and all(map(pictures, expr.args)) else "it does not join channels"
    if expr.op.kind not in ("elementwise", "broadcast") or expr.op_name == "broadcast_to":
        return "it is not computed by windows, nor element by element"
    axis = dict(expr.attrs.items).get("axis")
    if axis is not None and axis % 4 == COLUMNS:
        return "it tells columns from one another"
    others = [arg.tensor.shape for arg in expr.args if not pictures(arg)]
    return "it takes a second picture" if any(len(shape) > 1 and shape[-2] != 1 for shape in others) else None


def _is_picture(expr: Expr) -> bool:
    if not isinstance(expr.type, TensorType) or expr.type.is_open:
        return False
    shape = expr.type.shape
    return len(shape) == 4 and shape[0] == 1 and shape[ROWS] > 1 and shape[COLUMNS] > 1


def leading(main: Function, free: Callable[[Call], bool]) -> list[Leading]:
    """What can be computed in strips, from each of the first pictures of a function on.

    Args:
        main: in canonical form.
        free: whether a call may be in strips.
    """
    order = post_order(main.body)
    using = users(order)
    chains: list[Leading] = []
    inside: set[Expr] = set()
    for source in order:
        if len(chains) == _SOURCES:
            break
        if source in inside or isinstance(source, (Constant, Tuple)) or not using[source]:
            continue
        if isinstance(source, Var):
            source = _movement_source(source, using) or source
        if _is_picture(source):
            chains.append(_from(source, order, using, free))
            inside.update((source, *chains[-1].members))
    return chains


_SOURCES = 8
"""So many pictures are looked at."""


def _movement_source(source: Expr, using: Mapping[Expr, list[Expr]]) -> Expr | None:
    """What an input is in the order (1, rows, columns, channels), where it is used in that alone."""
    only = using[source][0] if len(using[source]) == 1 else None
    return only if isinstance(only, Call) and only.op_name in _MOVES and isinstance(only.type, TensorType) else None


def _from(
    source: Expr, order: Sequence[Expr], using: Mapping[Expr, Sequence[Expr]], free: Callable[[Call], bool]
) -> Leading:
    members: dict[Expr, int] = {}
    calls: list[Call] = []
    reasons: dict[Expr, str] = {}

    def pictures(expr: Expr) -> bool:
        return expr is source or expr in members

    for expr in order:
        if isinstance(expr, Call) and any(map(pictures, expr.args)):
            why = _why_no_member(expr, pictures) if free(expr) else "it is for another target"
            if why is None:
                members[expr] = len(members)
                calls.append(expr)
            else:
                reasons[expr] = why
    ends: list[int] = []
    furthest = -1  # of those that use what comes before
    for at, member in enumerate(calls):
        if furthest <= at:
            ends.append(at)
        furthest = max(furthest, max((members.get(user, len(members)) for user in using[member]), default=len(members)))
    return Leading(source, tuple(calls), tuple(ends), reasons)


def _borders(chain: Chain, count: int) -> list[tuple[int, int]]:
    width = chain.end.tensor.shape[COLUMNS]
    return list(pairwise(at * width // count for at in range(count + 1)))


def _needs(chain: Chain, low: int, high: int) -> dict[Expr, tuple[int, int]]:
    """The columns of each member that a strip of its last one is made of."""
    needs: dict[Expr, tuple[int, int]] = {chain.end: (low, high)}
    inside = set(chain.members)
    for member in reversed(chain.members):
        for arg in member.args:
            if arg in inside:
                first, last = _touched(member, arg, *needs[member])
                if arg in needs:
                    first, last = min(first, needs[arg][0]), max(last, needs[arg][1])
                needs[arg] = first, last
    return needs


def _touched(member: Call, arg: Expr, low: int, high: int) -> tuple[int, int]:
    return window_of(member, COLUMNS).touched(low, high, arg.tensor.shape[COLUMNS])


def fits(chain: Chain, count: int) -> bool:
    """Whether each of so many strips has columns of everything; none is made of padding alone."""
    if chain.end.tensor.shape[COLUMNS] < count:
        return False
    return all(
        low < high
        for border in _borders(chain, count)
        for needs in [_needs(chain, *border)]
        for member in chain.members
        for arg in member.args
        if arg is chain.source or arg in needs
        for low, high in [_touched(member, arg, *needs[member])]
    )


def products(chain: Chain, count: int = 1) -> int:
    """How many products a chain computes, in so many strips."""
    total = 0
    for border in _borders(chain, count):
        needs = _needs(chain, *border)
        for member in chain.members:
            assert isinstance(member.op, Op)
            if member.op.macs is not None:
                macs = member.op.macs(member.attrs, member.tensor, *(arg.tensor for arg in member.args))
                low, high = needs[member]
                total += macs // member.tensor.shape[COLUMNS] * (high - low)
    return total


def in_strips(module: IRModule, chain: Chain, count: int) -> IRModule:
    """``module`` with a chain of ``main`` in strips, one after the other.

    Args:
        module: in canonical form.
        chain: of its ``main``, which `fits` so many strips.
        count: of strips, 2 at least.
    """
    rewriter = Rewriter(module)
    inside = set(chain.members)

    def noted(new: Call, like: Expr) -> Expr:
        rewriter.record_rewrite(like, new)
        return new

    whole: Expr | None = None
    for border in _borders(chain, count):
        needs = _needs(chain, *border)
        strips: dict[Expr, Expr] = {}
        for member in chain.members:
            args: list[Expr] = []
            for arg in member.args:
                if arg is not chain.source and arg not in inside:
                    args.append(arg)
                    continue
                low, high = _touched(member, arg, *needs[member])
                first, last = (0, arg.tensor.shape[COLUMNS]) if arg is chain.source else needs[arg]
                operand = arg if arg is chain.source else strips[arg]
                if (low, high) != (first, last):
                    operand = noted(_columns(operand, low - first, high - first), member)
                args.append(operand)
            strips[member] = noted(_restricted(member, args, *needs[member]), member)
        part = strips[chain.end]
        whole = part if whole is None else noted(call("concatenate", whole, part, axis=COLUMNS), chain.end)
    assert whole is not None
    order = post_order(module.main.body)
    done = rewriter.rebuild(order, done={chain.end: whole})
    return rewriter.with_main(done[module.main.body])


def _columns(data: Expr, low: int, high: int, axis: int = COLUMNS) -> Call:
    """Some columns of a picture; of one that an input is when its dimensions were moved, the moved columns of that."""
    if isinstance(data, Call) and data.op_name in _MOVES and isinstance(data.args[0], Var):
        axes = data.attrs.axes if data.op_name == "transpose" else layout_axes(data.attrs)
        return Call(data.op, [_columns(data.args[0], low, high, axes[axis])], data.attrs, data.pin)
    shape = data.tensor.shape
    begin = tuple(low if d == axis else 0 for d in range(len(shape)))
    end = tuple(high if d == axis else extent for d, extent in enumerate(shape))
    return call("strided_slice", data, begin=begin, end=end, strides=(1,) * len(shape))


def _restricted(member: Call, args: list[Expr], low: int, high: int) -> Call:
    """A member as it computes these columns of its result, of columns of what it is given."""
    attrs = dict(member.attrs.items)
    window = window_of(member, COLUMNS)
    before, after = window.padding(low, high, member.args[0].tensor.shape[COLUMNS])
    if member.op_name == "nn.pad":
        pads = list(member.attrs.pad_width)
        pads[COLUMNS], pads[COLUMNS + 4] = before, after
        attrs["pad_width"] = tuple(pads)
    elif member.op_name in (*_CONVOLUTIONS, *_POOLS):
        top, _, bottom, _ = member.attrs.padding
        attrs["padding"] = (top, before, bottom, after)
    return Call(member.op, args, attrs, member.pin)
