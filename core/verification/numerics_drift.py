"""Measured differences of the layers and passes whose results may differ from the model's arithmetic: each for the same
operands, so that it excludes the differences of other layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from ..artifact.record import DifferenceRecord
from ..lowering.build_targets import BuildTargets
from ..partition import Candidate
from ..pipeline.numerics import match_difference, pass_difference
from ..pipeline.passes import Tolerated
from ..relay.evaluate import evaluate, evaluate_all
from ..relay.expr import Call, Constant, Expr, Function, GlobalVar, Tuple, Var
from ..relay.module import IRModule
from ..relay.visit import children, with_children
from ..support.formatting import format_difference
from .rounding_error import relative_bounds
from .stepwise_model import Inspected, Unit

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DifferenceCheck", "DifferenceChecks", "Drift", "Drifts"]

_Results = tuple["np.ndarray", ...]
_Sides = Callable[[Mapping[str, "np.ndarray"]], Iterator[tuple[_Results, _Results]]]
"""Yields results without and with an opt-in for the inputs of ``main``."""


@dataclass(frozen=True)
class DifferenceCheck:
    """The measured difference of a match or pass from its results without the opt-in, over all samples.

    Args:
        allowed: the differences that are allowed in it; the largest of their bounds applies.
        region: the region's name; empty for the whole model.
        compared: how many elements were compared; 0 where a pass rewrote the region, or nothing calls it.
        equal: how many of these were equal.
        steps: the largest difference of integers; of matches also of floats, rounded down.
        relative: of passes the largest difference of floats, as a part of the largest element of their array.
        sample: the first sample that differed.
        rounding: how far floats may be off in any case, by rounding (`rounding_error`), relative likewise.
    """

    allowed: tuple[DifferenceRecord, ...]
    region: str
    compared: int = 0
    equal: int = 0
    steps: int = 0
    relative: float = 0.0
    sample: str = ""
    rounding: float = 0.0

    json_fields: ClassVar = (
        "allowed",
        "region=_region_or_none",
        "compared",
        "equal",
        "steps",
        "relative=_finite_relative",
        "ok",
    )

    @property
    def _region_or_none(self) -> str | None:
        return self.region or None

    @property
    def _finite_relative(self) -> float | None:
        return self.relative if math.isfinite(self.relative) else None

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers of the model; none for a pass."""
        return tuple(dict.fromkeys(layer for one in self.allowed for layer in one.layers))

    @property
    def bound(self) -> DifferenceRecord:
        """The allowed difference with the largest bound."""
        return max(self.allowed, key=lambda one: one.steps or 0)

    @property
    def ok(self) -> bool:
        """Whether the difference is within the bound. Floats may always differ as those of two runtimes do."""
        steps, relative = self.bound.steps, self.bound.relative
        is_near = relative is None or self.relative <= max(relative, self.rounding)
        return is_near and (steps is None or self.steps <= steps)

    @property
    def largest(self) -> str:
        """The largest difference, in words."""
        return format_difference(self.steps, self.relative, " and ")


@dataclass(frozen=True)
class Drift:
    """The difference of an output, or of a state's new value, from its results without any opt-in, over all samples. It
    is not judged, because differences of layers add up in no way that is known in advance.

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
        """Add one more run: the results of the artifact, and those of the model's arithmetic, by name."""
        for name, array in got.items():
            equal, largest = _compare(array, said[name].reshape(array.shape))
            drift = self._drifts.get((role, name), Drift(role, name, 0, 0, 0.0))
            self._drifts[role, name] = Drift(
                role, name, drift.compared + array.size, drift.equal + equal, max(drift.largest, largest)
            )

    @property
    def all(self) -> tuple[Drift, ...]:
        """In the order in which they came first."""
        return tuple(self._drifts.values())


def _compare(got: np.ndarray, said: np.ndarray) -> tuple[int, float]:
    """Return how many elements are equal, and the largest difference; NaN is equal to NaN."""
    import numpy as np

    wide = [side.astype(np.float64) for side in (got, said)]
    same = (got == said) | (np.isnan(wide[0]) & np.isnan(wide[1]))
    with np.errstate(invalid="ignore"):
        distance = np.where(same, 0.0, np.abs(wide[0] - wide[1]))
    return int(same.sum()), float(np.nan_to_num(distance, nan=np.inf).max(initial=0.0))


class DifferenceChecks:
    """The checks of all allowed differences of a model: of its matches, then of the passes in their order.

    Args:
        inspected: the model.
        members: the targets that it is built for.
    """

    def __init__(self, inspected: Inspected, members: BuildTargets) -> None:
        self._inspected = inspected
        self._sides: list[_Sides] = []
        self._checks: list[DifferenceCheck] = []
        self._values: dict[Unit, Mapping[Expr, object]] = {}
        placement = inspected.placement
        units = {unit.name: unit for unit in inspected.units}
        for region in () if placement is None else placement.regions.values():
            for claim, call in zip(region.claims, region.calls, strict=True):
                matches = claim.consented(placement.source.spans) if placement is not None else ()
                if matches:
                    allowed = tuple(match_difference(match, members) for match in matches)
                    self._sides.append(partial(self._match_sides, units.get(region.name), call, _both(claim)))
                    self._checks.append(DifferenceCheck(allowed, region.name))
        for one in inspected.tolerated:
            for var in _changed(one) if one.step.definition.scope == "regions" else (None,):
                before = one.before if var is None else one.before.functions[var]
                assert isinstance(before, (IRModule, Function))
                self._sides.append(partial(_pass_sides, one, var))
                rounding = max(relative_bounds(before), default=0.0)
                name = "" if var is None else var.name
                self._checks.append(DifferenceCheck((pass_difference(one.step),), name, rounding=rounding))

    def check(self, inputs: Mapping[str, np.ndarray], sample: str) -> None:
        """Compare both sides of each.

        Args:
            inputs: of ``main`` in the last run, by the names of its parameters.
            sample: the name of these inputs.
        """
        self._values.clear()
        for number, sides in enumerate(self._sides):
            for before, after in sides(inputs):
                for said, got in zip(before, after, strict=True):
                    self._add(number, got, said, sample)

    def _add(self, number: int, got: np.ndarray, said: np.ndarray, sample: str) -> None:
        import numpy as np

        check = self._checks[number]
        equal, largest = _compare(got, said)
        if said.dtype.kind == "f" and check.bound.relative is not None:
            peak = float(np.abs(said[np.isfinite(said)].astype(np.float64)).max(initial=0.0))
            relative = largest / peak if largest and peak else float("inf") if largest else 0.0
            check = replace(check, relative=max(check.relative, relative))
        else:
            check = replace(check, steps=max(check.steps, int(largest)))
        self._checks[number] = replace(
            check,
            compared=check.compared + got.size,
            equal=check.equal + equal,
            sample=check.sample or (sample if largest else ""),
        )

    def _match_sides(
        self, unit: Unit | None, call: Call, both: Function, inputs: Mapping[str, np.ndarray]
    ) -> Iterator[tuple[_Results, _Results]]:
        """Yield the results of a match for the operands of its region in the last run; nothing where a pass rewrote it.

        Args:
            unit: the region that the match is in.
            call: the match in the region.
            both: gives its results as the model says, then in the form of its owner.
            inputs: of the model.
        """
        if unit is None:
            return
        if unit not in self._values:
            operands = self._inspected.operands(unit)
            params = (param.name for param in unit.function.params)
            self._values[unit] = evaluate_all(unit.function, dict(zip(params, operands, strict=True)))
        values = self._values[unit]
        if all(arg in values for arg in call.args):
            results = _run(both, [values[arg] for arg in call.args])
            half = len(results) // 2
            yield results[:half], results[half:]

    @property
    def all(self) -> tuple[DifferenceCheck, ...]:
        """In their order."""
        return tuple(self._checks)


def _both(claim: Candidate) -> Function:
    """The function of a match: its results as the model says, then as its owner gives them."""
    assert claim.taken is not None
    # In the order in which the owner's function takes them.
    operands = [expr for expr in claim.owner_match.inputs if not isinstance(expr, Constant)]
    params = [Var(f"p{number}", expr.type) for number, expr in enumerate(operands)]
    inner: dict[Expr, Expr] = dict(zip(operands, params, strict=True))
    for node in (*claim.nodes, *claim.taken.nodes):
        inner[node] = with_children(node, [inner.get(child, child) for child in children(node)])
    roots = {claim.taken.value[root]: root for root in claim.owner_match.roots}
    fields = [inner[root] for root in claim.match.roots]
    return Function(params, Tuple([*fields, *(inner[roots[root]] for root in claim.match.roots)]))


def _changed(one: Tolerated) -> tuple[GlobalVar, ...]:
    return tuple(
        var
        for var, function in one.before.functions.items()
        if isinstance(function, Function) and one.after.functions[var] is not function
    )


def _pass_sides(
    one: Tolerated, region: GlobalVar | None, inputs: Mapping[str, np.ndarray]
) -> Iterator[tuple[_Results, _Results]]:
    """Yield the results of the model, or of each call of a region, before a pass and after it."""
    if region is None:
        yield evaluate(one.before, inputs), evaluate(one.after, inputs)
        return
    values: Mapping[Expr, object] = evaluate_all(one.before, inputs)
    for expr in values:
        if isinstance(expr, Call) and expr.op is region:
            operands = [values[arg] for arg in expr.args]
            before, after = (_run(module.functions[region], operands) for module in (one.before, one.after))
            yield before, after


def _run(function: object, operands: Sequence[object]) -> _Results:
    assert isinstance(function, Function)
    inputs = {param.name: array for param, array in zip(function.params, operands, strict=True)}
    return evaluate(function, inputs)  # type: ignore[arg-type]  # arrays: a region takes no tuples
