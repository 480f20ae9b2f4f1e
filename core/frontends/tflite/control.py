"""IF, WHILE and CALL: operators that run other graphs of the file.

A graph takes all that it works on as operands. What IF and WHILE run becomes functions of the module, what CALL runs is
written where it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ...errors import ModelError
from ...relay.expr import Call, Constant, Expr, Function, GlobalVar, If, Loop, Tuple, TupleGetItem, Var, call, const
from ...relay.module import func_type
from ...relay.types import TensorType
from ...support.import_budget import OPERATIONS_PER_NODE, spend_operations
from .reader import Operator

__all__ = ["CONTROL", "Control"]

CONTROL = ("CALL", "IF", "WHILE")
"""The operators, by their names in the schema."""

_FLAG = TensorType((), "bool")

Converted: TypeAlias = Callable[[int, Sequence[Expr], str], list[Expr]]
"""Gives what a graph, by its number, gives for operands; its layers begin with a name. ModelError as for importers."""


class Control:
    """What control flow of a file becomes.

    Attributes:
        functions: what it runs, by name.
    """

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}
        self._number = 0
        self._active: list[int] = []

    def enter(self, graph: int, operators: int) -> None:
        """Note that the operators of a graph are converted, until `leave`.

        Raises:
            ModelError: the graph is a part of itself.
            BudgetError: there are too many, each counted as often as a graph that names it is written.
        """
        if graph in self._active:
            raise ModelError(f"graph {graph} of the file runs itself")
        spend_operations(OPERATIONS_PER_NODE * operators)
        self._active.append(graph)

    def leave(self) -> None:
        """The graph that was entered last is converted."""
        self._active.pop()

    def run(self, operator: Operator, operands: Sequence[Expr], converted: Converted) -> list[Expr]:
        """The results of one of `CONTROL`, and what it becomes.

        Raises:
            ModelError: it is malformed, its graphs do not fit together, or what they do cannot be imported.
        """
        options, layer = operator.options, operator.layer
        if operator.name == "CALL":
            return converted(options["graph"], operands, layer)
        if operator.name == "IF":
            return self._if(options["then"], options["otherwise"], operands, layer, converted)
        return self._while(options["condition"], options["body"], operands, layer, converted)

    def _if(self, then: int, otherwise: int, operands: Sequence[Expr], layer: str, converted: Converted) -> list[Expr]:
        if not operands:
            raise ModelError("it has no condition")
        flag, values = _flag(operands[0], "its condition"), operands[1:]
        computed = [value for value in dict.fromkeys(values) if not isinstance(value, Constant)]
        sides, counts = [], []
        for name, graph in (("then", then), ("otherwise", otherwise)):
            params = {value: self._var(value.tensor) for value in computed}
            results = converted(graph, [params.get(value, value) for value in values], layer)
            counts.append([result.type for result in results])
            sides.append(self._named(name, Function(list(params.values()), Tuple(results))))
        if counts[0] != counts[1]:
            shown = " and ".join(", ".join(map(str, types)) for types in counts)
            raise ModelError(f"its branches are of different types: {shown}")
        chosen = Call(If(*sides), [flag, *computed])
        return [TupleGetItem(chosen, position) for position in range(len(counts[0]))]

    def _while(
        self, condition: int, body: int, operands: Sequence[Expr], layer: str, converted: Converted
    ) -> list[Expr]:
        def asked(values: Sequence[Expr]) -> Expr:
            results = converted(condition, values, layer)
            if len(results) != 1:
                raise ModelError(f"its condition gives {len(results)} results")
            return _flag(results[0], "what its condition gives")

        params = [self._var(value.tensor) for value in operands]
        after = converted(body, params, layer)
        for position, (before, value) in enumerate(zip(operands, after, strict=False)):  # told below
            if before.type is not value.type:
                raise ModelError(f"value {position} is {before.type} before a turn and {value.type} after it")
        if len(after) != len(operands):
            raise ModelError(f"it has {len(operands)} operands, and its body gives {len(after)} results")
        first, again = asked(operands), asked(after)
        if isinstance(again, Constant) and isinstance(first, Constant) and bool(again.data) and bool(first.data):
            raise ModelError("its condition always holds: it would never end")
        function = Function([self._var(_FLAG), *params], Tuple([again, *after]))
        looped = Call(Loop(self._named("body", function), 1 + len(params)), [first, *operands])
        return [TupleGetItem(looped, position) for position in range(1, 1 + len(params))]

    def _var(self, type_: TensorType) -> Var:
        self._number += 1
        return Var(f"uma_body_{self._number}", type_)

    def _named(self, name: str, function: Function) -> GlobalVar:
        var = GlobalVar(f"{name}_{len(self.functions)}", func_type(function))
        self.functions[var.name] = function
        return var


def _flag(value: Expr, role: str) -> Expr:
    """One bool as a scalar."""
    if value.dtype != "bool" or value.tensor.size != 1:
        raise ModelError(f"{role} is {value.type}, not one bool")
    if isinstance(value, Constant):
        return const(value.data.reshape(()))
    return value if value.shape == () else call("reshape", value, newshape=())
