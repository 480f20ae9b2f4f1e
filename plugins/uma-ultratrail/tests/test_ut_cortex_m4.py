"""TC-ResNet8 with driver and simulator on an emulated Cortex-M4: the bytes that this machine makes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests._support.conv_nets import reference, tc_resnet8, to_onnx

import uma
from uma.plugins import PluginEntry, PluginHost

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("ultra_trail", "uma_ultratrail", "uma-ultratrail", "0.1.0"),
        PluginEntry("ultratrail", "uma_ultratrail", "uma-ultratrail", "0.1.0"),
    ]
)

STARTUP = r"""
/* Where a Cortex-M begins: its vectors, and the way to the C library, which reaches files by semihosting. */
#include <stdint.h>

extern char stack_top[];
void _start(void);
void fault(void);

/* Ends the emulation with status 99: SYS_EXIT_EXTENDED. */
void fault(void)
{
    static const uint32_t status[2] = {0x20026, 99};

    __asm__ volatile("mov r0, #0x20\n mov r1, %0\n bkpt 0xab" ::"r"(status) : "r0", "r1", "memory");
    for (;;) {
    }
}

__attribute__((section(".vectors"), used)) const uintptr_t vectors[16] = {
    (uintptr_t)stack_top, (uintptr_t)_start, (uintptr_t)fault, (uintptr_t)fault,
    (uintptr_t)fault,     (uintptr_t)fault,  (uintptr_t)fault,
};
"""

LAYOUT = """
MEMORY { FLASH (rx) : ORIGIN = 0, LENGTH = 4M  RAM (rwx) : ORIGIN = 0x20000000, LENGTH = 4M }
ENTRY(_start)
SECTIONS
{
    .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) KEEP(*(.init)) KEEP(*(.fini)) *(.ARM.ex*) . = ALIGN(8); } > FLASH
    .init_array :
    {
        __preinit_array_start = .; KEEP(*(.preinit_array*)) __preinit_array_end = .;
        __init_array_start = .; KEEP(*(.init_array*)) __init_array_end = .;
        __fini_array_start = .; KEEP(*(.fini_array*)) __fini_array_end = .;
    } > FLASH
    .data : { *(.data*) } > RAM
    .bss :
    {
        . = ALIGN(8); __bss_start__ = .; *(.bss*) *(COMMON) . = ALIGN(8); __bss_end__ = .; end = .; __end__ = .;
    } > RAM
    stack_top = ORIGIN(RAM) + LENGTH(RAM);
}
"""

COMPILE = ["arm-none-eabi-gcc", "-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-mcpu=cortex-m4", "-mthumb"]
EMULATE = ["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-monitor", "none", "-serial", "none"]


@pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in (COMPILE[0], EMULATE[0])), reason="no compiler or no emulator for Arm"
)
def test_the_same_bytes(tmp_path: Path) -> None:
    net = tc_resnet8()
    (tmp_path / "net.onnx").write_bytes(to_onnx(net))
    folder = uma.build(tmp_path / "net.onnx", "ultra_trail", plugins=PLUGINS).save(tmp_path / "out")
    (folder / "startup.c").write_text(STARTUP)
    (folder / "flash.ld").write_text(LAYOUT)
    sources = sorted(path.name for path in folder.glob("*.c") if path.stem not in ("net_entry", "net_profile"))
    command = [*COMPILE, "-I.", "-T", "flash.ld", "--specs=rdimon.specs", *sources, "-o", "net.elf"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if "rdimon.specs" in done.stderr:
        pytest.skip("no C library for Arm")
    assert done.returncode == 0, done.stderr
    for frame in net.inputs(2, 1):
        (folder / "x").write_bytes(frame.tobytes())
        files = "enable=on,target=native,arg=net,arg=x,arg=y"
        emulate = [*EMULATE, "-semihosting-config", files, "-kernel", "net.elf"]
        done = subprocess.run(
            emulate, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        made = np.fromfile(folder / "y", np.int8)
        np.testing.assert_array_equal(made, reference(net, frame)[0].reshape(-1))
