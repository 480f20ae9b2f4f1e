"""``uma plugins``: what is listed, and what is said of one."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests._support.broken_plugins import BROKEN, module_source
from tests._support.installed import install
from tests._support.plugins import HOST, accelerator, entry_of, taking
from tests._support.small_models import Uma

from uma.cli.doctor import _project
from uma.hookspecs import PLUGIN_API_VERSION, Clause, CustomOp, Pass, Pattern, Strategy
from uma.plugins import PluginEntry, PluginHost, default_host, installed_plugins
from uma.relay import Function, Op
from uma.relay.pattern import op, wildcard
from uma.targets import Alias, Attribute, Target

API = ".".join(map(str, PLUGIN_API_VERSION))


def fits(match: Any) -> bool:
    """Rows come in fours."""
    return bool(match.root.shape[-1] % 4 == 0)


def unsaid(match: Any) -> bool:
    return True


def lower(function: Function, target: Target) -> None:
    return None


CUBE = Op(
    "npu.cube",
    "The third power of every element.",
    ("data",),
    infer=lambda attrs, data: data,
    reference=lambda attrs, data: data**3,
    compute=None,
    kind="elementwise",
)


def patterns() -> list[Pattern]:
    sums = op("nn.relu")(op("add")(wildcard("int8"), wildcard("int8")))
    clauses = [
        Clause("small", lambda m: True, "at most 8 rows, not {value}"),
        Clause("even", lambda m: True, "rows are even"),
    ]
    return [
        Pattern("npu.sums", sums, clauses),
        taking("npu", "nn.relu", predicate=fits),
        taking("npu", "clip", predicate=unsaid),
        taking("npu", "add"),
    ]


def passes() -> list[Pass]:
    return [
        Pass("TIR_1", "last", lambda module: module),
        Pass("PRE_PARTITIONING", "second", lambda module: module, after=("first",)),
        Pass("PRE_PARTITIONING", "first", lambda module: module, before=("plain.other",)),
    ]


def full() -> list[PluginEntry]:
    return entry_of(
        accelerator("npu"),
        Alias("board", "npu -host=plain", help="both"),
        patterns=patterns,
        passes=passes,
        strategies=lambda: [Strategy("nn.relu", lower)],
        ops=lambda: [CustomOp(CUBE, onnx={"com.acme::Cube": len})],  # type: ignore[dict-item]  # never called
    )


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has these entries be what is installed."""

    def set_plugins(*entries: PluginEntry) -> None:
        host = PluginHost(lambda: entries)
        monkeypatch.setattr("uma.plugins.default_host", lambda: host)

    return set_plugins


def test_the_list_imports_nothing(uma: Uma, plugins: Callable[..., None]) -> None:
    plugins(
        PluginEntry("one", "uma_never_a", "uma-a", "1.0", ("uma-core>=0.1",), "/somewhere", True),
        PluginEntry("two", "uma_never_a", "uma-a", "1.0", ("uma-core>=0.1",), "/somewhere", True),
        PluginEntry("old", "uma_never_b", "uma-b", "2.0", ("uma-core>=9",)),
        PluginEntry("new", "uma_never_c", "uma-c", "3.0"),
        PluginEntry("off", "uma_never_d", "uma-d", "4.0"),
    )
    done = uma("plugins", "--disable-plugin", "UMA_D")
    assert (done.code, done.err) == (0, "")
    assert [line.split(None, 3) for line in done.out.splitlines()[:5]] == [
        ["plugin", "version", "state", "target kinds"],
        ["uma-a", "1.0", "compatible", "one, two"],
        ["uma-b", "2.0", "quarantined", "old"],
        ["uma-c", "3.0", "found", "new"],
        ["uma-d", "4.0", "disabled", "off"],
    ]
    assert done.out.splitlines()[5:] == [
        "uma-b: plugin uma-b 2.0 needs uma-core>=9, this is uma-core 0.1.0",
        "uma-d: disabled on request",
    ]
    first, second, *_ = uma("plugins", "--json").json["plugins"]
    assert first == {
        "distribution": "uma-a",
        "version": "1.0",
        "state": "compatible",
        "reason": None,
        "names": ["one", "two"],
        "value": "uma_never_a",
        "location": "/somewhere",
        "editable": True,
        "hidden": [],
        "requires_core": "uma-core>=0.1",
        "error": None,
    }
    assert second["error"]["traceback"] == [] and "pip install" in second["error"]["hint"]
    assert not [name for name in sys.modules if name.startswith("uma_never")]


def test_no_plugins(uma: Uma, plugins: Callable[..., None]) -> None:
    plugins()
    assert uma("plugins").out == "no plugin is installed; one brings target kinds: pip install PLUGIN\n"
    assert uma("plugins", "--json").json["plugins"] == []
    assert "no plugin is installed" in uma("plugins", "npu").error(2)


def test_one_that_brings_everything(uma: Uma, plugins: Callable[..., None]) -> None:
    plugins(*full(), *entry_of(HOST))
    module = full()[0].value.rpartition("_")[0]
    lines = uma("plugins", "npu").out.splitlines()
    assert lines[0] == "uma-npu 1.0: loaded"
    assert lines[1].startswith(f"  entry points  board = {module}_")
    assert lines[2:] == [
        "  needs         it does not say which uma-core",
        f"  plugin API    it does not say which; this is {API}",
        "  hooks         ops, passes, patterns, register_target, strategies",
        "  aliases       board",
        "  ops           npu.cube",
        "npu: an accelerator (npu)",
        "  pattern npu.sums: add, nn.relu",
        "    small: at most 8 rows, not ...",
        "    even: rows are even",
        "  pattern npu.relu: nn.relu",
        "    fits: Rows come in fours.",
        "  pattern npu.clip: clip",
        "    unsaid: (no reason)",
        "  pattern npu.add: add",
        "  pass first: PRE_PARTITIONING, module, before plain.other",
        "  pass second: PRE_PARTITIONING, module, after first",
        "  pass last: TIR_1, module",
        "  strategies for nn.relu",
    ]


def test_what_patterns_look_like_is_told_to_those_who_ask(uma: Uma, plugins: Callable[..., None]) -> None:
    plugins(*full(), *entry_of(HOST))
    lines = uma("plugins", "npu", "-v").out.splitlines()
    start = lines.index("  pattern npu.sums: add, nn.relu")
    terms = ["v1 = add(int8, int8)", "v2 = nn.relu(v1)", "result: v2"]
    assert lines[start + 1 : start + 5] == [*(f"      {term}" for term in terms), "    small: at most 8 rows, not ..."]
    [record] = uma("plugins", "npu", "--json").json["plugins"]
    assert record["targets"][0]["patterns"][0]["terms"] == terms


def test_the_same_in_json(uma: Uma, plugins: Callable[..., None]) -> None:
    plugins(*full(), *entry_of(HOST))
    [record] = uma("plugins", "UMA-NPU", "--json").json["plugins"]
    assert (record["state"], record["aliases"], record["names"]) == ("loaded", ["board"], ["board", "npu"])
    assert record["ops"] == [{"name": "npu.cube", "tflite": [], "onnx": ["com.acme::Cube"]}]
    [target] = record["targets"]
    assert [row["name"] for row in target["patterns"]] == ["npu.sums", "npu.relu", "npu.clip", "npu.add"]
    assert target["patterns"][0]["clauses"][1] == {"name": "even", "reason": "rows are even"}
    assert target["passes"][1] == {
        "phase": "PRE_PARTITIONING",
        "name": "second",
        "scope": "module",
        "before": [],
        "after": ["first"],
    }
    assert (target["strategies"], target["error"]) == (["nn.relu"], None)


def test_a_kind_that_needs_attributes_says_so(uma: Uma, plugins: Callable[..., None]) -> None:
    plugins(*entry_of(accelerator("npu", Attribute("dim", int, required=True, help="size")), patterns=patterns))
    done = uma("plugins", "npu")
    assert done.code == 0 and "  UsageError: target kind 'npu' needs attribute 'dim'\n" in done.out
    assert uma("plugins", "npu", "--json").json["plugins"][0]["targets"][0]["error"]["hint"].startswith("add -dim=")


def test_a_disabled_one_is_not_imported(uma: Uma, plugins: Callable[..., None]) -> None:
    plugins(PluginEntry("npu", "uma_never", "uma-npu", "1.0"))
    done = uma("plugins", "npu", "--disable-plugin", "npu")
    assert done.code == 0 and done.out.splitlines()[:2] == ["uma-npu 1.0: disabled", "  disabled on request"]
    assert "there is no plugin 'nqu'" in uma("plugins", "--disable-plugin", "nqu").error(2)
    assert "did you mean 'npu'?" in uma("targets", "--disable-plugin", "nqu").error(2)


@pytest.fixture
def ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A plugin that ends the process at import, one that crashes, and one that does neither."""
    ends = "import os\nos._exit(0)\n"
    quiet = "import faulthandler, resource\nfaulthandler.disable()\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
    crashes = f"{quiet}import ctypes\nctypes.string_at(0)\n"
    install(tmp_path, "uma-ends", ["ends"], ends)
    install(tmp_path, "uma-crashes", ["crashes"], crashes)
    monkeypatch.syspath_prepend(tmp_path)
    entries = [one for one in installed_plugins() if one.kind in ("ends", "crashes", "c")]
    monkeypatch.setattr("uma.plugins.default_host", lambda: PluginHost(lambda: entries))
    yield
    for name in ("uma_ends", "uma_crashes"):
        sys.modules.pop(name, None)


def test_a_plugin_that_ends_the_process_is_an_error_of_its_own(uma: Uma, ending: None) -> None:
    done = uma("targets")
    assert (done.code, done.err) == (0, "")
    lines = [line.partition(" (")[0] for line in done.out.splitlines()]
    when = "when it was imported and asked for its kinds"
    assert f"ends: cannot be used: plugin uma-ends 1.0 ended the process with status 0 {when}" in lines
    assert f"crashes: cannot be used: plugin uma-crashes 1.0 ended the process with SIGSEGV {when}" in lines
    assert any(line.startswith("c: a CPU") for line in lines)
    unusable = uma("targets", "--json").json["unusable"]
    assert [one["name"] for one in unusable] == ["crashes", "ends"]
    assert "ended the process with status 0" in uma("targets", "ends").error(5)
    assert "ended the process with status 0" in uma("targets", "--explain", "c -accelerators=[ends]").error(5)
    done = uma("plugins", "ends")
    assert done.code == 5 and done.out.startswith("uma-ends 1.0: quarantined\n")
    assert "UMA_DISABLE_PLUGINS=uma-ends" in done.out
    assert uma("targets", "c").out.startswith("c: a CPU")
    assert "there is no target kind 'cortex-m4'" in uma("build", "net.py", "--target", "cortex-m4").error(2)


@pytest.mark.filterwarnings("default")
def test_what_a_plugin_says_in_the_child_is_said(uma: Uma, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = "register_target = hookimpl(lambda: [TargetKind('warns', help='a device', device_type='npu')])\n"
    head = "import sys, warnings\nfrom uma.hookspecs import hookimpl\nfrom uma.targets import TargetKind\n"
    install(tmp_path, "uma-warns", ["warns"], f"{head}warnings.warn('mind the gap')\n{kind}")
    monkeypatch.syspath_prepend(tmp_path)
    entries = [one for one in installed_plugins() if one.kind == "warns"]
    monkeypatch.setattr("uma.plugins.default_host", lambda: PluginHost(lambda: entries))
    done = uma("targets", "warns")
    assert done.code == 0 and done.out.startswith("warns: a device\n") and done.err == "uma: warning: mind the gap\n"


def test_which_of_two_versions_is_used_is_said(uma: Uma, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, version in (("old", "1.0"), ("new", "2.0"), ("same", "1.0")):
        (tmp_path / folder).mkdir()
        install(tmp_path / folder, "uma-doubled", ["doubled"], module_source("doubled"), version=version)
    for folder in ("same", "new", "old"):
        monkeypatch.syspath_prepend(tmp_path / folder)
    entries = [one for one in installed_plugins() if one.kind == "doubled"]
    monkeypatch.setattr("uma.plugins.default_host", lambda: PluginHost(lambda: entries))
    what = f"uma-doubled 1.0 in {tmp_path / 'old'} is used, and hides 2.0 in {tmp_path / 'new'}"
    assert f"note: {what}\n" in uma("plugins").out
    assert f"  note: {what}\n" in uma("plugins", "doubled").out
    assert uma("plugins", "--json").json["plugins"][0]["hidden"] == [f"2.0 in {tmp_path / 'new'}"]
    [note] = [one for one in uma("doctor", "--json").json["findings"] if "hides" in one["what"]]
    assert (note["status"], note["what"]) == ("note", what)
    sys.modules.pop("uma_doubled", None)


class TestBroken:
    @pytest.fixture(autouse=True)
    def site(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Three of them are installed, and nothing else was found yet."""
        for name in ("registers", "circle", "old-api"):
            BROKEN[name].install_in(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        fresh = PluginHost()
        monkeypatch.setattr("uma.plugins.default_host", lambda: fresh)
        yield
        for name in [name for name in sys.modules if name in ("uma_registers", "uma_circle", "uma_old_api")]:
            del sys.modules[name]

    def test_the_original_exception_is_shown(self, uma: Uma) -> None:
        done = uma("plugins", "registers")
        lines = done.out.splitlines()
        assert (done.code, done.err) == (5, "")
        assert lines[:2] == [
            "uma-registers 1.0: quarantined",
            "  plugin uma-registers 1.0 failed in hook register_target: KeyError: 'npu'",
        ]
        assert lines[-1] == "  | KeyError: 'npu'" and any("return [{}['npu']]" in line for line in lines)
        error = uma("plugins", "registers", "--json").json["plugins"][0]["error"]
        assert error["traceback"][-1] == "KeyError: 'npu'" and "pip install --upgrade" in error["hint"]

    def test_one_that_has_no_exception(self, uma: Uma) -> None:
        done = uma("plugins", "old-api")
        assert done.code == 5 and "is for plugin API 99.0" in done.out and "|" not in done.out

    def test_one_that_loads_and_does_not_work(self, uma: Uma) -> None:
        done = uma("plugins", "circle")
        assert done.code == 5 and done.out.startswith("uma-circle 1.0: loaded\n")
        assert "which cannot be put in order" in done.out


def test_notes_are_shown(
    uma: Uma, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plugins: Callable[..., None]
) -> None:
    [entry] = entry_of(accelerator("npu"))
    major, minor = PLUGIN_API_VERSION
    monkeypatch.setattr(sys.modules[entry.value], "UMA_PLUGIN_API", (major, minor + 1), raising=False)
    plugins(entry)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = uma("plugins", "npu")
    lines = done.out.splitlines()
    assert f"  plugin API    {major}.{minor + 1}; this is {API}" in lines
    said = f"plugin uma-npu 1.0 is for plugin API {major}.{minor + 1}, this is {API}: it may ask for more"
    assert f"  note: {said}" in lines
    assert done.err == f"uma: warning: {said}\n"


def test_where_an_installed_one_is(uma: Uma, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "uma-placed", ["placed"])
    monkeypatch.syspath_prepend(tmp_path)
    fresh = PluginHost()
    monkeypatch.setattr("uma.plugins.default_host", lambda: fresh)
    assert f"  metadata in   {tmp_path}\n" in uma("plugins", "placed").out


def test_commands_check_the_plugins_that_the_project_requires(uma: Uma, folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.uma]\nrequire-plugins = ["uma-x>=0.3"]\n')
    for command in ("build", "run", "verify", "explain", "report"):
        error = uma(command, "net.py", "--target", "c").error(4)
        assert "the project requires uma-x>=0.3, and it is not installed" in error
        assert "hint: pip install 'uma-x>=0.3'" in error
    assert uma("targets").code == 0
    faults = [finding for finding in _project(default_host(), "project") if finding.status == "fault"]
    assert [(fault.what, fault.hint, fault.exit_code) for fault in faults] == [
        ("the project requires uma-x>=0.3, and it is not installed", "pip install 'uma-x>=0.3'", 4)
    ]
