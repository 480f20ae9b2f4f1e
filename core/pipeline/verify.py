"""Verification: every kernel of a compiled model against the numpy references of the ops that it was made from.

The model is compiled once more with memory for every intermediate value, run, and looked at kernel by kernel: the
references of a kernel's ops are given what the compiled model had as its inputs, so that a fault shows at the layer
that causes it and nowhere else. What that does not see shows in the outputs: those of the artifact itself must be the
same (else its plan of memory is wrong), and agree with the references of the model as it was imported (else a pass
before the kernels changed its meaning).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..artifact import Artifact
from ..errors import UsageError, VerificationError
from ..plugins import PluginHost, default_host
from ..program import plan
from ..relay.evaluate import evaluate
from ..relay.expr import Call, Constant, Expr, Function, GlobalVar
from ..relay.module import IRModule
from ..relay.visit import post_order
from ..target import Target
from . import stages
from .driver import LoadedModel, make_artifact
from .fuse import is_view
from .lower import lower_tracing
from .sequence import sequence_tracing

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "TOLERANCE",
    "Difference",
    "KernelCheck",
    "OutputCheck",
    "Verification",
    "check_outputs",
    "compare",
    "verify",
]

TOLERANCE = 1e-5
"""How far a float may be from its reference, as a part of the largest element of the reference. Integers must be
equal."""


@dataclass(frozen=True)
class Difference:
    """How an array compares with its reference.

    Args:
        index: of the first element that differs beyond what is allowed; None where none does.
        got, expected: that element.
        count: how many elements differ beyond what is allowed.
        size: how many there are.
        largest: the largest absolute difference of all; infinite where one of two is not finite.
    """

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
        if self.index is None:
            return "equal" if self.largest == 0 else f"within {self.largest:.3g}"
        place = f"the first at {list(self.index)}: {self.got!r} instead of {self.expected!r}"
        return f"{self.count} of {self.size} elements differ, {place}; at most by {self.largest:.3g}"


@dataclass(frozen=True)
class KernelCheck:
    """A result of one kernel beside its reference.

    Args:
        kernel: the kernel's name.
        layers: the model's layers that it computes.
        difference: how they compare.
    """

    kernel: str
    layers: tuple[str, ...]
    difference: Difference


@dataclass(frozen=True)
class OutputCheck:
    """An output of the artifact beside another's.

    Args:
        name: the model's own name of the output.
        against: whose: ``inspected`` is the artifact compiled without reuse of memory, ``references`` the references
            of the model as imported; else another runtime.
        difference: how they compare.
    """

    name: str
    against: str
    difference: Difference


@dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Args:
        kernels: in the order in which they run.
        outputs: in the model's order, first against ``inspected``, then against ``references``.
    """

    kernels: tuple[KernelCheck, ...]
    outputs: tuple[OutputCheck, ...]


def compare(got: np.ndarray, expected: np.ndarray) -> Difference:
    """How ``got`` differs from ``expected``: not at all for integers, by `TOLERANCE` for floats, NaN equal to NaN.

    Raises:
        VerificationError: they are of different types, or have not as many elements.
    """
    import numpy as np

    if got.dtype != expected.dtype or got.size != expected.size:
        types = " instead of ".join(f"{a.dtype}{list(a.shape)}" for a in (got, expected))
        raise VerificationError(f"the result is {types}")
    expected = expected.reshape(got.shape)
    wide_got, wide = got.astype(np.float64), expected.astype(np.float64)
    same = (got == expected) | (np.isnan(wide_got) & np.isnan(wide))
    with np.errstate(invalid="ignore"):
        distance = np.abs(wide_got - wide)
    distance = np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))
    limit = TOLERANCE * np.abs(wide[np.isfinite(wide)]).max(initial=0.0) if expected.dtype.kind == "f" else 0.0
    # Two wide integers may differ although no float64 does.
    wrong = np.argwhere(~same & ((distance > limit) | (expected.dtype.kind != "f")))
    index = tuple(int(i) for i in wrong[0]) if len(wrong) else None
    return Difference(
        index,
        None if index is None else got[index].item(),
        None if index is None else expected[index].item(),
        len(wrong),
        got.size,
        float(distance.max(initial=0.0)),
    )


def check_outputs(
    got: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], against: str
) -> tuple[OutputCheck, ...]:
    """Each output beside its reference.

    Raises:
        VerificationError: one has another type.
    """
    checks = []
    for name, array in got.items():
        try:
            checks.append(OutputCheck(name, against, compare(array, expected[name])))
        except VerificationError as error:
            error.where = f"output {name!r} against {against}"
            raise
    return tuple(checks)


def verify(
    loaded: LoadedModel,
    artifact: Artifact,
    target: Target,
    inputs: Mapping[str, np.ndarray],
    *,
    progress: Callable[[str], None] | None = None,
    plugins: PluginHost | None = None,
) -> Verification:
    """Compare every kernel of the compiled model with its reference, and the outputs of the artifact.

    Args:
        loaded: the model.
        artifact: what `build_loaded` made of it.
        target: what it was built for.
        inputs: arrays by the model's own names of its inputs.
        progress: told of each part of the work that begins.
        plugins: where the target comes from; by default the plugins that are installed.

    Raises:
        UsageError: the model is a text form without ops, so that there is nothing to compare with.
        ModelError: an input does not fit.
    """
    if not isinstance(loaded.form, IRModule) or len(loaded.form.functions) != 1:
        raise UsageError("a form that was lowered already has no ops to compare with", hint="verify the model's file")
    tell = progress or (lambda what: None)
    tell("compile without reuse of memory")
    inspected = _Inspected(loaded, target, plugins or default_host())
    tell("run")
    found = inspected.run(inputs)
    got = artifact.run(inputs)
    tell("compare kernels with their references")
    kernels = inspected.kernels()
    tell("compare outputs with the references of the whole model")
    params = (param.name for param in loaded.form.main.params)
    ordered = [inputs[name] for name in inspected.session.inputs]
    results = evaluate(loaded.form, dict(zip(params, ordered, strict=True)))
    references = dict(zip(got, results, strict=True))
    outputs = (*check_outputs(got, found, "inspected"), *check_outputs(got, references, "references"))
    return Verification(kernels, outputs)


class _Inspected:
    """A model compiled with memory for every value of its own."""

    def __init__(self, loaded: LoadedModel, target: Target, plugins: PluginHost) -> None:
        fused = stages.run(loaded.form, loaded.name, "fuse")
        assert isinstance(fused, IRModule)
        self.fused = fused
        lowered, self.became = lower_tracing(fused)
        self.program, self.where = sequence_tracing(stages.simplify_all(lowered), loaded.name)
        self.memory = plan(self.program, reuse=False)
        self.session = make_artifact(self.program, self.memory, target, plugins).session()
        self.values: dict[str, np.ndarray] = {}

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs; notes the values of all buffers."""
        import numpy as np

        outputs = self.session.run(inputs)
        for buffers, arrays in (
            (self.program.inputs, self.session.inputs),
            (self.program.outputs, self.session.outputs),
        ):
            self.values.update({b.name: array for b, array in zip(buffers, arrays.values(), strict=True)})
        for buffer in self.program.role("constant"):
            self.values[buffer.name] = np.frombuffer(buffer.data or b"", buffer.dtype).reshape(buffer.shape)
        for buffer in self.program.role("intermediate"):
            offset = self.memory.offsets[buffer.name]
            self.values[buffer.name] = self.session.read_arena(offset, buffer.shape, buffer.dtype)
        return outputs

    def kernels(self) -> tuple[KernelCheck, ...]:
        """All results of kernels beside their references."""
        checks = []
        for expr in post_order(self.fused.main.body):
            if not isinstance(expr, Call) or is_view(expr):
                continue
            kernel = self.became[expr]
            assert isinstance(expr.op, Function) and isinstance(kernel, Call) and isinstance(kernel.op, GlobalVar)
            given = {param.name: self.value(arg) for param, arg in zip(expr.op.params, expr.args, strict=True)}
            for name, expected in zip(self.where[kernel], evaluate(expr.op, given), strict=True):
                checks.append(self.check(kernel.op.name, self.fused.spans[expr], name, expected))
        return (*checks, *self.copies())

    def value(self, expr: Expr) -> np.ndarray:
        """What the compiled model had as the value of ``expr``."""
        if isinstance(expr, Constant):
            return expr.data
        return self.values[self.where[self.became[expr]][0]].reshape(expr.shape)

    def check(self, kernel: str, layers: tuple[str, ...], buffer: str, expected: np.ndarray) -> KernelCheck:
        return KernelCheck(kernel, layers, compare(self.values[buffer], expected))

    def copies(self) -> Iterator[KernelCheck]:
        """The outputs for which no op stands: copies of what is an input, a constant or another output."""
        sources = self.where[self.became[self.fused.main.body]]
        for output, source in zip(self.program.outputs, sources, strict=True):
            if output.name != source:
                step = next(step for step in self.program.steps if output.name in step.args)
                yield self.check(step.function, step.layers, output.name, self.values[source])
