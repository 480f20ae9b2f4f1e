"""What the import of one operator works with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...relay.expr import Expr, call, const
from ...relay.op import get_op
from ...tir.form.dtype import INTEGERS, bounds, is_integer
from ..builder import Builder
from .reader import Operator, Tensor

if TYPE_CHECKING:
    import numpy as np

__all__ = ["QUANTISED", "Importer", "Layer", "channel_axis", "quantisation", "quantisations", "round_away"]

QUANTISED = ("int8", "uint8")
"""dtypes of quantised arithmetic of eight bits. (Of int16, where there is a kernel of it, arithmetic may be other.)"""

_ACTIVATIONS = {  # the limits of those of the schema
    1: (0.0, math.inf),
    2: (-1.0, 1.0),
    3: (0.0, 6.0),
}


def quantisation(tensor: Tensor) -> tuple[float, int]:
    """Scale and zero point of a quantised tensor that has one of each; ModelError where it does not."""
    scales, zero_points = quantisations(tensor)
    if len(scales) != 1:
        raise ModelError(f"{tensor.name!r} has {len(scales)} scales, not one")
    return scales[0], zero_points[0]


def quantisations(tensor: Tensor, *, of_weight: bool = False) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Scales and zero points of a quantised tensor, as many of each: one, or one per element of its axis.

    Args:
        tensor: the tensor.
        of_weight: whether scales may be 0, as converters write them for channels whose weights are all 0.

    Raises:
        ModelError: it has none, or they are out of range.
    """
    parameters = tensor.quantisation
    if parameters is None:
        raise ModelError(f"{tensor.name!r} is {tensor.dtype} and has no scale")
    if tensor.dtype not in INTEGERS:
        raise ModelError(f"{tensor.name!r} is {tensor.dtype}, which is not a quantised type")
    low, high = bounds(tensor.dtype)
    for scale in parameters.scale:
        if not (math.isfinite(scale) and (scale > 0 or (of_weight and scale == 0))):
            raise ModelError(f"{tensor.name!r} has the scale {scale}")
    for zero_point in parameters.zero_point:
        if not low <= zero_point <= high:
            raise ModelError(f"{tensor.name!r} has the zero point {zero_point}, which is not {tensor.dtype}")
    count = len(parameters.scale)
    if count > 1 and not (0 <= parameters.axis < len(tensor.shape) and tensor.shape[parameters.axis] == count):
        raise ModelError(f"{tensor.name!r} of shape {tensor.shape} has {count} scales along axis {parameters.axis}")
    zero_points = parameters.zero_point * count if len(parameters.zero_point) == 1 else parameters.zero_point
    if len(zero_points) != count:
        raise ModelError(f"{tensor.name!r} has {count} scales and {len(zero_points)} zero points")
    return parameters.scale, zero_points


def channel_axis(tensor: Tensor) -> int:
    """The dimension along which a tensor has several scales; the last one where it has one scale for all."""
    parameters = tensor.quantisation
    return parameters.axis if parameters is not None and len(parameters.scale) > 1 else -1


class Layer(Builder):
    """One operator, its operands and its results.

    Every method raises ModelError for what the operator does not have, or what is not supported of it. ``remarks`` are
    what a user may want to know of its import, in words that fit several layers. ``kept`` are new values of tensors
    that are variables, by their numbers.

    Args:
        operator: the operator.
        tensors: of the graph.
        value_of: the expression of a tensor that is computed or an input; for constants `constant_of` is asked.
        constant_of: the contents of a constant tensor, None for another.
        hybrid: whether weights of integers beside float32 are computed with as LiteRT does.
    """

    def __init__(
        self,
        operator: Operator,
        tensors: Mapping[int, Tensor],
        value_of: Callable[[Tensor], Expr],
        constant_of: Callable[[Tensor], np.ndarray | None],
        hybrid: bool = False,
    ) -> None:
        self.hybrid = hybrid
        self.options: Mapping[str, Any] = operator.options
        self.remarks: list[str] = []
        self.new_states: dict[int, Expr] = {}
        self._operator = operator
        self._tensors = tensors
        self._value_of = value_of
        self._constant_of = constant_of

    def reordered(self, *positions: int) -> Layer:
        """The layer with its operands in another order, of which one that is not there stays absent."""
        inputs = tuple(self._operator.inputs[p] if self.has(p) else -1 for p in positions)
        operator = replace(self._operator, inputs=inputs)
        layer = Layer(operator, self._tensors, self._value_of, self._constant_of, self.hybrid)
        layer.remarks, layer.new_states = self.remarks, self.new_states
        return layer

    # --- operands ----------------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """The number of operands."""
        return len(self._operator.inputs)

    def has(self, position: int) -> bool:
        """Whether there is an operand at ``position``."""
        return position < self.count and self._operator.inputs[position] >= 0

    def tensor(self, position: int) -> Tensor:
        """The operand's tensor."""
        if not self.has(position):
            raise ModelError(f"operand {position} is missing")
        return self._tensors[self._operator.inputs[position]]

    def output(self, position: int = 0) -> Tensor:
        """A result's tensor."""
        return self._tensors[self._operator.outputs[position]]

    def intermediate(self, position: int) -> Tensor:
        """A tensor of which only the quantisation counts."""
        if not 0 <= position < len(self._operator.intermediates) or self._operator.intermediates[position] < 0:
            raise ModelError(f"its intermediate tensor {position} is missing")
        return self._tensors[self._operator.intermediates[position]]

    def keep(self, position: int, value: Expr) -> None:
        """Have an operand, which is a variable, hold ``value`` from now on."""
        tensor = self.tensor(position)
        old = self.value(position)
        if not tensor.variable:
            raise ModelError(f"{tensor.name!r} is not a variable")
        self.new_states[tensor.index] = (
            value if value.shape == old.shape else call("reshape", value, newshape=old.shape)
        )

    @property
    def outputs(self) -> int:
        """The number of results."""
        return len(self._operator.outputs)

    def value(self, position: int) -> Expr:
        """The operand."""
        return self._value_of(self.tensor(position))

    def constant(self, position: int) -> np.ndarray | None:
        """The operand's contents, where it is a constant."""
        return self._constant_of(self.tensor(position))

    def integers(self, position: int, role: str) -> tuple[int, ...]:
        """The elements of a constant integer operand, in row-major order."""
        array = self.constant(position)
        if array is None:
            raise ModelError(f"its {role} is not a constant")
        if not is_integer(array.dtype.name):
            raise ModelError(f"its {role} is {array.dtype.name}, not integer")
        return tuple(array.ravel().tolist())

    def integer(self, position: int, role: str) -> int:
        """The one element of a constant integer operand."""
        elements = self.integers(position, role)
        if len(elements) != 1:
            raise ModelError(f"its {role} has {len(elements)} elements, not 1")
        return elements[0]

    # --- types and quantisation --------------------------------------------------------------------------------------

    def dtypes(self, *expected: str) -> str:
        """The dtype of all operands that are there and of the first result, one of ``expected``."""
        dtypes = {self.tensor(i).dtype for i in range(self.count) if self.has(i)} | {self.output().dtype}
        if len(dtypes) != 1 or not dtypes <= set(expected):
            raise ModelError(f"it is of {' and '.join(sorted(dtypes))}", hint=f"supported: {', '.join(expected)}")
        return dtypes.pop()

    def same_quantisation(self, *tensors: Tensor) -> None:
        """ModelError unless quantised tensors have one scale and zero point between them; others do not matter."""
        if tensors[0].dtype in (*QUANTISED, "int16"):
            parameters = {quantisation(t) if t.quantisation is not None else None for t in tensors}
            if len(parameters) > 1:
                shown = ", ".join(sorted(map(str, parameters)))
                raise ModelError(f"its operands and results have different scales or zero points: {shown}")

    # --- what many operators share -----------------------------------------------------------------------------------

    def permuted(self, position: int, axes: Sequence[int]) -> Expr:
        """The operand with its dimensions in another order; done now where it is a constant."""
        array = self.constant(position)
        if array is not None and array.ndim == len(axes):
            return const(array.transpose(axes))
        return call("transpose", self.value(position), axes=axes)

    def float_weight(self, position: int) -> Expr:
        """A float operand; one that is stored in int8 or uint8 is dequantised now, if that is how it is to be."""
        tensor = self.tensor(position)
        if tensor.dtype not in QUANTISED:
            return self.value(position)
        if self.hybrid:
            message = f"{tensor.name!r} is {tensor.dtype} beside float32, which is not computed with as LiteRT does"
            raise ModelError(message, hint="without --allow hybrid=litert it is dequantised")
        self.remarks.append("integer weights beside float activations were dequantised")
        return self.dequantised(position)

    def dequantised(self, position: int) -> Expr:
        """What numbers of int8 or uint8 that are known stand for."""
        tensor, array = self.tensor(position), self.constant(position)
        if array is None:
            raise ModelError(f"{tensor.name!r} is {tensor.dtype} beside float32, and no constant")
        scales, zero_points = quantisations(tensor)
        attrs = {"scale": scales, "zero_point": zero_points, "axis": channel_axis(tensor)}
        real = call("qnn.dequantize", const(array), **attrs)
        return const(get_op("qnn.dequantize").reference(real.attrs, array))

    def activated(self, value: Expr) -> Expr:
        """``value``, of the first result's type, with the fused activation."""
        code = self.options["activation"]
        if code == 0:
            return value
        if code not in _ACTIVATIONS:
            raise ModelError(f"its fused activation has the number {code}", hint="supported: none and the relus")
        if self.output().dtype not in ("float32", *QUANTISED, "int16"):
            raise ModelError(f"its fused activation is of {self.output().dtype}")
        return self.limited(value, *_ACTIVATIONS[code])

    def limited(self, value: Expr, low: float, high: float) -> Expr:
        """``value``, of the first result's type, kept within real limits.

        Of quantised numbers as TFLite's ``CalculateActivationRangeQuantized``: limit = zero point +
        round(real / scale) in float32.
        """
        output = self.output()
        if output.dtype == "float32":
            return (
                call("nn.relu", value) if (low, high) == (0, math.inf) else call("clip", value, a_min=low, a_max=high)
            )
        scale, zero_point = quantisation(output)
        least, greatest = bounds(output.dtype)
        limits = {}
        if low > -math.inf and (a_min := zero_point + round_away(low, scale)) > least:
            limits["a_min"] = a_min
        if high < math.inf and (a_max := zero_point + round_away(high, scale)) < greatest:
            limits["a_max"] = a_max
        return call("clip", value, **limits) if limits else value


def round_away(value: float, scale: float) -> int:
    """``value / scale`` in float32, rounded half away from zero."""
    import numpy as np

    with np.errstate(over="ignore"):
        quotient = float(np.float32(value) / np.float32(scale))
    size = min(abs(quotient), 2.0**40)
    floor = math.floor(size)
    floor += size - floor >= 0.5
    return floor if quotient >= 0 else -floor


Importer = Callable[[Layer], Expr | Sequence[Expr]]
"""Gives the results of a layer: one expression, or one per result."""
