"""How busy each layer of real models keeps the multipliers: the table of README.md that docs/pictures draws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from uma.lowering.build_targets import resolve_targets
from uma.lowering.region_lowering import regions_of
from uma.pipeline.driver import start_build
from uma.pipeline.loading import load_model
from uma.plugins import PluginEntry, PluginHost
from uma_ethosu_like.cost import Event, Work, stream_cycles, timeline
from uma_ethosu_like.machine import Machine
from uma_ethosu_like.operations import Operation
from uma_ethosu_like.plan import plan_region

README = Path(__file__).parent.parent / "README.md"
MODELS = ("kws_ref_model", "ad01_int8", "pretrainedResnet_quant", "vww_96_int8")
PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("ethosu_like", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
        PluginEntry("ethosu", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
        PluginEntry("vela", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
    ]
)


@dataclass
class Layer:
    """One as the machine does it: from the end of the one before to its own, waits for copies among it."""

    names: tuple[str, ...]
    operations: list[Operation] = field(default_factory=list)
    macs: int = 0
    cycles: int = 0

    def row(self, number: int, machine: Machine) -> str:
        """Of the table: its number instead of its name, as names in model files are long."""
        [first, *others] = dict.fromkeys(self.operations)
        text = first.kind.replace("_", " ")
        if first.window.kernel != (1, 1):
            text += " {}x{}".format(*first.window.kernel)
        text += f", and {len(others)} more" if others else ""
        used = 100 * self.macs / (self.cycles * machine.macs)
        return f"{number} | {text} | {self.macs:,} | {self.cycles:,} | {used:.1f} %"


def stream_of(model: Path, machine: Machine) -> list[Event]:
    """The steps, copies and waits of a model that is one region."""
    loaded = load_model(model)
    build = start_build(loaded, resolve_targets(["ethosu_like", "c"], PLUGINS))
    build.run(loaded.form)
    assert build.fused is not None
    [(region, _)] = regions_of(build.fused)
    return plan_region(build.matches.region(build.fused, region)).stream(machine).works


def layers(events: list[Event], machine: Machine) -> Iterator[Layer]:
    """The layers of a stream in order."""
    layer, begun = None, 0
    for event, end in timeline(events, machine):
        if not isinstance(event, Work):
            continue
        step, one = event.step, event.step.operation
        if layer is None or layer.names != one.layers:
            if layer is not None:
                yield layer
            layer = Layer(one.layers)
        layer.operations.append(one)
        rows, columns, _ = step.ofm.shape
        layer.macs += 0 if step.filter is None else step.filter.weights.size * rows * columns
        layer.cycles += end - begun
        begun = end
    assert layer is not None
    yield layer


@pytest.mark.soak
def test_the_multipliers_work_as_the_table_says(models: Path, hold_page: Any) -> None:
    """``pytest --update-golden`` writes it, `python -m docs.generate --committed` draws it."""
    machine = Machine()
    lines = ["| model | layer | operation | MACs | cycles | utilisation |", "| --- " * 6 + "|"]
    for name in MODELS:
        events = stream_of(models / "mlperf-tiny" / f"{name}.tflite", machine)
        found = list(layers(events, machine))
        assert sum(one.cycles for one in found) == stream_cycles(events, machine)
        lines += [f"| {name} | {one.row(number, machine)} |" for number, one in enumerate(found, start=1)]
    hold_page(README, "layers", "\n".join(lines))
