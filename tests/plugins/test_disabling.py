"""Plugins that somebody does not want are as if they were not there, and say who does not want them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests._support.plugins import accelerator, entry_of

from uma.errors import UsageError
from uma.plugins import PluginEntry, PluginHost

KINDS = [accelerator("matrix_unit"), accelerator("vector_unit")]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, of no project; nothing is disabled from outside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UMA_DISABLE_PLUGINS", raising=False)
    return tmp_path


def host(*disabled: str) -> PluginHost:
    entries = [*entry_of(*KINDS), *entry_of(accelerator("other"))]
    return PluginHost(lambda: entries, disabled=disabled)


@pytest.mark.parametrize(
    "name", ["uma-matrix-unit", "UMA_Matrix.Unit", "uma--matrix_unit", "matrix_unit", "vector-unit"]
)
def test_a_plugin_goes_by_its_distribution_or_an_entry_point_in_any_spelling(name: str) -> None:
    without = host(name)
    assert [status.state for status in without.plugins()] == ["disabled", "found"]
    assert without.names() == ("other",) and [*without.kinds()] == ["other"]
    assert [status.state for status in without.examine()] == ["disabled", "loaded"]
    with pytest.raises(UsageError) as caught:
        without.plugin_for("vector_unit")
    assert (
        caught.value.what == "target kind 'vector_unit' is not there: plugin uma-matrix_unit 1.0 is disabled on request"
    )


def test_the_environment_disables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMA_DISABLE_PLUGINS", " other, ,uma-unknown")
    assert host().names() == ("matrix_unit", "vector_unit")
    with pytest.raises(UsageError, match="is disabled by the environment variable UMA_DISABLE_PLUGINS"):
        host().target("other")


def test_the_project_disables(folder: Path) -> None:
    (folder / "pyproject.toml").write_text(
        '[tool.uma]\ndisable-plugins = ["uma-other"]\n[tool.uma.targets]\nx = "other"'
    )
    with pytest.raises(UsageError, match=r"disabled by disable-plugins in \[tool.uma\] of pyproject.toml"):
        host().target("x")
    assert host().target("matrix_unit").kind.name == "matrix_unit"


@pytest.mark.parametrize("value", ["'uma-other'", "3", "[3]", "{}"])
def test_a_project_that_says_it_wrongly(folder: Path, value: str) -> None:
    (folder / "pyproject.toml").write_text(f"[tool.uma]\ndisable-plugins = {value}\n")
    with pytest.raises(UsageError, match="disable-plugins is not a list of names") as caught:
        host().names()
    assert caught.value.hint == 'write disable-plugins = ["uma-my-plugin"]'


def test_a_setting_that_there_is_not(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.uma]\ndisable_plugins = []\n")
    with pytest.raises(UsageError, match="'disable_plugins', which there is not") as caught:
        host().names()
    keys = "allow, costs, disable-plugins, io, max-cycles, max-ram, max-rom, partition, plan, require-plugins, targets"
    assert caught.value.hint == f"did you mean 'disable-plugins'? there are {keys}"


def test_without_gives_another_host_and_knows_who_there_is() -> None:
    whole = host()
    less = whole.without("other")
    assert (less.names(), whole.names()) == (("matrix_unit", "vector_unit"), ("matrix_unit", "other", "vector_unit"))
    assert less.without("vector_unit").names() == ()
    with pytest.raises(UsageError, match="there is no plugin 'othr'") as caught:
        whole.without("othr")
    assert (caught.value.hint or "").startswith("did you mean 'other'? installed: uma-matrix_unit, matrix_unit, ")
    with pytest.raises(UsageError) as caught:
        PluginHost(list).without("other")
    assert caught.value.hint == "no plugin is installed"


def test_of_two_owners_one_can_be_disabled() -> None:
    rival = PluginEntry("other", "never_imported", "uma-rival", "1.0")
    [owner] = entry_of(accelerator("other"))
    both = PluginHost(lambda: [rival, owner])
    assert both.without("uma-rival").kind("other").name == "other"
    assert [status.reason for status in both.plugins()] == [
        f"target kind 'other' is claimed by more than one plugin: uma-other 1.0 ({owner.value}), "
        "uma-rival 1.0 (never_imported)"
    ] * 2


def test_a_folder_that_was_removed_is_in_no_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert len(host().names()) == 3
    assert host().kind("other").name == "other"
