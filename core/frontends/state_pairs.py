"""State that goes into a model and comes out of it again, made the model's own to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import ModelError, UsageError
from ..relay.module import IRModule, Signature, StateInfo, TensorInfo
from ..relay.types import TensorType, TupleType, Type

if TYPE_CHECKING:
    import numpy as np

__all__ = ["keep_states"]


def keep_states(
    module: IRModule, pairs: Mapping[str, str], initial: Mapping[str, np.ndarray] | None = None
) -> IRModule:
    """``module`` with inputs that it keeps itself: what an output gives in one run, its input takes in the next.

    Args:
        module: a model.
        pairs: names of inputs -> names of the outputs that are their new values.
        initial: values of inputs before the first run, of their types; others begin with zeros, the zero point where
            they are quantised.

    Raises:
        UsageError: ``pairs`` names what the model does not have, or two that do not go together, or leaves no output.
        ModelError: an initial value is of another type than its input.
    """
    if not pairs:
        return module
    signature = module.signature or Signature.from_function(module.main)
    result = module.main.body.type
    results: Sequence[Type] = result.fields if isinstance(result, TupleType) else (result,)
    params = [param.type for param in module.main.params]
    inputs = _named(signature.of_inputs(range(len(params))), signature.inputs)
    outputs = _named(signature.of_outputs(range(len(results))), signature.outputs)
    states: list[StateInfo] = []
    for given, taken in pairs.items():
        into, info = _find(inputs, given, "input")
        out, other = _find(outputs, taken, "output")
        type_ = params[into]
        if isinstance(type_, TensorType) and type_.is_open:
            raise UsageError(f"input {given!r} is {type_}: what is kept from run to run has no open extents")
        if type_ is not results[out] or not isinstance(type_, TensorType):
            raise UsageError(
                f"input {given!r} is {type_} and output {taken!r} {results[out]}: they cannot be one state",
                hint="a state's input and output are of one type",
            )
        if (info.scale, info.zero_point) != (other.scale, other.zero_point):
            raise UsageError(
                f"input {given!r} and output {taken!r} have different scales or zero points: they cannot be one state"
            )
        if any(state.output == out for state in states):
            raise UsageError(f"output {taken!r} is the new value of two states")
        if any(state.name == given for state in signature.states):
            raise UsageError(f"the model has a state {given!r} of its own")
        states.append(StateInfo(given, into, out, _initial(type_, info, (initial or {}).get(given))))
    if len(states) == len(signature.outputs):
        raise UsageError("all outputs of the model are states, which leaves it none to give")
    taken_in, taken_out = {state.input for state in states}, {state.output for state in states}
    made = Signature(
        tuple(info for position, info in inputs if position not in taken_in),
        tuple(info for position, info in outputs if position not in taken_out),
        (*signature.states, *sorted(states, key=lambda state: state.input)),
    )
    return replace(module, signature=made)


def _named(positions: Sequence[int], infos: Sequence[TensorInfo]) -> list[tuple[int, TensorInfo]]:
    return list(zip(positions, infos, strict=True))


def _find(tensors: Sequence[tuple[int, TensorInfo]], name: str, what: str) -> tuple[int, TensorInfo]:
    found = [(position, info) for position, info in tensors if info.name == name]
    if len(found) != 1:
        known = ", ".join(repr(info.name) for _, info in tensors) or "none"
        many = "no" if not found else "more than one"
        raise UsageError(
            f"a state is given for {name!r}, and the model has {many} such {what}", hint=f"{what}s: {known}"
        )
    return found[0]


def _initial(type_: TensorType, info: TensorInfo, given: np.ndarray | None) -> bytes:
    import numpy as np

    if given is None:
        given = np.full(type_.shape, info.zero_point or 0, type_.dtype)
    elif (given.shape, given.dtype.name) != (type_.shape, type_.dtype):
        what = f"its value before the first run is {given.dtype.name} of shape {given.shape}, not {type_}"
        raise ModelError(what, where=f"input {info.name!r}")
    return given.astype(given.dtype.newbyteorder("<")).tobytes()
