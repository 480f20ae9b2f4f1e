"""What one kernel computes, as strategies are given it: an anchor, and what is done element by element around it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

from ..relay.channels import ChannelBounds, channel_bounds
from ..relay.expr import Call, Constant, Expr, Function, Var
from ..relay.op import Op
from ..relay.tensors import TensorFunction, tensor_function
from ..relay.visit import post_order

__all__ = ["Fusion"]

class Fusion:
    """A function of ops that becomes one kernel.

    Args:
        function: its parameters are what the kernel is given, large constants among them.
        known: what some of the parameters are in the model, of which only bounds are told.

    Attributes:
        function: the function.
        calls: the calls of ops in it, each after what it needs.
        anchor: the one call that is neither elementwise nor broadcast, nor a reshape; of a function of one call that
            call. None where there is none, so that all is elementwise, and in a match of an accelerator's with several.
        prologue: what the anchor is computed from, in order.
        epilogue: all other calls, in order: what is computed from the anchor, and what these need besides.
    """

    def __init__(self, function: Function, known: Mapping[Var, Constant] = MappingProxyType({})) -> None:
        self.function = function
        self._known = known
        self.calls = tuple(expr for expr in post_order(function.body) if isinstance(expr, Call))
        anchors = self.calls if len(self.calls) == 1 else tuple(call for call in self.calls if _is_anchor(call))
        self.anchor = anchors[0] if len(anchors) == 1 else None
        before = set() if self.anchor is None else set(post_order(*self.anchor.args))
        self.prologue = tuple(call for call in self.calls if call in before)
        self.epilogue = tuple(call for call in self.calls if call not in before and call is not self.anchor)

    @property
    def operands(self) -> tuple[Expr, ...]:
        """What the anchor is given: parameters, constants, and what the prologue gives; nothing without anchor."""
        return () if self.anchor is None else self.anchor.args

    @cached_property
    def tensors(self) -> TensorFunction:
        """The tensor expressions of ``function``.

        Raises:
            ModelError: an op has no loops.
        """
        return tensor_function(self.function)

    @cached_property
    def bounds(self) -> Mapping[Expr, ChannelBounds]:
        """Of each constant of several elements: of the parameters that are constants, and of those within.

        Raises:
            ModelError: an op has no loops.
        """
        inner = (expr for expr in post_order(self.function.body) if isinstance(expr, Constant))
        constants: dict[Expr, Constant] = {expr: expr for expr in inner if expr.tensor.size > 1}
        constants.update(self._known.items())
        tensors = {self.tensors.of[expr][0]: expr for expr in constants}
        found = channel_bounds(self.tensors.results, {tensor: constants[expr] for tensor, expr in tensors.items()})
        return MappingProxyType({tensors[tensor]: bounds for tensor, bounds in found.items()})


def _is_anchor(call: Call) -> bool:
    return not (isinstance(call.op, Op) and (call.op.kind in ("elementwise", "broadcast") or call.op.name in _VIEWS))
