"""Writes small ONNX files, and runs ONNX files with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

IR_VERSION = 9
"""Old enough for every onnxruntime that is tested with."""


def sparse_tensor(value: np.ndarray, linear: bool, name: str = "") -> onnx.SparseTensorProto:
    """The elements of an array that are not 0, with linear indices or one for each dimension."""
    places = np.flatnonzero(value)
    indices = places if linear else np.stack(np.unravel_index(places, value.shape), axis=-1)
    return helper.make_sparse_tensor(
        numpy_helper.from_array(value.reshape(-1)[places], name),
        numpy_helper.from_array(indices.astype(np.int64)),
        value.shape,
    )


class OnnxBuilder:
    """One graph, built node by node; tensors are named by the caller or numbered.

    Args:
        opset: version of ONNX's operators.
        domains: version of the operators of each other domain.
    """

    def __init__(self, opset: int = 17, **domains: int) -> None:
        self.opset = opset
        self.domains = domains
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.sparse: list[onnx.SparseTensorProto] = []

    def input(self, name: str, shape: Sequence[int | str | None], dtype: str = "float32") -> str:
        """An input; a string or None is a dimension that is left open."""
        elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs.append(helper.make_tensor_value_info(name, elem_type, shape))
        return name

    def constant(self, value: Any, dtype: str | None = None, name: str | None = None) -> str:
        """An initialiser."""
        name = name or f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def sparse_constant(self, value: np.ndarray, linear: bool) -> str:
        """A sparse initialiser; linear indices, or one for each dimension."""
        name = f"s{len(self.sparse)}"
        self.sparse.append(sparse_tensor(value, linear, name))
        return name

    def node(
        self, op: str, *inputs: str, outputs: int | Sequence[str] = 1, name: str | None = None, **attrs: Any
    ) -> Any:
        """A node; gives the name of its output, or of its outputs where there are several."""
        number = len(self.nodes)
        if isinstance(outputs, int):
            outputs = [f"{op}_{number}" if outputs == 1 else f"{op}_{number}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, outputs, name or f"n_{outputs[0]}", **attrs))
        return outputs[0] if len(outputs) == 1 else list(outputs)

    def quantize(self, data: str, scale: Any, zero_point: Any, dtype: str, **attrs: Any) -> str:
        """QuantizeLinear."""
        parameters = self.constant(scale, "float32"), self.constant(zero_point, dtype)
        made: str = self.node("QuantizeLinear", data, *parameters, **attrs)
        return made

    def dequantize(self, data: str, scale: Any, zero_point: Any, dtype: str, **attrs: Any) -> str:
        """DequantizeLinear."""
        parameters = self.constant(scale, "float32"), self.constant(zero_point, dtype)
        made: str = self.node("DequantizeLinear", data, *parameters, **attrs)
        return made

    def model(self, *outputs: str) -> onnx.ModelProto:
        """The model as it is, right or wrong; its outputs have names only."""
        declared = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self.nodes, "test", self.inputs, declared, self.initializers)
        graph.sparse_initializer.extend(self.sparse)
        opsets = [helper.make_opsetid(domain, version) for domain, version in {"": self.opset, **self.domains}.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)

    def build(self, *outputs: str) -> bytes:
        """The file, which onnx finds right."""
        made = onnx.shape_inference.infer_shapes(self.model(*outputs), strict_mode=True, data_prop=True)
        return made.SerializeToString()


def run_onnxruntime(data: bytes, inputs: Mapping[str, np.ndarray], *, optimise: bool = True) -> list[np.ndarray]:
    """The outputs that onnxruntime computes on one thread, by default with its default optimisations."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    # Without this its products of uint8 with int8 saturate in 16 bits on x86 CPUs without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    results: list[np.ndarray] = session.run(None, {name: np.asarray(value) for name, value in inputs.items()})
    return results
