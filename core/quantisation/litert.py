"""Quantisation of float TFLite models by Google's ai-edge-quantizer."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ModelError, RequirementError, UsageError
from ..support.distribution import extra_hint
from ..support.interruptible import call_interruptibly
from ..support.suppress_logging import suppress_logging
from ..targets import QuantisedForm
from ..targets.quantised import IoDtype

if TYPE_CHECKING:
    import numpy as np

__all__ = ["check_quantiser", "quantised_tflite"]

_SIGNATURE = "main"


def check_quantiser(form: QuantisedForm) -> None:
    """Require an installed quantiser that can make the form.

    Raises:
        UsageError: ai-edge-quantizer is not installed.
        RequirementError: the form needs scales, zero points or bits that it does not make.
    """
    try:
        import ai_edge_quantizer  # noqa: F401 - whether it is there
    except ImportError as error:
        message = "TFLite models are quantised by ai-edge-quantizer, which is not installed"
        raise UsageError(message, hint=extra_hint("quantize-tflite", "ai-edge-quantizer")) from error
    asked = {
        "scales that are powers of two": form.scales != "any",
        "activations without zero points": form.symmetric,
        f"weights of {form.weight_bits} bits": form.weight_bits != 8,
        "fixed scales": (form.activation_scale, form.weight_scale, form.bias_scale) != (None,) * 3,
    }
    if missing := [message for message, is_asked in asked.items() if is_asked]:
        message = f"the target needs {' and '.join(missing)}, which ai-edge-quantizer does not make for TFLite models"
        raise RequirementError(message, hint="export the float model to ONNX and quantise that file")


def quantised_tflite(
    content: bytes,
    samples: Sequence[Mapping[str, np.ndarray]],
    inputs: Sequence[str],
    form: QuantisedForm,
    excluded: Sequence[str],
    io_dtype: IoDtype,
) -> bytes:
    """Return the model with int8 activations and weights.

    Args:
        content: the float TFLite file.
        samples: what it is calibrated with, by the names of inputs.
        inputs: the names of the inputs in the order of the file.
        form: what the target asks for; `check_quantiser` accepts it.
        excluded: layers that stay in float, by the names of their first results.
        io_dtype: the type of float inputs and outputs.

    Raises:
        ModelError: the file is not float throughout, or ai-edge-quantizer does not accept it.
    """
    from ai_edge_quantizer import quantizer, recipe

    model = _with_signature(content, inputs)
    manager = recipe.recipe_manager.RecipeManager()
    operations, granularities = recipe.TFLOperationName, recipe.QuantGranularity
    manager.add_static_config(
        regex=".*",
        operation_name=operations.ALL_SUPPORTED,
        activation_num_bits=8,
        weight_num_bits=8,
        weight_granularity=granularities.CHANNELWISE if form.per_channel else granularities.TENSORWISE,
    )
    in_float = [(re.escape(name), operations.ALL_SUPPORTED) for name in excluded]
    if io_dtype == "float32":
        in_float += [(".*", operations.INPUT), (".*", operations.OUTPUT)]
    for pattern, operation in in_float:
        manager.add_quantization_config(
            regex=pattern, operation_name=operation, algorithm_key=recipe.AlgorithmName.NO_QUANTIZE
        )

    def quantise() -> bytes:
        work = quantizer.Quantizer(model, manager.get_quantization_recipe())
        data = [{name: sample[name] for name in inputs} for sample in samples]
        ranges = work.calibrate({_SIGNATURE: data}, num_threads=1)
        result = work.quantize(ranges, enable_progress_bar=False, enable_progress_report=False)
        return _with_outputs_of(content, bytes(result.quantized_model))

    try:
        with suppress_logging(), contextlib.redirect_stderr(io.StringIO()):  # its progress bars
            return call_interruptibly(quantise)
    except MemoryError:
        raise
    except Exception as error:  # it raises whatever its parts raise
        reason = str(error).strip().splitlines() or [type(error).__name__]
        message = f"ai-edge-quantizer does not accept the model: {reason[0][:200]}"
        raise ModelError(message, hint="--exclude LAYER leaves a layer in float") from error


def _with_signature(content: bytes, inputs: Sequence[str]) -> bytes:
    """Return the file with one signature, which names its inputs; ModelError if it is quantised already."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(content, 0))
    graph = model.subgraphs[0]
    for tensor in graph.tensors:
        if tensor.quantization is not None and tensor.quantization.scale is not None and len(tensor.quantization.scale):
            message = (
                f"the model is quantised already: tensor {tensor.name.decode('utf-8', 'replace')[:60]!r} has a scale"
            )
            raise ModelError(message, hint="build it as it is, or quantise the float model that it was made of")

    def tensors(names: Sequence[str], places: Sequence[int]) -> list[Any]:
        maps = []
        for name, place in zip(names, places, strict=True):
            entry = schema.TensorMapT()
            entry.name, entry.tensorIndex = name, int(place)
            maps.append(entry)
        return maps

    signature = schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = _SIGNATURE, 0
    signature.inputs = tensors(inputs, graph.inputs)
    signature.outputs = tensors([f"output_{number}" for number in range(len(graph.outputs))], graph.outputs)
    model.signatureDefs = [signature]
    return _packed(model)


def _with_outputs_of(content: bytes, quantised: bytes) -> bytes:
    """Return a quantised file whose outputs have the names that they have in the float one, without a signature."""
    from ai_edge_litert import schema_py_generated as schema

    before, after = (schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(data, 0)) for data in (content, quantised))
    graph, tensors = after.subgraphs[0], after.subgraphs[0].tensors
    for old, new in zip(before.subgraphs[0].outputs, graph.outputs, strict=True):
        name = before.subgraphs[0].tensors[old].name
        for tensor in tensors:
            if tensor.name == name and tensor is not tensors[new]:
                tensor.name = tensors[new].name
        tensors[new].name = name
    after.signatureDefs = None
    return _packed(after)


def _packed(model: Any) -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
