"""What a call is, in a few words that fit a line."""

from __future__ import annotations

from collections.abc import Sequence

from ..relay.expr import Call
from ..relay.op import Op
from ..relay.types import TensorType, TupleType

__all__ = ["form_of"]


def form_of(call: Call) -> str:
    """``conv2d 3x3 64->64 s1``, ``dense 64->10``, ``avg_pool2d 8x8 s8 64``, ``add 32x32x16``.

    That is: the op's name without its namespace; extents of a window; channels in and out, or the shape of the result
    without a batch of 1; strides (s), dilation (d) and groups (g) of a window, the latter two where they are not 1.
    """
    assert isinstance(call.op, Op)
    attrs = dict(call.attrs.items)
    args = dict(zip(call.op.inputs, (arg.type for arg in call.args), strict=False))
    data, weight = args.get("data"), args.get("weight")
    words = [call.op.name.rpartition(".")[2]]
    kernel = attrs.get("pool_size")
    if isinstance(data, TensorType) and isinstance(weight, TensorType) and weight.shape:
        if "strides" in attrs:
            kernel, channels = weight.shape[:-2], weight.shape[-1]
        else:
            channels = weight.shape[0]
        words.extend([_by(kernel)] if kernel else [])
        words.append(f"{data.shape[-1]}->{channels}")
    elif kernel and isinstance(call.type, TensorType):
        words.append(_by(kernel))
    else:
        first = call.type.fields[0] if isinstance(call.type, TupleType) and call.type.fields else call.type
        shape = first.shape if isinstance(first, TensorType) else ()
        words.append(_by(shape[1:] if len(shape) > 1 and shape[0] == 1 else shape))
    for name, letter in (("strides", "s"), ("dilation", "d")):
        steps = attrs.get(name)
        if kernel and steps and (name == "strides" or set(steps) != {1}):
            words.append(letter + (str(steps[0]) if len(set(steps)) == 1 else _by(steps)))
    if kernel and attrs.get("groups", 1) != 1:
        words.append(f"g{attrs['groups']}")
    return " ".join(word for word in words if word)


def _by(extents: Sequence[int]) -> str:
    return "x".join(map(str, extents))
