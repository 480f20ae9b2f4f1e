"""What simulators of plugins include: memories that know what was written, numbers, and the arithmetic of scales."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import uma
from uma.hookspecs import DRIVER_FAULTS
from uma.relay.fixed_point import scale_integer

CSRC = Path(uma.__file__).parent / "runtime" / "csrc"
ROUNDINGS = ("double", "up", "even")

PROGRAM = r"""
#include <stdio.h>

#include "uma_sim.h"

static int failures;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("line %d: %s\n", __LINE__, #condition);                                                             \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)

static uint32_t read_register(void *self, uint32_t offset)
{
    return ((const uint32_t *)self)[offset / 4];
}

static void write_register(void *self, uint32_t offset, uint32_t value)
{
    ((uint32_t *)self)[offset / 4] = value;
}

static void banks(void)
{
    static uint8_t memory[50];
    uma_bank first, second;

    CHECK(uma_bank_make(&second, uma_bank_make(&first, memory, 20, 2, 5), 5, 3, 6) == memory + 50);
    CHECK(uma_bank_reach(&first, 0, 20) == 0 && uma_bank_reach(&first, 20, 0) == 0);
    CHECK(uma_bank_reach(&first, 0, 21) == 2 && uma_bank_reach(&first, 20, 1) == 2);
    CHECK(uma_bank_reach(&first, UINT64_MAX, 2) == 2 && uma_bank_reach(&second, 1, UINT64_MAX) == 3);
    CHECK(uma_bank_readable(&first, 4, 3) == 5 && uma_bank_readable(&second, 0, 1) == 6);
    uma_bank_note(&first, 4, 3);
    CHECK(uma_bank_readable(&first, 4, 3) == 0 && uma_bank_readable(&first, 4, 4) == 5);
    CHECK(uma_bank_readable(&first, 3, 1) == 5 && uma_bank_readable(&first, 21, 0) == 2);
    uma_bank_forget(&first);
    CHECK(uma_bank_readable(&first, 4, 1) == 5);
}

static void numbers(void)
{
    static uint32_t registers[2] = {0x89ABCDEFu, 0x01234567u};
    uma_device device;
    uint8_t bytes[4];

    uma_store32(bytes, 0x89ABCDEFu);
    CHECK(bytes[0] == 0xEF && bytes[3] == 0x89 && uma_load32(bytes) == 0x89ABCDEFu);
    CHECK(uma_signed(0x7FFFFFFFu) == INT32_MAX && uma_signed(0x80000000u) == INT32_MIN && uma_signed(~0u) == -1);
    CHECK(uma_signed8(127) == 127 && uma_signed8(128) == -128 && uma_signed8(255) == -1);
    CHECK(uma_shift_right(-5, 1) == -3 && uma_shift_right(5, 1) == 2 && uma_shift_right(INT64_MIN, 63) == -1);
    CHECK(uma_counter_half(0x0123456789ABCDEFu, 16) == 0x89ABCDEFu);
    CHECK(uma_counter_half(0x0123456789ABCDEFu, 20) == 0x01234567u);
    memset(&device, 0, sizeof device);
    uma_sim_connect(&device, registers, read_register, write_register, NULL);
    CHECK(uma_read64(&device, 0) == 0x0123456789ABCDEFu);
    CHECK(uma_write_address(&device, 0, bytes) == 0 && uma_host_memory(registers[0], registers[1]) == bytes);
}

int main(int argc, char **argv)
{
    int32_t x, multiplier, shift, rounding;

    (void)argv;
    if (argc == 1) {
        banks();
        numbers();
        return failures != 0;
    }
    while (scanf("%d %d %d %d", &x, &multiplier, &shift, &rounding) == 4) {
        printf("%lld\n", (long long)uma_scaled(x, multiplier, shift, rounding));
    }
    return 0;
}
"""


def compiled(compiler: str, folder: Path) -> Path:
    source, program = folder / "program.c", folder / f"program_{compiler}"
    source.write_text(PROGRAM)
    flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined"]
    command = [compiler, *flags, "-fno-sanitize-recover=all", f"-I{CSRC}", str(source), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def test_memories_and_numbers(compilers: tuple[str, ...], tmp_path: Path) -> None:
    for compiler in compilers:
        done = subprocess.run([compiled(compiler, tmp_path)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_it_scales_as_the_core_does(compilers: tuple[str, ...], tmp_path: Path) -> None:
    rng, cases = random.Random(1), [(-(2**31), 2**31 - 1, 30, rounding) for rounding in ROUNDINGS]
    while len(cases) < 6000:
        shift, multiplier = rng.randint(-31, 30), rng.choice((0, 1, 2**30, 2**31 - 1, rng.randrange(2**31)))
        # Near the middle between two results, where the roundings differ.
        x = (2 * rng.randint(-260, 260) + 1) * 2 ** (30 - shift) // (2 * multiplier or 1) + rng.randint(-2, 2)
        cases.append((min(max(x, -(2**31)), 2**31 - 1), multiplier, shift, rng.choice(ROUNDINGS)))
    lines = "".join(f"{x} {m} {s} {ROUNDINGS.index(r)}\n" for x, m, s, r in cases)
    program = compiled(compilers[0], tmp_path)
    done = subprocess.run([program, "scale"], input=lines, capture_output=True, text=True, check=True)
    assert list(map(int, done.stdout.split())) == [scale_integer(*case) for case in cases]


def test_codes_of_drivers_are_those_of_the_header() -> None:
    text = (CSRC / "uma_device.h").read_text(encoding="utf-8")
    codes = {int(code) for code in re.findall(r"#define UMA_FAULT_\w+ (\d+) ", text)}
    assert codes == set(DRIVER_FAULTS) == {16, 17, 18, 19}
