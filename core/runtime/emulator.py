"""Running a model that is compiled for another machine: each run is one of a program in an emulator.

What goes in and out are two files in a temporary folder; ``emulation/uma_emulated.c`` is the other side.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from ..errors import InternalError, ModelError, RequirementError, ToolchainError, UsageError
from ..support.machines import Runner
from ..toolchain.subprocesses import ending, excerpt, run
from .abi import Array, abi
from .devices import DeviceInfo, device_error, miscounted, run_error
from .instruction_counting import Counts, place_plugin, read_counts
from .session import ModelSession
from .state import SessionState, check_state
from .tensors import TensorInfo
from .threads import threads_of

__all__ = ["EmulatedModel", "EmulatedSession"]

_TIMEOUT_S = 600.0
_FAULT = 99
"""Exit status of a program that the board's CPU stopped."""

# As in uma_emulated.c.
_REQUEST = struct.Struct("<3Q")
_RESPONSE = struct.Struct("<Q4q3Q")
_CLOSING = struct.Struct("<2q")
_WORD = struct.Struct("<Q")
_NO_MEMORY, _ANOTHER_MODEL, _NOT_OPENED, _NOT_INITIALISED = range(1, 5)

_BEFORE_STEPS = -1
"""``UMA_FAULT_ACTIVATE``."""


@dataclass(frozen=True)
class EmulatedModel:
    """A compiled model in a program for an emulator. Running it runs native code, which may use this machine's files.

    Args:
        image: the program.
        runner: the emulator.
        name: of the model.
        inputs, outputs, states: what goes in, comes out, and is kept between runs, in the order of the C interface.
        devices: what it runs on.
        layers: of each step, for errors.
        parts: of each step, the layers of the parts that its device tells apart; for errors.
        arena_bytes: working memory of a run.
        model_digest: of the model that it was built from, by which states know it.
        is_counted: the program has marks by which its instructions are counted, see `counting`.
    """

    image: Path
    runner: Runner
    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    states: tuple[TensorInfo, ...]
    devices: tuple[DeviceInfo, ...]
    layers: tuple[tuple[str, ...], ...]
    parts: tuple[tuple[str, ...], ...]
    arena_bytes: int
    model_digest: str | None = None
    is_counted: bool = False

    def session(self, threads: int | None = None) -> EmulatedSession:
        """A context of the model; UsageError for more than one thread."""
        threads_of(threads, 1, f"model {self.name}", self.runner.name)
        return EmulatedSession(self)


class EmulatedSession(ModelSession):
    """One context of an emulated model.

    Nothing runs between two runs: what a model keeps is here, and each run opens the devices and closes them again.
    Times are the emulator's, and say nothing of the machine.

    Args:
        model: the model.

    Attributes:
        model: as given.
        counts: the instructions of the last run; None where they are not counted.
        uncounted: why they could not be, in words; else None.
        stack_bytes: of the stack, what the last run took, painted before and looked at after; None where nobody knows,
            as with Linux.

    Raises:
        ToolchainError: the emulator is not installed.
    """

    def __init__(self, model: EmulatedModel) -> None:
        inputs, outputs = (
            {info.name: np.zeros(info.shape, info.dtype) for info in infos} for infos in (model.inputs, model.outputs)
        )
        super().__init__(model.name, model.inputs, inputs, outputs)
        self.model = model
        self._command = _command(model.runner, model.image)
        self._states: dict[str, Array] | None = None  # what the model says they are before the first run
        self._memory = np.zeros(model.arena_bytes, np.uint8)
        self._counted: dict[str, dict[str, int]] | None = None
        self.counts: Counts | None = None
        self.uncounted: str | None = None
        self.stack_bytes: int | None = None

    def invoke(self) -> None:
        if self._broken:
            raise self._half_way("a run")
        self._ready()
        self._emulate(runs=1)

    def reset(self) -> None:
        with self._alone():
            self._states, self._broken = None, False

    def save(self) -> SessionState:
        with self._alone():
            if self._broken:
                raise self._half_way("saving the state")
            if self._states is None and self.model.states:
                self._emulate(runs=0)
            arrays = {name: array.copy() for name, array in (self._states or {}).items()}
            return SessionState(self.model.model_digest, MappingProxyType(arrays))

    def restore(self, state: SessionState) -> None:
        check_state(state, self.model.states, self.model.model_digest, self.model.name)
        with self._alone():
            self._states = {info.name: np.array(state.arrays[info.name]) for info in self.model.states}
            self._broken = False

    def counters(self) -> dict[str, dict[str, int]]:
        if not self.model.devices:
            return {}
        if self._counted is None or self._closed:
            reason = "the session was closed" if self._closed else "nothing was run yet"
            raise UsageError(f"there are no counters: {reason}", where=self._where)
        return self._counted

    def _close(self, raising: bool) -> None:
        self._closed = True

    def _ready(self) -> None:
        if self._closed:
            raise self._was_closed()

    def _arena(self) -> Array:
        return self._memory

    def _emulate(self, runs: int) -> None:
        """One start of the program, which runs the model so many times: once, or not at all to see its states."""
        response = _Reader(self._respond(self._request(runs)), self._where)
        outcome, status, device, step, code, needed, room, stack = response.words(_RESPONSE)
        if outcome == _NO_MEMORY:
            raise RequirementError(
                f"the model needs {needed:,} bytes of RAM for what it works on, and {self.model.runner.name} has "
                f"{room:,} left",
                where=self._where,
                hint="choose an emulator of a larger board",
            )
        if outcome == _ANOTHER_MODEL:
            raise ModelError("the sources hold another model than the metadata says", where=self._where)
        if outcome == _NOT_OPENED:
            raise device_error(self.model.devices[device], self.model.name, code, "could not be opened")
        name = abi().statuses.get(status, "an unknown status")
        if status != 0 and name != "UMA_ERR_DEVICE":
            action = "initialisation" if outcome == _NOT_INITIALISED else "a run"
            raise InternalError(f"{action} of model {self.model.name!r} failed with {name} ({status})")
        values = [self._read_counters(info, response) for info in self.model.devices]
        counted = {
            info.label: dict(zip(info.counters, read, strict=False))
            for info, read in zip(self.model.devices, values, strict=True)
        }
        outputs = {info.name: response.array(info) for info in self.model.outputs}
        states = {info.name: response.array(info) for info in self.model.states}
        arena = response.take(self.model.arena_bytes)
        closing, closing_code = response.words(_CLOSING)
        response.end()
        if runs:
            self._counted = counted
            self.stack_bytes = stack or None
            self._memory = np.frombuffer(arena, np.uint8)
        if status != 0:
            # A run that was stopped before its first step changed nothing.
            self._broken = bool(self.model.states) and step != _BEFORE_STEPS
            info, read = self.model.devices[device], values[device]
            at = (read[info.n_counters], read[info.n_counters + 1]) if info.locates_faults else None
            layers, parts = self.model.layers, self.model.parts
            raise run_error(self.model.devices, self.model.name, layers, parts, device, step, code, at)
        self._states = states
        for output, array in outputs.items():
            np.copyto(self.outputs[output], array)
        if closing_code:
            raise device_error(self.model.devices[closing], self.model.name, closing_code, "could not be closed")

    def _request(self, runs: int) -> bytes:
        states = [] if self._states is None else [array.tobytes() for array in self._states.values()]
        inputs = [array.tobytes() for array in self.inputs.values()]
        head = _REQUEST.pack(runs, sum(map(len, inputs)), sum(map(len, states)))
        return b"".join((head, *states, *inputs))

    def _respond(self, request: bytes) -> bytes:
        """What the program answers; ToolchainError where it does not."""
        runner = self.model.runner
        try:
            if self.model.is_counted:
                status, text, answer = self._start(request, counting=True)
                if answer is not None:
                    return answer
                refusal = excerpt(text, 1).strip() or ending(status)
                status, text, answer = self._start(request)
                if answer is not None:  # so it was the plugin
                    name = Path(self._command[0]).name
                    self.counts, self.uncounted = None, f"{name} does not take the plugin that counts: {refusal}"
            else:
                status, text, answer = self._start(request)
            if answer is not None:
                return answer
        except OSError as error:
            raise ToolchainError(
                f"cannot write what the emulator reads, or read what it writes: {error.strerror}",
                where="the folder for temporary files",
                hint="make room there, or choose another one with TMPDIR",
            ) from error
        reason, hint = f"the program stopped without a result ({ending(status)})", None
        if runner.board is not None and (status == _FAULT or status < 0):
            reason = f"a fault stopped the CPU of {runner.name}"
            hint = f"its stack has {runner.board.stack_bytes:,} bytes, which may be too few for the model"
        raise ToolchainError(f"{reason}\n{excerpt(text)}".rstrip(), where=self._where, hint=hint)

    def _start(self, request: bytes, counting: bool = False) -> tuple[int, str, bytes | None]:
        """One start of the emulator: its exit status, what it printed, and the response if it ended well.

        Raises:
            ToolchainError: it cannot be started, or hung.
            OSError: the folder for temporary files has no room.
        """
        program, *arguments = self._command
        with tempfile.TemporaryDirectory(prefix="uma-emulate-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            folder.joinpath("request").write_bytes(request)
            image = self.model.image.read_bytes() if counting else b""
            plugin: tuple[str, ...] = ()
            if counting:
                self.counts = None
                try:
                    plugin = place_plugin(folder, image)
                except ToolchainError as error:
                    self.uncounted = f"the emulator's plugin that counts cannot be made: {error.what}"
            status, text = run((program, *plugin, *arguments), cwd=folder, timeout_s=_TIMEOUT_S)
            if status != 0:
                return status, text, None
            if plugin:
                self.counts = read_counts(folder, image)
                self.uncounted = None if self.counts is not None else "the emulator counted no whole run"
            return status, text, folder.joinpath("response").read_bytes()

    def _read_counters(self, info: DeviceInfo, response: _Reader) -> list[int]:
        """All that a device counts: the counters that have names, those of parts, and where it found a fault."""
        (count,) = response.words(_WORD)
        if count != info.n_indices:
            raise miscounted(info, count, self._where)
        return [response.words(_WORD)[0] for _ in range(count)]


class _Reader:
    """A response, piece by piece. ToolchainError where it is not as long as it should be."""

    def __init__(self, data: bytes, where: str) -> None:
        self._data = data
        self._where = where
        self._at = 0

    def take(self, nbytes: int) -> bytes:
        """The next bytes."""
        piece = self._data[self._at : self._at + nbytes]
        self._at += nbytes
        if len(piece) != nbytes:
            raise self._wrong()
        return piece

    def words(self, layout: struct.Struct) -> tuple[int, ...]:
        """The next words."""
        return layout.unpack(self.take(layout.size))

    def array(self, info: TensorInfo) -> Array:
        """The next tensor."""
        return np.frombuffer(self.take(info.nbytes), info.dtype).reshape(info.shape)

    def end(self) -> None:
        """Nothing comes after this."""
        if self._at != len(self._data):
            raise self._wrong()

    def _wrong(self) -> ToolchainError:
        return ToolchainError(
            f"the program's result has {len(self._data)} bytes, not what was asked", where=self._where
        )


def _command(runner: Runner, image: Path) -> tuple[str, ...]:
    """How to start the emulator; ToolchainError where it is not installed."""
    program = shutil.which(runner.program)
    if program is None and runner.board is None:
        program = shutil.which(f"{runner.program}-static")
    if program is None:
        package = runner.program if runner.board else "qemu-user"
        if runner.architecture == "riscv64" and runner.board:
            package = "qemu-system-misc"
        text = f"the emulator {runner.program!r} is not installed"
        raise ToolchainError(text, where="PATH", hint=f"install it: its package is often called {package}")
    if runner.board is None:
        return program, str(image)
    quiet: tuple[str, ...] = ("-nographic", "-monitor", "none", "-serial", "none", "-no-user-config")
    files = ("-semihosting-config", "enable=on,target=native")
    if runner.architecture == "riscv64":
        quiet = (*quiet, "-bios", "none")  # nothing is below the program
    return program, "-M", runner.board.name, *quiet, *files, "-kernel", str(image)
