"""Refusals: what goes back, what stays, and which of them are faults."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from tests._support.plugins import accelerator, built, checked, entry_of, host_kind, members_of, module_of, taking, toy
from tests._support.regions import CHAIN, OPS, T, X, Y, fault, whole
from tests._support.te_lowerings import lowered

from uma.errors import ModelError, PluginError
from uma.hookspecs import Fusion, LoweredKernel, Pass, Pattern, Refuse, Strategy
from uma.lowering.build_targets import BuildTargets, resolve_targets
from uma.partition import OpRecord
from uma.plugins import PluginHost
from uma.relay import Call, Constant, Expr, Function, GlobalVar, IRModule, Spans, Tuple, Var, call, const
from uma.relay.pattern import constant, op, wildcard
from uma.relay.visit import post_order, rewrite
from uma.reports.explain import explain
from uma.targets import Target


def records(module: IRModule, members: BuildTargets) -> dict[str, OpRecord]:
    """What explain says of each op, by its layer, after a build that computes what it should."""
    build, _ = checked(module, members)
    return {op.layers[0]: op for op in explain(build).ops}


def composites(function: Function) -> dict[str, Call]:
    """The calls of composite functions in a region, by the name of the op's pattern."""
    found = {}
    for expr in post_order(function.body):
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            found[(expr.op.attr("Composite") or "").removeprefix("npu.")] = expr
    return found


AT: dict[str, Callable[[Function], Expr]] = {
    "the call": lambda function: composites(function)["add"],
    "the composite function": lambda function: composites(function)["add"].op,  # type: ignore[dict-item,return-value]  # a composite: a `Function`
    "the op inside": lambda function: composites(function)["add"].op.body,  # type: ignore[union-attr]  # a `Function` has a body
    "a constant inside": lambda function: composites(function)["add"].op.body.args[1],  # type: ignore[union-attr]  # the body is a call on X and a constant
}


class TestRefusals:
    def test_of_a_whole_region(self) -> None:
        for at in (lambda function: None, lambda function: function, lambda function: function.body):
            tried: list[str] = []

            def relay_to_tir(function: Function) -> tuple[IRModule, GlobalVar]:
                tried.append("x")  # noqa: B023 - is called within this round
                raise Refuse("not today", at=at(function))  # noqa: B023 - is called within this round

            members = members_of(toy("npu", "nn.relu", relay_to_tir=relay_to_tir), toy("dsp", "multiply"))
            found = records(CHAIN, members)
            assert [op.owner for op in found.values()] == [None, None, "dsp"]
            (reason, other) = found["first"].why
            assert (reason.owner, reason.kind, reason.reason, reason.pattern) == (
                "npu",
                "refused",
                "not today",
                "npu.relu",
            )
            assert other.owner == "dsp" and tried == ["x"]

    def test_of_all_results_of_a_region(self) -> None:
        def relay_to_tir(function: Function) -> tuple[IRModule, GlobalVar]:
            raise Refuse("no", at=function.body)

        body = Tuple([call("nn.relu", X), call("add", X, X)])
        build, _ = checked(module_of(body), members_of(toy("npu", *OPS, relay_to_tir=relay_to_tir)))
        assert build.placement is not None and not build.placement.regions

    @pytest.mark.parametrize("at", list(AT))
    def test_relay_to_tir_refuses_a_part_and_the_rest_stays(self, at: str) -> None:
        regions: list[list[str]] = []

        def relay_to_tir(function: Function) -> tuple[IRModule, GlobalVar]:
            regions.append(list(composites(function)))
            if "add" in composites(function):
                raise Refuse("no additions on Sundays", at=AT[at](function))
            return whole(function)

        found = records(CHAIN, members_of(toy("npu", *OPS, relay_to_tir=relay_to_tir)))
        assert regions == [["relu", "add", "multiply"], ["relu"], ["multiply"]]
        assert {layer: (op.owner, op.region) for layer, op in found.items()} == {
            "first": ("npu", "npu_0"),
            "second": (None, None),
            "third": ("npu", "npu_1"),
        }
        (reason,) = found["second"].why
        assert (reason.kind, reason.pattern, reason.reason) == ("refused", "npu.add", "no additions on Sundays")

    @pytest.mark.parametrize("at", ["nothing", "the function", "its body", "its constant"])
    def test_a_patterns_lowering_refuses(self, at: str) -> None:
        where: dict[str, Callable[[Function], Expr | None]] = {
            "nothing": lambda function: None,
            "the function": lambda function: function,
            "its body": lambda function: function.body,
            "its constant": lambda function: function.body.args[1],  # type: ignore[attr-defined]  # its body is a call
        }

        def lower(function: Function) -> LoweredKernel:
            raise Refuse("this one not", at=where[at](function))

        def patterns() -> list[Any]:
            return [taking("npu", "add", lower), taking("npu", "nn.relu"), taking("npu", "multiply")]

        found = records(CHAIN, members_of(toy(patterns=patterns)))
        assert [op.owner for op in found.values()] == ["npu", None, "npu"]
        assert found["second"].why[0].reason == "this one not"

    def test_a_strategy_refuses_what_a_later_one_would_give(self) -> None:
        def refuse(fusion: Fusion, target: Target) -> LoweredKernel:
            raise Refuse("too slow there")

        def strategies() -> list[Strategy]:
            return [Strategy("npu.add", refuse), Strategy("npu.add", lambda fusion, target: lowered(fusion.function))]

        members = members_of(toy(patterns=lambda: [taking("npu", "add", None)], strategies=strategies))
        assert records(CHAIN, members)["second"].why[0].reason == "too slow there"

    def test_what_is_refused_falls_to_a_smaller_pattern_and_then_to_another_target(self) -> None:
        def refuse(function: Function) -> LoweredKernel:
            raise Refuse(f"no {function.attr('Composite')}")

        relu = op("nn.relu")(wildcard("int32"))
        both = Pattern("npu.both", op("add")(relu, constant("int32")), lower=lambda m, target: refuse(m.function))
        npu = toy(patterns=lambda: [both, taking("npu", "add", refuse), taking("npu", "nn.relu")])
        found = records(CHAIN, members_of(npu, toy("dsp", "add", "multiply")))
        assert {layer: op.pattern for layer, op in found.items()} == {
            "first": "npu.relu",
            "second": "dsp.add",
            "third": "dsp.multiply",
        }
        assert [(r.pattern, r.reason) for r in found["second"].why] == [
            ("npu.both", "no npu.both"),
            ("npu.add", "no npu.add"),
        ]

    def test_a_part_that_another_match_has_too_is_refused_of_one_alone(self) -> None:
        """Both matches compute ``add(p0, p0)``, which is one expression."""

        def refuse(function: Function) -> LoweredKernel:
            raise Refuse("alone it is slow", at=function.body)

        value = wildcard("int32")
        both = Pattern("npu.both", op("nn.relu")(op("add")(value, value)), lower=lambda m, target: lowered(m.function))
        npu = toy(patterns=lambda: [both, taking("npu", "add", refuse)])
        inner = call("add", X, X)
        relu = call("nn.relu", inner)
        last = call("add", relu, relu)
        found = records(module_of(last, {inner: ["a"], relu: ["b"], last: ["c"]}), members_of(npu))
        assert {layer: op.pattern for layer, op in found.items()} == {"a": "npu.both", "b": "npu.both", "c": None}
        assert found["c"].why[0].reason == "alone it is slow"

    def test_equal_regions_are_refused_together(self) -> None:
        asked: list[Function] = []

        def refuse(function: Function) -> LoweredKernel:
            asked.append(function)
            raise Refuse("never")

        again = call("nn.relu", call("subtract", call("nn.relu", X), Y))
        build, program = checked(module_of(again), members_of(toy(patterns=lambda: [taking("npu", "nn.relu", refuse)])))
        assert len(asked) == 1
        assert [op.owner for op in explain(build).ops] == [None, None, None]
        assert len(program.steps) == 3

    def test_many_refusals_of_one_region(self) -> None:
        """Each match is asked for once, however many go."""
        asked: list[tuple[Function, int]] = []

        def some(function: Function) -> LoweredKernel:
            (bound,) = [e for e in post_order(function.body) if isinstance(e, Constant)]
            asked.append((function, int(bound.data.item())))
            if asked[-1][1] % 3 == 0:
                raise Refuse(f"{asked[-1][1]} is a multiple of 3")
            return lowered(function)

        body: Expr = X
        for number in range(60):
            body = call("add", body, const(number))
        build, _ = checked(module_of(body), members_of(toy(patterns=lambda: [taking("npu", "add", some)])))
        owners = [op.owner for op in explain(build).ops]
        assert owners == [None if number % 3 == 0 else "npu" for number in range(60)]
        assert sorted(number for _, number in asked) == list(range(60))

    @pytest.mark.parametrize(
        ("refusal", "what"),
        [
            (lambda function: Refuse(""), "refused without a reason"),
            (lambda function: Refuse("  \n"), "refused without a reason"),
            (lambda function: Refuse(None), "refused without a reason"),  # type: ignore[arg-type]  # None is not text
            (lambda function: Refuse("no", at=call("tanh", const([1.0]))), "is nothing that the function it was given"),
            (lambda function: Refuse("no", at=function.params[0]), "is nothing that the function it was given"),
            (lambda function: Refuse("no", at="the add"), "refused 'the add', which is nothing that the function"),
            (lambda function: Refuse("no", at=[]), "refused a value of type list, which is nothing that the function"),
        ],
    )
    def test_that_make_no_sense(self, refusal: Callable[[Function], Refuse], what: str) -> None:
        def lower(function: Function) -> LoweredKernel:
            raise refusal(function)

        error = fault(members_of(toy(patterns=lambda: [taking("npu", "add", lower)])))
        assert what in error.what and "in lower of pattern 'npu.add'" in error.what
        assert str(error.where).startswith("second, ")
        error = fault(members_of(toy("npu", "add", relay_to_tir=lambda function: lower(function))))
        assert what in error.what and "in hook relay_to_tir, for region 'npu_0'" in error.what
        assert str(error.where).startswith("second, ")

    def test_of_what_the_model_itself_has_given_away(self) -> None:
        def relay_to_tir(function: Function) -> tuple[IRModule, GlobalVar]:
            raise Refuse("too large")

        mine = Function([Y], call("nn.relu", Y), {"Compiler": "npu"})
        body = call("add", Call(mine, [X]), X)
        with pytest.raises(
            ModelError, match="the model wants 'npu_0' on its target, which refuses it: too large"
        ) as caught:
            built(module_of(body), members_of(toy("npu", "nn.relu", relay_to_tir=relay_to_tir)))
        assert "Compiler" in str(caught.value.hint)

    def test_of_a_region_that_a_pass_made(self) -> None:
        def split(module: IRModule) -> IRModule:
            """The region under another name."""
            functions = dict(module.functions)
            old = module.global_var("npu_0")
            new = GlobalVar("other", old.type)  # type: ignore[arg-type]  # a region's name has the type of a function
            functions[new] = functions.pop(old)
            main = module.main
            body = rewrite(main.body, lambda e: Call(new, e.args) if isinstance(e, Call) and e.op is old else None)
            return IRModule(functions, Spans(dict(module.spans)), module.signature).with_main(
                Function(main.params, body), Spans(dict(module.spans))
            )

        def refuse(function: Function) -> LoweredKernel:
            raise Refuse("who are you?")

        passes = lambda: [Pass("POST_PARTITIONING_0", "split", split)]  # noqa: E731 - as short as what it stands for
        members = members_of(toy(patterns=lambda: [taking("npu", "nn.relu", refuse)], passes=passes))
        with pytest.raises(
            PluginError, match=r"region 'other' was made by a pass, and its target refuses it: who are you?"
        ):
            built(CHAIN, members)

    def test_of_a_region_that_a_pass_rewrote(self) -> None:
        """Nobody knows what its parts came from: all of it goes back."""

        def rewrite(module: IRModule) -> IRModule:
            ((var, function),) = module.functions.items()
            assert isinstance(function, Function)
            relu = Function([Var("q", T)], call("nn.relu", Var("q", T)), {"Composite": "npu.relu"})
            body = call("nn.relu", function.params[0])
            return IRModule({var: Function(function.params, Call(relu, [body.args[0]]), dict(function.attrs))})

        def refuse(function: Function) -> LoweredKernel:
            raise Refuse("no")

        passes = lambda: [Pass("POST_PARTITIONING_0", "rewrite", rewrite, scope="regions")]  # noqa: E731 - as short as its use
        members = members_of(toy(patterns=lambda: [taking("npu", "nn.relu", refuse)], passes=passes))
        build, _ = checked(CHAIN, members)
        assert [op.owner for op in explain(build).ops] == [None] * 3

    @pytest.mark.parametrize("hook", ["patterns", "passes", "strategies", "runtime", "limits", "pass", "predicate"])
    def test_from_what_is_no_lowering(self, hook: str) -> None:
        def refuse(*_: Any, **__: Any) -> Any:
            raise Refuse("no")

        hooks: dict[str, Any] = {"patterns": lambda: [taking("npu", "nn.relu")]}
        limits = refuse if hook == "limits" else None
        if hook == "pass":
            hooks["passes"] = lambda: [Pass("TIR_0", "refusing", refuse)]
        elif hook == "predicate":
            hooks["patterns"] = lambda: [taking("npu", "nn.relu", predicate=refuse)]
        elif hook == "strategies":
            hooks = {"patterns": lambda: [taking("npu", "nn.relu", None)], "strategies": lambda: refuse()}
        elif hook != "limits":
            hooks[hook] = lambda: refuse()
        members = members_of(entry_of(accelerator("npu", limits=limits), **hooks))
        if hook == "runtime":
            with pytest.raises(PluginError, match=r"failed in hook runtime: .*Refuse: no"):
                _ = members.accelerators[0].runtime
        else:
            assert re.search("Refuse(:|\\b.*) no", fault(members).what)

    def test_by_the_host(self) -> None:
        def refuse(fusion: Fusion, target: Target) -> LoweredKernel:
            raise Refuse("I am tired")

        entries = entry_of(host_kind("mine"), strategies=lambda: [Strategy("add", refuse)])
        with pytest.raises(PluginError, match=r"uma-mine 1.0 refused what only the host can do: I am tired") as caught:
            built(CHAIN, resolve_targets("mine", PluginHost(lambda: entries)))
        assert str(caught.value.where).startswith("second, ")
