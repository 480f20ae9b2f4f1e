"""The matches of merged regions, each lowered as a region of its own: so that of a region that differs, or crashes, the
first layer that does is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import ModelError, PluginError
from ..lowering.build_targets import BuildTargets
from ..lowering.fuse import is_view
from ..lowering.region_lowering import RegionLowering, label_of
from ..lowering.region_matches import Matches
from ..pipeline.loading import LoadedModel
from ..relay.evaluate import evaluate_all
from ..relay.expr import Call, Constant, Expr, Function, GlobalVar, Tuple, TupleGetItem, Var, tensors_of
from ..relay.module import AnyFunction, IRModule, Spans, func_type
from ..relay.op import Bounds
from ..relay.types import TupleType
from ..relay.visit import post_order
from .operand_ranges import ranges
from .results import KernelCheck, Overrun, PartSkipped, StepStop
from .stepwise_model import Inspected, Unit

if TYPE_CHECKING:
    import numpy as np

    from ..runtime.model_process import Isolation

__all__ = ["IsolatedMatches"]


@dataclass(frozen=True, eq=False)
class _Part:
    """One match of a merged region.

    Args:
        unit: the region.
        var, function: the match as a region of its own.
        operands: for each parameter of that the value, in the region's function.
        layers: the model's layers that it computes.
    """

    unit: Unit
    var: GlobalVar
    function: Function
    operands: Mapping[str, Expr]
    layers: tuple[str, ...]


class IsolatedMatches:
    """All matches of all merged regions of a model, compiled together.

    Args:
        inspected: the model.
        members: what it is built for.
        isolation: the process that it runs in.

    Attributes:
        skipped: what no owner takes alone, with the reason.
    """

    def __init__(self, inspected: Inspected, members: BuildTargets, isolation: Isolation) -> None:
        self._source = inspected
        self.skipped: list[PartSkipped] = []
        self._parts: list[_Part] = []
        for unit in inspected.units:
            matches = [e for e in post_order(unit.function.body) if isinstance(e, Call) and not is_view(e)]
            if label_of(unit.function) is None or len(matches) < 2:
                continue
            for number, match in enumerate(matches):
                part = self._part(unit, match, f"{unit.name}_{number}")
                reason = _refusal(self._module([part]), members)
                if reason is None:
                    self._parts.append(part)
                else:
                    self.skipped.append(PartSkipped(unit.name, unit.label, part.layers, reason))
        self._regions = {part.var.name: part.unit.name for part in self._parts}
        self._inspected: Inspected | None = None
        if self._parts:
            loaded = LoadedModel(self._module(self._parts), f"{inspected.program.name}_parts")
            try:
                self._inspected = Inspected(loaded, members, isolation, known=self._bounds())
            except (ModelError, PluginError) as error:
                reason = f"its owner does not lower it so: {error.what}"
                self.skipped += [PartSkipped(p.unit.name, p.unit.label, p.layers, reason) for p in self._parts]

    def check(self, sample: str) -> None:
        """Compare the matches on what the references give for what the regions were given in the last run."""
        if self._inspected is None:
            return
        inputs: dict[str, np.ndarray] = {}
        values: dict[Unit, Mapping[Expr, object]] = {}
        for part in self._parts:
            if part.unit not in values:
                params = (param.name for param in part.unit.function.params)
                operands = dict(zip(params, self._source.operands(part.unit), strict=True))
                values[part.unit] = evaluate_all(part.unit.function, operands)
            for name, expr in part.operands.items():
                value = values[part.unit][expr]
                assert not isinstance(value, tuple)
                inputs[name] = value  # type: ignore[assignment]  # an array then
        self._inspected.run(inputs, {}, sample)
        self._inspected.check(sample)

    def drive(self) -> None:
        """Run each match by itself, at the ends of its operands' ranges."""
        if self._inspected is not None:
            self._inspected.drive()

    @property
    def named_checks(self) -> tuple[KernelCheck, ...]:
        """The results of the matches, under the names of their regions."""
        return tuple(
            replace(check, kernel=self._regions[check.kernel])
            for check in (() if self._inspected is None else self._inspected.checks.all)
            if check.kernel in self._regions
        )

    @property
    def overruns(self) -> tuple[Overrun, ...]:
        return () if self._inspected is None else self._inspected.overruns

    @property
    def stops(self) -> tuple[StepStop, ...]:
        return () if self._inspected is None else tuple(self._inspected.stops)

    def _part(self, unit: Unit, match: Call, name: str) -> _Part:
        """A match as a region of its own."""
        operands = [arg for arg in dict.fromkeys(match.args) if not isinstance(arg, Constant)]
        params = {arg: Var(f"{name}_p{number}", arg.type) for number, arg in enumerate(operands)}
        body = Call(match.op, [params.get(arg, arg) for arg in match.args], match.attrs)
        attrs = {"Compiler": unit.label or "", "global_symbol": name}
        function = Function(list(params.values()), body, attrs)
        named = {param.name: arg for arg, param in params.items()}
        return _Part(unit, GlobalVar(name, func_type(function)), function, named, self._source.fused.spans[match])

    def _module(self, parts: list[_Part]) -> IRModule:
        """A model of these parts."""
        functions: dict[GlobalVar, AnyFunction] = {part.var: part.function for part in parts}
        spans: dict[Expr, tuple[str, ...]] = {}
        params: list[Var] = []
        results: list[Expr] = []
        for part in parts:
            own_params = [Var(param.name, param.type) for param in part.function.params]
            params += own_params
            value = Call(part.var, own_params)
            is_tuple = isinstance(value.type, TupleType)
            results += [TupleGetItem(value, at) for at in range(len(tensors_of(value.type)))] if is_tuple else [value]
            spans[value] = spans[part.function.body] = part.layers
        main = Function(params, results[0] if len(results) == 1 else Tuple(results))
        return IRModule({GlobalVar("main", func_type(main)): main, **functions}, Spans(spans))

    def _bounds(self) -> dict[str, Bounds]:
        """What is proven of the operands of the parts, by the names of their parameters."""
        bounds: dict[str, Bounds] = {}
        for part in self._parts:
            pairs = zip(part.unit.function.params, part.unit.expr.args, strict=True)
            inputs: dict[Expr, Bounds] = {p: self._source.ranges[arg] for p, arg in pairs if arg in self._source.ranges}
            inner = ranges(part.unit.function, {}, inputs)
            bounds |= {name: inner[expr] for name, expr in part.operands.items() if expr in inner}
        return bounds


def _refusal(module: IRModule, members: BuildTargets) -> str | None:
    """Why the owner of the one region of a module does not take it; None if it does."""
    try:
        _, refusals = RegionLowering(members)(module, Matches(members))
    except (ModelError, PluginError) as error:
        return f"its owner does not lower it alone: {error.what}"
    return f"its owner refuses it alone: {refusals[0].reason}" if refusals else None
