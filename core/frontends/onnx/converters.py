"""The operators of ONNX and of other domains: what converts each, and the attributes that it may have."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from functools import cache

from ...errors import ModelError
from .activations import ACTIVATIONS
from .arith import ARITH
from .composed import COMPOSED
from .context import Converter
from .contributed import CONTRIBUTED
from .conv_pool import WINDOWS
from .data_dependent_shapes import DETECTION
from .data_movement import MOVES
from .declared_shape_ops import FRAMING
from .determinants import DETERMINANTS
from .einsum import EINSUM
from .fourier import FOURIER
from .gather import GATHER
from .grid_sample import SAMPLING
from .integers import INTEGERS, MICROSOFT
from .losses import LOSSES
from .norm import NORM
from .optional import OPTIONAL
from .proto import OPSETS, Node
from .qonnx import QONNX
from .quant import QUANT
from .recurrent import RECURRENT
from .reductions import REDUCTIONS
from .resize import RESIZE
from .roi_ops import AREAS
from .roi_pool import POOLED_REGIONS
from .shape import SHAPE
from .signal_windows import SIGNALS
from .transposed_conv import TRANSPOSED

__all__ = ["CONVERTERS", "OTHER_DOMAINS", "check_attributes", "require_attributes"]

CONVERTERS: Mapping[str, Converter] = {
    **ACTIVATIONS,
    **AREAS,
    **ARITH,
    **COMPOSED,
    **DETECTION,
    **EINSUM,
    **DETERMINANTS,
    **FOURIER,
    **FRAMING,
    **INTEGERS,
    **LOSSES,
    **GATHER,
    **MOVES,
    **NORM,
    **POOLED_REGIONS,
    **OPTIONAL,
    **QUANT,
    **RECURRENT,
    **REDUCTIONS,
    **RESIZE,
    **SAMPLING,
    **SHAPE,
    **SIGNALS,
    **TRANSPOSED,
    **WINDOWS,
}
"""How each op of ONNX's own domain becomes expressions, by its name."""

OTHER_DOMAINS = {"com.microsoft": CONTRIBUTED, "qonnx.custom_op.general": QONNX}
"""Operators of other domains: how each becomes expressions, and the names of its attributes. A function of the model
or a plugin's importer of the same name overrides these."""


def check_attributes(node: Node) -> None:
    """ModelError where ONNX's own operator has no attribute of a name: whatever it was to say would be lost."""
    import onnx

    # (An operator that another domain shares has a version that is not ONNX's.)
    opset = node.opset if node.opset in OPSETS else OPSETS[-1]
    names = _attributes(node.op, opset)
    if names is not None:
        hint = None
        if onnx.defs.onnx_opset_version() < opset:
            hint = f"the package 'onnx' that is installed knows opsets to {onnx.defs.onnx_opset_version()}: update it"
        require_attributes(node, names, hint)


def require_attributes(node: Node, names: Collection[str], hint: str | None = None) -> None:
    """ModelError where a node has an attribute that is not among ``names``, with ``hint`` or the nearest name."""
    for name in node.attributes:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            nearest = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(sorted(names)) or 'none'}"
            raise ModelError(f"it has no attribute {name!r} in this opset", hint=hint or nearest)


@cache
def _attributes(op: str, opset: int) -> frozenset[str] | None:
    """The names of the attributes of an operator of ONNX's own domain; None of one that this onnx does not know."""
    from onnx import defs

    if op in MICROSOFT:
        return MICROSOFT[op]
    for version in (opset, OPSETS[-1]):  # an operator in a model of an opset that is older than it is what it became
        try:
            return frozenset(defs.get_schema(op, version, "").attributes)
        except defs.SchemaError:
            continue
    return None
