"""Layers, ops and functions that are pinned to targets; and two targets of one kind in a build."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support import fake_device
from tests._support.partitions import inputs_of
from tests._support.plugins import HOST, accelerator, built, checked, entry_of, module_of, taking, toy
from tests._support.records import without_work
from tests._support.regions import CHAIN, RELU, SUM, T, X
from tests._support.te_lowerings import lowered

import uma
from uma.contract.drivers import Runtime
from uma.errors import ModelError, PluginError, RequirementError, UsageError
from uma.hookspecs import LoweredKernel, Pass, Pattern, Refuse
from uma.lowering.build_targets import BuildTargets, resolve_targets
from uma.option_values import Pins
from uma.pipeline.driver import build_loaded, finish_build, lower_loaded, start_build
from uma.pipeline.dump import read_dump
from uma.pipeline.loading import LoadedModel, load_model
from uma.pipeline.pins import pin_layers
from uma.pipeline.stages import Build
from uma.plugins import PluginEntry, PluginHost
from uma.program import Program
from uma.relay import Call, Expr, Function, GlobalVar, IRModule, Spans, TensorType, Var, call
from uma.relay.module import func_type
from uma.relay.pattern import Match, op, wildcard
from uma.relay.text import parse_module, print_module
from uma.relay.visit import post_order, rewrite
from uma.reports.explain import explain
from uma.support.json_record import to_json
from uma.targets import Attribute, Target

TWO = ("one: npu", "two: npu -lanes=4", "plain")
LANES = Attribute("lanes", int, default=8, low=1, high=64, help="elements per cycle")
P = Var("p", T)


def host_of(*plugins: list[PluginEntry]) -> PluginHost:
    entries = [*entry_of(HOST), *(entry for plugin in plugins for entry in plugin)]
    return PluginHost(lambda: entries)


def two(*ops: str, **hooks: Callable[..., Any]) -> BuildTargets:
    """Two targets of one kind, with different attributes, that take all calls of some ops."""
    given = {"patterns": lambda: [taking("npu", name) for name in ops or ("nn.relu", "add", "multiply")], **hooks}
    return resolve_targets(TWO, host_of(entry_of(accelerator("npu", LANES), **given)))


def pinned(pins: Pins, members: BuildTargets, module: IRModule = CHAIN) -> IRModule:
    """A module with pins, which prints as it is."""
    made = pin_layers(module, pins, members)
    assert isinstance(made, IRModule)
    assert parse_module(*print_module(made)) == made
    return made


def owners(pins: Pins, members: BuildTargets, module: IRModule = CHAIN) -> dict[str, str | None]:
    """Where the layers of a model go that computes what it must."""
    build, _ = checked(pinned(pins, members, module), members)
    found = explain(build)
    for record in found.ops:
        assert record.pin in (None, record.owner or found.host)
    return {", ".join(record.layers): record.owner for record in found.ops}


# --- layers ----------------------------------------------------------------------------------------------------------


class TestLayers:
    @pytest.mark.parametrize(
        ("pins", "labels"),
        [
            ({}, ["one", "one", "one"]),
            ({"second": "two"}, ["one", "two", "one"]),
            ({"*": "two"}, ["two", "two", "two"]),
            ({"second": "plain"}, ["one", None, "one"]),
            ({"*": "plain"}, [None, None, None]),
            ({"*d": "two"}, ["one", "two", "two"]),
            ({"?irst": "two", "[st]*": "plain"}, ["two", None, None]),
            ({"*": "two", "third": "one"}, ["two", "two", "one"]),
            ({"third": "one", "*": "two"}, ["two", "two", "two"]),
        ],
    )
    def test_by_their_names(self, pins: dict[str, str], labels: list[str | None]) -> None:
        assert list(owners(pins, two()).values()) == labels

    def test_nodes_are_pinned(self) -> None:
        made = pinned({"second": "two"}, two())
        assert {e.op_name: e.pin for e in post_order(made.main.body) if isinstance(e, Call)} == {
            "nn.relu": None,
            "add": "two",
            "multiply": None,
        }
        assert made.spans[made.main.body] == ("third",)

    def test_what_the_user_says_goes_before_what_the_model_says(self) -> None:
        first = pinned({"*": "two"}, two())
        assert list(owners({"second": "plain"}, two(), first).values()) == ["two", None, "two"]

    def test_names_with_brackets(self) -> None:
        relu = call("nn.relu", X)
        module = module_of(relu, {relu: ["conv[1]"]})
        assert owners({"conv[1]": "two"}, two(), module) == {"conv[1]": "two"}
        assert owners({"conv?1?": "two"}, two(), module) == {"conv[1]": "two"}

    def test_upper_and_lower_case(self) -> None:
        with pytest.raises(UsageError, match="no layer is called 'FIRST'"):
            pinned({"FIRST": "two"}, two())

    def test_everything_of_a_model_file_is_pinned_before_it_is_changed(self, tmp_path: Path) -> None:
        """The relu of a relu is nothing, and nothing is pinned by it."""
        first = call("nn.relu", X)
        again = call("nn.relu", first)
        module = module_of(call("add", again, X), {first: ["first"], again: ["again"]})
        assert owners({"again": "plain"}, two(), module)["first, again"] == "one"


class TestWrong:
    @pytest.mark.parametrize(
        ("pins", "what", "hint"),
        [
            (
                {"first": "tow"},
                "'first' is pinned to 'tow', which is not a target of this build",
                "did you mean 'two'? the targets are one, two, plain",
            ),
            (
                {"first": "npu"},
                "'first' is pinned to 'npu', which is not a target of this build",
                "the targets are one, two, plain",
            ),
            (
                {"fist": "two"},
                "no layer is called 'fist', which is pinned to 'two'",
                "did you mean 'first'? uma explain -v shows the layers' names",
            ),
            (
                {"conv*": "two"},
                "no layer is called 'conv*', which is pinned to 'two'",
                "uma explain -v shows the layers' names",
            ),
        ],
    )
    def test_what_is_not_there(self, pins: dict[str, str], what: str, hint: str) -> None:
        with pytest.raises(UsageError) as caught:
            pinned(pins, two())
        assert (caught.value.what, caught.value.hint) == (what, hint)

    @pytest.mark.parametrize("pins", [[("first", "two")], "first=two", {"first": 3}, {3: "two"}, {"first": None}])
    def test_what_are_no_pins(self, pins: Any) -> None:
        with pytest.raises(UsageError, match="are not pins") as caught:
            pin_layers(CHAIN, pins, two())
        assert caught.value.hint == 'layers and labels: pins={"conv*": "npu0"}'

    def test_layers_that_are_one_op(self) -> None:
        module = module_of(RELU, {RELU: ["a", "b"]})
        with pytest.raises(RequirementError) as caught:
            pinned({"a": "one", "b": "two"}, two(), module)
        what = "layers that are one op are pinned to several targets: 'a' to 'one' and 'b' to 'two'"
        assert caught.value.what == what
        assert caught.value.hint == "pin them alike"
        assert owners({"a": "two", "b": "two"}, two(), module) == {"a, b": "two"}
        assert owners({"b": "two"}, two(), module) == {"a, b": "two"}

    def test_a_program(self) -> None:
        program = built(CHAIN, two()).run(CHAIN)
        assert isinstance(program, Program)
        with pytest.raises(UsageError, match="layers were pinned in a program"):
            pin_layers(program, {"first": "one"}, two())

    def test_what_a_target_does_not_take(self) -> None:
        with pytest.raises(RequirementError) as caught:
            built(pinned({"third": "two"}, two("nn.relu")), two("nn.relu"))
        assert caught.value.what == (
            "third: multiply is pinned to 'two', which does not take it: no pattern takes multiply"
        )

    def test_what_a_target_refuses(self) -> None:
        def lower(match: Match, target: Target) -> LoweredKernel:
            if target.get_attr("lanes") == 4:
                raise Refuse("four lanes are too few")
            return lowered(match.function)

        def patterns() -> list[Pattern]:
            return [Pattern("npu.relu", op("nn.relu")(wildcard("int32")), lower=lower)]

        members = two(patterns=patterns)
        assert owners({"first": "one"}, members)["first"] == "one"
        with pytest.raises(RequirementError) as caught:
            built(pinned({"first": "two"}, members), members)
        assert caught.value.what == (
            "first: nn.relu is pinned to 'two', which does not take it: npu.relu: four lanes are too few"
        )


# --- functions -------------------------------------------------------------------------------------------------------


def function(label: str, body: Expr | None = None) -> Function:
    return Function([P], body or call("nn.relu", call("nn.relu", call("add", P, P))), {"Compiler": label})


class TestFunctions:
    def test_written_in_main_for_a_target(self) -> None:
        module = module_of(call("multiply", Call(function("two"), [RELU]), X))
        build, _ = checked(module, two())
        assert [(op.op, op.owner) for op in explain(build).ops] == [
            ("nn.relu", "one"),
            ("add", "two"),
            ("nn.relu", "two"),
            ("nn.relu", "two"),
            ("multiply", "one"),
        ]

    def test_written_in_main_for_the_host(self) -> None:
        """It is brought into the canonical form with the rest: one relu is left of two."""
        made = Call(function("plain"), [RELU])
        body = call("multiply", made, X)
        build, _ = checked(module_of(body, {RELU: ["first"], made: ["kept"]}), two())
        found = [(op.op, op.owner, op.pin, op.layers) for op in explain(build).ops]
        assert found == [
            ("nn.relu", "one", None, ("first",)),
            ("add", None, "plain", ("kept",)),
            ("nn.relu", None, "plain", ("kept",)),
            ("multiply", "one", None, ()),
        ]

    def test_of_the_module_for_the_host(self) -> None:
        inner = function("plain", call("add", P, P))
        var = GlobalVar("kept", func_type(inner))
        body = call("multiply", Call(var, [Call(var, [X])]), X)
        module = IRModule.from_functions({"main": Function([X], body), "kept": inner})
        build, _ = checked(module, two())
        assert [(op.op, op.owner, op.pin) for op in explain(build).ops] == [
            ("add", None, "plain"),
            ("add", None, "plain"),
            ("multiply", "one", None),
        ]
        assert build.placement is not None
        assert [v.name for v in build.placement.source.functions] == ["main"]

    def test_main_for_the_host(self) -> None:
        body = call("add", call("nn.relu", X).pinned("two"), X)
        module = IRModule.from_functions({"main": Function([X], body, {"Compiler": "plain", "global_symbol": "m"})})
        build, _ = checked(module, two())
        assert [(op.owner, op.pin) for op in explain(build).ops] == [("two", "two"), (None, "plain")]
        assert build.placement is not None
        assert dict(build.placement.source.main.attrs) == {"global_symbol": "m"}

    def test_main_for_an_accelerator(self) -> None:
        module = IRModule.from_functions({"main": Function([X], call("nn.relu", X), {"Compiler": "two"})})
        with pytest.raises(ModelError, match="main is a function for 'two'"):
            built(module, two())

    def test_layers_inside_keep_their_names(self) -> None:
        total = call("add", P, P)
        made = Call(function("plain", total), [X])
        module = IRModule.from_functions({"main": Function([X], made)}, Spans({total: ["inner"], made: ["outer"]}))
        build, _ = checked(module, two())
        assert [op.layers for op in explain(build).ops] == [("inner",)]

    @pytest.mark.parametrize(
        ("body", "what"),
        [
            (call("nn.relu", P).pinned("two"), "nn.relu is pinned to 'two'"),
            (Call(function("two"), [P]), "a function is called"),
        ],
    )
    def test_for_the_host_with_something_for_another(self, body: Expr, what: str) -> None:
        made = Call(function("plain", body), [X])
        with pytest.raises(ModelError) as caught:
            built(module_of(made, {made: ["kept"]}), two())
        assert caught.value.what == f"{what} in a function that the model has for 'plain'"
        assert (caught.value.where, caught.value.hint) == ("kept", "write it outside of that function")

    def test_for_the_host_with_a_pin_that_says_the_same(self) -> None:
        build, _ = checked(module_of(Call(function("plain", call("nn.relu", P).pinned("plain")), [X])), two())
        assert [(op.owner, op.pin) for op in explain(build).ops] == [(None, "plain")]

    def test_of_the_host_called_by_another(self) -> None:
        inner = function("plain", call("add", P, P))
        var = GlobalVar("kept", func_type(inner))
        other = function("two", Call(var, [P]))
        module = IRModule.from_functions({"main": Function([X], Call(other, [Call(var, [X])])), "kept": inner})
        with pytest.raises(ModelError, match="the model has a function for 'plain', which is not an accelerator"):
            built(module, two())

    @pytest.mark.parametrize("named", [False, True])
    def test_layers_of_functions(self, named: bool) -> None:
        inner = function("two", call("nn.relu", P))
        callee: Any = GlobalVar("own", func_type(inner)) if named else inner
        functions = {"main": Function([X], Call(callee, [X])), **({"own": inner} if named else {})}
        module = IRModule.from_functions(functions, Spans({inner.body: ["act"]}))
        assert owners({"act": "two"}, two(), module) == {"act": "two"}
        with pytest.raises(RequirementError) as caught:
            pinned({"act": "one"}, two(), module)
        what = "layer 'act' is pinned to 'one', and the model has it in a function that is 'two''s"
        assert (caught.value.what, caught.value.where) == (what, "function 'own'" if named else None)

    def test_layers_of_kernels(self) -> None:
        """In the text of a stage behind, everything has its place; to say it once more does no harm."""
        members = two("nn.relu")
        fused = lower_loaded(LoadedModel(CHAIN, "m"), members, "lower")
        assert isinstance(fused, IRModule)
        pin_layers(fused, {"second": "plain", "first": "one"}, members)
        with pytest.raises(RequirementError, match="layer 'second' is pinned to 'one', and the model has it"):
            pin_layers(fused, {"second": "one"}, members)


# --- passes ----------------------------------------------------------------------------------------------------------


class TestPasses:
    def build(self, act: Callable[[IRModule], IRModule]) -> list[str | None]:
        plugin = entry_of(
            accelerator("npu", LANES),
            patterns=lambda: [taking("npu", "nn.relu"), taking("npu", "maximum")],
            passes=lambda: [Pass("PRE_PARTITIONING", "change", act)],
        )
        members = resolve_targets(["one: npu", "plain"], host_of(plugin))
        return [op.owner for op in explain(built(pinned({"first": "plain"}, members), members)).ops]

    def test_a_rewrite_hands_pins_on(self) -> None:
        def act(module: IRModule) -> IRModule:
            spans = Spans(dict(module.spans))

            def rule(expr: Expr) -> Expr | None:
                is_relu = isinstance(expr, Call) and expr.op_name == "nn.relu"
                return call("maximum", expr.args[0], expr.args[0]) if is_relu else None  # type: ignore[attr-defined]  # a relu is a call

            body = rewrite(module.main.body, rule, spans.record_rewrite)
            return module.with_main(Function(module.main.params, body), spans)

        assert self.build(act) == [None, None, None]

    def test_a_pass_that_loses_one(self) -> None:
        def act(module: IRModule) -> IRModule:
            return CHAIN

        with pytest.raises(PluginError) as caught:
            self.build(act)
        assert "pass 'change' of PRE_PARTITIONING" in caught.value.what
        assert "layer 'first' has lost its pin to 'plain'" in caught.value.what

    def test_a_pass_that_loses_the_layer(self) -> None:
        def act(module: IRModule) -> IRModule:
            return module_of(SUM.args[0], {SUM.args[0]: ["other"]})

        assert self.build(act) == ["one"]


# --- two of one kind -------------------------------------------------------------------------------------------------


FOUR = Var("x", TensorType((4,), "int32"))
ONCE = call("add", FOUR, FOUR)
TWICE = call("add", ONCE, ONCE)
THRICE = call("add", TWICE, TWICE)
DOUBLED = module_of(THRICE, {ONCE: ["a"], TWICE: ["b"], THRICE: ["c"]})
FAKES = ("one: fake", "Two: fake -code=9", "plain")


def doubler(sources: Callable[[Target], dict[str, str]] = lambda target: {}) -> PluginHost:
    """A plain host, and an accelerator that doubles four numbers, with a simulator that counts."""

    def runtime(target: Target) -> Runtime:
        given, code = fake_device.runtime(), target.get_attr("code")
        parameters = () if code is None else (fake_device.PHASES["never"], code)
        return fake_device.runtime(sources={**given.sources, **sources(target)}, parameters=parameters)

    value = wildcard("int32")
    kind = accelerator(
        "fake",
        Attribute("code", int, help="without meaning"),
        Attribute("impl", ("sim", "mmio"), default="sim", help="how it is reached"),
        Attribute("base", int, help="where its registers are"),
    )
    double = Pattern(
        "fake.double", op("add")(value, value), lower=lambda match, target: LoweredKernel(fake_device.doubling(4))
    )
    return host_of(entry_of(kind, patterns=lambda: [double], runtime=runtime))


class TestTwoOfOneKind:
    def artifact(self, pins: Pins, targets: tuple[str, ...] = FAKES) -> uma.Artifact:
        return uma.build(DOUBLED, targets, pins=pins, plugins=doubler())

    def test_each_is_a_device_of_its_own(self) -> None:
        artifact = self.artifact({"b": "Two", "c": "plain"})
        with artifact.session() as session:
            (made,) = session.run({"x": np.array([1, 2, 3, -4], np.int32)}).values()
            assert made.tolist() == [8, 16, 24, -32]
            counters = session.counters()
        assert {label: counted["operations"] for label, counted in counters.items()} == {"one": 3, "Two": 3}
        rows = artifact.metadata["devices"]
        assert [(row["label"], row["kind"], row["parameters"]) for row in rows] == [
            ("one", "fake", []),
            ("Two", "fake", [0, 9]),
        ]
        assert [row["device"] for row in artifact.metadata["calls"]] == ["one", "Two", None]
        assert artifact.metadata["targets"] == ["one: fake", "Two: fake -code=9", "plain"]
        assert artifact.metadata["plugins"] == {"uma-fake": "1.0", "uma-plain": "1.0"}

    def test_the_driver_is_there_once(self) -> None:
        artifact = self.artifact({"b": "Two"})
        assert artifact.metadata["compile"]["hosts"][0]["sources"].count("fake_driver.c") == 1
        text = artifact.files["model.c"].decode()
        assert text.count("&fake_driver") == 2 and text.count("fake_add(") == 1
        assert "INT64_C(0), INT64_C(9)" in text

    def test_a_profile_names_them(self) -> None:
        profile = self.artifact({"b": "Two"}).profile({"x": np.ones(4, np.int32)}, repeat=1)
        assert [row.device for row in profile.calls] == ["one", "Two", "one"]
        assert set(profile.counters) == {"one", "Two"}

    def test_dumps_name_them_and_can_be_built_on(self, tmp_path: Path) -> None:
        members = resolve_targets(FAKES, doubler())
        loaded = load_model(DOUBLED, members, pins={"b": "Two", "c": "plain"})
        artifact = build_loaded(loaded, members, dump=tmp_path)
        assert "@ 'Two'" in (tmp_path / "1-import.py").read_text()
        assert "Compiler='Two'" in (tmp_path / "3-partition.py").read_text()
        for path in tmp_path.glob("*.py"):
            again = build_loaded(LoadedModel(read_dump(path), "model"), members)
            assert without_work(again.metadata)["calls"] == without_work(artifact.metadata)["calls"], path.name
            assert again.files["model.c"] == artifact.files["model.c"], path.name

    def test_limits_and_pins(self) -> None:
        """Neighbours that are pinned alike are one region, as far as it may be."""
        assert owners({"a": "two", "b": "two"}, two("add"), DOUBLED) == {"a": "two", "b": "two", "c": "one"}

    def test_a_plugin_is_loaded_once(self) -> None:
        members = resolve_targets(FAKES, doubler())
        assert members["one"].plugin is members["Two"].plugin
        assert members["one"].target.get_attr("code") is None and members["Two"].target.get_attr("code") == 9
        assert len(members.plugins) == 2

    def test_the_targets_are_told_apart_in_hooks(self) -> None:
        seen: list[tuple[str, str, int]] = []

        def patterns(target: Target) -> list[Pattern]:
            assert target is Target.current()
            seen.append(("patterns", target.name, target.get_attr("lanes")))
            return [taking("npu", "nn.relu", lambda function: lower(function, Target.current()))]

        def lower(function: Function, target: Target) -> LoweredKernel:
            seen.append(("lower", target.name, target.get_attr("lanes")))
            return lowered(function)

        first, other = call("nn.relu", X), call("nn.relu", call("subtract", X, X))
        module = module_of(call("maximum", first, other), {first: ["a"], other: ["b"]})
        assert owners({"b": "two"}, two(patterns=patterns), module)["b"] == "two"
        wanted = {(hook, label, lanes) for hook in ("patterns", "lower") for label, lanes in (("one", 8), ("two", 4))}
        assert set(seen) == wanted and len(seen) == 4

    def test_files_that_depend_on_attributes(self) -> None:
        host = doubler(lambda target: {"fake_code.h": f"/* {target.get_attr('code')} */\n"})
        with pytest.raises(PluginError) as caught:
            uma.build(DOUBLED, FAKES, pins={"b": "Two"}, plugins=host)
        what = "the plugin's file 'fake_code.h' is another for device 'Two' than for others of its kind"
        assert (caught.value.what, caught.value.where) == (what, "target kind 'fake'")
        assert "Runtime(parameters=...)" in (caught.value.hint or "")

    def test_registers_at_one_address(self) -> None:
        with pytest.raises(UsageError) as caught:
            self.artifact({"b": "Two"}, ("one: fake -impl=mmio -base=4096", "Two: fake -impl=mmio -base=4096", "plain"))
        assert caught.value.what == "'one' and 'Two' have their registers at one address, 4096"
        assert caught.value.hint == "give each device a -base of its own"
        self.artifact({"b": "Two"}, ("one: fake -impl=mmio -base=4096", "Two: fake -impl=mmio -base=8192", "plain"))

    def test_passes_of_both_run(self) -> None:
        ran: list[str] = []

        def note(module: IRModule) -> IRModule:
            ran.append(Target.current().name)
            main = Function(module.main.params, module.main.body, {"noted": " ".join(ran)})
            return replace(module, functions={module.global_var("main"): main})

        told: list[str | None] = []
        members = two(passes=lambda: [Pass("PRE_PARTITIONING", "note", note)])
        Build("m", members, lambda stage, form, made_by=None: told.append(made_by)).run(CHAIN, "lower")
        assert ran == ["one", "two"]
        assert [name for name in told if name] == ["one.note", "two.note"]


def test_build_takes_pins() -> None:
    host = host_of(toy("npu", "nn.relu"))
    artifact = uma.build(CHAIN, ["npu", "plain"], pins={"first": "plain"}, plugins=host)
    data = inputs_of(CHAIN.main)
    (made,) = artifact.run(data).values()
    relu = np.maximum(data["x"], 0) + np.array([1, -2, 3, 4])
    np.testing.assert_array_equal(made, relu * relu)


def test_pins_need_targets() -> None:
    with pytest.raises(UsageError, match="layers are pinned for no targets") as caught:
        load_model(CHAIN, pins={"first": "plain"})
    assert caught.value.hint == "give the targets of the build as well"
    assert load_model(CHAIN, pins={}).form is CHAIN


def test_explain_shows_pins() -> None:
    members = two("nn.relu", "add")
    loaded = load_model(CHAIN, members, pins={"second": "two", "first": "plain"})
    build = start_build(loaded, members)
    finish_build(build, loaded)
    found = explain(build)
    assert list(found.lines()) == [
        "first: nn.relu -> plain, pinned to plain",
        "    not one: it is pinned to plain",
        "    not two: it is pinned to plain",
        "second: add -> two_0 as npu.add, pinned to two",
        "    not one: it is pinned to two",
        "third: multiply -> plain",
        "    not one: no pattern takes multiply",
        "    not two: no pattern takes multiply",
    ]
    assert [row["pin"] for row in to_json(found)["ops"]] == ["plain", "two", None]
    assert [row["why"][0]["kind"] for row in to_json(found)["ops"]] == ["pinned", "pinned", "none"]
