"""``uma export`` and `Artifact.export`: forms of build systems and of plugins, written whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests._support.plugins import entry_of, host_kind, module_of, toy
from tests._support.small_models import Uma

import uma as uma_package
from uma.artifact.record import SCHEMA_VERSION
from uma.errors import PluginError, ToolchainError, UmaError, UsageError
from uma.hookspecs import Exporter
from uma.plugins import PluginEntry, PluginHost
from uma.relay import TensorType, Var, call

Export = Callable[[uma_package.Artifact, Path], object]


def write_names(artifact: uma_package.Artifact, folder: Path) -> None:
    folder.joinpath("sub").mkdir()
    folder.joinpath("sub", "name.txt").write_text(artifact.name)


def with_exporters(*given: Exporter, kind: str = "npu") -> list[PluginEntry]:
    return toy(kind, "nn.relu", exporters=lambda: list(given))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., PluginHost]:
    """Has these plugins installed, besides a plain host."""

    def install(*plugins: Sequence[PluginEntry]) -> PluginHost:
        entries = [*(entry for plugin in plugins for entry in plugin), *entry_of(host_kind("plain"))]
        host = PluginHost(lambda: entries)
        monkeypatch.setattr("uma.plugins.default_host", lambda: host)
        return host

    return install


@pytest.fixture(scope="module")
def net() -> uma_package.Artifact:
    """A model for ``npu`` and ``plain``."""
    x = Var("x", TensorType((4,), "float32"))
    host = PluginHost(lambda: [*toy("npu", "nn.relu"), *entry_of(host_kind("plain"))])
    return uma_package.build(module_of(call("nn.relu", x)), ["npu", "plain"], name="net", plugins=host)


@pytest.fixture
def built(net: uma_package.Artifact, folder: Path, installed: Callable[..., PluginHost]) -> PluginHost:
    """It is saved as ``net``; its plugin has the formats ``npu.names`` and ``npu.image``."""
    names = Exporter("npu.names", "a name", write_names)
    image = Exporter("npu.image", "what is flashed", write_names)
    host = installed(
        with_exporters(names, image), with_exporters(Exporter("other.names", "x", write_names), kind="other")
    )
    net.save("net")
    return host


def test_a_format_is_written(uma: Uma, built: PluginHost, folder: Path) -> None:
    done = uma("export", "net", "--format", "npu.names", "-o", "out")
    assert (done.code, done.out, done.err) == (0, f"net: exported to {folder / 'out'}\n", "")
    assert [str(path.relative_to(folder / "out")) for path in sorted(folder.glob("out/**/*"))] == [
        ".uma-export.json",
        "sub",
        "sub/name.txt",
    ]
    assert (folder / "out" / "sub" / "name.txt").read_text() == "net"
    record = uma("export", "net", "--format", "npu.names", "--json").json
    assert record["folder"] == str(folder / "build" / "net-npu.names") and record["format"] == "npu.names"


def test_a_plugin_that_is_named_needs_no_part_in_the_artifact(uma: Uma, built: PluginHost, folder: Path) -> None:
    assert uma("export", "net", "--format", "other.names", "-o", "out").code == 0
    active = {status.entry.kind: status.state for status in built.plugins()}
    assert active["other"] == "loaded"


@pytest.mark.parametrize(
    ("options", "what", "guess"),
    [
        ([], "the format to export to is missing", ""),
        (["--format", "npu.name"], "there is no format 'npu.name' to export to", "did you mean 'npu.names'? "),
        (["--format", "cmakee"], "there is no format 'cmakee' to export to", "did you mean 'cmake'? "),
        (["--format", "esp_idf"], "there is no format 'esp_idf' to export to", "did you mean 'esp-idf'? "),
    ],
)
def test_without_a_format_there_is_a_list(
    options: list[str], what: str, guess: str, uma: Uma, built: PluginHost, folder: Path
) -> None:
    said = uma("export", "net", *options).error(2)
    head, formats = said.split("cmake (", 1)
    assert head == f"{what}\n  where: net\n  hint: {guess}for this artifact there is: "
    assert all(f"; {name} (" in formats for name in ("arduino", "platformio", "zephyr", "esp-idf"))
    assert formats.endswith("; npu.names (a name); npu.image (what is flashed)\n")
    assert not (folder / "build").exists()


def test_a_build_system_needs_no_plugin(uma: Uma, built: PluginHost, folder: Path) -> None:
    done = uma("export", "net", "--format", "esp-idf", "--disable-plugin", "npu", "--json")
    assert done.json["folder"] == str(folder / "build" / "net-esp-idf")
    assert "src/net.c" in (folder / "build" / "net-esp-idf" / "CMakeLists.txt").read_text()
    assert {status.entry.kind: status.state for status in built.plugins()} == {
        "npu": "found",
        "other": "found",
        "plain": "found",
    }


def test_an_archive_is_exported_run_and_of_one_version(uma: Uma, built: PluginHost, folder: Path) -> None:
    uma_package.load("net").save("net.zip")
    assert uma("export", "net.zip", "--format", "cmake", "-o", "out").code == 0
    metadata = folder / "net" / "metadata.json"
    metadata.write_text(metadata.read_text().replace(f'"schema_version": {SCHEMA_VERSION}', '"schema_version": 6'))
    said = uma("export", "net", "--format", "cmake", "-o", "old").error(3)
    assert said.startswith("the artifact was made by an older version of UMA")
    assert not (folder / "old").exists()


def test_there_may_be_none(uma: Uma, installed: Callable[..., PluginHost], folder: Path) -> None:
    installed()
    uma("build", "net.py", "--target", "plain", "-o", "net", "--no-compile", "-q")
    said = uma("export", "net", "--format", "plain.x").error(2)
    assert "esp-idf (" in said and "plain." not in said.partition("hint:")[2]


def test_a_plugin_that_is_gone_has_none(uma: Uma, built: PluginHost, installed: Callable[..., PluginHost]) -> None:
    installed()
    said = uma("export", "net", "--format", "npu.names").error(2)
    assert said.startswith("there is no format 'npu.names' to export to") and "a name" not in said


def test_a_disabled_plugin_has_none(uma: Uma, built: PluginHost) -> None:
    said = uma("export", "net", "--format", "npu.names", "--disable-plugin", "npu").error(2)
    assert "target kind 'npu' is not there: plugin uma-npu 1.0 is disabled on request" in said
    assert "npu." not in uma("export", "net", "--disable-plugin", "npu").error(2)


@pytest.mark.parametrize("there", ["file", "folder"])
def test_nothing_is_replaced(there: str, uma: Uma, built: PluginHost, folder: Path) -> None:
    goal = folder / "out"
    if there == "file":
        goal.write_text("mine")
    else:
        goal.mkdir()
        (goal / "mine").touch()
    said = uma("export", "net", "--format", "npu.names", "-o", "out").error(2)
    assert (
        said == f"there is something already\n  where: {goal}\n  hint: name a folder that is new, empty or an export\n"
    )
    assert goal.is_file() or [path.name for path in goal.iterdir()] == ["mine"]


def test_an_export_is_replaced(uma: Uma, built: PluginHost, folder: Path) -> None:
    export = ("export", "net", "--format", "npu.names", "-o", "out")
    assert [uma(*export).code for _ in range(2)] == [0, 0]
    assert uma("export", "net", "--format", "cmake", "-o", "out").code == 0
    assert (folder / "out" / "CMakeLists.txt").is_file() and not (folder / "out" / "sub").exists()


def add(folder: Path) -> None:
    folder.joinpath("sub", "mine.txt").touch()


def edit(folder: Path) -> None:
    folder.joinpath("sub", "name.txt").write_text("mine")


def remove(folder: Path) -> None:
    folder.joinpath("sub", "name.txt").unlink()


def break_list(folder: Path) -> None:
    folder.joinpath(".uma-export.json").write_text("[]")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (add, "it has files of another origin, 'sub/mine.txt'"),
        (edit, "'sub/name.txt' was changed"),
        (remove, "'sub/name.txt' was removed"),
        (break_list, "its file .uma-export.json is damaged"),
    ],
)
def test_a_changed_export_is_not_replaced(
    change: Callable[[Path], None], why: str, uma: Uma, built: PluginHost, folder: Path
) -> None:
    export = ("export", "net", "--format", "npu.names", "-o", "out")
    assert uma(*export).code == 0
    change(folder / "out")
    before = {path: path.read_bytes() for path in folder.glob("out/**/*") if path.is_file()}
    assert uma(*export).error(2).startswith(f"the export there may not be replaced: {why}\n")
    assert {path: path.read_bytes() for path in folder.glob("out/**/*") if path.is_file()} == before


def test_what_appears_meanwhile_is_not_replaced(
    uma: Uma, built: PluginHost, installed: Callable[..., PluginHost], folder: Path
) -> None:
    def slow(artifact: uma_package.Artifact, staged: Path) -> None:
        write_names(artifact, staged)
        (folder / "out").write_text("mine")

    installed(with_exporters(Exporter("npu.slow", "x", slow)))
    assert "there is something already" in uma("export", "net", "--format", "npu.slow", "-o", "out").error(2)
    assert (folder / "out").read_text() == "mine" and not list(folder.glob(".uma-save-*"))


def test_an_empty_folder_is_filled(uma: Uma, built: PluginHost, folder: Path) -> None:
    (folder / "out").mkdir()
    assert uma("export", "net", "--format", "npu.names", "-o", "out").code == 0
    assert (
        uma("export", "net", "--format", "npu.names", "-o", "net.py/out").error(2).startswith("cannot write the export")
    )


def fail(artifact: uma_package.Artifact, folder: Path) -> None:
    write_names(artifact, folder)
    raise OSError("no room")


def refuse(artifact: uma_package.Artifact, folder: Path) -> None:
    raise UsageError("nothing of it runs there")


def lack(artifact: uma_package.Artifact, folder: Path) -> None:
    raise ToolchainError("objcopy is missing")


@pytest.mark.parametrize(
    ("export", "error", "said"),
    [
        (fail, PluginError, r"plugin uma-npu 1\.0 failed in exporter npu\.x: OSError: no room"),
        (lambda artifact, folder: None, PluginError, r"plugin uma-npu 1\.0 wrote nothing in exporter npu\.x"),
        (refuse, UsageError, r"nothing of it runs there\n  where: exporter npu\.x of plugin uma-npu 1\.0"),
        (lack, ToolchainError, r"objcopy is missing\n  where: exporter npu\.x of plugin uma-npu 1\.0"),
    ],
)
def test_what_fails_leaves_nothing(
    export: Export, error: type[UmaError], said: str, built: PluginHost, folder: Path
) -> None:
    host = PluginHost(lambda: with_exporters(Exporter("npu.x", "x", export)))
    before = sorted(folder.rglob("*"))
    with pytest.raises(error, match=said):
        uma_package.load("net").export("npu.x", "deep/out", plugins=host)
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([Exporter("other.x", "x", write_names)], "declares the exporter 'other.x', the name of which does not begin"),
        (
            [Exporter("npu", "x", write_names)],
            "declares the exporter 'npu', the name of which does not begin with npu.",
        ),
        ([Exporter("npu.x", "x", write_names)] * 2, "declares the exporter 'npu.x' twice"),
        (["npu.x"], "gave 'npu.x' from hook exporters among its Exporter records"),
        ("npu.x", "gave 'npu.x' from hook exporters"),
    ],
)
def test_what_is_no_exporter_is_the_plugins_fault(given: object, said: str, built: PluginHost, folder: Path) -> None:
    host = PluginHost(lambda: toy("npu", "nn.relu", exporters=lambda: given))
    with pytest.raises(PluginError, match=re.escape(said)):
        uma_package.load("net").export("npu.x", "out", plugins=host)


@pytest.mark.parametrize("name", [None, 3, "npu.names\n", "npu.", "../x"])
def test_a_format_is_a_name(name: object, built: PluginHost, folder: Path) -> None:
    with pytest.raises(UsageError, match="there is no format"):
        uma_package.load("net").export(name, "out", plugins=built)  # type: ignore[arg-type]  # what is wrong is meant


def test_a_path_is_one(built: PluginHost, folder: Path) -> None:
    artifact = uma_package.load("net")
    with pytest.raises(UsageError, match="3 is not a path of an export"):
        artifact.export("npu.names", 3, plugins=built)  # type: ignore[arg-type]  # what is wrong is meant
    with pytest.raises(UsageError, match="cannot write the export: there is a null character in the path"):
        artifact.export("npu.names", "a\0b", plugins=built)
