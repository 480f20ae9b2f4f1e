"""Sessions whose devices are recorded: what drivers do to them, as the text that ``csrc/uma_trace.c`` writes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DeviceError, UsageError
from ..support.regular_files import Staged
from .abi import Array, abi
from .helper_library import part_of_runtime
from .native import NativeModel, Session

__all__ = ["Recorder", "TracedSession"]

_SOURCE, _HEADERS = "uma_trace.c", ("uma_trace.h", "uma_device.h", "uma_runtime.h")
_SPARE_MEMORIES = 256
"""How many memories may turn up that are not part of the model: tables of a driver, for example."""


class Recorder:
    """A trace that is being written.

    Args:
        model: the model's name.
        layers: of each step.
        memories: what the model works on: names, and arrays or (address, bytes).
        put: takes the text, piece by piece.
        instead: what a driver is to read instead of what its device said, given the device's position, the register's
            offset and the value: for tests with a device that fails.

    Attributes:
        listener: what is told of the steps of a run, as ``uma_tell_steps`` takes it.

    Raises:
        ToolchainError: what records cannot be compiled or loaded.
    """

    def __init__(
        self,
        model: str,
        layers: Sequence[Sequence[str]],
        memories: Mapping[str, Array | tuple[int, int]],
        put: Callable[[bytes], object],
        instead: Callable[[int, int, int], int] | None = None,
    ) -> None:
        ffi = abi().ffi
        self._c = part_of_runtime(_SOURCE, _HEADERS, "what records devices")
        self._ended = False
        rows = ffi.new("uma_traced_memory[]", len(memories) + _SPARE_MEMORIES)
        # What the structures point to.
        self._kept: list[Any] = [rows]
        self._trace = trace = ffi.new("uma_trace *")
        trace.put = self._callback(
            "void(void *, const char *, size_t)", lambda _, text, nbytes: put(ffi.buffer(text, nbytes)[:]) and None
        )
        if instead is not None:
            trace.instead = self._callback(
                "uint32_t(void *, int32_t, uint32_t, uint32_t)", lambda _, *read: instead(*read)
            )
        for row, (name, memory) in zip(rows, memories.items(), strict=False):
            address, nbytes = memory if isinstance(memory, tuple) else (memory.ctypes.data, memory.nbytes)
            shadow = np.zeros(max(nbytes, 1), np.uint8)
            text = ffi.new("char[]", name.encode())
            row.name, row.at, row.bytes = text, ffi.cast("unsigned char *", address), nbytes
            row.shadow = ffi.cast("unsigned char *", shadow.ctypes.data)
            self._kept += [text, shadow, memory]
        trace.memories, trace.n_memories, trace.max_memories = rows, len(memories), len(rows)
        self._c.uma_trace_begin(trace, model.encode())
        for step, names in enumerate(layers):
            for layer in names:
                self._c.uma_trace_layer(trace, step, layer.encode())
        c = self._c  # nothing that C keeps may refer to what keeps that

        def end_step(_: Any, step: int) -> None:
            if step < 0:
                c.uma_trace_mark(trace, b"begin")
            else:
                c.uma_trace_step(trace, step)

        self.listener = self._callback("void(void *, int32_t)", end_step)

    def device(self, info: Any, memory: Any) -> tuple[Any, Any]:
        """With what a device is opened instead of its description and memory: a description, and memory."""
        traced = abi().ffi.new("uma_traced *")
        self._kept.append(traced)
        return self._c.uma_trace_device(self._trace, traced, info, memory), traced

    def mark(self, text: str) -> None:
        """What begins: ``open``, ``run``, ``begin``, ``close``."""
        self._c.uma_trace_mark(self._trace, text.encode())

    def fault(self, fault: Any) -> None:
        """A run was stopped, by a ``const uma_fault *``."""
        self._c.uma_trace_fault(self._trace, fault)

    def end(self) -> None:
        """Nothing follows. Ending it again has no effect."""
        if not self._ended:
            self._c.uma_trace_end(self._trace)
        self._ended = True

    def _callback(self, type_: str, function: Callable[..., Any]) -> Any:
        callback = abi().ffi.callback(type_, function)
        self._kept.append(callback)
        return callback


class TracedSession(Session):
    """A session that writes what its drivers do to a file, which is there once the session was closed.

    Args:
        model: from a library that tells when its steps end.
        path: the file. One that is there is replaced.
        constant_bytes: of the model's weights.
        threads: as for `Session`.

    Raises:
        UsageError: the file cannot be written.
        ToolchainError: what records cannot be compiled or loaded.
    """

    _may_detach = False  # what is recorded ends with the file

    def __init__(self, model: NativeModel, path: Path, constant_bytes: int, threads: int | None = None) -> None:
        self._devices_of = _Described()
        super().__init__(model, threads)
        arena, _, state = self._memory
        address = int(abi().ffi.cast("uintptr_t", model._library.uma_traced_weights()))
        memories: dict[str, Array | tuple[int, int]] = {
            "arena": arena[: model.arena_bytes],
            "state": state[: model._descriptor.state_bytes],
            "weights": (address, constant_bytes),
            **{f"input {name}": array for name, array in self.inputs.items()},
            **{f"output {name}": array for name, array in self.outputs.items()},
        }
        self._file = _Staged(path)
        self._recorder = self._devices_of.recorder = Recorder(model.name, model.layers, memories, self._file.write)

    def _described(self) -> Callable[[int, Any, Any], tuple[Any, Any]] | None:
        return self._devices_of.described

    def _open(self) -> None:
        if not self._closed:
            self._recorder.mark("open")
        super()._open()

    def invoke(self) -> None:
        self._ready()
        model, recorder = self.model, self._recorder
        recorder.mark("run")
        model._library.uma_tell_steps(recorder.listener, abi().ffi.NULL)
        try:
            super().invoke()
        except DeviceError:
            recorder.fault(model._descriptor.fault(self._context))
            raise
        finally:
            model._library.uma_tell_steps(abi().ffi.NULL, abi().ffi.NULL)

    def _close(self, raising: bool) -> None:
        if self._closed:
            return
        self._recorder.mark("close")
        try:
            super()._close(raising)
        finally:
            self._recorder.end()
            self._file.finish()


class _Described:
    """The devices of a session as a recorder has them opened, each the same way every time. It does not refer to the
    session, which its devices outlive."""

    recorder: Recorder

    def __init__(self) -> None:
        self._functions: dict[int, tuple[Any, Any]] = {}

    def described(self, at: int, info: Any, memory: Any) -> tuple[Any, Any]:
        """As `Devices` wants it."""
        if at not in self._functions:
            self._functions[at] = self.recorder.device(info, memory)
        return self._functions[at]


class _Staged:
    """A file that appears whole, under its name, or not at all.

    Raises:
        UsageError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed: OSError | None = None
        try:
            self._staged = Staged(path)
        except OSError as error:
            raise self._unwritable(error) from error
        self._file = self._staged.file
        self._dropped = weakref.finalize(self, self._staged.discard)

    def write(self, text: bytes) -> None:
        """Add to it. Nothing is raised here: it is called from C."""
        try:
            if self._failed is None:
                self._file.write(text)
        except OSError as error:
            self._failed = error

    def finish(self) -> None:
        """Put it where it belongs."""
        try:
            if self._failed is not None:
                raise self._failed
            self._staged.replace()
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            self._dropped()

    def _unwritable(self, error: OSError) -> UsageError:
        return UsageError(f"cannot write the trace: {error.strerror}", where=str(self._path))
