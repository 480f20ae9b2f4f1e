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
from ..program import Program, plan
from ..relay.evaluate import evaluate
from ..relay.expr import Call, Constant, Expr, Function, GlobalVar
from ..relay.visit import post_order
from .driver import LoadedModel, make_artifact
from .fuse import is_view
from .graph import has_loops
from .members import Members
from .regions import label_of
from .stages import Build

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "TOLERANCE",
    "Difference",
    "KernelCheck",
    "OutputCheck",
    "Sides",
    "Skipped",
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


@dataclass(frozen=True, eq=False)
class Sides:
    """What a kernel or a region was given, what it gave, and what it should have given.

    Args:
        inputs: in the order of its parameters.
        got, expected: one result of it.
    """

    inputs: tuple[np.ndarray, ...]
    got: np.ndarray
    expected: np.ndarray


@dataclass(frozen=True)
class KernelCheck:
    """A result of one kernel of the host, or of one region of an accelerator, beside its reference.

    Args:
        kernel: the name of the kernel, or of the region.
        target: label of the accelerator; None for the host.
        layers: the model's layers that it computes.
        difference: how they compare.
        sides: both, where they differ.
    """

    kernel: str
    target: str | None
    layers: tuple[str, ...]
    difference: Difference
    sides: Sides | None = None


@dataclass(frozen=True)
class Skipped:
    """A kernel of the host, or a region of an accelerator, that cannot be compared: the outputs alone tell of it.

    Args:
        target: label of the accelerator; None for the host.
        layers: the model's layers that it computes.
        reason: why, for the user.
    """

    target: str | None
    layers: tuple[str, ...]
    reason: str


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
        skipped: those that are not among them, in their order before plugins' passes over the loops.
        outputs: in the model's order, first against ``inspected``, then against ``references``.
    """

    kernels: tuple[KernelCheck, ...]
    skipped: tuple[Skipped, ...]
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
    members: Members,
    inputs: Mapping[str, np.ndarray],
    *,
    progress: Callable[[str], None] | None = None,
) -> Verification:
    """Compare every kernel of the compiled model with its reference, and the outputs of the artifact.

    Args:
        loaded: the model.
        artifact: what `build_loaded` made of it.
        members: what it was built for.
        inputs: arrays by the model's own names of its inputs.
        progress: told of each part of the work that begins.

    Raises:
        UsageError: the model is a text form without ops, so that there is nothing to compare with.
        ModelError: an input does not fit.
    """
    form = loaded.form
    if isinstance(form, Program) or has_loops(form):
        raise UsageError("a form that was lowered already has no ops to compare with", hint="verify the model's file")
    tell = progress or (lambda what: None)
    tell("compile without reuse of memory")
    inspected = _Inspected(loaded, members)
    tell("run")
    found = inspected.run(inputs)
    got = artifact.run(inputs)
    tell("compare kernels with their references")
    kernels, skipped = inspected.kernels()
    tell("compare outputs with the references of the whole model")
    params = (param.name for param in form.main.params)
    ordered = [inputs[name] for name in inspected.session.inputs]
    results = evaluate(form, dict(zip(params, ordered, strict=True)))
    references = dict(zip(got, results, strict=True))
    outputs = (*check_outputs(got, found, "inspected"), *check_outputs(got, references, "references"))
    return Verification(kernels, skipped, outputs)


class _Inspected:
    """A model compiled with memory for every value of its own."""

    def __init__(self, loaded: LoadedModel, members: Members) -> None:
        build = Build(loaded.name, members)
        program = build.run(loaded.form)
        assert isinstance(program, Program) and build.fused is not None
        self.program, self.fused = program, build.fused
        self.buffers_of = build.buffers_of
        self.rewriters = " and ".join(f"pass {name}" for name in build.rewriters)
        self.memory = plan(self.program, reuse=False)
        self.session = make_artifact(self.program, self.memory, members).session()
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

    def kernels(self) -> tuple[tuple[KernelCheck, ...], tuple[Skipped, ...]]:
        """All results of kernels and regions beside their references, and those that have nothing to stand beside."""
        checks: list[KernelCheck] = []
        skipped: list[Skipped] = []
        for expr in post_order(self.fused.main.body):
            if not isinstance(expr, Call) or is_view(expr):
                continue
            function = self.fused.functions[expr.op] if isinstance(expr.op, GlobalVar) else expr.op
            assert isinstance(function, Function)
            label, layers = label_of(function), self.fused.spans[expr]
            results = self.buffers_of(expr)
            if results is None:
                skipped.append(Skipped(label, layers, f"{self.rewriters} put something else in its place"))
                continue
            name = expr.op.name if isinstance(expr.op, GlobalVar) else self.writer_of(results[0])
            inputs = tuple(self.value(arg) for arg in expr.args)
            given = {param.name: array for param, array in zip(function.params, inputs, strict=True)}
            for buffer, expected in zip(results, evaluate(function, given), strict=True):
                checks.append(self.check(name, label, layers, buffer, expected, inputs))
        return (*checks, *self.copies()), tuple(skipped)

    def writer_of(self, buffer: str) -> str:
        """The function whose step writes ``buffer``."""
        return next(step.function for step in self.program.steps if buffer in step.args)

    def value(self, expr: Expr) -> np.ndarray:
        """What the compiled model had as the value of ``expr``, which is known."""
        if isinstance(expr, Constant):
            return expr.data
        buffers = self.buffers_of(expr)
        assert buffers is not None
        return self.values[buffers[0]].reshape(expr.shape)

    def check(
        self,
        kernel: str,
        label: str | None,
        layers: tuple[str, ...],
        buffer: str,
        expected: np.ndarray,
        inputs: tuple[np.ndarray, ...],
    ) -> KernelCheck:
        got = self.values[buffer]
        got = got.reshape(expected.shape) if got.size == expected.size else got
        difference = compare(got, expected)
        sides = None if difference.ok else Sides(inputs, got, expected)
        return KernelCheck(kernel, label, layers, difference, sides)

    def copies(self) -> Iterator[KernelCheck]:
        """The outputs for which no op stands: copies of what is an input, a constant or another output."""
        sources = self.buffers_of(self.fused.main.body) or ()
        for output, source in zip(self.program.outputs, sources, strict=bool(sources)):
            if output.name != source:
                step = next(step for step in self.program.steps if output.name in step.args)
                yield self.check(step.function, None, step.layers, output.name, self.values[source], ())
