"""Whether estimates are what the simulator counts, and grow with the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...artifact import Artifact
from ...artifact.random_inputs import random_inputs
from ...contract.cost import Cost
from ...errors import DeviceError, PluginError, ToolchainError, UmaError
from ...lowering.build_targets import resolve_targets
from ...pipeline.stages import Build
from ...plugins import PluginHost, default_host
from ...relay.expr import Var
from ...relay.text import parse_module, print_module
from ...reports.costs import RegionCost, region_costs
from ...support.json_record import to_json
from ..child_process import NoAnswer, ask_child_process
from ..fuzz.acceptance import acceptance_of
from ..fuzz.layer import Layer, module_of, number_of
from ..fuzz.layer_rebuild import Changes, fitted, leaves_of, rebuilt
from ..fuzz.reproducers import layer_text, read_array, written_array
from ..outcome import Check, Outcome, Progress
from ..record import Finding
from ..sample_layers import artifact_of, built, macs_or_elements, small_layers

__all__ = ["COST", "estimates_elsewhere"]

_CHILD = """
import json, sys
from uma.testing.suite.cost import estimates_elsewhere
print(json.dumps(estimates_elsewhere(json.load(sys.stdin))))
"""

_LAYERS, _COUNTED, _TOGETHER = 6, 6, 20
_TIMES = (4,)
_GROWS = 3.0
"""By so much more work an estimate must be larger, whatever else it says."""


@dataclass(frozen=True)
class _Row:
    """A layer with what it costs.

    Args:
        layer: the layer.
        series: the number of the layer that it was made of.
        cost: as the plugin estimates it; None where it does not.
        counted: cycles; None where they are not counted.
    """

    layer: Layer
    series: int
    cost: Cost | None
    counted: int | None

    @property
    def work(self) -> int:
        return macs_or_elements(self.layer)


def _cost(outcome: Outcome, progress: Progress) -> None:
    subject = outcome.subject
    runtime = subject.member.runtime
    claims = subject.claims
    counters = () if runtime is None else runtime.counters
    if claims.cycles is not None and claims.counter not in counters:
        there = ", ".join(counters) or "none"
        message = f"cycles are claimed by the counter {claims.counter!r}, which the Runtime does not have: {there}"
        outcome.find("cost", message, "Claims.counter", "claims")
    if "estimate_cost" not in subject.plugin.implemented:
        outcome.skipped = "the plugin estimates nothing"
        if claims.cycles is not None:
            outcome.skipped = ""
            outcome.find("cost", "cycles are claimed, and hook estimate_cost is not there", "Claims.cycles", "claims")
        return
    can_count = claims.counter in counters and subject.target.get_attr("impl") != "mmio"
    rows = _rows(outcome, _series(outcome, progress), can_count)
    if outcome.findings:
        return
    estimated = [row for row in rows if row.cost is not None]
    if not estimated:
        none = "no layer was placed on the target" if not rows else f"of {len(rows)} layers the plugin estimates none"
        outcome.unchecked = none
        if rows and claims.cycles is not None:
            outcome.find("cost", f"cycles are claimed, and of {len(rows)} layers none is estimated", "Claims.cycles")
        return
    _growth(outcome, estimated)
    _counted(outcome, estimated)
    if subject.is_first and not outcome.findings:
        _again(outcome, [row.layer for row in estimated][:_LAYERS])


COST = Check("cost", "estimated against counted cycles", "cost", _cost, "target", runs=True)


def _again(outcome: Outcome, layers: Sequence[Layer]) -> None:
    """Estimates are the same when they are asked for again, here and in another process."""
    subject = outcome.subject
    text, constants = print_module(module_of(layers))
    asked = {
        "targets": [target.to_json() for target in subject.targets],
        "text": text,
        "constants": {digest: written_array(array) for digest, array in constants.items()},
    }
    try:
        first = _estimates(asked, subject.plugins)
        repeats = [("a second time", _estimates(asked, subject.plugins))]
    except UmaError:
        return  # what cannot be built is for others to say
    if subject.plugins is default_host():
        try:
            repeats.append(("in another process", ask_child_process(_CHILD, asked)))
        except NoAnswer as error:
            outcome.note(f"costs were not estimated in another process: {error}")
    for how, again in repeats:
        if again != first:
            pairs = zip(first, again, strict=False)
            one, other = next(((a, b) for a, b in pairs if a != b), (f"{len(first)} regions", f"{len(again)} regions"))
            message = f"hook estimate_cost gives something else {how}: {one}, then {other}"
            outcome.find("cost", message, f"target {subject.target}", "repeated")
            return


def estimates_elsewhere(asked: Mapping[str, Any]) -> list[Any]:
    """What the regions of a module are estimated to cost, in this process.

    Args:
        asked: ``targets`` as JSON, ``text`` and ``constants`` of the module.
    """
    return _estimates(asked, default_host())


def _estimates(asked: Mapping[str, Any], plugins: PluginHost) -> list[Any]:
    members = resolve_targets([plugins.target(one) for one in asked["targets"]], plugins)
    constants = {digest: read_array(array) for digest, array in asked["constants"].items()}
    build = Build("estimated", members)
    with members.known_ops():
        build.run(parse_module(asked["text"], constants), "fuse")
        return [to_json(one.cost) for one in region_costs(build)]


def _series(outcome: Outcome, progress: Progress) -> list[list[Layer]]:
    """Small layers that are taken, each followed by itself in larger."""
    subject = outcome.subject
    acceptance = acceptance_of(subject)
    series = []
    for layer in small_layers(subject, progress, _LAYERS):
        with subject.members.known_ops():
            larger = (grown(layer, times) for times in _TIMES)
            accepted = [one for one in larger if one is not None and acceptance.ask(one, False).is_taken]
        series.append([layer, *accepted])
    progress(f"{subject.kind.name}: estimated and counted cycles")
    return series


def grown(layer: Layer, times: int) -> Layer | None:
    """The layer on data of so many times the extent along the last axis but one; None where that is not a layer."""
    leaves = {}
    for place, leaf in leaves_of(layer.function.body).items():
        if isinstance(leaf, Var) and len(leaf.shape) > 1:
            *front, width, last = leaf.shape
            leaves[place] = fitted(leaf, (*front, width * times, last))
    body = rebuilt(layer.function.body, Changes(leaves=leaves)) if leaves else None
    return None if body is None else layer.replace_body(body, f"{times} times the width")


def _rows(outcome: Outcome, series: Sequence[Sequence[Layer]], can_count: bool) -> list[_Row]:
    """What layers cost, and take. What cannot be built is left out: that is for others to say."""
    numbered = [(layer, number) for number, layers in enumerate(series) for layer in layers]
    all_rows: list[_Row] = []
    for at in range(0, len(numbered), _TOGETHER):
        some = numbered[at : at + _TOGETHER]
        rows = _together(outcome, some, can_count)
        if rows is None and not outcome.findings:
            rows = [
                row for one in some for row in _together(outcome, [one], can_count and len(all_rows) < _COUNTED) or ()
            ]
        all_rows += rows or ()
        if outcome.findings:
            break
    return all_rows


def _by_layer(costs: Sequence[RegionCost]) -> dict[int, list[RegionCost]] | None:
    """The costs of each layer's regions; None where a region is not of one layer."""
    regions: dict[int, list[RegionCost]] = {}
    for one in costs:
        numbers = {number_of(name) for name in one.layers}
        if len(numbers) != 1 or None in numbers:
            return None
        regions.setdefault(numbers.pop() or 0, []).append(one)
    return regions


def _together(outcome: Outcome, numbered: Sequence[tuple[Layer, int]], can_count: bool) -> list[_Row] | None:
    """The same of layers that are one model; None where they cannot be, or are not told apart in it."""
    subject = outcome.subject
    label, layers = subject.member.label, [layer for layer, _ in numbered]
    try:
        build, program = built(layers, subject.members)
    except UmaError:
        return None
    try:
        costs = [one for one in region_costs(build) if one.label == label]
    except PluginError as error:
        if len(layers) > 1:
            return None
        message = f"an estimate fails: {error.what}"
        outcome.add(Finding("cost", "cost.estimates", message, error.where or "", layer_text(layers[0])))
        return None
    regions = _by_layer(costs)
    if regions is None:
        return None
    counted: Mapping[str, int | None] = {}
    if can_count and label in program.devices:
        try:
            counted = _calls(artifact_of(program, subject.members), costs, subject.claims.counter)
        except (DeviceError, ToolchainError) as error:
            outcome.note(f"layers were not counted: {error.what.splitlines()[0]}")
    if len(layers) > 1 and any(cycles is None for cycles in counted.values()):
        return None
    rows = []
    for at, (layer, number) in enumerate(numbered):
        of_it = regions.get(at, [])
        estimated = [one.cost for one in of_it if one.cost is not None]
        cycles = [counted.get(one.region) for one in of_it]
        total = Cost.total(estimated) if len(estimated) == len(of_it) else None
        counts = [one for one in cycles if one is not None]
        if of_it:
            rows.append(_Row(layer, number, total, sum(counts) if counts and len(counts) == len(cycles) else None))
    return rows


def _calls(artifact: Artifact, costs: Sequence[RegionCost], counter: str) -> dict[str, int | None]:
    """What the device counted in the calls of each region; None where that is not told apart."""
    profile = artifact.profile(random_inputs(artifact.record.inputs), repeat=1)
    counts: dict[str, int | None] = {}
    for one in costs:
        calls = [call for call in profile.calls if call.device == one.label and set(call.layers) & set(one.layers)]
        is_counted = bool(calls) and all(counter in call.counted for call in calls)
        counts[one.region] = sum(call.counted[counter] for call in calls) if is_counted else None
    shared = [name for one in costs for name in one.layers]
    return counts if len(set(shared)) == len(shared) else dict.fromkeys(counts)


def _amount(cost: Cost) -> float:
    """Cycles where they are known, else seconds."""
    amount = cost.cycles if cost.cycles is not None else cost.seconds
    assert amount is not None  # one of both is always known
    return amount


def _growth(outcome: Outcome, rows: Sequence[_Row]) -> None:
    """A layer with several times the work is estimated to take more, unless it takes no more."""
    for series in dict.fromkeys(row.series for row in rows):
        some = [row for row in rows if row.series == series]
        small, large = some[0], some[-1]
        assert small.cost is not None and large.cost is not None
        if large.work < _GROWS * small.work:
            continue
        if small.counted is not None and large.counted is not None and large.counted < 1.5 * small.counted:
            continue
        before, after = _amount(small.cost), _amount(large.cost)
        if after <= before:
            unit = "cycles" if small.cost.cycles is not None else "seconds"
            counts = ""
            if small.counted is not None and large.counted is not None:
                counts = f"; {small.counted} and {large.counted} are counted"
            message = (
                f"the estimate does not grow with the layer: {before:g} {unit}, and {after:g} for "
                f"{large.work / max(1, small.work):.0f} times the work{counts}"
            )
            where = f"pattern {large.layer.pattern}, hook estimate_cost"
            outcome.add(Finding("cost", "cost.growth", message, where, layer_text(large.layer)))
            return


def _counted(outcome: Outcome, rows: Sequence[_Row]) -> None:
    """The cycles that are estimated are those that are counted, as exactly as is claimed."""
    runtime, claims = outcome.subject.member.runtime, outcome.subject.claims
    clock = None if runtime is None else runtime.clock
    worst: tuple[float, float, _Row] | None = None
    shares = []
    for row in rows:
        if row.cost is None or not row.counted:
            continue
        cycles = row.cost.cycles
        if cycles is None and clock is not None and row.cost.seconds is not None:
            cycles = row.cost.seconds * clock.hz
        if cycles is None:
            continue
        shares.append(cycles / row.counted)
        off = abs(cycles - row.counted) / row.counted
        if worst is None or off > worst[0]:
            worst = off, cycles, row
    if worst is None:
        outcome.note(f"{len(rows)} layers estimated, none counted: {claims.counter!r} is not a counter of a device")
        return
    outcome.note(
        f"{len(shares)} layers counted: estimates are {min(shares):.3g} to {max(shares):.3g} of the counted cycles"
    )
    off, cycles, row = worst
    if claims.cycles is not None and off > claims.cycles + 1e-9:
        message = (
            f"estimated are {cycles:g} cycles, counted {row.counted}: {off:.1%} off, and {claims.cycles:.1%} is claimed"
        )
        where = f"pattern {row.layer.pattern}, hook estimate_cost"
        outcome.add(Finding("cost", "cost.cycles", message, where, layer_text(row.layer)))
