"""What ``uma new-plugin`` writes is right as it stands: built, installed into a fresh environment, tested, checked."""

from __future__ import annotations

from pathlib import Path

import pytest
from integration_tests.environment import Environment, Wheels, build_wheels
from packaging.requirements import Requirement

from uma.scaffold import DTYPES, LOWERINGS


@pytest.fixture(scope="module")
def fresh(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The core and a host, and what tests and models need."""
    needs = [*wheels.needs(), Requirement("pytest")]
    made = Environment(tmp_path_factory.mktemp("new") / "venv", wheels, needs)
    made.install("uma-core", "uma-cpu-c")
    return made


@pytest.mark.soak
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lowering", LOWERINGS)
def test_a_new_plugin_passes_its_tests_and_the_kit(
    fresh: Environment, lowering: str, dtype: str, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = f"acme_{lowering}_{dtype}"
    made = fresh.uma("new-plugin", name, "--lowering", lowering, "--dtype", dtype, "--json")
    assert made.code == 0, made.err
    project, distribution = folder / made.json["folder"], made.json["distribution"]
    wheels = build_wheels(tmp_path_factory.mktemp("wheel"), [project])
    fresh.install(*wheels.folder.glob("*.whl"), no_deps=True)
    try:
        tested = fresh.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", project)
        assert tested.code == 0, tested.out
        checked = fresh.uma("check", distribution, "--json")
        assert checked.code == 0, checked.out
        assert checked.json["passed"] and not (folder / "uma-check").exists()
        targets = fresh.uma("build", "net.py", "--target", name, "--target", "c", "-o", "out", "-q")
        assert targets.code == 0, targets.err
    finally:
        fresh.uninstall(distribution)
