"""Calling a compiled model: the Python face of the C ABI in ``csrc/uma_runtime.h``."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import numpy as np

from ..errors import InternalError, ModelError, ToolchainError, UsageError
from ..tir.dtype import DTYPES, itemsize
from .abi import Array, abi, aligned, text
from .devices import DeviceInfo, Devices, device_infos
from .state import SessionState

__all__ = ["DeviceInfo", "NativeModel", "Session", "SessionState", "TensorInfo"]

_BUFFER_ALIGNMENT = 64


@dataclass(frozen=True)
class TensorInfo:
    """What a compiled model says of one input, output or state: its name in the model, element type and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * itemsize(self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


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

    Attributes:
        name: C identifier of the model.
        arena_bytes: working memory that a session needs, in bytes.
        inputs, outputs, states, devices: as given, else as the library describes them.
        layers, model_digest: as given.

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
        model_digest: str | None = None,
    ) -> None:
        ffi, version = abi().ffi, abi().version
        self.path = Path(path).absolute()
        where = str(self.path)
        try:
            # Held as long as the model: the functions must stay mapped while a session may call them.
            self._library = ffi.dlopen(where, ffi.RTLD_NOW | ffi.RTLD_LOCAL)
            entry = self._library.uma_model_entry
        except (OSError, AttributeError) as error:
            raise ToolchainError(
                f"cannot load the compiled model: {error}",
                where=where,
                hint="build it again; if its folder is mounted noexec, choose another with UMA_CACHE_DIR",
            ) from error
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
        self.inputs = _tensors("input", self._descriptor.inputs, self._descriptor.n_inputs, inputs, where)
        self.outputs = _tensors("output", self._descriptor.outputs, self._descriptor.n_outputs, outputs, where)
        self.states = _tensors("state", self._descriptor.states, self._descriptor.n_states, states, where)
        self.devices = device_infos(self._descriptor, devices, where)
        self.model_digest = model_digest
        self.layers = tuple(tuple(step) for step in layers)

    def step_ns(self) -> Array:
        """How long all runs so far, of all sessions, spent in each step: uint64 [steps], in nanoseconds.

        Raises:
            ToolchainError: the library was not made to measure that.
        """
        ffi = abi().ffi
        try:
            entry = self._library.uma_profile_ns
        except AttributeError as error:
            raise ToolchainError("the library does not time its steps", where=str(self.path)) from error
        count = ffi.new("size_t *")
        table = entry(count)
        return np.array(ffi.unpack(table, count[0]), np.uint64)


class Session:
    """One context of a model: its arena, its devices, and its input and output buffers, allocated and bound once.

    ``run`` is the safe way. For those who count microseconds: fill ``session.inputs[name][...]``, call ``invoke``,
    read ``session.outputs[name]``; nothing is checked or copied.

    A session belongs to one thread at a time, and its model's other sessions are independent of it. ``run`` notices
    when it is entered twice; ``invoke`` does not, and two threads in it corrupt each other's results.

    The devices are opened by the first run, and closed by ``close``, at the end of a ``with session:``, or when nobody
    has the session any more. Simulators are the session's own. Hardware is there once: no two sessions may be open
    on it.

    Of a model that keeps something from one run to the next, each session has a state of its own. It is what the model
    says it is before the first run, and again after ``reset``; ``save`` and ``restore`` take it out and put it back. A
    run that a device stopped may have changed a part of it: then the session runs again after ``reset`` or ``restore``.

    Attributes:
        model: the model; it stays loaded as long as the session lives.
        inputs, outputs: by name, the arrays that the C code reads and writes, C-contiguous and aligned to 64 bytes.
    """

    def __init__(self, model: NativeModel) -> None:
        ffi = abi().ffi
        self.model = model
        self.inputs: Mapping[str, Array] = MappingProxyType({info.name: _buffer(info) for info in model.inputs})
        self.outputs: Mapping[str, Array] = MappingProxyType({info.name: _buffer(info) for info in model.outputs})
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
        self._broken = False
        self._lock = threading.Lock()

        def pointer(array: Array) -> Any:
            return ffi.cast("void *", array.ctypes.data)

        self._tables = (
            ffi.new("const void *[]", [pointer(array) for array in self.inputs.values()] or [ffi.NULL]),
            ffi.new("void *[]", [pointer(array) for array in self.outputs.values()] or [ffi.NULL]),
        )
        self._context = pointer(context)
        self._closed = False
        self._invoke: Callable[[], int | None] = _not_open
        self._devices: Devices | None = None
        if model.devices:
            self._devices = Devices(model._library, descriptor, model.devices, model.name)
            weakref.finalize(self, self._devices.release)
        else:
            self._open()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # What went wrong before is what the user is told.
        self._close(raising=error is None)

    def _open(self) -> None:
        """Open the devices and make the context."""
        ffi, descriptor = abi().ffi, self.model._descriptor
        if self._closed:
            raise UsageError("the session was closed", where=f"model {self.model.name}", hint="make another one")
        devices = ffi.NULL
        if self._devices is not None:
            self._devices.open()
            devices = self._devices.table
        arena, _, state = (ffi.cast("void *", memory.ctypes.data) for memory in self._memory)
        status = descriptor.init(self._context, arena, descriptor.arena_bytes, state, descriptor.state_bytes, devices)
        if status != 0:
            self._fail("initialisation", status)
        # Converting the pointers once leaves one C call, and no Python frame around it, per invocation.
        self._invoke = functools.partial(
            descriptor.invoke,
            self._context,
            ffi.cast("const void *const *", self._tables[0]),
            ffi.cast("void *const *", self._tables[1]),
        )

    def close(self) -> None:
        """Close the devices; the session cannot be run any more. To close it again is no harm.

        Raises:
            DeviceError: a device has a fault to report; all are closed nevertheless.
        """
        self._close(raising=True)

    def _close(self, raising: bool) -> None:
        with self._lock:
            self._closed = True
            self._invoke = _not_open
            if self._devices is None:
                return
            if not raising:
                self._devices.release()
            elif errors := self._devices.close():
                raise errors[0]

    def invoke(self) -> None:
        """Run the model once from `inputs` to `outputs`.

        Raises:
            DeviceError: a device stopped the run, or could not be opened.
            InternalError: the C code refused; it names its status.
            UsageError: the session was closed, or its state needs a `reset` or a `restore`.
        """
        status = self._invoke()
        if status is None:
            self._open()
            status = self._invoke()
        if status:
            self._fail("a run", status)

    def reset(self) -> None:
        """Make the state what the model says it is before the first run.

        Raises:
            UsageError: another thread is running this session, or it was closed.
            DeviceError: a device could not be opened.
        """
        with self._alone():
            self._reset()

    def save(self) -> SessionState:
        """The state as it is, as new arrays.

        Raises:
            UsageError: another thread is running this session, it was closed, or a run was stopped half-way.
            DeviceError: a device could not be opened.
        """
        with self._alone():
            if self._broken:
                raise self._half_way("saving the state")
            arrays = {name: array.copy() for name, array in self._states.items()}
            return SessionState(self.model.model_digest, MappingProxyType(arrays))

    def restore(self, state: SessionState) -> None:
        """Go on from a state that a session of this model had. Where that cannot be, the session is as it was.

        Args:
            state: from `save`, or read from a file; of a build of the same model, for whatever target.

        Raises:
            ModelError: it is of another model.
            UsageError: another thread is running this session, or it was closed.
            DeviceError: a device could not be opened.
        """
        model = self.model
        known = {info.name: str(info) for info in model.states}
        given = {name: f"{array.dtype}[{', '.join(map(str, array.shape))}]" for name, array in state.arrays.items()}
        other = None not in (state.model, model.model_digest) and state.model != model.model_digest
        if other or given != known:
            held = ", ".join(f"{name!r}: {type_}" for name, type_ in known.items()) or "nothing"
            what = "the state is that of another model" if other else f"the state does not fit: the model keeps {held}"
            raise ModelError(what, where=f"model {model.name}", hint="restore what a session of this model saved")
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

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """The session, whose context was made, for one thread."""
        if not self._lock.acquire(blocking=False):
            raise UsageError(
                "a session was used by two threads at once",
                where=f"model {self.model.name}",
                hint="give each thread a session of its own",
            )
        try:
            if self._invoke is _not_open:
                self._open()
            yield
        finally:
            self._lock.release()

    def counters(self) -> dict[str, dict[str, int]]:
        """What the devices counted in the last run: label of the device -> name of the counter -> value.

        Raises:
            UsageError: nothing was run yet, or the session was closed.
        """
        if self._devices is None:
            return {}
        if self._invoke is _not_open:
            what = "the session was closed" if self._closed else "nothing was run yet"
            raise UsageError(f"there are no counters: {what}", where=f"model {self.model.name}")
        return self._devices.counters()

    def run(self, inputs: Any = None) -> dict[str, Array]:
        """Check the inputs, run the model once, and give its outputs as new arrays.

        Args:
            inputs: input name to array; or the array itself, for a model with one input; or None, for one without.
                An array is a numpy array or has ``__dlpack__``; shape and dtype must be the model's, the layout in
                memory may be any. NaN and infinities are passed on.

        Returns:
            Output name to array, in the model's order.

        Raises:
            ModelError: an input is missing, unknown, or of the wrong kind, shape or dtype.
            UsageError: another thread is running this session, it was closed, or its state needs a `reset`.
            DeviceError: a device stopped the run, or could not be opened.
            InternalError: the C code refused; it names its status.
        """
        arrays = self._checked(inputs)
        with self._alone():
            for name, array in arrays.items():
                np.copyto(self.inputs[name], array)
            self.invoke()
            return {name: array.copy() for name, array in self.outputs.items()}

    def read_arena(self, offset: int, shape: tuple[int, ...], dtype: str) -> Array:
        """A copy of what lies at ``offset`` bytes of the arena, as the last run left it.

        Raises:
            UsageError: that is not within the arena.
        """
        arena = self._memory[0]
        end = offset + math.prod(shape) * np.dtype(dtype).itemsize
        if not 0 <= offset <= end <= self.model.arena_bytes:
            raise UsageError(f"bytes {offset} to {end} are not in an arena of {self.model.arena_bytes}")
        return arena[offset:end].view(dtype).reshape(shape).copy()

    def _checked(self, inputs: Any) -> dict[str, Array]:
        wanted, where = self.model.inputs, f"inputs of model {self.model.name}"

        def expected() -> str:
            return ", ".join(f"{info.name!r}: {info}" for info in wanted) or "none"

        if inputs is None:
            inputs = {}
        elif not isinstance(inputs, Mapping):
            if len(wanted) != 1:
                raise ModelError(
                    f"one value was given for {len(wanted)} inputs, expected {expected()}",
                    where=where,
                    hint="pass a mapping from input name to array",
                )
            inputs = {wanted[0].name: inputs}
        if missing := [info.name for info in wanted if info.name not in inputs]:
            raise ModelError(f"the input {missing[0]!r} is missing, expected {expected()}", where=where)
        if unknown := [name for name in inputs if name not in self.inputs]:
            raise ModelError(f"there is no input {unknown[0]!r}, expected {expected()}", where=where)
        return {info.name: _array(inputs[info.name], info, where) for info in wanted}

    def _fail(self, what: str, status: int) -> None:
        name = abi().statuses.get(status, "an unknown status")
        if name == "UMA_ERR_DEVICE" and self._devices is not None:
            self._broken = bool(self._states) and self._devices.began(self._context)
            raise self._devices.fault(self._context, self.model.layers)
        if name == "UMA_ERR_STATE" and self._broken:
            raise self._half_way(what)
        raise InternalError(f"{what} of model {self.model.name!r} failed with {name} ({status})")

    def _half_way(self, what: str) -> UsageError:
        return UsageError(
            f"{what} needs a state that no device left half-way, as one did when it stopped the run before",
            where=f"model {self.model.name}",
            hint="reset the session, or restore a state that was saved",
        )


def _not_open() -> None:
    """Stands for the C function where there is no context to call it with."""


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


def _array(value: Any, info: TensorInfo, where: str) -> Array:
    """`value` as an array of exactly the type of `info`."""
    what = f"input {info.name!r}"
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
    elif hasattr(value, "__dlpack__"):
        try:
            array = np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise ModelError(f"{what} cannot be read through DLPack: {error}", where=where) from error
    else:
        raise ModelError(
            f"{what} is a {type(value).__name__}, expected an array {info}",
            where=where,
            hint=f"convert it: numpy.asarray(value, dtype=numpy.{info.dtype})",
        )
    if array.dtype != info.dtype or array.shape != info.shape:
        raise ModelError(f"{what} is {array.dtype}{[*array.shape]}, expected {info}", where=where)
    return array
