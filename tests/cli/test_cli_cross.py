"""Models for other machines on the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests._support.small_models import Uma
from tests._support.tools import skip_without

pytest.importorskip("uma_cpu_c", reason="the plugin of kind c is not installed")

M4 = "c -mcpu=cortex-m4f"
EMULATED = f"{M4} -runner=qemu-mps2-an386"


def needs_arm() -> None:
    skip_without("arm-none-eabi-gcc", "qemu-system-arm")


def test_it_does_not_run_here(uma: Uma, files: None) -> None:
    text = uma("run", "net.py", "--target", M4).error(2)
    assert text.startswith("the model is compiled for arm-none-eabi cortex-m4f, which this machine is not")
    assert "-runner=qemu-mps2-an386" in text


@pytest.mark.parametrize("option", [[], ["--profile"], ["--trace", "t.json"]])
def test_times_are_not_to_be_had(option: list[str], uma: Uma, files: None) -> None:
    what = "--repeat measures runs, and those in qemu-mps2-an386 do not take the time"
    assert uma("run", "net.py", "--target", EMULATED, "--repeat", "3", *option).error(2).startswith(what)


def test_instructions_are_counted(uma: Uma, folder: Path) -> None:
    needs_arm()
    outputs = uma("run", "pair.py", "--target", "c", "--json").json["outputs"]
    told = uma("run", "pair.py", "--target", f"{EMULATED} -clock_hz=2e6", "--profile", "--json").json
    assert (told["outputs"], told["runs"], told["uncounted"]) == (outputs, 1, None)
    counts, rows = told["counts"], told["profile"]
    assert all(row["instructions"] > 0 and row["cycles"] >= row["instructions"] for row in rows)
    assert all(row["median_us"] is row["gops"] is None for row in rows)
    assert 0 < counts["instructions"] - sum(row["instructions"] for row in rows) < 100
    assert counts["seconds"] == counts["cycles"] / 2e6 and counts["runner"] == "qemu-mps2-an386"
    assert sum(counts["functions"].values()) == sum(counts["mnemonics"].values()) == counts["instructions"]
    shown = uma("run", "pair.py", "--target", EMULATED, "--profile").out
    assert "per MAC" in shown and f"{counts['instructions']} " in shown and "around the calls" in shown
    assert any(row["stack_bytes"] is not None for row in rows) and "~us  stack" in shown
    assert "at 1e+08 Hz (-clock_hz)" in shown and "bytes of stack" in shown
    uma("run", "pair.py", "--target", EMULATED, "--trace", "t.json")
    assert (folder / "t.json").is_file()


def test_an_emulator_that_refuses_the_plugin(uma: Uma, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_arm()
    script = 'case "$*" in *-plugin*) echo plugins of version 9 only; exit 1;; esac; exec "$REAL" "$@"'
    path = folder / "bin" / "qemu-system-arm"
    path.parent.mkdir()
    path.write_text(f"#!{shutil.which('sh')}\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("REAL", str(shutil.which("qemu-system-arm")))
    monkeypatch.setenv("PATH", str(path.parent), prepend=":")
    done = uma("run", "pair.py", "--target", EMULATED, "--profile")
    assert "not counted: qemu-system-arm does not take the plugin that counts: plugins of version 9 only" in done.err
    told = uma("run", "pair.py", "--target", EMULATED, "--profile", "--json").json
    assert told["counts"] is None and "plugins of version 9 only" in told["uncounted"]
    assert told["outputs"] == uma("run", "pair.py", "--target", "c", "--json").json["outputs"]
    assert all(row["instructions"] is row["median_us"] is None for row in told["profile"])


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
