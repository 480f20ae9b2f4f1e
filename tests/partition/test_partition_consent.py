"""Consent to another rounding: what accelerators are offered, what they take, and what is left as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests._support.fixed_points import LAYERS, fixed_npu, residual_net
from tests._support.partitions import inputs_of
from tests._support.plugins import accelerator, built, checked, entry_of, members_of, module_of

from uma.errors import PluginError
from uma.frontends import import_model
from uma.hookspecs import Pattern
from uma.lowering.build_targets import BuildTargets
from uma.partition import RoundingOptIn
from uma.pipeline.stages import Build
from uma.program import Program
from uma.relay import Bounds, Call, FixedPoint, FloatScale, Function, IRModule, TensorType, Var, call, const
from uma.relay.evaluate import evaluate
from uma.relay.pattern import any_, constant, op, wildcard
from uma.relay.transform.value_range import value_range
from uma.relay.visit import nested_exprs
from uma.support.json_record import to_json
from uma.targets import FixedPointForm

EVEN, DOUBLE = FixedPointForm("even"), FixedPointForm("double")


def net() -> IRModule:
    return import_model(residual_net()).module


def placed(module: IRModule, members: BuildTargets, consent: RoundingOptIn | None = None) -> Build:
    build = Build("m", members, consent=RoundingOptIn() if consent is None else consent)
    program = build.run(module)
    assert isinstance(program, Program)
    return build


def owners(build: Build) -> dict[str, str | None]:
    assert build.placement is not None
    return {layer: op.owner for op in build.placement.records() if op.macs for layer in op.layers if layer in LAYERS}


def scales(build: Build, label: str | None) -> list[Any]:
    """The scales of the requantisations in the regions of a label; those of ``main`` for None."""
    assert build.placement is not None
    module = build.placement.module
    found = []
    for function in module.functions.values():
        if isinstance(function, Function) and function.attr("Compiler") == label:
            calls = (expr for expr in nested_exprs(function) if isinstance(expr, Call))
            found += [expr.attrs.scale for expr in calls if expr.op_name == "qnn.requantize"]
    return found


def test_each_accelerator_is_offered_its_own_form() -> None:
    members = members_of(
        fixed_npu("one", DOUBLE, "double", products=["qnn.dense"]), fixed_npu("two", lambda target: EVEN)
    )
    build = placed(net(), members)
    assert owners(build) == {"n_Conv_2": "two", "n_Conv_7": "two", "n_Gemm_19": "one"}
    assert {scale.rounding for scale in scales(build, "one")} == {"double"}
    assert {scale.rounding for scale in scales(build, "two")} == {"even"}
    assert scales(build, None) == []
    assert build.placement is not None
    assert [(o.owner, o.what, o.rounding, o.layers[0]) for o in build.placement.consented] == [
        ("two", "requantisation", "even", "n_Conv_2"),
        ("two", "requantisation", "even", "n_Conv_7"),
        ("one", "requantisation", "double", "n_Gemm_19"),
    ]
    assert to_json(build.placement.consented[0])["bound"] in (0, 1)


def test_without_consent_nothing_changes() -> None:
    """What is built is what is built where nobody has fixed points."""
    assert [built(net(), members_of(fixed_npu("npu", form))).run(net()) for form in (EVEN, None)] == [
        checked(net(), members_of(fixed_npu("npu", None)))[1]
    ] * 2


def test_what_stays_on_the_host_stays_as_it_is() -> None:
    members = members_of(fixed_npu("npu", EVEN, products=["qnn.dense"]))
    build = placed(net(), members)
    assert owners(build) == {"n_Conv_2": None, "n_Conv_7": None, "n_Gemm_19": "npu"}
    assert all(isinstance(scale, FloatScale) for scale in scales(build, None))
    # By a consent of single layers.
    members = members_of(fixed_npu("npu", EVEN))
    for consent in (
        RoundingOptIn(False, {"n_Conv_7": True}),
        RoundingOptIn(True, {"n_Conv_2": False, "n_Gemm_19": False}),
    ):
        assert owners(placed(net(), members, consent)) == {"n_Conv_2": None, "n_Conv_7": "npu", "n_Gemm_19": None}
    # One of an op's layers is kept as it is.
    kept = RoundingOptIn(False, {"n_Conv_7": True, "n_QuantizeLinear_8": False})
    assert set(owners(placed(net(), members, kept)).values()) == {None}


def test_what_is_refused_after_all_falls_back() -> None:
    build = placed(net(), members_of(fixed_npu("npu", EVEN, refuse="qnn.conv2d")))
    assert owners(build) == {"n_Conv_2": None, "n_Conv_7": None, "n_Gemm_19": "npu"}
    assert all(isinstance(scale, FloatScale) for scale in scales(build, None))
    # And is offered to the next, in its form.
    members = members_of(fixed_npu("one", EVEN, refuse="qnn.conv2d"), fixed_npu("two", DOUBLE, "double"))
    build = placed(net(), members)
    assert owners(build) == {"n_Conv_2": "two", "n_Conv_7": "two", "n_Gemm_19": "one"}


def test_reasons_are_about_what_was_offered() -> None:
    """With consent a layer is judged in the accelerator's form, and what keeps it out is told of that."""
    build = placed(net(), members_of(fixed_npu("npu", EVEN, "up")))
    assert build.placement is not None
    dense = next(record for record in build.placement.records() if record.op == "qnn.dense")
    assert [(why.clause, why.value) for why in dense.why] == [("rounding", "FixedPoint")]
    build = placed(net(), members_of(fixed_npu("npu", EVEN, "up")), RoundingOptIn(False))
    assert build.placement is not None
    dense = next(record for record in build.placement.records() if record.op == "qnn.dense")
    assert [why.value for why in dense.why] == ["FloatScale"]


def test_what_can_be_had_exactly_is() -> None:
    """An accelerator that has powers of two, half to even, takes them as they are, whatever its form is."""
    x, sums = Var("x", TensorType((2, 4), "int8")), const(np.ones((3, 4), np.int8))
    model = module_of(call("qnn.requantize", call("qnn.dense", x, sums), scale=FloatScale((0.25,)), dtype="int8"))
    pattern = Pattern("npu.any", op("qnn.requantize")(wildcard(any_), scale=any_, dtype="int8", axis=any_))
    for form in (FixedPointForm("up"), FixedPointForm("even")):
        build = Build("m", members_of(entry_of(accelerator(fixed_point=form), patterns=lambda: [pattern])))
        build = Build("m", build.members, consent=RoundingOptIn())
        build.run(model, "partition")
        assert (scales(build, "npu"), build.placement and build.placement.consented) == ([FloatScale((0.25,))], ())


def test_an_op_behind_that_makes_more_of_a_difference() -> None:
    """How far off a match is, is known where nothing behind the requantisation enlarges it."""
    x = Var("x", TensorType((2, 4), "int32"))
    scaled = call("qnn.requantize", x, scale=FloatScale((0.3,)), dtype="int8")
    fixed = op("qnn.requantize")(wildcard(any_), scale=any_of_fixed(), dtype="int8", axis=any_)
    square = op("multiply")(fixed, fixed)
    limit = op("reshape")(op("nn.relu")(fixed), newshape=any_)
    entry = entry_of(
        accelerator(fixed_point=EVEN),
        patterns=lambda: [Pattern("npu.square", square), Pattern("npu.limit", limit)],
    )
    for body, owner in (
        (call("multiply", scaled, scaled), None),
        (call("reshape", call("nn.relu", scaled), newshape=(8,)), "npu"),
    ):
        build = Build("m", members_of(entry), consent=RoundingOptIn())
        build.run(module_of(body), "partition")
        assert build.placement is not None
        assert {record.owner for record in build.placement.records()} == {owner}


def any_of_fixed() -> Any:
    from uma.relay.pattern import where

    return where(lambda scale: isinstance(scale, FixedPoint), "fixed points")


def test_nothing_is_proven_of_operands_by_their_fixed_points() -> None:
    """What comes before may be rounded either way: a predicate sees its operands as they are in the model."""
    x = Var("x", TensorType((2, 4), "int8"))
    first = call(
        "qnn.requantize", call("qnn.dense", x, const(np.ones((4, 4), np.int8))), scale=FloatScale((0.01,)), dtype="int8"
    )
    second = call(
        "qnn.requantize",
        call("qnn.dense", first, const(np.ones((4, 4), np.int8))),
        scale=FloatScale((0.3,)),
        dtype="int8",
    )
    seen: list[Bounds] = []

    def narrow(found: Any) -> bool:
        seen.append(value_range(found["data"]))
        return True

    dense = op("qnn.dense")(wildcard("int8").named("data"), constant("int8"), input_zero_point=any_)
    pattern = Pattern("npu.dense", op("qnn.requantize")(dense, scale=any_of_fixed(), dtype="int8", axis=any_), narrow)
    build = Build(
        "m", members_of(entry_of(accelerator(fixed_point=EVEN), patterns=lambda: [pattern])), consent=RoundingOptIn()
    )
    build.run(module_of(second), "partition")
    assert len(scales(build, "npu")) == 2
    assert set(seen) == {Bounds(-128, 127)}


@pytest.mark.parametrize("form", [3, lambda target: "even"])
def test_forms_that_are_none(form: Any) -> None:
    members = members_of(fixed_npu("npu", form))
    with pytest.raises(PluginError, match="for the fixed points of npu"):
        Build("m", members).run(net())


def test_a_host_has_no_form() -> None:
    from uma.targets import TargetKind

    with pytest.raises(PluginError, match="a host computes what the model says"):
        TargetKind("host", help="one", is_host=True, fixed_point=EVEN)


def test_what_is_computed_is_within_the_bounds() -> None:
    module = net()
    build = placed(module, members_of(fixed_npu("npu", FixedPointForm("even", 7))))
    assert build.placement is not None
    assert max(one.bound for one in build.placement.consented) > 1
    inputs = inputs_of(module.main)
    sides = [evaluate(form, inputs)[0].astype(int) for form in (module, build.placement.module)]
    assert sides[0].shape == sides[1].shape
