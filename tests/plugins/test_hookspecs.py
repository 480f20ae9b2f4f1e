"""The contract: every hook is documented by an example that works as it stands."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
import pluggy
import pytest
from tests._support.plugins import checked, members_of, module_of
from tests._support.type_checkers import CHECKERS, type_faults

import uma
from uma import hookspecs
from uma.cli import main
from uma.contract.devices import Device
from uma.errors import PluginError
from uma.hookspecs import Claims, Cost, CustomLayer, CustomTensor, TargetCode
from uma.lowering.build_targets import BuildTargets
from uma.pipeline.custom_importers import CustomImporters
from uma.pipeline.driver import make_artifact
from uma.pipeline.stages import Build
from uma.plugins import LoadedPlugin, PluginEntry, PluginHost
from uma.plugins.hook_types import hook_types
from uma.program import Program, plan
from uma.relay import Expr, Function, IRModule, TensorType, Var, call, const
from uma.relay.pattern import match
from uma.relay.text import print_module
from uma.reports.costs import region_costs

X = Var("x", TensorType((3, 4), "float32"))

HOOKS = sorted(name for name, value in vars(hookspecs).items() if hasattr(value, f"{hookspecs.PROJECT}_spec"))


def example(hook: str) -> str:
    """The code below ``Example::`` in the docstring of ``hook``."""
    _, found, code = (inspect.getdoc(getattr(hookspecs, hook)) or "").partition("Example::\n")
    assert found, f"hook {hook} has no example"
    return textwrap.dedent(code)


def load_example(hook: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[PluginEntry]:
    """The example of ``hook`` as a plugin, a module like any other."""
    module = f"uma_example_of_{hook}"
    (tmp_path / f"{module}.py").write_text(example(hook))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, module, ModuleType(module))  # so that it is gone after the test
    del sys.modules[module]
    return [PluginEntry(kind, module, "example", "1.0")]


def host_of(entries: list[PluginEntry]) -> PluginHost:
    return PluginHost(lambda: entries)


def test_the_hooks_are_those_of_the_public_face() -> None:
    assert HOOKS == sorted(name for name in hookspecs.__all__ if name in HOOKS)
    assert [len(hookspecs.PLUGIN_API_VERSION), *map(type, hookspecs.PLUGIN_API_VERSION)] == [2, int, int]


def test_results_are_checked_against_annotations() -> None:
    types = {hook: hook_types(getattr(hookspecs, hook)) for hook in HOOKS}
    assert {hook: str(one) for hook, one in types.items()} == {
        "claims": "Claims",
        "command": "int",
        "estimate_cost": "Cost",
        "exporters": "list or tuple of Exporter",
        "ops": "list or tuple of CustomOp",
        "passes": "list or tuple of Pass",
        "patterns": "list or tuple of Pattern",
        "register_target": "list or tuple of TargetKind or Alias",
        "relay_to_runtime": "tuple",
        "relay_to_tir": "tuple",
        "runtime": "Runtime",
        "strategies": "list or tuple of Strategy",
        "tir_to_runtime": "TargetCode",
    }
    assert [hook for hook in HOOKS if types[hook].may_refuse] == ["estimate_cost", "relay_to_runtime", "relay_to_tir"]


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_typed_and_documented(hook: str) -> None:
    function = getattr(hookspecs, hook)
    parameters = list(inspect.signature(function).parameters)
    assert sorted([*parameters, "return"]) == sorted(function.__annotations__)
    doc = inspect.getdoc(function) or ""
    assert "Returns:\n" in doc
    for parameter in parameters:
        assert re.search(rf"^    {parameter}: ", doc, re.MULTILINE), f"{hook}: {parameter} is not documented"
    assert f"def {hook}(" in example(hook)
    assert "@hookimpl" in example(hook)


def test_the_example_of_register_target_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_of(load_example("register_target", "my_device", tmp_path, monkeypatch))
    target = host.target("my_device -array_dim=16")
    assert target.get_attr("array_dim") == 16
    assert target.get_attr("clock_hz") == 250_000.0
    assert host.kind("my_device").device_type == "npu"
    assert not host.kind("my_device").is_host


def test_the_example_of_tir_to_runtime_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_of(load_example("tir_to_runtime", "my_host", tmp_path, monkeypatch))
    plugin = host.plugin_for("my_host")
    code = plugin.call("tir_to_runtime", module=object(), prefix="m_on_x", target=host.target("my_host -opt=1"))
    assert code == TargetCode(cflags=("-O1",), cc="gcc")


def test_the_example_of_patterns_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_of(load_example("patterns", "my_device", tmp_path, monkeypatch))
    [pattern] = host.plugin_for("my_device").call("patterns", target=host.target("my_device -lanes=4"))
    total = call("add", Var("x", TensorType((3, 4), "float32")), const(np.ones(4, np.float32)))
    assert len(match(pattern, call("nn.relu", total)).nodes) == 2
    narrow = call("add", Var("x", TensorType((3, 2), "float32")), const(np.ones(2, np.float32)))
    assert match(pattern, narrow).failure.reason == "clause whole_vectors: rows come in 4s"


def test_the_example_of_ops_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = members_of(load_example("ops", "my_device", tmp_path, monkeypatch))
    with members.known_ops():
        cubes = call("my_device.cube", X)
    build, program = checked(module_of(cubes), members)
    assert build.placement is not None and len(program.steps) == 1
    [custom] = members.plugins[0].ops.values()
    importer = CustomImporters(members)("tflite", "AcmeCube")
    assert importer is not None and [*custom.onnx] == ["com.acme::Cube"]
    assert importer(CustomLayer("l", "AcmeCube", (CustomTensor("x", X),), ())) == (cubes,)


def test_the_example_of_passes_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_of(load_example("passes", "my_device", tmp_path, monkeypatch))
    [tidy] = host.plugin_for("my_device").call("passes", target=host.target("my_device"))
    once = call("nn.relu", X)
    module = IRModule.from_functions({"main": Function([X], call("nn.relu", once))})
    assert tidy.fn(module.read_only()).main.body is once


def test_the_example_of_relay_to_tir_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = members_of(load_example("relay_to_tir", "my_device", tmp_path, monkeypatch))
    assert "def relu(" in lowered(members, call("nn.relu", X))
    deep = call("nn.relu", Var("x", TensorType((1, 1, 1, 1, 2), "float32")))
    assert "my_device" not in lowered(members, deep)  # refused


def test_the_example_of_relay_to_runtime_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = members_of(load_example("relay_to_runtime", "my_library", tmp_path, monkeypatch))
    program = Build("m", members).run(module_of(call("nn.relu", X)))
    assert isinstance(program, Program)
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    [y] = make_artifact(program, plan(program), members).run(x).values()
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    assert "@extern('relu'" in lowered(members, call("nn.relu", X))
    deep = call("nn.relu", Var("x", TensorType((1, 1, 1, 1, 2), "float32")))
    assert "my_library" not in lowered(members, deep)  # refused


def test_the_example_of_strategies_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = members_of(load_example("strategies", "my_device", tmp_path, monkeypatch))
    text = lowered(members, call("nn.relu", X))
    assert "def relu(" in text


def test_the_example_of_estimate_cost_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = members_of(load_example("estimate_cost", "my_device", tmp_path, monkeypatch))
    x = Var("x", TensorType((3, 7), "int8"))
    build = Build("m", members)
    build.run(module_of(call("nn.relu", x)), "fuse")
    [found] = region_costs(build)
    assert found.cost == Cost(cycles=3, bytes_moved=42)


def test_the_example_of_claims_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_of(load_example("claims", "my_device", tmp_path, monkeypatch))
    claims = host.plugin_for("my_device").call("claims", target=host.target("my_device"))
    assert claims == Claims(targets=("my_device -lanes=1", "my_device -lanes=64"), cycles=0.1)
    assert [host.target(text).get_attr("lanes") for text in claims.targets] == [1, 64]


def test_the_example_of_runtime_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_of(load_example("runtime", "my_device", tmp_path, monkeypatch))
    target = host.target("my_device")
    made = host.plugin_for("my_device").call("runtime", target=target)
    device = Device.from_target("npu", target, made)
    assert (device.impl, device.base) == ("mmio", 0x40000000)
    assert sorted(device.sources) == ["my_driver.c", "my_driver.h"]


def test_the_example_of_exporters_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_of(load_example("exporters", "my_device", tmp_path, monkeypatch))
    weights = const(np.arange(4, dtype=np.float32))
    artifact = uma.build(module_of(call("add", X, weights)), "c", name="m")
    made = artifact.export("my_device.weights", tmp_path / "out", plugins=host)
    assert {path.name for path in made.iterdir()} == {"m_weights.bin", ".uma-export.json"}
    assert (made / "m_weights.bin").read_bytes()[:16] == np.arange(4, dtype=np.float32).tobytes()


def test_the_example_of_command_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host = host_of(load_example("command", "my_device", tmp_path, monkeypatch))
    monkeypatch.setattr("uma.plugins.default_host", lambda: host)
    (tmp_path / "stream").write_bytes(bytes(12))
    assert main(["my_device", str(tmp_path / "stream")]) == 0
    assert main(["my_device", "--help"]) == 0
    assert main(["my_device"]) == 2
    printed = capsys.readouterr()
    assert printed.out.startswith("3\nusage: uma my_device [-h] stream\n") and "stream" in printed.err


def lowered(members: BuildTargets, body: Expr) -> str:
    """The loops of a model as text."""
    form = Build("m", members).run(module_of(body), "lower")
    assert isinstance(form, IRModule)
    return print_module(form)[0]


def test_the_examples_are_all_tested() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [hook for hook in HOOKS if f"def test_the_example_of_{hook}_works(" not in source] == []


@pytest.mark.soak
@pytest.mark.parametrize("checker", CHECKERS)
def test_the_examples_are_typed_strictly(checker: str, tmp_path: Path) -> None:
    package = tmp_path / "examples_of_hooks"
    package.mkdir()
    (package / "__init__.py").touch()
    for hook in HOOKS:
        (package / f"{hook}.py").write_text(example(hook))
    assert type_faults(checker, package) == ""


@pytest.mark.soak
@pytest.mark.parametrize("checker", CHECKERS)
def test_what_is_not_typed_is_found(checker: str, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    code = "import uma\n\nTARGET: int = uma.Target.current()\n\n\ndef f(x):\n    return x\n"
    (tmp_path / "bad" / "__init__.py").write_text(code)
    found = type_faults(checker, tmp_path / "bad")
    assert "__init__.py:3" in found and "__init__.py:6" in found


def test_code_says_nothing_by_default() -> None:
    assert TargetCode() == TargetCode(cflags=(), cc=None)
    listed: Any = ["-O2", "-g"]
    assert TargetCode(cflags=listed).cflags == ("-O2", "-g")
    assert hash(TargetCode(cflags=listed)) == hash(TargetCode(cflags=("-O2", "-g")))


def test_specifications_are_never_run() -> None:
    # pluggy calls implementations only: a plugin without one gives no answer.
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    plugin = LoadedPlugin(PluginEntry("k", "m", "d", "1"), MappingProxyType({}), manager.hook)
    assert plugin.call("tir_to_runtime", module=object(), prefix="m_on_x", target=object()) is None


def test_c_files_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "with_c" / "csrc").mkdir(parents=True)
    (tmp_path / "with_c" / "__init__.py").touch()
    (tmp_path / "with_c" / "csrc" / "a.c").write_text("int a;\n")
    (tmp_path / "with_c" / "csrc" / "b.c").write_bytes(b"\xff")
    (tmp_path / "with_c" / "x.h").write_text("\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert hookspecs.c_sources("with_c", "a.c") == {"a.c": "int a;\n"}
    assert hookspecs.c_sources("with_c", "x.h", folder="") == {"x.h": "\n"}
    for name in "b.c", "c.c":
        with pytest.raises(PluginError, match=rf"^package 'with_c' has no C file csrc/{name}: ") as error:
            hookspecs.c_sources("with_c", name)
        assert "wheel" in (error.value.hint or "")
    with pytest.raises(PluginError, match=r"^c_sources is asked for a.c of no package"):
        hookspecs.c_sources(None, "a.c")
