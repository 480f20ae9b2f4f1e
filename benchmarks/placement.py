"""The cheapest placement of real models on the accelerators of this repository, by costs that repeat:
python -m benchmarks placement [NAME ...].

Prints for each scenario and model what the cheapest plan takes, and how many times as long the others take: each
accelerator in turn all that it can (`eager`, in every order of priority), the host alone, and the choice of the paper's
operator-level search, as it is and with what touches merged. Costs of accelerators are their plugins' estimates, those
of hosts come from formulas and tables (`benchmarks.hosts`): nothing is measured, and nothing here depends on load.

python -m benchmarks placement growth prints how the search grows instead, see `benchmarks.growth`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from uma.lowering.build_targets import resolve_targets
from uma.partition import CostTable, Decision, Placement
from uma.pipeline.driver import start_build
from uma.pipeline.loading import Model, load_model
from uma.plugins import default_host
from uma.tuning import with_costs

from . import growth
from .cases import real_cases
from .hosts import Formula, Host, Kept, OnHost

__all__ = ["MODELS", "SCENARIOS", "Scenario", "gain", "line", "main", "placed"]

MODELS = ("ad_int8", "kws_int8", "resnet8_int8", "vww_int8")
SPEECH = "tc_resnet8"
"""A network of the shape of TC-ResNet8 with weights of 6 bits, which `ultra_trail` takes."""

M4F = Formula(kernel=200 / 0.12, product=1.1 / 0.12, depthwise=2.5 / 0.12, element=2 / 0.12)
"""Like a Cortex-M4F at 120 MHz: cycles by which a formula comes to what is counted of the models on one."""

SLOW_MCU = Formula(kernel=1000.0, product=36.0, depthwise=36.0, element=100.0)
"""A microcontroller that takes 96 ms for the products of kws_int8."""

X86 = Kept(factor=0.8)
"""An x86 by its default lowering: what was measured while others used the machine, less a fifth. On an idle one both
models take that much less."""

_FAR: Mapping[str, Any] = {"launch_ns": 50_000, "link": {"ns": 20_000, "bytes_per_s": 50e6}}
"""An accelerator that is slow to start, with a memory of its own behind a slow link."""


@dataclass(frozen=True)
class Scenario:
    """Some models on some targets.

    Args:
        what: the targets in words.
        models: which.
        accelerators: in order of priority.
        host: what ``c`` takes.
        costs: the targets of a table of costs.
        least: of some models: how many times as long the best of eager's orders and the host alone have to take.
    """

    what: str
    models: Sequence[str]
    accelerators: Sequence[str]
    host: Host
    costs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    least: Mapping[str, float] = field(default_factory=dict)


_EXAMPLES = ("stream_machine", "matrix_unit")
_FAST = {"stream_machine": {"clock_hz": 1e9}, "matrix_unit": {"clock_hz": 2e9}}
_NPUS = ("ethosu_like", *_EXAMPLES, "ultra_trail")

SCENARIOS: Mapping[str, Scenario] = MappingProxyType(
    {
        "m4f": Scenario("like a Cortex-M4F at 120 MHz, both examples at 100 MHz", MODELS, _EXAMPLES, M4F),
        "m4f-far": Scenario(
            "the same, with launches of 50 us, and copies of 20 us and 50 MB/s",
            MODELS,
            _EXAMPLES,
            M4F,
            dict.fromkeys(_EXAMPLES, _FAR),
        ),
        "x86": Scenario(
            "an x86 by its default lowering, the stream machine at 1 GHz, the matrix unit at 2 GHz",
            MODELS[2:],
            _EXAMPLES,
            X86,
            _FAST,
            {"resnet8_int8": 1.15, "vww_int8": 1.3},
        ),
        "speech": Scenario(
            "a slow microcontroller, UltraTrail at 250 kHz, both examples at 100 MHz",
            (SPEECH,),
            ("ultra_trail", "matrix_unit", "stream_machine"),
            SLOW_MCU,
            least={SPEECH: 1.2},
        ),
        "all": Scenario("like a Cortex-M4F at 120 MHz, every NPU of the repository", (MODELS[1], SPEECH), _NPUS, M4F),
        "all-far": Scenario(
            "the same, with launches of 50 us, and copies of 20 us and 50 MB/s",
            (MODELS[1], SPEECH),
            _NPUS,
            M4F,
            dict.fromkeys(_NPUS, _FAR),
        ),
    }
)


def placed(model: Model, scenario: Scenario) -> tuple[Placement, Decision]:
    """The cheapest placement of a model, and by what it was chosen.

    Raises:
        UmaError: it cannot be read or placed.
    """
    table = CostTable.from_json({"schema_version": 1, "targets": scenario.costs})
    partitioner = OnHost(table, host=scenario.host)
    members = with_costs(resolve_targets([*scenario.accelerators, "c"], default_host(), partitioner))
    loaded = load_model(model, members)
    build = start_build(loaded, members, "partition")
    build.run(loaded.form, "partition")
    assert build.placement is not None
    decision = build.placement.decision
    assert decision is not None
    return build.placement, decision


def gain(decision: Decision) -> float:
    """How many times as long as the plan the best of eager's orders and the host alone takes."""
    others = [*decision.eager_ns.values(), *([] if decision.host_ns is None else [decision.host_ns])]
    return min(others) / decision.cost_ns


HEAD = ("model", "plan us", "gain", "eager, by order", "host", "paper", "merged", "regions", "s")


def line(name: str, decision: Decision, paper_ns: tuple[int, int] | None, seconds: float) -> tuple[str, ...]:
    """A row of the table, by `HEAD`.

    Args:
        name: of the model.
        decision: what is the cheapest.
        paper_ns: what the paper's choice takes, as it is and merged; None where it is not known.
        seconds: of this process.
    """
    plan = decision.cost_ns
    ratios = {order: ns / plan for order, ns in decision.eager_ns.items()}
    if len(ratios) > 2:
        orders = f"{min(ratios.values()):.2f} to {max(ratios.values()):.2f} in {len(ratios)} orders"
    else:
        orders = ", ".join(f"{order[0]} first {ratio:.2f}" for order, ratio in ratios.items())
    host = "-" if decision.host_ns is None else f"{decision.host_ns / plan:.2f}"
    paper = ("-", "-") if paper_ns is None else tuple(f"{ns / plan:.2f}" for ns in paper_ns)
    counts: dict[str, int] = {}
    for offer in decision.chosen:
        counts[offer.owner] = counts.get(offer.owner, 0) + 1
    regions = ", ".join(f"{label} {count}" for label, count in counts.items())
    proven = "" if decision.result.is_proven else " (not proven)"
    return name, f"{plan / 1e3:.1f}{proven}", f"{gain(decision):.2f}", orders, host, *paper, regions, f"{seconds:.1f}"


def models_of(names: Sequence[str], folder: Path) -> Iterator[tuple[str, Path]]:
    """The files of models that are there."""
    for name in names:
        if name == SPEECH:
            nets = import_module("tests._support.conv_nets")
            path = folder / f"{SPEECH}.onnx"
            path.write_bytes(nets.to_onnx(nets.tc_resnet8()))
            yield name, path
        for case in real_cases([name] if name != SPEECH else []):
            yield name, case.files["tflite"]


def _paper(decision: Decision) -> tuple[int, int]:
    found = import_module("tests._support.paper").by_paper(decision)
    return found.chosen_ns, found.merged_ns


def say(scenarios: Sequence[str], out: Callable[[str], None]) -> bool:
    """Print the table of some scenarios; gives whether every model gains what it has to."""
    enough = True
    with tempfile.TemporaryDirectory(prefix="uma-placement-") as name:
        for key in scenarios:
            scenario = SCENARIOS[key]
            out(f"{key}: {scenario.what}")
            rows: list[tuple[str, ...]] = [HEAD]
            for model, path in models_of(scenario.models, Path(name)):
                start = time.process_time()
                _, decision = placed(path, scenario)
                seconds = time.process_time() - start
                rows.append(line(model, decision, _paper(decision), seconds))
                enough &= gain(decision) >= scenario.least.get(model, 1.0)
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            for row in rows:
                out("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return enough


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks placement",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = (*SCENARIOS, "growth", *growth.KINDS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(names)}; by default all scenarios")
    args = parser.parse_args(arguments)
    if unknown := [name for name in args.names if name not in names]:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(names)}")
    kinds = growth.KINDS if "growth" in args.names else [name for name in args.names if name in growth.KINDS]
    growth.say(kinds, _print)
    wanted = [name for name in args.names if name in SCENARIOS]
    return 0 if say(wanted if args.names else list(SCENARIOS), _print) else 1


def _print(text: str) -> None:
    print(text, flush=True)
