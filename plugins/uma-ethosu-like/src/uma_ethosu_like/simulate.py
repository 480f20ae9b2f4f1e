"""A job on the simulator, without a model around it: ``csrc/eu_sim.h`` through cffi.

A model that UMA has built runs on the same C, behind the driver (`device`).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uma.errors import DeviceError, ModelError, NoCompilerError, PluginError, ToolchainError, UsageError

from .commands import OPERATIONS, REGIONS, SLOTS, decode
from .cost import memories
from .device import FAULTS
from .machine import Machine
from .network_file import Job, Tensor

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Operation", "Simulation", "simulate"]

_SOURCES = ("sim", "op", "ops", "elementwise", "hazards", "cycles", "weights")
_COMPILERS = ("cc", "gcc", "clang")


@dataclass(frozen=True)
class Operation:
    """What one operation of a stream took.

    Args:
        word: index of its command in the stream.
        kind: of `OPERATIONS`.
        start, cycles: when it began, from the start of the stream, and how long it took.
        macs: products that it made.
    """

    word: int
    kind: str
    start: int
    cycles: int
    macs: int


@dataclass(frozen=True)
class Simulation:
    """What became of a job.

    Args:
        outputs: by name.
        cycles: from the first command to the end of all operations.
        operations: in the order of the stream.
        dma_bytes: that copies moved.
    """

    outputs: Mapping[str, np.ndarray]
    cycles: int
    operations: tuple[Operation, ...]
    dma_bytes: int


def simulate(job: Job, inputs: Mapping[str, np.ndarray], machine: Machine | None = None) -> Simulation:
    """Runs a job.

    Args:
        job: with its memory.
        inputs: by name, of the dtype and the shape that the job says; extents of 1 at the front may be left out.
        machine: how fast its memories are; None is the defaults. Its size is the stream's.

    Raises:
        UsageError: an input is missing, unknown, or of another type.
        ModelError: the job has no memory, or a stream that is none.
        DeviceError: the stream did what the machine does not allow.
        NoCompilerError, ToolchainError: the simulator cannot be compiled.
    """
    import numpy as np

    if not job.regions:
        raise ModelError("a payload alone does not say what memory it runs on", hint="give what Vela wrote it into")
    arrays = {tensor.name: _checked(tensor, inputs) for tensor in job.inputs}
    if unknown := sorted(inputs.keys() - arrays.keys()):
        raise UsageError(f"there is no input {unknown[0]!r}", hint=", ".join(arrays) or "there are none")
    memory = {
        number: np.zeros(one.nbytes, np.uint8) if one.data is None else np.frombuffer(one.data, np.uint8).copy()
        for number, one in job.regions.items()
    }
    for tensor in job.inputs:
        memory[tensor.region][_span(tensor)] = np.frombuffer(arrays[tensor.name].tobytes(), np.uint8)
    with _library() as (ffi, library):
        result, operations = _run(ffi, library, job, memory, machine or Machine(macs=job.payload.macs))
    outputs = {
        tensor.name: np.frombuffer(memory[tensor.region][_span(tensor)].tobytes(), tensor.dtype).reshape(tensor.shape)
        for tensor in job.outputs
    }
    return Simulation(outputs, result.cycles, operations, result.dma_bytes)


def _span(tensor: Tensor) -> slice:
    return slice(tensor.offset, tensor.offset + tensor.nbytes)


def _checked(tensor: Tensor, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    array = inputs.get(tensor.name)
    wanted = f"{tensor.dtype}{list(tensor.shape)}"
    if array is None:
        raise UsageError(f"input {tensor.name!r} is missing", hint=wanted)
    if array.dtype != tensor.dtype or _core(array.shape) != _core(tensor.shape):
        raise UsageError(f"input {tensor.name!r} is {wanted}, {array.dtype}{list(array.shape)} was given")
    return array


def _core(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Without extents of 1 at the front, which the tools disagree about."""
    return _core(shape[1:]) if shape[:1] == (1,) else shape


def _run(
    ffi: Any, library: Any, job: Job, memory: Mapping[int, np.ndarray], machine: Machine
) -> tuple[Any, tuple[Operation, ...]]:
    words = ffi.new("uint32_t[]", job.payload.words)
    regions = ffi.new(f"eu_region[{REGIONS}]")
    config = ffi.new("eu_config *", {"macs": job.payload.macs})
    for number, data in memory.items():
        writable = job.regions[number].data is None
        regions[number] = {"data": ffi.from_buffer("uint8_t *", data), "bytes": data.size, "writable": writable}
        config.flash_regions |= 0 if writable else 1 << number
    for speed, one in zip((config.sram, config.flash), memories(machine), strict=True):
        speed.bytes_per_16_cycles, speed.latency_cycles = one.per_16_cycles, one.latency
    room = len(job.payload.words)
    records = ffi.new("eu_record[]", room)
    result = ffi.new("eu_result *", {"records": records, "records_room": room})
    state = ffi.new("uint64_t[]", -(-library.eu_memory_bytes() // 8))
    library.eu_run(config, words, room, regions, ffi.cast("eu_memory *", state), result)
    if result.fault:
        raise _fault(result, job.payload.words)
    outputs = tuple(
        Operation(one.word, OPERATIONS[one.kind], one.start, one.cycles, one.macs)
        for one in ffi.unpack(records, result.n_records)
    )
    return result, outputs


def _fault(result: Any, words: tuple[int, ...]) -> DeviceError:
    where = f"word {result.word} of the stream{_command_at(words, result.word)}"
    if result.slot >= 0:
        where += f"; register {SLOTS[result.slot]}"
    if result.other:
        where += f"; what is in flight began at word {result.other}"
    return DeviceError(FAULTS[result.fault], device="ethosu_like", layers=(), code=result.fault, where=where)


def _command_at(words: tuple[int, ...], at: int) -> str:
    try:
        for position, one in decode(words):
            if position == at:
                return f", {one}"
    except PluginError:  # what it is not is the fault
        pass
    return ""


# --- The library -----------------------------------------------------------------------------------------------------


@contextmanager
def _library() -> Iterator[tuple[Any, Any]]:
    """The simulator as cffi has it, compiled for the moment."""
    from cffi import FFI

    ffi = FFI()
    with as_file(files(__package__) / "csrc") as folder, tempfile.TemporaryDirectory() as build_folder:
        ffi.cdef(_declarations((folder / "eu_sim.h").read_text(encoding="utf-8")))
        out = Path(build_folder) / "eu_sim.so"
        _compile([folder / f"eu_{name}.c" for name in _SOURCES], out)
        library = ffi.dlopen(str(out))
        try:
            yield ffi, library
        finally:
            ffi.dlclose(library)


def _declarations(header: str) -> str:
    """What a header declares, without what is for the preprocessor."""
    lines = [line for line in header.splitlines() if not line.startswith("#")]
    return re.sub(r"\[EU_N_REGIONS\]", f"[{REGIONS}]", "\n".join(lines))


def _compile(sources: list[Path], out: Path) -> None:
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise NoCompilerError("the simulator needs a C compiler", hint=f"one of {', '.join(_COMPILERS)}")
    command = [compiler, "-std=c99", "-O2", "-shared", "-fPIC", *map(str, sources), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolchainError("the simulator cannot be compiled", where=compiler, hint=done.stderr.strip()[-1000:])
