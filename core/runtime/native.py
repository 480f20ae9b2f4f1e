"""Calling a compiled model: the Python face of the C ABI in ``csrc/uma_runtime.h``."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ..errors import InternalError, ModelError, ToolchainError, UsageError
from ..support.float_environment import preserving_mode
from ..support.interruptible import Detached, is_abandoned, is_main_thread
from ..tir.form.dtype import DTYPES
from .abi import Array, abi, aligned, text
from .devices import DeviceInfo, Devices, device_infos
from .session import ModelSession
from .state import SessionState, check_state
from .tensors import TensorInfo
from .threads import Pool, threads_of

__all__ = ["DeviceInfo", "NativeModel", "Session", "SessionState", "TensorInfo"]

_BUFFER_ALIGNMENT = 64

_INTERRUPTED = -1

_SHORT_S = 0.02
"""A session one of whose runs took no longer than this, in seconds, is not interrupted within a step: what follows is
assumed to be as short, and a call in another thread costs some 50 us."""

_raised = threading.local()
"""Of each thread what its signal handler raised while it ran a model."""


@functools.cache
def _interrupt() -> Any:
    """What a library asks behind its steps whether to end the run: it does if nobody waits for it any more. In the main
    thread Python has called its signal handlers by then, and what these raise ends it as well."""

    def keep(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
        _raised.error = error

    return abi().ffi.callback("int(void)", is_abandoned, error=1, onerror=keep)


class NativeModel:
    """A compiled model, loaded into this process. Loading runs native code: trust the library first.

    Args:
        path: the shared library.
        name: what the model must be called.
        inputs, outputs: what must go in and come out, in the order of the C interface. Their names are used instead of
            the library's, which cuts long ones.
        states: what it must keep from one run to the next, in the order of the C interface.
        devices: what it runs on, in the order of the C interface, with what only the artifact knows of them.
        model_digest: of the model that it was built from, by which states know their model.
        layers: of each step, for errors.
        parts: of each step, the layers of the parts that its device tells apart; for errors.

    Attributes:
        name: C identifier of the model.
        arena_bytes: working memory that a session needs, in bytes.
        inputs, outputs, states, devices: as given, else as the library describes them.
        threads: for how many its loops were marked; 1 where they were not.
        layers, parts, model_digest: as given.

    Raises:
        ToolchainError: the library cannot be loaded or has no model in it.
        ModelError: it was built for another version of the ABI, or holds another model, or one that cannot be called.
        PluginError: the driver of a device does not count what its plugin says.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        inputs: Sequence[TensorInfo] | None = None,
        outputs: Sequence[TensorInfo] | None = None,
        states: Sequence[TensorInfo] | None = None,
        devices: Sequence[DeviceInfo] | None = None,
        layers: Sequence[Sequence[str]] = (),
        parts: Sequence[Sequence[str]] = (),
        model_digest: str | None = None,
    ) -> None:
        ffi, version = abi().ffi, abi().version
        self.path = Path(path).absolute()
        where = str(self.path)
        try:
            # Held as long as the model: the functions must stay mapped while a session may call them.
            with preserving_mode(f"loading {where}, or a library that it is linked with,"):
                self._library = ffi.dlopen(where, ffi.RTLD_NOW | ffi.RTLD_LOCAL)
            entry = self._library.uma_model_entry
        except (OSError, AttributeError) as error:
            raise ToolchainError(
                f"cannot load the compiled model: {error}",
                where=where,
                hint="build it again; if its folder is mounted noexec, choose another with UMA_CACHE_DIR",
            ) from error
        with contextlib.suppress(AttributeError, KeyError):  # a library that does not ask
            self._library.uma_interrupt = _interrupt()
        self._descriptor = entry()
        if self._descriptor.abi_version != version:
            raise ModelError(
                f"the model has version {self._descriptor.abi_version} of the ABI, this UMA reads version {version}",
                where=where,
                hint="build the model again with this version of UMA",
            )
        self.name = text(self._descriptor.name, where)
        if name is not None and self.name != name:
            raise ModelError(f"the library holds the model {self.name!r}, expected {name!r}", where=where)
        self.arena_bytes = int(self._descriptor.arena_bytes)
        self.threads = int(self._descriptor.n_threads)
        self.inputs = _tensors("input", self._descriptor.inputs, self._descriptor.n_inputs, inputs, where)
        self.outputs = _tensors("output", self._descriptor.outputs, self._descriptor.n_outputs, outputs, where)
        self.states = _tensors("state", self._descriptor.states, self._descriptor.n_states, states, where)
        self.devices = device_infos(self._descriptor, devices, where)
        self.model_digest = model_digest
        self.layers = tuple(tuple(step) for step in layers)
        self.parts = tuple(tuple(step) for step in parts)

    def session(self, threads: int | None = None) -> Session:
        """A context of the model; for arguments and errors see `Session`."""
        return Session(self, threads)

    def step_ticks(self) -> Array:
        """How long all runs so far, of all sessions, spent in each step: uint64 [steps], in ticks of `tick_counter`.

        Raises:
            ToolchainError: the library was not made to measure that.
        """
        return self._measured("uma_profile_ticks")

    def tick_counter(self) -> tuple[str, int, int | None, int]:
        """What the ticks of a profile are, in words; how many there were by now, how many there are in a second, None
        where the counter does not know, and how many one reading of it takes.

        Raises:
            ToolchainError: the library was not made to measure.
        """
        said = abi().ffi.new("uint64_t[3]")
        clock = text(self._entry("uma_profile_counter")(said, said + 1, said + 2), str(self.path))
        return clock, said[0], said[1] or None, said[2]

    def step_counts(self) -> Array:
        """What the devices counted in the steps of the last run: uint64, for each step that drives one its counters.

        Raises:
            ToolchainError: the library was not made to measure that.
        """
        return self._measured("uma_profile_counts")

    def step_turns(self) -> Array:
        """How often all runs so far, of all sessions, ran each step: uint64 [steps]. Of a loop these are its turns, of
        a branch how often its condition held.

        Raises:
            ToolchainError: the library was not made to measure that, or the model has neither.
        """
        return self._measured("uma_profile_turns")

    def _measured(self, entry: str) -> Array:
        ffi = abi().ffi
        count = ffi.new("size_t *")
        table = self._entry(entry)(count)
        return np.array(ffi.unpack(table, count[0]) if count[0] else (), np.uint64)

    def _entry(self, name: str) -> Any:
        try:
            return getattr(self._library, name)
        except AttributeError as error:
            raise ToolchainError("the library does not measure its steps", where=str(self.path)) from error


class Session(ModelSession):
    """One context of a model that was loaded: its arena, its devices, and its buffers, allocated and bound once.

    The devices are opened by the first run, and closed by ``close``, at the end of a ``with session:``, or when nobody
    has the session any more. Simulators are the session's own. Hardware is there once: no two sessions may be open
    on it.

    Loops that are marked for that are run by several threads of the session's own, which wait meanwhile and end with
    it: the caller's is one of them. Results are the same. A process that is forked from this one has no such threads:
    there, the session runs all by the caller's.

    A signal whose handler raises something ends a run within a second, also within a step, if the main thread makes it.
    Then the native code of that step still runs, in a thread, until the step ends: until then the session can only be
    closed. The first run, and each one as long as none was short, is made by such a thread for that.

    Args:
        model: the model; it stays loaded as long as the session lives.
        threads: how many threads run it: as many as its loops are marked for, or fewer; None for so many as that, and
            as there are processors that this process may use.

    Attributes:
        model: as given.
        threads: how many threads run it, the caller's included.
        inputs, outputs: aligned to 64 bytes.

    Raises:
        UsageError: that is not a number of threads, more than the model is built for, or than the system gives.
        ToolchainError: the threads' C cannot be compiled or loaded.
    """

    _may_detach = True
    """Whether a thread of its own may run the model, which goes on after an interrupt until a step ends."""

    def __init__(self, model: NativeModel, threads: int | None = None) -> None:
        ffi = abi().ffi
        self.model = model
        inputs, outputs = ({info.name: _buffer(info) for info in infos} for infos in (model.inputs, model.outputs))
        super().__init__(model.name, model.inputs, inputs, outputs)
        descriptor = model._descriptor
        arena = aligned(descriptor.arena_bytes, max(descriptor.arena_alignment, 1))
        context = aligned(descriptor.context_bytes, _BUFFER_ALIGNMENT)
        state = aligned(descriptor.state_bytes, max(descriptor.state_alignment, 1))
        # Pointers do not keep what they point to alive.
        self._memory = (arena, context, state)
        self._states: dict[str, Array] = {}
        for position, info in enumerate(model.states):
            start = descriptor.state_offsets[position]
            self._states[info.name] = state[start : start + info.nbytes].view(info.dtype).reshape(info.shape)

        def pointer(array: Array) -> Any:
            return ffi.cast("void *", array.ctypes.data)

        self._tables = (
            ffi.new("const void *[]", [pointer(array) for array in self.inputs.values()] or [ffi.NULL]),
            ffi.new("void *[]", [pointer(array) for array in self.outputs.values()] or [ffi.NULL]),
        )
        self._context = pointer(context)
        self.threads = threads_of(threads, model.threads, self._where)
        if descriptor.threads == ffi.NULL:  # it has no loop that would pay
            self.threads = 1
        self._pool = Pool(self.threads) if self.threads > 1 else None
        self._invoke: Callable[[], int | None] = _not_open
        self._run: Detached[int] | None = None
        self._devices: Devices | None = None
        if model.devices:
            self._devices = Devices(model._library, descriptor, model.devices, model.name, self._described())
            self._released = weakref.finalize(self, self._devices.release)
        else:
            self._open()

    def _described(self) -> Callable[[int, Any, Any], tuple[Any, Any]] | None:
        """With what devices are opened, as `Devices` takes it."""
        return None

    def _open(self) -> None:
        """Open the devices and make the context."""
        ffi, descriptor = abi().ffi, self.model._descriptor
        if self._closed:
            raise self._was_closed()
        devices = ffi.NULL
        if self._devices is not None:
            labels = ", ".join(info.label for info in self.model.devices)
            with preserving_mode(f"the driver of {labels}, when it was opened,"):
                self._devices.open()
            devices = self._devices.table
        arena, _, state = (ffi.cast("void *", memory.ctypes.data) for memory in self._memory)
        status = descriptor.init(self._context, arena, descriptor.arena_bytes, state, descriptor.state_bytes, devices)
        if status != 0:
            self._fail("initialisation", status)
        if self._pool is not None:
            self._pool.serve(descriptor.threads(self._context))
        # Converting the pointers once leaves one C call, and no Python frame around it, per invocation.
        inputs, outputs = ffi.cast("const void *const *", self._tables[0]), ffi.cast("void *const *", self._tables[1])
        with_bound = getattr(self.model._library, "uma_model_invoke", None)
        if with_bound is None:  # not a library that UMA made
            self._native = functools.partial(descriptor.invoke, self._context, inputs, outputs)
        else:
            self._bound = ffi.new("void *[]", [self._context, inputs, outputs])
            self._native = functools.partial(with_bound, ffi.cast("void *const *", self._bound))
        self._invoke = _not_short

    def _close(self, raising: bool) -> None:
        with self._lock:
            self._closed = True
            self._invoke = _not_open
            if self._run is not None:  # an abandoned run that has not ended must not lose what it works on
                self._run.after(functools.partial(self._release, False))
            else:
                self._release(raising)

    def _release(self, raising: bool) -> None:
        """End the threads and close the devices."""
        if self._pool is not None:
            self._pool.end()
        if self._devices is None:
            return
        if not raising:
            self._devices.release()
        elif errors := self._devices.close():
            raise errors[0]

    def invoke(self) -> None:
        if self._broken:
            raise self._half_way("a run")
        status = self._invoke()
        if status is None:
            status = self._invoke_detached()
        if status:
            self._fail("a run", status)

    def _invoke_detached(self) -> int:
        """Run the model once where no run is known to be short: so that a signal can end it within a step."""
        self._ready()
        start = time.perf_counter()
        status = self._run_detached() if is_main_thread() and self._may_detach else self._native()
        # (Another run may be longer if its inputs have other dimensions.)
        if self.open_shapes is None and time.perf_counter() - start < _SHORT_S:
            self._invoke = self._native
        return status

    def _run_detached(self) -> int:
        def native() -> int:  # it keeps the session
            status: int = self._native()
            return status

        run = Detached(native)
        try:
            return run.wait()
        except BaseException:
            self._broken = bool(self._states)
            if run.is_running:
                self._run = run
                if self._devices is not None:
                    self._released.atexit = False  # it may still be running when the process ends
            raise

    def reset(self) -> None:
        with self._alone():
            self._reset()

    def save(self) -> SessionState:
        with self._alone():
            if self._broken:
                raise self._half_way("saving the state")
            arrays = {name: array.copy() for name, array in self._states.items()}
            return SessionState(self.model.model_digest, MappingProxyType(arrays))

    def restore(self, state: SessionState) -> None:
        check_state(state, self.model.states, self.model.model_digest, self.model.name)
        with self._alone():
            self._reset()
            for name, array in state.arrays.items():
                np.copyto(self._states[name], array)

    def _reset(self) -> None:
        if self._states:
            status = self.model._descriptor.reset(self._context)
            if status:
                self._fail("a reset", status)
        self._broken = False

    def counters(self) -> dict[str, dict[str, int]]:
        if self._devices is None:
            return {}
        if self._invoke is _not_open:
            reason = "the session was closed" if self._closed else "nothing was run yet"
            raise UsageError(f"there are no counters: {reason}", where=self._where)
        return self._devices.counters()

    def _ready(self) -> None:
        if self._run is not None:
            if self._run.is_running:
                text = "the run that was interrupted is still in one of its steps"
                raise UsageError(text, where=self._where, hint="wait until it has ended, or take another session")
            self._run = None
        if self._invoke is _not_open:
            self._open()

    def _arena(self) -> Array:
        return self._memory[0][: self.model.arena_bytes]

    def _fail(self, action: str, status: int) -> None:
        if status == _INTERRUPTED:
            self._broken = bool(self._states)
            error: BaseException = _raised.__dict__.pop("error", None) or KeyboardInterrupt()
            raise error
        name = abi().statuses.get(status, "an unknown status")
        if name == "UMA_ERR_DEVICE" and self._devices is not None:
            self._broken = bool(self._states) and self._devices.began(self._context)
            raise self._devices.fault(self._context, self.model.layers, self.model.parts)
        if name == "UMA_ERR_STATE" and self._broken:
            raise self._half_way(action)
        raise InternalError(f"{action} of model {self.model.name!r} failed with {name} ({status})")


def _not_open() -> None:
    """Stands for the C function where there is no context to call it with."""


def _not_short() -> None:
    """Stands for the C function where a run may take long."""


def _tensors(
    role: str, table: Any, count: int, expected: Sequence[TensorInfo] | None, where: str
) -> tuple[TensorInfo, ...]:
    tensors = []
    for row in (table[i] for i in range(count)):
        info = TensorInfo(
            text(row.name, where), text(row.dtype, where), tuple(int(row.shape[axis]) for axis in range(row.rank))
        )
        if info.dtype not in DTYPES or min(info.shape, default=0) < 0 or info.nbytes != row.bytes:
            raise ModelError(f"the {role} {info.name!r} cannot be {info} of {row.bytes} bytes", where=where)
        tensors.append(info)
    if expected is not None:
        if [str(info) for info in tensors] != [str(info) for info in expected]:
            raise ModelError(
                f"the library has the {role}s ({', '.join(map(str, tensors))}), "
                f"expected ({', '.join(map(str, expected))})",
                where=where,
            )
        tensors = list(expected)
    if len({info.name for info in tensors}) != len(tensors):
        raise ModelError(f"two {role}s have one name: {', '.join(repr(info.name) for info in tensors)}", where=where)
    return tuple(tensors)


def _buffer(info: TensorInfo) -> Array:
    raw = aligned(info.nbytes, _BUFFER_ALIGNMENT)[: info.nbytes]
    return raw.view(info.dtype).reshape(info.shape)
