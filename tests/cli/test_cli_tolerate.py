"""``--tolerate``: consent to passes that change results, of all commands that build."""

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
TOLERATE = ("--tolerate", "npu.round")


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
    told = f"pass npu.round (uma-npu 1.0) is not run: what the model gives would be off by {tolerance}; "
    told += "--tolerate npu.round runs it"
    assert told in done.out
    done = uma("explain", "net.py", *TARGETS, *TOLERATE)
    assert f"pass npu.round (uma-npu 1.0) changes what the model gives, by {tolerance}\n" in done.out
    record = uma("explain", "net.py", *TARGETS, *TOLERATE, "--json").json["tolerate"]
    assert (len(record["passes"]), record["withheld"], record["offloaded_with_tolerance"]) == (1, [], None)


def test_explain_tells_what_it_would_bring(uma: Uma, install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def rule(expr: Expr) -> Expr | None:
        is_pool = isinstance(expr, Call) and expr.op_name == "nn.global_avg_pool"
        return call("nn.global_max_pool", *expr.args) if is_pool and isinstance(expr, Call) else None

    made = [Pass("PRE_PARTITIONING", "round", of_graph(rule), tolerance=Tolerance(relative=0.5))]
    entries = [*toy("npu", "nn.global_max_pool", passes=lambda: made), *entry_of(HOST)]
    monkeypatch.setattr("uma.plugins.default_host", lambda: PluginHost(lambda: entries))
    assert "% of the ops with --tolerate npu.round\n" in uma("explain", "net.py", *TARGETS).out


def test_verify(uma: Uma, install: Any) -> None:
    install(1.001)
    command = ("verify", "net.py", *TARGETS, *TOLERATE, "--samples", "1")
    done = uma(*command)
    assert done.code == 0
    assert "pass npu.round, results of the model beside those without it: " in done.out
    assert ", within 0.01 of the largest element\n" in done.out
    install(0.0)
    done = uma(*command, "--json")
    assert done.code == 7
    assert "pass npu.round of PRE_PARTITIONING, of plugin uma-npu 1.0, is off by " in done.err
    assert ", where it declares 0.01 of the largest element" in done.err
    (row,) = done.json["tolerated"]
    assert (row["pass"], row["region"], row["ok"], row["compared"]) == ("npu.round", None, False, 2)


def test_build(uma: Uma, install: Any, folder: Path) -> None:
    install(1.001)
    assert uma("build", "net.py", *TARGETS, *TOLERATE, "--no-compile", "-o", "out").code == 0
    assert '"name": "npu.round"' in (folder / "out" / "metadata.json").read_text()
    assert "an artifact is built already" in uma("run", "out", *TOLERATE).error(2)
    wrong = uma("build", "net.py", *TARGETS, "--tolerate", "npu.rund", "--no-compile", "-o", "other").error(2)
    assert "no pass that declares a tolerance is called 'npu.rund'" in wrong
    assert "did you mean 'npu.round'" in wrong.lower()


def test_completion(install: Any) -> None:
    install(1.001)
    assert list(_COMPLETERS["tolerate"]("", argparse.Namespace(target=["npu", "plain"]))) == ["npu.round"]
