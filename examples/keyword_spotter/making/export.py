"""A quantised network as ONNX with QuantizeLinear and DequantizeLinear, in the form that the plugin describes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .. import WORDS
from ..features import COEFFICIENTS, FRAMES
from .network import FEATURE_LIMITS, FEATURE_STEP, POOL_DIVISOR, WEIGHT_STEP, Network, rounded


def to_onnx(network: Network) -> bytes:
    """The network, folded and quantised: input ``features`` int8 [1, 40, 101], output ``logits`` int8 [1, 12]."""
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, onnx.TensorProto] = {}

    def constant(name: str, values: object, dtype: type[np.generic]) -> str:
        constants[name] = numpy_helper.from_array(np.asarray(values, dtype), name)
        return name

    def node(op: str, name: str, *inputs: str, result: str | None = None, **attributes: Any) -> str:
        result = result or name
        nodes.append(helper.make_node(op, inputs, [result], name, **attributes))
        return result

    zero = constant("zero", 0, np.int8)
    feature_step = constant("feature_step", FEATURE_STEP, np.float32)
    weight_step = constant("weight_step", WEIGHT_STEP, np.float32)
    maps = {"features": node("DequantizeLinear", "features_real", "features", feature_step, zero)}
    for name, layer in network.layers.items():
        shape = layer.shape
        bias = rounded(layer.values["bias"], FEATURE_STEP)
        assert layer.quantised and FEATURE_LIMITS[0] <= bias.min() and bias.max() <= FEATURE_LIMITS[1]
        stored = np.rint(layer.values["weights"] / WEIGHT_STEP).reshape(shape.taps, shape.inputs, shape.outputs)
        dense = name == "logits"
        stored = stored[0].T if dense else stored.transpose(2, 1, 0)
        weights = node(
            "DequantizeLinear", f"{name}_weights", constant(f"{name}_stored", stored, np.int8), weight_step, zero
        )
        real = constant(f"{name}_bias", bias, np.float32)
        if dense:
            flat = node("Flatten", f"{name}_flat", maps[shape.source])
            value = node("Gemm", name, flat, weights, real, result=f"{name}_sum", transB=1)
        else:
            where = {"strides": [shape.stride], "pads": [shape.pad] * 2}
            value = node("Conv", name, maps[shape.source], weights, real, result=f"{name}_sum", **where)
        if shape.residual is not None:
            value = node("Add", f"{name}_added", value, maps[shape.residual])
        if shape.pool:
            value = node("ReduceSum", f"{name}_frames", value, constant("frames", [2], np.int64), keepdims=1)
            value = node("Mul", f"{name}_mean", value, constant("share", 1 / POOL_DIVISOR, np.float32))
        if shape.relu:
            value = node("Relu", f"{name}_relu", value)
        result = name if dense else f"{name}_stored_map"
        stored_map = node("QuantizeLinear", f"{name}_quantised", value, feature_step, zero, result=result)
        if not dense:
            maps[name] = node("DequantizeLinear", f"{name}_real", stored_map, feature_step, zero)
    graph = helper.make_graph(
        nodes,
        "spotter",
        [helper.make_tensor_value_info("features", TensorProto.INT8, [1, COEFFICIENTS, FRAMES])],
        [helper.make_tensor_value_info("logits", TensorProto.INT8, [1, len(WORDS)])],
        list(constants.values()),
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return bytes(made.SerializeToString(deterministic=True))
