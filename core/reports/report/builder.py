"""From a build, an artifact, and what was measured of it, to the records of a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...artifact import Artifact, ArtifactRecord, BufferRecord, Profile, memory_peaks
from ...artifact.execution_counts import chains_of, in_chain
from ...artifact.footprint import footprint
from ...errors import NoCompilerError
from ...pipeline.stages import Build
from ..costs import counted_by_region, counted_cycles
from ..explain import Explanation
from ..layers import Layer
from .dataflow import op_flows
from .records import (
    SCHEMA_VERSION,
    LayerRow,
    MemoryRow,
    PartRow,
    PlacedRow,
    ReasonRow,
    RegionRow,
    StepRow,
    TargetRow,
    TensorRow,
    Why,
)
from .summary import summary
from .write import Report

__all__ = ["Measured", "make_report", "titled_by_model"]


@dataclass(frozen=True)
class Measured:
    """What was measured of an artifact.

    Args:
        code_bytes, stack_bytes: as its `Footprint` has them.
        profile: of some runs; None where it was not run.
        runs: how many.
    """

    code_bytes: int | None = None
    stack_bytes: int | None = None
    profile: Profile | None = None
    runs: int = 0

    @staticmethod
    def sizes_of(artifact: Artifact) -> Measured:
        """What compiling it tells; nothing where there is no C compiler.

        Raises:
            ToolchainError: the compiler does not take it.
        """
        try:
            return Measured(artifact.code_bytes, artifact.stack_bytes)
        except NoCompilerError:
            return Measured()

    def with_profile(self, profile: Profile, runs: int) -> Measured:
        """The same, and what some runs took."""
        return dataclasses.replace(self, profile=profile, runs=runs)


def make_report(
    artifact: Artifact, measured: Measured, build: Build | None = None, explanation: Explanation | None = None
) -> Report:
    """The report of an artifact.

    Args:
        artifact: the model.
        measured: of it.
        build: what made it; None where it was loaded.
        explanation: where the ops of that build went; None where it began with a form that has none.
    """
    record, profile = artifact.record, measured.profile
    steps = _steps(record, profile)
    if build is not None and explanation is not None:
        layers = _layers_of_model(build, explanation, steps)
        steps = titled_by_model(steps, layers)
    else:
        layers = _layers_of_calls(record, steps)
        titles = {step.number: layer.name for step, layer in zip(_computing(record, steps), layers, strict=True)}
        steps = tuple(dataclasses.replace(step, title=titles.get(step.number, step.kernel)) for step in steps)
    steps = tuple(
        dataclasses.replace(step, title=in_chain(step.title, call, step.chain))
        for step, call in zip(steps, record.calls, strict=True)
    )
    size = footprint(record, measured.code_bytes, measured.stack_bytes)
    targets = _targets(record, layers, explanation, profile)
    result = Report(
        schema_version=SCHEMA_VERSION,
        name=record.name,
        summary=(),
        footprint=size,
        rom_bytes=size.rom_bytes,
        ram_bytes=size.ram_bytes,
        macs=sum(layer.macs for layer in layers),
        offloaded=_offloaded(layers, targets) if explanation is None else explanation.offloaded,
        targets=targets,
        reasons=_reasons(explanation),
        regions=_regions(explanation, profile),
        memories=_memories(record, steps),
        layers=layers,
        steps=steps,
        tensors=_tensors(record),
        of_artifact=explanation is None,
        profiled=measured.runs,
        uma_version=record.uma_version,
        plugins=dict(record.plugins),
        notes=record.notes,
        rows=record.rows,
    )
    return dataclasses.replace(result, summary=summary(result))


def _steps(record: ArtifactRecord, profile: Profile | None) -> tuple[StepRow, ...]:
    sizes = {buffer.name: buffer.bytes for buffer in record.buffers}
    times = profile.calls if profile is not None else (None,) * len(record.calls)
    rows, chains = [], chains_of(record.calls)
    for number, (call, time) in enumerate(zip(record.calls, times, strict=True)):
        counter = _counter(profile, call.device)
        cycles = None if time is None else time.counted.get(counter)
        counted = () if time is None else time.parts
        parts = tuple(PartRow(part.layer, part.counted[counter]) for part in counted if counter in part.counted)
        rows.append(
            StepRow(
                number,
                call.kernel,
                call.kernel,
                call.layers,
                call.device or call.host,
                call.op,
                call.macs,
                sum(sizes[name] for name in set(call.arguments)),
                call.constant_bytes,
                None if time is None or time.is_simulated else time.median_ns / 1e3,
                cycles,
                parts,
                None if time is None else time.times,
                chains[number],
            )
        )
    return tuple(rows)


def titled_by_model(steps: Sequence[StepRow], layers: Sequence[LayerRow]) -> tuple[StepRow, ...]:
    """The steps, each with the name of the layer that costs most of those that it has a name of, as its title."""
    row_of = {name: layer for layer in reversed(layers) for name in layer.names}
    titled = []
    for step in steps:
        rows = {row.number: row for row in (row_of.get(name) for name in step.layers) if row is not None}
        costliest = max(rows.values(), key=lambda row: (row.macs, -row.number), default=None)
        if costliest is not None:
            more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
            step = dataclasses.replace(step, title=f"{costliest.name}{more}")
        titled.append(step)
    return tuple(titled)


def _counter(profile: Profile | None, label: str | None) -> str:
    """The name of a device's counter of cycles."""
    clock = None if profile is None else profile.clocks.get(label or "")
    return "cycles" if clock is None else clock.cycles


def _layers_of_model(build: Build, explanation: Explanation, steps: Sequence[StepRow]) -> tuple[LayerRow, ...]:
    assert build.placement is not None
    flows = op_flows(build.placement.source)
    at = {id(op): number for number, op in enumerate(explanation.ops)}
    layer_of = {at[id(op)]: layer.number for layer in explanation.layers for op in layer.ops}
    times, cycles = _by_layer(explanation.layers, steps)
    rows = []
    for layer in explanation.layers:
        ops = [flows[at[id(op)]] for op in layer.ops]
        takes = sorted({layer_of[source] for flow in ops for source in flow.inputs} - {layer.number})
        counted = [op for op in layer.ops if not op.is_free]
        last = ops[-1]
        why = {Why(owner, sentence): None for owner, sentence in explanation.reasons_of(layer)}
        rows.append(
            LayerRow(
                number=layer.number,
                name=layer.name,
                names=layer.layers,
                targets=tuple(dict.fromkeys(explanation.runs(op) for op in counted or layer.ops)),
                region=next((op.region for op in layer.ops if op.region is not None), None),
                ops=len(layer.ops),
                free=not counted,
                macs=layer.macs,
                weight_bytes=sum(flow.constant_bytes for flow in ops),
                output_bytes=last.output_bytes,
                shape=last.output.shape,
                dtype=last.output.dtype,
                time_us=times.get(layer.number),
                cycles=cycles.get(layer.number),
                inputs=tuple(takes),
                why=tuple(why),
            )
        )
    return tuple(rows)


def _by_layer(layers: Sequence[Layer], steps: Sequence[StepRow]) -> tuple[dict[int, float], dict[int, float]]:
    """Time and cycles of layers, by number: of those that steps, or the parts that devices tell apart, have alone."""
    of_name = {name: layer.number for layer in reversed(layers) for name in layer.layers}
    times: dict[int, float] = {}
    cycles: dict[int, float] = {}
    shared: set[int] = set()
    for step in steps:
        numbers = {of_name[name] for name in step.layers if name in of_name}
        if len(numbers) != 1:
            shared |= numbers if step.time_us is not None else set()
        elif step.time_us is not None:
            times[min(numbers)] = times.get(min(numbers), 0.0) + step.time_us
        counted = step.parts or ((PartRow(step.layers[0], step.cycles),) if len(numbers) == 1 and step.cycles else ())
        for part in counted:
            number = of_name.get(part.layer)
            if number is not None:
                cycles[number] = cycles.get(number, 0) + part.cycles
    return {number: time for number, time in times.items() if number not in shared}, cycles


def _layers_of_calls(record: ArtifactRecord, steps: Sequence[StepRow]) -> tuple[LayerRow, ...]:
    """A row for each call that computes something, as far as an artifact tells."""
    computes = _computing(record, steps)
    number_of = {step.number: number for number, step in enumerate(computes)}
    buffers = {buffer.name: buffer for buffer in record.buffers}
    digits = max(2, len(str(len(computes) - 1)))
    rows = []
    for number, step in enumerate(computes):
        call = record.calls[step.number]
        arguments = [buffers[name] for name in dict.fromkeys(call.arguments)]
        values = [one for one in arguments if one.role in ("intermediate", "output")]
        results = [one for one in values if one.first_step == step.number]
        takes = {number_of[one.first_step] for one in values if one.first_step in number_of} - {number}
        rows.append(
            LayerRow(
                number=number,
                name=f"{number:0{digits}} {step.op or step.kernel}",
                names=call.layers,
                targets=(step.target,),
                region=None if call.device is None else call.kernel,
                ops=1,
                free=False,
                macs=step.macs or 0,
                weight_bytes=step.constant_bytes,
                output_bytes=sum(one.bytes for one in results),
                shape=call.shape,
                dtype=results[-1].dtype if results else None,
                time_us=step.time_us,
                cycles=step.cycles,
                inputs=tuple(sorted(takes)),
                why=(),
            )
        )
    return tuple(rows)


def _computing(record: ArtifactRecord, steps: Sequence[StepRow]) -> list[StepRow]:
    return [step for step in steps if record.calls[step.number].arguments]


def _targets(
    record: ArtifactRecord, layers: Sequence[LayerRow], explanation: Explanation | None, profile: Profile | None
) -> tuple[TargetRow, ...]:
    if explanation is None:
        labels = dict.fromkeys(
            [device.label for device in record.devices] + [host.label for host in record.compile.hosts]
        )
        devices = {device.label for device in record.devices}
        shares = [(label, None, sum(one.macs for one in layers if label in one.targets), None) for label in labels]
        return tuple(
            TargetRow(label, label not in devices, _text(record, label), ops, macs, *_cycles(profile, label, None))
            for label, ops, macs, _ in shares
        )
    return tuple(
        TargetRow(
            share.label,
            share.label not in explanation.accelerators,
            text,
            share.ops,
            share.macs,
            *_cycles(profile, share.label, None if share.cost is None else share.cost.cycles),
        )
        for share, text in zip(explanation.shares(), record.targets, strict=True)
    )


def _text(record: ArtifactRecord, label: str) -> str:
    """The target with that label, as far as the artifact tells which it is."""
    kinds = {device.label: device.kind for device in record.devices}
    wanted = kinds.get(label, label)
    return next((text for text in record.targets if text.split(" ")[0].rstrip(":") in (label, wanted)), label)


def _cycles(profile: Profile | None, label: str, estimated: float | None) -> tuple[float | None, bool]:
    counted = None if profile is None else counted_cycles(profile, label)
    return (estimated, False) if counted is None else (counted, True)


def _offloaded(layers: Sequence[LayerRow], targets: Sequence[TargetRow]) -> float:
    """The part of accelerators in the multiply-accumulates; in the calls of a model without any."""
    hosts = {target.label for target in targets if target.is_host}
    away = [layer for layer in layers if not hosts & set(layer.targets)]
    macs = sum(layer.macs for layer in layers)
    return sum(layer.macs for layer in away) / macs if macs else len(away) / (len(layers) or 1)


def _reasons(explanation: Explanation | None) -> tuple[ReasonRow, ...]:
    counts = () if explanation is None else explanation.reasons()
    return tuple(ReasonRow(one.first.owner, one.sentence, one.layers, one.ops, one.macs) for one in counts)


def _regions(explanation: Explanation | None, profile: Profile | None) -> tuple[RegionRow, ...]:
    if explanation is None:
        return ()
    counted: Mapping[str, int | None] = {} if profile is None else counted_by_region(explanation.costs, profile)
    return tuple(
        RegionRow(
            one.region,
            one.label,
            one.layers,
            None if one.cost is None else one.cost.cycles,
            None if one.cost is None else one.cost.seconds,
            counted.get(one.region),
        )
        for one in explanation.costs
    )


def _memories(record: ArtifactRecord, steps: Sequence[StepRow]) -> tuple[MemoryRow, ...]:
    sizes = {f"{device.label}.{one.name}": one for device in record.devices for one in device.memories}
    rows = []
    placed: dict[str, list[BufferRecord]] = {}
    for buffer in record.buffers:
        placed.setdefault(buffer.pool or "", []).append(buffer)
    for peak in memory_peaks(record):
        pool, alive = sizes.get(peak.pool), {one.name for one in peak.alive}
        ordered = sorted(placed[peak.pool], key=lambda one: (one.offset or 0, one.first_step, one.name))
        rows.append(
            MemoryRow(
                peak.pool,
                peak.bytes if pool is None else pool.used_bytes,
                None if pool is None else pool.bytes,
                peak.alive_bytes,
                peak.step,
                tuple(_placed(one, steps[one.first_step], one.name in alive) for one in ordered),
            )
        )
    return tuple(rows)


def _placed(buffer: BufferRecord, step: StepRow, at_peak: bool) -> PlacedRow:
    return PlacedRow(
        buffer.name,
        buffer.role,
        buffer.offset or 0,
        buffer.bytes,
        buffer.first_step,
        buffer.last_step,
        step.target,
        "the caller" if buffer.role == "input" else step.title,
        at_peak,
    )


def _tensors(record: ArtifactRecord) -> tuple[TensorRow, ...]:
    rows = []
    for role, tensors in (("input", record.inputs), ("output", record.outputs)):
        for one in tensors:
            quantisation = one.quantization
            how = None if quantisation is None else f"{quantisation.scale:.6g} * (q - {quantisation.zero_point})"
            rows.append(TensorRow(one.name, "input" if role == "input" else "output", one.shape, one.dtype, how))
    return tuple(rows)
