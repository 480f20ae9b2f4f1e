"""Discovery: what the metadata of installed distributions say, whatever state they are in; nothing is imported."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests._support.installed import install

from uma.errors import PluginError, UsageError
from uma.plugins import GROUP, PluginEntry, PluginHost, installed_plugins
from uma.support import package_metadata

SOURCE = """
from uma.hookspecs import hookimpl
from uma.targets import TargetKind

@hookimpl
def register_target():
    return [TargetKind({kind!r}, help="h")]
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed distributions, first on the path. Modules of it are forgotten after the test."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("uma_"):
            del sys.modules[name]


def found(kind: str) -> list[PluginEntry]:
    importlib.invalidate_caches()
    return [entry for entry in installed_plugins() if entry.kind == kind]


def test_a_distribution_on_the_path_is_found(site: Path) -> None:
    requires = ("uma-core>=0.1", "numpy")
    install(site, "uma-first", ["first"], SOURCE.format(kind="first"), version="4.5", requires=requires)
    assert found("first") == [PluginEntry("first", "uma_first", "uma-first", "4.5", requires, str(site))]
    assert "uma_first" not in sys.modules
    assert PluginHost().kind("first").name == "first"


@pytest.mark.parametrize(
    "text",
    [
        f"[console_scripts]\nx = a:b\n\n[{GROUP}]\nsecond = uma_second\n[other]\ny = z\n",
        f"# made by hand\n[{GROUP}]\n# second = no\n   second=uma_second [extra]\r\n",
        f"[{GROUP}]\nsecond\t=\tuma_second",
    ],
)
def test_the_forms_of_entry_points(site: Path, text: str) -> None:
    install(site, "uma-second", files={"entry_points.txt": text})
    assert [entry.value for entry in found("second")] == ["uma_second"]


@pytest.mark.parametrize("line", ["odd", "odd ="])
def test_a_line_that_is_no_entry_point_is_the_fault_of_its_plugin(site: Path, line: str) -> None:
    install(site, "uma-odd", files={"entry_points.txt": f"[{GROUP}]\n{line}\n"})
    install(site, "uma-good", ["good"], SOURCE.format(kind="good"))
    importlib.invalidate_caches()
    host = PluginHost()
    assert host.kind("good").name == "good"
    what = r"plugin uma-odd 1\.0 has entry points that cannot be read, or that lead nowhere"
    [kind] = [entry.kind for entry in installed_plugins() if entry.distribution == "uma-odd"]
    assert kind in ("odd", "uma-odd")  # whether the list can be read so far depends on who reads it
    with pytest.raises(PluginError, match=what) as caught:
        host.kind(kind)
    assert "pip install --force-reinstall uma-odd" in (caught.value.hint or "")


def test_a_line_that_is_no_entry_point_is_nothing_to_others(site: Path) -> None:
    """It may be of a distribution that is not a plugin."""
    install(site, "other", files={"entry_points.txt": "[console_scripts]\nodd\n"})
    install(site, "uma-good", ["good"])
    assert len(found("good")) == 1
    assert "other" not in {entry.distribution for entry in installed_plugins()}


def test_egg_info_is_metadata_too(site: Path) -> None:
    content = {"PKG-INFO": "Name: uma-egg\nVersion: 2\n", "requires.txt": "uma-core>=9\n"}
    path = install(site, "uma-egg", ["egg"], SOURCE.format(kind="egg"), files=content, info="{stem}.egg-info")
    (path / "METADATA").unlink()
    assert [(entry.version, entry.requires) for entry in found("egg")] == [("2", ("uma-core>=9",))]
    with pytest.raises(PluginError, match="needs uma-core>=9"):
        PluginHost().kind("egg")


@pytest.mark.parametrize("zipped", [False, True])
def test_eggs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool) -> None:
    egg = tmp_path / "uma_laid-3.0-py3.11.egg"
    content = {"PKG-INFO": "Name: uma-laid\nVersion: 3.0\n", "requires.txt": "uma-core>=0.1\n\n[more]\nother\n"}
    (install(egg, "uma-laid", ["laid"], files=content, info="EGG-INFO") / "METADATA").unlink()
    (egg / "uma_laid.py").write_text(SOURCE.format(kind="laid"))
    if zipped:
        folder = egg.rename(tmp_path / "folder")
        with zipfile.ZipFile(egg, "w") as file:
            for path in sorted(folder.rglob("*")):
                file.write(path, path.relative_to(folder).as_posix())
    monkeypatch.syspath_prepend(egg)
    [entry] = found("laid")
    assert entry[:4] == ("laid", "uma_laid", "uma-laid", "3.0")
    assert entry.requires[0] == "uma-core>=0.1" and 'extra == "more"' in entry.requires[1]
    host = PluginHost()
    assert host.kind("laid").name == "laid"
    host.plugin_for("laid").check_installed()
    assert str(egg) in str(sys.modules.pop("uma_laid").__file__)


def test_a_development_folder_is_found_where_it_is(site: Path, tmp_path: Path) -> None:
    """``setup.py develop`` leaves the metadata beside the sources, and puts their folder on the path by a file."""
    sources = tmp_path / "project" / "src"
    info = install(sources, "uma-own", ["own"], info="uma_own.egg-info")
    (info / "METADATA").rename(info / "PKG-INFO")
    (site / "easy-install.pth").write_text(f"{sources}\n")
    code = (
        f"import site; site.addsitedir({str(site)!r})\n"
        "from uma.plugins import installed_plugins\n"
        "print(*[one.location for one in installed_plugins() if one.kind == 'own'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(sources)


def test_a_plugin_in_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "uma-zipped", ["zipped"], SOURCE.format(kind="zipped"))
    archive = tmp_path / "plugins.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(tmp_path.rglob("uma_zipped*")) + sorted(tmp_path.glob("*.dist-info/*")):
            if path.is_file():
                file.write(path, path.relative_to(tmp_path).as_posix())
    monkeypatch.syspath_prepend(archive)
    host = PluginHost()
    assert host.kind("zipped").name == "zipped"
    host.plugin_for("zipped").check_installed()
    assert str(archive) in str(sys.modules.pop("uma_zipped").__file__)
    assert [entry.location for entry in found("zipped")] == [str(archive)]
    monkeypatch.undo()
    with warnings.catch_warnings():  # what reads metadata keeps archives open, and leaves them to the garbage collector
        warnings.simplefilter("ignore", ResourceWarning)
        importlib.invalidate_caches()
        gc.collect()


@pytest.mark.parametrize(
    ("direct", "editable"),
    [
        ('{"url": "file:///x", "dir_info": {"editable": true}}', True),
        ('{"url": "file:///x", "dir_info": {}}', False),
        ('{"dir_info": {"editable": ', False),
        ('["editable"]', False),
        ('{"url": "file:///editable"}', False),
    ],
)
def test_editable_installs(site: Path, direct: str, editable: bool) -> None:
    install(site, "uma-edited", ["edited"], files={"direct_url.json": direct})
    assert [entry.editable for entry in found("edited")] == [editable]


def test_of_several_distributions_of_one_name_the_first_on_the_path_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, name, version in (("old", "uma-twice", "1.0"), ("new", "UMA.Twice", "2.0")):
        (tmp_path / folder).mkdir()
        install(tmp_path / folder, name, {"twice": "uma_twice"}, version=version)
        monkeypatch.syspath_prepend(tmp_path / folder)
    assert [entry.version for entry in found("twice")] == ["2.0"]
    # The one that counts may be no plugin any more.
    (tmp_path / "new" / "UMA.Twice-2.0.dist-info" / "entry_points.txt").unlink()
    assert found("twice") == []


@pytest.mark.parametrize(
    ("info", "name"),
    [
        ("uma_stem-1.0.dist-info", "uma-stem"),
        ("Uma-Stem-1.0.dist-info", "uma-stem"),
        ("uma_stem.egg-info", "uma-stem"),
        ("uma_stem-1.0-py3.11.egg-info", "uma-stem"),
        ("nothing.dist-info", "nothing"),
    ],
)
def test_the_name_of_the_folder_stands_in_for_that_of_the_metadata(site: Path, info: str, name: str) -> None:
    (install(site, "uma-stem", ["stem"], info=info) / "METADATA").unlink()
    assert [entry.distribution for entry in found("stem")] == [name]


def test_a_folder_that_may_be_searched_but_not_listed(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.listdir

    def listdir(folder: str) -> list[str]:
        if folder == str(site):
            raise PermissionError(13, "Permission denied")
        return real(folder)

    install(site, "uma-unseen", ["unseen"])
    monkeypatch.setattr(os, "listdir", listdir)
    assert found("unseen") == []


def test_what_is_no_text_on_the_path(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "uma-path", ["path"])
    monkeypatch.setattr(sys, "path", [site, b"/nowhere", "/there-is-no-such-folder"])
    assert [entry.location for entry in found("path")] == [str(site)]


class TestRemovedHalfWay:
    def test_modules_are_gone(self, site: Path) -> None:
        install(site, "uma-half", ["half"])
        with pytest.raises(PluginError, match=r"plugin uma-half 1.0 cannot be imported: ModuleNotFoundError") as caught:
            PluginHost().kind("half")
        assert "pip install --force-reinstall uma-half" in (caught.value.hint or "")

    def test_metadata_are_gone(self, site: Path) -> None:
        (install(site, "uma-half", ["half"]) / "METADATA").unlink()
        assert [(entry.distribution, entry.version) for entry in found("half")] == [("uma-half", "(no version)")]
        with pytest.raises(PluginError, match=r"uma-half \(no version\) has metadata without a version") as caught:
            PluginHost().kind("half")
        assert "pip install --force-reinstall uma-half" in (caught.value.hint or "")

    def test_not_even_the_folder_says_a_name(self, site: Path) -> None:
        path = install(site, "uma-half", ["half"], info=".egg-info")
        (path / "METADATA").unlink()
        entries = found("half")
        assert {entry.distribution for entry in entries} <= {"(no name)"}

    def test_what_pip_left_behind_is_no_distribution(self, site: Path) -> None:
        install(site, "uma-half", ["half"], version="1.0", info="~ma_half-1.0.dist-info")
        assert found("half") == []
        install(site, "uma-half", ["half"], version="2.0")
        assert [entry.version for entry in found("half")] == ["2.0"]


class TestChangedWhileInUse:
    """What a plugin reads after its import would be of another version."""

    def test_the_same_version_may_be_there_again(self, site: Path) -> None:
        info = install(site, "uma-used", ["used"], SOURCE.format(kind="used"))
        plugin = PluginHost().plugin_for("used")
        shutil.rmtree(info)
        install(site, "uma-used", ["used"])
        plugin.check_installed()

    def test_another_version(self, site: Path) -> None:
        info = install(site, "uma-used", ["used"], SOURCE.format(kind="used"))
        plugin = PluginHost().plugin_for("used")
        shutil.rmtree(info)
        install(site, "uma-used", ["used"], version="2.0")
        with pytest.raises(PluginError, match=r"plugin uma-used 1\.0 was replaced by 2\.0 while it was in use"):
            plugin.check_installed()

    def test_removed_if_only_half_way(self, site: Path) -> None:
        info = install(site, "uma-used", ["used"], SOURCE.format(kind="used"))
        plugin = PluginHost().plugin_for("used")
        info.rename(site / "~ma_used-1.0.dist-info")
        with pytest.raises(PluginError, match=r"plugin uma-used 1\.0 was removed while it was in use") as caught:
            plugin.check_installed()
        assert caught.value.hint == "try again, in a new process"


@pytest.mark.parametrize("file", ["entry_points.txt", "METADATA", "direct_url.json"])
def test_metadata_that_are_no_text_harm_nobody_else(site: Path, file: str) -> None:
    (install(site, "uma-bytes", ["bytes"]) / file).write_bytes(b"\xff\xfe[" + GROUP.encode())
    install(site, "uma-good", ["good"], SOURCE.format(kind="good"))
    assert len(found("good")) == 1
    assert PluginHost().kind("good").name == "good"


def test_a_finder_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(package_metadata.Distribution):
        def read_text(self, filename: str) -> str | None:
            if filename == "entry_points.txt":
                return f"[{GROUP}]\nfound = uma_found\n"
            raise OSError("the medium was removed")

        def locate_file(self, path: object) -> Path:
            return Path("/", str(path))

    class Finder:
        @staticmethod
        def find_distributions(context: object = None) -> list[package_metadata.Distribution]:
            return [Odd()]

        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            return None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert [(entry.distribution, entry.value) for entry in found("found")] == [("(no name)", "uma_found")]


def test_finding_imports_nothing_of_the_compiler(site: Path) -> None:
    install(site, "uma-needle", ["needle"], "raise RuntimeError")
    code = (
        "import sys, uma.plugins\n"
        f"sys.path.insert(0, {str(site)!r})\n"
        "assert 'needle' in uma.plugins.default_host().names()\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "pluggy", "cffi", "packaging", "uma.targets", "uma.hookspecs", "uma_needle"}
    assert not set(done.stdout.split()) & heavy


def test_a_missing_kind_says_what_is_installed(site: Path) -> None:
    install(site, "uma-needle", ["needle"])
    with pytest.raises(UsageError, match="there is no target kind 'needel'") as caught:
        PluginHost().kind("needel")
    assert "did you mean 'needle'?" in (caught.value.hint or "")


@pytest.mark.parametrize(("version", "became"), [("2.0", "replaced by 2.0"), (None, "removed")])
def test_what_is_in_use_stays_installed(site: Path, version: str | None, became: str) -> None:
    """Files that a plugin reads later are those of the version that was imported, or there is no build."""
    path = install(site, "uma-moved", ["moved"], SOURCE.format(kind="moved"))
    plugin = PluginHost().plugin_for("moved")
    plugin.check_installed()
    shutil.rmtree(path)
    if version is not None:
        install(site, "uma-moved", ["moved"], version=version)
    with pytest.raises(PluginError) as caught:
        plugin.check_installed()
    what = f"plugin uma-moved 1.0 was {became} while it was in use: its code and its files may be of two versions"
    assert caught.value.what == what
    assert caught.value.hint == "try again, in a new process"
