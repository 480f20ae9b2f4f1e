"""Two processes at once: right results, and no file that is half-written, whatever happens between them."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from integration_tests.environment import Environment, Wheels, finished
from integration_tests.relu_unit import relu_unit
from tests._support.small_models import Done

TARGETS = ("--target", "relu_unit", "--target", "c")
BUILD = ("build", "net.py", *TARGETS, "-o")


@pytest.fixture(scope="module")
def made(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("two") / "venv", wheels, wheels.needs())
    environment.install("uma-cpu-c")
    return environment


@pytest.fixture
def env(made: Environment, tmp_path: Path) -> Iterator[Environment]:
    """The core, the CPU, and version 1.0 of the plugin that changes."""
    made.install(relu_unit(tmp_path, "1.0"))
    yield made
    made.uninstall("uma-relu-unit")


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    """A cache that has nothing yet."""
    folder = tmp_path / "cold"
    folder.mkdir(mode=0o700)
    return folder


def sound(cache: Path) -> bool:
    """Whether each file of a cache has the digest that its name says; locks lie in a folder of their own."""
    files = [path for path in cache.iterdir() if path.is_file()]
    return all(hashlib.sha256(path.read_bytes()).hexdigest() == path.stem[65:] for path in files)


def whole(folder: Path) -> dict[str, bytes]:
    """The files of an artifact, which are what its metadata say."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    listed = json.loads(files["metadata.json"])["files"]
    assert all(hashlib.sha256(files[name]).hexdigest() == row["sha256"] for name, row in listed.items())
    assert set(files) == {*listed, "metadata.json"}
    return files


def versions(files: dict[str, bytes]) -> set[str]:
    """Of the plugin, by the artifact's metadata and by its C."""
    text = b"".join(files.values()).decode(errors="replace")
    return {*re.findall(r"/\* version (\S+) \*/", text), json.loads(files["metadata.json"])["plugins"]["uma-relu-unit"]}


def together(processes: Sequence[subprocess.Popen[str]]) -> list[Done]:
    return [finished(process) for process in processes]


@pytest.mark.soak
def test_two_that_start_with_a_cold_cache(env: Environment, cold: Path, folder: Path) -> None:
    run = ("run", "net.py", *TARGETS, "--input", "image:0=random:7", "--outputs")
    done = together([env.start("uma", *run, f"{name}.npz", UMA_CACHE_DIR=str(cold)) for name in "ab"])
    assert [one.code for one in done] == [0, 0], done
    assert sound(cold) and len(list(cold.iterdir())) == 1
    warm = together([env.start("uma", *run, f"{name}.npz", UMA_CACHE_DIR=str(cold)) for name in "cd"])
    assert [one.code for one in warm] == [0, 0], warm
    assert len(list(cold.iterdir())) == 1
    results = [np.load(folder / f"{name}.npz")["scores"] for name in "abcd"]
    alone = env.uma("run", "net.py", "--target", "c", "--input", "image:0=random:7", "--outputs", "c.npz")
    assert alone.code == 0
    want = np.load(folder / "c.npz")["scores"]
    assert all(np.array_equal(one, want) for one in results)


# A version 1.0 that says when its hooks are asked, and waits until it may go on.
WAITING = """
import time
from pathlib import Path

def _wait():
    Path("waiting").touch()
    while not Path("go").exists():
        time.sleep(0.01)
"""


@pytest.mark.soak
def test_an_upgrade_while_one_builds(env: Environment, cold: Path, folder: Path) -> None:
    """What it has imported and what it reads later may be of two versions: it says so, and writes nothing."""
    module = env.site / "uma_relu_unit.py"
    assert versions(whole_build(env, "before", cold)) == {"1.0"}
    module.write_text(WAITING + module.read_text().replace("def patterns():\n", "def patterns():\n    _wait()\n"))
    first = env.start("uma", *BUILD, "first", UMA_CACHE_DIR=str(cold))
    while not (folder / "waiting").exists():
        assert first.poll() is None, first.communicate()
    env.install("--upgrade", relu_unit(folder, "2.0"))
    second = whole_build(env, "second", cold)
    (folder / "go").touch()
    said = finished(first).error(5)
    assert "plugin uma-relu-unit 1.0 was replaced by 2.0 while it was in use" in said
    assert "hint: try again, in a new process" in said
    assert versions(second) == {"2.0"} and not (folder / "first").exists()
    assert sound(cold)


@pytest.mark.soak
@pytest.mark.parametrize("rounds", [1, 20])
def test_two_that_write_to_one_folder(rounds: int, env: Environment, folder: Path) -> None:
    """Each replaces the other's, or nothing: what is there in the end is whole, and nothing lies beside it."""
    for _ in range(rounds):
        done = together([env.start("uma", *BUILD, "out") for _ in range(4)])
        assert [one.code for one in done] == [0] * 4, done
        assert versions(whole(folder / "out")) == {"1.0"}
        assert not list(folder.glob(".uma*"))


@pytest.mark.soak
def test_upgrades_at_any_moment(env: Environment, cold: Path, folder: Path) -> None:
    """Each build is of one version, or ends with an error that says what is amiss, and no artifact."""
    # Of different lengths: Python takes byte code to be that of a source of the same second and size.
    wheels = [relu_unit(folder, version) for version in ("2.0.1", "1.0")]
    outcomes = set()
    for turn in range(30):
        out = [folder / f"{turn}-{number}" for number in range(2)]
        processes = [env.start("uma", *BUILD, path, UMA_CACHE_DIR=str(cold)) for path in out]
        time.sleep(turn / 30)  # seconds: about what one takes until it generates C
        env.install(wheels[turn % 2])
        for path, done in zip(out, together(processes), strict=True):
            outcomes.add(done.code)
            if done.code == 0:
                assert len(versions(whole(path))) == 1
            else:
                said = done.error(5 if done.code == 5 else 2)
                assert "uma-relu-unit" in said or "there is no target kind 'relu_unit'" in said
                assert not path.exists()
    assert 0 in outcomes and sound(cold) and not list(folder.glob(".uma*"))


def whole_build(env: Environment, name: str, cache: Path) -> dict[str, bytes]:
    done = env.uma(*BUILD, name, UMA_CACHE_DIR=str(cache))
    assert done.code == 0, done.err
    return whole(Path(name))
