"""What hooks are given of a region: the matches as the partitioner found them, or what is found of a region anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests._support.plugins import built, checked, members_of, module_of, taking, toy
from tests._support.regions import CHAIN, OPS, RELU, SUM, X
from tests._support.te_lowerings import lowered

from uma.errors import ModelError, PluginError
from uma.hookspecs import Clause, Cost, LoweredKernel, MatchedRegion, Pass, Pattern, Refuse, RegionMatch, UnmatchedCall
from uma.lowering.build_targets import BuildTargets
from uma.pipeline.stages import Build
from uma.relay import Call, Expr, Function, IRModule, TensorType, Tuple, TupleGetItem, Var, call
from uma.relay.pattern import Match, any_, constant, op, outputs, tuple_item, where, wildcard
from uma.reports.costs import region_costs
from uma.targets import Target

SMALL = Var("small", TensorType((4,), "int32"))


def seen(patterns: list[Pattern], module: IRModule, **hooks: Callable[..., Any]) -> list[MatchedRegion]:
    """The regions that an accelerator with these patterns is asked to lower."""
    found: list[MatchedRegion] = []

    def relay_to_tir(region: MatchedRegion) -> None:
        found.append(region)

    checked(module, members_of(toy("npu", patterns=lambda: patterns, relay_to_tir=relay_to_tir, **hooks)))
    return found


def by_match(name: str, term: Any, predicate: Any = None) -> Pattern:
    return Pattern(name, term, predicate, lambda match, target: lowered(match.function))


def given_region(body: Expr, *params: Var) -> IRModule:
    """A model that has a region of its own."""
    region = Function(params, body, {"Compiler": "npu", "global_symbol": "mine"})
    var = IRModule.from_functions({"mine": region}).global_var("mine")
    main = Function(params, Call(var, params))
    return IRModule.from_functions({"main": main, "mine": region})


def matched(patterns: list[Pattern], module: IRModule, name: str = "mine") -> MatchedRegion:
    """A region of a model that was not partitioned in this build."""
    build = Build("m", members_of(toy("npu", patterns=lambda: patterns)))
    return build.matches.region(module, module.global_var(name))


class TestWhatThePartitionerFound:
    def test_matches_come_in_order_with_captures_layers_and_where_operands_live(self) -> None:
        value, other = wildcard("int32").named("a"), wildcard("int32").named("b")
        shifted = op("add")(op("nn.relu")(value), constant("int32").named("bias")).named("sum")
        patterns = [by_match("npu.sum", shifted), by_match("npu.product", op("multiply")(value, other))]
        [region] = seen(patterns, CHAIN)
        first, second = region.matches
        assert [one.pattern.name for one in region.matches] == ["npu.sum", "npu.product"]
        assert (first.layers, second.layers) == (("first", "second"), ("third",))
        assert first.operand("a") is region.function.params[0] and second.operand("a") is first.value
        assert first.operand("bias") is first.constant("bias") and first.root is first.call("sum")
        assert first.function is first.value.op and first.inputs == first.function.params
        assert (first.model_match.root, first.model_match["a"]) == (SUM, X)
        assert region.results == (second.value,) == (region.function.body,)
        assert region.name == "npu_0" and region.calls == region.matches
        with pytest.raises(PluginError, match=r"'sum' of pattern 'npu\.sum' is computed in the match"):
            first.operand("sum")

    def test_they_are_handed_over_and_not_sought_again(self) -> None:
        """Of two ways to lay the pattern the predicate chose one, by what only the whole model says."""

        def right_is_small(found: Match) -> bool:
            return found["right"].shape == (4,) and isinstance(found["left"], Call)

        given: list[Match] = []

        def lower(match: Match, target: Target) -> LoweredKernel:
            given.append(match)
            return lowered(match.function)

        term = op("add")(wildcard("int32").named("left"), wildcard("int32").named("right"))
        added = Pattern("npu.add", term, [Clause("right_is_small", right_is_small, "the right one is small")], lower)
        checked(module_of(call("add", SMALL, RELU)), members_of(toy("npu", patterns=lambda: [added])))
        [found] = given
        assert (found["left"].shape, found["right"].shape) == ((2, 4), (4,))
        assert isinstance(found["left"], Var) and set(found.inputs) == {found["left"], found["right"]}

    def test_several_results(self) -> None:
        halves = op("split")(wildcard("int32").named("x"), indices=any_, axis=any_)
        both = outputs(
            op("nn.relu")(tuple_item(halves, 0)).named("low"), op("clip")(tuple_item(halves, 1), a_min=0, a_max=any_)
        )
        split = call("split", X, indices=(2,), axis=1)
        parts = call("nn.relu", TupleGetItem(split, 0)), call("clip", TupleGetItem(split, 1), a_min=0.0, a_max=3.0)
        [region] = seen([by_match("npu.both", both)], module_of(Tuple(parts)))
        [one] = region.matches
        assert isinstance(one.function.body, Tuple) and one.roots == one.function.body.fields
        assert one["low"] is one.roots[0] and one.operand("x") is region.function.params[0]
        assert [r.index for r in region.results if isinstance(r, TupleGetItem) and r.tuple is one.value] == [0, 1]

    def test_a_part_that_is_reshaped_in_the_match_lives_where_that_does(self) -> None:
        flat = op("reshape")(wildcard("int32").named("x"), newshape=any_).named("flat")
        body = call("nn.relu", call("reshape", X, newshape=(8,)))
        [region] = seen([by_match("npu.flat", op("nn.relu")(flat))], module_of(body))
        [one] = region.matches
        assert one.operand("flat") is one.operand("x") is region.function.params[0]

    def test_what_a_pass_rewrote_is_matched_anew(self) -> None:
        def again(module: IRModule) -> IRModule:
            """The same composite functions, given the region's input through a reshape that changes nothing."""
            region = module["npu_0"]
            assert isinstance(region, Function) and isinstance(region.body, Call)
            [param] = region.params
            body = Call(region.body.op, [call("reshape", param, newshape=param.shape)])
            return IRModule(
                {**module.functions, module.global_var("npu_0"): Function([param], body, dict(region.attrs))}
            )

        passes = lambda: [Pass("POST_PARTITIONING_0", "again", again, scope="regions")]  # noqa: E731 - as short as its use
        [region] = seen([taking("npu", "nn.relu")], module_of(RELU), passes=passes)
        [one] = region.matches
        assert one.model_match.outlined is one.function and one.pattern.name == "npu.relu"


class TestWhatAModelBrings:
    def test_single_ops_and_functions_that_no_pattern_takes(self) -> None:
        inner = Var("p0", X.type)
        other = Call(Function([inner], call("nn.relu", inner), {"Composite": "gpu.relu"}), [X])
        plain = Call(Function([inner], call("nn.relu", inner)), [X])
        for body, reason in (
            (call("nn.relu", X), "nn.relu stands for itself in a region of 'npu', which takes what its patterns match"),
            (other, "'gpu.relu' is not a pattern of 'npu'"),
            (plain, "it is not a match of a pattern of 'npu'"),
        ):
            region = matched([taking("npu", "add")], given_region(body, X))
            assert region.calls == (UnmatchedCall(body, reason),)
            with pytest.raises(Refuse) as caught:
                _ = region.matches
            assert (caught.value.reason, caught.value.at) == (reason, body)

    def test_what_is_no_match_refuses_the_build_of_those_who_want_matches(self) -> None:
        def relay_to_tir(region: MatchedRegion) -> None:
            assert region.matches

        members = members_of(toy("npu", patterns=lambda: [taking("npu", "add")], relay_to_tir=relay_to_tir))
        with pytest.raises(ModelError, match=r"the model wants 'mine' on its target, .*: nn\.relu stands for"):
            built(given_region(call("nn.relu", X), X), members)

    def test_a_composite_function_must_be_what_its_pattern_takes_and_no_more(self) -> None:
        p = Var("p0", X.type)
        for inner, reason in (
            (
                call("nn.relu", call("nn.relu", p)),
                "a function that is called 'npu.relu' computes more",
            ),
            (call("tanh", call("cast", p, dtype="float32")), "the pattern takes nn.relu"),
            (Tuple([call("nn.relu", p), p]), "a function that is called 'npu.relu' computes more"),
        ):
            body = Call(Function([p], inner, {"Composite": "npu.relu"}), [X])
            [one] = matched([taking("npu", "nn.relu")], given_region(body, X)).calls
            assert isinstance(one, UnmatchedCall) and reason in one.reason

    def test_its_predicate_is_asked_by_itself_and_then_in_the_model(self) -> None:
        asked: list[Match] = []

        def clipped(found: Match) -> bool:
            asked.append(found)
            return isinstance(found["x"], Call)

        pattern = by_match(
            "npu.relu", op("nn.relu")(wildcard("int32").named("x")), [Clause("clipped", clipped, "clip it")]
        )
        p = Var("p0", X.type)
        body = Call(Function([p], call("nn.relu", p), {"Composite": "npu.relu"}), [X])
        [one] = matched([pattern], given_region(body, X)).calls
        assert one == UnmatchedCall(body, "clause clipped: clip it") and len(asked) == 2
        module = given_region(body, X)
        clip = call("clip", X, a_min=0.0, a_max=9.0)
        main = Function([X], Call(module.global_var("mine"), [clip]))
        [one] = matched([pattern], module.with_main(main, module.spans)).calls
        assert isinstance(one, RegionMatch) and one.model_match["x"] is clip and one["x"] is p

    def test_a_predicate_that_fails_then_names_its_plugin(self) -> None:
        relu = taking("npu", "nn.relu", predicate=lambda found: 1 // 0)
        p = Var("p0", X.type)
        body = Call(Function([p], call("nn.relu", p), {"Composite": "npu.relu"}), [X])
        with pytest.raises(PluginError, match=r"plugin uma-npu 1\.0 has a pattern that fails: a predicate raised Zero"):
            matched([relu], given_region(body, X))

    def test_functions_of_the_module_are_no_matches(self) -> None:
        helper = Function([X], call("nn.relu", X))
        var = IRModule.from_functions({"helper": helper}).global_var("helper")
        module = given_region(Call(var, [X]), X)
        module = IRModule({**module.functions, var: helper})
        [one] = matched([taking("npu", "nn.relu")], module).calls
        assert (
            isinstance(one, UnmatchedCall)
            and one.reason == "'helper', a function of the module, is not a pattern of 'npu'"
        )


def test_a_host_lowers_a_match_too() -> None:
    """By the pattern's lower, where its predicate holds of the kernel alone."""
    from tests._support.plugins import entry_of

    from uma.lowering.build_targets import resolve_targets
    from uma.plugins import PluginHost
    from uma.targets import TargetKind

    given: list[Match] = []

    def lower(match: Match, target: Target) -> LoweredKernel:
        given.append(match)
        return lowered(match.function)

    def hosted(predicate: Any) -> BuildTargets:
        host = TargetKind("mine", help="a host", is_host=True)
        relu = Pattern("mine.relu", op("nn.relu")(wildcard("int32").named("x")), predicate, lower)
        return resolve_targets("mine", PluginHost(lambda: entry_of(host, patterns=lambda: [relu])))

    checked(module_of(RELU), hosted(None))
    assert len(given) == 1 and given[0].inputs == (given[0]["x"],)
    checked(
        module_of(call("nn.relu", call("add", X, X))), hosted([Clause("sum", lambda m: isinstance(m["x"], Call), "a")])
    )
    assert len(given) == 1  # of the kernel alone nobody knows


def test_the_target_is_current_in_predicates_and_tests() -> None:
    asked: list[str] = []

    def test(value: object) -> bool:
        asked.append(Target.current().name)
        return True

    clause = Clause("asks", test, "it is asked")
    clipped = by_match("npu.clip", op("clip")(wildcard("int32"), a_min=where(test, "any"), a_max=any_), [clause])
    body = call("nn.relu", call("clip", X, a_min=0.0, a_max=9.0))
    assert len(seen([clipped], module_of(body))) == 1 and asked == ["npu"] * len(asked) and len(asked) > 1
    asked.clear()
    p = Var("p0", X.type)
    inner = Function([p], call("clip", p, a_min=0.0, a_max=9.0), {"Composite": "npu.clip"})
    assert matched([clipped], given_region(Call(inner, [X]), X)).matches and asked == ["npu", "npu"]
    # Where ops are explained, too.
    build = Build("m", members_of(toy("npu", patterns=lambda: [taking("npu", "nn.relu", None, says_no)])))
    assert build.run(module_of(RELU)) and build.placement is not None
    [record] = [one for one in build.placement.records() if one.op == "nn.relu"]
    assert record.why[0].reason == "clause says_no: npu says no"


def says_no(found: Match) -> str:
    return f"{Target.current().name} says no"


def test_what_an_estimate_refuses_is_not_known() -> None:
    def estimate_cost(region: MatchedRegion) -> Cost:
        if len(region.matches) > 1:
            raise Refuse("too many", at=region.matches[0].value)
        return Cost(cycles=1.0)

    for body, wanted in ((RELU, Cost(cycles=1.0)), (call("nn.relu", SUM), None)):
        build = Build("m", members_of(toy("npu", *OPS, estimate_cost=estimate_cost)))
        build.run(module_of(body), "fuse")
        assert [one.cost for one in region_costs(build)] == [wanted]
    assert region_costs(Build("m", members_of(toy("npu", *OPS)))) == ()
