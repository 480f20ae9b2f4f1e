"""``uma doctor``: every fault of an installation has a remedy."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from email.message import Message
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests._support.installed import install
from tests._support.plugins import HOST, accelerator, entry_of
from tests._support.small_models import Done, Uma

from uma.plugins import PluginEntry, PluginHost
from uma.support import package_metadata
from uma.support.distribution import extra_hint

Finding = dict[str, Any]


def findings(done: Done, status: str) -> list[Finding]:
    return [finding for finding in done.json["findings"] if finding["status"] == status]


@pytest.fixture(autouse=True)
def sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host is installed, and nothing besides; what compilers make of loops is the matter of other tests."""
    with_plugins(monkeypatch, *entry_of(HOST))
    monkeypatch.setattr("uma.cli.compiler_check.judge", lambda host: iter(()))


def with_plugins(monkeypatch: pytest.MonkeyPatch, *entries: PluginEntry) -> None:
    host = PluginHost(lambda: entries)
    monkeypatch.setattr("uma.plugins.default_host", lambda: host)


def test_where_nothing_is_wrong(uma: Uma) -> None:
    done = uma("doctor")
    assert done.code == 0 and done.out.splitlines()[-1].startswith("nothing is wrong, with uma-core ")
    assert {line.split()[0] for line in done.out.splitlines()[:-1] if not line.startswith(" ")} <= {"ok", "note"}
    checks = [finding["check"] for finding in uma("doctor", "--json").json["findings"]]
    wanted = ["python", "packages", "compiler", "plugins", "cache", "folders", "project"]
    assert list(dict.fromkeys(checks)) == wanted


def fault(uma: Uma, code: int, *arguments: str) -> Finding:
    """The one fault that there must be."""
    done = uma("doctor", "--json", *arguments)
    assert done.code == code, done
    [found] = findings(done, "fault")
    assert done.json["faults"] == 1 and found["exit_code"] == code and found["hint"]
    text = uma("doctor", *arguments).out
    assert f"fault  {found['what']}\n" in text and f"\n         hint: {found['hint']}\n" in text
    assert "\none thing is wrong, with uma-core " in text
    return found


class TestPython:
    def test_another_system(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        from uma.cli import doctor

        monkeypatch.setattr(doctor.os, "name", "nt")
        assert [found.status for found in doctor._python("python")] == ["fault"]


class TestPackages:
    @pytest.fixture
    def distributions(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
        """What is installed in place of what is; a distribution is left as it is where it has no place here."""

        class Fake:
            def __init__(self, version: str | None, requires: tuple[str, ...] = ()) -> None:
                self.version, self.requires, self.metadata = version, requires, Message()
                if version is not None:
                    self.metadata["Version"] = version

        given: dict[str, Any] = {}
        real = package_metadata.distribution

        def distribution(name: str) -> Any:
            if name not in given:
                return real(name)
            if given[name] is None:
                raise package_metadata.PackageNotFoundError(name)
            return Fake(*given[name])

        monkeypatch.setattr(package_metadata, "distribution", distribution)
        yield given

    @pytest.mark.parametrize(
        ("version", "what"),
        [
            (None, "uma-core needs numpy>=1.26, and it is missing"),
            (("1.0",), "uma-core needs numpy>=1.26, and 1.0 is installed"),
            ((None,), "uma-core needs numpy>=1.26, and it is missing"),
        ],
    )
    def test_one_that_is_needed(self, uma: Uma, distributions: dict[str, Any], version: Any, what: str) -> None:
        distributions["uma-core"] = ("0.1.0", ("numpy>=1.26", "pluggy"))
        distributions["numpy"] = version
        found = fault(uma, 1)
        assert (found["what"], found["hint"]) == (what, "pip install 'numpy>=1.26'")

    def test_one_that_is_broken(self, uma: Uma, distributions: dict[str, Any]) -> None:
        distributions["uma-core"] = ("0.1.0", ("uma-no-such-module",))
        distributions["uma-no-such-module"] = ("1.0",)
        found = fault(uma, 1)
        assert found["what"].startswith("uma-no-such-module 1.0 cannot be imported: ModuleNotFoundError")

    def test_an_extra_that_is_not_there(self, uma: Uma, distributions: dict[str, Any]) -> None:
        distributions["uma-core"] = ("0.1.0", ("numpy", "onnx; extra == 'onnx'", "tflite; extra == 'tflite'"))
        distributions["onnx"] = None
        done = uma("doctor", "--json")
        assert done.code == 0
        [note] = [found for found in findings(done, "note") if found["check"] == "packages"]
        assert note["what"] == "the extra 'onnx' is not installed: without onnx no ONNX models are read"
        assert note["hint"] == "pip install 'uma-core[onnx]'"

    def test_a_core_that_is_not_installed(self, uma: Uma, distributions: dict[str, Any]) -> None:
        distributions["uma-core"] = None
        [note] = [found for found in findings(uma("doctor", "--json"), "note") if found["check"] == "packages"]
        assert note["what"] == "uma-core runs from its sources, and is not installed"


class TestCompiler:
    def test_there_is_none(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/there-is-no-such-folder")
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        assert fault(uma, 6)["what"] == "no C compiler was found"

    def test_it_is_chosen_wrongly(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CC", "gcc -O3")
        assert "neither a known name of a C compiler nor an absolute path" in fault(uma, 2)["what"]

    def test_it_does_not_link(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("uma.toolchain.compile.try_link", lambda *_, **__: (False, "stdint.h: No such file"))
        found = fault(uma, 6)
        assert "cannot make a program of a few lines\nstdint.h: No such file" in found["what"]
        assert "libc6-dev" in found["hint"]

    @pytest.mark.skipif(
        find_spec("ziglang") is None, reason="ziglang is not installed: pip install 'uma-core[ziglang]'"
    )
    def test_ziglang_alone_is_no_fault(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/there-is-no-such-folder")
        found = [one for one in findings(uma("doctor", "--json"), "ok") if one["check"] == "compiler"]
        assert [one["what"].partition(":")[0] for one in found] == ["the C compiler ziglang"]


class TestPlugins:
    def test_one_is_broken(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        with_plugins(monkeypatch, PluginEntry("bad", "uma_no_such_module", "uma-bad", "1.0"), *entry_of(HOST))
        assert "plugin uma-bad 1.0 cannot be imported" in fault(uma, 5)["what"]
        assert uma("doctor", "--disable-plugin", "uma-bad").code == 0

    def test_two_claim_one_kind(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        with_plugins(monkeypatch, *entry_of(HOST), *entry_of(accelerator("npu")), *entry_of(accelerator("npu")))
        done = uma("doctor", "--json")
        assert done.code == 5
        assert all("is claimed by more than one plugin" in found["what"] for found in findings(done, "fault"))

    def test_none_brings_a_host(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        with_plugins(monkeypatch, *entry_of(accelerator("npu")))
        assert fault(uma, 5)["what"] == "no plugin brings a host, which every build needs"

    def test_what_they_do_is_noted(self, uma: Uma, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        def ops() -> None:
            os.chdir("/")

        monkeypatch.setenv("UMA_DISABLE_PLUGINS", "uma-nobody")
        with_plugins(monkeypatch, *entry_of(HOST), *entry_of(accelerator("npu"), ops=ops))
        done = uma("doctor", "--json")
        said = [found["what"] for found in findings(done, "note") if found["check"] == "plugins"]
        assert said == [
            "plugin uma-npu 1.0 changed the current folder; it was put back as it was",
            "no plugin is called 'uma-nobody', which is disabled by the environment variable UMA_DISABLE_PLUGINS",
        ]

    @pytest.mark.few(2)
    @pytest.mark.parametrize(
        ("does", "seconds", "how"),
        [
            (lambda: time.sleep(3600), 2, "did not finish in 2 s"),  # others finish, however busy the machine is
            (lambda: os._exit(3), 60, "ended the process with status 3"),
            (lambda: os.kill(os.getpid(), signal.SIGKILL), 60, "ended the process with SIGKILL"),
        ],
    )
    def test_one_that_hangs_or_ends_the_process(
        self, uma: Uma, monkeypatch: pytest.MonkeyPatch, does: Callable[[], Any], seconds: float, how: str
    ) -> None:
        """At its import, or in a hook; it is named, and the rest goes on, also where the project names its target."""
        monkeypatch.setattr("uma.cli.doctor.PLUGIN_SECONDS", seconds)
        other = entry_of(accelerator("dsp"))
        with_plugins(monkeypatch, *entry_of(HOST), *entry_of(accelerator("npu"), ops=does), *other)
        Path("pyproject.toml").write_text('[tool.uma.targets]\nmine = "npu -host=plain"\nother = "dsp"\n')
        done = uma("doctor", "--json")
        assert done.code == 5
        named, target = findings(done, "fault")
        assert named["what"] == f"plugin uma-npu 1.0 {how} when it was imported and asked for its kinds"
        assert named["hint"] == "disable it (UMA_DISABLE_PLUGINS=uma-npu), and tell its authors"
        assert target["what"] == f"target mine: {named['what']}"
        said = [finding["what"] for finding in findings(done, "ok")]
        assert "plugin uma-dsp 1.0: dsp" in said and "target other, which the project names" in said
        assert not [warning for warning in done.err.splitlines() if warning]


class TestRivals:
    def test_another_distribution_over_ours(
        self, uma: Uma, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        site = tmp_path_factory.mktemp("site")
        info = install(site, "uma", requires=())
        (info / "RECORD").write_text("uma/__init__.py,,\numa-1.0.dist-info/METADATA,,\n")
        (site / "uma").mkdir()
        (site / "uma" / "__init__.py").touch()  # where a file is gone, its name in the list is not a rival
        monkeypatch.setattr("sys.path", [*sys.path, str(site)])
        found = fault(uma, 2)
        assert found["what"] == (
            "uma 1.0, another project's distribution, installs an import package 'uma' as well, over ours"
        )
        assert found["where"] == str(site / "uma") and found["hint"].startswith("pip uninstall uma, then ")


class TestHints:
    @pytest.mark.parametrize(
        ("offered", "hint"),
        [
            (["onnx"], "pip install 'uma-core[onnx]'"),
            (["tflite"], "pip install one two"),
            (None, "pip install one two"),
        ],
    )
    def test_what_the_distribution_has(
        self, offered: list[str] | None, hint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def of(name: str) -> Any:
            if offered is None:
                raise package_metadata.PackageNotFoundError(name)
            made = Message()
            made["Name"] = name
            for extra in offered:
                made["Provides-Extra"] = extra
            return made

        monkeypatch.setattr(package_metadata, "metadata", of)
        assert extra_hint("onnx", "one two") == hint


class TestCacheAndFolders:
    def test_the_cache_is_somebody_elses(self, uma: Uma, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        folder = tmp_path / "open"
        folder.mkdir()
        folder.chmod(0o777)
        monkeypatch.setenv("UMA_CACHE_DIR", str(folder))
        found = fault(uma, 2)
        assert found["what"] == "the cache folder can be written by other users" and found["where"] == str(folder)

    def test_the_usual_cache_cannot_be_used(self, uma: Uma, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "uma").write_text("no folder")
        monkeypatch.delenv("UMA_CACHE_DIR")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert "compiled models are kept for this process only" in fault(uma, 2)["what"]

    def test_nothing_in_it_may_be_run(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        class Mounted:
            f_flag, f_bavail, f_blocks, f_bfree, f_frsize = 8, 1 << 30, 1 << 30, 1 << 30, 4096

        monkeypatch.setattr(os, "ST_NOEXEC", 8, raising=False)
        monkeypatch.setattr(os, "statvfs", lambda path: Mounted)
        assert "is mounted noexec" in fault(uma, 6)["what"]

    def test_it_is_full(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        class Usage:
            free = 3_000_000

        monkeypatch.setattr("shutil.disk_usage", lambda path: Usage)
        assert fault(uma, 6)["what"] == "the cache folder has 3 MB left"

    def test_no_temporary_files(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        from uma.cli import doctor

        def refuse(*_: Any, **__: Any) -> Any:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("tempfile.TemporaryDirectory", refuse)
        found, *_ = doctor._folders("folders")
        assert (found.status, found.what) == ("fault", "temporary files cannot be written: Permission denied")

    def test_folders_that_are_not_there_are_noted(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("UMA_LIBRARY_PATH", f"/there-is-no-such-folder{os.pathsep}/")
        monkeypatch.setattr(os, "access", lambda path, mode: path != ".")
        said = [found for found in findings(uma("doctor", "--json"), "note") if found["check"] == "folders"]
        assert [found["where"] for found in said] == [None, "/there-is-no-such-folder"]


class TestProject:
    def test_its_targets_are_read(self, uma: Uma, folder: Path) -> None:
        (folder / "pyproject.toml").write_text("[tool.uma.targets]\ngood = 'plain'\nbad = 'plane'\n")
        found = fault(uma, 2)
        assert found["what"] == "target bad: there is no target kind 'plane'"
        assert found["where"] == str(folder / "pyproject.toml")

    def test_a_file_that_is_malformed(self, uma: Uma, folder: Path) -> None:
        (folder / "pyproject.toml").write_text("[tool.uma\n")
        assert "is not TOML" in fault(uma, 2)["what"]

    def test_a_project_without_targets(self, uma: Uma, folder: Path) -> None:
        (folder / "pyproject.toml").write_text("[project]\nname = 'x'\n")
        said = [found["what"] for found in findings(uma("doctor", "--json"), "ok") if found["check"] == "project"]
        path = folder / "pyproject.toml"
        assert said == [f"the project file {path} is without settings for UMA", "the project names no targets"]

    @pytest.mark.filterwarnings("default")
    def test_which_file_is_in_force(self, uma: Uma, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        inner, outer = folder / "inner" / "pyproject.toml", folder / "pyproject.toml"
        inner.parent.mkdir()
        monkeypatch.chdir(inner.parent)
        for path in (inner, outer):
            path.write_text("[tool.uma]\nmax-ram = 64\n")
        inner.chmod(0o666)
        done = uma("doctor", "--json")
        assert f"the project file {outer} is in force" in [found["what"] for found in findings(done, "ok")]
        (found,) = [found for found in findings(done, "note") if found["check"] == "project"]
        assert found["what"] == f"settings for UMA in {inner} are ignored, because every user can write it"
        assert found["where"] == str(inner) and found["hint"] == "remove that permission (chmod o-w)"


def test_a_folder_that_was_removed(uma: Uma, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "gone").mkdir()
    monkeypatch.chdir(folder / "gone")
    (folder / "gone").rmdir()
    assert fault(uma, 2)["what"] == "the current folder is not there any more"


def test_what_else_is_in_the_cache(uma: Uma, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMA_CACHE_DIR", str(folder / "cache"))
    (folder / "cache").mkdir(mode=0o700)
    (folder / "cache" / "x.so").symlink_to("nowhere")
    assert "ok     the cache has 0 compiled libraries" in uma("doctor").out
