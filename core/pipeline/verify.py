"""Verification: every kernel of a compiled model against the numpy references of the ops that it was made from.

The model is compiled once more with memory for every intermediate value, run, and looked at kernel by kernel: the
references of a kernel's ops are given what the compiled model had as its inputs, so that a fault shows at the layer
that causes it and nowhere else. What that does not see shows in the outputs: those of the artifact itself must be the
same (else its plan of memory is wrong), and agree with the references of the model as it was imported (else a pass
before the kernels changed its meaning).

A model that keeps something from one run to the next is looked at over several frames. In each, everything begins with
the state that the artifact had; so that the new states, which are compared as outputs are, carry the proof on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ..artifact import Artifact
from ..errors import UsageError, VerificationError
from ..program import Program, plan
from ..relay.evaluate import evaluate
from ..relay.expr import Call, Constant, Expr, Function, GlobalVar
from ..relay.module import IRModule, Signature
from ..relay.visit import post_order
from .driver import LoadedModel, make_artifact
from .fuse import is_view
from .graph import has_loops
from .members import Members
from .oracles import Oracle
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


_FRAMES = 3
"""How many runs of a model with states are looked at before it is reset, and run once more."""


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
        target: label of the accelerator, or of the host that it is pinned to; None for the first host that can run it.
        layers: the model's layers that it computes.
        difference: how they compare.
        sides: both, where they differ.
        frame: in which run, from 0.
    """

    kernel: str
    target: str | None
    layers: tuple[str, ...]
    difference: Difference
    sides: Sides | None = None
    frame: int = 0


@dataclass(frozen=True)
class Skipped:
    """A kernel of the host, or a region of an accelerator, that cannot be compared: the outputs alone tell of it.

    Args:
        target: label of the accelerator, or of the host that it is pinned to; None for the first host that can run it.
        layers: the model's layers that it computes.
        reason: why, for the user.
    """

    target: str | None
    layers: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class OutputCheck:
    """An output of the artifact, or the new value of a state, beside another's.

    Args:
        name: the model's own name for it.
        against: whose: ``inspected`` is the artifact compiled without reuse of memory, ``references`` the references
            of the model as imported, ``first run`` the artifact itself before it was reset; else another runtime.
        difference: how they compare.
        role: which of the two it is.
        frame: in which run, from 0; the last one of a model with states comes after a reset.
    """

    name: str
    against: str
    difference: Difference
    role: Literal["output", "state"] = "output"
    frame: int = 0


@dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Args:
        kernels: in the order in which they run, frame by frame.
        skipped: those that are not among them, in their order before plugins' passes over the loops.
        outputs: frame by frame in the model's order, first against ``inspected``, then against ``references``, then
            against another runtime.
        frames: how many runs there were.
    """

    kernels: tuple[KernelCheck, ...]
    skipped: tuple[Skipped, ...]
    outputs: tuple[OutputCheck, ...]
    frames: int = 1


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
    got: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    against: str,
    role: Literal["output", "state"] = "output",
    frame: int = 0,
) -> tuple[OutputCheck, ...]:
    """Each output, or state, beside its reference.

    Raises:
        VerificationError: one has another type.
    """
    checks = []
    for name, array in got.items():
        try:
            checks.append(OutputCheck(name, against, compare(array, expected[name]), role, frame))
        except VerificationError as error:
            error.where = f"{role} {name!r} against {against}"
            raise
    return tuple(checks)


def verify(
    loaded: LoadedModel,
    artifact: Artifact,
    members: Members,
    inputs: Mapping[str, np.ndarray],
    *,
    oracle: tuple[str, Callable[[], Oracle]] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Verification:
    """Compare every kernel of the compiled model with its reference, and the outputs of the artifact.

    Args:
        loaded: the model.
        artifact: what `build_loaded` made of it.
        members: what it was built for.
        inputs: arrays by the model's own names of its inputs. Of a model with states they are those of the first frame;
            the ones after it have the same elements in another order.
        oracle: name of another runtime, and what makes the model ready to run there from the beginning.
        progress: told of each part of the work that begins.

    Raises:
        UsageError: the model is a text form without ops, so that there is nothing to compare with.
        ModelError: an input does not fit.
    """
    form = loaded.form
    if isinstance(form, Program) or has_loops(form):
        raise UsageError("a form that was lowered already has no ops to compare with", hint="verify the model's file")
    tell = progress or (lambda what: None)
    peer = None if oracle is None else oracle[1]()
    tell("compile without reuse of memory")
    inspected = _Inspected(loaded, members)
    kernels: list[KernelCheck] = []
    skipped: tuple[Skipped, ...] = ()
    outputs: list[OutputCheck] = []
    with artifact.session() as session:
        states = session.save().arrays
        frames = list(_frames(inputs, _FRAMES if states else 1))
        first: dict[str, np.ndarray] = {}
        for number, frame in enumerate(frames):
            tell(f"frame {number + 1} of {len(frames)}" if states else "run, and compare with the references")
            before = session.save().arrays
            found, found_states = inspected.run(frame, before)
            got = session.run(frame)
            after = session.save().arrays
            checks, skipped = inspected.kernels(number)
            kernels += checks
            expected, expected_states = _references(form, [frame[name] for name in session.inputs], before)
            for against, theirs, their_states in (
                ("inspected", found, found_states),
                ("references", dict(zip(got, expected, strict=True)), expected_states),
            ):
                outputs += check_outputs(got, theirs, against, frame=number)
                outputs += check_outputs(after, their_states, against, "state", number)
            if oracle is not None and peer is not None:
                results = peer([frame[name] for name in session.inputs])
                outputs += check_outputs(got, dict(zip(got, results, strict=True)), oracle[0], frame=number)
            first = first or got
        if states:
            tell("reset, and run the first frame again")
            session.reset()
            outputs += check_outputs(session.save().arrays, states, "first run", "state", len(frames))
            outputs += check_outputs(session.run(frames[0]), first, "first run", frame=len(frames))
    return Verification(tuple(kernels), skipped, tuple(outputs), len(frames))


def _frames(inputs: Mapping[str, np.ndarray], count: int) -> Iterator[dict[str, np.ndarray]]:
    """As many sets of inputs, of the same elements."""
    import numpy as np

    for number in range(count):
        yield {name: np.roll(array, 7 * number) for name, array in inputs.items()}


def _references(
    form: IRModule, inputs: Sequence[np.ndarray], states: Mapping[str, np.ndarray]
) -> tuple[tuple[np.ndarray, ...], dict[str, np.ndarray]]:
    """The outputs, and the new values of the states by name, that the references of the model's ops give."""
    main = form.main
    signature = form.signature or Signature.of(main)
    given = {param.name: array for param, array in zip(signature.of_inputs(main.params), inputs, strict=True)}
    given.update({main.params[state.input].name: states[state.name] for state in signature.states})
    results = evaluate(form, given)
    return signature.of_outputs(results), {state.name: results[state.output] for state in signature.states}


class _Inspected:
    """A model compiled with memory for every value of its own."""

    def __init__(self, loaded: LoadedModel, members: Members) -> None:
        build = Build(loaded.name, members, reuse=False)
        program = build.run(loaded.form)
        assert isinstance(program, Program) and build.fused is not None
        self.program, self.fused = program, build.fused
        self.buffers_of = build.buffers_of
        self.rewriters = " and ".join(f"pass {name}" for name in build.rewriters)
        self.memory = plan(self.program, reuse=False)
        self.session = make_artifact(self.program, self.memory, members).session()
        self.values: dict[str, np.ndarray] = {}

    def run(
        self, inputs: Mapping[str, np.ndarray], states: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], Mapping[str, np.ndarray]]:
        """The outputs and the new states; notes the values of all buffers, of states the old ones.

        Args:
            inputs: by name.
            states: what they are before the run, by name.
        """
        import numpy as np

        from ..runtime.state import SessionState

        self.session.restore(SessionState(None, states))
        outputs = self.session.run(inputs)
        self.values.update(zip((buffer.name for buffer in self.program.states), states.values(), strict=True))
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
        return outputs, self.session.save().arrays

    def kernels(self, frame: int) -> tuple[tuple[KernelCheck, ...], tuple[Skipped, ...]]:
        """All results of kernels and regions in the last run, which was that of ``frame``, beside their references; and
        those that have nothing to stand beside."""
        checks: list[KernelCheck] = []
        skipped: list[Skipped] = []
        for expr in post_order(self.fused.main.body):
            if not isinstance(expr, Call) or is_view(expr):
                continue
            function = self.fused.functions[expr.op] if isinstance(expr.op, GlobalVar) else expr.op
            assert isinstance(function, Function)
            label, layers = label_of(function) or expr.pin, self.fused.spans[expr]
            results = self.buffers_of(expr)
            if results is None:
                skipped.append(Skipped(label, layers, f"{self.rewriters} put something else in its place"))
                continue
            name = expr.op.name if isinstance(expr.op, GlobalVar) else self.writer_of(results[0])
            inputs = tuple(self.value(arg) for arg in expr.args)
            given = {param.name: array for param, array in zip(function.params, inputs, strict=True)}
            for buffer, expected in zip(results, evaluate(function, given), strict=True):
                checks.append(self.check(name, label, layers, buffer, expected, inputs))
        checks += self.copies()
        return tuple(replace(check, frame=frame) for check in checks), tuple(skipped)

    def writer_of(self, buffer: str) -> str:
        """The function whose step writes ``buffer``."""
        return next(step.function for _, step in self.program.calls if buffer in step.args)

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
        if sources and self.fused.signature is not None:
            sources = self.fused.signature.of_outputs(sources)
        for output, source in zip(self.program.outputs, sources, strict=bool(sources)):
            if output.name != source:
                step = next(step for _, step in self.program.calls if output.name in step.args)
                yield self.check(step.function, None, step.layers, output.name, self.values[source], ())
