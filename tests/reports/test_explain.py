"""Where ops go and why not elsewhere, as a build tells it: by op, in total, and as a requirement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.plugins import accelerator, built, checked, entry_of, members_of, module_of, taking, toy
from tests._support.te_lowerings import lowered

from uma.errors import PluginError, RequirementError, UsageError
from uma.hookspecs import LoweredKernel, Pattern, Refuse
from uma.lowering.build_targets import BuildTargets
from uma.partition import OpRecord, Reason
from uma.pipeline.stages import Build
from uma.relay import Call, Constant, Expr, Function, IRModule, TensorType, Tuple, Var, call, const, post_order
from uma.relay.pattern import Clause, Failed, op, wildcard
from uma.reports.explain import Explanation, Share, explain, require_offload
from uma.support.json_record import to_json
from uma.targets import Limits

ROOT = Path(__file__).resolve().parents[2]

X = Var("x", TensorType((3, 5), "int8"))
WIDE = call("qnn.dense", X, const(np.ones((4, 5), np.int8)))
NARROW = call("qnn.dense", X, const(np.full((2, 5), 3, np.int8)))
BIAS = call("add", WIDE, const([1, -2, 3, 4]))
RELU = call("nn.relu", BIAS)
BOTH = call("concatenate", RELU, NARROW, axis=1)
MODEL = module_of(BOTH, {WIDE: ["wide"], NARROW: ["narrow"], BIAS: ["wide/bias"], RELU: ["relu"], BOTH: ["both"]})
"""Two layers of the same input, of 60 and of 30 multiply-accumulates, joined."""


def explained(members: BuildTargets, module: Any = MODEL) -> Explanation:
    """Return the explanation of a build whose results were checked."""
    build, _ = checked(module, members)
    return explain(build)


def by_layer(found: Explanation) -> dict[str, OpRecord]:
    return {", ".join(record.layers): record for record in found.ops}


def lines(found: Explanation) -> list[str]:
    return list(found.lines())


FEW = Clause("few", lambda m: m.root.shape[1] <= 2 or Failed(m.root.shape[1]), "at most 2 channels")
"""Holds of ``narrow`` alone."""


def dense(label: str, *clauses: Clause, lower: Callable[[Function], Any] = lowered) -> Pattern:
    return taking(label, "qnn.dense", lower, list(clauses))


class TestOps:
    def test_one_that_was_taken(self) -> None:
        found = by_layer(
            explained(members_of(toy("npu", patterns=lambda: [dense("npu", FEW), taking("npu", "nn.relu")])))
        )
        assert found["narrow"] == OpRecord("qnn.dense", ("narrow",), 30, "npu", "npu.dense", "npu_1", ())
        assert found["relu"] == OpRecord("nn.relu", ("relu",), 0, "npu", "npu.relu", "npu_0", ())

    def test_one_that_stayed_has_the_closest_pattern_of_each_accelerator(self) -> None:
        even = Clause("even", lambda m: Failed(m.root.dtype), "sums are of int16, not {value}")
        npu = toy("npu", patterns=lambda: [taking("npu", "nn.relu"), dense("npu", FEW)])
        dsp = toy("dsp", patterns=lambda: [dense("dsp", even)])
        found = explained(members_of(npu, dsp))
        assert by_layer(found)["wide"] == OpRecord(
            "qnn.dense",
            ("wide",),
            60,
            None,
            None,
            None,
            (
                Reason("npu", "npu.dense", "clause", "few", "clause few: at most 2 channels (found 4)", "4"),
                Reason("dsp", "dsp.dense", "clause", "even", "clause even: sums are of int16, not int32", "int32"),
            ),
            host="plain",
        )
        start = lines(found).index("wide: qnn.dense, 60 MACs -> plain")
        assert lines(found)[start + 1 : start + 3] == [
            "    not npu: npu.dense: clause few: at most 2 channels (found 4)",
            "    not dsp: dsp.dense: clause even: sums are of int16, not int32",
        ]

    def test_one_with_another_attribute(self) -> None:
        term = op("concatenate")(wildcard("int32"), wildcard("int32"), axis=0)
        found = explained(members_of(toy("npu", patterns=lambda: [Pattern("npu.join", term)])))
        reason = Reason(
            "npu", "npu.join", "attribute", None, "concatenate: attribute axis is 1, the pattern takes 0", "1"
        )
        assert by_layer(found)["both"].why == (reason,)
        assert lines(found)[-2:] == [
            "both: concatenate -> plain",
            "    not npu: npu.join: concatenate: attribute axis is 1, the pattern takes 0",
        ]

    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            ("same", "same"),
            ("half to even", "half to even"),
            ("", "''"),
            ("4", "'4'"),
            (np.int64(4), "4"),
            (np.float32(0.1), "0.1"),
            (("same", np.int32(2), None), "(same, 2, None)"),
            (["x"], "[x]"),
        ],
    )
    def test_the_value_that_failed_is_shown_as_people_write_it(self, value: object, shown: str) -> None:
        for reason in "found {value}, which is odd", "no odd one":
            clause = Clause("odd", lambda m: Failed(value), reason)
            found = explained(members_of(toy("npu", patterns=lambda: [dense("npu", clause)])))  # noqa: B023 - called at once
            said = reason.replace("{value}", shown) if "{" in reason else f"{reason} (found {shown})"
            (why,) = by_layer(found)["wide"].why
            assert (why.reason, why.value) == (f"clause odd: {said}", shown)
            assert f"    not npu: npu.dense: clause odd: {said}" in lines(found)

    def test_one_that_was_refused(self) -> None:
        def lower(function: Function) -> LoweredKernel:
            assert isinstance(function.body, Call)
            if function.body.shape[1] == 4:
                raise Refuse("weights come in pages of 16 bytes")
            return lowered(function)

        found = explained(
            members_of(toy("npu", patterns=lambda: [dense("npu", lower=lower), taking("npu", "nn.relu")]))
        )
        assert by_layer(found)["wide"].why == (
            Reason("npu", "npu.dense", "refused", None, "weights come in pages of 16 bytes", None),
        )
        assert "    not npu: npu.dense: weights come in pages of 16 bytes" in lines(found)
        assert {layer: record.owner for layer, record in by_layer(found).items()} == {
            "wide": None,
            "wide/bias": None,
            "relu": "npu",
            "narrow": "npu",
            "both": None,
        }

    def test_one_that_is_larger_than_a_region_may_be(self) -> None:
        npu = entry_of(accelerator("npu", limits=Limits(nbytes=60)), patterns=lambda: [dense("npu")])
        found = explained(members_of(npu))
        text = "pattern npu.dense matches, but it has 83 bytes, and a region of npu at most 60"
        assert by_layer(found)["wide"].why == (Reason("npu", "npu.dense", "limit", None, text, 83),)
        assert f"    not npu: {text}" in lines(found)
        assert by_layer(found)["narrow"].owner == "npu"  # 15 + 10 + 24 bytes

    def test_regions_that_a_limit_keeps_apart(self) -> None:
        """Each of three sums is a result: two of them have three inputs and two outputs."""
        params = [Var(name, TensorType((3, 5), "int8")) for name in "abcd"]
        sums = [params[0]]
        for param in params[1:]:
            sums.append(call("add", sums[-1], param))
        module = IRModule.from_functions({"main": Function(params, Tuple(sums[1:]))})
        limited = accelerator("npu", limits=Limits(operands=5))
        found = explained(members_of(entry_of(limited, patterns=lambda: [taking("npu", "add")])), module)
        assert [record.region for record in found.ops] == ["npu_0", "npu_0", "npu_1"]
        text = "npu_0 and npu_1 are two regions: one would have 7 inputs and outputs, and a region of npu at most 5"
        assert to_json(found)["cuts"] == list(found.cuts) == [text]
        free = explained(members_of(toy("npu", "add")), module)
        assert not free.cuts and "cuts" not in to_json(free)
        # The limit is not why these are two.
        limited = accelerator("npu", limits=Limits(matches=2, operands=7))
        assert not explained(members_of(entry_of(limited, patterns=lambda: [taking("npu", "add")])), module).cuts

    def test_one_that_another_accelerator_has(self) -> None:
        """Only what comes before the one that has it says why not; the record has all."""
        members = members_of(
            toy("npu", "nn.relu"), toy("dsp", "qnn.dense"), toy("gpu", "qnn.dense"), targets=["npu", "dsp", "gpu"]
        )
        found = explained(members)
        wide = by_layer(found)["wide"]
        assert (wide.owner, [(r.owner, r.kind, r.reason) for r in wide.why]) == (
            "dsp",
            [("npu", "none", "no pattern takes qnn.dense"), ("gpu", "taken", "taken already by dsp")],
        )
        start = lines(found).index("wide: qnn.dense, 60 MACs -> dsp_0 as dsp.dense")
        assert lines(found)[start + 1 : start + 3] == [
            "    not npu: no pattern takes qnn.dense",
            "wide/bias: add -> plain",
        ]

    def test_those_that_the_model_gave_away_itself(self) -> None:
        inner = Var("y", RELU.type)
        body = call("add", Call(Function([inner], call("nn.relu", inner), {"Compiler": "npu"}), [WIDE]), WIDE)
        found = explained(members_of(toy("npu", "nn.relu"), toy("dsp", "nn.relu")), module_of(body))
        relu = next(record for record in found.ops if record.op == "nn.relu")
        assert (relu.owner, relu.region, relu.why[0].reason) == (
            "npu",
            "npu_0",
            "the model has it in a function of its own, which is npu's",
        )

    def test_a_predicate_that_is_at_fault_is_blamed_on_its_plugin(self) -> None:
        """Placing does not ask it, as another pattern has the root."""
        term = op("nn.relu")(op("add")(wildcard("int32"), wildcard("int32")))
        bad = Pattern("npu.bad", term, lambda m: m.root.shape[0] / 0)
        build = built(MODEL, members_of(toy("npu", patterns=lambda: [taking("npu", "nn.relu"), bad])))
        with pytest.raises(PluginError, match="a predicate raised ZeroDivisionError") as caught:
            explain(build)
        assert "uma-npu 1.0" in f"{caught.value.what} {caught.value.where}"
        assert str(caught.value.where).startswith("wide/bias, ")


class TestLayers:
    def test_all_names_of_an_op_are_told(self) -> None:
        module = module_of(RELU, {RELU: ["relu", "relu;again"]})
        assert lines(explained(members_of(toy("npu", "nn.relu")), module)) == [
            "(no layer): qnn.dense, 60 MACs -> plain",
            "    not npu: no pattern takes qnn.dense",
            "(no layer): add -> plain",
            "    not npu: no pattern takes add",
            "relu, relu;again: nn.relu -> npu_0 as npu.relu",
        ]

    def test_regions_that_begin_alike_keep_their_own(self) -> None:
        """In what plugins are given, in what becomes of it, and in errors."""
        x = Var("x", TensorType((2, 4), "int32"))
        a = call("nn.relu", x)
        b = call("add", a, x)
        c = call("subtract", b, x)
        d = call("nn.relu", c)
        e = call("multiply", d, d)
        module = module_of(e, {a: ["a"], b: ["b"], c: ["c"], d: ["d"], e: ["e"]})
        given: list[tuple[str, ...]] = []

        def relay_to_tir(module: IRModule, function: Function) -> None:
            calls = [expr for expr in post_order(function.body) if isinstance(expr, Call)]
            given.append(tuple(layer for expr in calls for layer in module.spans[expr]))

        ops = ("nn.relu", "add", "multiply")
        _, program = checked(module, members_of(toy("npu", *ops, relay_to_tir=relay_to_tir)))
        assert given == [("a", "b"), ("d", "e")]
        assert [step.layers for step in program.steps] == [("a",), ("b",), ("c",), ("d",), ("e",)]

        def fails(function: Function) -> None:
            raise ValueError("no")

        with pytest.raises(PluginError, match="ValueError: no") as caught:
            built(module, members_of(toy("npu", *ops, relay_to_tir=fails)))
        assert str(caught.value.where).startswith("a, b, region 'npu_0'")

    def test_regions_that_stay_are_not_lowered_again(self) -> None:
        """However the names of regions change when others go."""
        body: Expr = Var("x", TensorType((2, 4), "int32"))
        for number in range(5):
            body = call("subtract", call("nn.relu", call("add", body, const(number))), const(1))
        asked: list[int] = []

        def relay_to_tir(function: Function) -> None:
            parts = [expr.op for expr in post_order(function.body) if isinstance(expr, Call)]
            exprs = [expr for part in parts if isinstance(part, Function) for expr in post_order(part.body)]
            (number,) = [expr.data.item() for expr in exprs if isinstance(expr, Constant)] or [-1]
            asked.append(number)
            if number in (0, 3):
                raise Refuse("no")

        build, _ = checked(module_of(body), members_of(toy("npu", "add", "nn.relu", relay_to_tir=relay_to_tir)))
        assert asked == [0, 1, 2, 3, 4]
        assert build.placement is not None and list(build.placement.regions) == ["npu_0", "npu_1", "npu_2"]


class TestTotals:
    def test_by_op_and_by_multiply_accumulate(self) -> None:
        npu = toy("npu", patterns=lambda: [dense("npu", FEW), taking("npu", "nn.relu")])
        found = explained(members_of(npu, toy("dsp", "tanh")))
        assert found.shares() == (Share("npu", 2, 30), Share("dsp", 0, 0), Share("plain", 3, 60))
        assert (found.macs, found.offloaded) == (90, 30 / 90)

    def test_a_model_that_multiplies_nothing(self) -> None:
        found = explained(members_of(toy("npu", "nn.relu")), module_of(call("nn.relu", X)))
        assert (found.macs, found.offloaded) == (0, 1.0)
        require_offload(found, 1.0)
        body = call("reshape", call("tanh", call("nn.relu", Var("x", TensorType((2, 3), "float32")))), newshape=(6,))
        half = explained(members_of(toy("npu", "nn.relu")), module_of(body))
        assert half.offloaded == 0.5, "the reshape is free, and counts for nobody"
        require_offload(half, 0.5)
        with pytest.raises(RequirementError) as caught:
            require_offload(half, 0.51)
        assert caught.value.what.splitlines() == [
            "accelerators have 50.0% of the ops (the model has no multiply-accumulates), 51% are required",
            "    01 tanh 2x3 [no layer] -> plain",
            "        not npu: no pattern takes tanh",
        ]

    def test_a_model_of_nothing_but_its_inputs(self) -> None:
        found = explained(members_of(toy("npu", "nn.relu")), module_of(call("reshape", X, newshape=(15,))))
        assert (found.macs, found.offloaded, found.counted) == (0, 0.0, ())
        assert list(found.layer_lines()) == ["00 reshape 15 [no layer]: free"]
        assert found.reasons() == ()

    def test_without_accelerators(self) -> None:
        found = explained(members_of())
        assert found.shares() == (Share("plain", 5, 90),)
        assert all(record.owner is None and record.why == () for record in found.ops)
        assert len(lines(found)) == 5

    def test_as_plain_data(self) -> None:
        npu = toy("npu", patterns=lambda: [dense("npu", FEW)])
        record = to_json(explained(members_of(npu)))
        assert json.loads(json.dumps(record)) == record
        assert (record["name"], record["host"], record["offloaded"]) == ("m", "plain", 30 / 90)
        assert record["targets"] == [
            {"target": "npu", "ops": 1, "macs": 30, "cost": None},
            {"target": "plain", "ops": 4, "macs": 60, "cost": None},
        ]
        assert [op["owner"] for op in record["ops"]] == ["plain", "plain", "plain", "npu", "plain"]
        assert record["ops"][0] == {
            "op": "qnn.dense",
            "layers": ["wide"],
            "macs": 60,
            "owner": "plain",
            "pattern": None,
            "region": None,
            "pin": None,
            "free": False,
            "why": [
                {
                    "owner": "npu",
                    "pattern": "npu.dense",
                    "kind": "clause",
                    "clause": "few",
                    "reason": "clause few: at most 2 channels (found 4)",
                    "value": "4",
                }
            ],
        }


class TestOrder:
    def test_is_that_of_computing(self) -> None:
        found = explained(members_of(toy("npu", "nn.relu", "qnn.dense")))
        assert list(by_layer(found)) == ["wide", "wide/bias", "relu", "narrow", "both"]

    def test_is_the_same_in_every_process(self) -> None:
        script = (
            "import json; from tests.reports.test_explain import *; "
            "print(json.dumps(to_json(explained(members_of(toy('npu', 'nn.relu', 'qnn.dense'), toy('dsp', 'add'))))))"
        )
        path = os.pathsep.join([str(ROOT), *sys.path])
        said = {
            subprocess.run(
                [sys.executable, "-c", script],
                env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for seed in ("1", "2")
        }
        here = to_json(explained(members_of(toy("npu", "nn.relu", "qnn.dense"), toy("dsp", "add"))))
        assert [json.loads(text) for text in said] == [here]


class TestForms:
    @pytest.mark.parametrize("stage", ["lower", "sequence"])
    def test_what_was_lowered_has_no_ops(self, stage: str) -> None:
        members = members_of(toy("npu", "nn.relu"))
        build = Build("m", members)
        build.run(Build("m", members).run(MODEL, stage))
        with pytest.raises(UsageError, match="a form that was lowered already has no ops to explain"):
            explain(build)


class TestRequirement:
    def test_that_is_met_to_the_point(self) -> None:
        found = explained(members_of(toy("npu", patterns=lambda: [dense("npu", FEW)])))
        require_offload(found, 30 / 90)
        with pytest.raises(RequirementError):
            require_offload(found, 0.3334)

    def test_that_is_not_met_has_the_reasons(self) -> None:
        found = explained(members_of(toy("npu", patterns=lambda: [dense("npu", FEW)])))
        with pytest.raises(RequirementError) as caught:
            require_offload(found, 0.995)
        assert caught.value.what.splitlines() == [
            "accelerators have 33.3% of the multiply-accumulates, 99.5% are required",
            "    00 dense 5->4 [wide], 60 MACs -> plain",
            "        not npu: npu.dense: clause few: at most 2 channels (found 4)",
        ]
        assert (caught.value.where, caught.value.exit_code) == ("m", 4)
        assert "uma explain shows every op" in str(caught.value.hint)

    def test_that_is_missed_by_a_hair_is_not_shown_as_met(self) -> None:
        ops = tuple(
            OpRecord("qnn.dense", (), macs, owner, None, None, ()) for macs, owner in ((9999, "npu"), (1, None))
        )
        with pytest.raises(RequirementError, match=r"accelerators have 99\.9% .*, 100% are required"):
            require_offload(Explanation("m", "c", ("npu", "c"), ops), 1.0)

    def test_the_ten_costliest_ops_are_told(self) -> None:
        body: Expr = X
        layers: dict[Expr, Sequence[str]] = {}
        for number in range(12):
            sums = call("qnn.dense", X, const(np.full((number + 1, 5), number + 1, np.int8)))
            layers[sums] = [f"layer{number + 1}"]
            body = sums if body is X else call("concatenate", body, sums, axis=1)
        with pytest.raises(RequirementError) as caught:
            require_offload(explained(members_of(toy("npu", "nn.relu")), module_of(body, layers)), 0.5)
        told_lines = caught.value.what.splitlines()
        assert [line.split("[")[1].split("]")[0] for line in told_lines[1:-1:2]] == [
            f"layer{n}" for n in range(12, 2, -1)
        ]
        assert set(told_lines[2:-1:2]) == {"        not npu: no pattern takes qnn.dense"}
        assert told_lines[-1] == "    and 2 more"
