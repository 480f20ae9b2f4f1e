"""What regions cost: asked of their targets' plugins, summed, and shown by ``uma explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests._support.plugins import HOST, built, entry_of, members_of, toy
from tests._support.regions import CHAIN, OPS
from tests._support.small_models import NET, Uma

from uma.errors import PluginError
from uma.hookspecs import Cost
from uma.plugins import PluginHost
from uma.relay import Function
from uma.reports.explain import Explanation, explain
from uma.support.json_record import to_json
from uma.targets import Target

NAMES = ("nn.relu", "multiply")
"""What is taken of `CHAIN`: two regions, for the addition between them is the host's."""


def explained(estimate: Any, ops: tuple[str, ...] = NAMES) -> Explanation:
    return explain(built(CHAIN, members_of(toy("npu", *ops, estimate_cost=estimate))), costs=True)


def test_every_region_is_asked_about() -> None:
    asked = []

    def estimate(function: Function, target: Target) -> Cost:
        assert Target.current() is target
        asked.append((function.attr("Compiler"), target.kind.name, len(function.params)))
        return Cost(cycles=len(asked), seconds=0.5, bytes_moved=4 if len(asked) == 1 else None)

    found = explained(estimate)
    assert asked == [("npu", "npu", 1)] * 2
    assert [(one.region, one.label, one.layers, one.cost) for one in found.costs] == [
        ("npu_0", "npu", ("first",), Cost(cycles=1, seconds=0.5, bytes_moved=4)),
        ("npu_1", "npu", ("third",), Cost(cycles=2, seconds=0.5)),
    ]
    npu, host = found.shares()
    assert npu.cost == Cost(cycles=3, seconds=1.0) and host.cost is None
    record = to_json(found)
    assert [row["cost"] for row in record["targets"]] == [
        {"cycles": 3, "seconds": 1.0, "bytes_moved": None, "energy_j": None},
        None,
    ]
    assert record["regions"][0] == {
        "name": "npu_0",
        "target": "npu",
        "layers": ["first"],
        "cost": {"cycles": 1, "seconds": 0.5, "bytes_moved": 4, "energy_j": None},
    }


def test_what_is_not_known_of_one_is_not_known_of_all() -> None:
    found = explained(lambda function: Cost(cycles=1) if function.body.op.body.op_name == "nn.relu" else None)
    assert [one.cost for one in found.costs] == [Cost(cycles=1), None]
    assert [share.cost for share in found.shares()] == [None, None]
    assert to_json(found)["regions"][1]["cost"] is None
    assert [one.cost for one in explain(built(CHAIN, members_of(toy("npu", *OPS))), costs=True).costs] == [None]


def test_nobody_is_asked_who_need_not_be() -> None:
    members = members_of(toy("npu", *NAMES, estimate_cost=lambda: pytest.fail("asked")))
    assert explain(built(CHAIN, members)).costs == ()


@pytest.mark.parametrize(
    ("hook", "what"),
    [
        (lambda: 1 / 0, "failed in hook estimate_cost: ZeroDivisionError"),
        (lambda: 12, "gave 12 from hook estimate_cost"),
        (lambda: Cost(), "Cost has neither cycles nor seconds"),
    ],
)
def test_a_plugin_at_fault_is_named_with_the_layers(hook: Any, what: str) -> None:
    with pytest.raises(PluginError) as error:
        explained(hook)
    assert what in error.value.what
    assert "uma-npu 1.0" in f"{error.value.what} {error.value.where}"
    assert (error.value.where or "").startswith("first, region 'npu_0'")


@pytest.fixture
def uma(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Uma:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)

    def estimate(function: Function) -> Cost | None:
        return Cost(cycles=1234.4, seconds=2e-6, energy_j=0.25) if len(function.body.shape) == 4 else None

    entries = [*toy("npu", "nn.relu", "multiply", "nn.softmax", estimate_cost=estimate), *toy("gpu", "nn.max_pool2d")]
    host = PluginHost(lambda: [*entries, *entry_of(HOST)])
    monkeypatch.setattr("uma.plugins.default_host", lambda: host)
    return Uma(capsys)


def test_tables_for_people(uma: Uma) -> None:
    done = uma("explain", "net.py", "--target", "npu", "--target", "gpu", "--target", "plain")
    assert done.code == 0, done.err
    table = done.out[done.out.index("estimates") :].splitlines()
    assert table[0] == "estimates of what one run of each region takes:"
    assert [line.split() for line in table[1:6]] == [
        ["region", "target", "cycles", "seconds", "joules"],
        ["npu_0", "npu", "1234", "2e-06", "0.25"],
        ["gpu_0", "gpu", "-", "-", "-"],
        ["npu_1", "npu", "1234", "2e-06", "0.25"],
        ["npu_2", "npu", "-", "-", "-"],
    ]
    assert table[6].split() == ["target", "ops", "MACs", "share", "of", "MACs"]
    assert [line.index("cycles") + len("cycles") for line in table[1:2]] == [table[2].index("1234") + 4]


def test_totals_for_people(uma: Uma) -> None:
    done = uma("explain", "net.py", "--target", "npu", "--target", "plain")
    assert "cycles" not in done.out.splitlines()[-3]
    record = uma("explain", "net.py", "--target", "npu", "--target", "plain", "--json").json
    assert [row["cost"] is None for row in record["regions"]] == [False, False, True]


def test_no_estimates_no_columns(uma: Uma) -> None:
    done = uma("explain", "net.py", "--target", "gpu", "--target", "plain")
    assert "estimates" not in done.out and "cycles" not in done.out
