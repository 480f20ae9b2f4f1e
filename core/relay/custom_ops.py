"""Operators of a plugin's own, and how layers of model files become calls of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Union

from ..errors import ModelError, PluginError
from .expr import Expr
from .op import Op

if TYPE_CHECKING:
    import numpy as np

__all__ = ["AttributeValue", "CustomImporter", "CustomLayer", "CustomOp", "CustomTensor", "FindImporter", "no_importer"]

AttributeValue = Union[int, float, str, tuple[int, ...], tuple[float, ...], "np.ndarray"]


@dataclass(frozen=True)
class CustomTensor:
    """An operand or a result of a layer of a model file.

    Args:
        name: the model's own, any text.
        value: the operand as an expression, constants as `Constant`; None of a result.
        shape, dtype: what the file says of it; None where it does not say (results of an ONNX node; a shape
            with open extents).
        scale, zero_point: real value = ``scale * (stored value - zero_point)``; None where there is not one of each.
    """

    name: str
    value: Expr | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    scale: float | None = None
    zero_point: int | None = None


@dataclass(frozen=True)
class CustomLayer:
    """A layer of a model file whose operator is not the core's.

    Args:
        name: of the layer.
        operator: the custom code of TFLite; ``domain::OpType`` of ONNX.
        inputs: the operands; None for one that was left out.
        outputs: the results.
        options: of TFLite, as in the file: most often a FlexBuffer, which ``flatbuffers.flexbuffers.Loads`` reads.
        attributes: of ONNX.
    """

    name: str
    operator: str
    inputs: tuple[CustomTensor | None, ...]
    outputs: tuple[CustomTensor, ...]
    options: bytes = b""
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)

    def operand(self, index: int) -> Expr:
        """An operand as an expression.

        Args:
            index: its place among the inputs, from 0 on.

        Raises:
            ModelError: the layer leaves it out.
        """
        operand = self.inputs[index] if index < len(self.inputs) else None
        if operand is None or operand.value is None:
            raise ModelError(f"{self.operator} needs operand {index}, which is left out")
        return operand.value


CustomImporter = Callable[[CustomLayer], Expr | Sequence[Expr]]
"""Gives the results of a layer: one expression, or one per result. ModelError says what of it is not supported."""


FindImporter = Callable[[Literal["tflite", "onnx"], str], "CustomImporter | None"]
"""Whom front-ends ask for an operator that they do not know: a custom code, or ``domain::OpType``."""


def no_importer(form: Literal["tflite", "onnx"], operator: str) -> CustomImporter | None:
    """That of a build without operators of plugins."""
    return None


@dataclass(frozen=True)
class CustomOp:
    """An operator that a plugin brings.

    Args:
        op: its declaration, of the form that the core's own ops have: ``reference`` in numpy is what ``uma verify`` and
            constant folding compute it with. Without ``compute`` it runs only where a target takes it.
        tflite: how layers become calls of it, by custom code.
        onnx: likewise, by ``domain::OpType``.

    Raises:
        PluginError: a field is malformed.
    """

    op: Op
    tflite: Mapping[str, CustomImporter] = field(default_factory=dict)
    onnx: Mapping[str, CustomImporter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.op, Op):
            raise PluginError(f"CustomOp.op is {self.op!r}, not an Op")
        for name in ("tflite", "onnx"):
            importers: object = getattr(self, name)
            if not isinstance(importers, Mapping) or not all(
                isinstance(code, str) and code and callable(importer) for code, importer in importers.items()
            ):
                raise PluginError(
                    f"CustomOp.{name} of {self.op.name!r} is {importers!r}", hint="a mapping from operator to function"
                )
            object.__setattr__(self, name, MappingProxyType(dict(importers)))
        for code in self.onnx:
            domain, _, kind = code.partition("::")
            if not (domain and kind):
                raise PluginError(
                    f"CustomOp.onnx of {self.op.name!r} has {code!r}", hint="domain::OpType, for example com.acme::Fft"
                )
