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
    for input_name, output_name in pairs.items():
        into, info = _find(inputs, input_name, "input")
        out, other = _find(outputs, output_name, "output")
        type_ = params[into]
        if isinstance(type_, TensorType) and type_.is_open:
            raise UsageError(f"input {input_name!r} is {type_}: what is kept from run to run has no open extents")
        if type_ is not results[out] or not isinstance(type_, TensorType):
            raise UsageError(
                f"input {input_name!r} is {type_} and output {output_name!r} {results[out]}: they cannot be one state",
                hint="a state's input and output are of one type",
            )
        if (info.scale, info.zero_point) != (other.scale, other.zero_point):
            raise UsageError(
                f"input {input_name!r} and output {output_name!r} have different scales or zero points: "
                "they cannot be one state"
            )
        if any(state.output == out for state in states):
            raise UsageError(f"output {output_name!r} is the new value of two states")
        if any(state.name == input_name for state in signature.states):
            raise UsageError(f"the model has a state {input_name!r} of its own")
        states.append(StateInfo(input_name, into, out, _initial(type_, info, (initial or {}).get(input_name))))
    if len(states) == len(signature.outputs):
        raise UsageError("all outputs of the model are states, which leaves it none to give")
    state_inputs, state_outputs = {state.input for state in states}, {state.output for state in states}
    new_signature = Signature(
        tuple(info for position, info in inputs if position not in state_inputs),
        tuple(info for position, info in outputs if position not in state_outputs),
        (*signature.states, *sorted(states, key=lambda state: state.input)),
    )
    return replace(module, signature=new_signature)


def _named(positions: Sequence[int], infos: Sequence[TensorInfo]) -> list[tuple[int, TensorInfo]]:
    return list(zip(positions, infos, strict=True))


def _find(tensors: Sequence[tuple[int, TensorInfo]], name: str, role: str) -> tuple[int, TensorInfo]:
    matches = [(position, info) for position, info in tensors if info.name == name]
    if len(matches) != 1:
        names = ", ".join(repr(info.name) for _, info in tensors) or "none"
        many = "no" if not matches else "more than one"
        raise UsageError(
            f"a state is given for {name!r}, and the model has {many} such {role}", hint=f"{role}s: {names}"
        )
    return matches[0]


def _initial(type_: TensorType, info: TensorInfo, value: np.ndarray | None) -> bytes:
    import numpy as np

    if value is None:
        value = np.full(type_.shape, info.zero_point or 0, type_.dtype)
    elif (value.shape, value.dtype.name) != (type_.shape, type_.dtype):
        message = f"its value before the first run is {value.dtype.name} of shape {value.shape}, not {type_}"
        raise ModelError(message, where=f"input {info.name!r}")
    return value.astype(value.dtype.newbyteorder("<")).tobytes()
