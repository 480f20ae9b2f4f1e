"""What a session keeps from one run to the next, taken out of it: to be looked at, written to a file, and put back."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ModelError, UsageError
from ..support.argument_checks import path_of
from ..support.formatting import format_value
from .abi import Array
from .files import read_arrays, save_arrays
from .tensors import TensorInfo

__all__ = ["SessionState", "check_state"]

_FORMAT = 1
_MAX_ABOUT_BYTES = 1 << 24


@dataclass(frozen=True, eq=False)
class SessionState:
    """The state of a session between two runs.

    Args:
        model: digest of the model that it is of, in hexadecimal; None where the model is known by its library alone.
        arrays: the values that the model keeps, by its own names for them.
    """

    model: str | None
    arrays: Mapping[str, Array]

    def __reduce__(self) -> tuple[Any, ...]:
        return SessionState, (self.model, dict(self.arrays))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, whole or not at all.

        The file is what ``numpy.savez`` writes: ``about`` holds JSON with the model's digest and the names, which may
        be any text; ``state0``, ``state1``, ... are the arrays in the order of the names.

        Raises:
            UsageError: the file cannot be written.
        """
        about = json.dumps({"format": _FORMAT, "model": self.model, "names": list(self.arrays)}).encode()
        arrays = {f"state{position}": array for position, array in enumerate(self.arrays.values())}
        save_arrays(path_of(path, "a state"), {"about": np.frombuffer(about, np.uint8), **arrays}, "the state")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> SessionState:
        """The state in a file that `write` wrote.

        Raises:
            UsageError: the file cannot be opened.
            ModelError: it holds something else, or is damaged.
        """
        arrays = read_arrays(path_of(path, "a state"))
        try:
            about = _about(arrays.pop("about", None))
            names, model = about["names"], about["model"]
            if about["format"] != _FORMAT or set(arrays) != {f"state{position}" for position in range(len(names))}:
                raise ValueError("its parts are others")
            if not isinstance(model, str | None) or not all(isinstance(name, str) for name in names):
                raise ValueError("its names are none")
            if len(set(names)) != len(names):
                raise ValueError("it has one name twice")
        except (KeyError, RecursionError, TypeError, ValueError) as error:
            text = f"the file holds no state of a session: {error}"
            raise ModelError(text, where=os.fspath(path), hint="SessionState.write writes it") from error
        return cls(model, {name: arrays[f"state{position}"] for position, name in enumerate(names)})


def check_state(state: SessionState, wanted: Sequence[TensorInfo], digest: str | None, model: str) -> None:
    """See that a state is one of a model.

    Args:
        state: what a caller gives.
        wanted: what the model keeps.
        digest: of the model, by which states know it; None where it is known by its library alone.
        model: its name.

    Raises:
        ModelError: it is of another model.
        UsageError: it is not a state.
    """
    given_state: object = state
    if not isinstance(given_state, SessionState):
        hint = "restore what a session of this model saved"
        raise UsageError(f"{format_value(state)} is not a state of a session", where=f"model {model}", hint=hint)
    expected = {info.name: str(info) for info in wanted}
    actual = {name: f"{array.dtype}[{', '.join(map(str, array.shape))}]" for name, array in state.arrays.items()}
    other = None not in (state.model, digest) and state.model != digest
    if other or actual != expected:
        held = ", ".join(f"{name!r}: {type_}" for name, type_ in expected.items()) or "nothing"
        text = "the state is that of another model" if other else f"the state does not fit: the model keeps {held}"
        raise ModelError(text, where=f"model {model}", hint="restore what a session of this model saved")


def _about(array: Array | None) -> Any:
    if array is None or array.dtype != np.uint8 or array.ndim != 1 or array.size > _MAX_ABOUT_BYTES:
        raise ValueError("nothing in it says what it is")
    return json.loads(array.tobytes())
