"""How regions become loops: who is asked, what becomes of the answers, and what becomes of refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests._support.partitions import inputs_of
from tests._support.plugins import HOST, accelerator, built, checked, entry_of, members_of, module_of, taking, toy
from tests._support.te_lowerings import kernel_of, lowered

import uma
from uma.errors import ModelError, PluginError, UsageError
from uma.hookspecs import Lowered, Pass, Pattern, Refuse, Strategy
from uma.partition import OpRecord
from uma.pipeline.driver import LoadedModel, build_loaded
from uma.pipeline.explain import explain
from uma.pipeline.members import Members, resolve_targets
from uma.plugins import PluginEntry, PluginHost
from uma.relay import Call, Constant, Expr, Function, GlobalVar, IRModule, Spans, Tuple, TupleGetItem, Var, call, const
from uma.relay.module import func_type
from uma.relay.pattern import any_, constant, op, wildcard
from uma.relay.types import TensorType
from uma.relay.visit import nested_exprs, post_order, rewrite, substitute
from uma.target import Limits, Target, TargetKind
from uma.tir import nodes as tir
from uma.tir import te

T = TensorType((2, 4), "int32")
X, Y = Var("x", T), Var("y", T)
RELU = call("nn.relu", X)
SUM = call("add", RELU, const([1, -2, 3, 4]))
MANY = call("multiply", SUM, SUM)
CHAIN = module_of(MANY, {RELU: ["first"], SUM: ["second"], MANY: ["third"]})
"""A relu, an addition of a constant, a multiplication; all of int32, so that nothing is rounded."""
OPS = ("nn.relu", "add", "multiply")


def steps(program: Any) -> list[tuple[str, tuple[str, ...]]]:
    return [(step.function, step.layers) for step in program.steps]


def whole(function: Function) -> tuple[IRModule, GlobalVar]:
    """One kernel for all of a region, called through an entry that gives it its constants."""
    body = inlined(function)
    kernel = kernel_of(body)
    loops = GlobalVar("loops", func_type(kernel.func))
    entry = Function(function.params, Call(loops, [*function.params, *map(const, kernel.constants)]))
    var = GlobalVar("entry", func_type(entry))
    return IRModule({loops: kernel.func, var: entry}), var


def inlined(function: Function) -> Function:
    """A region without composite functions."""

    def rule(expr: Expr) -> Expr | None:
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            return substitute(expr.op.body, dict(zip(expr.op.params, expr.args, strict=True)))
        return None

    return Function(function.params, rewrite(function.body, rule))


def records(module: IRModule, members: Members) -> dict[str, OpRecord]:
    """What explain says of each op, by its layer, after a build that computes what it should."""
    build, _ = checked(module, members)
    return {op.layers[0]: op for op in explain(build).ops}


def fault(members: Members, module: IRModule = CHAIN) -> PluginError:
    """The one error that a build gives."""
    with pytest.raises(PluginError) as caught:
        built(module, members)
    assert "uma-npu 1.0" in f"{caught.value.what} {caught.value.where}"
    return caught.value


# --- who is asked ----------------------------------------------------------------------------------------------------


class TestTheRoad:
    def test_relay_to_tir_gives_a_prim_func(self) -> None:
        seen: list[Any] = []

        def relay_to_tir(module: IRModule, function: Function, target: Target) -> tuple[IRModule, GlobalVar]:
            seen.append((module, function, target, Target.current()))
            made = IRModule.of({"fast": kernel_of(inlined(function)).func})
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

        def says(name: str, answer: Callable[[Function], Lowered | None] = lambda function: None) -> Any:
            def lower(function: Function, target: Target) -> Lowered | None:
                asked.append(name)
                assert target is Target.current()
                assert function.attr("Composite") == "npu.relu"
                return answer(function)

            return lower

        relu = taking("npu", "nn.relu", None)
        object.__setattr__(relu, "lower", says("lower"))

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
        relu = Strategy("nn.relu", lambda function, target: pytest.fail("two ops are not one"))
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

        def relu(function: Function, target: Target) -> Lowered:
            asked.append(target.kind.name)
            return lowered(function)

        host = TargetKind("mine", help="a host", is_host=True)
        entries = entry_of(host, strategies=lambda: [Strategy("nn.relu", relu)])
        checked(CHAIN, resolve_targets("mine", PluginHost(lambda: entries)))
        assert asked == ["mine"]


# --- merging ---------------------------------------------------------------------------------------------------------


def named(name: str) -> Any:
    """A `relay_to_tir` that calls its loops ``name``."""

    def relay_to_tir(function: Function) -> tuple[IRModule, GlobalVar]:
        made = IRModule.of({name: kernel_of(inlined(function)).func})
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

        def lower(function: Function) -> Lowered:
            asked.append(function)
            return lowered(function)

        members = members_of(toy(patterns=lambda: [taking("npu", "add", lower)]))
        _, program = checked(module, members)
        assert steps(program) == [("add", ("a",)), ("add", ("b",))]

    def test_a_multi_output_region_with_shared_inputs_and_constants(self) -> None:
        left, right = call("add", X, const([1, 2, 3, 4])), call("multiply", X, const([5, 6, 7, 8]))
        body = Tuple([call("subtract", left, right), left, right])
        for hook in ({}, {"relay_to_tir": lambda function: whole(function)}):
            build, program = checked(module_of(body), members_of(toy("npu", "add", "multiply", **hook)))  # type: ignore[arg-type]
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
        rows = artifact.profile(inputs)
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


# --- refusals --------------------------------------------------------------------------------------------------------


def composites(function: Function) -> dict[str, Call]:
    """The calls of composite functions in a region, by the name of the op's pattern."""
    found = {}
    for expr in post_order(function.body):
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            found[(expr.op.attr("Composite") or "").removeprefix("npu.")] = expr
    return found


AT: dict[str, Callable[[Function], Expr]] = {
    "the call": lambda function: composites(function)["add"],
    "the composite function": lambda function: composites(function)["add"].op,  # type: ignore[dict-item,return-value]
    "the op inside": lambda function: composites(function)["add"].op.body,  # type: ignore[union-attr]
    "a constant inside": lambda function: composites(function)["add"].op.body.args[1],  # type: ignore[union-attr]
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
            "its constant": lambda function: function.body.args[1],  # type: ignore[attr-defined]
        }

        def lower(function: Function) -> Lowered:
            raise Refuse("this one not", at=where[at](function))

        def patterns() -> list[Any]:
            return [taking("npu", "add", lower), taking("npu", "nn.relu"), taking("npu", "multiply")]

        found = records(CHAIN, members_of(toy(patterns=patterns)))
        assert [op.owner for op in found.values()] == ["npu", None, "npu"]
        assert found["second"].why[0].reason == "this one not"

    def test_a_strategy_refuses_what_a_later_one_would_give(self) -> None:
        def refuse(function: Function, target: Target) -> Lowered:
            raise Refuse("too slow there")

        def strategies() -> list[Strategy]:
            return [Strategy("npu.add", refuse), Strategy("npu.add", lambda function, target: lowered(function))]

        members = members_of(toy(patterns=lambda: [taking("npu", "add", None)], strategies=strategies))
        assert records(CHAIN, members)["second"].why[0].reason == "too slow there"

    def test_what_is_refused_falls_to_a_smaller_pattern_and_then_to_another_target(self) -> None:
        def refuse(function: Function) -> Lowered:
            raise Refuse(f"no {function.attr('Composite')}")

        relu = op("nn.relu")(wildcard("int32"))
        both = Pattern("npu.both", op("add")(relu, constant("int32")), lower=lambda f, target: refuse(f))
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

    def test_equal_regions_are_refused_together(self) -> None:
        asked: list[Function] = []

        def refuse(function: Function) -> Lowered:
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

        def some(function: Function) -> Lowered:
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
            (lambda function: Refuse(None), "refused without a reason"),  # type: ignore[arg-type]
            (lambda function: Refuse("no", at=call("tanh", const([1.0]))), "is nothing that the function it was given"),
            (lambda function: Refuse("no", at=function.params[0]), "is nothing that the function it was given"),
            (lambda function: Refuse("no", at="the add"), "refused 'the add', which is nothing that the function"),
            (lambda function: Refuse("no", at=[]), "refused a value of type list, which is nothing that the function"),
        ],
    )
    def test_that_make_no_sense(self, refusal: Callable[[Function], Refuse], what: str) -> None:
        def lower(function: Function) -> Lowered:
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
            new = GlobalVar("other", old.type)  # type: ignore[arg-type]
            functions[new] = functions.pop(old)
            main = module.main
            body = rewrite(main.body, lambda e: Call(new, e.args) if isinstance(e, Call) and e.op is old else None)
            return IRModule(functions, Spans(dict(module.spans)), module.signature).with_main(
                Function(main.params, body), Spans(dict(module.spans))
            )

        def refuse(function: Function) -> Lowered:
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

        def refuse(function: Function) -> Lowered:
            raise Refuse("no")

        passes = lambda: [Pass("POST_PARTITIONING_0", "rewrite", rewrite, scope="regions")]  # noqa: E731
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
        def refuse(function: Function, target: Target) -> Lowered:
            raise Refuse("I am tired")

        entries = entry_of(
            TargetKind("mine", help="a host", is_host=True), strategies=lambda: [Strategy("add", refuse)]
        )
        with pytest.raises(PluginError, match=r"uma-mine 1.0 refused what only the host can do: I am tired") as caught:
            built(CHAIN, resolve_targets("mine", PluginHost(lambda: entries)))
        assert str(caught.value.where).startswith("second, ")


# --- what hooks are given --------------------------------------------------------------------------------------------


def test_the_module_that_a_lowering_is_given_cannot_be_changed() -> None:
    tried: list[str] = []

    def relay_to_tir(module: IRModule, function: Function) -> tuple[IRModule, GlobalVar]:
        (value,) = [e for e in nested_exprs(function) if isinstance(e, Constant)]
        attempts: dict[str, Callable[[], object]] = {
            "functions": lambda: module.functions.__setitem__(GlobalVar("f", function.type), function),  # type: ignore[misc]
            "spans": lambda: module.spans.add(function.body, ["mine"]),
            "moved": lambda: module.spans.moved(function.body, function.body),
            "field": lambda: setattr(module, "functions", {}),
            "node": lambda: setattr(function, "body", value),
            "constant": lambda: value.data.__setitem__(0, 7),
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


# --- bad answers -----------------------------------------------------------------------------------------------------


def loops(inputs: list[tuple[int, ...]], output: tuple[int, ...], dtype: str = "int32", **given: Any) -> tir.PrimFunc:
    """Loops of some type, which compute nothing much."""
    xs = [te.placeholder(shape, dtype, f"x{i}") for i, shape in enumerate(inputs)]
    cs = [te.placeholder(shape, dtype, f"c{i}") for i, shape in enumerate(given.get("constants", []))]
    return te.prim_func(xs, [te.compute(output, lambda *_: tir.const(0, dtype), "y")], constants=cs).func


def writes_its_input() -> tir.PrimFunc:
    x, y = tir.Buffer("x", (2, 4), "int32"), tir.Buffer("y", (2, 4), "int32")
    here = (tir.const(0), tir.const(0))
    body = tir.Seq((tir.Store(y, here, tir.Load(x, here)), tir.Store(x, here, tir.const(1))))
    return tir.PrimFunc((tir.Param(x, "input"), tir.Param(y, "output")), body)


def entry_calling(*functions: tir.PrimFunc, made: Callable[[list[GlobalVar], tuple[Var, ...]], Expr]) -> Any:
    """A `relay_to_tir` whose entry's body is what ``made`` gives of the names of ``functions`` and its parameters."""

    def relay_to_tir(function: Function) -> tuple[IRModule, GlobalVar]:
        names = [GlobalVar(f"f{i}", func_type(func)) for i, func in enumerate(functions)]
        entry = Function(function.params, made(names, function.params))
        var = GlobalVar("entry", func_type(entry))
        return IRModule({**dict(zip(names, functions, strict=True)), var: entry}), var

    return relay_to_tir


def prim(func: tir.PrimFunc) -> Any:
    def relay_to_tir() -> tuple[IRModule, GlobalVar]:
        made = IRModule.of({"f": func})
        return made, made.global_var("f")

    return relay_to_tir


def ill_typed(function: Function) -> tuple[IRModule, GlobalVar]:
    """The name has the type of the region, the function another."""
    var = GlobalVar("f", function.type)  # type: ignore[arg-type]
    return IRModule({var: loops([(4,)], (4,))}), var


def raises(error: BaseException) -> Any:
    def relay_to_tir() -> None:
        raise error

    return relay_to_tir


ONE, WITH_CONSTANT = loops([(2, 4)], (2, 4)), loops([(2, 4)], (2, 4), constants=[(4,)])
UNKNOWN = GlobalVar("unknown", func_type(ONE))

BAD_MODULES: dict[str, tuple[Any, str]] = {
    "no tuple": (lambda: "loops", "gave 'loops' from hook relay_to_tir"),
    "a tuple of three": (lambda: (1, 2, 3), "gave no pair of a module and its entry in hook relay_to_tir"),
    "no module": (lambda: ({}, UNKNOWN), "gave no pair of an IRModule and a GlobalVar in hook relay_to_tir"),
    "no entry": (lambda: (IRModule.of({"f": ONE}), "f"), "gave no pair of an IRModule and a GlobalVar"),
    "an entry that is missing": (
        lambda: (IRModule.of({"f": ONE}), UNKNOWN),
        "gave the entry 'unknown', which its module does not have",
    ),
    "an ill-typed module": (ill_typed, r"not sound: the function has type \(Tensor\[\(4,\), int32\]\)"),
    "an unknown global": (
        entry_calling(made=lambda names, params: Call(UNKNOWN, params)),
        "not sound: call of 'unknown', which the module does not have",
    ),
    "a variable of nowhere": (
        entry_calling(ONE, made=lambda names, params: Call(names[0], [Var("z", T)])),
        "not sound: 'z' is no parameter of the function",
    ),
    "a wrong dtype": (prim(loops([(2, 4)], (2, 4), "int8")), r"gave the entry 'f' of type .*int8.*, not .*int32"),
    "a wrong shape": (prim(loops([(4, 2)], (2, 4))), "gave the entry 'f' of type"),
    "a wrong result": (prim(loops([(2, 4)], (8,))), "gave the entry 'f' of type"),
    "a constant as an input": (prim(WITH_CONSTANT), "constants are given by an entry function that calls the loops"),
    "too many inputs": (prim(loops([(2, 4), (2, 4)], (2, 4))), "inputs in order, then results"),
    "loops that write into their input": (prim(writes_its_input()), "not sound: malformed loops: input 'x' is written"),
    "what is not lowered": (
        entry_calling(made=lambda names, params: call("nn.relu", params[0])),
        "gave an entry that calls nn.relu, which is not lowered",
    ),
    "what it was given": (
        lambda function: given_back(function),
        "gave an entry that calls a function, which is not lowered",
    ),
    "a computed constant": (
        entry_calling(WITH_CONSTANT, loops([(2, 4)], (4,)), made=lambda n, p: Call(n[0], [p[0], Call(n[1], [p[0]])])),
        "gave an entry in which constant 'w0' of 'f0' is computed",
    ),
    "an exception": (
        raises(ZeroDivisionError("by nought")),
        "failed in hook relay_to_tir: ZeroDivisionError: by nought",
    ),
    "the end of the world": (raises(SystemExit(3)), "failed in hook relay_to_tir: SystemExit: 3"),
    "an error of the core's": (raises(ModelError("mine")), "failed in hook relay_to_tir: uma.errors.ModelError: mine"),
    "an error of plugins": (raises(PluginError("no licence")), "no licence"),
    "a module of junk": (
        lambda: (IRModule({1: 2}), UNKNOWN),
        "failed in hook relay_to_tir: .*a module has int under int",
    ),  # type: ignore[dict-item]
}


def given_back(function: Function) -> tuple[IRModule, GlobalVar]:
    made = IRModule.of({"f": function})
    return made, made.global_var("f")


@pytest.mark.parametrize("case", list(BAD_MODULES))
def test_what_relay_to_tir_may_not_give(case: str) -> None:
    hook, what = BAD_MODULES[case]
    error = fault(members_of(toy("npu", *OPS, relay_to_tir=hook)))
    assert re.search(what, error.what), error.what
    text = f"{error.what} {error.where}"
    assert "hook relay_to_tir" in text and "region 'npu_0'" in text
    assert str(error.where).startswith("first, second, third, ")


def test_parameters_in_another_order() -> None:
    relu = op("nn.relu")
    join = op("concatenate")(relu(wildcard("int32")), relu(wildcard("int32")), axis=any_)
    other = Var("z", TensorType((3, 4), "int32"))
    body = call("concatenate", call("nn.relu", X), call("nn.relu", other), axis=0)
    hooks: dict[str, Any] = {"patterns": lambda: [Pattern("npu.join", join)]}
    members = members_of(toy(**hooks, relay_to_tir=prim(loops([(3, 4), (2, 4)], (5, 4)))))
    assert "inputs in order" in fault(members, module_of(body)).what


BAD_LOWERED: dict[str, tuple[Callable[[Function], Any], str]] = {
    "no Lowered": (lambda function: ONE, "gave PrimFunc instead of Lowered from"),
    "False": (lambda function: False, "gave bool instead of Lowered from"),
    "a wrong dtype": (
        lambda function: Lowered(loops([(2, 4)], (2, 4), "int8")),
        r"gave loops with inputs \(Tensor\[\(2, 4\), int8\]\), not \(Tensor\[\(2, 4\), int32\]\) from",
    ),
    "a wrong output": (
        lambda function: Lowered(loops([(2, 4)], (8,))),
        r"gave loops with outputs \(Tensor\[\(8,\), int32\]\), not \(Tensor\[\(2, 4\), int32\]\) from",
    ),
    "too many inputs": (lambda function: Lowered(loops([(2, 4), (2, 4)], (2, 4))), "gave loops with inputs"),
    "loops that write into their input": (
        lambda function: Lowered(writes_its_input()),
        "gave loops that are not sound: malformed loops: input 'x' is written",
    ),
    "no constants": (lambda function: Lowered(WITH_CONSTANT), ""),
    "a constant of another dtype": (lambda function: Lowered(WITH_CONSTANT, (np.zeros(4),)), ""),
    "an exception": (lambda function: {}["weights"], "failed in WHERE: KeyError: 'weights'"),
}


@pytest.mark.parametrize("hook", ["lower", "strategy of a pattern", "strategy of an op"])
@pytest.mark.parametrize("case", list(BAD_LOWERED))
def test_what_a_lowering_of_a_match_may_not_give(case: str, hook: str) -> None:
    lower, what = BAD_LOWERED[case]
    if hook == "lower":
        name, members = "lower of pattern 'npu.add'", members_of(toy(patterns=lambda: [taking("npu", "add", lower)]))
    else:
        of = "npu.add" if "pattern" in hook else "add"
        name = f"strategy '{of}'"
        hooks: dict[str, Any] = {
            "patterns": lambda: [taking("npu", "add", None)],
            "strategies": lambda: [Strategy(of, lambda function, target: lower(function))],
        }
        members = members_of(toy(**hooks))
    error = fault(members)
    assert re.search(what.replace("WHERE", name), error.what), error.what
    assert name in f"{error.what} {error.where}"
    assert str(error.where).startswith("second, ")
    if "constant" in case:
        assert "the function takes (int32[4])" in error.what


def test_a_hosts_lowering_at_fault_names_its_layer() -> None:
    entries = entry_of(HOST, strategies=lambda: [Strategy("add", lambda function, target: 3)])  # type: ignore[arg-type,return-value]
    with pytest.raises(PluginError, match=r"uma-plain 1.0 gave int instead of Lowered from strategy 'add'") as caught:
        built(CHAIN, resolve_targets("plain", PluginHost(lambda: entries)))
    assert str(caught.value.where).startswith("second, ")


# --- functions that the model gave away ------------------------------------------------------------------------------


class TestCompilerFunctions:
    def test_for_a_target_that_is_absent(self) -> None:
        mine = Function([Y], call("nn.relu", Y), {"Compiler": "gpu"})
        relu = mine.body
        body = Call(mine, [X])
        for label, members in (("gpu", members_of(toy("npu", "nn.relu"))), ("gpu", members_of())):
            with pytest.raises(
                ModelError, match=f"a function for '{label}', which is no accelerator of this build"
            ) as caught:
                built(module_of(body, {relu: ["first"]}), members)
            assert "first" in str(caught.value.where)

    def test_for_the_host(self) -> None:
        mine = Function([Y], call("nn.relu", Y), {"Compiler": "plain"})
        with pytest.raises(ModelError, match="'plain', which is no accelerator of this build"):
            built(module_of(Call(mine, [X])), members_of(toy("npu", "nn.relu")))

    def test_is_respected_and_may_hold_raw_ops(self) -> None:
        mine = Function([X, Y], call("subtract", call("nn.relu", X), Y), {"Compiler": "npu"})
        body = call("nn.relu", Call(mine, [X, Y]))
        strategies = lambda: [Strategy("subtract", lambda function, target: lowered(function))]  # noqa: E731
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

    def test_of_views_alone(self) -> None:
        mine = Function([X], call("reshape", X, newshape=(4, 2)), {"Compiler": "npu"})
        body = call("nn.relu", Call(mine, [call("multiply", X, Y)]))
        _, program = checked(module_of(body), members_of(toy("npu", "add")))
        assert [step.function for step in program.steps] == ["multiply", "relu"]


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
