"""An environment of 300 distributions: what is read when, and what is imported for it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from integration_tests.environment import Environment, Wheels
from tests._support.installed import install

# What a process reads of metadata, and which modules it has in the end, as JSON on the last line of stderr.
WATCHED = """
import os, sys

seen = []
def watch(event, args):
    if event in ("open", "os.listdir") and args and "site-packages" in str(args[0]):
        name = os.path.relpath(str(args[0]), {site!r})
        if name == "." or name.endswith((".dist-info", "entry_points.txt", "METADATA")):
            seen.append(name)
sys.addaudithook(watch)
try:
    {code}
except SystemExit:
    pass
finally:
    import json
    names = [name for name in sys.modules if name.partition(".")[0] not in ("encodings", "json")]
    print(json.dumps(dict(seen=seen, modules=names)), file=sys.stderr)
"""

HEAVY = {"numpy", "pluggy", "cffi", "packaging"}
READING = {"importlib.metadata", "importlib_metadata", "email", "zipfile"}


class Watched:
    """What a piece of code read and imported, in a process of its own."""

    def __init__(self, env: Environment, code: str) -> None:
        done = env.run("python", "-c", WATCHED.format(site=str(env.site), code=code))
        assert done.code == 0, done.err
        self.out = done.out
        record = json.loads(done.err.splitlines()[-1])
        self.seen = Counter(record["seen"])
        self.lists = {name: times for name, times in self.seen.items() if name.endswith("entry_points.txt")}
        self.modules = set(record["modules"])


@pytest.fixture(scope="module")
def crowded(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The core, all plugins of the repository, and 300 distributions more, every third of them with a command."""
    made = Environment(tmp_path_factory.mktemp("crowded") / "venv", wheels, wheels.needs())
    made.install("uma-core", *wheels.kinds)
    for index in range(300):
        points = f"[console_scripts]\nx{index} = a:b\n"
        files = {} if index % 3 else {"entry_points.txt": points}
        (install(made.site, f"other-{index}", requires=("numpy",), files=files) / "RECORD").write_text("")
    return made


def command(*words: str) -> str:
    return f"from uma.cli import main; main({list(words)!r})"


@pytest.mark.parametrize("code", ["import uma", command("--help"), command("build", "--help"), command("--version")])
def test_help_reads_no_metadata_and_imports_nothing(code: str, crowded: Environment) -> None:
    found = Watched(crowded, code)
    assert not found.seen
    assert not found.modules & (HEAVY | READING)
    assert not [name for name in found.modules if name.startswith(("uma_", "uma.plugins"))]


def test_finding_reads_each_list_once_and_imports_no_plugin(crowded: Environment, wheels: Wheels) -> None:
    found = Watched(crowded, "from uma.plugins import default_host as host; print(*host().names(), *host().names())")
    assert sorted(found.out.split()) == sorted([name for names in wheels.served.values() for name in names] * 2)
    assert found.seen["."] == 1 and set(found.lists.values()) == {1}
    read = {name.partition("-")[0] for name in found.seen if name.endswith("METADATA")}
    assert read == {name.replace("-", "_") for name in wheels.kinds}  # of what is not a plugin it is not asked for
    assert not found.modules & HEAVY and not [name for name in found.modules if name.startswith("uma_")]


def test_a_build_reads_once_and_imports_what_it_was_asked_for(crowded: Environment, folder: Path) -> None:
    found = Watched(crowded, command("build", "net.py", "--target", "matrix_unit", "--target", "c", "-q"))
    assert (folder / "build" / "net").is_dir()
    # In the end it looks again whether the two are still what they were.
    again = {name for name, times in found.lists.items() if times > 1}
    assert {name.partition("-")[0] for name in again} == {"uma_matrix_unit", "uma_cpu_c"}
    assert set(found.lists.values()) == {1, 2}
    plugins = {name for name in found.modules if name.startswith("uma_") and "." not in name}
    assert plugins == {"uma_matrix_unit", "uma_cpu_c"}


def test_the_states_of_plugins_take_no_import_of_one(crowded: Environment) -> None:
    found = Watched(crowded, command("plugins"))
    assert "uma-matrix-unit" in found.out
    assert not found.modules & {"numpy", "pluggy", "cffi"}
    assert not [name for name in found.modules if name.startswith("uma_")]
