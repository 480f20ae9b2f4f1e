"""Variables: what a model keeps from one run to the next.

Operators run in their order, so that a variable has a value at each of them. What is read before it is assigned is the
value that the run before left, or before the first run the one that an initialising graph assigns. Of the variables
that are read so, those that are assigned too are the model's state, and the others constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ...errors import ModelError
from ...relay.expr import Expr, Var, const
from ...relay.module import StateInfo
from ...relay.types import TensorType
from ...tir.form.dtype import COMPUTED
from ..model import clean_text
from .reader import Graph, Operator, Tensor

if TYPE_CHECKING:
    import numpy as np

__all__ = ["VARIABLE_OPERATORS", "Variables"]

VARIABLE_OPERATORS = ("ASSIGN_VARIABLE", "CALL_ONCE", "READ_VARIABLE", "VAR_HANDLE")
"""The operators that work on variables, by their names in the schema."""

Key: TypeAlias = tuple[bytes, bytes]
"""What tells variables apart: container and shared name."""


class Variables:
    """The variables of a model.

    Args:
        graph: of the model.
        constant_of: the contents of a constant tensor, None for another; ModelError for one that is damaged.
    """

    def __init__(self, graph: Graph, constant_of: Callable[[Tensor], np.ndarray | None]) -> None:
        self._graph = graph
        self._constant_of = constant_of
        self._handles: dict[int, Key] = {}
        self._names: dict[Key, str] = {}
        self._initial: dict[Key, np.ndarray] = {}
        self._params: dict[Key, Var] = {}
        self._assigned_first: dict[int, list[Key]] = {}  # by the number of an initialising graph
        self._values: dict[Key, Expr] = {}  # of those that have one, at the operator that runs
        self._kept = self._find_kept()

    @property
    def names(self) -> list[str]:
        """The model's names of the states, as far as they can be shown; all different."""
        return [self._names[key] for key in self._kept]

    def declare(self, identifiers: Sequence[str]) -> list[Var]:
        """The parameters of ``main`` for the states, under these names.

        Raises:
            ModelError: an initial value is damaged or of an unsupported type.
        """
        for key, identifier in zip(self._kept, identifiers, strict=True):
            initial = self._initial[key]
            try:
                if initial.dtype.name not in COMPUTED:
                    raise ModelError(f"it is {initial.dtype.name}")
                self._params[key] = Var(identifier, TensorType(initial.shape, initial.dtype.name))
            except ModelError as error:
                raise ModelError(error.what, where=f"variable {self._names[key]!r}") from error
        return list(self._params.values())

    def states(self, first_input: int, first_output: int) -> tuple[StateInfo, ...]:
        """What the signature says of the states, whose parameters and results of ``main`` follow each other."""
        return tuple(
            StateInfo(self._names[key], first_input + i, first_output + i, self._initial[key].tobytes())
            for i, key in enumerate(self._kept)
        )

    def results(self) -> list[Expr]:
        """The new values of the states, when all operators have run."""
        return [self._values[key] for key in self._kept]

    def run(self, operator: Operator, value_of: Callable[[int], Expr]) -> list[Expr]:
        """The results of one of `VARIABLE_OPERATORS`; a handle has none.

        Args:
            operator: the next of the model's that is one.
            value_of: the expression of an operand, by its position.

        Raises:
            ModelError: it is malformed, or does what is not supported.
        """
        if operator.name == "VAR_HANDLE":
            self._handles[_one(operator.outputs, "results")] = _key(operator)
            return []
        if operator.name == "CALL_ONCE":
            self._initialise(operator)
            return []
        if not operator.inputs:
            raise ModelError("it has no operands")
        key = self._handles.get(operator.inputs[0])
        if key is None:
            raise ModelError("its variable has no handle")
        if operator.name == "READ_VARIABLE":
            if key not in self._values:
                raise ModelError(f"it reads the variable {self._names[key]!r} before anything wrote it")
            return [self._values[key]]
        if len(operator.inputs) != 2:
            raise ModelError(f"it has {len(operator.inputs)} operands, not 2")
        value = value_of(1)
        if key in self._params and value.type is not self._params[key].type:
            type_ = self._params[key].type
            raise ModelError(f"it writes {value.type} to the variable {self._names[key]!r}, which holds {type_}")
        self._values[key] = value
        return []

    def _initialise(self, operator: Operator) -> None:
        """Give variables the value that they have before the first run, or that the run before left."""
        for key in self._read_initial(operator):
            name = self._names[key]
            if key in self._values and self._values[key] is not self._first(key):
                raise ModelError(f"it initialises the variable {name!r}, which was used before it")
            self._values[key] = self._first(key)

    def _first(self, key: Key) -> Expr:
        """The value of an initialised variable before anything in a run is assigned to it."""
        return self._params[key] if key in self._params else const(self._initial[key])

    def _read_initial(self, operator: Operator) -> list[Key]:
        """The variables that an initialising graph assigns; notes their values."""
        number = operator.options["init_subgraph"]
        if number in self._assigned_first:
            return self._assigned_first[number]
        graph = self._graph.initialisers.get(number)
        if graph is None:
            raise ModelError(f"it runs graph {number}, which the file does not have")
        handles: dict[int, Key] = {}
        widened: dict[int, np.ndarray] = {}
        done = []
        for inner in graph.operators:
            if inner.name == "VAR_HANDLE":
                handles[_one(inner.outputs, "results")] = _key(inner)
                continue
            real = self._float16(graph, inner)
            if real is not None:
                widened[_one(inner.outputs, "results")] = real.astype("float32")
                continue
            if inner.name != "ASSIGN_VARIABLE" or len(inner.inputs) != 2 or inner.inputs[0] not in handles:
                raise ModelError(
                    f"its graph has an operator {inner.name}", hint="supported: constants assigned to variables"
                )
            array = widened.get(inner.inputs[1])
            if array is None:
                source = graph.tensors.get(inner.inputs[1])
                array = None if source is None else self._constant_of(source)
            if array is None:
                raise ModelError("its graph assigns what is not a constant")
            done.append(handles[inner.inputs[0]])
            self._name(done[-1])
            self._initial[done[-1]] = array
        self._assigned_first[number] = done
        return done

    def _float16(self, graph: Graph, operator: Operator) -> np.ndarray | None:
        """What an operator makes float32 of: float16 constants, as converters store them for short."""
        source = graph.tensors.get(operator.inputs[0]) if len(operator.inputs) == 1 else None
        if operator.name != "DEQUANTIZE" or source is None or source.dtype != "float16":
            return None
        return self._constant_of(source)

    def _name(self, key: Key) -> None:
        if key not in self._names:
            parts = [part.decode("utf-8", "replace") for part in key if part]
            base = name = clean_text("/".join(parts)) or "variable"
            count = 1
            while name in self._names.values():
                count += 1
                name = f"{base} ({count})"
            self._names[key] = name

    def _find_kept(self) -> list[Key]:
        """The variables that are read before they are assigned, and assigned: the states. What is wrong with an
        operator is told where it runs."""
        handles: dict[int, Key] = {}
        used: dict[Key, str] = {}
        assigned: set[Key] = set()
        for operator in self._graph.operators:
            if operator.name == "VAR_HANDLE" and operator.outputs:
                handles[operator.outputs[0]] = _key(operator)
                self._name(_key(operator))
            elif operator.name == "CALL_ONCE":
                try:
                    self._read_initial(operator)
                except ModelError:
                    continue
            elif operator.name in ("READ_VARIABLE", "ASSIGN_VARIABLE") and operator.inputs:
                key = handles.get(operator.inputs[0])
                if key is not None:
                    used.setdefault(key, operator.name)
                    if operator.name == "ASSIGN_VARIABLE":
                        assigned.add(key)
        return [k for k, first in used.items() if first == "READ_VARIABLE" and k in assigned and k in self._initial]


def _key(operator: Operator) -> Key:
    return operator.options["container"], operator.options["shared_name"]


def _one(numbers: Sequence[int], role: str) -> int:
    if len(numbers) != 1:
        raise ModelError(f"it has {len(numbers)} {role}, not 1")
    return numbers[0]
