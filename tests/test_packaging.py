"""What pip gets: all distributions, built through their sdists as an index would serve them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import uma

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "core"
PLUGINS = sorted(file.parent for folder in ("plugins", "examples") for file in ROOT.glob(f"{folder}/*/pyproject.toml"))

pytest.importorskip("hatchling", reason="hatchling, which builds the wheels, is not installed")


def build(project: Path, target: str, out: Path) -> Path:
    """Builds the ``sdist`` or ``wheel`` of `project` into `out`."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(out)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [built] = out.glob("*.tar.gz" if target == "sdist" else "*.whl")
    return built


class Built:
    """The files of a wheel that was built from its project's sdist, and those of the sdist."""

    def __init__(self, project: Path, out: Path) -> None:
        self.project = project
        with tarfile.open(build(project, "sdist", out)) as sdist:
            # As its argument it is not known before Python 3.10.12 and 3.11.4.
            sdist.extraction_filter = getattr(tarfile, "data_filter", None)
            sdist.extractall(out)
            self.sdist = {member.name.partition("/")[2]: member for member in sdist.getmembers()}
        [unpacked] = (path for path in out.iterdir() if path.is_dir())
        with zipfile.ZipFile(build(unpacked, "wheel", out)) as wheel:
            self._content = {name: wheel.read(name) for name in wheel.namelist()}
        self.files = set(self._content)

    def info(self, name: str) -> str:
        """The text of a file of the wheel's ``dist-info``."""
        [path] = (path for path in self.files if path.endswith(f".dist-info/{name}"))
        return self._content[path].decode()

    @property
    def metadata(self) -> Message:
        return Parser().parsestr(self.info("METADATA"))


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(ROOT, tmp_path_factory.mktemp("core"))


@pytest.fixture(scope="module", params=PLUGINS, ids=lambda project: project.name)
def plugin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(request.param, tmp_path_factory.mktemp("plugin"))


def sources(folder: Path, prefix: str) -> set[str]:
    files = (file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {f"{prefix}/{file.relative_to(folder).as_posix()}" for file in files}


def code(built: Built) -> set[str]:
    return {name for name in built.files if ".dist-info/" not in name}


def test_the_core_wheel_holds_the_core_and_nothing_else(core: Built) -> None:
    assert {"uma/__init__.py", "uma/errors.py", "uma/py.typed"} <= core.files
    assert code(core) == sources(CORE, "uma")


def test_the_core_says_what_it_is(core: Built) -> None:
    assert core.metadata["Name"] == "uma-core"
    assert core.metadata["Version"] == uma.__version__
    assert core.metadata["Requires-Python"] == ">=3.10"
    needed = {line.split(";")[0] for line in core.metadata.get_all("Requires-Dist", []) if "extra ==" not in line}
    assert needed == {
        "pluggy<2,>=1.7",
        "numpy>=1.26",
        "cffi>=1.17",
        "packaging>=24",
        "importlib-metadata>=6.5",
        "tomli>=2",
    }
    assert {"onnx", "tflite"} <= set(core.metadata.get_all("Provides-Extra", []))
    assert core.info("entry_points.txt").split() == ["[console_scripts]", "uma", "=", "uma.cli:main"]
    assert core.info("licenses/LICENSE") == (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_the_plugin_wheel_is_found_by_its_entry_point(plugin: Built) -> None:
    package = plugin.project.name.replace("-", "_")
    assert code(plugin) == sources(plugin.project / "src" / package, package)
    assert f"{package}/__init__.py" in plugin.files
    section, *names = plugin.info("entry_points.txt").strip().splitlines()
    assert section == "[uma.plugins]"
    assert {name.partition(" = ")[2] for name in names} == {package}
    assert plugin.metadata["Name"] == plugin.project.name
    spelt = plugin.project.name.replace("-", "")
    served = [name.partition(" = ")[0].replace("_", "") for name in names]
    # One kind at least is called as the package is.
    assert any(one in spelt or one.startswith(spelt.removeprefix("uma")) for one in served)
    assert "uma-core<0.2,>=0.1" in plugin.metadata.get_all("Requires-Dist", [])
    keywords = plugin.metadata["Keywords"].split(",")
    assert sorted(one.split(":")[1] for one in keywords) == sorted(name.partition(" = ")[0] for name in names)
    assert plugin.info("licenses/LICENSE") == (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_the_metapackage_brings_the_core_a_host_and_both_formats(tmp_path: Path) -> None:
    made = Built(ROOT / "packaging" / "uma-compiler", tmp_path)
    assert made.metadata["Name"] == "uma-compiler" and code(made) == set()
    assert set(made.metadata.get_all("Requires-Dist", [])) == {
        "uma-core[onnx,tflite]<0.2,>=0.1",
        "uma-cpu-c<0.2,>=0.1",
    }
    assert made.info("licenses/LICENSE") == (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_an_sdist_has_files_and_no_links(core: Built, plugin: Built) -> None:
    members = [*core.sdist.values(), *plugin.sdist.values()]
    assert [member.name for member in members if not member.isfile()] == []
    assert {"pyproject.toml", "README.md", "LICENSE", "core/version.py"} <= set(core.sdist)
    assert {"pyproject.toml", "README.md", "LICENSE"} <= set(plugin.sdist)
