"""Targets that a project names in its pyproject.toml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests._support.plugins import HOST, accelerator, entry_of

from uma.errors import UsageError
from uma.lowering.members import resolve_targets
from uma.plugins import PluginHost
from uma.target.project import project_targets

TABLE = """
[tool.uma.targets]
my-board = "plain -accelerators='npu0: npu',npu"
both = ["a: npu", {kind = "plain"}]
labelled = {a = "npu", b = "plain"}
host = {kind = "plain", tag = "x"}
plain = "npu"
circle = "plain -accelerators=circle"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder deep in a project, which is the current one."""
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(TABLE)
    monkeypatch.chdir(inner)
    return tmp_path


def plugins() -> PluginHost:
    entries = [*entry_of(HOST), *entry_of(accelerator("npu"))]
    return PluginHost(lambda: entries)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("my-board", ["npu0", "npu", "plain"]),
        ("both", ["a", "plain"]),
        ("labelled", ["a", "b"]),
        (["x: npu", "host"], ["x", "plain"]),
        ({"x": "npu", "y": "host"}, ["x", "y"]),
    ],
)
def test_a_project_names_targets(folder: Path, name: Any, labels: list[str]) -> None:
    assert [member.label for member in resolve_targets(name, plugins()).all] == labels


def test_without_a_project() -> None:
    assert project_targets(Path("/there-is-no-such-folder")) == {}


def test_the_name_is_kept_as_the_tag(folder: Path) -> None:
    target = plugins().target("my-board")
    assert target.tag == "my-board" and plugins().target(str(target)) == target


def test_kinds_go_before_names_of_the_project(folder: Path) -> None:
    assert plugins().target("plain").kind is HOST


def test_the_nearest_project_counts(folder: Path) -> None:
    (folder / "a" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert project_targets() == {}
    with pytest.raises(UsageError, match="there is no target kind 'both'"):
        plugins().target("both")
    assert list(project_targets(folder)) == ["my-board", "both", "labelled", "host", "plain", "circle"]


def test_a_name_that_stands_for_itself(folder: Path) -> None:
    with pytest.raises(UsageError, match="circle -> circle: a name stands for itself"):
        plugins().target("circle")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[tool.uma.targets", "is no TOML"),
        (b"uma = '\xff'", "is no TOML"),
        (b"[tool.uma]\ntargets = 3", "3 is no table of targets"),
        (b"[tool]\numa = 'x'", "is no table"),
        (b"tool = 'uma'", "is no table"),
        (b"[tool.uma.target]\na = 'c'", "has the setting 'target', which there is not"),
        (b"[tool.uma.targets]\n'a b' = 'c'", "'a b' is no name of a target"),
        (b"[tool.uma.targets]\na = 3", "a is 3, no target"),
        (b"uma = " + b"[" * 100_000, "is no TOML"),
        (b"[tool.uma]" + b"#" * 2_000_000, "more than 1048576 bytes"),
    ],
)
def test_files_that_are_malformed(folder: Path, content: bytes, message: str) -> None:
    path = folder / "a" / "pyproject.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        plugins().target("both")
    assert caught.value.where is not None and caught.value.where.startswith(str(path))


def test_a_file_that_says_nothing_to_uma_may_be_anything(folder: Path) -> None:
    (folder / "a" / "pyproject.toml").write_bytes(b"a = '\xff" + b"[" * 2_000_000)
    assert project_targets() == {}


def test_a_file_that_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(UsageError, match="cannot be read: Permission denied"):
        project_targets()
