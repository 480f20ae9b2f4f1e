"""Installing, upgrading and removing a plugin is all that it takes: the next ``uma build`` is another."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from integration_tests.environment import ROOT, Environment, Wheels
from integration_tests.relu_unit import relu_unit
from packaging.requirements import Requirement
from tests._support.installed import install

BUILD = ("build", "net.py", "--target", "relu_unit", "--target", "c", "-o", "out")
NOTHING = ROOT / "tests" / "stand_ins" / "uma-nothing"


@pytest.fixture(scope="module")
def made(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    needs = [*wheels.needs(), Requirement("hatchling")]
    environment = Environment(tmp_path_factory.mktemp("changing") / "venv", wheels, needs)
    environment.install("uma-cpu-c")
    return environment


@pytest.fixture
def env(made: Environment) -> Iterator[Environment]:
    """The core and the CPU; what a test adds to it goes again."""
    before = {path.name for path in made.site.iterdir()}
    yield made
    for path in made.site.iterdir():
        if path.name not in before and path.name != "__pycache__":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def built(env: Environment, folder: Path, *more: str) -> Mapping[str, bytes]:
    """The files of the artifact."""
    done = env.uma(*BUILD, *more)
    assert done.code == 0, done.err
    return {path.name: path.read_bytes() for path in (folder / "out").iterdir() if path.is_file()}


def plugins(files: Mapping[str, bytes]) -> Mapping[str, str]:
    """What the artifact says of the plugins that made it."""
    found: Mapping[str, str] = json.loads(files["metadata.json"])["plugins"]
    return found


@pytest.mark.soak
def test_upgrade_downgrade_uninstall(env: Environment, folder: Path, tmp_path: Path) -> None:
    wheels = {version: relu_unit(tmp_path, version) for version in ("1.0", "2.0")}
    assert "there is no target kind 'relu_unit'" in env.uma(*BUILD).error(2)
    env.install(wheels["1.0"])
    first = built(env, folder)
    assert plugins(first)["uma-relu-unit"] == "1.0"
    assert any(b"/* version 1.0 */" in text for text in first.values())
    env.install("--upgrade", wheels["2.0"])
    second = built(env, folder)
    assert plugins(second)["uma-relu-unit"] == "2.0"
    assert any(b"/* version 2.0 */" in text for text in second.values())
    assert not any(b"/* version 1.0 */" in text for text in second.values())
    env.install(wheels["1.0"])
    assert built(env, folder) == first
    env.uninstall("uma-relu-unit")
    assert "there is no target kind 'relu_unit'" in env.uma(*BUILD).error(2)
    assert {path.name: path.read_bytes() for path in (folder / "out").iterdir() if path.is_file()} == first
    assert "relu" not in env.uma("plugins").out


@pytest.mark.soak
def test_the_host_is_a_plugin_like_any_other(env: Environment, wheels: Wheels) -> None:
    command = ("build", "net.py", "--target", "c")
    assert env.uma(*command).code == 0
    env.uninstall("uma-cpu-c")
    try:
        assert "there is no target kind 'c'" in env.uma(*command).error(2)
    finally:
        env.install("uma-cpu-c")
    assert env.uma(*command).code == 0


@pytest.mark.soak
@pytest.mark.parametrize("lost", ["modules", "METADATA", "entry_points.txt", "all but a renamed folder"])
def test_removed_half_way(lost: str, env: Environment, folder: Path, tmp_path: Path) -> None:
    env.install(relu_unit(tmp_path, "1.0"))
    info = env.site / "uma_relu_unit-1.0.dist-info"
    if lost == "modules":
        (env.site / "uma_relu_unit.py").unlink()
        shutil.rmtree(env.site / "__pycache__", ignore_errors=True)
        said = env.uma(*BUILD).error(5)
        assert "plugin uma-relu-unit 1.0 cannot be imported: ModuleNotFoundError" in said
        assert "pip install --force-reinstall uma-relu-unit" in said
    elif lost == "METADATA":
        (info / lost).unlink()
        said = env.uma(*BUILD).error(5)
        assert "plugin uma-relu-unit (no version) has metadata without a version" in said
        assert "pip install --force-reinstall uma-relu-unit" in said
    else:
        if lost == "entry_points.txt":
            (info / lost).unlink()
        else:
            info.rename(env.site / "~ma_relu_unit-1.0.dist-info")
        assert "there is no target kind 'relu_unit'" in env.uma(*BUILD).error(2)
    assert env.uma("build", "net.py", "--target", "c").code == 0
    assert env.uma("plugins").code == 0


@pytest.mark.soak
def test_two_distributions_that_claim_one_kind(env: Environment, folder: Path, tmp_path: Path) -> None:
    env.install(relu_unit(tmp_path, "1.0"), relu_unit(tmp_path, "3.0", name="uma-other-unit"))
    said = env.uma(*BUILD).error(5)
    assert "uma-other-unit 3.0 (uma_other_unit), uma-relu-unit 1.0 (uma_relu_unit)" in said
    assert env.uma("build", "net.py", "--target", "c").code == 0
    chosen = built(env, folder, "--disable-plugin", "uma-relu-unit")
    assert "uma-other-unit" in plugins(chosen) and "uma-relu-unit" not in plugins(chosen)
    env.uninstall("uma-other-unit")
    assert plugins(built(env, folder))["uma-relu-unit"] == "1.0"


@pytest.mark.parametrize("spelling", ["UMA_Relu.unit", pytest.param("uma.relu-unit", marks=pytest.mark.soak)])
def test_names_that_differ_in_case_and_signs_are_one(
    spelling: str, env: Environment, folder: Path, tmp_path: Path
) -> None:
    """The second, on a folder of the path before the environment's, is the one that is imported, and that counts."""
    env.install(relu_unit(tmp_path, "1.0"))
    other = tmp_path / "other"
    other.mkdir()
    source = (env.site / "uma_relu_unit.py").read_text().replace('"1.0"', '"2.0"')
    install(other, spelling, {"relu_unit": "uma_relu_unit"}, version="2.0")
    (other / "uma_relu_unit.py").write_text(source)
    done = env.uma(*BUILD, PYTHONPATH=str(other))
    assert done.code == 0, done.err
    files = {path.name: path.read_bytes() for path in (folder / "out").iterdir() if path.is_file()}
    assert plugins(files)[spelling] == "2.0"
    assert any(b"/* version 2.0 */" in text for text in files.values())
    listed = env.uma("plugins", "--json", PYTHONPATH=str(other)).json["plugins"]
    assert [row["version"] for row in listed if "relu_unit" in row["names"]] == ["2.0"]
    disabled = env.uma(*BUILD, "--disable-plugin", "uma-RELU_unit", PYTHONPATH=str(other))
    assert "is disabled on request" in disabled.error(2)


def test_an_editable_install(env: Environment, tmp_path: Path, folder: Path) -> None:
    """What is changed in the sources is used by the next command."""
    sources = tmp_path / "uma-nothing"
    shutil.copytree(NOTHING, sources, ignore=shutil.ignore_patterns("__pycache__"))
    # The sources' folder on the path, as this says it, takes no helper that a build would have to fetch.
    with (sources / "pyproject.toml").open("a") as project:
        project.write('\n[tool.hatch.build]\ndev-mode-dirs = ["src"]\n')
    env.install("--no-build-isolation", "--editable", sources)
    [row] = [row for row in env.uma("plugins", "--json").json["plugins"] if row["distribution"] == "uma-nothing"]
    assert row["editable"] is True
    command = ("build", "net.py", "--target", "nothing", "--target", "c")
    assert env.uma(*command).code == 0
    module = sources / "src" / "uma_nothing" / "__init__.py"
    module.write_text(module.read_text().replace("no op", "no op yet"))
    assert "nothing: an accelerator that takes no op yet" in env.uma("targets").out
    module.write_text("raise RuntimeError('half written')\n")
    assert f"{module}:1" in env.uma(*command).error(5)


def test_a_wheel_on_the_path_is_imported_as_it_is(env: Environment, wheels: Wheels, tmp_path: Path) -> None:
    """Wheels are archives that Python imports from; the sources of drivers are in them."""
    paths = [str(relu_unit(tmp_path, "1.0")), *map(str, wheels.folder.glob("uma_matrix_unit-*.whl"))]
    path = os.pathsep.join(paths)
    done = env.uma(*BUILD, "--target", "matrix_unit", PYTHONPATH=path)
    assert done.code == 0, done.err
    shown = env.uma("plugins", "matrix_unit", "--json", PYTHONPATH=path)
    assert shown.json["plugins"][0]["location"].endswith(".whl")
