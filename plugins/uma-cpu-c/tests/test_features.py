"""What a CPU can, told from its name; and sums of products, which are rounded once where it can."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

import uma
from uma.plugins import PluginEntry, PluginHost
from uma.support import machines
from uma_cpu_c.features import cpu_of

FLOATS = {"float32", "float64"}
DOT = """\
signature(inputs=[tensor('x'), tensor('y')], outputs=[tensor('z')])

@function
def main(x: Tensor[(3, 37), float32], y: Tensor[(5, 37), float32]) -> Tensor[(3, 5), float32]:
    v0 = nn.dense(x, y)
    return v0
"""


@pytest.fixture
def host() -> PluginHost:
    return PluginHost(lambda: [PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0")])


def features(host: PluginHost, text: str) -> frozenset[str]:
    kind = host.kind("c")
    assert kind.features is not None
    return kind.features(host.target(text))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("-mtriple=x86_64-linux-gnu", FLOATS),
        ("-mtriple=x86_64-linux-gnu -mcpu=x86-64-v2", FLOATS),
        ("-mtriple=x86_64-linux-gnu -mcpu=no-such-cpu", FLOATS),
        ("-mtriple=x86_64-linux-gnu -mcpu=x86-64-v3", FLOATS | {"avx2", "fma"}),
        ("-mtriple=x86_64-linux-gnu -mcpu=alderlake", FLOATS | {"avx2", "fma", "avx_vnni"}),
        ("-mtriple=i686-linux-gnu", set()),
        ("-mtriple=aarch64-linux-gnu", FLOATS | {"asimd", "fma"}),
        ("-mtriple=aarch64-linux-gnu -mcpu=cortex-a72", FLOATS | {"asimd", "fma"}),
        ("-mtriple=aarch64-linux-gnu -mcpu=cortex-a76", FLOATS | {"asimd", "fma", "asimddp"}),
        # Names that only compilers know; what none knows, or none is there for.
        ("-mtriple=x86_64-linux-gnu -cc=clang -mcpu=bdver4", FLOATS | {"avx2", "fma"}),
        ("-mtriple=x86_64-linux-gnu -cc=clang -cflags=-march=bdver4", FLOATS | {"avx2", "fma"}),
        ("-mtriple=aarch64-linux-gnu -cc=clang -mcpu=tsv110", FLOATS | {"asimd", "fma", "asimddp"}),
        ("-mtriple=aarch64-linux-gnu -cc=clang -mcpu=cortex-a76+nodotprod", FLOATS | {"asimd", "fma"}),
        ("-mtriple=aarch64-linux-gnu -cc=clang -mcpu=no-such-cpu", FLOATS | {"asimd", "fma"}),
        ("-mtriple=aarch64-linux-gnu -cc=clang-99 -mcpu=tsv110", FLOATS | {"asimd", "fma"}),
        ("-mtriple=arm-linux-gnueabihf -mcpu=cortex-a7", FLOATS | {"fma"}),
        ("-mtriple=arm-linux-gnueabihf", set()),
        ("-mcpu=cortex-m0", {"thumb1", "small_stack"}),
        ("-mcpu=cortex-m23", {"thumb1", "small_stack"}),
        ("-mcpu=cortex-m3", {"thumb2", "small_stack"}),
        ("-mcpu=cortex-m4", {"thumb2", "small_stack", "dsp"}),
        ("-mcpu=cortex-m4f", {"float32", "fma", "thumb2", "small_stack", "dsp"}),
        ("-mcpu=cortex-m7 -cflags=-mfloat-abi=hard,-mfpu=fpv5-d16", FLOATS | {"fma", "thumb2", "small_stack", "dsp"}),
        ("-mtriple=arm-none-eabi -mcpu=cortex-m33+nodsp", {"thumb2", "small_stack"}),
        ("-mcpu=cortex-m55", {"float32", "fma", "thumb2", "small_stack", "dsp", "mve"}),
        ("-mcpu=cortex-m55+nomve", FLOATS | {"fma", "thumb2", "small_stack", "dsp"}),
        ("-mtriple=riscv64-linux-gnu", FLOATS | {"fma"}),
        ("-mtriple=riscv32-unknown-elf -mcpu=generic", {"riscv", "small_stack"}),
        (
            "-mtriple=riscv32-unknown-elf -mcpu=generic -cflags=-march=rv32imac_zicsr,-mabi=ilp32",
            {"riscv", "small_stack"},
        ),
        (
            "-mtriple=riscv32-unknown-elf -mcpu=generic -cflags=-march=rv32imafc,-mabi=ilp32f",
            {"float32", "fma", "riscv", "small_stack"},
        ),
        ("-mtriple=riscv64-unknown-elf -mcpu=generic -cflags=-march=rv64gc,-mabi=lp64d", FLOATS | {"fma"}),
    ],
)
def test_a_cpu_by_its_name(host: PluginHost, text: str, wanted: set[str]) -> None:
    assert features(host, f"c {text}") == wanted


def test_this_machines_cpu_says_itself(host: PluginHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(machines, "_CPUINFO", tmp_path / "cpuinfo")
    assert features(host, "c") == FLOATS  # a system that does not tell
    (tmp_path / "cpuinfo").write_text("flags : fpu sse2 avx2 fma avx_vnni\n\nflags : fpu sse2 avx2 fma\n")
    assert features(host, "c") == FLOATS | {"avx2", "fma"}
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert features(host, "c") == FLOATS | {"asimd", "asimddp", "fma"}


def test_this_machines_cpu_by_what_it_alone_can(
    host: PluginHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older compilers call it by its predecessor's name."""
    monkeypatch.setattr(machines, "_CPUINFO", tmp_path / "cpuinfo")
    for flags, wanted in (("sse4a avx2", "native"), ("sse4a avx512_vnni", "znver4"), ("avx512_vnni", "native")):
        (tmp_path / "cpuinfo").write_text(f"flags : fpu {flags}\n")
        assert cpu_of(host.target("c")) == wanted
        assert cpu_of(host.target("c -mcpu=x86-64-v3")) == "x86-64-v3"
    (tmp_path / "cpuinfo").write_text("flags : fpu sse4a avx512_vnni avx_vnni\n")
    assert cpu_of(host.target("c")) == "native"


def test_what_loops_count_on_is_recorded_and_said(host: PluginHost, tmp_path: Path) -> None:
    (tmp_path / "dot.py").write_text(DOT)
    texts = {}
    for mcpu in ("x86-64", "x86-64-v3"):
        artifact = uma.build(tmp_path / "dot.py", f"c -mtriple=x86_64-linux-gnu -mcpu={mcpu}", plugins=host)
        (record,) = artifact.record.compile.hosts
        assert set(record.features) == features(host, artifact.record.targets[0])
        assert list(record.features) == sorted(record.features) and "-ffp-contract=off" in record.flags
        texts[mcpu] = artifact.files["dot.c"].decode()
    assert "fmaf(" not in texts["x86-64"] and "fmaf(" in texts["x86-64-v3"]


def test_gcc_and_clang_give_the_same_bits(host: PluginHost, tmp_path: Path) -> None:
    (tmp_path / "dot.py").write_text(DOT)
    rng = np.random.default_rng(5)
    given = {"x": rng.standard_normal((3, 37), np.float32), "y": rng.standard_normal((5, 37), np.float32)}
    by_gcc, by_clang = (
        uma.build(tmp_path / "dot.py", f"c -cc={cc} -opt=2", plugins=host).run(given)["z"] for cc in ("gcc", "clang")
    )
    assert by_gcc.tobytes() == by_clang.tobytes()
    np.testing.assert_allclose(by_gcc, given["x"] @ given["y"].T, rtol=0, atol=1e-5)
