"""How regions become loops: who is asked, what becomes of the answers, and what becomes of refusals."""

from __future__ import annotations

from collections.abc import Callable
from operator import setitem
from typing import Any

import numpy as np
import pytest
from tests._support.partitions import inputs_of
from tests._support.plugins import (
    HOST,
    accelerator,
    built,
    checked,
    entry_of,
    host_kind,
    members_of,
    module_of,
    taking,
    toy,
)
from tests._support.regions import CHAIN, MANY, OPS, RELU, X, Y, fault, inlined, steps, whole
from tests._support.te_lowerings import kernel_of, lowered

import uma
from uma.errors import ModelError, PluginError, UsageError
from uma.hookspecs import Fusion, LoweredKernel, Pattern, Strategy
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import build_loaded
from uma.pipeline.loading import LoadedModel
from uma.pipeline.stages import Build, Form
from uma.plugins import PluginEntry, PluginHost
from uma.relay import Call, Constant, Expr, Function, GlobalVar, IRModule, Spans, Tuple, Var, call, const
from uma.relay.module import func_type
from uma.relay.pattern import op, wildcard
from uma.relay.visit import nested_exprs, post_order
from uma.reports.explain import explain
from uma.targets import Limits, Target
from uma.tir import te
from uma.tir.form import nodes as tir

# --- who is asked ----------------------------------------------------------------------------------------------------


class TestTheRoad:
    def test_relay_to_tir_gives_a_prim_func(self) -> None:
        seen: list[Any] = []

        def relay_to_tir(module: IRModule, function: Function, target: Target) -> tuple[IRModule, GlobalVar]:
            seen.append((module, function, target, Target.current()))
            made = IRModule.from_functions({"fast": kernel_of(inlined(function)).func})
            return made, made.global_var("fast")

        members = members_of(toy("npu", "nn.relu", relay_to_tir=relay_to_tir))
        _, program = checked(module_of(MANY), members)
        assert [step.function for step in program.steps] == ["fast", "add", "multiply"]
        ((module, function, target, current),) = seen
        assert target is current is members.accelerators[0].target
        assert module["npu_0"] is function
        assert dict(function.attrs) == {"Compiler": "npu", "global_symbol": "npu_0"}
        (composite,) = [e.op for e in post_order(function.body) if isinstance(e, Call)]
        assert isinstance(composite, Function) and dict(composite.attrs) == {"Composite": "npu.relu"}

    def test_relay_to_tir_gives_an_entry_that_calls_several_loops(self) -> None:
        def relay_to_tir(function: Function) -> tuple[IRModule, GlobalVar]:
            def shifted(x: te.Tensor, by: te.Tensor) -> te.Tensor:
                return te.compute(x.shape, lambda i, j: x[i, j] + by[j], "y")

            x, by = te.placeholder((2, 4), "int32", "x"), te.placeholder((4,), "int32", "by")
            positive = te.compute((2, 4), lambda i, j: tir.Bin("max", x[i, j], tir.const(0)), "y")
            parts = {
                "positive": te.prim_func([x], [positive]).func,
                "plus": te.prim_func([x], [shifted(x, by)], constants=[by]).func,
                "square": te.prim_func([x], [te.compute((2, 4), lambda i, j: x[i, j] * x[i, j], "y")]).func,
            }
            loops = {name: GlobalVar(name, func_type(func)) for name, func in parts.items()}
            (p,) = function.params
            offset = Call(loops["plus"], [Call(loops["positive"], [p]), const([1, -2, 3, 4])])
            flat = call("reshape", offset, newshape=(2, 4))
            entry = Function([p], Call(loops["square"], [flat]))
            spans = Spans({offset: ["second"]})
            var = GlobalVar("entry", func_type(entry))
            return IRModule({**{loops[n]: f for n, f in parts.items()}, var: entry}, spans), var

        _, program = checked(CHAIN, members_of(toy("npu", *OPS, relay_to_tir=relay_to_tir)))
        every = ("first", "second", "third")
        assert steps(program) == [("positive", every), ("plus", ("second",)), ("square", every)]
        assert len(program.role("constant")) == 1

    def test_who_is_asked_and_in_which_order(self) -> None:
        asked: list[str] = []

        def says(name: str, answer: Callable[[Function], LoweredKernel | None] = lambda function: None) -> Any:
            def lower(given: Function | Fusion, target: Target) -> LoweredKernel | None:
                function = given.function if isinstance(given, Fusion) else given
                asked.append(name)
                assert target is Target.current()
                assert function.attr("Composite") == "npu.relu"
                return answer(function)

            return lower

        lower = says("lower")
        relu = taking("npu", "nn.relu", lambda function: lower(function, Target.current()))

        def relay_to_tir(function: Function) -> None:
            asked.append("relay_to_tir")

        def strategies() -> list[Strategy]:
            return [
                Strategy("nn.relu", says("op", lowered)),
                Strategy("npu.relu", says("pattern 1")),
                Strategy("nn.relu", says("never")),
                Strategy("npu.relu", says("pattern 2")),
            ]

        hooks: dict[str, Any] = {"patterns": lambda: [relu], "relay_to_tir": relay_to_tir, "strategies": strategies}
        checked(module_of(RELU), members_of(toy(**hooks)))
        assert asked == ["relay_to_tir", "lower", "pattern 1", "pattern 2", "op"]

    def test_an_ops_strategy_is_for_the_op_alone(self) -> None:
        twice = Pattern("npu.twice", op("nn.relu")(op("add")(wildcard("int32"), wildcard("int32"))))
        relu = Strategy("nn.relu", lambda fusion, target: pytest.fail("neither op is the anchor"))
        members = members_of(toy(patterns=lambda: [twice], strategies=lambda: [relu]))
        error = fault(members, module_of(call("nn.relu", call("add", X, Y))))
        assert "took 'npu.twice' and lowers it by nothing" in error.what

    def test_nobody_lowers_it(self) -> None:
        members = members_of(toy(patterns=lambda: [taking("npu", "add", None)]))
        error = fault(members)
        assert error.what.startswith("plugin uma-npu 1.0 took 'npu.add' and lowers it by nothing")
        assert "region 'npu_0'" in error.what
        assert str(error.where).startswith("second, entry point `npu = ")

    def test_the_host_is_asked_for_its_own_kernels(self) -> None:
        asked: list[str] = []

        def relu(fusion: Fusion, target: Target) -> LoweredKernel:
            asked.append(target.kind.name)
            return lowered(fusion.function)

        host = host_kind("mine")
        entries = entry_of(host, strategies=lambda: [Strategy("nn.relu", relu)])
        checked(CHAIN, resolve_targets("mine", PluginHost(lambda: entries)))
        assert asked == ["mine"]


# --- merging ---------------------------------------------------------------------------------------------------------


def named(name: str) -> Any:
    """A `relay_to_tir` that calls its loops ``name``."""

    def relay_to_tir(function: Function) -> tuple[IRModule, GlobalVar]:
        made = IRModule.from_functions({name: kernel_of(inlined(function)).func})
        return made, made.global_var(name)

    return relay_to_tir


class TestMerging:
    @pytest.mark.parametrize(
        ("name", "given"),
        [("main", "main_1"), ("npu_0", "npu_0_1"), ("npu_1", "npu_1_1"), ("subtract", "subtract")],
    )
    def test_names_that_are_taken(self, name: str, given: str) -> None:
        body = call("nn.relu", call("subtract", call("nn.relu", X), Y))
        _, program = checked(module_of(body), members_of(toy("npu", "nn.relu", relay_to_tir=named(name))))
        host = "subtract_1" if name == "subtract" else "subtract"
        assert [step.function for step in program.steps] == [given, host, given]

    def test_two_targets_may_use_one_name(self) -> None:
        members = members_of(
            toy("npu", "nn.relu", relay_to_tir=named("f")), toy("dsp", "multiply", relay_to_tir=named("f"))
        )
        _, program = checked(CHAIN, members)
        assert steps(program) == [("f", ("first",)), ("add", ("second",)), ("f_1", ("third",))]

    def test_equal_loops_are_one_function_for_regions_and_the_host(self) -> None:
        first = call("nn.relu", X)
        middle = call("multiply", first, Y)
        last = call("nn.relu", middle)
        module = module_of(last, {first: ["a"], middle: ["b"], last: ["c"]})
        only_first = taking("npu", "nn.relu", predicate=lambda match: isinstance(match.inputs[0], Var))
        for patterns in ([only_first], [taking("npu", "nn.relu")]):
            _, program = checked(module, members_of(toy(patterns=lambda patterns=patterns: patterns)))
            assert steps(program) == [("relu", ("a",)), ("multiply", ("b",)), ("relu", ("c",))]
            assert list(program.functions) == ["relu", "multiply"]

    def test_equal_matches_of_one_region_share_their_loops(self) -> None:
        first = call("add", X, Y)
        second = call("add", first, Y)
        module = module_of(second, {first: ["a"], second: ["b"]})
        asked: list[Function] = []

        def lower(function: Function) -> LoweredKernel:
            asked.append(function)
            return lowered(function)

        members = members_of(toy(patterns=lambda: [taking("npu", "add", lower)]))
        _, program = checked(module, members)
        assert steps(program) == [("add", ("a",)), ("add", ("b",))]

    def test_a_multi_output_region_with_shared_inputs_and_constants(self) -> None:
        left, right = call("add", X, const([1, 2, 3, 4])), call("multiply", X, const([5, 6, 7, 8]))
        body = Tuple([call("subtract", left, right), left, right])
        for hook in ({}, {"relay_to_tir": lambda function: whole(function)}):
            build, program = checked(module_of(body), members_of(toy("npu", "add", "multiply", **hook)))
            assert build.placement is not None and list(build.placement.regions) == ["npu_0"]
            assert len(program.outputs) == 3

    def test_loops_that_nobody_calls_are_left_out(self) -> None:
        def relay_to_tir(function: Function) -> tuple[IRModule, GlobalVar]:
            made, entry = whole(function)
            spare = kernel_of(Function([X], call("tanh", call("cast", X, dtype="float32")))).func
            return IRModule({**made.functions, GlobalVar("spare", func_type(spare)): spare}), entry

        _, program = checked(CHAIN, members_of(toy("npu", *OPS, relay_to_tir=relay_to_tir)))
        assert list(program.functions) == ["loops"]

    def test_an_artifact_of_two_targets_runs(self) -> None:
        members = members_of(toy("npu", "nn.relu"), toy("dsp", "multiply", relay_to_tir=named("f")))
        artifact = build_loaded(LoadedModel(CHAIN, "m"), members)
        assert artifact.metadata["targets"] == ["npu", "dsp", "plain"]
        assert artifact.metadata["plugins"] == {"uma-npu": "1.0", "uma-dsp": "1.0", "uma-plain": "1.0"}
        assert [call["layers"] for call in artifact.metadata["calls"]] == [["first"], ["second"], ["third"]]
        assert {call["device"] for call in artifact.metadata["calls"]} == {None}
        inputs = inputs_of(CHAIN.main)
        (got,) = artifact.run(inputs).values()
        expected = (np.maximum(inputs["x"], 0) + np.array([1, -2, 3, 4], np.int32)) ** 2
        np.testing.assert_array_equal(got, expected)
        rows = artifact.profile(inputs).calls
        assert [(row.kernel, row.layers) for row in rows] == [
            ("relu", ("first",)),
            ("add", ("second",)),
            ("f", ("third",)),
        ]

    def test_equal_regions_keep_their_own_layers(self) -> None:
        first = call("nn.relu", X)
        middle = call("subtract", first, Y)
        last = call("nn.relu", middle)
        module = module_of(last, {first: ["a"], middle: ["b"], last: ["c"]})
        build, program = checked(module, members_of(toy("npu", "nn.relu")))
        assert build.placement is not None and list(build.placement.regions) == ["npu_0", "npu_1"]
        assert steps(program) == [("relu", ("a",)), ("subtract", ("b",)), ("relu", ("c",))]


# --- what hooks are given --------------------------------------------------------------------------------------------


def test_the_module_that_a_lowering_is_given_cannot_be_changed() -> None:
    tried: list[str] = []

    def relay_to_tir(module: IRModule, function: Function) -> tuple[IRModule, GlobalVar]:
        (value,) = [e for e in nested_exprs(function) if isinstance(e, Constant)]
        attempts: dict[str, Callable[[], object]] = {
            "functions": lambda: setitem(module.functions, GlobalVar("f", func_type(function)), function),  # type: ignore[call-overload]  # read-only
            "spans": lambda: module.spans.add(function.body, ["mine"]),
            "moved": lambda: module.spans.record_rewrite(function.body, function.body),
            "field": lambda: setattr(module, "functions", {}),
            "node": lambda: setattr(function, "body", value),
            "constant": lambda: setitem(value.data, 0, 7),
            "flags": lambda: value.data.setflags(write=True),
        }
        for name, attempt in attempts.items():
            with pytest.raises((PluginError, TypeError, AttributeError, ValueError)):
                attempt()
            tried.append(name)
        return whole(function)

    members = members_of(toy("npu", *OPS, relay_to_tir=relay_to_tir))
    _, program = checked(CHAIN, members)
    assert len(tried) == 7
    assert steps(program) == [("loops", ("first", "second", "third"))]


# --- functions that the model gave away ------------------------------------------------------------------------------


class TestCompilerFunctions:
    def test_for_a_target_that_is_absent(self) -> None:
        mine = Function([Y], call("nn.relu", Y), {"Compiler": "gpu"})
        relu = mine.body
        body = Call(mine, [X])
        for label, members in (("gpu", members_of(toy("npu", "nn.relu"))), ("gpu", members_of())):
            with pytest.raises(
                ModelError, match=f"a function for '{label}', which is not an accelerator of this build"
            ) as caught:
                built(module_of(body, {relu: ["first"]}), members)
            assert "first" in str(caught.value.where)

    def test_for_the_host(self) -> None:
        mine = Function([Y], call("nn.relu", Y), {"Compiler": "plain"})
        build, program = checked(module_of(Call(mine, [X])), members_of(toy("npu", "nn.relu")))
        assert [(op.owner, op.pin) for op in explain(build).ops] == [(None, "plain")]
        assert [step.function for step in program.steps] == ["relu"]

    def test_is_respected_and_may_hold_raw_ops(self) -> None:
        mine = Function([X, Y], call("subtract", call("nn.relu", X), Y), {"Compiler": "npu"})
        body = call("nn.relu", Call(mine, [X, Y]))
        strategies = lambda: [Strategy("subtract", lambda fusion, target: lowered(fusion.function))]  # noqa: E731 - as short as its use
        members = members_of(toy("npu", "nn.relu", strategies=strategies))
        build, program = checked(module_of(body), members)
        assert [step.function for step in program.steps] == ["relu", "subtract", "relu"]
        assert [op.owner for op in explain(build).ops] == ["npu"] * 3

    def test_that_nothing_lowers(self) -> None:
        mine = Function([X, Y], call("subtract", X, Y), {"Compiler": "npu"})
        members = members_of(toy("npu", "nn.relu"))
        assert "took 'subtract' and lowers it by nothing" in fault(members, module_of(Call(mine, [X, Y]))).what

    def test_that_calls_a_function_of_the_module(self) -> None:
        helper = Function([Y], call("nn.relu", Y))
        var = GlobalVar("helper", func_type(helper))
        for inner in (Call(var, [X]), call("nn.relu", Call(var, [X]))):
            mine = Function([X], inner, {"Compiler": "npu"})
            name = GlobalVar("mine", func_type(mine))
            main = Function([X], Call(name, [X]))
            module = IRModule({GlobalVar("main", func_type(main)): main, var: helper, name: mine})
            with pytest.raises(ModelError, match="region 'mine' calls 'helper', a function of the module"):
                built(module, members_of(toy("npu", "nn.relu")))

    @pytest.mark.parametrize(
        "inside",
        [X, call("reshape", X, newshape=(4, 2)), call("reshape", call("reshape", X, newshape=(8,)), newshape=(2, 4))],
    )
    def test_that_computes_nothing(self, inside: Expr) -> None:
        """Nobody is asked for what moves no data; what was asked for is not asked for again."""
        mine = Function([X], inside, {"Compiler": "npu"})
        relay_to_tir = lambda function: pytest.fail("there is nothing to lower")  # noqa: E731 - as short as its use
        body = call("nn.relu", Call(mine, [call("multiply", X, Y)]))
        members = members_of(toy("npu", "add", relay_to_tir=relay_to_tir))
        _, program = checked(module_of(body), members)
        assert [step.function for step in program.steps] == ["multiply", "relu"]
        forms: list[Form] = []
        Build("m", members, lambda stage, form, made_by=None: forms.append(form)).run(module_of(body))
        assert all(Build("m", members).run(form) == program for form in forms)

    def test_that_is_a_match_of_a_view(self) -> None:
        """What a pattern took is for its owner to compute, and then no more."""
        asked: list[Function] = []

        def relay_to_tir(function: Function) -> tuple[IRModule, GlobalVar]:
            asked.append(function)
            assert isinstance(function.body, Call) and isinstance(function.body.op, Function)
            entry = Function(function.params, call("reshape", function.params[0], newshape=(4, 2)))
            var = GlobalVar("entry", func_type(entry))
            return IRModule({var: entry}), var

        module = module_of(call("nn.relu", call("reshape", call("multiply", X, Y), newshape=(4, 2))))
        members = members_of(toy("npu", "reshape", relay_to_tir=relay_to_tir))
        _, program = checked(module, members)
        assert [step.function for step in program.steps] == ["multiply", "relu"]
        lowered_form = Build("m", members).run(module, "lower")
        assert len(asked) == 2
        assert Build("m", members).run(lowered_form) == program
        assert len(asked) == 2


# --- targets ---------------------------------------------------------------------------------------------------------


def test_limits_reach_the_partitioner() -> None:
    seen: list[Target] = []

    def limits(target: Target) -> Limits:
        seen.append(target)
        return Limits(matches=1)

    entries = entry_of(accelerator("npu", limits=limits), patterns=lambda: [taking("npu", name) for name in OPS])
    build, _ = checked(CHAIN, members_of(entries))
    assert build.placement is not None and list(build.placement.regions) == ["npu_0", "npu_1", "npu_2"]
    assert [target.kind.name for target in seen] == ["npu"]


def test_the_command_line_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    entries: list[PluginEntry] = [*toy("npu", *OPS), *entry_of(HOST)]
    plugins = PluginHost(lambda: entries)
    artifact = uma.build(CHAIN, ["npu", "plain"], name="chain", plugins=plugins)
    inputs = inputs_of(CHAIN.main)
    (got,) = artifact.run(inputs).values()
    np.testing.assert_array_equal(got, (np.maximum(inputs["x"], 0) + np.array([1, -2, 3, 4], np.int32)) ** 2)
    with pytest.raises(UsageError, match="there is no target kind 'gpu'"):
        uma.build(CHAIN, ["gpu", "plain"], plugins=plugins)
