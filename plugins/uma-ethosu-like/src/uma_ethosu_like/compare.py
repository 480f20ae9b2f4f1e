"""Our compiler beside Vela: both compile a model, the simulator runs both streams, LiteRT says what is right.

All that is compared is measured alike: cycles by the simulator's model, memory with the model's inputs and outputs, the
stream without what stands around it, all that is constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uma
from uma.errors import ModelError, UsageError

from .commands import WORD_BYTES
from .network_file import Job
from .payload import MAGIC, read_payload
from .simulate import simulate
from .vela import compile_model

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Comparison", "Side", "compare"]

KIND = "ethosu_like"


@dataclass(frozen=True)
class Side:
    """What one compiler made of a model.

    Args:
        cycles: of one run, by the simulator's model.
        arena_bytes: memory that is written, inputs and outputs included.
        stream_bytes: of commands.
        weight_bytes: of all that is constant: weights, biases, scales, tables.
        exact: whether all outputs have the bytes of LiteRT's reference kernels.
    """

    cycles: int
    arena_bytes: int
    stream_bytes: int
    weight_bytes: int
    exact: bool


@dataclass(frozen=True)
class Comparison:
    """A model by both compilers.

    Args:
        model: the file's name without its suffix.
        macs: for which machine.
        ours, vela: what each made of it.
        estimated_cycles: what Vela expects of its own stream; None if it does not say.
        on_host: layers that our compiler leaves to the host. Vela leaves none: it refuses.
    """

    model: str
    macs: int
    ours: Side
    vela: Side
    estimated_cycles: int | None
    on_host: tuple[str, ...]


def compare(file: Path, macs: int) -> Comparison:
    """Compiles and runs a TFLite model on both ways, with one random input.

    Raises:
        UsageError: the file cannot be read; Vela or LiteRT is not installed; there is no such machine.
        ModelError: it is not a model, Vela leaves some of it to a CPU, or LiteRT cannot run it.
        UmaError: what `uma.build`, `compile_model` and `simulate` raise.
    """
    where = str(file)
    interpreter = _interpreter_class()
    try:
        model = file.read_bytes()
    except OSError as error:
        raise UsageError(f"it cannot be read: {error.strerror}", where=where) from error
    compiled = compile_model(model, macs, where=where)
    inputs, wanted = _reference(interpreter, model, where)
    vela = _run_vela(compiled.job, inputs, wanted)
    # The host only drives: what is compiled soonest will do.
    artifact = uma.build(file, target=[f"{KIND} -macs={macs}", "c -opt=s"])
    ours = _run_ours(artifact, inputs, wanted)
    on_host = tuple(name for call in artifact.record.calls if call.device is None for name in call.layers)
    return Comparison(file.stem, macs, ours, vela, compiled.estimated_cycles, on_host)


def _interpreter_class() -> Any:
    try:
        from ai_edge_litert import interpreter
    except ImportError as error:
        raise UsageError(
            "LiteRT, whose results are the right ones, is not installed",
            hint="pip install 'uma-ethosu-like[compare]'",
        ) from error
    return interpreter


def _reference(litert: Any, model: bytes, where: str) -> tuple[list[np.ndarray], list[bytes]]:
    """Random inputs in the order of the model, and what the reference kernels give for them."""
    import numpy as np

    kernels = litert.OpResolverType.BUILTIN_REF
    try:
        one = litert.Interpreter(model_content=model, experimental_op_resolver_type=kernels, num_threads=1)
        one.allocate_tensors()
        rng, inputs = np.random.default_rng(0), []
        for detail in one.get_input_details():
            limits = np.iinfo(detail["dtype"])
            inputs.append(rng.integers(limits.min, limits.max, detail["shape"], detail["dtype"], endpoint=True))
            one.set_tensor(detail["index"], inputs[-1])
        one.invoke()
    except (ValueError, RuntimeError) as error:
        raise ModelError(f"LiteRT cannot run it: {error}", where=where) from error
    return inputs, [one.get_tensor(detail["index"]).tobytes() for detail in one.get_output_details()]


def _run_vela(job: Job, inputs: Sequence[np.ndarray], wanted: Sequence[bytes]) -> Side:
    # A raw file does not say which types have no sign.
    arrays = {
        tensor.name: array.view(tensor.dtype).reshape(tensor.shape)
        for tensor, array in zip(job.inputs, inputs, strict=True)
    }
    done = simulate(job, arrays)
    return Side(
        done.cycles,
        sum(one.nbytes for one in job.regions.values() if one.data is None),
        WORD_BYTES * len(job.payload.words),
        sum(one.nbytes for one in job.regions.values() if one.data is not None),
        [array.tobytes() for array in done.outputs.values()] == list(wanted),
    )


def _run_ours(artifact: uma.Artifact, inputs: Sequence[np.ndarray], wanted: Sequence[bytes]) -> Side:
    record = artifact.record
    tensors = zip(record.inputs, inputs, strict=True)
    arrays = {tensor.name: array.reshape(tensor.shape) for tensor, array in tensors}
    with artifact.session() as session:
        outputs = session.run(arrays)
        counted = session.counters().get(KIND, {}).get("cycles", 0)
    streams, weights = 0, 0
    data = artifact.files[f"{record.name}_weights.bin"]
    used = {name for call in record.calls if call.device == KIND for name in call.arguments}
    for buffer in record.buffers:
        if buffer.role != "constant" or buffer.name not in used or buffer.offset is None:
            continue
        content = data[buffer.offset : buffer.offset + buffer.bytes]
        if content.startswith(MAGIC):
            streams += WORD_BYTES * len(read_payload(content).words)
        else:
            weights += buffer.bytes
    outside = sum(buffer.bytes for buffer in record.buffers if buffer.role in ("input", "output"))
    results = [outputs[tensor.name].tobytes() for tensor in record.outputs]
    return Side(counted, record.arena_bytes + outside, streams, weights, results == list(wanted))
