"""What one kernel computes, as strategies are given it: an anchor, and what is done element by element around it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from ..errors import PluginError
from ..relay.channels import ChannelBounds, channel_bounds
from ..relay.expr import Call, Constant, Expr, Function, Var
from ..relay.op import Op
from ..relay.tensors import TensorFunction, tensor_function
from ..relay.types import TensorType
from ..relay.views import is_view
from ..relay.visit import post_order
from ..tir import te

__all__ = ["Fusion"]


@dataclass(frozen=True, eq=False)
class Fusion:
    """A function of ops that becomes one kernel.

    Args:
        function: its parameters are what the kernel is given, large constants among them.
        known: what some of the parameters are in the model. A kernel is none of these alone: see `bounds`.
        calls: the calls of ops in ``function``, each after what it needs.
        anchor: the one call that is neither elementwise nor broadcast, nor a reshape; of a function of one call that
            call. None where there is none, so that all is elementwise, and in a match of an accelerator's with several.
        prologue: what the anchor is computed from, in order.
        epilogue: all other calls, in order: what is computed from the anchor, and what these need besides.
        by_rows: asks a host for loops that can be run one row of the result at a time: the outermost loop is over rows
            of the result, one row a turn (axis 1 of four dimensions), or of what is reduced where rows are reduced to
            one, and nothing but the sums of that is kept from one turn to the next. Who has no such loops answers None
            or `Declined`; loops that are not so are not fault, and are not used.
    """

    function: Function
    known: Mapping[Var, Constant] = field(default_factory=dict, repr=False)
    by_rows: bool = False
    calls: tuple[Call, ...] = field(init=False, repr=False)
    anchor: Call | None = field(init=False)
    prologue: tuple[Call, ...] = field(init=False)
    epilogue: tuple[Call, ...] = field(init=False)

    def __post_init__(self) -> None:
        calls = tuple(expr for expr in post_order(self.function.body) if isinstance(expr, Call))
        anchors = calls if len(calls) == 1 else tuple(call for call in calls if _is_anchor(call))
        anchor = anchors[0] if len(anchors) == 1 else None
        before = set() if anchor is None else set(post_order(*anchor.args))
        object.__setattr__(self, "calls", calls)
        object.__setattr__(self, "anchor", anchor)
        object.__setattr__(self, "prologue", tuple(call for call in calls if call in before))
        object.__setattr__(self, "epilogue", tuple(one for one in calls if one not in before and one is not anchor))

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

    def kernel(self) -> te.Kernel:
        """The loops that the core makes of ``function``, see `te.prim_func`.

        Its constants are the parameters that are ``known``, its inputs the others.

        Raises:
            ModelError: an op has no loops.
        """
        return self.tensors.kernel(self._constants(self.tensors))

    def plain(self, anchor: te.Tensor | None = None, keep: Collection[te.Tensor] = ()) -> te.Kernel:
        """The loops of ``function`` in the plain form, one nest per stage, see `te.plain`: for a `ScheduledKernel`.

        Its constants are the parameters that are ``known``, its inputs the others.

        Args:
            anchor: computes what the anchor gives, from the tensors of ``tensors``, in another way than the op; None
                for the op's own.
            keep: computed tensors that have a stage, however cheap they are; but those that are computed at build time.

        Raises:
            ModelError: an op has no loops.
            PluginError: ``anchor`` has another shape or dtype than what the anchor gives, or there is no anchor.
        """
        tensors = self.tensors
        if anchor is not None:
            if self.anchor is None:
                raise PluginError(f"Fusion.plain is given the anchor {anchor.name!r} of a fusion that has none")
            declared = TensorType(anchor.shape, anchor.dtype)
            if declared is not self.anchor.type:
                what = f"Fusion.plain is given the anchor {anchor.name!r}, {declared}"
                raise PluginError(f"{what}, where {self.anchor.op_name} gives {self.anchor.type}")
            tensors = tensors.replaced(self.function, self.anchor, anchor)
        return tensors.plain(self._constants(tensors), keep)

    def _constants(self, tensors: TensorFunction) -> list[te.Tensor]:
        pairs = zip(self.function.params, tensors.params, strict=True)
        return [tensor for param, tensor in pairs if param in self.known]

    @cached_property
    def bounds(self) -> Mapping[Expr, ChannelBounds]:
        """Of each constant of several elements: of the parameters that are constants, and of those within.

        Raises:
            ModelError: an op has no loops.
        """
        inner = (expr for expr in post_order(self.function.body) if isinstance(expr, Constant))
        constants: dict[Expr, Constant] = {expr: expr for expr in inner if expr.tensor.size > 1}
        constants.update(self.known.items())
        tensors = {self.tensors.by_expr[expr][0]: expr for expr in constants}
        by_tensor = channel_bounds(self.tensors.results, {tensor: constants[expr] for tensor, expr in tensors.items()})
        return MappingProxyType({tensors[tensor]: bounds for tensor, bounds in by_tensor.items()})


def _is_anchor(call: Call) -> bool:
    return not (is_view(call) or (isinstance(call.op, Op) and call.op.kind in ("elementwise", "broadcast")))
