"""What plugins' passes that declare a tolerance change, beside what they were given: for the same inputs, so that one
pass's difference is not counted with the next one's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ..contract.passes import Tolerance
from ..pipeline.passes import Tolerated
from ..relay.evaluate import evaluate, evaluate_all
from ..relay.expr import Call, Expr, Function, GlobalVar
from ..relay.module import IRModule
from .rounding_error import relative_bounds

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ToleranceCheck", "ToleranceChecks"]


@dataclass(frozen=True)
class ToleranceCheck:
    """What a pass made of the model, or of a region, beside what it was given, over all samples.

    Args:
        step: the pass, as ``label.pass``.
        phase: when it ran.
        plugin: its distribution and version.
        region: the name of the region; empty for what the model gives.
        tolerance: what it declares.
        compared: how many elements were compared; 0 where the region is called nowhere.
        equal: how many of these were equal.
        steps: how far integers differ at most.
        relative: how far floats do, as a part of the largest element of their array.
        sample: what was fed when they did first.
        rounding: how far floats may be off in any case, by rounding (`rounding_error`), relative likewise.
    """

    step: str
    phase: str
    plugin: str
    region: str
    tolerance: Tolerance
    compared: int = 0
    equal: int = 0
    steps: int = 0
    relative: float = 0.0
    sample: str = ""
    rounding: float = 0.0

    json_fields: ClassVar = (
        "pass=step",
        "phase",
        "plugin",
        "region=_region_or_none",
        "tolerance",
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
    def ok(self) -> bool:
        """Whether they differ by no more than is declared. Floats may always differ as those of two runtimes do."""
        return self.steps <= self.tolerance.steps and self.relative <= max(self.tolerance.relative, self.rounding)

    @property
    def largest(self) -> str:
        """The largest differences, for people."""
        parts = [f"{self.steps} step{'s' * (self.steps > 1)}"] if self.steps else []
        parts += [f"{self.relative:.3g} of the largest element"] if self.relative else []
        return " and ".join(parts) or "nothing"


class ToleranceChecks:
    """The passes of a build that changed results.

    Args:
        tolerated: what they did, in order.
    """

    def __init__(self, tolerated: Sequence[Tolerated]) -> None:
        self._passes: list[tuple[Tolerated, GlobalVar | None]] = []
        self._checks: list[ToleranceCheck] = []
        for one in tolerated:
            entry = one.step.member.plugin.entry
            regions = _changed(one) if one.step.made.scope == "regions" else (None,)
            for region in regions:
                self._passes.append((one, region))
                origin = one.step.made.phase, f"{entry.distribution} {entry.version}"
                name = "" if region is None else region.name
                changed = one.before if region is None else one.before.functions[region]
                assert isinstance(changed, (IRModule, Function))
                rounding = max(relative_bounds(changed), default=0.0)
                self._checks.append(ToleranceCheck(one.step.name, *origin, name, one.tolerance, rounding=rounding))

    def check(self, inputs: Mapping[str, np.ndarray], sample: str) -> None:
        """Compare both sides of each.

        Args:
            inputs: of ``main``, by the names of its parameters.
            sample: what they are, for the user.
        """
        for number, (one, region) in enumerate(self._passes):
            for before, after in _sides(one, region, inputs):
                for said, after_pass in zip(before, after, strict=True):
                    self._compare(number, after_pass, said, sample)

    def _compare(self, number: int, after: np.ndarray, said: np.ndarray, sample: str) -> None:
        import numpy as np

        wide = [side.astype(np.float64) for side in (after, said)]
        same = (after == said) | (np.isnan(wide[0]) & np.isnan(wide[1]))
        with np.errstate(invalid="ignore"):
            distance = np.where(same, 0.0, np.abs(wide[0] - wide[1]))
        off = float(np.nan_to_num(distance, nan=np.inf).max(initial=0.0))
        check = self._checks[number]
        if said.dtype.kind == "f":
            largest = float(np.abs(wide[1][np.isfinite(wide[1])]).max(initial=0.0))
            relative = off / largest if off and largest else float("inf") if off else 0.0
            check = replace(check, relative=max(check.relative, relative))
        else:
            check = replace(check, steps=max(check.steps, int(off)))
        self._checks[number] = replace(
            check,
            compared=check.compared + after.size,
            equal=check.equal + int(same.sum()),
            sample=check.sample or (sample if off else ""),
        )

    @property
    def all(self) -> tuple[ToleranceCheck, ...]:
        """In the order in which the passes ran."""
        return tuple(self._checks)


def _changed(one: Tolerated) -> tuple[GlobalVar, ...]:
    return tuple(
        var
        for var, function in one.before.functions.items()
        if isinstance(function, Function) and one.after.functions[var] is not function
    )


_Results = tuple["np.ndarray", ...]


def _sides(
    one: Tolerated, region: GlobalVar | None, inputs: Mapping[str, np.ndarray]
) -> Iterator[tuple[_Results, _Results]]:
    """What the model, or each call of a region, gave before the pass and gives after it."""
    if region is None:
        yield evaluate(one.before, inputs), evaluate(one.after, inputs)
        return
    values: Mapping[Expr, object] = evaluate_all(one.before, inputs)
    for expr in values:
        if isinstance(expr, Call) and expr.op is region:
            operands = [values[arg] for arg in expr.args]
            before, after = (_run(module, region, operands) for module in (one.before, one.after))
            yield before, after


def _run(module: IRModule, region: GlobalVar, operands: Sequence[object]) -> _Results:
    function = module.functions[region]
    assert isinstance(function, Function)
    arguments = {param.name: array for param, array in zip(function.params, operands, strict=True)}
    return evaluate(function, arguments)  # type: ignore[arg-type]  # arrays: a region takes no tuples
