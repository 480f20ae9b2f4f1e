"""What verification finds, in records; and the comparison of two arrays that all of it rests on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ..errors import VerificationError
from ..relay.transform.float_forms import FormCheck

if TYPE_CHECKING:
    import numpy as np

    from .requantized import ConsentCheck, Drift
    from .tolerated import ToleranceCheck

__all__ = [
    "TOLERANCE",
    "Accuracy",
    "Difference",
    "KernelCheck",
    "KernelChecks",
    "OutputCheck",
    "Overrun",
    "PartSkipped",
    "Sides",
    "Skipped",
    "StepStop",
    "Verification",
    "check_outputs",
    "compare",
]

TOLERANCE = 1e-5
"""How far a float may be from its reference, as a part of the largest element of the reference. Integers must be
equal."""

_HALF_TOLERANCE = 2.0**-8
"""The same for float16, whose last place is 2**-10 of a number at most: layers round where a reference may not."""

_NOISE = 64.0
"""How many times the change that rounding of the inputs makes to a reference a float may be from it: sums that cancel
have no more digits than that."""


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


class KernelChecks:
    """Gathers the checks of each result of each kernel."""

    def __init__(self) -> None:
        self._checks: dict[str, KernelCheck] = {}

    def add(self, key: str, check: KernelCheck) -> None:
        """Take in one more comparison of the result that ``key`` names."""
        known = self._checks.get(key)
        if known is None:
            self._checks[key] = replace(check, differing=int(not check.difference.ok))
            return
        worse = check.difference.largest > known.difference.largest if check.difference.ok else True
        shown = check if known.difference.ok and worse else known
        differing = known.differing + (not check.difference.ok)
        self._checks[key] = replace(shown, compared=known.compared + 1, differing=differing)

    @property
    def all(self) -> tuple[KernelCheck, ...]:
        """In the order in which the results came first."""
        return tuple(self._checks.values())


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
    """

    name: str
    against: str
    difference: Difference
    role: Literal["output", "state"] = "output"
    frame: int = 0


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
        return f"{self.correct} of {self.total} labels, {100 * self.correct / self.total:.2f}%"


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
        consented: the matches that are rounded otherwise by consent, beside what the model says.
        drifts: the outputs and states of a model with such matches, or with passes that change results, beside what
            the model says.
        tolerated: what passes that declare a tolerance changed, beside what they were given.
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
    consented: tuple[ConsentCheck, ...] = ()
    drifts: tuple[Drift, ...] = ()
    tolerated: tuple[ToleranceCheck, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all agrees."""
        differences = [check.difference for check in (*self.kernels, *self.parts)] + [
            check.difference for check in self.outputs
        ]
        unproven = any(form.wrong for form in self.forms)
        within = all(check.ok for check in self.consented) and all(check.ok for check in self.tolerated)
        return within and all(one.ok for one in differences) and not self.overruns and not self.stops and not unproven

    @property
    def frames(self) -> int:
        """How many runs there were, before the first was repeated."""
        return len(self.samples)


def compare(got: np.ndarray, expected: np.ndarray, rounded: Callable[[], np.ndarray] | None = None) -> Difference:
    """How ``got`` differs from ``expected``: not at all for integers, by `TOLERANCE` for floats, NaN equal to NaN.

    Args:
        got, expected: two arrays of one type.
        rounded: gives what is expected of inputs that differ from the real ones in their last bits. It is asked where
            floats differ by more than `TOLERANCE`: a result that cancels has no more digits than rounding leaves it.

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
    is_float = expected.dtype.kind == "f"
    tolerance = _HALF_TOLERANCE if expected.dtype == np.float16 else TOLERANCE
    limit = tolerance * np.abs(wide[np.isfinite(wide)]).max(initial=0.0) if is_float else 0.0
    if is_float and rounded is not None and (distance > limit).any():
        with np.errstate(invalid="ignore"):
            noise = np.abs(rounded().astype(np.float64).reshape(got.shape) - wide)
        limit += _NOISE * noise[np.isfinite(noise)].max(initial=0.0)
    # Two wide integers may differ although no float64 does.
    wrong = np.argwhere(~same & ((distance > limit) | (not is_float)))
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
    rounded: Callable[[str], np.ndarray] | None = None,
) -> tuple[OutputCheck, ...]:
    """Each output, or state, beside its reference.

    Args:
        got, expected: by name.
        against, role, frame: as of `OutputCheck`.
        rounded: as for `compare`, given the name.

    Raises:
        VerificationError: one has another type.
    """
    checks = []
    for name, array in got.items():
        again = None if rounded is None else (lambda name=name: rounded(name))
        try:
            checks.append(OutputCheck(name, against, compare(array, expected[name], again), role, frame))
        except VerificationError as error:
            error.where = f"{role} {name!r} against {against}"
            raise
    return tuple(checks)
