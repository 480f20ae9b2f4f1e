"""Accelerators of tests with fixed points of their own, and small quantised models with float scales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tests._support.onnx_builder import OnnxBuilder
from tests._support.plugins import accelerator, entry_of
from tests._support.te_lowerings import lowered

from uma.hookspecs import Clause, Failed, Pattern, Refuse
from uma.plugins import PluginEntry
from uma.relay import Call, Expr, Function, call, quantised, rewrite
from uma.relay.op import FixedPoint
from uma.relay.pattern import Match, any_
from uma.targets import FixedPointForm

__all__ = ["LAYERS", "fixed_npu", "residual_net"]

LAYERS = ("n_Conv_2", "n_Conv_7", "n_Add_10", "n_Gemm_19")
"""Of `residual_net`, those that compute something."""


def fixed_npu(
    kind: str,
    form: FixedPointForm | Any | None,
    rounding: str = "even",
    *,
    products: Sequence[str] = ("qnn.conv2d", "qnn.dense"),
    refuse: str | None = None,
    wrong: bool = False,
) -> list[PluginEntry]:
    """The entries of an accelerator whose loops run on the host: it takes layers with fixed points of one rounding.

    Args:
        kind: its kind.
        form: what its kind says of its fixed points.
        rounding: what it takes.
        products: the layers that it takes.
        refuse: a product that it gives back when it is to be lowered.
        wrong: whether its results are one off.
    """

    def exact(found: Match) -> Failed | bool:
        scale = found.call("scaled").attrs.scale
        return (isinstance(scale, FixedPoint) and scale.rounding == rounding) or Failed(type(scale).__name__)

    clause = Clause("rounding", exact, f"fixed points round {rounding}; this is {{value}}")

    def lower(match: Match, target: object) -> Any:
        if match.call("core").op_name == refuse:
            raise Refuse(f"no {refuse} after all")
        function = match.function
        return lowered(Function(function.params, rewrite(function.body, _off)) if wrong else function)

    def patterns() -> list[Pattern]:
        opened: dict[str, dict[str, Any]] = {"qnn.conv2d": {"strides": any_, "padding": any_}, "qnn.dense": {}}
        return [
            Pattern(
                f"{kind}.{name[4:]}", quantised.layer_pattern(name, residual="none", **opened[name]), [clause], lower
            )
            for name in products
        ]

    return entry_of(accelerator(kind, fixed_point=form), patterns=patterns)


def _off(expr: Expr) -> Expr:
    """A requantisation whose results are all one off."""
    if not isinstance(expr, Call) or expr.op_name != "qnn.requantize":
        return expr
    zero_point = expr.attrs.output_zero_point
    attrs = {**dict(expr.attrs.items), "output_zero_point": zero_point + (1 if zero_point < 127 else -1)}
    return call("qnn.requantize", *expr.args, **attrs)


def residual_net(seed: int = 0) -> bytes:
    """A QDQ model of two convolutions, the second added to the first, an average pool and a dense layer; int8, one
    scale for each channel.
    """
    rng = np.random.default_rng(seed)
    b = OnnxBuilder()

    def weights(*shape: int) -> str:
        scales = rng.uniform(0.01, 0.02, shape[0])
        stored = b.constant(rng.integers(-127, 128, shape), "int8")
        zeros = b.constant(np.zeros(shape[0]), "int8")
        return str(b.node("DequantizeLinear", stored, b.constant(scales, "float32"), zeros, axis=0))

    def quantized(x: str, scale: float, zero: int = 0) -> str:
        return b.dequantize(b.quantize(x, scale, zero, "int8"), scale, zero, "int8")

    x = b.dequantize(b.input("x", (1, 3, 8, 8), "int8"), 0.031, 2, "int8")
    first = quantized(b.node("Relu", b.node("Conv", x, weights(4, 3, 3, 3), pads=[1, 1, 1, 1])), 0.041, -128)
    second = quantized(b.node("Conv", first, weights(4, 4, 1, 1)), 0.023, 5)
    total = quantized(b.node("Relu", b.node("Add", first, second)), 0.052, -128)
    pooled = quantized(b.node("AveragePool", total, kernel_shape=[8, 8]), 0.052, -128)
    flat = b.node("Reshape", pooled, b.constant([1, 4], "int64"))
    dense = b.node("Gemm", flat, weights(3, 4), transB=1)
    b.quantize(dense, 0.017, 3, "int8")
    return b.build(b.nodes[-1].output[0])
