"""What converters of nodes work with: the values so far, and how they become expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Union

from ...errors import ModelError
from ...relay.expr import Call, Constant, Expr, TupleGetItem, call, const
from ...relay.qdq import constant_value
from ...support.import_budget import require_memory
from ...tir.form.symbolic_dims import Dim
from ..builder import Builder
from .computed_dimensions import Counts, dimension_values
from .narrow_dtypes import Narrow
from .proto import Node

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ComputedAtRunTime", "Context", "Converter", "Value", "is_constant"]

Value = Union["np.ndarray", Expr]
"""A tensor of the model: an array where it is known at import, else an expression."""


class ComputedAtRunTime(ModelError):
    """A node needs an input at import that is computed at run time.

    Args:
        what: as for `ModelError`.
        value: the input.
    """

    def __init__(self, what: str, value: Expr) -> None:
        super().__init__(what)
        self.value = value


def is_constant(expr: Expr) -> bool:
    """Whether ``expr`` is a constant, or a quantised constant made real."""
    if isinstance(expr, Call) and expr.op_name == "qnn.dequantize":
        expr = expr.args[0]
    return isinstance(expr, Constant)


@dataclass
class Context(Builder):
    """One node with its inputs.

    Args:
        node: what to convert.
        values: the node's inputs, None for those that were left out.
        uses: how often each tensor of the model is used.
        constants: expressions of the model's tensors that are arrays, filled as they are asked for.
        counts: extents that the model computes.
        declared: the shape of each of its outputs, None for one that the file leaves open.
        narrow: the narrow type of each of its inputs, None for one that is of another type, or left out.
        built: expressions that this node became, in order.
        replaced: pairs of an expression of an earlier node and what took its place.
    """

    node: Node
    values: Sequence[Value | None]
    uses: Mapping[str, int]
    constants: dict[str, Expr]
    counts: Counts
    declared: Sequence[tuple[int, ...] | None] = ()
    narrow: Sequence[Narrow | None] = ()
    built: list[Expr] = field(default_factory=list)
    replaced: list[tuple[Expr, Expr]] = field(default_factory=list)

    def with_inputs(self, *values: Value | None) -> Context:
        """The same node with other inputs; what it becomes is this node's."""
        return replace(self, values=values)

    def has(self, index: int) -> bool:
        """Whether input ``index`` was given."""
        return index < len(self.values) and self.values[index] is not None

    def value(self, index: int) -> Value:
        """Input ``index``.

        Raises:
            ModelError: it was left out.
        """
        value = self.values[index] if index < len(self.values) else None
        if value is None:
            raise ModelError(f"its input {index} is missing")
        return value

    def expr(self, index: int) -> Expr:
        """Input ``index`` as an expression; ModelError where it was left out, is empty, or of an unknown dtype."""
        value = self.value(index)
        if isinstance(value, Expr):
            return value
        name = self.node.inputs[index]
        if name not in self.constants:
            is_open = value.dtype.kind == "O"
            self.constants[name] = dimension_values(value) if is_open else const(value)
            self.built += [self.constants[name]] if is_open else []
        return self.constants[name]

    def known(self, index: int) -> np.ndarray:
        """Input ``index``, an array, dequantised where need be; ModelError where it is computed at run time."""
        value = self.value(index)
        if isinstance(value, Expr) and (array := constant_value(value)) is not None:
            return array
        if isinstance(value, Expr):
            raise ComputedAtRunTime(f"its input {self.node.inputs[index]!r} is computed at run time", value)
        return value

    def is_known(self, index: int) -> bool:
        """Whether input ``index``, which was given, is known at import."""
        value = self.value(index)
        return not isinstance(value, Expr) or constant_value(value) is not None

    def known_integers(self, index: int) -> tuple[Any, ...]:
        """Input ``index``, integers known at import, open extents among them: an array of one dimension, or a
        scalar."""
        array = self.known(index)
        if array.dtype.kind not in "iuO" or array.ndim > 1:
            description = f"{array.dtype} of shape {array.shape}"
            raise ModelError(f"its input {self.node.inputs[index]!r} is {description}, not a list of integers")
        # As numbers of Python, in a tuple, in an attribute and in the key of that.
        require_memory(256 * array.size)
        return tuple(array.reshape(-1).tolist())

    def constant(self, value: np.ndarray) -> Constant:
        """A constant that is not the model's own."""
        return const(value)

    def call(self, op: str, *args: Expr, **attrs: Any) -> Call:
        """A call that this node becomes."""
        result = call(op, *args, **attrs)
        self.built.append(result)
        return result

    def cut(self, data: Expr, axis: int, extent: Dim) -> Expr:
        """The first elements of ``data`` along an axis, as many as the model computes: see `Counts.cut`."""
        expr = self.counts.cut(data, axis, extent)
        self.built.append(expr)
        return expr

    def field(self, tuple_expr: Expr, index: int) -> Expr:
        """A field of a tuple that this node becomes."""
        item = TupleGetItem(tuple_expr, index)
        self.built.append(item)
        return item

    def permute(self, data: Expr, axes: Sequence[int]) -> Expr:
        """``data`` with dimension d taken from ``axes[d]``; done at once with constants, quantised ones included."""
        if isinstance(data, Constant):
            return self.constant(data.data.transpose(axes))
        if isinstance(data, Call) and data.op_name == "qnn.dequantize" and isinstance(data.args[0], Constant):
            channel = axes.index(data.attrs.axis % len(axes))
            attrs = data.attrs.replace(axis=channel)
            return self.call("qnn.dequantize", self.permute(data.args[0], axes), **attrs)
        return self.call("transpose", data, axes=tuple(axes))

    def used_once(self, index: int) -> bool:
        """Whether this node alone uses its input ``index``."""
        return self.uses[self.node.inputs[index]] == 1


Converter = Callable[[Context], Value | Sequence[Value]]
"""Gives the node's output, or its outputs. ModelError says what of the node is wrong or not supported."""
