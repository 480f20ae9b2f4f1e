"""The contract: every hook is documented by an example that works as it stands."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import pluggy
import pytest

from uma import hookspecs
from uma.errors import PluginError
from uma.hookspecs import Code
from uma.plugins import LoadedPlugin, PluginEntry, PluginHost

HOOKS = sorted(name for name, value in vars(hookspecs).items() if hasattr(value, f"{hookspecs.PROJECT}_spec"))


def example(hook: str) -> str:
    """The code below ``Example::`` in the docstring of ``hook``."""
    _, found, code = (inspect.getdoc(getattr(hookspecs, hook)) or "").partition("Example::\n")
    assert found, f"hook {hook} has no example"
    return textwrap.dedent(code)


def load_example(hook: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PluginHost:
    """A host with the example of ``hook`` as its only plugin, a module like any other."""
    module = f"uma_example_of_{hook}"
    (tmp_path / f"{module}.py").write_text(example(hook))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, module, ModuleType(module))  # so that it is gone after the test
    del sys.modules[module]
    return PluginHost(lambda: [PluginEntry(kind, module, "example", "1.0")])


def test_the_hooks_are_those_of_the_public_face() -> None:
    assert HOOKS == sorted(name for name in hookspecs.__all__ if name in HOOKS)
    assert sorted(hookspecs.RESULTS) == HOOKS
    assert [len(hookspecs.PLUGIN_API_VERSION), *map(type, hookspecs.PLUGIN_API_VERSION)] == [2, int, int]


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
    host = load_example("register_target", "my_device", tmp_path, monkeypatch)
    target = host.target("my_device -array_dim=16")
    assert target.get_attr("array_dim") == 16
    assert target.get_attr("clock_hz") == 250_000.0
    assert host.kind("my_device").device_type == "npu"
    assert not host.kind("my_device").is_host


def test_the_example_of_tir_to_runtime_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = load_example("tir_to_runtime", "my_host", tmp_path, monkeypatch)
    plugin = host.plugin_for("my_host")
    code = plugin.call("tir_to_runtime", module=object(), target=host.target("my_host -opt=1"))
    assert code == Code(cflags=("-O1",), cc="gcc")


def test_the_examples_are_all_tested() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [hook for hook in HOOKS if f"def test_the_example_of_{hook}_works(" not in source] == []


def test_code_says_nothing_by_default() -> None:
    assert Code() == Code(cflags=(), cc=None)
    listed: Any = ["-O2", "-g"]
    assert Code(cflags=listed).cflags == ("-O2", "-g")
    assert hash(Code(cflags=listed)) == hash(Code(cflags=("-O2", "-g")))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cflags": "-O3"}, "Code.cflags must be a tuple of strings"),
        ({"cflags": None}, "Code.cflags must be a tuple of strings"),
        ({"cflags": (3,)}, "Code.cflags: 3 is no compiler flag"),
        ({"cflags": ("-O3", "main.c")}, "Code.cflags: 'main.c' is no compiler flag"),
        ({"cflags": ("-O3\n",)}, r"Code.cflags: '-O3\n' is no compiler flag"),
        ({"cc": "/usr/bin/gcc"}, "Code.cc: '/usr/bin/gcc' is no name of a compiler"),
        ({"cc": "-gcc"}, "Code.cc: '-gcc' is no name of a compiler"),
        ({"cc": 12}, "Code.cc: 12 is no name of a compiler"),
        ({"cc": "gcc -O3"}, "Code.cc: 'gcc -O3' is no name of a compiler"),
    ],
)
def test_malformed_code_is_the_plugins_fault(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PluginError) as caught:
        Code(**fields)
    assert message in str(caught.value)
    assert caught.value.hint


def test_specifications_are_never_run() -> None:
    # pluggy calls implementations only: a plugin without one gives no answer.
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    plugin = LoadedPlugin(PluginEntry("k", "m", "d", "1"), MappingProxyType({}), manager.hook)
    assert plugin.call("tir_to_runtime", module=object(), target=object()) is None
