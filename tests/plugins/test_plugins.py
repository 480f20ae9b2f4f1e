"""The plugin host: metadata only until a kind is asked for; a broken plugin harms only those who ask for it."""

from __future__ import annotations

import platform
import sys
import textwrap
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import uma.plugins
from uma.errors import PluginError, UsageError
from uma.hookspecs import PLUGIN_API_VERSION, TargetCode
from uma.plugins import PluginEntry, PluginHost, default_host
from uma.targets import Target, TargetKind
from uma.version import __version__

HEADER = """
from uma.hookspecs import TargetCode, hookimpl
from uma.targets import Attribute, Target, TargetKind
"""

GOOD = (
    HEADER
    + """
@hookimpl
def register_target():
    return [TargetKind("good", (Attribute("dim", int, default=8, help="rows"),), help="a good one")]

@hookimpl
def tir_to_runtime(module, target):
    return TargetCode(cflags=(f"-DDIM={target.get_attr('dim')}",))
"""
)

Write = Callable[[str, str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Write:
    """Write a module that can be imported; gives its name, which no other test uses. Forgotten after the test."""
    monkeypatch.syspath_prepend(tmp_path)

    def write_module(name: str, source: str) -> str:
        unique = f"uma_test_{name}_{tmp_path.name.replace('-', '_')}"
        (tmp_path / f"{unique}.py").write_text(textwrap.dedent(source))
        request.addfinalizer(lambda: sys.modules.pop(unique, None))
        return unique

    return write_module


def host_of(*entries: PluginEntry) -> PluginHost:
    return PluginHost(lambda: entries)


def entry(kind: str, value: str, *, requires: Sequence[str] = ()) -> PluginEntry:
    return PluginEntry(kind, value, f"uma-{kind.replace('_', '-')}", "1.2.3", tuple(requires))


def kind_source(name: str) -> str:
    return HEADER + f"@hookimpl\ndef register_target():\n    return [TargetKind({name!r}, help='h')]\n"


def fault_of(host: PluginHost, kind: str) -> PluginError:
    with pytest.raises(PluginError) as caught:
        host.kind(kind)
    return caught.value


# Discovery and ownership


def test_a_kind_is_found_through_its_entry_point(write: Write) -> None:
    host = host_of(entry("good", write("good", GOOD)))
    assert isinstance(host.kind("good"), TargetKind)
    assert host.target("good -dim=3").get_attr("dim") == 3
    plugin = host.plugin_for("good")
    assert (plugin.entry.distribution, plugin.entry.version, [*plugin.kinds]) == ("uma-good", "1.2.3", ["good"])


def test_metadata_is_read_once_and_only_when_a_kind_is_asked_for() -> None:
    reads = []

    def discover() -> list[PluginEntry]:
        reads.append(1)
        return []

    host = PluginHost(discover)
    assert not reads
    assert host.names() == ()
    with pytest.raises(UsageError):
        host.kind("c")
    assert len(reads) == 1


def test_only_the_plugin_that_is_asked_for_is_imported(write: Write) -> None:
    good, other = write("good", GOOD), write("other", "raise RuntimeError('imported')")
    host = host_of(entry("other", other), entry("good", good))
    assert host.names() == ("good", "other")
    assert not {good, other} & set(sys.modules)
    host.kind("good")
    assert good in sys.modules
    assert other not in sys.modules


def test_a_plugin_is_imported_once(write: Write) -> None:
    module = write("counts", kind_source("counts"))
    host = host_of(entry("counts", module))
    assert host.plugin_for("counts") is host.plugin_for("counts")
    assert host.kind("counts") is host.kind("counts")


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("goood", "did you mean 'good'? installed kinds: bad, good; "),
        ("zzz", "installed kinds: bad, good; "),
    ],
)
def test_an_unknown_kind(asked: str, hint: str) -> None:
    host = host_of(entry("good", "m"), entry("bad", "n"))
    with pytest.raises(UsageError, match=f"there is no target kind '{asked}'") as caught:
        host.kind(asked)
    assert caught.value.hint == hint + "a plugin brings its kinds with it: pip install PLUGIN"


def test_an_unknown_kind_where_nothing_is_installed() -> None:
    with pytest.raises(UsageError) as caught:
        host_of().target(" c -opt=2")
    assert (caught.value.hint or "").startswith("no plugin is installed; ")
    assert (caught.value.where or "").startswith("column 2 of the target")


def test_a_class_is_instantiated(write: Write) -> None:
    source = (
        HEADER
        + """
class Plugin:
    def __init__(self):
        self.help = "made"

    @hookimpl
    def register_target(self):
        return (TargetKind("classy", help=self.help),)

class Outer:
    Inner = Plugin
"""
    )
    module = write("classy", source)
    assert host_of(entry("classy", f"{module}:Plugin")).kind("classy").help == "made"
    assert host_of(entry("classy", f"{module}:Outer.Inner")).kind("classy").help == "made"


def test_a_star_brings_the_contract_and_implements_no_hook(write: Write) -> None:
    module = write("starred", "from uma.hookspecs import *\n" + kind_source("starred"))
    plugin = host_of(entry("starred", module)).plugin_for("starred")
    assert plugin.implemented == ("register_target",)


def test_one_plugin_may_serve_several_kinds(write: Write) -> None:
    source = (
        HEADER
        + """
loads = []

class Plugin:
    def __init__(self):
        loads.append(1)

    @hookimpl
    def register_target(self):
        return [TargetKind("two", help="h"), TargetKind("one", help="h")]
"""
    )
    module = write("both", source)
    host = host_of(*(PluginEntry(kind, f"{module}:Plugin", "uma-both", "1") for kind in ("one", "two")))
    assert host.plugin_for("one") is host.plugin_for("two")
    assert [*host.kinds()] == ["one", "two"]
    assert sys.modules[module].loads == [1]


def test_a_plugin_may_bring_aliases_beside_its_kinds(write: Write) -> None:
    source = RAISES.format("return [TargetKind('npu', help='h'), Alias('duo', 'npu -host=good', help='h')]")
    module = write("duo", "from uma.targets import Alias\n" + source)
    host = host_of(
        *(PluginEntry(n, module, "uma-duo", "1") for n in ("npu", "duo")), entry("good", write("good", GOOD))
    )
    assert [*host.kinds()] == ["duo", "good", "npu"] and host.hosts() == ()
    assert host.lookup("duo") is host.plugin_for("duo").aliases["duo"] and host.lookup("npu") is host.kind("npu")
    assert host.lookup("composite").help == "a host and its devices"
    with pytest.raises(UsageError, match="'duo' is not a target kind: it stands for a whole target"):
        host.kind("duo")
    with pytest.raises(UsageError, match="'good' cannot be the host of 'npu'"):
        host.target("duo")


def test_two_owners_of_one_kind_are_named_when_it_is_asked_for(write: Write) -> None:
    good = write("good", GOOD)
    rivals = [PluginEntry("npu", "never", name, version) for name, version in (("uma-b", "2"), ("uma-a", "1"))]
    host = host_of(*rivals, entry("good", good))
    assert host.kind("good").name == "good"
    error = fault_of(host, "npu")
    assert error.what == "target kind 'npu' is claimed by more than one plugin: uma-a 1 (never), uma-b 2 (never)"
    assert (error.hint or "").startswith("keep one of them: remove the rest (pip uninstall PLUGIN) or disable it")


def test_an_entry_point_that_is_listed_twice_has_one_owner(write: Write) -> None:
    good = entry("good", write("good", GOOD))
    assert host_of(good, good).kind("good").name == "good"


# Broken plugins

RAISES = HEADER + "@hookimpl\ndef register_target():\n    {}\n"

BROKEN = {
    "raises": ("raise RuntimeError('boom')", "cannot be imported: RuntimeError: boom", RuntimeError),
    "exits": ("import sys; sys.exit(3)", "cannot be imported: SystemExit: 3", SystemExit),
    "lacks": ("import no_such_module_anywhere", "No module named 'no_such_module_anywhere'", ModuleNotFoundError),
    "syntax": ("def f(:\n", "cannot be imported: ", SyntaxError),
    "usage": (
        "from uma.errors import UsageError\nraise UsageError('mine')",
        "cannot be imported: uma.errors.UsageError: mine",
        UsageError,
    ),
    "unprintable": (
        "class Odd(Exception):\n    def __str__(self):\n        raise ValueError\nraise Odd",
        "cannot be imported: ",
        Exception,
    ),
    "chatty": ("raise RuntimeError('line\\n' * 10_000)", "cannot be imported: RuntimeError: line line", RuntimeError),
    "badkind": (HEADER + "TargetKind('Bad', help='h')", "target kind 'Bad': its name must match", PluginError),
    "argument": (
        kind_source("argument") + "@hookimpl\ndef tir_to_runtime(module, taget): ...",
        "has a hook that does not fit: pluggy._manager.PluginValidationError: ",
        Exception,
    ),
    "hookname": (
        kind_source("hookname") + "@hookimpl\ndef tir_to_runtim(module, target): ...",
        "unknown hook 'tir_to_runtim'",
        Exception,
    ),
    "unmarked": (
        kind_source("unmarked") + "def tir_to_runtime(module, target): ...",
        "has a function tir_to_runtime without the mark @uma.hookimpl",
        None,
    ),
    "registering": (RAISES.format("1 / 0"), "failed in hook register_target: ZeroDivisionError", ZeroDivisionError),
    "leaving": (RAISES.format("raise SystemExit"), "failed in hook register_target: SystemExit", SystemExit),
    "nothing": ("", "does not implement hook register_target", None),
    "none": (RAISES.format("return None"), "does not implement hook register_target", None),
    "single": (RAISES.format("return TargetKind('single', help='h')"), "gave a value of type TargetKind from", None),
    "generator": (RAISES.format("yield TargetKind('generator', help='h')"), "gave a value of type generator", None),
    "strings": (RAISES.format("return ['strings']"), "gave 'strings' from hook register_target among its", None),
    "empty": (RAISES.format("return []"), "registers the kinds none, but its entry points name empty", None),
    "other": (kind_source("another"), "registers the kinds another, but its entry points name other", None),
    "twice": (
        RAISES.format("return [TargetKind('twice', help='h')] * 2"),
        "registers the kinds twice, twice, but its entry points name twice",
        None,
    ),
    "composite": (kind_source("composite"), "but its entry points name composite; 'composite' is the core's", None),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plugin_is_named_and_harms_no_other(name: str, write: Write) -> None:
    source, message, cause = BROKEN[name]
    module = write(name, source)
    host = host_of(entry(name, module), entry("good", write("good", GOOD)))

    error = fault_of(host, name)
    assert error.what.startswith(f"plugin uma-{name} 1.2.3 ")
    assert message in error.what
    assert len(error.what) < 500
    api = ".".join(map(str, PLUGIN_API_VERSION))
    versions = f"with uma-core {__version__}, plugin API {api}, Python {platform.python_version()}"
    *_, place = (error.where or "").partition("entry point ")
    assert place == f"`{name} = {module}`, {versions}"
    assert f"uma-{name}" in (error.hint or "")
    assert "pip " in (error.hint or "")
    if cause is None:
        assert error.__cause__ is None
    else:
        assert isinstance(error.__cause__, cause)

    assert fault_of(host, name) is error
    assert host.kind("good").name == "good"
    kinds = host.kinds()
    assert kinds[name] is error
    assert isinstance(kinds["good"], TargetKind)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (":Missing", "cannot be imported: AttributeError: module"),
        (":Plugin", "cannot be instantiated: TypeError: no"),
        (":number", "does not implement hook register_target"),
    ],
)
def test_an_entry_point_that_leads_nowhere(path: str, message: str, write: Write) -> None:
    module = write("odd", "number = 3\nclass Plugin:\n    def __init__(self):\n        raise TypeError('no')\n")
    assert message in fault_of(host_of(entry("odd", module + path)), "odd").what


@pytest.mark.parametrize("value", ["", ":", "a b", "..", ".relative", "no_such_module_anywhere"])
def test_an_entry_point_that_is_junk(value: str) -> None:
    what = "cannot be imported: " if value else "has entry points that cannot be read, or that lead nowhere"
    assert what in fault_of(host_of(entry("junk", value)), "junk").what


def test_a_failed_import_is_not_tried_again(write: Write) -> None:
    counter = write("counter", "tries = []")
    module = write("flaky", f"import {counter}\n{counter}.tries.append(1)\nraise RuntimeError")
    host = host_of(entry("flaky", module))
    first = fault_of(host, "flaky")
    for _ in range(5):
        assert fault_of(host, "flaky") is first
    assert len(traceback.extract_tb(first.__traceback__)) < 5
    assert sys.modules[counter].tries == [1]


@pytest.mark.parametrize("where", ["import", "register", "hook"])
def test_the_users_interrupt_is_not_the_plugins_fault(where: str, write: Write) -> None:
    source = {
        "import": "raise KeyboardInterrupt",
        "register": RAISES.format("raise KeyboardInterrupt"),
        "hook": kind_source("slow") + "@hookimpl\ndef tir_to_runtime():\n    raise KeyboardInterrupt\n",
    }[where]
    host = host_of(entry("slow", write("slow", source)))
    with pytest.raises(KeyboardInterrupt):
        host.plugin_for("slow").call("tir_to_runtime", module=None, prefix="m_on_x", target=host.target("slow"))


# Compatibility


@pytest.mark.parametrize(
    ("line", "version", "needs"),
    [
        ("uma-core>=0.2", "0.1.0", ">=0.2"),
        ("uma-core<0.1,>=0.0.5", "0.1.0", "<0.1,>=0.0.5"),
        ("UMA_Core == 2.*", "1.0", "==2.*"),
        ("uma.core[onnx]>=0.2; python_version >= '3'", "0.1.0", ">=0.2"),
    ],
)
def test_an_incompatible_plugin_is_not_imported(
    line: str, version: str, needs: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uma.plugins.compatibility.__version__", version)
    module = write("old", kind_source("old"))
    error = fault_of(host_of(entry("old", module, requires=["numpy", line])), "old")
    assert error.what == f"plugin uma-old 1.2.3 needs uma-core{needs}, this is uma-core {version}"
    assert error.hint == "install a pair that fits: pip install --upgrade uma-core uma-old"
    assert module not in sys.modules


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("uma-core>=0.1,<0.2", "0.1.0"),
        ("uma-core>=0.1", "0.2.0.dev1"),
        ("uma-core", "0.1.0"),
        ("uma-core>=9; python_version < '3'", "0.1.0"),
        ("uma-core>=9; extra == 'future'", "0.1.0"),
        ("uma-core-extras>=9", "0.1.0"),
        ("uma-corelike>=9", "0.1.0"),
        ("another package; nonsense", "0.1.0"),
    ],
)
def test_a_compatible_plugin_is_loaded(line: str, version: str, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uma.plugins.compatibility.__version__", version)
    host = host_of(entry("good", write("good", GOOD), requires=[line]))
    assert host.kind("good").name == "good"


def test_metadata_that_cannot_be_read(write: Write) -> None:
    error = fault_of(host_of(entry("good", write("good", GOOD), requires=["uma-core >>> 1"])), "good")
    assert error.what == "plugin uma-good 1.2.3 has metadata that cannot be read: 'uma-core >>> 1'"


# Calling hooks

HOOKED = kind_source("hooked") + "@hookimpl\ndef tir_to_runtime(module, target):\n    {}\n"


def call(host: PluginHost, kind: str, module: object = None) -> Any:
    return host.plugin_for(kind).call("tir_to_runtime", module=module, prefix="m_on_x", target=host.target(kind))


def test_a_hook_goes_to_the_owner_only(write: Write) -> None:
    host = host_of(
        entry("good", write("good", GOOD)),
        entry("hooked", write("hooked", HOOKED.format("return TargetCode(cc='clang')"))),
        entry("silent", write("silent", kind_source("silent"))),
    )
    host.kinds()
    assert call(host, "good") == TargetCode(cflags=("-DDIM=8",))
    assert call(host, "hooked") == TargetCode(cc="clang")
    assert call(host, "silent") is None


def test_the_current_target_is_set_while_a_hook_runs(write: Write) -> None:
    host = host_of(
        entry(
            "hooked", write("hooked", HOOKED.format("return TargetCode(cflags=(f'-D{Target.current() is target}',))"))
        ),
        entry("good", write("good", GOOD)),
    )
    with host.target("good") as outer:
        assert call(host, "hooked") == TargetCode(cflags=("-DTrue",))
        assert Target.current() is outer


@pytest.mark.parametrize(
    ("statement", "message", "cause"),
    [
        ("1 / 0", "failed in hook tir_to_runtime: ZeroDivisionError", ZeroDivisionError),
        ("raise SystemExit(0)", "failed in hook tir_to_runtime: SystemExit: 0", SystemExit),
        ("return ['-O3']", "gave a value of type list from hook tir_to_runtime", None),
        ("yield TargetCode()", "gave a value of type generator from hook tir_to_runtime", None),
        ("return ''", "gave '' from hook tir_to_runtime", None),
    ],
)
def test_a_hook_that_fails(statement: str, message: str, cause: type | None, write: Write) -> None:
    host = host_of(entry("hooked", write("hooked", HOOKED.format(statement))))
    with pytest.raises(PluginError) as caught:
        call(host, "hooked")
    assert caught.value.what.startswith(f"plugin uma-hooked 1.2.3 {message}")
    assert isinstance(caught.value.__cause__, cause or type(None))
    with pytest.raises(UsageError, match="there is no current target"):
        Target.current()


def test_what_a_hook_says_about_its_input_stays_what_it_is(write: Write) -> None:
    source = "from uma.errors import UsageError\n" + HOOKED.format("raise UsageError('too wide', where=module)")
    host = host_of(entry("hooked", write("hooked", source)))
    with pytest.raises(UsageError) as caught:
        call(host, "hooked")
    assert caught.value.where == "hook tir_to_runtime of plugin uma-hooked 1.2.3"
    with pytest.raises(UsageError) as caught:
        call(host, "hooked", "layer conv1")
    assert caught.value.where == "hook tir_to_runtime of plugin uma-hooked 1.2.3, layer conv1"


def test_the_process_has_one_host() -> None:
    assert default_host() is default_host()


def test_the_package_has_what_it_lists_and_nothing_else() -> None:
    assert [name for name in uma.plugins.__all__ if not hasattr(uma.plugins, name)] == []
    with pytest.raises(AttributeError, match=r"^module 'uma\.plugins' has no attribute 'default_hosts'$"):
        uma.plugins.default_hosts  # noqa: B018 - it is looked up, that is all
