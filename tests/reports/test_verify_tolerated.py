"""Passes that declare a tolerance: run by consent alone, recorded, and held to what they declare."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder
from tests._support.passes import of_graph
from tests._support.plugins import HOST, entry_of, module_of, toy

import uma
from uma.contract.passes import PHASES
from uma.errors import PluginError, UsageError
from uma.hookspecs import Pass, Tolerance
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.loading import load_model
from uma.pipeline.tolerate import tolerated_passes
from uma.plugins import PluginHost
from uma.program import Program
from uma.relay import Call, Expr, Function, IRModule, TensorType, Var, call, const, rewrite
from uma.support.json_record import to_json
from uma.verification.pass_drift import ToleranceCheck
from uma.verification.results import Verification

X = Var("x", TensorType((1, 4), "float32"))
B = Var("b", TensorType((1, 4), "int32"))


def model(data: Var = X) -> IRModule:
    """relu(x) * 3, then what no accelerator takes."""
    relu = call("nn.relu", data)
    scaled = call("multiply", relu, const(np.array(3, data.dtype)))
    return module_of(call("negative", scaled), {relu: ["relu"], scaled: ["scaled"]})


def other_factor(factor: float) -> Any:
    """A rewrite that multiplies by something else."""

    def rule(expr: Expr) -> Expr | None:
        if isinstance(expr, Call) and expr.op_name == "multiply":
            number = const(np.array(factor, expr.dtype))
            return None if expr.args[1] is number else call("multiply", expr.args[0], number)
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            inner = Function(expr.op.params, rewrite(expr.op.body, rule), dict(expr.op.attrs))
            return None if inner is expr.op else Call(inner, expr.args)
        return None

    return of_graph(rule)


def plugins(factor: float, tolerance: Tolerance | None, phase: Any = PHASES[0], scope: Any = "module") -> PluginHost:
    made = [Pass(phase, "round", other_factor(factor), scope=scope, tolerance=tolerance)]
    entries = [*toy("npu", "nn.relu", "multiply", passes=lambda: made), *entry_of(HOST)]
    return PluginHost(lambda: entries)


def verified(host: PluginHost, module: IRModule | None = None, tolerate: Any = "npu.round") -> Verification:
    return uma.verify(module or model(), ["npu", "plain"], plugins=host, tolerate=tolerate, samples=1)


WAYS = [("PRE_PARTITIONING", "module"), ("POST_PARTITIONING_0", "regions"), ("POST_PARTITIONING_1", "module")]


@pytest.mark.parametrize(("phase", "scope"), WAYS)
class TestPass:
    def test_honest(self, phase: Any, scope: Any) -> None:
        found = verified(plugins(3.003, Tolerance(relative=2e-3), phase, scope))
        assert found.ok
        (check,) = found.tolerated
        assert (check.step, check.phase, check.plugin) == ("npu.round", phase, "uma-npu 1.0")
        assert check.region == ("npu_0" if scope == "regions" else "")
        assert 9e-4 < check.relative < 1.1e-3
        assert 0 <= check.equal < check.compared
        assert check.sample
        (drift,) = found.drifts
        assert drift.largest > 0

    def test_lying(self, phase: Any, scope: Any) -> None:
        found = verified(plugins(3.3, Tolerance(relative=2e-3), phase, scope))
        assert not found.ok
        assert all(check.difference.ok for check in (*found.kernels, *found.outputs))
        (check,) = found.tolerated
        assert not check.ok


def test_without_consent_it_is_not_run() -> None:
    found = verified(plugins(3.3, Tolerance(relative=2e-3)), tolerate=())
    assert (found.ok, found.tolerated, found.drifts) == (True, (), ())


def test_one_that_declares_nothing_may_change_nothing() -> None:
    assert not verified(plugins(3.3, None), tolerate=()).ok


def test_integers_count_in_steps() -> None:
    small = call("clip", B, a_min=0, a_max=1)
    module = module_of(call("negative", call("multiply", small, const(np.int32(3)))))
    found = verified(plugins(4, Tolerance(1)), module)
    assert (found.ok, found.tolerated[0].steps) == (True, 1)
    found = verified(plugins(5, Tolerance(1)), module)
    assert (found.ok, found.tolerated[0].steps, found.tolerated[0].largest) == (False, 2, "2 steps")


def test_two_passes_are_each_held_to_their_own() -> None:
    made = [
        Pass("PRE_PARTITIONING", "round", other_factor(3.003), tolerance=Tolerance(relative=2e-3)),
        Pass("POST_PARTITIONING_0", "again", other_factor(3.3), scope="regions", tolerance=Tolerance(relative=2e-3)),
    ]
    entries = [*toy("npu", "nn.relu", "multiply", passes=lambda: made), *entry_of(HOST)]
    found = verified(PluginHost(lambda: entries), tolerate=["npu.*"])
    assert [(check.step, check.ok) for check in found.tolerated] == [("npu.round", True), ("npu.again", False)]
    assert {check.against for check in found.outputs} == {"inspected", "consented", "canonical", "first run"}


def test_one_that_changes_nothing_is_not_recorded() -> None:
    host = plugins(3.0, Tolerance(relative=2e-3))
    assert verified(host).tolerated == ()
    assert uma.build(model(), ["npu", "plain"], plugins=host, tolerate="npu.round").metadata["tolerated"] == []


def test_it_is_recorded_in_the_artifact() -> None:
    host = plugins(3.003, Tolerance(1, 2e-3))
    artifact = uma.build(model(), ["npu", "plain"], plugins=host, tolerate="npu.round")
    row = {"name": "npu.round", "phase": "PRE_PARTITIONING", "steps": 1, "relative": 2e-3}
    assert artifact.metadata["tolerated"] == [row]
    assert uma.build(model(), ["npu", "plain"], plugins=host).metadata["tolerated"] == []


class TestExplain:
    def test_what_it_would_bring(self) -> None:
        """Without it nobody takes the square: it becomes a multiplication that the accelerator has."""

        def rule(expr: Expr) -> Expr | None:
            return call("nn.relu", expr.args[0]) if isinstance(expr, Call) and expr.op_name == "abs" else None

        made = [Pass("PRE_PARTITIONING", "round", of_graph(rule), tolerance=Tolerance(relative=0.5))]
        entries = [*toy("npu", "nn.relu", passes=lambda: made), *entry_of(HOST)]
        host, module = PluginHost(lambda: entries), module_of(call("abs", X))
        found = uma.explain(module, ["npu", "plain"], plugins=host)
        assert ([one.name for one in found.withheld], found.with_tolerance, found.tolerated) == (["npu.round"], 1.0, ())
        found = uma.explain(module, ["npu", "plain"], plugins=host, tolerate=["npu.round"])
        assert (found.withheld, found.with_tolerance, found.offloaded) == ((), None, 1.0)
        (one,) = found.tolerated
        assert to_json(one) == {
            "pass": "npu.round",
            "phase": "PRE_PARTITIONING",
            "plugin": "uma-npu 1.0",
            "scope": "module",
            "tolerance": {"steps": 0, "relative": 0.5},
        }

    def test_where_it_brings_nothing_more(self) -> None:
        found = uma.explain(model(), ["npu", "plain"], plugins=plugins(3.003, Tolerance(relative=2e-3)))
        assert ([one.name for one in found.withheld], found.with_tolerance) == (["npu.round"], None)

    def test_one_that_fails_with_consent_does_not_fail_without(self) -> None:
        def fails(module: IRModule) -> IRModule:
            raise ValueError("no")

        made = [Pass("PRE_PARTITIONING", "round", fails, tolerance=Tolerance(1))]
        entries = [*toy("npu", "nn.relu", passes=lambda: made), *entry_of(HOST)]
        host = PluginHost(lambda: entries)
        assert uma.explain(model(), ["npu", "plain"], plugins=host).with_tolerance is None
        with pytest.raises(PluginError, match="round"):
            uma.explain(model(), ["npu", "plain"], plugins=host, tolerate="npu.round")


@pytest.mark.parametrize(
    ("tolerate", "what"),
    [
        ("npu.rund", "no pass that declares a tolerance is called 'npu.rund'"),
        ("round", "no pass that declares a tolerance is called 'round'"),
        (["npu.round", "x.*"], "no pass that declares a tolerance is called 'x"),
        (3, "3 names no passes"),
        ([3], "names no passes"),
    ],
)
def test_what_makes_no_sense(tolerate: Any, what: str) -> None:
    members = resolve_targets(["npu", "plain"], plugins(3.003, Tolerance(1)))
    with pytest.raises(UsageError, match=what):
        load_model(model(), members, tolerate=tolerate)


def test_it_needs_targets_and_ops() -> None:
    with pytest.raises(UsageError, match="passes are tolerated for no targets"):
        load_model(model(), tolerate="npu.round")
    members = resolve_targets(["npu", "plain"], plugins(3.003, Tolerance(1)))
    program = Program("m", (), (), {})
    with pytest.raises(UsageError, match="a form that was lowered already"):
        tolerated_passes(program, "npu.round", members)
    plain = resolve_targets(["npu", "plain"], plugins(3.0, None))
    with pytest.raises(UsageError, match="is called 'npu") as caught:
        load_model(model(), plain, tolerate="npu.round")
    assert "none of this build does" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"steps": -1}, "a tolerance of -1 steps"),
        ({"steps": True}, "a tolerance of True steps"),
        ({"relative": 1.0}, "a tolerance of 1.0 of the largest element"),
        ({"relative": math.nan}, "a tolerance of nan of the largest"),
        ({"relative": "x"}, "a tolerance of 'x' of the largest"),
        ({}, "a tolerance of nothing"),
    ],
)
def test_malformed_tolerances(given: dict[str, Any], what: str) -> None:
    with pytest.raises(PluginError, match=what):
        Tolerance(**given)


def test_malformed_passes() -> None:
    with pytest.raises(PluginError, match="tolerance of pass 'p' is 3"):
        Pass("PRE_PARTITIONING", "p", lambda module: module, tolerance=3)  # type: ignore[arg-type]  # a number is no tolerance
    for phase in PHASES[3:]:
        with pytest.raises(PluginError, match="where there are no ops to compare"):
            Pass(phase, "p", lambda module: module, tolerance=Tolerance(1))


def test_how_tolerances_read() -> None:
    assert [str(Tolerance(1)), str(Tolerance(2, 1e-3))] == ["1 step", "2 steps or 0.001 of the largest element"]
    check = ToleranceCheck("npu.round", "PRE_PARTITIONING", "uma-npu 1.0", "", Tolerance(1), 4, 4)
    assert (check.ok, check.largest) == (True, "nothing")
    check = dataclasses.replace(check, steps=1, relative=0.25)
    assert (check.ok, check.largest) == (False, "1 step and 0.25 of the largest element")


def test_it_is_compared_at_one_extent() -> None:
    b = OnnxBuilder()
    proto = b.model(b.node("Neg", b.input("x", ("n", 3))))
    host = plugins(3.0, Tolerance(1))
    with pytest.raises(UsageError, match="is compared at one extent alone"):
        uma.verify(proto, ["npu", "plain"], plugins=host, tolerate="npu.round", shapes={"n": "1..4"})
