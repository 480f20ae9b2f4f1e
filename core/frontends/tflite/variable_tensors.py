"""Tensors that are variables: what operators such as SVDF and LSTM keep in them from one run to the next.

They begin with zeros, of int8 with their zero point, as TFLite's interpreters have it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...errors import ModelError
from ...relay.expr import Expr, Var
from ...relay.module import StateInfo
from ...relay.types import TensorType
from ..model import clean_text
from .layer import quantisation
from .reader import Graph, Tensor

__all__ = ["KEEPERS", "Kept"]

KEEPERS: Mapping[str, tuple[int, ...]] = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": (35, 36, 37, 38),
    "SVDF": (4,),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (18, 19),
}
"""Operator -> the operands that it keeps values in."""


class Kept:
    """The variable tensors of a graph.

    Args:
        graph: of the model.
        taken: names that states of the model have already.
    """

    def __init__(self, graph: Graph, names: Collection[str]) -> None:
        tensors: dict[int, Tensor] = {}
        for operator in graph.operators:
            for position in KEEPERS.get(operator.name, ()):
                index = operator.inputs[position] if position < len(operator.inputs) else -1
                if index >= 0 and graph.tensors[index].variable and index not in graph.inputs:
                    tensors[index] = graph.tensors[index]
        self._tensors = list(tensors.values())
        self._taken = list(names)
        self._params: list[Var] = []
        self.names: list[str] = []
        """The model's names of them, all different."""
        for tensor in self._tensors:
            base = name = clean_text(tensor.name)
            count = 1
            while name in (*self._taken, *self.names):
                count += 1
                name = f"{base} ({count})"
            self.names.append(name)

    def declare(self, identifiers: Sequence[str], values: dict[int, Expr | None]) -> list[Var]:
        """The parameters of ``main`` for them, under these names, which are put among the values of tensors.

        Raises:
            ModelError: one is of an unsupported type.
        """
        for tensor, identifier in zip(self._tensors, identifiers, strict=True):
            try:
                self._params.append(Var(identifier, TensorType(tensor.shape, tensor.dtype)))
            except ModelError as error:
                raise ModelError(error.what, where=f"variable {tensor.name!r}") from error
            values[tensor.index] = self._params[-1]
        return self._params

    def states(self, first_input: int, first_output: int) -> tuple[StateInfo, ...]:
        """What the signature says of them, whose parameters and results of ``main`` follow each other."""
        states = []
        for i, (name, tensor, param) in enumerate(zip(self.names, self._tensors, self._params, strict=True)):
            filled = quantisation(tensor)[1] % 256 if tensor.dtype == "int8" and tensor.quantisation is not None else 0
            initial = bytes([filled]) * param.tensor.nbytes
            states.append(StateInfo(name, first_input + i, first_output + i, initial))
        return tuple(states)

    def results(self, values: Mapping[int, Expr | None]) -> list[Expr]:
        """Their new values, when all operators have run."""
        return [value for tensor in self._tensors if (value := values[tensor.index]) is not None]
