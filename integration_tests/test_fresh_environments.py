"""Real wheels in fresh environments: what is installed is there, what is broken harms nobody but who asks for it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from integration_tests.environment import Environment, Wheels, make_wheel
from tests._support.broken_plugins import BROKEN

TWELVE = (
    "raises", "exits", "removed", "registers", "misspelt", "twice",
    "old-core", "old-api", "hook", "type", "circle", "compiles",
)  # fmt: skip
"""The ways to be broken that are tried one by one here; all the others are installed beside them."""

READ_SCANS = """
import numpy as np
import uma

with np.load("scans.npz") as file:
    scans, labels = file["scans"], file["labels"]
artifact = uma.load("out")
inputs = (scans / 16).astype(np.float32).reshape(-1, 1, 1, 8, 8)
answers = [int(artifact.run(x)["logits"].argmax()) for x in inputs]
print((np.array(answers) == labels).mean())
"""


@pytest.fixture(scope="module")
def alone(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made = Environment(tmp_path_factory.mktemp("alone") / "venv", wheels, wheels.needs())
    made.install("uma-core")
    return made


@pytest.fixture(scope="module")
def pair(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made = Environment(tmp_path_factory.mktemp("pair") / "venv", wheels, wheels.needs("onnx"))
    made.install("uma-core[onnx]", "uma-cpu-c")
    return made


@pytest.fixture(scope="module")
def everything(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """All plugins of the repository, and one that is broken in each way that there is."""
    made = Environment(tmp_path_factory.mktemp("everything") / "venv", wheels, wheels.needs("onnx"))
    made.install("uma-core[onnx]", *wheels.kinds)
    out = tmp_path_factory.mktemp("broken")
    broken = {name: one for name, one in BROKEN.items() if name != "metadata"}
    made.install(*(make_wheel(out, **one.arguments) for one in broken.values()), no_deps=True)
    BROKEN["metadata"].install_in(made.site)  # no installer takes such a wheel
    return made


@pytest.mark.soak
def test_the_metapackage_is_all_that_it_takes(
    wheels: Wheels, tmp_path_factory: pytest.TempPathFactory, folder: Path
) -> None:
    made = Environment(tmp_path_factory.mktemp("meta") / "venv", wheels, wheels.needs("onnx", "tflite"))
    made.install("uma-compiler")
    assert made.uma("build", "digits.onnx", "--target", "c", "-o", "out", "-q").code == 0
    done = made.uma("doctor", "--json")
    assert done.code == 0 and done.json["faults"] == 0
    said = [finding["what"] for finding in done.json["findings"] if finding["check"] == "packages"]
    assert all(f"{use} models are read: the extra {use.lower()!r} is installed" in said for use in ("ONNX", "TFLite"))
    # What an installer leaves of another project's distribution, the name of which is that of our import package.
    info = made.site / "uma-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: uma\nVersion: 1.0\n")
    (info / "RECORD").write_text("uma/__init__.py,,\numa-1.0.dist-info/METADATA,,\numa-1.0.dist-info/RECORD,,\n")
    (made.site / "uma" / "__init__.py").write_text("")
    done = made.uma("doctor")
    assert done.code == 2 and "uma 1.0, another project's distribution, installs an import package 'uma'" in done.out
    assert "hint: pip uninstall uma, then pip install --force-reinstall --no-deps uma-core" in done.out


class TestCoreAlone:
    def test_it_has_commands_and_no_target(self, alone: Environment, folder: Path) -> None:
        assert alone.uma("--help").out.startswith("usage: uma ")
        done = alone.uma("plugins")
        assert (done.code, done.out) == (0, "no plugin is installed; one brings target kinds: pip install PLUGIN\n")
        assert alone.uma("targets").code == 0
        said = alone.uma("build", "net.py", "--target", "c").error(2)
        assert "there is no target kind 'c'" in said and "pip install PLUGIN" in said
        assert not (folder / "build").exists()

    def test_the_doctor_says_what_is_missing(self, alone: Environment) -> None:
        findings = alone.uma("doctor", "--json").json["findings"]
        assert [finding["what"] for finding in findings if finding["status"] == "fault"] == [
            "no plugin brings a host, which every build needs"
        ]

    def test_a_front_end_that_is_no_dependency_is_missing(self, alone: Environment) -> None:
        assert alone.run("python", "-c", "import onnx").code == 1
        said = alone.uma("build", "digits.onnx", "--target", "c").err
        assert "Traceback" not in said and said.startswith("uma: error: ")


class TestCoreAndOnePlugin:
    def test_a_model_is_built_and_gives_right_answers(self, pair: Environment, folder: Path) -> None:
        done = pair.uma("build", "digits.onnx", "--target", "c", "-o", "out")
        assert (done.code, done.err) == (0, "") and done.out.startswith("digits: built for c in ")
        done = pair.run("python", "-c", READ_SCANS)
        assert done.code == 0 and float(done.out) >= 0.97, done.err

    def test_the_module_is_the_command(self, pair: Environment) -> None:
        assert pair.run("python", "-m", "uma", "--version").out == pair.uma("--version").out

    @pytest.mark.soak
    def test_the_doctor_is_content(self, pair: Environment) -> None:
        done = pair.uma("doctor")
        assert done.code == 0 and "nothing is wrong" in done.out


class TestAllPluginsAndBrokenOnes:
    def test_all_are_found_and_none_is_imported(self, everything: Environment, wheels: Wheels) -> None:
        rows = {row["distribution"]: row for row in everything.uma("plugins", "--json").json["plugins"]}
        assert set(rows) == {*wheels.kinds, *(f"uma-{name}" for name in BROKEN)}
        assert {rows[name]["state"] for name in wheels.kinds} == {"compatible"}
        early = {name for name, broken in BROKEN.items() if broken.at == "metadata"}
        assert {name for name in BROKEN if rows[f"uma-{name}"]["state"] == "quarantined"} == early

    def test_help_and_targets(self, everything: Environment, wheels: Wheels) -> None:
        assert everything.uma("--help").code == 0
        done = everything.uma("targets")
        assert done.code == 0
        for kind in wheels.kinds.values():
            assert re.search(rf"^{kind}: (?!cannot be used)", done.out, re.MULTILINE)
        assert re.search(r"^raises: cannot be used: plugin uma-raises 1\.0 ", done.out, re.MULTILINE)

    @pytest.mark.soak
    def test_the_doctor_names_the_broken_ones(self, everything: Environment, wheels: Wheels) -> None:
        done = everything.uma("doctor", "--json")
        assert done.code == 5
        faults = "\n".join(finding["what"] for finding in done.json["findings"] if finding["status"] == "fault")
        for broken in BROKEN.values():
            assert (f"uma-{broken.name} 1.0" in faults) == (broken.at in ("load", "metadata")), broken.name
        assert not [name for name in wheels.kinds if f"plugin {name} " in faults]

    @pytest.mark.soak
    def test_every_sound_plugin_builds(self, everything: Environment, wheels: Wheels, folder: Path) -> None:
        alone = everything.uma("run", "digits.onnx", "--target", "c", "--input", "scan=random:3", "--outputs", "c.npz")
        assert alone.code == 0, alone.err
        accelerators = wheels.accelerators
        targets = [word for kind in (*accelerators, "c") for word in ("--target", kind)]
        done = everything.uma("run", "digits.onnx", *targets, "--input", "scan=random:3", "--outputs", "all.npz")
        assert done.code == 0, done.err
        with np.load(folder / "c.npz") as want, np.load(folder / "all.npz") as got:
            assert set(want) == set(got)
            assert all(np.array_equal(want[name], got[name]) for name in want)

    @pytest.mark.few(2)
    @pytest.mark.parametrize("name", TWELVE)
    def test_who_asks_for_a_broken_one_is_told(self, name: str, everything: Environment, folder: Path) -> None:
        broken = BROKEN[name]
        done = everything.uma("build", "net.py", "--target", broken.kind, "--target", "c")
        said = done.error(5)
        first, *others = said.splitlines()
        assert re.search(broken.what, first) and f"uma-{name}" in said
        assert any(line.startswith("  hint: ") for line in others)
        if broken.raised:
            assert str(everything.site / f"uma_{broken.kind}.py") in said
        assert not (folder / "build").exists()
