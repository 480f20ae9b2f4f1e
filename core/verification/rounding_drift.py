"""What layers that are rounded otherwise, by consent, are beside what the model says: on the same operands, so that one
layer's difference is not counted with the next one's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ..partition import Candidate, OptInMatch
from ..relay.evaluate import evaluate, evaluate_all
from ..relay.expr import Call, Constant, Expr, Function, Tuple, Var
from ..relay.visit import children, with_children
from .stepwise_model import Inspected, Unit

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ConsentCheck", "ConsentChecks", "Drift", "Drifts"]


@dataclass(frozen=True)
class ConsentCheck:
    """What a match computes by consent, beside what the model says, over all samples.

    Args:
        region: the name of the region that it is in.
        rounded: what is rounded otherwise in it; its result may be off by the largest of their bounds.
        compared: how many elements were compared; 0 where a pass rewrote the region.
        equal: how many of these were equal.
        largest: how many steps they differ at most.
        sample: what was fed when they did first.
    """

    region: str
    rounded: tuple[OptInMatch, ...]
    compared: int = 0
    equal: int = 0
    largest: int = 0
    sample: str = ""

    json_fields: ClassVar = (
        "region",
        "layers",
        "what=operations",
        "rounding=roundings",
        "bound",
        "compared",
        "equal",
        "largest",
        "ok",
    )

    @property
    def operations(self) -> tuple[str, ...]:
        """Return the kind of each operation that is rounded differently."""
        return tuple(one.what for one in self.rounded)

    @property
    def roundings(self) -> tuple[str, ...]:
        """Return the rounding of each of these operations."""
        return tuple(one.rounding for one in self.rounded)

    @property
    def bound(self) -> int:
        """How many steps they may differ."""
        return max(one.bound for one in self.rounded)

    @property
    def layers(self) -> tuple[str, ...]:
        """Of the model."""
        return tuple(dict.fromkeys(layer for one in self.rounded for layer in one.layers))

    @property
    def ok(self) -> bool:
        """Whether they differ by no more than they may."""
        return self.largest <= self.bound


@dataclass(frozen=True)
class Drift:
    """An output, or the new value of a state, beside what the model says without consent, over all samples. It is told
    and not judged: what layers may differ by adds up in no way that is known beforehand.

    Args:
        role: ``output`` or ``state``.
        name: the model's own.
        compared, equal: elements, and how many of them were equal.
        largest: how much they differ at most: of integers in steps.
    """

    role: str
    name: str
    compared: int
    equal: int
    largest: float


class Drifts:
    """Gathers the drift of each output and state."""

    def __init__(self) -> None:
        self._drifts: dict[tuple[str, str], Drift] = {}

    def add(self, role: str, got: Mapping[str, np.ndarray], said: Mapping[str, np.ndarray]) -> None:
        """Take in one more run: what the artifact gave, and what the model says, by name."""
        for name, array in got.items():
            equal, largest = _beside(array, said[name].reshape(array.shape))
            drift = self._drifts.get((role, name), Drift(role, name, 0, 0, 0.0))
            self._drifts[role, name] = Drift(
                role, name, drift.compared + array.size, drift.equal + equal, max(drift.largest, largest)
            )

    @property
    def all(self) -> tuple[Drift, ...]:
        """In the order in which they came first."""
        return tuple(self._drifts.values())


def _beside(got: np.ndarray, said: np.ndarray) -> tuple[int, float]:
    """How many elements are equal, and the largest difference; NaN is equal to NaN."""
    import numpy as np

    wide = [side.astype(np.float64) for side in (got, said)]
    same = (got == said) | (np.isnan(wide[0]) & np.isnan(wide[1]))
    with np.errstate(invalid="ignore"):
        distance = np.where(same, 0.0, np.abs(wide[0] - wide[1]))
    return int(same.sum()), float(np.nan_to_num(distance, nan=np.inf).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class _Both:
    """A match in both forms.

    Args:
        unit: the region that it is in.
        call: what stands for it there.
        function: gives its results as the model says, then by consent.
    """

    unit: Unit
    call: Call
    function: Function


class ConsentChecks:
    """The matches of a model that were taken in another form by consent.

    Args:
        inspected: the model.
    """

    def __init__(self, inspected: Inspected) -> None:
        self._inspected = inspected
        self._both: list[_Both | None] = []
        self._checks: list[ConsentCheck] = []
        placement = inspected.placement
        units = {unit.name: unit for unit in inspected.units}
        for region in () if placement is None else placement.regions.values():
            for claim, call in zip(region.claims, region.calls, strict=True):
                rounded = claim.consented(placement.source.spans) if placement is not None else ()
                if rounded:
                    unit = units.get(region.name)
                    self._both.append(None if unit is None else _Both(unit, call, _both(claim)))
                    self._checks.append(ConsentCheck(region.name, rounded))

    def check(self, sample: str) -> None:
        """Compare them on what the regions were given in the last run, which was fed ``sample``."""
        values: dict[Unit, Mapping[Expr, object]] = {}
        for number, both in enumerate(self._both):
            if both is None:
                continue
            if both.unit not in values:
                params = (param.name for param in both.unit.function.params)
                operands = dict(zip(params, self._inspected.operands(both.unit), strict=True))
                values[both.unit] = evaluate_all(both.unit.function, operands)
            computed = values[both.unit]
            if all(arg in computed for arg in both.call.args):
                arrays = (computed[arg] for arg in both.call.args)
                inputs = {param.name: array for param, array in zip(both.function.params, arrays, strict=True)}
                self._compare(number, evaluate(both.function, inputs), sample)  # type: ignore[arg-type]  # arrays

    def _compare(self, number: int, results: tuple[np.ndarray, ...], sample: str) -> None:
        half = len(results) // 2
        for said, after in zip(results[:half], results[half:], strict=True):
            check = self._checks[number]
            equal, largest = _beside(after, said)
            self._checks[number] = replace(
                check,
                compared=check.compared + after.size,
                equal=check.equal + equal,
                largest=max(check.largest, int(largest)),
                sample=check.sample if check.largest or not largest else sample,
            )

    @property
    def all(self) -> tuple[ConsentCheck, ...]:
        """In the order of the regions."""
        return tuple(self._checks)


def _both(claim: Candidate) -> Function:
    """The function of a match: its results as the model says, then as its owner gives them."""
    assert claim.taken is not None
    # In the order in which the owner's function takes them.
    operands = [expr for expr in claim.given.inputs if not isinstance(expr, Constant)]
    params = [Var(f"p{number}", expr.type) for number, expr in enumerate(operands)]
    inner: dict[Expr, Expr] = dict(zip(operands, params, strict=True))
    for node in (*claim.nodes, *claim.taken.nodes):
        inner[node] = with_children(node, [inner.get(child, child) for child in children(node)])
    originals = {claim.taken.value[root]: root for root in claim.given.roots}
    fields = [inner[root] for root in claim.match.roots]
    return Function(params, Tuple([*fields, *(inner[originals[root]] for root in claim.match.roots)]))
