"""Other runtimes as references for whole models. None of them is needed to build or run anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ORACLES", "run_litert", "run_onnxruntime"]


def run_litert(model: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of a TFLite model by LiteRT's reference kernels, which define the format's integer arithmetic.

    Args:
        model: a ``.tflite`` file.
        inputs: arrays by input name.

    Raises:
        UsageError: it is no TFLite file, or ``ai-edge-litert`` is not installed.
    """
    if model.suffix != ".tflite":
        raise UsageError(f"LiteRT runs .tflite files, not {model.name}", hint="use --against onnxruntime or builtin")
    try:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType
    except ImportError as error:
        raise UsageError("LiteRT is not installed", hint="pip install ai-edge-litert") from error
    interpreter = Interpreter(
        model_path=str(model), experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1
    )
    for detail in interpreter.get_input_details():
        interpreter.resize_tensor_input(detail["index"], inputs[detail["name"]].shape)
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], inputs[detail["name"]])
    interpreter.invoke()
    return {detail["name"]: interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()}


def run_onnxruntime(model: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of an ONNX model by onnxruntime on the CPU, with its default optimisation, one thread.

    Args:
        model: an ``.onnx`` file.
        inputs: arrays by input name.

    Raises:
        UsageError: it is no ONNX file, or ``onnxruntime`` is not installed.
    """
    if model.suffix != ".onnx":
        raise UsageError(f"onnxruntime runs .onnx files, not {model.name}", hint="use --against litert or builtin")
    try:
        import onnxruntime
    except ImportError as error:
        raise UsageError("onnxruntime is not installed", hint="pip install onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    results: list[Any] = session.run(names, dict(inputs))
    return dict(zip(names, results, strict=True))


ORACLES: dict[str, Callable[[Path, Mapping[str, np.ndarray]], dict[str, np.ndarray]]] = {
    "litert": run_litert,
    "onnxruntime": run_onnxruntime,
}
