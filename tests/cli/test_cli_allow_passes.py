"""``--allow LABEL.PASS``: the opt-in to passes that change results, of all commands that build."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
from tests._support.passes import of_graph
from tests._support.plugins import HOST, entry_of, toy
from tests._support.small_models import Uma

from uma.cli.completion import _COMPLETERS
from uma.hookspecs import Pass, Tolerance
from uma.plugins import PluginHost
from uma.relay import Call, Expr, call, const

TARGETS = ("--target", "npu", "--target", "plain")
ALLOW = ("--allow", "npu.round=declared")


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs an accelerator with a pass that scales by other numbers."""

    def installed(factor: float) -> None:
        def rule(expr: Expr) -> Expr | None:
            if isinstance(expr, Call) and expr.op_name == "multiply":
                number = const([0.5 * factor, -0.25 * factor], "float32")
                return None if expr.args[1] is number else call("multiply", expr.args[0], number)
            return None

        made = [Pass("PRE_PARTITIONING", "round", of_graph(rule), tolerance=Tolerance(relative=0.01))]
        entries = [*toy("npu", "nn.relu", passes=lambda: made), *entry_of(HOST)]
        monkeypatch.setattr("uma.plugins.default_host", lambda: PluginHost(lambda: entries))

    return installed


def test_explain(uma: Uma, install: Any) -> None:
    install(1.001)
    tolerance = "at most 0.01 of the largest element"
    done = uma("explain", "net.py", *TARGETS)
    told = f"pass npu.round (uma-npu 1.0) is not run: the results of the model would be off by {tolerance}; "
    told += "--allow npu.round=declared runs it"
    assert told in done.out
    done = uma("explain", "net.py", *TARGETS, *ALLOW)
    row = ["npu.round", "-", "npu", "results of the model, PRE_PARTITIONING", "uma-npu 1.0", tolerance[8:]]
    assert row in [[cell.strip() for cell in line.split("  ") if cell] for line in done.out.splitlines()]
    record = uma("explain", "net.py", *TARGETS, *ALLOW, "--json").json["allowed"]
    assert (len(record["differences"]), record["offers"]) == (1, [])


def test_explain_tells_what_it_would_bring(uma: Uma, install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def rule(expr: Expr) -> Expr | None:
        is_pool = isinstance(expr, Call) and expr.op_name == "nn.global_avg_pool"
        return call("nn.global_max_pool", *expr.args) if is_pool and isinstance(expr, Call) else None

    made = [Pass("PRE_PARTITIONING", "round", of_graph(rule), tolerance=Tolerance(relative=0.5))]
    entries = [*toy("npu", "nn.global_max_pool", passes=lambda: made), *entry_of(HOST)]
    monkeypatch.setattr("uma.plugins.default_host", lambda: PluginHost(lambda: entries))
    assert "% of the ops with --allow npu.round=declared\n" in uma("explain", "net.py", *TARGETS).out


def test_verify(uma: Uma, install: Any) -> None:
    install(1.001)
    command = ("verify", "net.py", *TARGETS, *ALLOW, "--samples", "1")
    done = uma(*command)
    assert done.code == 0
    assert "--allow npu.round, 1 result compared with those without it: " in done.out
    assert ", all within their bounds\n" in done.out
    install(0.0)
    done = uma(*command, "--json")
    assert done.code == 7
    assert "pass npu.round of PRE_PARTITIONING, of plugin uma-npu 1.0, is off by " in done.err
    assert ", where it may be 0.01 of the largest element" in done.err
    (row,) = done.json["allowed"]
    assert (row["allowed"][0]["opt_in"], row["region"], row["ok"], row["compared"]) == ("npu.round", None, False, 2)


def test_build(uma: Uma, install: Any, folder: Path) -> None:
    install(1.001)
    assert uma("build", "net.py", *TARGETS, *ALLOW, "--no-compile", "-o", "out").code == 0
    assert '"opt_in": "npu.round"' in (folder / "out" / "metadata.json").read_text()
    assert "an artifact is built already" in uma("run", "out", *ALLOW).error(2)
    wrong = uma("build", "net.py", *TARGETS, "--allow", "npu.rund=declared", "--no-compile", "-o", "other").error(2)
    assert "no pass that declares a tolerance is called 'npu.rund'" in wrong
    assert "did you mean 'npu.round'" in wrong.lower()


def test_completion(install: Any) -> None:
    install(1.001)
    complete = _COMPLETERS["allow"]
    assert list(complete("", argparse.Namespace(target=["npu", "plain"])))[2:] == [
        "hybrid=litert",
        "hybrid=float",
        "npu.round=declared",
        "npu.round=off",
    ]
    assert list(complete("rounding:conv=", argparse.Namespace(target=None))) == [
        "rounding:conv=fixed-point",
        "rounding:conv=float",
    ]
