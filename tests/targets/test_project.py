"""Targets that a project names in its pyproject.toml."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from tests._support.plugins import HOST, accelerator, entry_of

from uma.errors import UsageError
from uma.lowering.build_targets import resolve_targets
from uma.plugins import PluginHost
from uma.support.project_file import SETTINGS, IgnoredProject, find_project, ignored_projects
from uma.targets.project import project_targets

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
        (b"[tool.uma.targets", "is not TOML"),
        (b"uma = '\xff'", "is not TOML"),
        (b"[tool.uma]\ntargets = 3", "3 is not a table of targets"),
        (b"[tool]\numa = 'x'", "is not a table"),
        (b"tool = 'uma'", "is not a table"),
        (b"[tool.uma.target]\na = 'c'", "has the setting 'target', which there is not"),
        (b"[tool.uma.targets]\n'a b' = 'c'", "'a b' is not a name of a target"),
        (b"[tool.uma.targets]\na = 3", "a is 3, no target"),
        (b"uma = " + b"[" * 100_000, "is not TOML"),
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


def test_the_page_on_trust_lists_every_key_and_kind_of_input() -> None:
    page = (Path(__file__).parents[2] / "docs" / "trust.md").read_text("utf-8")
    tables = [
        [line.split(" | ")[0] for line in part.splitlines()] for part in page.split("\n\n") if part.startswith("| ")
    ]
    inputs, keys = tables
    assert keys[0] == "| key of `[tool.uma]`"
    assert sorted(re.findall("`([^`]+)`", " ".join(keys[2:]))) == sorted(SETTINGS)
    for word in (
        "model",
        "text",
        "target",
        "arrays",
        "plan",
        "costs",
        "trace",
        "artifact",
        "project",
        "workers",
        "plugin",
    ):
        assert any(re.search(rf"\b{word}\b", row) for row in inputs[2:]), word


STRANGER = 54321
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


def check_ignored(path: Path, reason: str, remedy: str) -> None:
    """A file is ignored, with one warning; the project above it is found instead."""
    text = f"settings for UMA in {path} are ignored, because {reason}; to use them, {remedy}"
    with pytest.warns(RuntimeWarning) as said:
        project = find_project()
    assert [str(one.message) for one in said] == [f"the {text}"]
    assert project is not None and project.path == str(path.parent.parent / "pyproject.toml")
    with warnings.catch_warnings(record=True) as again:
        warnings.simplefilter("always")
        assert find_project() == project and not again, "the warning comes once"
    assert ignored_projects() == [IgnoredProject(str(path), reason, remedy)]


class TestFilesOfOthers:
    @pytest.fixture
    def path(self, folder: Path) -> Path:
        """The nearest file, below another one that is this user's."""
        path = folder / "a" / "pyproject.toml"
        path.write_text("[tool.uma]\nmax-ram = 1\n")
        return path

    def test_every_user_can_write_it(self, path: Path) -> None:
        path.chmod(0o666)
        check_ignored(path, "every user can write it", "remove that permission (chmod o-w)")
        path.chmod(0o644)
        assert find_project() == (str(path), {"max-ram": 1}) and ignored_projects() == []

    @root_only
    def test_another_user_owns_it(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        os.chown(path, STRANGER, 0)
        check_ignored(path, f"it belongs to user {STRANGER}", "copy it, or take ownership of it (chown)")
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
        assert find_project() == (str(path), {"max-ram": 1})
        os.chown(path, 0, 0)
        assert find_project() == (str(path), {"max-ram": 1}), "root may"

    @root_only
    def test_a_user_with_a_name_owns_it(self, path: Path) -> None:
        pwd = pytest.importorskip("pwd")
        other = next((one for one in pwd.getpwall() if one.pw_uid), None)
        if other is None:
            pytest.skip("there is no other user")
        os.chown(path, other.pw_uid, 0)
        check_ignored(path, f"it belongs to user {other.pw_name!r}", "copy it, or take ownership of it (chown)")

    @root_only
    def test_another_user_owns_a_link_to_it(self, path: Path) -> None:
        path.rename(path.with_name("mine"))
        path.symlink_to("mine")
        assert find_project() == (str(path), {"max-ram": 1})
        os.chown(path, STRANGER, 0, follow_symlinks=False)
        check_ignored(path, f"it belongs to user {STRANGER}", "copy it, or take ownership of it (chown)")

    @root_only
    @pytest.mark.parametrize(
        ("user", "group", "private"), [(0, 0, True), (0, STRANGER, False), (STRANGER, STRANGER, True)]
    )
    def test_its_group_can_write_it(
        self, path: Path, user: int, group: int, private: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: user)
        os.chown(path, user, group)
        path.chmod(0o664)
        if private:
            assert find_project() == (str(path), {"max-ram": 1})
        else:
            check_ignored(path, "other users of its group can write it", "remove that permission (chmod g-w)")

    @pytest.mark.parametrize("members", [[], ["me"], ["me", "you"]])
    def test_a_private_group(self, path: Path, members: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        from types import SimpleNamespace

        monkeypatch.setattr("pwd.getpwuid", lambda number: SimpleNamespace(pw_name="me"))
        monkeypatch.setattr("grp.getgrgid", lambda number: SimpleNamespace(gr_name="me", gr_mem=members))
        path.chmod(0o664)
        if "you" in members:
            check_ignored(path, "other users of its group can write it", "remove that permission (chmod g-w)")
        else:
            assert find_project() == (str(path), {"max-ram": 1})

    @pytest.mark.parametrize(
        "content", [b"[tool.uma]\n[", b"[tool.uma]\nnone = 1", b"tool . 'uma' . x = 1" + b"#" * 2_000_000]
    )
    def test_one_that_is_malformed_stops_nobody(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        path.chmod(0o666)
        check_ignored(path, "every user can write it", "remove that permission (chmod o-w)")

    @pytest.mark.parametrize("content", [b"", b"[tool.human]\nname = 'uma-x'\n", b"\xff", b"x = 'uma'"])
    def test_one_without_settings_is_ignored_without_a_word(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        path.chmod(0o666)
        project = find_project()
        assert project is not None and project.path == str(path.parent.parent / "pyproject.toml")
        assert ignored_projects() == []

    def test_one_that_cannot_be_read_stops_nobody(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path.chmod(0o666)

        def refuse(name: str, flags: int) -> int:
            if name == str(path):
                raise PermissionError(13, "Permission denied")
            return os.open(name, flags)

        monkeypatch.setattr("uma.support.project_file._open_at_once", refuse)
        assert list(project_targets()) == ["my-board", "both", "labelled", "host", "plain", "circle"]

    def test_one_that_is_removed_meanwhile(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def removing(name: str, flags: int) -> int:
            if name == str(path):
                path.unlink()
            return os.open(name, flags)

        monkeypatch.setattr("uma.support.project_file._open_at_once", removing)
        assert list(project_targets()) == ["my-board", "both", "labelled", "host", "plain", "circle"]
