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
from uma.artifact.record import DifferenceRecord
from uma.contract.passes import PHASES
from uma.errors import PluginError, UsageError
from uma.hookspecs import Pass, Tolerance
from uma.lowering.build_targets import resolve_targets
from uma.option_values import Allowed
from uma.pipeline.loading import load_model
from uma.pipeline.numerics import find_passes
from uma.plugins import PluginHost
from uma.program import Program
from uma.relay import Call, Expr, Function, IRModule, TensorType, Var, call, const, rewrite
from uma.support.json_record import to_json
from uma.verification.numerics_drift import DifferenceCheck
from uma.verification.results import Verification

ROUND = {"npu.round": "declared"}
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


def verified(host: PluginHost, module: IRModule | None = None, allow: Any = ROUND) -> Verification:
    return uma.verify(module or model(), ["npu", "plain"], plugins=host, allow=allow, samples=1)


WAYS = [("PRE_PARTITIONING", "module"), ("POST_PARTITIONING_0", "regions"), ("POST_PARTITIONING_1", "module")]


@pytest.mark.parametrize(("phase", "scope"), WAYS)
class TestPass:
    def test_honest(self, phase: Any, scope: Any) -> None:
        found = verified(plugins(3.003, Tolerance(relative=2e-3), phase, scope))
        assert found.ok
        (check,) = found.allowed
        assert (check.bound.opt_in, check.bound.how, check.bound.plugin) == ("npu.round", phase, "uma-npu 1.0")
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
        (check,) = found.allowed
        assert not check.ok


def test_without_consent_it_is_not_run() -> None:
    found = verified(plugins(3.3, Tolerance(relative=2e-3)), allow={})
    assert (found.ok, found.allowed, found.drifts) == (True, (), ())


def test_one_that_declares_nothing_may_change_nothing() -> None:
    assert not verified(plugins(3.3, None), allow={}).ok


def test_integers_count_in_steps() -> None:
    small = call("clip", B, a_min=0, a_max=1)
    module = module_of(call("negative", call("multiply", small, const(np.int32(3)))))
    found = verified(plugins(4, Tolerance(1)), module)
    assert (found.ok, found.allowed[0].steps) == (True, 1)
    found = verified(plugins(5, Tolerance(1)), module)
    assert (found.ok, found.allowed[0].steps, found.allowed[0].largest) == (False, 2, "2 steps")


def test_two_passes_are_each_held_to_their_own() -> None:
    made = [
        Pass("PRE_PARTITIONING", "round", other_factor(3.003), tolerance=Tolerance(relative=2e-3)),
        Pass("POST_PARTITIONING_0", "again", other_factor(3.3), scope="regions", tolerance=Tolerance(relative=2e-3)),
    ]
    entries = [*toy("npu", "nn.relu", "multiply", passes=lambda: made), *entry_of(HOST)]
    found = verified(PluginHost(lambda: entries), allow={"npu.*": "declared"})
    assert [(check.bound.opt_in, check.ok) for check in found.allowed] == [("npu.round", True), ("npu.again", False)]
    assert {check.against for check in found.outputs} == {"inspected", "consented", "canonical", "first run"}


def test_one_that_changes_nothing_is_not_recorded() -> None:
    host = plugins(3.0, Tolerance(relative=2e-3))
    assert verified(host).allowed == ()
    assert uma.build(model(), ["npu", "plain"], plugins=host, allow=ROUND).metadata["allowed"]["differences"] == []


def test_it_is_recorded_in_the_artifact() -> None:
    host = plugins(3.003, Tolerance(1, 2e-3))
    artifact = uma.build(model(), ["npu", "plain"], plugins=host, allow=ROUND)
    row = {
        "opt_in": "npu.round",
        "what": "results of the model",
        "how": "PRE_PARTITIONING",
        "layers": [],
        "device": "npu",
        "plugin": "uma-npu 1.0",
        "steps": 1,
        "relative": 2e-3,
    }
    assert artifact.metadata["allowed"] == {"options": ["npu.round=declared"], "differences": [row]}
    assert uma.build(model(), ["npu", "plain"], plugins=host).metadata["allowed"]["differences"] == []


class TestExplain:
    def test_what_it_would_bring(self) -> None:
        """Without it nobody takes the square: it becomes a multiplication that the accelerator has."""

        def rule(expr: Expr) -> Expr | None:
            return call("nn.relu", expr.args[0]) if isinstance(expr, Call) and expr.op_name == "abs" else None

        made = [Pass("PRE_PARTITIONING", "round", of_graph(rule), tolerance=Tolerance(relative=0.5))]
        entries = [*toy("npu", "nn.relu", passes=lambda: made), *entry_of(HOST)]
        host, module = PluginHost(lambda: entries), module_of(call("abs", X))
        found = uma.explain(module, ["npu", "plain"], plugins=host)
        (offer,) = found.offers
        assert (offer.options, offer.offloaded, found.differences) == (("npu.round=declared",), 1.0, ())
        found = uma.explain(module, ["npu", "plain"], plugins=host, allow=ROUND)
        assert (found.allowed, found.offers, found.offloaded) == (("npu.round=declared",), (), 1.0)
        (one,) = found.differences
        assert one == offer.differences[0]
        assert to_json(one) == {
            "opt_in": "npu.round",
            "what": "results of the model",
            "how": "PRE_PARTITIONING",
            "layers": [],
            "device": "npu",
            "plugin": "uma-npu 1.0",
            "steps": 0,
            "relative": 0.5,
        }

    def test_where_it_brings_nothing_more(self) -> None:
        found = uma.explain(model(), ["npu", "plain"], plugins=plugins(3.003, Tolerance(relative=2e-3)))
        (offer,) = found.offers
        assert (offer.options, offer.offloaded) == (("npu.round=declared",), None)

    def test_one_that_fails_with_consent_does_not_fail_without(self) -> None:
        def fails(module: IRModule) -> IRModule:
            raise ValueError("no")

        made = [Pass("PRE_PARTITIONING", "round", fails, tolerance=Tolerance(1))]
        entries = [*toy("npu", "nn.relu", passes=lambda: made), *entry_of(HOST)]
        host = PluginHost(lambda: entries)
        assert uma.explain(model(), ["npu", "plain"], plugins=host).offers[0].offloaded is None
        with pytest.raises(PluginError, match="round"):
            uma.explain(model(), ["npu", "plain"], plugins=host, allow=ROUND)


@pytest.mark.parametrize(
    ("allow", "what"),
    [
        ({"npu.rund": "declared"}, "no pass that declares a tolerance is called 'npu.rund'"),
        ({"round": "declared"}, "no pass that declares a tolerance is called 'round'"),
        ({"npu.round": "declared", "x.*": "off"}, "no pass that declares a tolerance is called 'x"),
        ({"npu.round": "fixed-point"}, "'fixed-point' is not a value of npu.round in allow"),
    ],
)
def test_what_makes_no_sense(allow: Any, what: str) -> None:
    members = resolve_targets(["npu", "plain"], plugins(3.003, Tolerance(1)))
    with pytest.raises(UsageError, match=what):
        load_model(model(), members, allow=allow)


def test_it_needs_targets_and_ops() -> None:
    with pytest.raises(UsageError, match="different results are allowed for no targets"):
        load_model(model(), allow=ROUND)
    members = resolve_targets(["npu", "plain"], plugins(3.003, Tolerance(1)))
    program = Program("m", (), (), {})
    with pytest.raises(UsageError, match="a form that was lowered already"):
        find_passes(program, Allowed(ROUND), members)
    plain = resolve_targets(["npu", "plain"], plugins(3.0, None))
    with pytest.raises(UsageError, match="is called 'npu") as caught:
        load_model(model(), plain, allow=ROUND)
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
        Pass("PRE_PARTITIONING", "p", lambda module: module, tolerance=3)  # type: ignore[arg-type]  # a number is not a tolerance
    for phase in PHASES[3:]:
        with pytest.raises(PluginError, match="where there are no ops to compare"):
            Pass(phase, "p", lambda module: module, tolerance=Tolerance(1))


def test_how_tolerances_read() -> None:
    assert [str(Tolerance(1)), str(Tolerance(2, 1e-3))] == ["1 step", "2 steps or 0.001 of the largest element"]
    allowed = DifferenceRecord(
        "npu.round", "results of the model", "PRE_PARTITIONING", (), "npu", "uma-npu 1.0", 1, 0.0
    )
    check = DifferenceCheck((allowed,), "", 4, 4)
    assert (check.ok, check.largest) == (True, "nothing")
    check = dataclasses.replace(check, steps=1, relative=0.25)
    assert (check.ok, check.largest) == (False, "1 step and 0.25 of the largest element")


def test_it_is_compared_at_one_extent() -> None:
    b = OnnxBuilder()
    proto = b.model(b.node("Neg", b.input("x", ("n", 3))))
    host = plugins(3.0, Tolerance(1))
    with pytest.raises(UsageError, match="is compared at one extent alone"):
        uma.verify(proto, ["npu", "plain"], plugins=host, allow=ROUND, shapes={"n": "1..4"})
