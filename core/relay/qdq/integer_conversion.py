"""From arithmetic between DequantizeLinear and QuantizeLinear to arithmetic of integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..control_bodies import map_bodies
from ..expr import Call, Constant, Expr, TupleGetItem, call
from ..module import IRModule
from ..op import Bounds, FloatScale
from ..rewriter import Rewriter
from ..transform.canonical import arrange
from ..transform.layout_propagation import permutation
from ..visit import children, post_order, users
from .average_pools import average
from .control_flow_boundaries import quantised_borders
from .fused import KERNELS, fused_kernel, kernel_of
from .powers_of_two import PowersOfTwo
from .quantised_type import QuantisedType, StaysFloat, apply, dequantised, quantised_type
from .quotients import quotient

__all__ = ["to_integers"]


def to_integers(module: IRModule) -> tuple[IRModule, tuple[str, ...]]:
    """``module`` with integer arithmetic wherever quantisation allows, in ``main`` and in what control flow runs.

    1. Ops that move elements or compare them take the integers themselves; between equal scales they are all there is.
    2. A convolution or product with bias and relu or clip before a quantisation becomes sums in int32 and one
       ``qnn.requantize`` with a `FloatScale`: what onnxruntime's fused kernels compute (see `fused_kernel`).
    3. An average pool or a mean before a quantisation becomes exact arithmetic (see `average`), and so does an integer
       sum that is divided (see `quotient`).
    4. Longer arithmetic before a quantisation becomes that of int32 where scales are powers of two that make floats
       exact (see `PowersOfTwo`).

    All else stays in float, and so does what is rounded otherwise than half to even, as these kernels do.

    Args:
        module: with ``qnn.quantize`` and ``qnn.dequantize`` as in the file.

    Returns:
        The module, arranged in the canonical dialect, and for each layer that stays in float though it lies between
        quantised values a note that says why.
    """
    notes: dict[str, None] = {}

    def on_integers(alone: IRModule, name: str) -> IRModule:
        quantisations = _Quantisations(Rewriter(arrange(alone)).rewrite(_on_integers))
        converted = quantisations.run()
        notes.update(dict.fromkeys(quantisations.notes))
        return converted

    bordered = quantised_borders(module)
    return map_bodies(on_integers(bordered, "main"), on_integers), tuple(notes)


# --- 1: ops that take integers as they are ---------------------------------------------------------------------------

_MOVES = (
    "reshape",
    "squeeze",
    "transpose",
    "layout_transform",
    "strided_slice",
    "concatenate",
    "split",
    "broadcast_to",
    "take",
    "nn.max_pool1d",
    "nn.max_pool2d",
    "nn.global_max_pool",
    "nn.resize_nearest",
)


def _on_integers(expr: Expr) -> Expr | None:
    """An op that moves or compares elements of one quantised type, done before they are dequantised."""
    source = expr.tuple if isinstance(expr, TupleGetItem) else expr
    if not isinstance(source, Call) or (source.op_name == "split" and source is expr):
        return None
    # (Indices are integers anyway.)
    data, indices = source.args, source.args[:0]
    if source.op_name == "take":
        data, indices = source.args[:1], source.args[1:]
    dequantisations = [dequantised(arg) for arg in data]
    qtypes = {None if f is None else f[1] for f in dequantisations}
    qtype = qtypes.pop() if len(qtypes) == 1 else None
    if qtype is None:
        return None
    integers = [f[0] for f in dequantisations if f is not None]
    attrs: dict[str, Any] = dict(source.attrs.items)
    result: Expr
    if source.op_name in _MOVES:
        result = call(source.op_name, *integers, *indices, **attrs)
    elif source.op_name == "nn.relu":
        result = qtype.clip(integers[0], 0.0, float("inf"))
    elif source.op_name == "nn.pad" and qtype.real(stored := qtype.quantised(attrs["pad_value"])) == attrs["pad_value"]:
        result = call("nn.pad", integers[0], **{**attrs, "pad_value": stored})
    else:
        return None
    if isinstance(expr, TupleGetItem):
        result = TupleGetItem(result, expr.index)
    return call("qnn.dequantize", result, scale=qtype.scale, zero_point=qtype.zero_point)


# --- 2 to 4: what ends in a quantisation ----------------------------------------------------------------------------


class _Quantisations:
    """Replaces the quantisations of ``main``, from the inputs on."""

    def __init__(self, module: IRModule) -> None:
        self.notes: list[str] = []
        self._rewriter = Rewriter(module)
        self._record = self._rewriter.record_rewrite
        self._order = post_order(module.main.body)
        self._users = users(self._order)
        self._done: dict[Expr, Expr] = {}
        self._ranges: dict[Expr, Bounds] = {}
        self._by_powers = PowersOfTwo(self._done.__getitem__, self._record, self._ranges)
        self._from_quantised: set[Expr] = set()
        self._noted: set[Expr] = set()
        self._reported: set[str] = set()

    def run(self) -> IRModule:
        """The module on integers. Fills ``notes``."""
        self._rewriter.rebuild(self._order, self._quantised, self._done)
        result = self._done[self._order[-1]]
        self._note_kernels(result)
        return self._rewriter.with_main(result)

    def _quantised(self, expr: Expr, rebuilt: Expr) -> Expr | None:
        """What ``expr``, a quantisation, becomes; None for anything else, and for what stays in float."""
        if _is_dequantised(expr) or not self._from_quantised.isdisjoint(children(expr)):
            self._from_quantised.add(expr)
        if not isinstance(expr, Call) or expr.op_name != "qnn.quantize":
            return None
        core, tail = _without_tail(expr.args[0])
        qtype = quantised_type(expr)
        try:
            if qtype is None:
                raise StaysFloat("its result has a scale per channel")
            if expr.attrs.rounding != "even":
                raise StaysFloat("its result is rounded half away from zero")
            result = self._core(core, qtype, tail)
        except StaysFloat as reason:
            self._note_island(expr, reason.reason)
            return None
        for op in reversed(tail):
            result = _after(op, result, qtype)
            self._record(op, result)
        self._record(expr, result)
        return result

    def _core(self, core: Expr, qtype: QuantisedType, between: Sequence[Expr]) -> Expr:
        """``core`` of type ``qtype``; StaysFloat where it needs floats.

        ``between`` lies between it and the quantisation.
        """
        dequantisation = dequantised(core)
        if dequantisation is not None and dequantisation[1] == qtype:
            return self._done[dequantisation[0]]
        if dequantisation is not None and dequantisation[1].scale == qtype.scale and dequantisation[1].dtype != "int32":
            rezeroed = self._rezeroed(dequantisation[0], dequantisation[1], qtype)
            self._record(core, rezeroed)
            return rezeroed
        averaged = average(core, qtype, self._done.__getitem__, self._ranges)
        if averaged is not None:
            self._record(core, averaged)
            return averaged
        divided = quotient(core, qtype, self._done.__getitem__, self._ranges)
        if divided is not None:
            self._record(core, divided)
            return divided
        try:
            return self._by_powers.quantised(core, qtype)
        except StaysFloat:
            parts = kernel_of(core)
            if parts is None:
                raise
        if any(len(self._users[value]) > 1 for value in (parts[0], core, *between)):
            raise StaysFloat("its result is used as a float too")
        pairs = fused_kernel(core, *parts, qtype, self._done.__getitem__, self._ranges)
        for old, new in pairs:
            self._record(old, new)
        return pairs[-1][1]

    def _rezeroed(self, data: Expr, qtype: QuantisedType, output: QuantisedType) -> Expr:
        """Integers of 8 or 16 bits with another zero point or type: floats between equal scales round to them again."""
        zero_points = {"input_zero_point": qtype.zero_point, "output_zero_point": output.zero_point}
        return apply("qnn.requantize", self._done[data], scale=FloatScale((1.0,)), **zero_points, dtype=output.dtype)

    # --- notes -------------------------------------------------------------------------------------------------------

    def _note_island(self, quantise: Call, reason: str) -> None:
        """Note that what computes ``quantise`` stays in float, where it computes anything from quantised values."""
        layers: list[str] = []
        stack: list[Expr] = [quantise.args[0]] if quantise.args[0] in self._from_quantised else []
        while stack:
            expr = stack.pop()
            if expr in self._noted or (isinstance(expr, Call) and expr.op_name == "qnn.dequantize"):
                continue
            self._noted.add(expr)
            layers += self._rewriter.spans[expr]
            stack += children(expr)
        self._note(dict.fromkeys(reversed(layers)), reason)

    def _note_kernels(self, body: Expr) -> None:
        """Note the convolutions and products of quantised values whose results are not quantised."""
        for expr in post_order(body):
            if isinstance(expr, Call) and expr.op_name in KERNELS and dequantised(expr.args[0]) is not None:
                self._note(dict.fromkeys(self._rewriter.spans[expr]), "its result is not quantised")

    def _note(self, layers: dict[str, None], reason: str) -> None:
        new = [layer for layer in layers if layer not in self._reported]
        self._reported.update(new)
        if new:
            self.notes.append(f"{', '.join(new)} stay{'s' if len(new) == 1 else ''} in float: {reason}")


def _is_dequantised(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.op_name == "qnn.dequantize" and not isinstance(expr.args[0], Constant)


def _without_tail(data: Expr) -> tuple[Expr, list[Call]]:
    """``data`` without the ops that may as well follow its quantisation, and these, last first."""
    tail = []
    while isinstance(data, Call) and (
        data.op_name in ("nn.relu", "clip", "reshape", "squeeze") or permutation(data) is not None
    ):
        tail.append(data)
        data = data.args[0]
    return data, tail


def _after(op: Call, data: Expr, qtype: QuantisedType) -> Expr:
    """An op of `_without_tail` on integers of type ``qtype``."""
    if op.op_name == "nn.relu":
        return qtype.clip(data, 0.0, float("inf"))
    if op.op_name == "clip":
        return qtype.clip(data, op.attrs.a_min, op.attrs.a_max)
    return apply(op.op_name or "", data, **dict(op.attrs.items))
