"""Random networks over pictures, parts of which can be computed in strips of columns."""

from __future__ import annotations

import numpy as np

from uma.errors import ModelError
from uma.relay import Expr, FixedPoint, Function, IRModule, Spans, TensorType, Var, call, const
from uma.relay.expr import Call
from uma.relay.visit import post_order

__all__ = ["named", "strip_net"]


def named(module: IRModule) -> IRModule:
    """A module whose calls have layers: ``layer0``, ``layer1``, .. in the order in which they are computed."""
    calls = [expr for expr in post_order(module.main.body) if isinstance(expr, Call)]
    return IRModule(module.functions, Spans({one: [f"layer{at}"] for at, one in enumerate(calls)}), module.signature)


def strip_net(seed: int, dtype: str = "int8", most: int = 7) -> IRModule:
    """A network of up to so many layers: convolutions, depthwise ones too, with dilations, strides and paddings that
    differ from side to side, pools, pads, joined channels, and residual blocks."""
    rng = np.random.default_rng(seed)

    def among(*values: int) -> int:
        return int(rng.choice(values))

    def convolved(data: Expr, kernel: tuple[int, int], channels: int, depthwise: bool, **attrs: object) -> Expr:
        depth = data.tensor.shape[3]
        shape = (*kernel, 1 if depthwise else depth, depth if depthwise else channels)
        groups = depth if depthwise else 1
        if dtype == "float32":
            weight = const((rng.normal(size=shape) / np.prod(shape[:3]) ** 0.5).astype(np.float32))
            return call("nn.relu", call("nn.conv2d", data, weight, groups=groups, **attrs))
        weight = const(rng.integers(-127, 128, shape).astype(np.int8))
        sums = call("qnn.conv2d", data, weight, groups=groups, input_zero_point=among(0, 3), **attrs)
        sums = call("add", sums, const(rng.integers(-999, 1000, shape[3]).astype(np.int32)))
        shift = -5 - int(np.log2(np.prod(shape[:3])) / 2)
        scale = FixedPoint((1 << 30,) * shape[3], (shift,) * shape[3], "double")
        return call("qnn.requantize", sums, scale=scale, output_zero_point=-4, dtype="int8", axis=-1)

    def layer(data: Expr) -> Expr:
        kind = among(0, 0, 0, 1, 1, 2, 3, 4, 5)
        if kind == 2:
            size = (among(1, 2, 3), among(2, 3))
            pads = tuple(among(0, 1) for _ in range(4))
            return call("nn.max_pool2d", data, pool_size=size, strides=(among(1, 2), among(1, 2)), padding=pads)
        if kind == 3:
            attrs = {"pool_size": (2, 3), "strides": (1, among(1, 2)), "padding": (0, 1, 0, 1)}
            op = "nn.avg_pool2d" if dtype == "float32" else "qnn.avg_pool2d"
            return call(op, data, count_include_pad=bool(among(0, 1)), **attrs)
        if kind == 4:
            pads = (0, among(0, 1), among(0, 2), 0, 0, among(0, 1), among(0, 1), 0)
            return call("nn.pad", data, pad_width=pads, pad_value=1.0)
        if kind == 5:
            inner = convolved(data, (3, 3), data.tensor.shape[3], bool(among(0, 1)), padding=(1, 1, 1, 1))
            return call(("maximum", "minimum")[among(0, 1)], inner, data)
        kernel, dilation = (among(1, 2, 3), among(1, 2, 3, 5)), (1, among(1, 1, 2))
        pads = tuple(among(0, 1, 2) if one > 1 else 0 for one in (*kernel, *kernel))
        strides = (among(1, 1, 2), among(1, 1, 2, 3))
        made = convolved(data, kernel, among(2, 4, 5), kind == 1, strides=strides, padding=pads, dilation=dilation)
        if among(0, 0, 0, 1):
            made = call("concatenate", made, call("maximum", made, const(1, dtype)), axis=3)
        return made

    x = Var("x", TensorType((1, among(5, 9, 12), among(7, 13, 16, 21), among(1, 3)), dtype))
    data: Expr = x
    for _ in range(int(rng.integers(2, most + 1))):
        try:
            made = layer(data)
        except ModelError:  # (its window does not fit what is left)
            continue
        if min(made.tensor.shape[1:3]) > 1:
            data = made
    return named(IRModule.from_functions({"main": Function([x], data)}))
