"""Pointwise convolutions of float32 in several groups of channels, between layouts that have the channels first: a
batch of matrix products over whole planes, which transposes no picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from uma.hookspecs import Pass
from uma.relay import Call, Constant, Expr, IRModule, Op, Rewriter, call, const, post_order, users

from .transposes import axis_order

__all__ = ["multiply_planes"]

_CHANNELS_LAST, _CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def multiply_planes(least_pixels: int) -> Pass:
    """Return the pass that multiplies the planes of pictures by the weights of each group of channels.

    ``out[g]``, of shape (outputs of a group, pixels), is ``weights[g] @ data[g]``: the sums of the convolution, in the
    same order.

    Args:
        least_pixels: of the result's planes; smaller planes fill too few vectors.
    """
    return Pass("POST_PARTITIONING_0", "multiply_planes", lambda module: _rewritten(module, least_pixels))


def _rewritten(module: IRModule, least_pixels: int) -> IRModule:
    rewriter, used = Rewriter(module), users(post_order(module.main.body))
    chains = {
        expr: chain
        for expr in used
        if (chain := _chain(expr)) and chain[0].shape[1] * chain[0].shape[2] >= least_pixels
        if all(len(used[step]) == 1 for step in chain) and not any(map(_combines, used[expr]))
    }

    def rule(old: Expr, rebuilt: Expr) -> Expr | None:
        chain = _chain(rebuilt) if old in chains else []
        return _planes(rewriter, rebuilt, chain) if chain else None

    done = rewriter.rebuild(used, rule)
    return rewriter.with_main(done[module.main.body]) if chains else module


def _chain(expr: Expr) -> list[Call]:
    """Return a convolution and the elementwise steps after it whose result ``expr`` permutes to channels first.

    The list is empty if ``expr`` is another expression, or if the data of the convolution is not permuted from channels
    first.
    """
    chain: list[Call] = []
    step = _permuted(expr, _CHANNELS_FIRST)
    while isinstance(step, Call) and isinstance(step.op, Op) and not step.tensor.is_open:
        chain.insert(0, step)
        if step.op_name == "nn.conv2d":
            return chain if _is_pointwise(step) else []
        if step.op.kind not in ("elementwise", "broadcast") or any(attr.name == "axis" for attr in step.op.attrs):
            return []
        if not all(_is_per_channel(arg, step) for arg in step.args[1:]):
            return []
        step = step.args[0]
    return []


def _combines(expr: Expr) -> bool:
    """Whether canonical relay has ``expr`` in another form where its data is a reshape."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op):
        return False
    return expr.op_name in ("reshape", "squeeze", "sum", "mean") or expr.op.kind in ("elementwise", "broadcast")


def _permuted(expr: Expr, order: tuple[int, ...]) -> Expr | None:
    """Return the operand of ``expr`` if that is a permutation in this order, else None."""
    if not isinstance(expr, Call) or expr.op_name not in ("layout_transform", "transpose"):
        return None
    return expr.args[0] if axis_order(expr) == order else None


def _is_per_channel(arg: Expr, step: Call) -> bool:
    """Whether ``arg`` is a constant that has one number, or one for each channel."""
    if not isinstance(arg, Constant):
        return False
    return arg.data.size == 1 or (arg.data.size == arg.shape[-1] == step.shape[-1])


def _is_pointwise(conv: Call) -> bool:
    data, weight = conv.args
    groups, batch, picture = conv.attrs.groups, conv.shape[0], _permuted(data, _CHANNELS_LAST)
    return (
        isinstance(weight, Constant)
        and conv.dtype == "float32"
        and picture is not None
        and not (isinstance(picture, Call) and picture.op_name in ("reshape", "squeeze"))
        and weight.shape[:2] == (1, 1)
        and 1 < groups < data.shape[-1]
        and batch == 1
        and not any(conv.attrs.padding)
    )


def _planes(rewriter: Rewriter, permuted: Expr, chain: Sequence[Call]) -> Expr:
    """Return the value of ``permuted``, the last permutation of ``chain``, from planes."""
    conv, *following = chain
    data, weight = conv.args
    assert isinstance(data, Call) and isinstance(weight, Constant)
    groups, (_, height, width, channels) = conv.attrs.groups, conv.shape
    planes = data.args[0]
    if data.shape[1:3] != (height, width):
        strides = (1, 1, *conv.attrs.strides)
        planes = call("strided_slice", planes, begin=(0,) * 4, end=planes.shape, strides=strides)
    planes = call("reshape", planes, newshape=(groups, data.shape[-1] // groups, height * width))
    weights = weight.data.reshape(weight.shape[2], groups, channels // groups).transpose(1, 2, 0)
    value = call("matmul", const(weights.copy()), planes).pinned(conv.pin)
    rewriter.record_rewrite(conv, value)
    for step in following:
        value = Call(step.op, [value, *_operands(step, groups)], step.attrs, step.pin)
        rewriter.record_rewrite(step, value)
    return call("reshape", value, newshape=permuted.shape)


def _operands(step: Call, groups: int) -> Iterator[Constant]:
    """Yield the constants of ``step`` as planes in groups meet them."""
    for arg in step.args[1:]:
        assert isinstance(arg, Constant)
        yield const(arg.data.reshape((groups, -1, 1) if arg.data.size > 1 else ()))
