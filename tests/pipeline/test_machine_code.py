"""``tir_to_runtime`` of any target: flags for the core's C, or functions that a plugin brings itself."""

from __future__ import annotations

import re
import subprocess
import tempfile
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support import fake_device
from tests._support.partitions import inputs_of
from tests._support.plugins import accelerator, entry_of, host_kind, module_of, toy
from tests._support.tools import skip_without
from tests.artifact.test_artifact_cmake import CMAKE, cmake

from uma.artifact import Artifact, load
from uma.codegen.kernel import kernel_source
from uma.errors import PluginError, ToolchainError
from uma.hookspecs import Library, LoweredKernel, Pattern, Strategy, TargetCode
from uma.lowering.build_targets import BuildTargets, resolve_targets
from uma.pipeline.driver import build_loaded
from uma.pipeline.loading import load_model
from uma.plugins import PluginEntry, PluginHost
from uma.relay import IRModule, TensorType, Var, call
from uma.relay.evaluate import evaluate
from uma.relay.pattern import op, wildcard
from uma.targets import Target
from uma.tir import parse_func
from uma.tir.form.nodes import PrimFunc
from uma.verification.models import verify

X = Var("x", TensorType((2, 3), "int32"))
RELU = call("nn.relu", X)
MODEL = module_of(call("abs", call("add", call("negative", RELU), X)), {RELU: ["first"]})
"""Of a ReLU and what follows it."""

DATA = ".data\n.byte 1\n.section .note.GNU-stack\n"

Answer = Callable[[IRModule, Target, str], "TargetCode | None"]


def functions(module: IRModule) -> dict[str, PrimFunc]:
    found = {var.name: func for var, func in module.functions.items()}
    assert found
    return {name: func for name, func in found.items() if isinstance(func, PrimFunc)}


def symbols(module: IRModule, prefix: str) -> dict[str, str]:
    return {name: f"{prefix}_own_{name}" for name in functions(module)}


def own_source(module: IRModule, target: Target, prefix: str) -> TargetCode:
    """C that is not the core's: it counts what is computed, in a variable of its own."""
    made = symbols(module, prefix)
    text = "".join(f'#include "{name}"\n' for name in (f"{prefix}_functions.h", "uma_math.h", f"{prefix}_count.h"))
    text += f"\nint {prefix}_calls;\n\n"
    for name, func in functions(module).items():
        text += kernel_source(made[name], func, is_static=False).replace("{\n", f"{{\n    {prefix}_calls++;\n", 1)
    header = f"extern int {prefix}_calls;\n"
    return TargetCode(symbols=made, sources={f"{prefix}.c": text, f"{prefix}_count.h": header})


def own_object(module: IRModule, target: Target, prefix: str, tools: Sequence[str] = ("gcc",)) -> TargetCode:
    """An object that the plugin's own tools made: here a C compiler, of a form of its own."""
    made = symbols(module, prefix)
    csrc = Path(__file__).parents[2] / "core" / "runtime" / "csrc"
    text = '#include "uma_math.h"\n\n'
    text += "\n".join(kernel_source(made[name], func, is_static=False) for name, func in functions(module).items())
    with tempfile.TemporaryDirectory() as folder:
        made_file = Path(folder, "made.o")
        command = [*tools, "-x", "c", "-std=c99", "-O1", "-fPIC", "-c", "-I", str(csrc), "-", "-o", str(made_file)]
        subprocess.run(command, input=text.encode(), capture_output=True, check=True)
        data = f"{prefix}_data.S"
        return TargetCode(symbols=made, sources={data: DATA}, objects={f"{prefix}.o": made_file.read_bytes()})


def targets_with_answer(answer: Answer, who: str = "npu", *targets: str) -> BuildTargets:
    """An accelerator that takes ReLU, and a host; one of them answers."""
    hook = {"tir_to_runtime": answer}
    npu = toy("npu", "nn.relu", **(hook if who == "npu" else {}))
    host = entry_of(host_kind("c_like"), **(hook if who == "host" else {}))
    plugins = PluginHost(lambda: [*npu, *host])
    return resolve_targets(list(targets) or ["npu", "c_like"], plugins)


def artifact(members: BuildTargets, name: str = "m", module: IRModule = MODEL) -> Artifact:
    return build_loaded(load_model(module, name=name), members)


def check(made: Artifact, module: IRModule = MODEL) -> None:
    inputs = inputs_of(module.main)
    found = made.run({f"{name}": array for name, array in inputs.items()})
    for got, expected in zip(found.values(), evaluate(module, inputs), strict=True):
        np.testing.assert_array_equal(got, expected)


def symbols_of(made: Artifact, prefix: str) -> list[str]:
    """Those that the header of what a plugin brings declares."""
    return re.findall(rf"void ({prefix}_own_\w+)", made.source(f"{prefix}_functions.h"))


def labels(made: Artifact) -> dict[str, tuple[str, ...]]:
    return {host.label: host.sources for host in made.record.compile.hosts}


def test_it_is_asked_of_each_target_for_its_own_loops() -> None:
    seen: dict[str, tuple[list[str], str]] = {}

    def note(module: IRModule, target: Target, prefix: str) -> None:
        assert Target.current() is target
        seen[target.kind.name] = sorted(functions(module)), prefix

    npu = toy("npu", "nn.relu", tir_to_runtime=note)
    host = entry_of(host_kind("c_like"), tir_to_runtime=note)
    made = artifact(resolve_targets("dsp: npu; c_like", PluginHost(lambda: [*npu, *host])))
    assert {kind: prefix for kind, (_, prefix) in seen.items()} == {"npu": "m_on_dsp", "c_like": "m_on_c_like"}
    assert len(seen["npu"][0]) == 1 and len(seen["c_like"][0]) == 4, "the host compiles what nobody else does"
    assert labels(made) == {"c_like": ("m.c",)}
    check(made)


def test_without_an_answer_nothing_is_compiled_apart() -> None:
    silent = artifact(targets_with_answer(lambda: None))
    assert dict(silent.files) == dict(artifact(targets_with_answer(lambda: TargetCode())).files)
    assert b"m_on_npu" not in silent.files["m.c"]


@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_flags_of_an_accelerator(executor: str) -> None:
    made = artifact(
        targets_with_answer(lambda: TargetCode(cflags=("-O1",)), "npu", "npu", f"c_like -executor={executor}")
    )
    assert labels(made)["npu"] == ("m_on_npu.c",)
    of = {host.label: host for host in made.record.compile.hosts}
    assert of["npu"].flags == ("-std=c99", "-O1") and "-O1" not in of["c_like"].flags
    assert {call.host for call in made.record.calls} == {"npu", "c_like"}
    check(made)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("who", "answer", "executor"),
    [
        ("npu", own_source, "graph"),
        ("npu", own_object, "aot"),
        ("host", own_source, "aot"),
        ("host", own_object, "graph"),
    ],
)
def test_what_a_plugin_brings_is_linked_and_run(
    who: str, answer: Answer, executor: str, compilers: tuple[str, ...], tmp_path: Path
) -> None:
    made = artifact(targets_with_answer(answer, who, "npu", f"c_like -executor={executor}"))
    saved = load(made.save(tmp_path / "saved"))
    check(saved)
    prefix = "m_on_npu" if who == "npu" else "m_on_c_like"
    header = made.source(f"{prefix}_functions.h")
    assert f"void {prefix}_own_" in header and "(const int32_t *x0" in header
    of = {host.label: host for host in made.record.compile.hosts}
    brought = of["npu" if who == "npu" else "c_like"]
    assert (f"{prefix}.o" in brought.objects) == (answer is own_object)
    assert (f"{prefix}.c" in brought.sources) == (answer is own_source)
    assert brought.brought == tuple(name.removeprefix(f"{prefix}_own_") for name in symbols_of(saved, prefix))
    if answer is own_object and CMAKE is not None:
        said = cmake(tmp_path / "saved", tmp_path / "build")
        done = subprocess.run([tmp_path / "build" / "m_example"], capture_output=True)
        assert done.returncode == 0, said
    subprocess.run(["make", "-s"], cwd=tmp_path / "saved", check=True)
    subprocess.run([tmp_path / "saved" / "m_example"], check=True, capture_output=True)
    subprocess.run(["make", "-s", "clean"], cwd=tmp_path / "saved", check=True)
    assert {path.name for path in (tmp_path / "saved").iterdir()} == {"metadata.json", "model", *made.files}


def test_models_share_an_image(tmp_path: Path, compilers: tuple[str, ...]) -> None:
    members = targets_with_answer(own_source)
    files: dict[str, bytes] = {}
    for name in ("one", "two"):
        files |= artifact(members, name).files
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    body = (
        "const uma_model *one_model(void), *two_model(void);\nint main(void) { return one_model() == two_model(); }\n"
    )
    (tmp_path / "main.c").write_text(f'#include "uma_runtime.h"\n{body}')
    sources = [f"{name}{end}" for name in ("one", "two") for end in (".c", "_on_npu.c")]
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-fsanitize=address,undefined"]
    subprocess.run([compilers[0], *strict, "main.c", *sources, "-o", "program", "-lm"], cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "program"], check=True)


def test_what_is_wrong_with_it_is_found() -> None:
    """What the core proves of loops, it cannot prove of what is made of them: verification runs both."""

    def wrong(module: IRModule, target: Target, prefix: str) -> TargetCode:
        code = own_source(module, target, prefix)
        text = code.sources[f"{prefix}.c"]
        assert "0" in text
        changed = text.replace("max", "min").replace("> 0", "< 0")
        assert changed != text
        return TargetCode(symbols=code.symbols, sources={**code.sources, f"{prefix}.c": changed})

    loaded = load_model(MODEL, name="m")
    inputs = inputs_of(MODEL.main)
    for answer, ok in ((own_source, True), (wrong, False)):
        members = targets_with_answer(answer)
        found = verify(loaded, build_loaded(loaded, members), members, inputs)
        assert found.ok == ok
        if not ok:
            assert [row.target for row in found.kernels if not row.difference.ok] == ["npu"]


Y = Var("y", TensorType((4,), "int32"))
DOUBLED = module_of(call("negative", call("add", call("nn.relu", Y), call("nn.relu", Y))))


def doubling_unit(**hooks: Callable[..., Any]) -> list[PluginEntry]:
    """An accelerator with a driver, a scratchpad and an instruction."""
    value = wildcard("int32").named("x")
    double = Pattern(
        "npu.double", op("add")(value, value), lower=lambda match, target: LoweredKernel(fake_device.doubling(4))
    )
    return entry_of(accelerator("npu"), patterns=lambda: [double], runtime=fake_device.runtime, **hooks)


@pytest.mark.few(2)
@pytest.mark.parametrize("answer", [lambda: TargetCode(cflags=("-O1",)), own_source])
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_loops_that_drive_a_device(answer: Answer, executor: str, compilers: tuple[str, ...]) -> None:
    """They are given the device, and give its fault codes, whoever compiles them."""
    entries = [*doubling_unit(tir_to_runtime=answer), *entry_of(host_kind("c_like"))]
    members = resolve_targets(["npu", f"c_like -executor={executor}"], PluginHost(lambda: entries))
    made = artifact(members, module=DOUBLED)
    assert "uma_device *device" in made.source("m_on_npu_functions.h" if answer is own_source else "m_on_npu.c")
    assert {call.device for call in made.record.calls} == {"npu", None}
    check(made, DOUBLED)


REFUSED: Mapping[str, tuple[Callable[[IRModule, str], TargetCode], str]] = {
    "a function is left out": (
        lambda module, prefix: TargetCode(
            symbols=dict(list(symbols(module, prefix).items())[1:]) or {"x": f"{prefix}_x"}
        ),
        "brings functions, and leaves 'relu' out: TargetCode.symbols names every function of the module",
    ),
    "another function": (
        lambda module, prefix: TargetCode(symbols={**symbols(module, prefix), "strange": f"{prefix}_strange"}),
        "brings 'strange', which is not a function of the module that it was given",
    ),
    "a symbol of somebody else's": (
        lambda module, prefix: TargetCode(symbols=dict.fromkeys(functions(module), "memcpy")),
        "brings the symbol 'memcpy', which does not begin with 'm_on_npu', its prefix",
    ),
    "a file of somebody else's": (
        lambda module, prefix: TargetCode(symbols=symbols(module, prefix), sources={"m.c": ""}),
        "brings the file 'm.c', which does not begin with 'm_on_npu', its prefix",
    ),
    "a file of the core's": (
        lambda module, prefix: TargetCode(symbols=symbols(module, prefix), sources={f"{prefix}_functions.h": ""}),
        "the plugin's file 'm_on_npu_functions.h' has the name of one that the core writes",
    ),
    "an object of nothing": (
        lambda module, prefix: TargetCode(symbols=symbols(module, prefix), objects={f"{prefix}.o": b"\x7fELF"}),
        "brings the object 'm_on_npu.o', which is none for ",
    ),
    "a machine": (
        lambda module, prefix: TargetCode(machine="aarch64-linux-gnu"),
        "says of an accelerator's loops what machine runs them: that is the host's to say",
    ),
    "a header for the host": (
        lambda module, prefix: TargetCode(headers={"npu.h": ""}),
        "brings the header 'npu.h' for the host's intrinsics: an accelerator's are among Runtime.sources",
    ),
    "a flag": (lambda module, prefix: TargetCode(cflags=("-fplugin=x",)), "wants the compiler flag '-fplugin=x'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    answer, reason = REFUSED[case]
    with pytest.raises(PluginError, match=re.escape(reason)) as caught:
        artifact(targets_with_answer(lambda module, prefix: answer(module, prefix)))
    if "that the core writes" not in reason:
        assert "plugin uma-npu 1.0" in str(caught.value)


RECTIFY = """
    @intrinsic(statement="RECTIFY({y}, {x})", include="rectify.h")
    def rectify(y: Operand[int32, (6,)], x: Operand[int32, (6,)]):
        for k in range(6):
            y[k] = max(x[k], 0)

    @prim_func
    def relu(x: In[int32, (6,)], y: Out[int32, (6,)]):
        rectify(view(y[0], axis(0)), view(x[0], axis(0)))
    """


def rectifying(kind: str, least: int) -> list[PluginEntry]:
    """A host whose ReLU is a macro of its own header."""
    body = f"for (int k = 0; k < 6; k++) (y)[k] = (x)[k] > 0 ? (x)[k] : {least};"
    text = f"#define RECTIFY(y, x) do {{ {body} }} while (0)\n"
    relu = Strategy("nn.relu", lambda fusion, target: LoweredKernel(parse_func(textwrap.dedent(RECTIFY))[1]))
    code = TargetCode(headers={"rectify.h": text, "unused.h": ""})
    return entry_of(host_kind(kind), strategies=lambda: [relu], tir_to_runtime=lambda: code)


def test_a_host_brings_the_headers_of_its_intrinsics(compilers: tuple[str, ...]) -> None:
    data = Var("x", TensorType((6,), "int32"))
    module = module_of(call("nn.relu", data))
    made = artifact(resolve_targets("own", PluginHost(lambda: rectifying("own", 0))), module=module)
    assert "rectify.h" in made.files and "unused.h" not in made.files
    check(made, module)


def test_two_hosts_that_bring_different_headers_of_one_name() -> None:
    data = Var("x", TensorType((6,), "int32"))
    relu = call("nn.relu", data)
    pinned = call("negative", call("nn.relu", call("negative", relu)).pinned("other"))
    entries = [*rectifying("own", 0), *rectifying("other", 1)]
    members = resolve_targets(["own", "other"], PluginHost(lambda: entries))
    with pytest.raises(PluginError, match=r"brings a header 'rectify\.h' that is not the one of target 'own'"):
        artifact(members, module=module_of(pinned))


def test_an_object_for_another_machine() -> None:
    skip_without("arm-none-eabi-gcc")

    def answer(module: IRModule, target: Target, prefix: str) -> TargetCode:
        return own_object(module, target, prefix, ("arm-none-eabi-gcc", "-mcpu=cortex-m4"))

    with pytest.raises(PluginError, match=r"brings the object 'm_on_npu\.o', which is none for "):
        artifact(targets_with_answer(answer))

    def cortex(module: IRModule) -> TargetCode:
        return TargetCode(
            cc="arm-none-eabi-gcc", machine="arm-none-eabi cortex-m4", cflags=("-mthumb", "-mcpu=cortex-m4")
        )

    npu, host = toy("npu", "nn.relu", tir_to_runtime=answer), entry_of(host_kind("board"), tir_to_runtime=cortex)
    made = artifact(resolve_targets(["npu", "board"], PluginHost(lambda: [*npu, *host])))
    assert {"board/m.c.o", "npu/m_on_npu.o"} <= set(made.objects())


def test_a_symbol_that_nobody_defines(compilers: tuple[str, ...]) -> None:
    members = targets_with_answer(
        lambda module, prefix: TargetCode(symbols=symbols(module, prefix), sources={f"{prefix}.c": "int x;\n"})
    )
    with pytest.raises(PluginError, match="names the symbol 'm_on_npu_own_relu', which no file defines") as caught:
        artifact(members).run(inputs_of(MODEL.main))
    assert "TargetCode.symbols['relu'] of target 'npu'" in str(caught.value)


def test_it_is_linked_with_its_libraries() -> None:
    none = Library("no_such_library_anywhere")
    members = targets_with_answer(lambda module, prefix: TargetCode(symbols=symbols(module, prefix), libraries=(none,)))
    with pytest.raises(ToolchainError, match="no_such_library_anywhere") as caught:
        artifact(members)
    assert "'npu'" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"symbols": ["f"]}, "TargetCode.symbols must be a dict from str to str"),
        ({"symbols": {"f": 1}}, "TargetCode.symbols must be a dict from str to str"),
        ({"symbols": {"f": "a b"}}, "TargetCode.symbols: 'a b', of 'f', is not a symbol of C"),
        ({"symbols": {"f": "a", "g": "a"}}, "TargetCode.symbols has 'a' twice"),
        ({"symbols": {"f": "a"}, "sources": {"x.c": b""}}, "TargetCode.sources must be a dict from str to str"),
        ({"symbols": {"f": "a"}, "sources": {"../x.c": ""}}, "TargetCode: '../x.c' is not a name for a file here"),
        ({"symbols": {"f": "a"}, "sources": {"x.py": ""}}, "TargetCode: 'x.py' is not a name for a file here"),
        ({"symbols": {"f": "a"}, "objects": {"x.o": ""}}, "TargetCode.objects must be a dict from str to bytes"),
        ({"symbols": {"f": "a"}, "objects": {"x.a": b""}}, "TargetCode: 'x.a' is not a name for a file here"),
        ({"symbols": {"f": "a"}, "libraries": "m"}, "TargetCode.libraries must be a tuple of Library"),
        ({"headers": {"x.h": b""}}, "TargetCode.headers must be a dict from str to str"),
        ({"headers": {"x.c": ""}}, "TargetCode: 'x.c' is not a name for a file here"),
        ({"sources": {"x.c": ""}}, "TargetCode brings files or libraries, and no functions"),
    ],
)
def test_fields(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(PluginError, match=re.escape(reason)):
        TargetCode(**fields)  # type: ignore[arg-type]  # what no type checker would let pass
