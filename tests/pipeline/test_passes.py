"""Plugins' passes: their order, and what they are given."""

from __future__ import annotations

from collections.abc import Callable
from operator import setitem
from typing import Any

import pytest
from tests._support.passes import Rewrite, by_host, each_loop, of_graph, of_loops, passing
from tests._support.plugins import accelerator, built, checked, entry_of, members_of, module_of, taking, toy
from tests._support.regions import CHAIN, T, X, Y, steps

from uma.contract.passes import PHASES, Pass, Phase, Scope
from uma.errors import PluginError
from uma.lowering.build_targets import BuildTargets
from uma.pipeline.passes import ordered
from uma.relay import Call, Function, GlobalVar, IRModule, Var, call
from uma.relay.module import func_type
from uma.relay.verify import verify
from uma.targets import Target
from uma.tir.form import nodes as tir
from uma.tir.form.visit import walk

AFTER_PRE = PHASES[1:]
TIR = tuple(phase for phase in PHASES if phase.startswith("TIR"))


def same(module: IRModule) -> IRModule:
    return module


def named(*made: tuple[str, tuple[str, ...], tuple[str, ...]], phase: Phase = "TIR_0") -> list[Pass]:
    """Passes that do nothing: name, before, after."""
    return [Pass(phase, name, same, before, after) for name, before, after in made]


def order(members: BuildTargets, phase: Phase = "TIR_0") -> list[str]:
    return [step.name for step in ordered(members.all, phase)]


def fault(members: BuildTargets, module: IRModule = CHAIN) -> PluginError:
    with pytest.raises(PluginError) as caught:
        built(module, members)
    assert "plugin API" in str(caught.value.where)
    return caught.value


# --- order -----------------------------------------------------------------------------------------------------------


class TestOrder:
    def test_all_phases_of_all_targets(self) -> None:
        ran: list[tuple[str, str]] = []

        def passes(target: Target) -> list[Pass]:
            def noting(name: str, phase: Phase) -> Pass:
                def fn(module: IRModule) -> IRModule:
                    assert Target.current() is target
                    ran.append((phase, f"{target.kind.name}.{name}"))
                    return module

                return Pass(phase, name, fn)

            return [noting(name, phase) for phase in reversed(PHASES) for name in ("second", "first")]

        kinds = accelerator("npu"), accelerator("dsp")
        built(CHAIN, members_of(entry_of(*kinds, passes=passes), entry_of(accelerator("apu"), passes=passes)))
        each = [f"{kind}.{name}" for kind in ("apu", "dsp", "npu") for name in ("second", "first")]
        assert ran == [(phase, name) for phase in PHASES for name in each]

    @pytest.mark.parametrize(
        ("made", "expected"),
        [
            ([("b", (), ()), ("a", (), ())], "b a"),
            ([("b", (), ("a",)), ("a", (), ())], "a b"),
            ([("b", (), ()), ("a", ("b",), ())], "a b"),
            ([("c", (), ("a", "b")), ("b", (), ("a",)), ("a", (), ())], "a b c"),
            ([("d", (), ()), ("c", (), ("npu.e",)), ("e", (), ()), ("b", ("d",), ())], "e c b d"),
            ([("a", ("b", "b"), ()), ("b", (), ("a",))], "a b"),
        ],
    )
    def test_within_one_target(self, made: list[Any], expected: str) -> None:
        members = members_of(passing("npu", *named(*made)))
        assert " ".join(name.removeprefix("npu.") for name in order(members)) == expected
        assert order(members, "TIR_1") == []

    def test_what_is_named_is_of_the_same_phase(self) -> None:
        """One name in two phases is two passes."""
        first, second = named(("a", (), ()), ("b", ("a",), ())), named(("a", (), ()), ("b", (), ("a",)), phase="TIR_1")
        members = members_of(passing("npu", *first, *second))
        assert order(members) == ["npu.b", "npu.a"]
        assert order(members, "TIR_1") == ["npu.a", "npu.b"]

    def test_several_targets(self) -> None:
        npu = passing("npu", *named(("x", ("apu.x",), ()), ("y", (), ())))
        apu = passing("apu", *named(("x", (), ()), ("y", (), ("npu.x", "plain.z"))))
        for plugins in ((npu, apu), (apu, npu)):
            members = by_host(*named(("z", (), ("npu.y",))), others=plugins)
            assert order(members) == ["npu.x", "apu.x", "npu.y", "plain.z", "apu.y"]

    def test_a_target_that_is_not_part_of_the_build_is_nobody_to_wait_for(self) -> None:
        members = members_of(passing("npu", *named(("a", ("gpu.a",), ("gpu.b", "gpu.a")), ("b", (), ()))))
        assert order(members) == ["npu.a", "npu.b"]

    @pytest.mark.parametrize("side", ["before", "after"])
    @pytest.mark.parametrize(
        ("other", "there"),
        [
            ("c", "npu there: npu.a, npu.b"),
            ("npu.c", "npu there: npu.a, npu.b"),
            ("plain.c", "plain there: none"),
            ("late", "npu there: npu.a, npu.b"),
        ],
    )
    def test_a_name_that_there_is_not(self, other: str, there: str, side: str) -> None:
        made = Pass("TIR_0", "a", same, **{side: (other,)})  # type: ignore[arg-type]  # `before` or `after`
        late = Pass("TIR_1", "late", same)
        error = fault(members_of(passing("npu", made, *named(("b", (), ())), late)))
        assert error.what == (
            f"plugin uma-npu 1.0 has pass 'a' of TIR_0, which must come before or after {other!r}, "
            "which is not a pass of that phase"
        )
        assert error.hint == f"passes of {there}"

    def test_a_circle_of_one_plugin(self) -> None:
        made = named(("z", ("y",), ()), ("a", ("b",), ()), ("b", ("c",), ()), ("c", ("a", "y"), ()), ("y", (), ()))
        error = fault(members_of(passing("npu", *made)))
        assert error.what == (
            "plugin uma-npu 1.0 has pass 'a' of TIR_0, which cannot be put in order: each of these must come before "
            "the next, and the last before the first: npu.a (uma-npu), npu.b (uma-npu), npu.c (uma-npu)"
        )
        assert error.hint == "mend before and after of one of them"

    def test_a_circle_of_two_plugins(self) -> None:
        """Whoever only waits for it is not named."""
        npu = passing("npu", *named(("x", ("dsp.y",), ("dsp.z",)), ("w", (), ())))
        dsp = passing("dsp", *named(("y", ("z",), ()), ("z", (), ())))
        apu = passing("apu", *named(("waits", (), ("npu.x",))))
        error = fault(members_of(npu, dsp, apu))
        assert error.what.startswith("plugin uma-npu 1.0 has pass 'x' of TIR_0, which cannot be put in order")
        assert error.what.endswith("the first: npu.x (uma-npu), dsp.y (uma-dsp), dsp.z (uma-dsp)")

    def test_a_pass_that_comes_before_itself(self) -> None:
        error = fault(members_of(passing("npu", *named(("a", (), ("a",))))))
        assert error.what.endswith("the last before the first: npu.a (uma-npu)")


# --- what a pass is given --------------------------------------------------------------------------------------------

TWO = module_of(call("nn.relu", call("add", call("nn.relu", call("multiply", X, Y)), Y)))
"""Two regions of one target, two of another."""


EXTRA = Function([Y], call("nn.relu", Y))

REGIONS: dict[str, Rewrite] = {
    "another function": lambda m: IRModule({**m.functions, GlobalVar("f", func_type(EXTRA)): EXTRA}, m.spans),
    "one less": lambda m: IRModule({}),
    "a name": lambda m: IRModule({GlobalVar("npu_9", v.type): f for v, f in m.functions.items()}),  # type: ignore[arg-type]  # the type of a function
    "a type": of_graph(lambda e: call("cast", e, dtype="int8") if e.type is T and isinstance(e, Call) else None),
}


class TestScope:
    @pytest.mark.parametrize("phase", AFTER_PRE)
    def test_its_own_regions_and_no_others(self, phase: Phase) -> None:
        seen: dict[str, IRModule] = {}

        def noting(label: str) -> Pass:
            def fn(module: IRModule) -> IRModule:
                seen[label] = module
                return module

            return Pass(phase, "look", fn, scope="regions")

        plugins = [passing("npu", noting("npu")), passing("dsp", noting("dsp"), ops=("add", "multiply"))]
        checked(TWO, members_of(*plugins))
        loops = {"npu": ["relu"], "dsp": ["add", "multiply"]} if phase in TIR else {"npu": [], "dsp": []}
        for label, module in seen.items():
            assert sorted(var.name for var in module.functions) == sorted([*loops[label], f"{label}_0", f"{label}_1"])
            verify(module)
        assert list(seen) == ["dsp", "npu"]

    def test_it_is_not_asked_where_there_are_none(self) -> None:
        never = Pass("TIR_0", "never", lambda module: pytest.fail("there is no region"), scope="regions")
        members = members_of(passing("npu", never, ops=("tanh",)), passing("dsp", ops=("add",)))
        assert len(checked(CHAIN, members)[1].steps) == 3

    def test_the_module_is_all_of_it(self) -> None:
        seen: list[list[str]] = []

        def fn(module: IRModule) -> IRModule:
            seen.append(sorted(var.name for var in module.functions))
            return module

        members = members_of(passing("npu", Pass("TIR_0", "look", fn)), passing("dsp", ops=("add",)))
        checked(TWO, members)
        assert seen == [["add", "dsp_0", "main", "multiply", "npu_0", "npu_1", "relu"]]

    @pytest.mark.parametrize("scope", ["module", "regions"])
    @pytest.mark.parametrize("phase", AFTER_PRE)
    def test_it_is_only_to_be_read(self, phase: Phase, scope: Scope) -> None:
        tried: list[str] = []

        def fn(module: IRModule) -> IRModule:
            var, function = next((v, f) for v, f in module.functions.items() if isinstance(f, Function))
            attempts: dict[str, Callable[[], object]] = {
                "functions": lambda: setitem(module.functions, var, function),  # type: ignore[call-overload]  # read-only: the test is about that
                "spans": lambda: module.spans.add(function.body, ["mine"]),
                "field": lambda: setattr(module, "functions", {}),
                "node": lambda: setattr(function, "body", function.params[0]),
            }
            for name, attempt in attempts.items():
                with pytest.raises((PluginError, TypeError, AttributeError)):
                    attempt()
                tried.append(name)
            return module

        _, program = checked(CHAIN, members_of(passing("npu", Pass(phase, "write", fn, scope=scope))))
        assert len(tried) == 4
        assert [layers for _, layers in steps(program)] == [("first",), ("second",), ("third",)]

    @pytest.mark.parametrize("case", list(REGIONS))
    @pytest.mark.parametrize("phase", ["POST_PARTITIONING_0", "TIR_0"])
    def test_regions_keep_their_names_and_types(self, phase: Phase, case: str) -> None:
        error = fault(members_of(passing("npu", Pass(phase, "odd", REGIONS[case], scope="regions"))))
        assert "pass 'odd' of " in error.what
        assert error.what.endswith(
            "gave other functions than it was given, or of other types: it may change what they do"
        )

    def test_loops_that_others_call_too_are_theirs_as_they_were(self) -> None:
        """The host has the same relu; what the pass does to it is for the regions alone."""
        only_first = taking("npu", "nn.relu", predicate=lambda match: isinstance(match.inputs[0], Var))
        a = call("nn.relu", X)
        b = call("subtract", a, Y)
        c = call("nn.relu", b)
        unrolled = each_loop(lambda loop: tir.For(loop.var, loop.extent, loop.body, "unrolled"))
        made = Pass("TIR_1", "unroll", of_loops(unrolled), scope="regions")
        plugin = toy(patterns=lambda: [only_first], passes=lambda: [made])
        _, program = checked(module_of(c, {a: ["a"], b: ["b"], c: ["c"]}), members_of(plugin))
        assert steps(program) == [("relu_1", ("a",)), ("subtract", ("b",)), ("relu", ("c",))]
        is_unrolled = {
            name: not any(isinstance(p, tir.For) for p in walk(f.body)) for name, f in program.functions.items()
        }
        assert is_unrolled == {"relu_1": True, "subtract": False, "relu": False}
        looks = Pass("TIR_1", "look", same, scope="regions")
        _, program = checked(module_of(c), members_of(toy(patterns=lambda: [only_first], passes=lambda: [looks])))
        assert [step.function for step in program.steps] == ["relu", "subtract", "relu"]
