"""The cheapest placement of whole models on the accelerators that the project has, by costs that repeat: never above
eager in any order, the host alone, nor the paper's operator-level search."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.hosts import Formula
from benchmarks.placement import M4F, SCENARIOS, SPEECH, Scenario, gain, placed
from tests._support.conv_nets import tc_resnet8, to_onnx
from tests._support.paper import by_paper
from tests._support.real_models import FILES

from uma.partition import Decision

ROOT = Path(__file__).resolve().parent.parent.parent

NPUS = ("ethosu_like", "matrix_unit", "stream_machine", "ultra_trail")
COMPOSITES = [
    *((npu,) for npu in NPUS),
    *itertools.combinations(NPUS, 2),
    NPUS,
    ("blas",),
    (*NPUS, "blas"),
]
OWN = {"digits": "examples/digits/digits.onnx", "spotter": "examples/keyword_spotter/spotter.onnx"}
OTHERS = ("okay_nabu.tflite", "tcresnet8_fp32.onnx", "bert_tiny_s128_fp32.onnx")

FAR = {"launch_ns": 50_000, "link": {"ns": 20_000, "bytes_per_s": 50e6}}
CLOSE = Formula(kernel=50.0, product=0.5, depthwise=1.0, element=2.0)
"""A host that is about as fast as the accelerators."""


def decided(model: Path, scenario: Scenario) -> Decision:
    """What is the cheapest placement; what would be built is what was costed: as many regions of each target."""
    placement, decision = placed(model, scenario)
    made = Counter(region.owner for region in placement.regions.values())
    assert made == Counter(offer.owner for offer in decision.chosen if offer.claims)
    return decision


def check(decision: Decision, accelerators: int) -> None:
    """Proven, and no dearer than eager in any order, than the host alone, and than what the paper finds. Eager's first
    placement has no cost where an owner refuses a part of it."""
    assert decision.result.is_proven
    assert len(decision.pool.eager) == min(math.factorial(accelerators), 24)
    assert decision.host_ns is not None and gain(decision) >= 1
    paper = by_paper(decision)
    assert decision.cost_ns <= paper.merged_ns <= paper.chosen_ns
    plan = decision.result.plans[0]
    assert decision.pool.cover.fault(plan) is None and decision.pool.cover.cost(plan) == decision.cost_ns


def written(folder: Path) -> Path:
    path = folder / f"{SPEECH}.onnx"
    path.write_bytes(to_onnx(tc_resnet8()))
    return path


@pytest.mark.soak
@pytest.mark.parametrize(("name", "model"), [(name, model) for name in SCENARIOS for model in SCENARIOS[name].models])
def test_scenarios(name: str, model: str, models: Path, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    decision = decided(written(tmp_path) if model == SPEECH else models / FILES[f"{model}_tflite"], scenario)
    check(decision, len(scenario.accelerators))
    assert gain(decision) >= scenario.least.get(model, 1.0)


def test_the_order_of_priority_decides_over_a_microcontroller(models: Path) -> None:
    """Eager is next to the optimum in one order, and far from it in the other."""
    decision = decided(models / FILES["kws_int8_tflite"], SCENARIOS["m4f"])
    check(decision, 2)
    ratios = {order: ns / decision.cost_ns for order, ns in decision.eager_ns.items()}
    assert ratios["stream_machine", "matrix_unit"] < 1.02
    assert ratios["matrix_unit", "stream_machine"] >= 1.3


@pytest.mark.few(3)
@pytest.mark.parametrize("costs", [{}, dict.fromkeys(NPUS, FAR)], ids=["shared", "far"])
@pytest.mark.parametrize("host", [M4F, CLOSE], ids=["m4f", "close"])
@pytest.mark.parametrize("accelerators", COMPOSITES, ids="+".join)
def test_composites(accelerators: tuple[str, ...], host: Formula, costs: dict[str, dict[str, object]]) -> None:
    told = {label: one for label, one in costs.items() if label in accelerators}
    check(decided(ROOT / OWN["digits"], Scenario("", (), accelerators, host, told)), len(accelerators))


@pytest.mark.soak
@pytest.mark.parametrize("accelerators", COMPOSITES, ids="+".join)
@pytest.mark.parametrize("name", [*FILES, *OTHERS, "spotter", SPEECH])
def test_models_of_the_repository(name: str, accelerators: tuple[str, ...], models: Path, tmp_path: Path) -> None:
    if name in FILES:
        path = models / FILES[name]
    elif name in OTHERS:
        path = models / "others" / name
    else:
        path = written(tmp_path) if name == SPEECH else ROOT / OWN[name]
    check(decided(path, Scenario("", (), accelerators, CLOSE)), len(accelerators))
