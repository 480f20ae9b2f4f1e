"""In which state each plugin is, and why; and what versions of the API have to do with it."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests._support.plugins import HOST, accelerator, built, entry_of, module_of

from uma import hookspecs
from uma.errors import PluginError, UsageError
from uma.hookspecs import PLUGIN_API_VERSION
from uma.lowering.build_targets import resolve_targets
from uma.plugins import LoadedPlugin, PluginEntry, PluginHost
from uma.relay import TensorType, Var, call
from uma.targets import Target

MAJOR, MINOR = PLUGIN_API_VERSION


def states(host: PluginHost) -> dict[str, str]:
    return {status.entry.distribution: status.state for status in host.plugins()}


def module_entry(kind: str, **attributes: Any) -> PluginEntry:
    """The entry of a plugin whose module has these attributes besides."""
    [entry] = entry_of(accelerator(kind))
    vars(sys.modules[entry.value]).update(attributes)
    return entry


def test_from_found_to_active() -> None:
    [said], [unsaid], [plain] = entry_of(accelerator("said")), entry_of(accelerator("unsaid")), entry_of(HOST)
    said = PluginEntry(said.kind, said.value, said.distribution, said.version, ("uma-core>=0.1",))
    host = PluginHost(lambda: [said, unsaid, plain])
    assert states(host) == {"uma-plain": "found", "uma-said": "compatible", "uma-unsaid": "found"}
    assert [status.state for status in host.examine("said")] == ["loaded"]
    assert states(host) == {"uma-plain": "found", "uma-said": "loaded", "uma-unsaid": "found"}
    members = resolve_targets(["unsaid", "plain"], host)
    assert states(host) == {"uma-plain": "loaded", "uma-said": "loaded", "uma-unsaid": "loaded"}
    built(module_of(call("nn.relu", Var("x", TensorType((3,), "float32")))), members)
    assert states(host) == {"uma-plain": "active", "uma-said": "loaded", "uma-unsaid": "active"}
    [status] = host.examine("UMA.Unsaid")
    assert status.plugin is not None and status.plugin.implemented == ("register_target",)
    with pytest.raises(UsageError, match="there is no plugin 'unsad'"):
        host.examine("unsad")


def test_quarantine_before_and_after_the_import() -> None:
    old = PluginEntry("old", "never_imported", "uma-old", "1", ("uma-core>=99",))
    bad = PluginEntry("bad", "uma_no_such_module", "uma-bad", "1", ("uma-core",))
    host = PluginHost(lambda: [old, bad])
    assert states(host) == {"uma-bad": "compatible", "uma-old": "quarantined"}
    statuses = host.examine()
    assert [status.state for status in statuses] == ["quarantined", "quarantined"]
    for status in statuses:
        assert status.error is not None and status.reason == status.error.what
    assert host.kinds()["bad"] is statuses[0].error


def test_one_distribution_may_have_several_plugins() -> None:
    [one], [two] = entry_of(accelerator("one")), entry_of(accelerator("two"))
    entries = [PluginEntry(entry.kind, entry.value, "uma-both", "1") for entry in (one, two)]
    host = PluginHost(lambda: entries)
    assert [status.state for status in host.examine("two")] == ["loaded"]
    assert [status.entry.kind for status in host.examine("uma-both")] == ["one", "two"]


class TestPluginAPI:
    @pytest.mark.parametrize("version", [(MAJOR, MINOR), hookspecs.LAST_BREAKING_VERSION, None])
    def test_one_that_this_core_has(self, version: object) -> None:
        entry = module_entry("npu", UMA_PLUGIN_API=version)
        assert PluginHost(lambda: [entry]).plugin_for("npu").notes == ()

    @pytest.mark.parametrize("version", [(MAJOR + 1, 0), (MAJOR + 1, MINOR)])
    def test_another_major_version(self, version: tuple[int, int]) -> None:
        entry = module_entry("npu", UMA_PLUGIN_API=version)
        with pytest.raises(PluginError) as caught:
            PluginHost(lambda: [entry]).plugin_for("npu")
        said = f"plugin uma-npu 1.0 is for plugin API {version[0]}.{version[1]}, this is {MAJOR}.{MINOR}"
        assert caught.value.what == said
        assert caught.value.hint == "install a pair that fits: pip install --upgrade uma-core uma-npu"

    @pytest.mark.parametrize("version", [(0, 0), (0, 6)])
    def test_one_from_before_a_break_is_refused_and_told_where_the_table_is(self, version: tuple[int, int]) -> None:
        assert version < hookspecs.LAST_BREAKING_VERSION
        entry = module_entry("npu", UMA_PLUGIN_API=version)
        with pytest.raises(PluginError) as caught:
            PluginHost(lambda: [entry]).plugin_for("npu")
        broke = "{}.{}".format(*hookspecs.LAST_BREAKING_VERSION)
        assert caught.value.what == (
            f"plugin uma-npu 1.0 is for plugin API 0.{version[1]}, this is {MAJOR}.{MINOR}, and {broke} broke with "
            "what was before"
        )
        assert caught.value.hint == (
            "install a pair that fits: pip install --upgrade uma-core uma-npu; its authors find the renamed names "
            f"in docs/moving-to-{broke}.md"
        )
        assert (Path(__file__).parents[2] / "docs" / f"moving-to-{broke}.md").is_file()

    @pytest.mark.parametrize("version", ["0.4", 4, (0,), (0, 4, 1), (0, -1), (True, 4), [0, 4]])
    def test_what_is_no_version(self, version: object) -> None:
        entry = module_entry("npu", UMA_PLUGIN_API=version)
        with pytest.raises(PluginError, match="that is not a pair of major and minor version") as caught:
            PluginHost(lambda: [entry]).plugin_for("npu")
        assert f"UMA_PLUGIN_API = ({MAJOR}, {MINOR})" in (caught.value.hint or "")

    def test_a_later_minor_version_is_tried_and_said(self) -> None:
        entry = module_entry("npu", UMA_PLUGIN_API=(MAJOR, MINOR + 1))
        said = f"plugin uma-npu 1.0 is for plugin API {MAJOR}.{MINOR + 1}, this is {MAJOR}.{MINOR}: it may ask for more"
        with pytest.warns(RuntimeWarning, match="it may ask for more"):
            plugin = PluginHost(lambda: [entry]).plugin_for("npu")
        assert plugin.notes == (said,) and [*plugin.kinds] == ["npu"]

    def test_a_later_minor_version_that_asks_for_more_is_told_to_have_the_core_upgraded(self) -> None:
        [entry] = entry_of(accelerator("npu"), patterns=lambda target, budget: [])
        sys.modules[entry.value].UMA_PLUGIN_API = (MAJOR, MINOR + 1)  # type: ignore[attr-defined]  # no such attribute
        with pytest.raises(PluginError, match=r"has a hook that does not fit: .*'budget'") as caught:
            PluginHost(lambda: [entry]).plugin_for("npu")
        assert caught.value.hint == "install a pair that fits: pip install --upgrade uma-core uma-npu"


class TestEditableInstalls:
    """Who installed the sources themselves is told as their author: where, and what to change."""

    def plugin_of(self, **hooks: Any) -> LoadedPlugin:
        [entry] = entry_of(accelerator("npu"), **hooks)
        return PluginHost(lambda: [entry._replace(editable=True)]).plugin_for("npu")

    def test_what_a_hook_raised(self) -> None:
        plugin = self.plugin_of(patterns=lambda: 1 // 0)
        with pytest.raises(PluginError) as caught:
            plugin.call("patterns", target=Target(plugin.kinds["npu"]))
        assert caught.value.hint == "it is an editable install: change its sources there, and run this again"

    @pytest.mark.parametrize(
        ("given", "said"),
        [(3, "gave 3 from hook patterns"), ([3], "gave 3 from hook patterns among its Pattern records")],
    )
    def test_what_a_hook_gave(self, given: object, said: str) -> None:
        def patterns() -> object:
            return given

        plugin = self.plugin_of(patterns=patterns)
        with pytest.raises(PluginError) as caught:
            plugin.call("patterns", target=Target(plugin.kinds["npu"]))
        assert caught.value.what == f"plugin uma-npu 1.0 {said}"
        line = patterns.__code__.co_firstlineno
        assert str(caught.value.where).startswith(f"{__file__}:{line} in patterns, entry point `npu = ")
        assert caught.value.hint == (
            "have it give a list or tuple of Pattern, or None; the docstring of uma.hookspecs.patterns has an example"
        )

    def test_one_for_another_contract_and_one_that_is_damaged(self) -> None:
        entry = module_entry("npu", UMA_PLUGIN_API=(0, 1))._replace(editable=True)
        with pytest.raises(PluginError) as caught:
            PluginHost(lambda: [entry]).plugin_for("npu")
        assert str(caught.value.hint).startswith("it is an editable install: bring its sources to this core")
        assert (
            entry.repair
            == "install its sources once more (pip install -e FOLDER), or remove it (pip uninstall uma-npu)"
        )


def test_a_plugin_may_ask_for_the_kinds_of_others_while_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    source = "import uma\numa.Target('plain')\nraise RuntimeError('after that')\n"
    (tmp_path / "uma_test_asking.py").write_text(source)
    plain = entry_of(HOST)
    host = PluginHost(lambda: [*plain, PluginEntry("asking", "uma_test_asking", "uma-asking", "1")])
    monkeypatch.setattr("uma.plugins.default_host", lambda: host)
    with pytest.raises(PluginError, match="RuntimeError: after that"):
        host.plugin_for("asking")
    assert states(host)["uma-plain"] == "loaded"


def test_threads_that_ask_at_once_import_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = ModuleType("uma_test_counter")
    counter.imports = []  # type: ignore[attr-defined]  # no such attribute
    monkeypatch.setitem(sys.modules, "uma_test_counter", counter)
    source = "import time, uma_test_counter\numa_test_counter.imports.append(1)\ntime.sleep(0.05)\nraise RuntimeError\n"
    (tmp_path / "uma_test_slow.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    host = PluginHost(lambda: [PluginEntry("slow", "uma_test_slow", "uma-slow", "1")])
    errors: list[PluginError] = []

    def ask() -> None:
        try:
            host.plugin_for("slow")
        except PluginError as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
        time.sleep(0.005)
    for thread in threads:
        thread.join()
    assert len(errors) == 4 and len(set(map(id, errors))) == 1
    assert counter.imports == [1]
