"""What verification finds, in records; and the comparison of two arrays that all of it rests on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from ..errors import VerificationError
from ..relay.transform.float_requantisation import FormCheck
from ..support.formatting import format_percent
from ..support.html import Child, element, html_of, table
from ..targets.values import shorten

if TYPE_CHECKING:
    import numpy as np

    from .exact_outputs import ExactCheck
    from .numerics_drift import DifferenceCheck, Drift

__all__ = [
    "Accuracy",
    "Bound",
    "Difference",
    "KernelCheck",
    "KernelChecks",
    "OutputCheck",
    "OutputChecks",
    "Overrun",
    "PartSkipped",
    "Sides",
    "Skipped",
    "StepStop",
    "Verification",
    "compare",
]


@dataclass(frozen=True)
class Bound:
    """How far floats may be from their reference; integers must be equal.

    Args:
        relative: relative to the largest absolute value of the reference over all samples (`rounding_error`).
        noise: gives what the result may be off by in addition, absolutely. It is called only where the first part is
            exceeded, because it evaluates the references several times.
    """

    relative: float = 0.0
    noise: Callable[[], float] | None = None


@dataclass(frozen=True, eq=False)
class _Suspects:
    """The elements of a float result that are beyond the tolerance for the range that was known so far.

    Args:
        relative, noise: of the `Bound`.
        indices: int [elements, rank].
        got, expected: their values.
        distances: float64, absolute; infinite where one of two is not finite.
    """

    relative: float
    noise: float
    indices: np.ndarray
    got: np.ndarray
    expected: np.ndarray
    distances: np.ndarray


@dataclass(frozen=True)
class Difference:
    """How an array compares with its reference.

    Args:
        index: of the first element that differs beyond what is allowed; None where none does.
        got, expected: that element.
        count: how many elements differ beyond what is allowed.
        size: how many there are.
        largest: the largest absolute difference of all; infinite where one of two is not finite.
        tolerance: how large an absolute difference is allowed; 0 for integers.
        scale: the largest absolute value of the reference, over all samples that are known; 0 for integers.
    """

    index: tuple[int, ...] | None
    got: float | None
    expected: float | None
    count: int
    size: int
    largest: float
    tolerance: float = 0.0
    scale: float = 0.0
    suspects: _Suspects | None = field(default=None, compare=False, repr=False)

    json_fields: ClassVar = (
        "ok",
        "differing=count",
        "size",
        "largest",
        "first=index",
        "got",
        "expected",
        "tolerance",
        "range=scale",
    )

    @property
    def ok(self) -> bool:
        return self.index is None

    @property
    def margin(self) -> float:
        """How far the largest difference is beyond what `Bound.noise` allows."""
        return self.largest - (0.0 if self.suspects is None else self.suspects.noise)

    def judged(self, scale: float) -> Difference:
        """Return the difference with the tolerance that follows from the range over all samples.

        Args:
            scale: the largest absolute value of the reference over all samples.
        """
        if scale <= self.scale or self.suspects is None:
            return self
        suspects = self.suspects
        tolerance = suspects.relative * scale + suspects.noise
        wrong = (suspects.distances > tolerance).nonzero()[0]
        values: tuple[tuple[int, ...] | None, float | None, float | None] = None, None, None
        if len(wrong):
            first = int(wrong[0])
            index = tuple(int(position) for position in suspects.indices[first])
            values = index, suspects.got[first].item(), suspects.expected[first].item()
        return Difference(*values, len(wrong), self.size, self.largest, tolerance, scale, suspects)

    def __str__(self) -> str:
        if self.index is None:
            return "equal" if self.largest == 0 else f"within {self.largest:.3g}, where {self.tolerance:.3g} is allowed"
        place = f"the first at {list(self.index)}: {self.got!r} instead of {self.expected!r}"
        allowed = f", where {self.tolerance:.3g} is allowed" if self.tolerance else ""
        return f"{self.count} of {self.size} elements differ, {place}; at most by {self.largest:.3g}{allowed}"


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
    """A result of one kernel of the host, or of one region of an accelerator, beside its reference: over all samples,
    the first that differs, else the one that is farthest off.

    Args:
        kernel: the name of the kernel, or of the region.
        target: label of the accelerator, or of the host that it is pinned to; None for the first host that can run it.
        layers: the model's layers that it computes.
        difference: how they compare.
        sides: both, where they differ.
        sample: what was fed.
        compared: how often it was compared.
        differing: how often it differed.
    """

    kernel: str
    target: str | None
    layers: tuple[str, ...]
    difference: Difference
    sides: Sides | None = None
    sample: str = ""
    compared: int = 1
    differing: int = 0

    json_fields: ClassVar = (
        "kernel",
        "target",
        "layers",
        "compared",
        "differing_samples=differing",
        "sample",
        "*difference",
    )


class _Comparisons:
    """All comparisons of one result of a kernel, or those of one kind."""

    def __init__(self) -> None:
        self.scale = 0.0
        self.count = 0
        self.best: KernelCheck | None = None
        self.failing: list[KernelCheck] = []

    def add(self, check: KernelCheck) -> None:
        difference = check.difference
        self.count += 1
        self.scale = max(self.scale, difference.scale)
        if difference.ok:
            self._take(check)
            return
        # The arrays of the first and of the worst are shown perhaps; those of others only use memory.
        self.failing.append(check)
        worst = max(self.failing, key=lambda one: one.difference.margin)
        self.failing = [
            one if one is worst or at == 0 else replace(one, sides=None) for at, one in enumerate(self.failing)
        ]

    def _take(self, check: KernelCheck) -> None:
        if self.best is None or check.difference.largest > self.best.difference.largest:
            self.best = check

    def judge(self) -> list[KernelCheck]:
        """What differs now that the range of the result is known. What does not any more may become `best`."""
        still = []
        for check in self.failing:
            judged = replace(check, difference=check.difference.judged(self.scale))
            if judged.difference.ok:
                self._take(replace(judged, sides=None))
            else:
                still.append(judged)
        return still


class KernelChecks:
    """Gathers the checks of each result of each kernel. What differs shows when all samples were fed, because the range
    of a result over all of them decides how far floats may be off."""

    def __init__(self) -> None:
        self._results: dict[str, dict[bool, _Comparisons]] = {}

    def add(
        self,
        key: str,
        got: np.ndarray,
        expected: np.ndarray,
        bound: Bound,
        check: Callable[[Difference], KernelCheck],
        *,
        driven: bool = False,
    ) -> None:
        """Compare a result once more.

        Args:
            key: names the result.
            got, expected: as for `compare`.
            bound: how far floats may be off.
            check: makes the record of a difference.
            driven: whether the kernel was run on operands at the ends of their ranges, which have a range of their own.

        Raises:
            VerificationError: as for `compare`.
        """
        comparisons = self._results.setdefault(key, {}).setdefault(driven, _Comparisons())
        comparisons.add(check(compare(got, expected, bound, comparisons.scale)))

    @property
    def all(self) -> tuple[KernelCheck, ...]:
        """For each result, in the order in which they came first, the first check that differs, else the one that is
        farthest off."""
        checks = []
        for kinds in self._results.values():
            each = [(comparisons, comparisons.judge()) for comparisons in kinds.values()]
            differing = [check for _, failing in each for check in failing]
            fine = [comparisons.best for comparisons, _ in each if comparisons.best is not None]
            shown = next((check for check in differing if check.sides is not None), None)
            if shown is None:
                shown = max(fine, key=lambda check: check.difference.largest)
            count = sum(comparisons.count for comparisons, _ in each)
            checks.append(replace(shown, compared=count, differing=len(differing)))
        return tuple(checks)


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
class Overrun:
    """Bytes of nobody's that a step wrote: loops, a driver, a library or a simulator went beyond what they were given.

    Args:
        step: its position among the steps; -1 where only the run is known.
        kernel: the function, or ``wait_`` and the queue.
        layers: the model's layers that it computes; of a device with launches under way, theirs too.
        target: label of the accelerator, or of the host.
        what: how many, and where.
        sample: what was fed.
    """

    step: int
    kernel: str
    layers: tuple[str, ...]
    target: str | None
    what: str
    sample: str

    json_fields: ClassVar = ("step", "kernel", "layers", "target", "sample", "what")


@dataclass(frozen=True)
class StepStop:
    """A step that crashed the process that it ran in, or was stopped because it hung.

    Args:
        step: its position among the steps; None where none was under way.
        kernel, layers, target: as of `Overrun`.
        reason: how it ended, as a predicate; with what was printed.
        sample: what was fed.
    """

    step: int | None
    kernel: str
    layers: tuple[str, ...]
    target: str | None
    reason: str
    sample: str

    json_fields: ClassVar = ("step", "kernel", "layers", "target", "sample", "reason")


@dataclass(frozen=True)
class PartSkipped:
    """A match of a merged region that is not lowered as a region of its own: the region as a whole tells of it.

    Args:
        region: the name of the region.
        target: label of the accelerator.
        layers: the model's layers that the match computes.
        reason: why, for the user.
    """

    region: str
    target: str | None
    layers: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class OutputCheck:
    """An output of the artifact, or the new value of a state, beside another's.

    Args:
        name: the model's own name for it.
        against: whose: ``inspected`` is the artifact compiled without reuse of memory, ``references`` the references
            of the model as imported, ``first run`` the artifact itself in its first run; else another runtime. Where
            something is rounded otherwise by consent, the artifact is compared with ``consented``, the references of
            the model with that in it; ``canonical`` compares the references of the model before it was placed with
            those as imported; and those as imported are what is compared with another runtime.
        difference: how they compare.
        role: which of the two it is.
        frame: in which run, from 0; the last one is fed what the first was, in a model with states after a reset.
        exact: whose value is exact where another runtime differs; None where that is not known.
    """

    name: str
    against: str
    difference: Difference
    role: Literal["output", "state"] = "output"
    frame: int = 0
    exact: ExactCheck | None = None

    json_fields: ClassVar = ("name", "role", "frame", "against", "*difference", "exact")

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong here: both are equal, or the other runtime is off."""
        return self.difference.ok or (self.exact is not None and not self.exact.ours_off)


@dataclass(frozen=True)
class Accuracy:
    """How often an output of the artifact has its largest element where the label says.

    Args:
        output: the model's own name for it.
        correct, total: rows that agree with their labels, and all that have one.
    """

    output: str
    correct: int
    total: int

    def __str__(self) -> str:
        return f"{self.correct} of {self.total} labels, {format_percent(self.correct / self.total, digits=2)}"


@dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Args:
        kernels: in the order in which they run.
        skipped: those that are not among them, in their order before plugins' passes over the loops.
        outputs: run by run in the model's order, first against ``inspected``, then against ``references``, then
            against another runtime; at the end against ``first run``.
        samples: what was fed, run by run.
        streaming: whether the model keeps something from one run to the next, so that the samples are frames.
        accuracy: of each output that there are labels for.
        overruns: what was written beside buffers, the first time of each place.
        stops: the steps that crashed or hung. They are not run again; what they should have given stands for what they
            gave, so that the others are compared. The artifact itself is not run, or not any more.
        parts: the results of the matches of merged regions, each lowered as a region of its own; their kernel is the
            region.
        parts_skipped: the matches that are not among them.
        forms: each requantisation and quantised sum of the hosts', with the proof of what it is computed in.
        allowed: the measured differences of matches and passes that may differ from the model's arithmetic.
        drifts: the outputs and states of a model with such matches or passes, beside what the model says.
    """

    kernels: tuple[KernelCheck, ...]
    skipped: tuple[Skipped, ...]
    outputs: tuple[OutputCheck, ...]
    samples: tuple[str, ...] = ("",)
    streaming: bool = False
    accuracy: tuple[Accuracy, ...] = ()
    overruns: tuple[Overrun, ...] = ()
    stops: tuple[StepStop, ...] = ()
    parts: tuple[KernelCheck, ...] = ()
    parts_skipped: tuple[PartSkipped, ...] = ()
    forms: tuple[FormCheck, ...] = ()
    allowed: tuple[DifferenceCheck, ...] = ()
    drifts: tuple[Drift, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all agrees."""
        equal = all(check.difference.ok for check in (*self.kernels, *self.parts))
        right = equal and all(check.ok for check in self.outputs)
        unproven = any(form.wrong for form in self.forms)
        right = right and all(check.ok for check in self.allowed)
        return right and not self.overruns and not self.stops and not unproven

    @property
    def frames(self) -> int:
        """How many runs there were, before the first was repeated."""
        return len(self.samples)

    def __repr__(self) -> str:
        verdict = "ok" if self.ok else "differs"
        return f"<Verification: {verdict}, {len(self.kernels)} results of kernels over {self.frames} samples>"

    def _repr_html_(self) -> str:
        """A row for each result of a kernel, for each output, and for each step that stopped or wrote out of bounds."""
        checks = [
            ("kernel", ", ".join(one.layers) or one.kernel, one.target or "", "its reference", one.difference)
            for one in (*self.kernels, *self.parts)
        ]
        checks += [(one.role, one.name, "", one.against, one.difference) for one in self.outputs if not one.ok]
        rows: list[Sequence[Child]] = [
            (kind, element("bdi", None, shorten(name, 60)), target, against, str(difference))
            for kind, name, target, against, difference in checks
        ]
        rows += [("overrun", one.kernel, one.target or "", "", one.what) for one in self.overruns]
        rows += [("stop", one.kernel, one.target or "", "", one.reason) for one in self.stops]
        verdict = "all agree" if self.ok else "there are differences"
        caption = f"Verification over {self.frames} samples: {verdict}"
        return html_of(table(caption, ("", "name", "on", "compared with", "result"), rows))


def compare(got: np.ndarray, expected: np.ndarray, bound: Bound | None = None, scale: float = 0.0) -> Difference:
    """Return how ``got`` differs from ``expected``: NaN equals NaN, and infinities themselves.

    Args:
        got, expected: two arrays of one type.
        bound: how far floats may be off; not at all by default. Integers must be equal.
        scale: the largest absolute value of the reference in other samples.

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
    largest = float(distance.max(initial=0.0))
    if expected.dtype.kind != "f":
        # Two wide integers may differ although no float64 does.
        wrong = np.argwhere(~same)
        values = _first(wrong, got, expected)
        return Difference(*values, len(wrong), got.size, largest)
    bound = bound or Bound()
    scale = max(scale, float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0)))
    noise = 0.0
    if bound.noise is not None and largest > bound.relative * scale:
        noise = bound.noise()
    tolerance = bound.relative * scale + noise
    wrong = np.argwhere(~same & (distance > tolerance))
    suspects = None
    if len(wrong):
        at = tuple(wrong.T)
        suspects = _Suspects(bound.relative, noise, wrong, got[at], expected[at], distance[at])
    values = _first(wrong, got, expected)
    return Difference(*values, len(wrong), got.size, largest, tolerance, scale, suspects)


def _first(
    wrong: np.ndarray, got: np.ndarray, expected: np.ndarray
) -> tuple[tuple[int, ...] | None, float | None, float | None]:
    """The index of the first element that is wrong, and both values; None where none is."""
    if not len(wrong):
        return None, None, None
    index = tuple(int(position) for position in wrong[0])
    return index, got[index].item(), expected[index].item()


class OutputChecks:
    """Gathers the checks of outputs and states, run by run. As of `KernelChecks`, all samples decide what differs."""

    def __init__(self) -> None:
        self._checks: list[OutputCheck] = []
        self._scales: dict[tuple[str, str, str], float] = {}

    def add(
        self,
        got: Mapping[str, np.ndarray],
        expected: Mapping[str, np.ndarray],
        against: str,
        bounds: Mapping[str, Bound],
        role: Literal["output", "state"] = "output",
        frame: int = 0,
        exact: Callable[[str, float], ExactCheck | None] | None = None,
    ) -> None:
        """Compare each output, or state, with its reference.

        Args:
            got, expected: by name.
            against, role, frame: as of `OutputCheck`.
            bounds: how far floats may be off, by name.
            exact: says whose value is exact in an output that differs, from its name and the tolerance.

        Raises:
            VerificationError: one has another type.
        """
        for name, array in got.items():
            key = role, name, against
            try:
                difference = compare(array, expected[name], bounds.get(name), self._scales.get(key, 0.0))
            except VerificationError as error:
                error.where = f"{role} {name!r} against {against}"
                raise
            self._scales[key] = max(self._scales.get(key, 0.0), difference.scale)
            settled = None if exact is None or difference.ok else exact(name, difference.tolerance)
            self._checks.append(OutputCheck(name, against, difference, role, frame, settled))

    @property
    def all(self) -> tuple[OutputCheck, ...]:
        """In the order in which they were added."""
        return tuple(
            replace(one, difference=one.difference.judged(self._scales[one.role, one.name, one.against]))
            for one in self._checks
        )
