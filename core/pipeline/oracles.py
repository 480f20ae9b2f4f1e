"""Other runtimes as references for whole models. None of them is needed to build or run anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ORACLES", "Oracle", "litert", "onnxruntime"]

Oracle = Callable[[Sequence["np.ndarray"]], "list[np.ndarray]"]
"""A model, ready to run: outputs from inputs, each in the model's order."""


def litert(model: Path, shapes: Sequence[tuple[int, ...]]) -> Oracle:
    """A TFLite model with LiteRT's reference kernels, which define the format's integer arithmetic.

    Args:
        model: the file.
        shapes: of its inputs, in its order.

    Raises:
        UsageError: LiteRT is not installed, or does not take the file.
    """
    try:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType
    except ImportError as error:
        raise UsageError("LiteRT is not installed", hint="pip install ai-edge-litert") from error
    try:
        interpreter = Interpreter(
            model_path=str(model), experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1
        )
        details = interpreter.get_input_details()
        for detail, shape in zip(details, shapes, strict=True):
            interpreter.resize_tensor_input(detail["index"], shape)
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"LiteRT does not take the model: {error}", where=str(model)) from error

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        for detail, array in zip(details, inputs, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]

    return run


def onnxruntime(model: Path, shapes: Sequence[tuple[int, ...]]) -> Oracle:
    """An ONNX model with onnxruntime on the CPU, with its default optimisation, on one thread.

    Args:
        model: the file.
        shapes: of its inputs; unused, as onnxruntime takes any that fit.

    Raises:
        UsageError: onnxruntime is not installed, or does not take the file.
    """
    try:
        import onnxruntime as ort
        from onnxruntime.capi import onnxruntime_pybind11_state as state
    except ImportError as error:
        raise UsageError("onnxruntime is not installed", hint="pip install onnxruntime") from error
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    faults = (state.Fail, state.InvalidArgument, state.InvalidGraph, state.InvalidProtobuf, state.NotImplemented)
    try:
        session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except faults as error:
        raise UsageError(f"onnxruntime does not take the model: {error}", where=str(model)) from error
    names = [tensor.name for tensor in session.get_inputs()]

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        results: list[np.ndarray] = session.run(None, dict(zip(names, inputs, strict=True)))
        return results

    return run


ORACLES: Mapping[str, Callable[[Path, Sequence[tuple[int, ...]]], Oracle]] = {
    "litert": litert,
    "onnxruntime": onnxruntime,
}
