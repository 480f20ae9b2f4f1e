"""What every context of a compiled model can do, wherever it runs."""

from __future__ import annotations

import contextlib
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any

import numpy as np

from ..errors import UsageError
from ..support.formatting import format_value
from ..tir.form.dtype import DTYPES
from .abi import Array
from .open_shapes import OpenShapes
from .state import SessionState
from .tensors import NamedArrays, TensorInfo, are_exact, checked_inputs

__all__ = ["ModelSession"]


class ModelSession(ABC):
    """One context of a model, with input and output buffers that are allocated once.

    ``run`` is the safe way. For those who count microseconds: fill ``session.inputs[name][...]``, call ``invoke``,
    read ``session.outputs[name]``; nothing is checked or copied.

    A session belongs to one thread at a time, and its model's other sessions are independent of it. ``run`` notices
    when it is entered twice; ``invoke`` does not, and two threads in it corrupt each other's results.

    Of a model that keeps something from one run to the next, each session has a state of its own. It is what the model
    says it is before the first run, and again after ``reset``; ``save`` and ``restore`` take it out and put it back. A
    run that a device stopped may have changed a part of it: then the session runs again after ``reset`` or ``restore``.

    Args:
        name: of the model.
        wanted: its inputs.
        inputs, outputs: the buffers, by name.

    Attributes:
        inputs, outputs: by name, the arrays that `invoke` reads and writes, C-contiguous. Those with open extents have
            the largest ones, of which a run uses the first elements along each dimension.
        open_shapes: what `run` knows of open extents; None where all are fixed.
    """

    def __init__(
        self, name: str, wanted: Sequence[TensorInfo], inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> None:
        self._where = f"model {name}"
        self.inputs = MappingProxyType(NamedArrays(inputs, "input", self._where))
        self.outputs = MappingProxyType(NamedArrays(outputs, "output", self._where))
        self._name = name
        self._wanted = wanted
        self._broken = False
        self._closed = False
        self._lock = threading.Lock()
        # What `run` needs, looked up once.
        self._takes = tuple((info.name, np.dtype(info.dtype), info.shape, inputs[info.name]) for info in wanted)
        self._gives = tuple((name, array.copy) for name, array in outputs.items())
        self.open_shapes: OpenShapes | None = None

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UsageError(
            "a session cannot be pickled or copied: its memory and its devices are this process's",
            where=self._where,
            hint="give the artifact away, and take a session where it arrives; save and restore its state",
        )

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ", needs a reset" if self._broken else ""
        return f"<{type(self).__name__} {self._name}: {', '.join(self.inputs)} -> {', '.join(self.outputs)}{state}>"

    def _repr_html_(self) -> str:
        """A row for each input and output."""
        from ..support.html import element, html_of, table

        rows = [
            (role, element("bdi", None, name), f"{array.dtype}{list(array.shape)}")
            for role, arrays in (("input", self.inputs), ("output", self.outputs))
            for name, array in arrays.items()
        ]
        return html_of(table(f"Session of {self._name}{', closed' * self._closed}", ("", "name", "type"), rows))

    def __enter__(self) -> ModelSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # What went wrong before is what the user is told.
        self._close(raising=error is None)

    def close(self) -> None:
        """Close the devices; the session cannot be run any more. Closing it again has no effect.

        Raises:
            DeviceError: a device has a fault to report; all are closed nevertheless.
        """
        self._close(raising=True)

    def run(self, inputs: Any = None) -> dict[str, Array]:
        """Check the inputs, run the model once, and give its outputs as new arrays.

        Args:
            inputs: input name to array; or the array itself, for a model with one input; or None, for one without.
                An array is a numpy array or has ``__dlpack__``; shape and dtype must be the model's, the layout in
                memory may be any. NaN and infinities are passed on. An extent that is open may be any in its range, the
                same in all arrays that share it; inputs that hold extents are left out.

        Returns:
            Output name to array, in the model's order.

        Raises:
            ModelError: an input is missing, unknown, or of the wrong kind, shape or dtype.
            UsageError: another thread is running this session, it was closed, or its state needs a `reset`.
            DeviceError, RequirementError, ToolchainError, InternalError: as for `invoke`.
        """
        takes, open_shapes = self._takes, self.open_shapes
        if type(inputs) is np.ndarray and len(takes) == 1:
            inputs = {takes[0][0]: inputs}
        if open_shapes is not None or not are_exact(inputs, takes):
            inputs = checked_inputs(inputs, self._wanted, self._name, open_shapes)
        # What `_alone` does, which as a context takes as long as all of this.
        if not self._lock.acquire(False):
            raise self._is_used()
        try:
            if self._closed:
                raise self._was_closed()
            for name, _, _, buffer in takes:
                buffer[...] = inputs[name]
            self.invoke()
            if open_shapes is not None:
                return open_shapes.cut(self.outputs, inputs)
            outputs = {}
            for name, copy in self._gives:
                outputs[name] = copy()
            return outputs
        finally:
            self._lock.release()

    def read_arena(self, offset: int, shape: tuple[int, ...], dtype: str) -> Array:
        """A copy of what lies at ``offset`` bytes of the arena, as the last run left it.

        Raises:
            UsageError: that is not within the arena.
        """
        at: object = offset
        if not isinstance(at, int) or dtype not in DTYPES:
            raise UsageError(
                f"{format_value(offset)} and {format_value(dtype)} are not an offset in bytes and an element type"
            )
        arena = self._arena()
        end = offset + math.prod(shape) * np.dtype(dtype).itemsize
        if not 0 <= offset <= end <= arena.size:
            raise UsageError(f"bytes {offset} to {end} are not in an arena of {arena.size}")
        return arena[offset:end].view(dtype).reshape(shape).copy()

    @abstractmethod
    def invoke(self) -> None:
        """Run the model once from `inputs` to `outputs`.

        Raises:
            DeviceError: a device stopped the run, or could not be opened.
            RequirementError: there is less memory than the model needs, in an emulator.
            ToolchainError: the emulator is missing, hung, or ended without a result.
            InternalError: the C code refused; it names its status.
            UsageError: the session was closed, or its state needs a `reset` or a `restore`.
        """

    @abstractmethod
    def reset(self) -> None:
        """Make the state what the model says it is before the first run.

        Raises:
            UsageError: another thread is running this session, or it was closed.
            DeviceError: a device could not be opened.
        """

    @abstractmethod
    def save(self) -> SessionState:
        """The state as it is, as new arrays.

        Raises:
            UsageError: another thread is running this session, it was closed, or a run was stopped half-way.
            DeviceError, RequirementError, ToolchainError, InternalError: as for `invoke`.
        """

    @abstractmethod
    def restore(self, state: SessionState) -> None:
        """Go on from a state that a session of this model had. Where that cannot be, the session is as it was.

        Args:
            state: from `save`, or read from a file; of a build of the same model, for whatever target.

        Raises:
            ModelError: it is of another model.
            UsageError: another thread is running this session, or it was closed.
            DeviceError: a device could not be opened.
        """

    @abstractmethod
    def counters(self) -> dict[str, dict[str, int]]:
        """What the devices counted in the last run: label of the device -> name of the counter -> value.

        Raises:
            UsageError: nothing was run yet, or the session was closed.
        """

    @abstractmethod
    def _close(self, raising: bool) -> None:
        """As `close`; without ``raising``, faults are warnings."""

    @abstractmethod
    def _ready(self) -> None:
        """Make the session fit to be run; UsageError where it was closed."""

    @abstractmethod
    def _arena(self) -> Array:
        """The bytes of the arena: uint8 [arena_bytes]."""

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """The session, fit to be run, for one thread."""
        if not self._lock.acquire(blocking=False):
            raise self._is_used()
        try:
            self._ready()
            yield
        finally:
            self._lock.release()

    def _is_used(self) -> UsageError:
        return UsageError(
            "a session was used by two threads at once",
            where=self._where,
            hint="give each thread a session of its own",
        )

    def _was_closed(self) -> UsageError:
        return UsageError("the session was closed", where=self._where, hint="make another one")

    def _half_way(self, action: str) -> UsageError:
        return UsageError(
            f"{action} needs a state that was not left half-way, as it was when the run before was stopped",
            where=self._where,
            hint="reset the session, or restore a state that was saved",
        )
