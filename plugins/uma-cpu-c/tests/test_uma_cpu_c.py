"""The kind `c`: its attributes, and the flags that they become."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests._support.tools import skip_without

from uma.errors import UsageError
from uma.hookspecs import TargetCode
from uma.plugins import PluginEntry, PluginHost
from uma.targets import Target
from uma.toolchain import KNOWN_COMPILERS, refused_flags
from uma.toolchain.compile import CompileUnit, compile_shared
from uma.toolchain.discovery import find_compiler
from uma_cpu_c import features
from uma_cpu_c.features import features_of

MATH = ("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")


@pytest.fixture
def host() -> PluginHost:
    return PluginHost(lambda: [PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0", ("uma-core>=0.1,<0.2",))])


def code(host: PluginHost, text: str) -> TargetCode:
    found = host.plugin_for("c").call("tir_to_runtime", module=object(), prefix="m_on_x", target=host.target(text))
    assert isinstance(found, TargetCode) and set(found.headers) == {
        "uma_dots.h",
        "uma_dsp.h",
        "uma_dsp_depth.h",
        "uma_mve.h",
        "uma_transpose.h",
    }
    return replace(found, headers={})


def derived(host: PluginHost, text: str) -> dict[str, object]:
    return dict(host.target(text).derived)


def on(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)


def test_it_is_a_host_for_cpus(host: PluginHost) -> None:
    kind = host.kind("c")
    assert (kind.name, kind.device_type, kind.is_host) == ("c", "cpu", True)
    assert [attribute.name for attribute in kind.attributes] == [
        "mcpu", "mtriple", "cc", "opt", "cflags", "mattr", "mfloat-abi", "runner", "clock_hz", "threads",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("machine", "text", "flags"),
    [
        ("x86_64", "c", ("-O3", "-march=native")),
        ("AMD64", "c", ("-O3", "-march=native")),
        ("x86_64", "c -mcpu=x86-64-v3 -opt=s", ("-Os", "-march=x86-64-v3")),
        ("aarch64", "c", ("-O3", "-mcpu=native")),
        ("arm64", "c -mcpu=apple-m1 -opt=0", ("-O0", "-mcpu=apple-m1")),
        ("armv7l", "c -mcpu=cortex-a7", ("-O3", "-mcpu=cortex-a7")),
        ("riscv64", "c", ("-O3",)),
        ("riscv64", "c -mcpu=sifive-u74", ("-O3", "-mcpu=sifive-u74")),
    ],
)
def test_flags_for_a_machine(
    machine: str, text: str, flags: tuple[str, ...], host: PluginHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(machine, monkeypatch)
    assert code(host, text) == TargetCode(cflags=flags + MATH, cc=None)


SOFT, FPV4, FPV5 = (
    ("-mthumb", "-mfloat-abi=soft"),
    ("-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"),
    ("-mthumb", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"),
)


@pytest.mark.parametrize(
    ("asked", "mcpu", "flags"),
    [
        ("cortex-m0", "cortex-m0", SOFT),
        ("cortex-m0plus", "cortex-m0plus", SOFT),
        ("cortex-m3", "cortex-m3", SOFT),
        ("cortex-m4", "cortex-m4", SOFT),
        ("cortex-m4f", "cortex-m4", FPV4),
        ("cortex-m7", "cortex-m7", SOFT),
        ("cortex-m7f", "cortex-m7", FPV5),
        ("cortex-m33", "cortex-m33", SOFT),
        ("cortex-m33f", "cortex-m33", FPV5),
        ("cortex-m55", "cortex-m55", ("-mthumb", "-mfloat-abi=hard")),
        ("cortex-m55+nomve", "cortex-m55+nomve", ("-mthumb", "-mfpu=fpv5-d16", "-mfloat-abi=hard")),
        ("cortex-m85", "cortex-m85", ("-mthumb", "-mfloat-abi=hard")),
    ],
)
def test_a_microcontrollers_cpu_says_it_all(asked: str, mcpu: str, flags: tuple[str, ...], host: PluginHost) -> None:
    found = {"mcpu": mcpu, "mtriple": "arm-none-eabi", "cc": "arm-none-eabi-gcc", "cflags": flags}
    assert derived(host, f"c -mcpu={asked}") == {n: v for n, v in found.items() if (n, v) != ("mcpu", asked)}
    assert code(host, f"c -mcpu={asked}") == TargetCode(
        cflags=("-O3", "-funroll-loops", f"-mcpu={mcpu}", *MATH, *flags),
        cc="arm-none-eabi-gcc",
        machine=f"arm-none-eabi {asked}",
        clock_hz=100e6,
    )


@pytest.mark.parametrize(("level", "wanted"), [("0", "-O0"), ("2", "-O2"), ("s", "-O2")])
def test_a_microcontrollers_loops_are_small_by_themselves(level: str, wanted: str, host: PluginHost) -> None:
    assert code(host, f"c -mcpu=cortex-m3 -opt={level}").cflags[:2] == (wanted, "-mcpu=cortex-m3")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "c -mtriple=aarch64-linux-gnu",
            TargetCode(("-O3", *MATH), "aarch64-linux-gnu-gcc", "aarch64-linux-gnu"),
        ),
        (
            "c -mcpu=cortex-a72 -opt=s -cc=aarch64-linux-gnu-gcc-12 -runner=qemu-aarch64",
            TargetCode(
                ("-Os", "-mcpu=cortex-a72", *MATH), "aarch64-linux-gnu-gcc-12", "aarch64-linux-gnu", "qemu-aarch64"
            ),
        ),
        (
            "c -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3 -cc=clang",
            TargetCode(("-O3", "-march=x86-64-v3", *MATH), "clang", "x86_64-linux-gnu"),
        ),
        (
            "c -mtriple=aarch64-linux-musl -cc=ziglang",
            TargetCode(("-O3", *MATH), "ziglang", "aarch64-linux-musl"),
        ),
        (
            "c -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -cc=ziglang",
            TargetCode(("-O3", "-mcpu=cortex_a72", *MATH), "ziglang", "aarch64-linux-gnu"),
        ),
        (
            "c -mtriple=riscv64-unknown-elf -mcpu=generic -cflags=-march=rv64imac,-mabi=lp64,-mcmodel=medany",
            TargetCode(
                ("-O3", *MATH, "-march=rv64imac", "-mabi=lp64", "-mcmodel=medany"),
                "riscv64-unknown-elf-gcc",
                "riscv64-unknown-elf generic",
            ),
        ),
        (
            "c -mcpu=cortex-m4 -cflags=-mfloat-abi=hard,-mfpu=fpv4-sp-d16,-g",
            TargetCode(
                (
                    *("-O3", "-funroll-loops", "-mcpu=cortex-m4", *MATH),
                    *("-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-g"),
                ),
                "arm-none-eabi-gcc",
                "arm-none-eabi cortex-m4",
            ),
        ),
    ],
)
def test_other_machines(text: str, wanted: TargetCode, host: PluginHost) -> None:
    assert code(host, text) == replace(wanted, clock_hz=100e6)
    assert code(host, f"{text} -clock_hz=32768").clock_hz == 32768


def test_more_flags_for_this_machine_come_last(host: PluginHost, monkeypatch: pytest.MonkeyPatch) -> None:
    on("x86_64", monkeypatch)
    found = code(host, "c -mcpu=x86-64 -cflags=-ffp-contract=fast,-Wall")
    assert found == TargetCode(("-O3", "-march=x86-64", *MATH, "-ffp-contract=fast", "-Wall"))
    assert derived(host, "c -mcpu=x86-64 -cflags=-Wall") == {}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("c -mcpu=cortex-m4 -mtriple=aarch64-linux-gnu", "is for arm-none-eabi, and .* for aarch64-linux-gnu"),
        ("c -mcpu=cortex-m4 -cc=aarch64-linux-gnu-gcc", "is for arm-none-eabi, and .* for aarch64-linux-gnu"),
        (
            "c -mtriple=riscv64-linux-gnu -cc=aarch64-linux-gnu-gcc",
            "is for aarch64-linux-gnu, and .* riscv64-",
        ),
        ("c -mtriple=arm-none-eabi", "has no operating system: its CPU must be said"),
        ("c -mtriple=aarch64-linux-gnu -mcpu=native", "-mcpu=native is this machine's CPU"),
        ("c -mtriple=aarch64-linux-gnu -cc=gcc", "-cc=gcc compiles for this machine"),
        ("c -mtriple=aarch64-linux-gnu -cc=cc", "-cc=cc compiles for this machine"),
        ("c -mcpu=cortex-m4 -cc=ziglang", "-cc=ziglang has no C library for arm-none-eabi"),
        ("c -mtriple=aarch64_be-linux-gnu", "stores the highest byte first"),
        ("c -mtriple=armeb-none-eabi -mcpu=cortex-r4", "stores the highest byte first"),
        ("c -mtriple=avr-none-elf -mcpu=avr5", "'avr' is not an architecture that is known"),
        ("c -mtriple=x86_64-apple-darwin", "has a system that is not known"),
        ("c -mcpu=stm32f407vg", "names a chip, not a CPU; its core is cortex-m4f"),
        ("c -mcpu=nRF5340", "names a chip, not a CPU; its core is cortex-m33f"),
        ("c -mcpu=rp2040 -mtriple=arm-none-eabi", "names a chip, not a CPU; its core is cortex-m0plus"),
        ("c -mcpu=cortex-m4x", "-mcpu=cortex-m4x is not a known microcontroller"),
        ("c -mcpu=cortex-m4f -cflags=-mfloat-abi=soft", "contradicts -mcpu=cortex-m4f, which is -mfloat-abi=hard"),
        ("c -mcpu=cortex-m4f -cflags=-mfpu=fpv5-d16", "contradicts -mcpu=cortex-m4f, which is -mfpu=fpv4-sp-d16"),
        ("c -mcpu=cortex-m0 -cflags=-marm", "contradicts -mcpu=cortex-m0, which is -mthumb"),
        ("c -cflags=-mcpu=cortex-m4", "is what the attribute 'mcpu' says"),
        ("c -cflags=-march=native", "is what the attribute 'mcpu' says"),
        ("c -cflags=-O2", "is what the attribute 'opt' says"),
        ("c -mtriple=aarch64-linux-gnu -cflags=-mabi=lp64", "is for RISC-V and LoongArch, not for aarch64-linux-gnu"),
        ("c -cflags=-Dint=long", "'-Dint=long' of -cflags may not reach a compiler"),
        ("c -cflags=-std=c11", "contradicts the code, which is C99"),
        ("c -cflags=-fplugin=x.so", "'-fplugin=x.so' of -cflags may not reach a compiler"),
        ("c -cflags='-Wl,-rpath'", "may not reach a compiler"),
        ("c -cflags=x.c", "may not reach a compiler"),
        ("c -runner=qemu-arm", "'qemu-arm' is for another machine, and none is named"),
        ("c -mcpu=cortex-m4f -runner=qemu-mps2-an385", "has a cortex-m3, which does not run what is compiled for"),
        ("c -mcpu=cortex-m4f -runner=qemu-arm", "runs what is compiled for arm machines with Linux"),
        ("c -mtriple=arm-linux-gnueabihf -runner=qemu-mps2-an385", "arm machines without an operating system"),
    ],
)
def test_what_contradicts_itself(text: str, what: str, host: PluginHost) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        host.target(text)
    assert (caught.value.where or "").startswith("column 1 of the target")


@pytest.mark.parametrize(
    ("text", "flags", "extensions"),
    [
        ("c -mcpu=x86-64-v3 -mattr=+avxvnni,-fma", "-march=x86-64-v3 -mavxvnni -mno-fma", {"avx_vnni"}),
        ("c -mcpu=x86-64-v4 -mattr=-avx512f", "-march=x86-64-v4 -mno-avx512f", {"avx2", "fma"}),
        ("c -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+dotprod", "-mcpu=cortex-a72+dotprod", {"asimddp"}),
        ("c -mtriple=aarch64-linux-gnu -mattr=+dotprod,+fp16", "-mcpu=generic+dotprod+fp16", {"asimddp"}),
        ("c -mcpu=cortex-m55 -mattr=-mve", "-mcpu=cortex-m55+nomve -mfpu=fpv5-d16 -mfloat-abi=hard", {"dsp"}),
        ("c -mcpu=cortex-m33 -mattr=-dsp", "-mcpu=cortex-m33+nodsp -mfloat-abi=soft", {"thumb2"}),
        ("c -mcpu=cortex-m4 -mfloat-abi=hard -cflags=-mfpu=fpv4-sp-d16", "-mfloat-abi=hard", {"float32", "fma"}),
        ("c -mcpu=cortex-m4 -mfloat-abi=softfp -cflags=-mfpu=fpv4-sp-d16", "-mfloat-abi=softfp", {"float32", "fma"}),
    ],
)
def test_extensions_are_flags_of_the_compiler_and_instructions_of_the_loops(
    text: str, flags: str, extensions: set[str], host: PluginHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_x86 = platform.machine() == "x86_64"
    on("x86_64", monkeypatch)
    target = host.target(text)
    given = code(host, text)
    assert set(flags.split()) <= set(given.cflags) and refused_flags(given.cflags) == []
    compiler = given.cc or "gcc"
    if shutil.which(compiler) is None or not (given.cc or is_x86):
        pytest.skip(f"{compiler} is not installed, or not for x86-64")
    command = [compiler, *given.cflags, "-Werror", "-x", "c", "-c", "-o", "/dev/null", "-"]
    subprocess.run(command, input=b"float f(float x); float f(float x) { return x * 2; }", check=True)
    with_extensions, without = (
        features_of(target),
        features_of(host.target(re.sub(" -m(attr|float-abi)=[^ ]*", "", text))),
    )
    assert extensions <= with_extensions != without


@pytest.mark.parametrize(
    ("machine", "text", "what"),
    [
        ("x86_64", "c -mfloat-abi=hard", "-mfloat-abi=hard has no effect: x86_64 passes floats in one way"),
        ("x86_64", "c -mtriple=aarch64-linux-gnu -mfloat-abi=soft", "has no effect: aarch64 passes floats in one way"),
        ("x86_64", "c -mcpu=cortex-m4f -mfloat-abi=softfp", "contradicts -mcpu=cortex-m4f, which is -mfloat-abi=hard"),
        ("x86_64", "c -mcpu=cortex-m4 -mfloat-abi=hard -cflags=-mfloat-abi=soft", "contradicts -mfloat-abi=hard"),
        ("x86_64", "c -mattr=+avx51", "'+avx51' of -mattr is not an extension of x86_64 that is known"),
        (
            "x86_64",
            "c -mcpu=cortex-m0 -mattr=+neon",
            "'+neon' of -mattr is not an extension of cortex-m0 that is known",
        ),
        ("x86_64", "c -mtriple=riscv64-linux-gnu -mattr=+m", "-mattr has no effect for riscv64"),
        ("x86_64", "c -cflags=-mavx2", "the flag '-mavx2' of -cflags is what the attribute 'mattr' says"),
        ("aarch64", "c -mattr=+dotprod", "-mattr adds to the name of a CPU, and -mcpu=native has none"),
        ("x86_64", "c -from_device=1", "there is no CPU 1: this machine's CPU is number 0"),
        ("x86_64", "c -from_device=0 -mcpu=haswell", "-from_device=0 is this machine's CPU, and -mcpu says"),
        ("x86_64", "c -from_device=0 -mtriple=aarch64-linux-gnu", "and -mtriple says what the CPU is as well"),
        ("riscv64", "c -from_device=0", "-from_device=0 has no effect on riscv64"),
    ],
)
def test_extensions_and_devices_that_there_are_not(
    machine: str, text: str, what: str, host: PluginHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(machine, monkeypatch)
    with pytest.raises(UsageError, match=re.escape(what)):
        host.target(text)


@pytest.mark.parametrize(
    ("machine", "found", "text"),
    [
        ("x86_64", "", "c -mcpu=x86-64"),
        ("x86_64", "v2", "c -mcpu=x86-64-v2"),
        ("x86_64", "v2 v3 avx_vnni", "c -mcpu=x86-64-v3 -mattr=+avxvnni"),
        ("x86_64", "v2 v4 avx512_vnni", "c -mcpu=x86-64-v2 -mattr=+avx512vnni"),
        ("x86_64", "v2 v3 v4 avx512_vnni avx512_vbmi2", "c -mcpu=x86-64-v4 -mattr=+avx512vnni,+avx512vbmi2"),
        ("aarch64", "asimd", "c -mcpu=generic"),
        ("aarch64", "asimd asimddp", "c -mcpu=generic -mattr=+dotprod"),
    ],
)
def test_this_machines_cpu_is_copied(
    machine: str, found: str, text: str, host: PluginHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(machine, monkeypatch)
    words = [features._X86_EDITIONS.get(f"x86-64-{word}", word).split() for word in found.split()]
    monkeypatch.setattr(features, "cpu_features", lambda: frozenset(word for some in words for word in some))
    target = host.target("c -from_device=0 -opt=2")
    assert target.attrs.get("mattr") != () and target == host.target(f"{text} -opt=2")


def test_what_was_copied_is_what_native_is(host: PluginHost) -> None:
    """The same loops for the same CPU, by names that mean the same on another machine."""
    if platform.machine() != "x86_64" or shutil.which("gcc") is None:
        pytest.skip("no x86-64, or no gcc")
    assert features_of(host.target("c -from_device=0")) == features_of(host.target("c"))


@pytest.mark.parametrize(
    "text",
    [
        "c -mcpu=cortex-m7f",
        "c -mtriple=aarch64-linux-gnu -cc=clang",
        "c -mtriple=aarch64-linux-gnu -mattr=+dotprod",
        "c -mtriple=x86_64-linux-gnu -mcpu=haswell -cc=clang -mattr=+avxvnni,-fma",
        "c -mcpu=cortex-m33 -mattr=-dsp -mfloat-abi=soft",
    ],
)
def test_what_follows_follows_again(text: str, host: PluginHost) -> None:
    target = host.target(text)
    again = Target(target.kind, {**target.attrs, **target.derived})
    assert {name: again.get_attr(name) for name in target.derived} == dict(target.derived)


@pytest.mark.parametrize(
    "name",
    ["cc", "gcc", "clang", "gcc-12", "clang-3.9", "ziglang", "arm-none-eabi-gcc", "riscv64-unknown-elf-gcc-12"],
)
def test_the_compiler_goes_by_a_name_that_the_core_knows(name: str, host: PluginHost) -> None:
    cpu = " -mcpu=generic" if "-e" in name else ""
    assert code(host, f"c -cc={name}{cpu}").cc == name
    assert KNOWN_COMPILERS.fullmatch(name)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("c -cc=/usr/bin/gcc", 7),
        ("c -cc=tcc", 7),
        ("c -cc='gcc -O3'", 7),
        ("c -cc=gcc-", 7),
        ("c -cc=-gcc", 7),
        ("c -cc=arm-none-eabi-ld", 7),
        ("c -cc=../arm-none-eabi-gcc", 7),
        ("c -mtriple='arm none'", 12),
        ("c -mtriple=arm", 12),
        ("c -mtriple=--target=x", 12),
        ("c -runner=/bin/sh", 11),
        ("c -runner=qemu", 11),
        ("c -opt=4", 8),
        ("c -opt=fast", 8),
        ("c -mcpu=-fplugin=x", 9),
        ("c -mcpu=-fplugin", 9),
        ("c -mcpu='native -fplugin=x.so'", 9),
        ("c -mcpu=a/b", 9),
        ("c -mcpu=''", 9),
        ("c -mcpu=" + "x" * 65, 9),
    ],
)
def test_nothing_else_gets_into_a_command_line(text: str, column: int, host: PluginHost) -> None:
    with pytest.raises(UsageError) as caught:
        host.target(text)
    assert (caught.value.where or "").startswith(f"column {column} of the target")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
@pytest.mark.parametrize("opt", ["0", "1", "2", "3", "s"])
def test_the_core_accepts_every_flag(opt: str, machine: str, host: PluginHost, monkeypatch: pytest.MonkeyPatch) -> None:
    on(machine, monkeypatch)
    assert refused_flags(code(host, f"c -opt={opt} -mcpu={'x' * 64}").cflags) == []


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_compilers_accept_the_flags_without_a_warning(compiler: str, host: PluginHost, tmp_path: Path) -> None:
    skip_without(compiler)
    source = "float twice(float x);\nfloat twice(float x) { return x * 2.0f; }\n"
    flags = (*code(host, "c").cflags, "-Wall", "-Wextra", "-Werror")
    library = compile_shared([CompileUnit(find_compiler(compiler), ["a.c"], flags)], {"a.c": source}, tmp_path / "a.so")
    assert library.is_file()
