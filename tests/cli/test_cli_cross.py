"""Models for other machines on the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests._support.small_models import Uma

pytest.importorskip("uma_cpu_c", reason="the plugin of kind c is not installed")

M4 = "c -mcpu=cortex-m4f"
EMULATED = f"{M4} -runner=qemu-mps2-an386"


def needs_arm() -> None:
    for tool in ("arm-none-eabi-gcc", "qemu-system-arm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def test_it_does_not_run_here(uma: Uma, files: None) -> None:
    text = uma("run", "net.py", "--target", M4).error(2)
    assert text.startswith("the model is compiled for arm-none-eabi cortex-m4f, which this machine is not")
    assert "-runner=qemu-mps2-an386" in text


@pytest.mark.parametrize(
    ("option", "what"),
    [
        (["--profile"], "a model for arm-none-eabi cortex-m4f cannot be timed here"),
        (["--trace", "t.json"], "a model for arm-none-eabi cortex-m4f cannot be timed here"),
        (["--repeat", "3"], "--repeat measures runs, and those in qemu-mps2-an386 do not take the time"),
        (["--repeat", "3", "--profile"], "a model for arm-none-eabi cortex-m4f cannot be timed here"),
    ],
)
def test_times_are_not_to_be_had(option: list[str], what: str, uma: Uma, files: None) -> None:
    assert uma("run", "net.py", "--target", EMULATED, *option).error(2).startswith(what)


def test_run_and_build(uma: Uma, folder: Path) -> None:
    needs_arm()
    here = uma("run", "pair.py", "--target", "c", "--json").json["outputs"]
    assert uma("run", "pair.py", "--target", EMULATED, "--json").json["outputs"] == here
    done = uma("build", "pair.py", "--target", EMULATED, "-o", "out", "--json")
    assert 0 < done.json["code_bytes"] < 10_000
    assert (folder / "out" / "objects" / "c" / "pair.c.o").is_file()
    assert uma("run", "out", "--json").json["outputs"] == here


def test_missing_tools(uma: Uma, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    for command in (["build"], ["run"]):
        text = uma(*command, "net.py", "--target", EMULATED).error(6)
        assert text.startswith("the C compiler 'arm-none-eabi-gcc' for arm-none-eabi is not installed")
    assert not (folder / "build").exists()


@pytest.mark.parametrize("text", [f"{M4} -cflags=-fplugin=x.so", "c -mcpu=cortex-m4 -runner=qemu-arm", "c -cc=a-b-ld"])
def test_what_a_target_cannot_say(text: str, uma: Uma, files: None) -> None:
    assert "where: column " in uma("build", "net.py", "--target", text).error(2)
