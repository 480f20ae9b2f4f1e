"""Names of machines, and the emulators that run what is compiled for them."""

from __future__ import annotations

import sysconfig

import pytest

from uma.errors import UsageError
from uma.support.machines import ARCHITECTURES, RUNNERS, Machine, find_runner, same_triple


@pytest.mark.parametrize(
    ("text", "is_bare", "bits"),
    [
        ("aarch64-linux-gnu", False, 64),
        ("x86_64-pc-linux-musl", False, 64),
        ("arm-linux-gnueabihf", False, 32),
        ("arm-none-eabi cortex-m0", True, 32),
        ("riscv64-unknown-elf generic", True, 64),
        ("riscv32-none-elf sifive-e31", True, 32),
    ],
)
def test_a_machine_has_a_name(text: str, is_bare: bool, bits: int) -> None:
    machine = Machine.parse(text)
    assert (str(machine), machine.is_bare, machine.architecture.bits) == (text, is_bare, bits)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "'' names no machine"),
        ("arm", "'arm' names no machine"),
        ("-linux-gnu", "names no machine"),
        ("arm-none-eabi ", "names no machine"),
        ("arm-none-eabi cortex-m0 -x", "names no machine"),
        ("arm-none-eabi $(id)", "names no machine"),
        ("../arm-linux-gnu", "names no machine"),
        ("arm-linux-gnu\n", "names no machine"),
        ("Arm-linux-gnu", "names no machine"),
        ("x" * 10_000, "names no machine"),
        ("s390x-linux-gnu", "stores the highest byte first"),
        ("mips-linux-gnu", "stores the highest byte first"),
        ("z80-none-elf z80", "'z80' is not an architecture that is known"),
        ("x86_64-apple-darwin", "has a system that is not known"),
        ("arm-none-eabi", "its CPU is not said"),
        ("aarch64-linux-gnu cortex-a72", "names a CPU, which does not tell machines with Linux apart"),
    ],
)
def test_what_names_none(text: str, what: str) -> None:
    with pytest.raises(UsageError) as error:
        Machine.parse(text)
    assert what in error.value.what and len(str(error.value)) < 400


def test_spellings_of_one_triple() -> None:
    assert same_triple("x86_64-linux-gnu", "x86_64-pc-linux-gnu")
    assert not same_triple("arm-linux-gnueabihf", "arm-linux-gnueabi")
    assert not same_triple("arm-none-eabi", "aarch64-none-eabi")


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: "aarch64-linux-gnu")
    assert Machine.parse("aarch64-unknown-linux-gnu").is_this
    assert not Machine.parse("aarch64-linux-musl").is_this
    assert not Machine.parse("arm-none-eabi cortex-m0").is_this
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: None)
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert Machine.parse("riscv64-linux-gnu").is_this
    monkeypatch.setattr("sys.platform", "darwin")
    assert not Machine.parse("riscv64-linux-gnu").is_this


def test_every_runner_runs_something_and_says_what_it_does_not() -> None:
    for name, runner in RUNNERS.items():
        assert runner.architecture in ARCHITECTURES
        cpu = runner.board.cpus[0] if runner.board else None
        bare = "arm-none-eabi" if runner.architecture == "arm" else f"{runner.architecture}-unknown-elf"
        machine = Machine(bare if runner.board else f"{runner.architecture}-linux-gnu", cpu)
        assert find_runner(name, Machine.parse(str(machine))) is runner
        other = Machine.parse("x86_64-linux-gnu")
        assert runner.objection(other) == (
            f"{name} runs what is compiled for {runner.architecture} machines "
            f"{'without an operating system' if runner.board else 'with Linux'}, not for x86_64-linux-gnu"
        )


def test_runners_that_do_not_fit() -> None:
    with pytest.raises(UsageError, match="'qemu' is not an emulator that is known") as error:
        find_runner("qemu", None)
    assert "qemu-mps2-an386" in str(error.value)
    with pytest.raises(UsageError, match="'qemu-arm' is for another machine, and none is named"):
        find_runner("qemu-arm", None)
    with pytest.raises(UsageError, match="qemu-microbit has a cortex-m0, which does not run") as error:
        find_runner("qemu-microbit", Machine.parse("arm-none-eabi cortex-m4f"))
    assert error.value.hint == "qemu-mps2-an386 or qemu-mps2-an500 does"
    with pytest.raises(UsageError) as error:
        find_runner("qemu-arm", Machine.parse("x86_64-linux-gnu"))
    assert error.value.hint == "no emulator that is known does"
