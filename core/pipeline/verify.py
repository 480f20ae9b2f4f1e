"""Verification: every kernel of a compiled model against the numpy references of the ops that it was made from.

The model is compiled once more with memory for every intermediate value, run, and looked at kernel by kernel: the
references of a kernel's ops are given what the compiled model had as its inputs, so that a fault shows at the layer
that causes it and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..plugins import PluginHost, default_host
from ..program import plan
from ..relay.evaluate import evaluate
from ..relay.expr import Call, Constant, Expr, Function
from ..relay.module import IRModule
from ..relay.visit import post_order
from ..target import Target
from . import stages
from .driver import LoadedModel, make_artifact, resolve_target
from .fuse import is_view
from .lower import lower_tracing
from .sequence import sequence_tracing

if TYPE_CHECKING:
    import numpy as np


__all__ = ["TOLERANCE", "Difference", "compare", "verify_layers"]

TOLERANCE = 1e-5
"""How far a float may be from its reference, as a part of the largest element of the reference. Integers must be
equal."""


@dataclass(frozen=True)
class Difference:
    """How one tensor compares with its reference.

    Args:
        layers: the layers of the model that it comes from.
        kernel: the C function that computed it.
        index: of the first element that differs beyond what is allowed; None where none does.
        got, expected: that element.
        count: how many elements differ beyond what is allowed.
        size: how many there are.
        largest: the largest absolute difference of all.
    """

    layers: tuple[str, ...]
    kernel: str
    index: tuple[int, ...] | None
    got: float | None
    expected: float | None
    count: int
    size: int
    largest: float

    @property
    def ok(self) -> bool:
        return self.index is None

    def __str__(self) -> str:
        name = ", ".join(self.layers) or self.kernel
        if self.ok:
            return f"{name}: equal" if self.largest == 0 else f"{name}: within {self.largest:.3g}"
        where = f"element {list(self.index or ())} is {self.got!r}, the reference says {self.expected!r}"
        return f"{name}: {self.count} of {self.size} elements differ; {where} (kernel {self.kernel})"


def compare(got: np.ndarray, expected: np.ndarray, layers: tuple[str, ...], kernel: str) -> Difference:
    """How ``got`` differs from ``expected``: not at all for integers, by `TOLERANCE` for floats, NaN equal to NaN."""
    import numpy as np

    wide_got, wide = got.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        distance = np.abs(wide_got - wide)
    same = (wide_got == wide) | (np.isnan(wide_got) & np.isnan(wide))
    distance = np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))
    finite = np.abs(wide[np.isfinite(wide)])
    limit = TOLERANCE * float(finite.max(initial=0.0)) if expected.dtype.kind == "f" else 0.0
    wrong = np.argwhere(distance > limit)
    index = tuple(int(i) for i in wrong[0]) if len(wrong) else None
    return Difference(
        layers,
        kernel,
        index,
        None if index is None else got[index].item(),
        None if index is None else expected[index].item(),
        len(wrong),
        got.size,
        float(distance.max(initial=0.0)),
    )


def verify_layers(
    loaded: LoadedModel,
    target: str | Target,
    inputs: Mapping[str, np.ndarray],
    plugins: PluginHost | None = None,
) -> list[Difference]:
    """Compare every kernel of the compiled model with its reference, in the order in which they run.

    Args:
        loaded: the model.
        target: what it is compiled for.
        inputs: arrays by the model's own names of its inputs.
        plugins: where targets come from; by default the plugins that are installed.

    Raises:
        UsageError: the model is a dumped form without ops, so that there is nothing to compare with.
        ModelError: an input does not fit.
    """
    host = plugins or default_host()
    chosen = resolve_target(target, host)
    if not isinstance(loaded.form, IRModule) or len(loaded.form.functions) != 1:
        raise UsageError("a form that was lowered already has no ops to compare with", hint="verify the model's file")
    fused = stages.run(loaded.form, loaded.name, "fuse")
    assert isinstance(fused, IRModule)
    lowered, became = lower_tracing(fused)
    simplified = stages.simplify_all(lowered)
    program, where = sequence_tracing(simplified, loaded.name)
    memory = plan(program, reuse=False)
    session = make_artifact(program, memory, chosen, host.plugin_for(chosen.kind.name)).session()
    session.run(inputs)

    values: dict[str, np.ndarray] = {}
    tensors = {buffer.tensor or buffer.name: buffer for buffer in program.inputs + program.outputs}
    for name, array in (*session.inputs.items(), *session.outputs.items()):
        values[tensors[name].name] = array
    for buffer in program.buffers:
        if buffer.role == "intermediate":
            values[buffer.name] = session.read_arena(memory.offsets[buffer.name], buffer.shape, buffer.dtype)

    def value(expr: Expr) -> np.ndarray:
        if isinstance(expr, Constant):
            return expr.data
        return values[where[became[expr]][0]].reshape(expr.shape)

    found = []
    for expr in post_order(fused.main.body):
        if not isinstance(expr, Call) or is_view(expr):
            continue
        kernel = became[expr]
        assert isinstance(expr.op, Function) and isinstance(kernel, Call)
        given = {param.name: value(arg) for param, arg in zip(expr.op.params, expr.args, strict=True)}
        for name, expected in zip(where[kernel], evaluate(expr.op, given), strict=True):
            got = values[name].reshape(expected.shape)
            found.append(compare(got, expected, fused.spans[expr], getattr(kernel.op, "name", "")))
    return found
