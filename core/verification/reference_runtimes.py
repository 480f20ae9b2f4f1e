"""Other runtimes as references for whole models. None of them is needed to build or run anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..pipeline.stages import Form
from ..relay.module import IRModule
from ..support.interruptible import call_interruptibly
from ..targets.values import shorten

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ORACLES", "Kept", "Oracle", "kept_states", "litert", "onnxruntime"]

Oracle = Callable[[Sequence["np.ndarray"]], "list[np.ndarray]"]
"""A model, ready to run: outputs from inputs, each in the model's order. What it keeps goes on from run to run."""


@dataclass(frozen=True)
class Kept:
    """An input of a model and the output that is its value in the next run.

    Args:
        input, output: their names.
        initial: the input in the first run.
    """

    input: str
    output: str
    initial: np.ndarray


def kept_states(form: Form, pairs: Mapping[str, str]) -> list[Kept]:
    """What an oracle must be told of a model whose inputs and outputs ``pairs`` makes states, by their names.

    Args:
        form: the model as it was read with these pairs.
        pairs: the output for each input.
    """
    import numpy as np

    if not pairs or not isinstance(form, IRModule) or form.signature is None:
        return []
    types = {state.name: form.main.params[state.input].tensor for state in form.signature.states}
    initial = {state.name: state.initial for state in form.signature.states}
    return [
        Kept(name, output, np.frombuffer(initial[name], types[name].dtype).reshape(types[name].shape))
        for name, output in pairs.items()
    ]


def litert(
    model: Path,
    shapes: Sequence[tuple[int, ...]],
    kept: Sequence[Kept] = (),
    constants: Mapping[str, np.ndarray] | None = None,
) -> Oracle:
    """A TFLite model with LiteRT's reference kernels, which define the format's integer arithmetic.

    Args:
        model: the file.
        shapes: of its inputs, in its order, without those that are kept.
        kept: inputs that take what an output gave; its variables it keeps itself.
        constants: inputs that always take these.

    Raises:
        UsageError: LiteRT is not installed, or does not take the file; when it is run, it does not take an input.
    """
    try:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType
    except ImportError as error:
        raise UsageError("LiteRT is not installed", hint="pip install ai-edge-litert") from error
    try:
        interpreter = Interpreter(
            model_path=str(model), experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1
        )
        inputs = {detail["name"]: detail["index"] for detail in interpreter.get_input_details()}
        others = {*(state.input for state in kept), *(constants or {})}
        names = [name for name in inputs if name not in others]
        for name, shape in zip(names, shapes, strict=True):
            interpreter.resize_tensor_input(inputs[name], shape)
        for name, array in (constants or {}).items():
            interpreter.resize_tensor_input(inputs[name], array.shape)
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        hint = "compare ONNX models with --against onnxruntime"
        raise UsageError(f"LiteRT does not read the model: {error}", where=str(model), hint=hint) from error

    def run(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        try:
            for name, array in arrays.items():
                interpreter.set_tensor(inputs[name], array)
            call_interruptibly(interpreter.invoke)
        except (RuntimeError, ValueError) as error:
            raise _not_run("LiteRT", error, model) from error
        return {d["name"]: interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()}

    return _keeping(run, names, kept, constants)


def _not_run(runtime: str, error: Exception, model: Path) -> UsageError:
    """What a runtime says of inputs, or of a model, that it does not take when it runs."""
    why = " ".join(str(error).split())
    hint = "give inputs that it takes, --inputs or --input; without --against only the references are compared with"
    return UsageError(f"{runtime} does not run the model: {shorten(why, 400)}", where=str(model), hint=hint)


def _keeping(
    run: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]],
    names: Sequence[str],
    kept: Sequence[Kept],
    constants: Mapping[str, np.ndarray] | None,
) -> Oracle:
    """``run``, from inputs to outputs by name, as an oracle of the inputs ``names`` that carries on what is kept."""
    values = {**(constants or {}), **{state.input: state.initial for state in kept}}

    def once(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        outputs = run({**dict(zip(names, inputs, strict=True)), **values})
        values.update({state.input: outputs.pop(state.output) for state in kept})
        return list(outputs.values())

    return once


def onnxruntime(
    model: Path,
    shapes: Sequence[tuple[int, ...]],
    kept: Sequence[Kept] = (),
    constants: Mapping[str, np.ndarray] | None = None,
) -> Oracle:
    """An ONNX model with onnxruntime on the CPU, with its default optimisation, on one thread.

    Args:
        model: the file.
        shapes: of its inputs; unused, as onnxruntime takes any that fit.
        kept: inputs that take what an output gave.
        constants: inputs that always take these.

    Raises:
        UsageError: onnxruntime is not installed, or does not take the file; when it is run, it does not take an input.
    """
    try:
        import onnxruntime as ort
        from onnxruntime.capi import onnxruntime_pybind11_state as state
    except ImportError as error:
        raise UsageError("onnxruntime is not installed", hint="pip install onnxruntime") from error
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Without this its products of uint8 with int8 saturate in 16 bits on x86 CPUs without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    faults: tuple[type[Exception], ...] = (RuntimeError,)
    faults += tuple(fault for fault in vars(state).values() if isinstance(fault, type) and issubclass(fault, Exception))
    try:
        session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except faults as error:
        raise UsageError(f"onnxruntime does not take the model: {error}", where=str(model)) from error
    others = {*(state.input for state in kept), *(constants or {})}
    names = [tensor.name for tensor in session.get_inputs() if tensor.name not in others]
    outputs = [tensor.name for tensor in session.get_outputs()]

    def run(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        try:
            results = call_interruptibly(lambda: session.run(outputs, dict(arrays)))
        except faults as error:
            raise _not_run("onnxruntime", error, model) from error
        return dict(zip(outputs, results, strict=True))

    return _keeping(run, names, kept, constants)


ORACLES: Mapping[str, Callable[..., Oracle]] = {
    "litert": litert,
    "onnxruntime": onnxruntime,
}
