"""Command streams and library calls: from the hook to an artifact that runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support import stream_device as lag
from tests._support.plugins import HOST, built, entry_of, lowered, members_of, module_of, taking
from tests._support.stream_plugin import addition, lowering, plugin

from uma.artifact import Artifact
from uma.errors import DeviceError, ModelError, PluginError
from uma.hookspecs import Extern, Refuse, Routine
from uma.lowering.build_targets import BuildTargets, resolve_targets
from uma.pipeline.driver import make_artifact
from uma.pipeline.dump import Dumper, read_dump
from uma.pipeline.loading import LoadedModel
from uma.pipeline.stages import STAGES, Build
from uma.plugins import PluginHost
from uma.program import Call as Step
from uma.program import Program, Wait, plan, verify_plan
from uma.program import verify as verify_program
from uma.relay import Call, Expr, Function, GlobalVar, IRModule, Var, call, const
from uma.relay.evaluate import evaluate
from uma.relay.module import func_type
from uma.relay.pattern import Match
from uma.relay.types import TensorType
from uma.relay.visit import post_order
from uma.reports.command_listing import streams
from uma.reports.explain import explain
from uma.support.json_record import to_json
from uma.targets import Target
from uma.tir import Buffer, Param, PrimFunc
from uma.verification.models import verify

X, Y = (Var(name, TensorType((2, 4), "int32")) for name in "xy")
SUM = call("add", X, const(np.arange(4, dtype=np.int32)))
OTHER = call("add", Y, X)
BOTH = call("add", SUM, OTHER)
OUT = call("multiply", BOTH, SUM)
LAYERS: dict[Expr, list[str]] = {SUM: ["first"], OTHER: ["second"], BOTH: ["third"], OUT: ["last"]}
MODEL = module_of(OUT, LAYERS)
"""Three additions, which the device takes, and a multiplication, which it does not."""


def program_of(members: BuildTargets, module: IRModule = MODEL) -> Program:
    build = Build("m", members)
    program = build.run(module)
    assert isinstance(program, Program)
    return program


def artifact_of(members: BuildTargets, module: IRModule = MODEL) -> Artifact:
    program = program_of(members, module)
    return make_artifact(program, plan(program), members)


def check(members: BuildTargets, module: IRModule = MODEL) -> None:
    """What is compiled gives what the references give, twice."""
    values = np.random.default_rng(0)
    inputs = {p.name: values.integers(-99, 99, p.shape).astype(p.dtype) for p in module.main.params}
    with artifact_of(members, module).session() as session:
        for _ in range(2):
            got = session.run(inputs)
            for array, expected in zip(got.values(), evaluate(module, inputs), strict=True):
                np.testing.assert_array_equal(array, expected)


def shown(program: Program) -> list[tuple[str, ...]]:
    return [
        (step.function, step.device or "", step.queue or "") if isinstance(step, Step) else ("wait", step.queue)
        for step in program.steps
    ]


def by_pattern(extern: Any, lower: Any = None) -> BuildTargets:
    """The device with a pattern that makes an extern of each match."""
    pattern = replace(taking("npu", "add", lower), extern=extern)
    return members_of(plugin(lambda: None, patterns=lambda: [pattern]))


def test_a_pattern_makes_one_extern_of_one_match() -> None:
    members = by_pattern(lambda match, target: addition(match.root, None, [target.kind.name]))
    additions = [step for step in shown(program_of(members)) if step[1] == "npu"]
    assert len(additions) == 3 and not any(step[0] == "wait" for step in shown(program_of(members)))
    check(members)


def test_where_a_pattern_makes_no_extern_its_loops_are_asked_for() -> None:
    asked: list[object] = []

    def some(match: Match, target: Target) -> Extern | None:
        asked.append(match.root)
        return addition(match.root, None, ["npu"]) if match.root.shape == (4,) else None

    members = by_pattern(some, lowered)
    functions = program_of(members).functions.values()
    assert asked and all(isinstance(function, PrimFunc) for function in functions)
    check(members)


@pytest.mark.parametrize(
    ("extern", "what"),
    [
        (lambda match, target: 3, "gave int instead of Extern from extern of pattern 'npu.add'"),
        (
            lambda match, target: Extern((Param(Buffer("y", (2, 4), "int32"), "output"),), "run", blobs=()),
            "gave an extern of type () -> Tensor[(2, 4), int32], not",
        ),
        (lambda match, target: 1 // 0, "failed in extern of pattern 'npu.add'"),
    ],
)
def test_a_pattern_that_makes_something_else(extern: Any, what: str) -> None:
    with pytest.raises(PluginError) as caught:
        program_of(by_pattern(extern))
    assert what in str(caught.value) and "first" in (caught.value.where or "")


def test_a_pattern_may_refuse_instead_of_an_extern() -> None:
    def refuse(match: Match, target: Target) -> Extern:
        raise Refuse("not today")

    members = by_pattern(refuse)
    assert all(step[1] != "npu" for step in shown(program_of(members)))


@pytest.mark.parametrize("mode", ["lazy", "eager", "random"])
def test_a_region_on_two_queues(mode: str) -> None:
    members = members_of(plugin(runtime=lag.runtime(mode, 3)))
    program = program_of(members)
    assert shown(program) == [
        ("add0", "npu", "a"),
        ("add1", "npu", "b"),
        ("wait", "b"),
        ("add2", "npu", "a"),
        ("wait", "a"),
        ("multiply", "", ""),
    ]
    assert [step.layers for _, step in program.calls] == [("first",), ("second",), ("third",), ("last",)]
    check(members)


def test_a_region_that_is_one_extern() -> None:
    def relay_to_runtime(function: Function) -> tuple[IRModule, GlobalVar]:
        body = function.body
        assert isinstance(body, Call)
        module = IRModule.from_functions({"whole": addition(Call(body.op, body.args), "b", ())})
        return module, module.global_var("whole")

    module = module_of(OTHER, {OTHER: ["second"]})
    members = members_of(plugin(relay_to_runtime))
    program = program_of(members, module)
    assert shown(program) == [("whole", "npu", "b"), ("wait", "b")]
    assert program.calls[0][1].layers == ("second",)
    check(members, module)


def test_a_call_that_has_finished_when_it_returns() -> None:
    members = members_of(plugin(lowering([None])))
    assert shown(program_of(members))[:3] == [("add0", "npu", ""), ("add1", "npu", ""), ("add2", "npu", "")]
    check(members)


def test_two_devices_at_once() -> None:
    """Each takes what the one before it leaves; equal externs for two devices are two."""
    first = plugin(runtime=lag.runtime("random", 5))

    def relay_to_runtime(module: IRModule, function: Function) -> tuple[IRModule, GlobalVar]:
        """A product by 3, as a sum."""
        [match] = [expr for expr in post_order(function.body) if isinstance(expr, Call)]
        params = (Param(Buffer("x", match.shape, "int32"), "input"), Param(Buffer("y", match.shape, "int32"), "output"))
        stream = lag.commands([("y", match.tensor.size, [lag.Source("x", match.tensor.size)] * 3)])
        made = IRModule.from_functions({"f": Extern(params, "start", {"queue": 0}, (stream,), queue="a")})
        return made, made.global_var("f")

    second = plugin(relay_to_runtime, label="second", patterns=lambda: [taking("second", "multiply", lower=None)])
    triple = call("multiply", BOTH, const([[3, 3, 3, 3], [3, 3, 3, 3]]))
    members = members_of(first, second)
    module = module_of(triple)
    assert program_of(members, module).devices == ("npu", "second")
    check(members, module)


def test_equal_externs_for_two_devices_are_two_functions() -> None:
    """The C that they call is not the same."""
    extern = addition(OTHER, "a", ())
    regions, functions = [], {}
    for label in ("npu", "second"):
        region = Function([X, Y], OTHER, {"Compiler": label, "global_symbol": f"r_{label}"})
        regions.append(GlobalVar(f"r_{label}", func_type(region)))
        functions[regions[-1]] = region
    main = Function([X, Y], call("subtract", *(Call(var, [X, Y]) for var in regions)))
    module = IRModule({GlobalVar("main", func_type(main)): main, **functions})
    hook = gives(extern)
    members = members_of(plugin(hook), plugin(hook, label="second"))
    assert [step.function for _, step in program_of(members, module).calls] == ["f", "f_1", "subtract"]
    check(members, module)


def test_equal_externs_are_one_function() -> None:
    a, b = (call("add", arg, const([1, 2, 3, 4])) for arg in (X, Y))
    module = module_of(call("multiply", a, b), {a: ["a"], b: ["b"]})

    def relay_to_runtime(function: Function) -> tuple[IRModule, GlobalVar]:
        assert isinstance(function.body, Call)
        module = IRModule.from_functions({"f": addition(function.body, "a", ())})
        return module, module.global_var("f")

    members = members_of(plugin(relay_to_runtime))
    program = program_of(members, module)
    assert [step.function for _, step in program.calls] == ["f", "f", "multiply"]
    blobs = [step.args[2] for _, step in program.calls[:2]]
    assert len(set(blobs)) == 2  # each call has commands of its own, for they are patched differently
    check(members, module)


def test_alignment_is_what_is_asked_for() -> None:
    """Arrays of the caller are copied to and from memory that is aligned."""
    members = members_of(plugin(lowering("a", alignment=64)))
    module = module_of(BOTH)
    program = program_of(members, module)
    buffers = {buffer.name: buffer for buffer in program.buffers}
    for _, step in program.calls:
        if step.device is not None:
            given = [buffers[name] for name in step.args if buffers[name].dtype == "int32"]
            assert all(buffer.alignment == 64 and buffer.role == "intermediate" for buffer in given)
    check(members, module)


def test_a_hook_may_leave_a_region_to_relay_to_tir() -> None:
    asked = []

    def relay_to_runtime(function: Function) -> None:
        asked.append("relay_to_runtime")

    def relay_to_tir(function: Function) -> None:
        asked.append("relay_to_tir")

    members = members_of(plugin(relay_to_runtime, patterns=lambda: [taking("npu", "add")], relay_to_tir=relay_to_tir))
    check(members)
    assert asked[:2] == ["relay_to_runtime", "relay_to_tir"]


def test_what_is_refused_is_placed_anew() -> None:
    def relay_to_runtime(module: IRModule, function: Function) -> Any:
        for expr in post_order(function.body):
            if "third" in module.spans[expr]:
                raise Refuse("three are too many", at=expr)
        return lowering("a")(module, function)

    members = members_of(plugin(relay_to_runtime))
    build = built(MODEL, members)
    whys = [reason.reason for op in explain(build).ops for reason in op.why]
    assert "three are too many" in whys
    check(members)


def test_every_stage_can_be_read_and_built_on(tmp_path: Path) -> None:
    members = members_of(plugin())
    build = Build("m", members, Dumper(tmp_path))
    program = build.run(MODEL)
    for number, stage in enumerate(STAGES, 1):
        form = read_dump(tmp_path / f"{number}-{stage}.py")
        if number > STAGES.index("lower"):
            assert Build("m", members).run(form) == program


def test_kernels_are_verified_against_their_references() -> None:
    members = members_of(plugin(runtime=lag.runtime("random", 9)))
    inputs = {p.name: np.arange(8, dtype=np.int32).reshape(2, 4) for p in MODEL.main.params}
    found = verify(LoadedModel(MODEL, "m"), artifact_of(members), members, inputs)
    assert all(one.difference.ok for one in (*found.kernels, *found.outputs))
    assert "npu" in {kernel.target for kernel in found.kernels}


class TestArtifact:
    def test_metadata(self) -> None:
        record = artifact_of(members_of(plugin())).record
        assert [device.label for device in record.devices] == ["npu"]
        assert [(call.kernel, call.layers, call.host, call.device) for call in record.calls[2:5]] == [
            ("wait_b", ("second",), "plain", "npu"),
            ("add2", ("third",), "plain", "npu"),
            ("wait_a", ("first", "third"), "plain", "npu"),
        ]
        queues = [(call.queue, call.finished_step) for call in record.calls]
        assert queues == [("a", 4), ("b", 2), ("b", 2), ("a", 4), ("a", 4), (None, 5)]

    def test_profile_has_the_waits(self) -> None:
        artifact = artifact_of(members_of(plugin()))
        zeros = {p.name: np.zeros(p.shape, np.int32) for p in MODEL.main.params}
        found = artifact.profile(zeros, repeat=1)
        assert [time.kernel for time in found.calls][2:5] == ["wait_b", "add2", "wait_a"]
        assert found.counters == {"npu": {"launches": 3}}

    @pytest.mark.parametrize(
        ("mode", "layers", "code"),
        [(("hang", 1), ("first", "third"), lag.NO_ANSWER), (("hang", 0), ("second",), lag.NO_ANSWER)],
    )
    def test_a_device_that_hangs(self, mode: tuple[str, int], layers: tuple[str, ...], code: int) -> None:
        members = members_of(plugin(runtime=lag.runtime(*mode)))
        zeros = {p.name: np.zeros(p.shape, np.int32) for p in MODEL.main.params}
        with artifact_of(members).session() as session:
            for _ in range(2):
                with pytest.raises(DeviceError, match="fault 9, the device does not answer") as caught:
                    session.run(zeros)
                assert (caught.value.layers, caught.value.code) == (layers, code)


# --- faults ----------------------------------------------------------------------------------------------------------

EXTERN = addition(OTHER, "a", ())
ONE = module_of(OTHER, {OTHER: ["second"]})


def gives(extern: Any) -> Any:
    def hook() -> tuple[IRModule, GlobalVar]:
        module = IRModule.from_functions({"f": extern})
        return module, module.global_var("f")

    return hook


def no_pair() -> Any:
    return IRModule({}), "f", 3


FAULTS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no pair": (no_pair, {}, "gave no pair of a module and its entry in hook relay_to_runtime, for region 'npu_0'"),
    "raises": (lambda: 1 / 0, {}, "failed in hook relay_to_runtime: ZeroDivisionError"),
    "type": (
        gives(addition(call("add", Var("a", TensorType((4,), "int32")), Var("b", TensorType((4,), "int32"))), "a", ())),
        {},
        "gave the entry 'f' of type",
    ),
    "routine": (
        gives(replace(EXTERN, routine="system")),
        {},
        "gave an extern 'f' that uses the routine 'system', which its Runtime does not declare, in a lowering",
    ),
    "queue": (
        gives(replace(EXTERN, queue="c")),
        {},
        "that uses the launch queue 'c', which its Runtime does not declare",
    ),
    "scalar": (gives(replace(EXTERN, scalars={})), {}, "that uses nothing for placeholder {queue} of routine 'start'"),
    "no runtime": (gives(EXTERN), {"silent": True}, "a device, for which hook runtime gives no driver"),
    "extern of loops": (
        lambda: None,
        {"relay_to_tir": gives(EXTERN)},
        "gave an extern, which hook relay_to_runtime may give, in hook relay_to_tir",
    ),
    "fault of a record": (
        lambda: replace(EXTERN, routine=""),
        {},
        "failed in hook relay_to_runtime: uma.errors.ModelError: '' cannot name a routine",
    ),
}


@pytest.mark.parametrize("hook, hooks, what", FAULTS.values(), ids=FAULTS)
def test_hooks_at_fault(hook: Any, hooks: dict[str, Any], what: str) -> None:
    with pytest.raises(PluginError) as caught:
        built(ONE, members_of(plugin(hook, **hooks)))
    assert what in caught.value.what
    assert "uma-npu 1.0" in caught.value.what
    assert caught.value.where is not None and "second" in caught.value.where


def test_a_call_outside_of_a_region() -> None:
    var = GlobalVar("f", func_type(EXTERN))
    main = Function([X, Y], Call(var, [Y, X]))
    module = IRModule({GlobalVar("main", func_type(main)): main, var: EXTERN})
    with pytest.raises(ModelError, match="'f' drives a device, and is called outside of a region"):
        built(module, members_of(plugin()))


def test_a_queue_that_the_device_does_not_have() -> None:
    """In a text that somebody wrote, or of another version of the plugin."""
    program_of(members_of(plugin()))
    var = GlobalVar("f", func_type(EXTERN))
    region = Function([X, Y], Call(var, [Y, X]), {"Compiler": "npu", "global_symbol": "r"})
    named = GlobalVar("r", func_type(region))
    main = Function([X, Y], Call(named, [X, Y]))
    module = IRModule({GlobalVar("main", func_type(main)): main, named: region, var: EXTERN})
    without = plugin(runtime=lag.runtime(launch_queues=lag.QUEUES[1:]))
    with pytest.raises(ModelError, match="'f' is started on queue 'a', which device 'npu' does not have"):
        built(module, members_of(without))


def test_a_program_for_a_target_that_gives_nothing() -> None:
    program = program_of(members_of(plugin()))
    members = members_of(plugin(silent=True))
    with pytest.raises(PluginError, match="gave functions for 'npu', and nothing from hook runtime"):
        make_artifact(program, plan(program), members)


def test_a_program_for_a_target_that_is_not_there() -> None:
    program = program_of(members_of(plugin()))
    with pytest.raises(ModelError) as caught:
        make_artifact(program, plan(program), members_of())
    assert caught.value.what == "the program runs on 'npu', which is not a target of this build"
    assert caught.value.hint == "targets: plain"


def test_a_missing_wait_in_a_program_is_found_before_there_is_c() -> None:
    members = members_of(plugin())
    program = program_of(members)
    for position, step in enumerate(program.steps):
        if isinstance(step, Wait):
            broken = replace(program, steps=(*program.steps[:position], *program.steps[position + 1 :]))
            for find in (verify_program, lambda one: verify_plan(one, plan(program))):
                with pytest.raises(Exception, match=r"a wait is missing|never waited for"):
                    find(broken)


# --- what streams say ------------------------------------------------------------------------------------------------


class TestStreams:
    def streams(self, **changes: Any) -> list[Any]:
        members = members_of(plugin(runtime=lag.runtime(**changes)))
        program = program_of(members)
        return list(streams(program, plan(program), members))

    def test_each_blob_of_each_launch_in_the_words_of_the_plugin(self) -> None:
        found = self.streams()
        assert [(one.step, one.blob, one.nbytes) for one in found] == [
            (0, "commands", 28),
            (0, "b", 16),
            (1, "commands", 28),
            (3, "commands", 28),
        ]
        first = found[0]
        assert list(first.lines()) == [
            "step 0, first -> npu, queue a: start",
            "    commands, 28 bytes",
            "    first: y:",
            f"        0x000000  {first.rows[0].text}",
        ]
        assert first.rows[0].text.endswith(" = 2:0[8] + 0:32[4]")
        assert to_json(first)["rows"] == [{"at": 0, "text": first.rows[0].text, "layer": "first: y"}]
        assert list(found[1].lines())[1:] == ["    b, 16 bytes"]  # weights are not commands

    def test_a_routine_need_not_tell(self) -> None:
        quiet = replace(lag.START, describe=None)
        assert all(not one.rows for one in self.streams(routines=(quiet, lag.RUN)))

    @pytest.mark.parametrize(
        ("describe", "what"),
        [
            (lambda data: 1 / 0, "failed in describe of routine 'start': ZeroDivisionError"),
            (lambda data: [(0, 1)], "gave a value of type tuple from describe of routine 'start', not (byte offset"),
            (lambda data: ["x"], "gave 'x' from describe of routine 'start', not (byte offset in the blob, text)"),
            (lambda data: [(len(data), "x")], "from describe of routine 'start', not (byte offset in the blob, text)"),
        ],
    )
    def test_descriptions_at_fault(self, describe: Any, what: str) -> None:
        with pytest.raises(PluginError) as caught:
            self.streams(routines=(replace(lag.START, describe=describe), lag.RUN))
        assert what in caught.value.what

    def test_ports_are_shown(self) -> None:
        axi = Routine("start", lag.START.call, lag.FIELDS, ("axi", "apb"))

        def relay_to_runtime(function: Function) -> tuple[IRModule, GlobalVar]:
            module = IRModule.from_functions(
                {"f": replace(EXTERN, ports={"a": "axi", "b": "apb", "y": "axi", "commands": "apb"})}
            )
            return module, module.global_var("f")

        members = members_of(plugin(relay_to_runtime, lag.runtime(routines=(axi,))))
        program = program_of(members, ONE)
        [stream] = streams(program, plan(program), members)
        assert list(stream.lines())[1] == "    ports: a by axi, b by apb, commands by apb, y by axi"


def test_a_host_beside() -> None:
    """Where the host is another, externs are the same."""
    entries = [*plugin(), *entry_of(HOST)]
    members = resolve_targets(["npu", "plain"], PluginHost(lambda: entries))
    check(members)
