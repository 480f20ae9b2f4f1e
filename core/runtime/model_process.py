"""Running compiled models in a process of their own, so that a crash or a hang of foreign code is a result like others.

One process runs all models of a verification. It is started afresh, not forked, and again after each crash. What models
work on is in files that both processes map: it is there after a crash as well.
"""

from __future__ import annotations

import json
import mmap
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ..errors import InternalError, ToolchainError
from ..packing.offsets import round_up
from ..program.memory_plan import guard_bytes
from ..toolchain.cache import on_trial
from ..toolchain.subprocesses import of_process
from .abi import Array, abi, declarations
from .devices import DeviceInfo, device_error, miscounted, run_error
from .session import ModelSession
from .state import SessionState
from .tensors import TensorInfo

__all__ = ["STEP_LIMIT_S", "EmulatedRuns", "Image", "IsolatedModel", "Isolation", "Stopped", "Written"]

STEP_LIMIT_S = 60.0
"""How long one step may take, in seconds, before it counts as hanging."""

_PAGE = 4096
_MAX_WRITTEN = 64
_WATCH_WORDS = 2 + 4 * _MAX_WRITTEN
_POLL_S = 0.2
_DECLARATIONS = """
typedef struct { unsigned char *at; size_t bytes; } uma_zone;
typedef struct { int64_t step, zone, first, bytes; } uma_written;
typedef struct { int64_t progress, n_written; uma_written written[64]; } uma_watch;
void uma_watch_steps(uma_watch *watch, const unsigned char *wanted, const uma_zone *zones, size_t n_zones,
                     const unsigned char *should_be);
"""
"""As in `uma.codegen.stepwise`."""


@dataclass(frozen=True)
class Image:
    """A compiled model.

    Args:
        library: the file.
        name: of the model.
        inputs, outputs, states: what goes in, comes out, and is kept, in the order of the C interface.
        devices: what it runs on.
        layers, parts: of each step, as `NativeModel` has them.
        arena_bytes, state_bytes: memory that it needs.
        stepwise: whether single steps can be run.
        arena, state: the extents of the buffers in these memories, by name, as (offset, bytes): what lies between is
            nobody's. Only of a model of which single steps can be run.
    """

    library: Path
    name: str
    inputs: Sequence[TensorInfo]
    outputs: Sequence[TensorInfo]
    states: Sequence[TensorInfo]
    devices: Sequence[DeviceInfo]
    layers: Sequence[Sequence[str]]
    parts: Sequence[Sequence[str]]
    arena_bytes: int
    state_bytes: int
    stepwise: bool = False
    arena: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    state: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Stopped:
    """A run that had no end: the process crashed, or was stopped because it hung.

    Args:
        step: that was under way; None where it was none.
        after: the last step that had ended; None before the first.
        reason: in words, as a predicate.
    """

    step: int | None
    after: int | None
    reason: str


@dataclass(frozen=True)
class Written:
    """Bytes that a step wrote though they are nobody's.

    Args:
        step: after which they were found.
        below, above: the buffers that they lie between; None at the ends of memory.
        behind: of the first of them, in bytes from the end of ``below``.
        before: of the last of them, in bytes to the beginning of ``above``.
        count: from the first to the last.
    """

    step: int
    below: str | None
    above: str | None
    behind: int
    before: int
    count: int


class Isolation:
    """The process, started when it is first needed. Leave it by ``close``, or at the end of a ``with``.

    Args:
        step_limit_s: how long one step may take, in seconds.
    """

    def __init__(self, step_limit_s: float = STEP_LIMIT_S) -> None:
        self._limit_s = step_limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Any = None
        self._files: list[Any] = []
        self._loaded: set[str] = set()

    def __enter__(self) -> Isolation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process, whatever it does."""
        self._end()
        for file in self._files:
            file.close()
        self._files.clear()

    def restart(self) -> None:
        """End the process: what is run next is in a new one, where nothing was run before."""
        self._end()

    def file(self, nbytes: int) -> Any:
        """A file of zeros that the process has too, which is started again if need be.

        Raises:
            ToolchainError: there is no room for it.
        """
        self._end()
        try:
            file = tempfile.TemporaryFile(prefix="uma-verify-")  # noqa: SIM115 - until `close`
            self._files.append(file)
            os.posix_fallocate(file.fileno(), 0, nbytes) if hasattr(os, "posix_fallocate") else file.truncate(nbytes)
        except OSError as error:
            raise ToolchainError(
                f"there is no room for what the model works on: {error.strerror}",
                where="the folder for temporary files",
                hint="make room there, or choose another one with TMPDIR",
            ) from error
        return file

    def call(self, model: IsolatedModel, do: str, **arguments: Any) -> dict[str, Any] | str:
        """What the process answers; or, in words, how it ended instead. It loads the model first where it has to."""
        if model.key not in self._loaded or self._process is None:
            kept = {name: array.copy() for name, array in model.states.items()}
            answer = self._ask(model, {"do": "load", **model.layout})
            if isinstance(answer, str):
                return answer
            with on_trial(model.image.library):
                model.check(answer)
            for name, array in kept.items():  # it goes on where it was, in another process
                np.copyto(model.states[name], array)
            self._loaded.add(model.key)
        return self._ask(model, {"do": do, **arguments})

    def _ask(self, model: IsolatedModel, request: dict[str, Any]) -> dict[str, Any] | str:
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        model.begin()
        try:
            process.stdin.write(json.dumps({**request, "name": model.key}).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            return self._ended()
        line = b""
        seen, since = model.progress, time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if selector.select(_POLL_S):
                    piece = os.read(process.stdout.fileno(), 1 << 16)
                    if not piece:
                        return self._ended()
                    line += piece
                elif model.progress != seen:
                    seen, since = model.progress, time.monotonic()
                elif time.monotonic() - since > model.patience * self._limit_s:
                    self._end()
                    return f"did not end within {model.patience * self._limit_s:g} s"
        answer: dict[str, Any] = json.loads(line)
        if "fault_of_ours" in answer:
            raise InternalError(f"the process that runs models failed\n{answer['fault_of_ours']}")
        return answer

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None:
            return self._process
        script = Path(__file__).with_name("model_process_child.py")
        if not sys.executable:
            raise ToolchainError("there is no Python to run the model with", hint="verify in a program of Python's own")
        self._log = tempfile.TemporaryFile(prefix="uma-verify-")  # noqa: SIM115 - until `_end`
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                pass_fds=[file.fileno() for file in self._files],
                start_new_session=True,  # an interrupt is for this process, which then ends that one
            )
        except OSError as error:
            self._log.close()
            raise ToolchainError(f"cannot start a process: {error.strerror}", where=sys.executable) from error
        self._process = process
        assert process.stdin is not None
        request = {"path": sys.path, "declarations": declarations() + _DECLARATIONS}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        return process

    def _ended(self) -> str:
        """How the process ended by itself, in words."""
        process = self._process
        assert process is not None
        status = process.wait()
        how = of_process(status, self._log)
        self._end()
        return how

    def _end(self) -> None:
        process, self._process = self._process, None
        self._loaded.clear()
        if process is None:
            return
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it ended by itself
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass  # there is something in it that nobody reads any more
        process.wait()
        self._log.close()


class IsolatedModel:
    """One context of a model, in the process of an `Isolation`. Its memory is here: arrays to fill and to read.

    Args:
        isolation: the process.
        image: the model.
        context: tells several contexts of one model apart, which have their devices to themselves, and share what the
            library keeps.

    Attributes:
        inputs, outputs, states: by name; the states are there once the model was run, or reset.
        arena: its bytes.
        wanted: of a model of which single steps can be run, for each step whether `run` runs it.
    """

    def __init__(self, isolation: Isolation, image: Image, context: int = 0) -> None:
        self.image = image
        self.key = f"{image.library}#{context}"
        self._isolation = isolation
        extents: list[tuple[int, int, str]] = []  # start, end, name
        first = end = round_up(8 * _WATCH_WORDS + len(image.layers) + 1, _PAGE)
        guard = 0

        def place(nbytes: int) -> int:
            nonlocal end, guard
            around = guard_bytes(nbytes)
            start = round_up(end + max(guard, around), _PAGE)
            end, guard = start + nbytes, around
            return start

        def tensors(infos: Sequence[TensorInfo]) -> list[int]:
            starts = []
            for info in infos:
                starts.append(place(info.nbytes))
                extents.append((starts[-1], starts[-1] + info.nbytes, info.name))
            return starts

        inputs, outputs = tensors(image.inputs), tensors(image.outputs)
        arena, state = place(image.arena_bytes), place(image.state_bytes)
        for base, buffers, size in ((arena, image.arena, image.arena_bytes), (state, image.state, image.state_bytes)):
            held = buffers or ({"": (0, size)} if size else {})
            extents += [(base + start, base + start + nbytes, name) for name, (start, nbytes) in held.items()]
        extents.sort()
        self._zones: list[tuple[int, int, str | None, str | None]] = []
        at, below = first, None
        for start, stop, name in [*extents, (end + guard, end + guard, None)]:
            if start > at:
                self._zones.append((at, start - at, below, name))
            at, below = max(at, stop), name
        longest = max((nbytes for _, nbytes, _, _ in self._zones), default=0)
        should_be = round_up(end + guard, _PAGE)
        size = should_be + longest
        file = isolation.file(size)
        self._map = np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)
        rng = np.random.default_rng(0)
        # Neither zeros nor ends of a type, which programs write most often.
        self._should_be = rng.integers(3, 125, longest, np.uint8)
        self._map[should_be:size] = self._should_be
        self._watch = self._map[: 8 * _WATCH_WORDS].view(np.int64)
        self.wanted = self._map[8 * _WATCH_WORDS : 8 * _WATCH_WORDS + len(image.layers)]
        self.inputs, self.outputs = self._arrays(image.inputs, inputs), self._arrays(image.outputs, outputs)
        self.states: dict[str, Array] = {}
        self.arena = self._map[arena : arena + image.arena_bytes]
        self.layout: dict[str, Any] = {
            "file": file.fileno(),
            "bytes": size,
            "library": str(image.library),
            "sizes": [image.arena_bytes, image.state_bytes, len(image.devices)],
            "inputs": inputs,
            "outputs": outputs,
            "arena": arena,
            "state": state,
            "watch": 0 if image.stepwise else None,
            "wanted": 8 * _WATCH_WORDS,
            "zones": [zone[:2] for zone in self._zones],
            "should_be": should_be,
        }
        self._where = f"model {image.name}"

    @property
    def progress(self) -> int:
        """Grows as a run goes on."""
        return int(self._watch[0])

    @property
    def patience(self) -> int:
        """How many steps it may be before `progress` grows."""
        return 1 if self.image.stepwise else max(1, len(self.image.layers))

    def begin(self) -> None:
        """Nothing is done yet, and nobody wrote where he may not."""
        self._watch[:2] = 0
        for at, nbytes, _, _ in self._zones:
            self._map[at : at + nbytes] = self._should_be[:nbytes]

    def run(self, steps: Sequence[int] | None = None) -> Stopped | list[Written]:
        """Run the model once from its inputs to its outputs; gives what was written beside the buffers, or how the
        run was stopped.

        Args:
            steps: only these; of a model of which single steps can be run.

        Raises:
            DeviceError: a device stopped the run, or could not be opened.
            ToolchainError: the library cannot be loaded.
        """
        if steps is not None:
            self.wanted[:] = 0
            self.wanted[list(steps)] = 1
        answer = self._isolation.call(self, "run", wanted=steps is not None)
        if isinstance(answer, str):
            progress = self.progress
            step, after = (progress - 1) // 2, progress // 2 - 1
            return Stopped(step if progress % 2 else None, None if after < 0 else after, answer)
        if "fault" in answer and abi().statuses.get(answer["status"]) == "UMA_ERR_DEVICE":
            device, at_step, code = answer["fault"]
            info, counted = self.image.devices[device], answer["counted"]
            at = (counted[info.n_counters], counted[info.n_counters + 1]) if info.locates_faults else None
            layers, parts = self.image.layers, self.image.parts
            raise run_error(self.image.devices, self.image.name, layers, parts, device, at_step, code, at)
        self._check_status("a run", answer["status"])
        return self._written()

    def reset(self) -> Stopped | None:
        """Make the state what the model says it is before the first run.

        Raises:
            DeviceError, ToolchainError: as for `run`.
        """
        answer = self._isolation.call(self, "reset")
        if isinstance(answer, str):
            return Stopped(None, None, answer)
        self._check_status("a reset", answer["status"])
        return None

    def finish(self) -> Stopped | None:
        """Close the devices.

        Raises:
            DeviceError: one could not be closed; all were, nevertheless.
        """
        answer = self._isolation.call(self, "close")
        if isinstance(answer, str):
            return Stopped(None, None, answer)
        for device, code in answer["closed"]:
            if code:
                raise device_error(self.image.devices[device], self.image.name, code, "could not be closed")
        return None

    def check(self, answer: Mapping[str, Any]) -> None:
        """Raise what was wrong when the process loaded the model."""
        if "unloaded" in answer:
            raise ToolchainError(f"cannot load the compiled model: {answer['unloaded']}", where=str(self.image.library))
        if "mismatch" in answer:
            raise InternalError(f"the library's sizes are {answer['mismatch']}, not {self.layout['sizes']}")
        if "closed" in answer:
            info = self.image.devices[answer["closed"]]
            raise device_error(info, self.image.name, answer["code"], "could not be opened")
        for info, count in zip(self.image.devices, answer["counters"], strict=True):
            if count != info.n_indices:
                raise miscounted(info, count, str(self.image.library))
        self._check_status("initialisation", answer["status"])
        self.states = self._arrays(self.image.states, [self.layout["state"] + at for at in answer["state_offsets"]])

    def _check_status(self, action: str, status: int) -> None:
        if status:
            name = abi().statuses.get(status, "an unknown status")
            raise InternalError(f"{action} of model {self.image.name!r} failed with {name} ({status})")

    def _written(self) -> list[Written]:
        overruns = []
        rows = self._watch[2:].reshape(-1, 4)[: self._watch[1]].tolist()
        if not self.image.stepwise:  # nobody looked after each step
            for number, (at, nbytes, _, _) in enumerate(self._zones):
                wrong = np.flatnonzero(self._map[at : at + nbytes] != self._should_be[:nbytes])
                if wrong.size:
                    rows.append([-1, number, int(wrong[0]), int(wrong[-1] - wrong[0]) + 1])
        for step, zone, first, count in rows:
            _, nbytes, below, above = self._zones[zone]
            overruns.append(Written(step, below, above, first, nbytes - first - count, count))
        return overruns

    def _arrays(self, infos: Sequence[TensorInfo], starts: Sequence[int]) -> dict[str, Array]:
        return {
            info.name: self._map[start : start + info.nbytes].view(info.dtype).reshape(info.shape)
            for info, start in zip(infos, starts, strict=True)
        }


class EmulatedRuns:
    """The same face for a context that runs in an emulator, which is a process of its own anyway; of which no single
    steps can be run, and nobody looks at the memory between buffers.

    Args:
        session: the context.
    """

    def __init__(self, session: ModelSession) -> None:
        self._session = session
        self.inputs, self.outputs = session.inputs, session.outputs
        self.states: dict[str, Array] = {}

    @property
    def arena(self) -> Array:
        """What the last run left in it."""
        return self._session._arena()

    def run(self, steps: Sequence[int] | None = None) -> Stopped | list[Written]:
        """Run the model once, from its inputs and states; the steps are all.

        Raises:
            DeviceError, RequirementError, ToolchainError, InternalError: as for `ModelSession.invoke`.
        """
        assert steps is None
        self._session.restore(SessionState(None, self.states))
        self._session.invoke()
        self._note()
        return []

    def reset(self) -> Stopped | None:
        """Make the state what the model says it is before the first run; it raises what `run` does."""
        self._session.reset()
        self._note()
        return None

    def finish(self) -> Stopped | None:
        """Close the session."""
        self._session.close()
        return None

    def _note(self) -> None:
        self.states = {name: np.array(array) for name, array in self._session.save().arrays.items()}
