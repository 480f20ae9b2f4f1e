"""Several hosts in one build: who runs what, how it is grouped, lowered and compiled, and what it computes."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._support.partitions import inputs_of
from tests._support.plugins import HOST, checked, entry_of, host_kind, module_of, toy
from tests._support.programs import interpret_program
from tests._support.regions import CHAIN, X
from tests._support.relay_strategies import assert_same, modules, values_of
from tests._support.te_lowerings import lowered

import uma
from uma.codegen.model import emit_model
from uma.errors import ModelError, PluginError, RequirementError, UsageError
from uma.hookspecs import Fusion, Pass, Refuse, Strategy, TargetCode
from uma.lowering.build_targets import BuildTargets, resolve_targets
from uma.pipeline.driver import build_loaded, finish_build, lower_loaded, start_build
from uma.pipeline.dump import read_dump
from uma.pipeline.loading import load_model
from uma.pipeline.pins import pin_layers
from uma.plugins import PluginHost
from uma.program import Program, plan
from uma.program.text import parse_program, print_program
from uma.relay import Call as RelayCall
from uma.relay import Expr, Function, IRModule, Spans, call, post_order
from uma.relay.evaluate import evaluate
from uma.relay.pattern import Pattern, any_, op, wildcard
from uma.relay.visit import children, rewrite, with_children, without_pin
from uma.reports.explain import explain
from uma.support.json_record import to_json
from uma.targets import Target
from uma.verification.reference_runtimes import litert

TWO = ["c -opt=3", "other: c -opt=1"]
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-Wmissing-prototypes", "-pedantic")


def hosts(*targets: str, **hooks: Callable[..., Any]) -> BuildTargets:
    """Two hosts, ``plain`` and then ``other``, or what ``targets`` says; the hooks are those of ``other``."""
    other = host_kind("other")
    entries = [*entry_of(HOST), *entry_of(other, **hooks), *toy("npu", "multiply")]
    return resolve_targets(targets or ("plain", "other"), PluginHost(lambda: entries))


def pinned(pins: dict[str, str], members: BuildTargets, module: IRModule = CHAIN) -> IRModule:
    made = pin_layers(module, pins, members)
    assert isinstance(made, IRModule)
    return made


def ran(program: Program) -> dict[str, str | None]:
    """The host of each layer's step."""
    return {layer: step.host for _, step in program.calls for layer in step.layers}


class TestWhoRunsWhat:
    @pytest.mark.parametrize(
        ("pins", "expected"),
        [
            ({}, [None, None, None]),
            ({"second": "other"}, [None, "other", None]),
            ({"*": "other"}, ["other", "other", "other"]),
            ({"first": "other", "third": "plain"}, ["other", None, None]),
        ],
    )
    def test_pins_else_the_first(self, pins: dict[str, str], expected: list[str | None]) -> None:
        members = hosts()
        build, program = checked(pinned(pins, members), members)
        assert list(ran(program).values()) == expected
        found = explain(build)
        assert [record.host for record in found.ops] == [host or "plain" for host in expected]
        assert [row["owner"] for row in to_json(found)["ops"]] == [host or "plain" for host in expected]
        assert sum(share.ops for share in found.shares()) == 3
        assert {share.label: share.ops for share in found.shares()}["other"] == expected.count("other")

    def test_order_is_priority(self) -> None:
        assert [host.label for host in hosts("other", "plain").hosts] == ["other", "plain"]
        _, program = checked(CHAIN, hosts("other", "plain"))
        assert set(ran(program).values()) == {None}

    def test_of_those_that_the_first_refines_the_least_specialised(self) -> None:
        """The entry stays with the first."""
        members = hosts("x: other -keys=a", "plain", "other")
        assert members.host.label == "x" and [host.label for host in members.takers] == ["other", "x", "plain"]
        build, program = checked(CHAIN, members)
        assert set(ran(program).values()) == {"other"}
        assert [record.host for record in explain(build).ops] == ["other", "other", "other"]
        _, program = checked(pinned({"second": "x", "third": "plain"}, members), members)
        assert list(ran(program).values()) == ["other", None, "plain"]

    @pytest.mark.parametrize("target", ["plain -compiler=npu", "plain -keys=a -compiler=npu; plain", "plain; npu"])
    def test_what_a_compiler_leaves_is_the_hosts(self, target: str) -> None:
        members = hosts(target)
        assert [member.label for member in members.all] == ["npu", "plain"]
        found = explain(checked(CHAIN, members)[0])
        assert [(record.owner, record.host) for record in found.ops] == [
            (None, "plain"), (None, "plain"), ("npu", None),
        ]  # fmt: skip
        assert found.ops[2].pattern == "npu.multiply"
        with pytest.raises(RequirementError, match="'npu'"):
            checked(pinned({"first": "npu"}, members), members)

    def test_one_that_refuses_leaves_it_to_the_next(self) -> None:
        """Without a pin; with one, that is an error."""
        members = hosts("other", "plain", strategies=lambda: [Strategy("add", _refusing)])
        build, program = checked(CHAIN, members)
        assert ran(program) == {"first": None, "second": "plain", "third": None}
        assert [(record.op, record.host) for record in explain(build).ops] == [
            ("nn.relu", "other"),
            ("add", "plain"),
            ("multiply", "other"),
        ]
        with pytest.raises(RequirementError, match="add is pinned to 'other', which cannot run it: too hot") as caught:
            checked(pinned({"second": "other"}, members), members)
        assert caught.value.where == "second"

    def test_one_that_refuses_what_it_grouped(self) -> None:
        """The name of its pattern says nothing to the next host, which has one of that name."""

        def patterns() -> list[Pattern]:
            term = op("add")(op("nn.relu")(wildcard(any_)), wildcard(any_))
            return [Pattern("same.name", term, lower=lambda match, target: _refusing(match.function, target))]

        entries = [entry for kind in ("cold", "hot") for entry in entry_of(host_kind(kind), patterns=patterns)]
        members = resolve_targets(["cold", "hot"], PluginHost(lambda: entries))
        _, program = checked(CHAIN, members)
        assert ran(program) == {"first": "hot", "second": "hot", "third": None}

    def test_nobody_can_run_it(self) -> None:
        kinds = [host_kind(kind) for kind in ("cold", "hot")]
        entries = [e for kind in kinds for e in entry_of(kind, strategies=lambda: [Strategy("add", _refusing)])]
        with pytest.raises(ModelError, match="no host can run add: cold: too hot; hot: too hot") as caught:
            checked(CHAIN, resolve_targets(["cold", "hot"], PluginHost(lambda: entries)))
        assert caught.value.where == "second"

    def test_alone_it_must_not_refuse(self) -> None:
        with pytest.raises(PluginError, match="refused what only the host can do: too hot"):
            checked(CHAIN, hosts("other", strategies=lambda: [Strategy("add", _refusing)]))

    def test_each_groups_by_its_own_patterns(self) -> None:
        def patterns() -> list[Pattern]:
            term = op("add")(op("nn.relu")(wildcard(any_)), wildcard(any_))
            return [Pattern("other.pair", term)]

        members = hosts(patterns=patterns)
        _, program = checked(pinned({"first": "other", "second": "other"}, members), members)
        assert [(step.layers, step.host) for _, step in program.calls] == [
            (("first", "second"), "other"),
            (("third",), None),
        ]
        _, program = checked(pinned({"second": "other"}, members), members)
        assert [(step.layers, step.host) for _, step in program.calls] == [
            (("first",), None),
            (("second",), "other"),
            (("third",), None),
        ]

    def test_accelerators_come_first(self) -> None:
        members = hosts("npu", "plain", "other")
        _, program = checked(pinned({"first": "other"}, members), members)
        assert ran(program) == {"first": "other", "second": None, "third": "npu"}
        assert [m.label for m in members.all] == ["npu", "plain", "other"]

    def test_hooks_see_their_own_target(self) -> None:
        seen: list[str] = []

        def strategy(fusion: Fusion, target: Target) -> Any:
            seen.append(f"{target.name} {Target.current()}")
            return lowered(fusion.function)

        members = hosts("plain", "left: other", "right: other", strategies=lambda: [Strategy("add", strategy)])
        checked(pinned({"second": "right"}, members), members)
        assert seen == ["right right: other"]

    def test_functions_of_the_model(self) -> None:
        inner = call("add", X, X)
        function = Function([X], inner, {"Compiler": "other"})
        module = module_of(call("nn.relu", RelayCall(function, [X])))
        _, program = checked(module, hosts())
        assert [step.host for _, step in program.calls] == ["other", None]


def _refusing(fusion: Fusion, target: Target) -> Any:
    raise Refuse("too hot")


@settings(max_examples=8)
@given(modules(), st.randoms(use_true_random=False), st.integers(0, 2**32 - 1))
def test_random_models_and_pins(module: IRModule, random: Any, seed: int) -> None:
    """Whoever runs what, the model computes the same; and its program prints and parses."""

    def rule(expr: Expr) -> Expr | None:
        if isinstance(expr, RelayCall):
            return expr.pinned(random.choice([None, "plain", "other"]))
        return None

    main = module.main
    body = rewrite(main.body, rule)
    again = IRModule.from_functions({"main": Function(main.params, body)})
    program = lower_loaded(load_model(again, name="m"), hosts())
    assert isinstance(program, Program)
    inputs, expected, largest = values_of(module, seed)
    got = interpret_program(program, {f"in_{name}": array.ravel() for name, array in inputs.items()})
    values = [got[f"out_{number}"].reshape(array.shape) for number, array in enumerate(expected)]
    assert_same(values, expected, largest)
    assert parse_program(*print_program(program)) == program


class TestForms:
    def test_every_stage_parses_and_goes_on(self, tmp_path: Path) -> None:
        members = hosts()
        loaded = load_model(pinned({"second": "other"}, members), name="m")
        whole = build_loaded(loaded, members, dump=tmp_path)
        for file in sorted(tmp_path.glob("*.py")):
            again = build_loaded(load_model(file, name="m"), members)
            assert again.files.keys() == whole.files.keys(), file.name
            assert [row["host"] for row in again.metadata["calls"]] == ["plain", "other", "plain"], file.name

    def test_hosts_in_another_order(self, tmp_path: Path) -> None:
        """The text of a program says which steps are for which host; the others are for the first one."""
        members = hosts()
        lower_loaded(load_model(pinned({"second": "other"}, members), name="m"), members, dump=tmp_path)
        (file,) = tmp_path.glob("*sequence.py")
        artifact = build_loaded(load_model(file, name="m"), hosts("other", "plain"))
        assert [row["host"] for row in artifact.metadata["calls"]] == ["other"] * 3
        assert [host["label"] for host in artifact.metadata["compile"]["hosts"]] == ["other"]
        inputs = inputs_of(CHAIN.main)
        (got,) = artifact.run(inputs).values()
        np.testing.assert_array_equal(got, evaluate(CHAIN, inputs)[0])

    def test_kernels_are_pinned_by_their_layers(self, tmp_path: Path) -> None:
        """In the text of a later stage, too."""
        members = hosts()
        lower_loaded(load_model(CHAIN, name="m"), members, dump=tmp_path)
        for stage in ("fuse", "lower"):
            (file,) = tmp_path.glob(f"*{stage}.py")
            form = read_dump(file)
            made = pin_layers(form, {"second": "other"}, members)
            _, program = checked(CHAIN, members)
            assert set(ran(program).values()) == {None}
            program_again = build_loaded(load_model(made, name="m"), members)
            assert [row["host"] for row in program_again.metadata["calls"]] == ["plain", "other", "plain"]

    def test_a_pass_must_keep_pins(self) -> None:
        def forget(module: IRModule) -> IRModule:
            main, spans = module.main, Spans(dict(module.spans))
            done: dict[Expr, Expr] = {}
            for expr in post_order(main.body):
                done[expr] = without_pin(with_children(expr, [done[child] for child in children(expr)]))
                spans.record_rewrite(expr, done[expr])
            return module.with_main(Function(main.params, done[main.body], dict(main.attrs)), spans)

        members = hosts(passes=lambda: [Pass("TIR_1", "forget", forget)])
        with pytest.raises(PluginError, match="layer 'second' has lost its pin to 'other'"):
            checked(pinned({"second": "other"}, members), members)

    def test_a_kernel_that_is_pinned_to_no_host(self) -> None:
        members = hosts("npu", "plain", "other")
        relu = Function([X], call("nn.relu", X), {"Primitive": "1"})
        with pytest.raises(ModelError, match="the call of a function is pinned to 'npu', which is not a host"):
            checked(module_of(RelayCall(relu, [X], pin="npu")), members)

    def test_a_program_for_a_host_that_is_not_there(self, tmp_path: Path) -> None:
        members = hosts()
        lower_loaded(load_model(pinned({"second": "other"}, members), name="m"), members, dump=tmp_path)
        (file,) = tmp_path.glob("*sequence.py")
        with pytest.raises(ModelError, match="the program runs on 'other', which is not a host of this build"):
            uma.build(file, "c")


class TestMachineCode:
    def test_two_of_one_kind_with_flags_of_their_own(self, tmp_path: Path) -> None:
        """In one artifact, which runs and is saved, loaded, built by make and profiled."""
        model = pin_layers(CHAIN, {"second": "other"}, resolve_targets(TWO, uma.plugins.default_host()))
        artifact = uma.build(model, TWO, name="m")
        first, other = artifact.metadata["compile"]["hosts"]
        assert (first["label"], other["label"]) == ("c", "other")
        assert "-O3" in first["flags"] and "-O1" in other["flags"]
        assert other["sources"] == ["m_on_other.c"] and "m.c" in first["sources"]
        assert [call["host"] for call in artifact.metadata["calls"]] == ["c", "other", "c"]
        inputs = inputs_of(CHAIN.main)
        expected = uma.build(CHAIN, "c").run(inputs)["output"]
        np.testing.assert_array_equal(artifact.run(inputs)["output"], expected)
        loaded = uma.load(artifact.save(tmp_path / "m"))
        np.testing.assert_array_equal(loaded.run(inputs)["output"], expected)
        np.testing.assert_array_equal(loaded.profile(inputs, repeat=1).outputs["output"], expected)
        if shutil.which("make"):
            done = subprocess.run(["make", "-C", tmp_path / "m"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            lines = {line.split()[-1]: line for line in done.stdout.splitlines() if " -c " in line}
            assert "-O1" in lines["m_on_other.c.o"] and "-O3" in lines["m.c.o"]

    def test_the_same_kernel_on_both(self) -> None:
        first = call("nn.relu", X)
        module = module_of(call("nn.relu", call("add", first, X)), {first: ["first"]})
        module = pinned({"first": "other"}, resolve_targets(TWO, uma.plugins.default_host()), module)
        artifact = uma.build(module, TWO, name="m")
        inputs = inputs_of(module.main)
        x = inputs["x"]
        expected = np.maximum(np.maximum(x, 0) + x, 0)
        np.testing.assert_array_equal(artifact.run(inputs)["output"], expected)
        assert "m_k1_relu" in artifact.source("m_on_other.c")
        assert "m_k1_" in artifact.source("m.c") and "m_k_" in artifact.source("m.c")


FIRMWARE = """
#include <stdio.h>
#include "m.h"
#include "m_on_other.h"
static int calls, written, fails;
int32_t m_call_other(uint32_t kernel, const uma_span *arguments, uint32_t n_arguments)
{
    void *there[8];
    uint32_t i;
    if (fails) return 7;
    for (i = 0; i < n_arguments; i++) {
        there[i] = arguments[i].data;
        written += (int)arguments[i].bytes * arguments[i].written;
    }
    calls++;
    return m_on_other(kernel, there);
}
UMA_ALIGNAS(64) static unsigned char arena[m_ARENA_BYTES + 1];
int main(void)
{
    static const int32_t x[8] = {-4, 3, -2, 1, 0, 5, 6, -7};
    static int32_t y[8];
    m_context context;
    m_inputs inputs;
    m_outputs outputs;
    int i;
    void *none = NULL;
    inputs.x = x;
    outputs.output = y;
    if (m_init(&context, arena, sizeof arena) || m_run(&context, &inputs, &outputs)) return 1;
    for (i = 0; i < 8; i++) printf("%d ", (int)y[i]);
    printf("| %d %d", calls, written);
    if (m_on_other(99, &none) != -1) return 2;
    fails = 1;
    return m_run(&context, &inputs, &outputs) == UMA_ERR_HOST ? 0 : 3;
}
"""


def test_a_host_that_is_another_machine(compilers: tuple[str, ...], tmp_path: Path) -> None:
    """Its kernels are behind one function in an image of their own; the firmware carries the calls."""
    members = hosts()
    program = lower_loaded(load_model(pinned({"second": "other"}, members), name="m"), members)
    assert isinstance(program, Program)
    files = emit_model(program, plan(program), remote=["other"])
    assert files.units == {"other": ("m_on_other.c",)}
    for name, text in files.contents.items():
        (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    (tmp_path / "firmware.c").write_text(FIRMWARE)
    x = np.array([-4, 3, -2, 1, 0, 5, 6, -7], np.int32).reshape(2, 4)
    expected = (np.maximum(x, 0) + np.array([1, -2, 3, 4], np.int32)) ** 2
    for compiler in compilers:
        sources = [*files.sources, *files.units["other"], "firmware.c"]
        flags = [*STRICT, "-fsanitize=address,undefined", "-fno-sanitize-recover"]
        command = [compiler, *flags, *sources, "-o", "program"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.returncode, done.stderr)
        values, _, counts = done.stdout.partition("|")
        assert [int(value) for value in values.split()] == expected.ravel().tolist()
        assert counts.split() == ["1", "32"]


def test_labels_that_would_be_one_file() -> None:
    entries = [*entry_of(HOST), *entry_of(host_kind("other"))]
    members = resolve_targets(["plain", "a: other", "A: other"], PluginHost(lambda: entries))
    module = pinned({"first": "a", "second": "A"}, members)
    with pytest.raises(UsageError, match="the hosts 'a' and 'A' would have one file where case does not count"):
        build_loaded(load_model(module, name="m"), members)


def test_code_is_asked_for_what_the_host_runs() -> None:
    asked: dict[str, list[str]] = {}

    def tir_to_runtime(module: IRModule, target: Target) -> TargetCode:
        asked[target.name] = [var.name for var in module.functions]
        return TargetCode(cflags=("-O0",))

    members = hosts(tir_to_runtime=tir_to_runtime)
    artifact = build_loaded(load_model(pinned({"second": "other"}, members), name="m"), members)
    assert asked == {"other": ["add"]}
    assert artifact.metadata["compile"]["hosts"][1]["flags"] == ["-std=c99", "-O0"]
    build_loaded(load_model(CHAIN, name="m"), hosts(tir_to_runtime=tir_to_runtime))
    assert asked == {"other": ["add"]}


@pytest.mark.few(1)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the CPU names are those of x86-64")
@pytest.mark.parametrize("name", ["kws_ref_model", "ad01_int8"])
def test_two_cpus_of_one_machine_in_one_artifact(name: str, models: Path) -> None:
    """Every other layer on each: the bytes are those of LiteRT."""
    path = models / "mlperf-tiny" / f"{name}.tflite"
    members = resolve_targets("old: c -mcpu=x86-64; new: c -mcpu=native", uma.plugins.default_host())
    plain = load_model(path, members).form
    assert isinstance(plain, IRModule)
    layers = list(dict.fromkeys(layer for _, names in plain.spans for layer in names))
    loaded = load_model(path, members, pins=dict.fromkeys(layers[1::2], "new"))
    build = start_build(loaded, members)
    artifact = finish_build(build, loaded)
    old, new = artifact.metadata["compile"]["hosts"]
    assert "-march=x86-64" in old["flags"] and "-march=native" in new["flags"]
    assert {row["host"] for row in artifact.metadata["calls"]} == {"old", "new"}
    assert {share.label for share in explain(build).shares() if share.macs} == {"old", "new"}
    [row] = artifact.metadata["inputs"]
    reference = litert(path, [tuple(row["shape"])])
    rng = np.random.default_rng(0)
    for _ in range(3):
        x = rng.integers(-128, 127, row["shape"], np.int8, endpoint=True)
        (made,) = artifact.run({row["name"]: x}).values()
        np.testing.assert_array_equal(made, reference([x])[0])


def test_no_one_process_runs_what_is_for_several_machines() -> None:
    members = hosts(tir_to_runtime=lambda: TargetCode(cc="arm-none-eabi-gcc", machine="arm-none-eabi cortex-m0"))
    artifact = build_loaded(load_model(pinned({"second": "other"}, members), name="m"), members)
    with pytest.raises(UsageError) as caught:
        artifact.run({"x": np.zeros((2, 4), np.int32)})
    assert caught.value.what == "the model is for several machines, 'plain' and 'other': no one process runs them"
    assert caught.value.where == "m"
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("compile what Artifact.save writes for each of them")
