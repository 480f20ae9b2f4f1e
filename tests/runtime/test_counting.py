"""Counting of instructions: what marks say, what the plugin wrote, and programs whose instructions are known."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tests._support.tools import skip_without

from uma.errors import ToolchainError
from uma.runtime import emulator, instruction_counting
from uma.runtime.cycle_table import CYCLES, cycles_of
from uma.runtime.emulator import EmulatedModel, EmulatedSession
from uma.runtime.emulator_image import make_image
from uma.runtime.instruction_counting import marks_of, read_counts
from uma.support.machines import RUNNERS, Machine
from uma.toolchain.compile import CompileUnit
from uma.toolchain.discovery import find_compiler

MODEL = """\
#include "uma_runtime.h"
const uma_model *uma_model_entry(void);
static uma_status init(void *context, void *arena, size_t arena_bytes, void *state, size_t state_bytes,
                       struct uma_device *const *devices)
{
    (void)context, (void)arena, (void)arena_bytes, (void)state, (void)state_bytes, (void)devices;
    return UMA_OK;
}
"""
STEPS = """\
#include "uma_runtime.h"
uma_status steps(void *context, const void *const *inputs, void *const *outputs);
__attribute__((noinline)) static void spin(void) { __asm__ volatile("NOPS"); }
uma_status steps(void *context, const void *const *inputs, void *const *outputs)
{
    int turn;
    (void)context, (void)inputs, (void)outputs;
    __asm__ volatile("nop; nop");
    UMA_RUN_BEGINS();
    __asm__ volatile("nop; nop; nop; nop; nop");
    UMA_STEP_ENDS(0);
    for (turn = 0; turn < 3; turn++) {
        spin();
        UMA_STEP_ENDS(2);
    }
    return UMA_OK;
}
"""
REST = """\
uma_status steps(void *context, const void *const *inputs, void *const *outputs);
static const uma_model model = {.init = init, .invoke = steps};
const uma_model *uma_model_entry(void) { return &model; }
"""
KINDS = {
    "qemu-mps2-an386": ("arm-none-eabi-gcc", "arm-none-eabi cortex-m4", ("-mcpu=cortex-m4", "-mthumb")),
    "qemu-mps3-an547": ("arm-none-eabi-gcc", "arm-none-eabi cortex-m55", ("-mcpu=cortex-m55", "-mthumb")),
    "qemu-aarch64": ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu", ()),
    "qemu-virt": (
        "riscv64-unknown-elf-gcc",
        "riscv64-unknown-elf generic",
        ("-march=rv64imac", "-mabi=lp64", "-mcmodel=medany"),
    ),
}


IMAGE = b"\x7fELF\x01\x01" + bytes(10) + struct.pack("<HHI5I6H", 2, 40, 1, 0, 0, 52, 0, 0, 52, 0, 0, 40, 1, 0)
IMAGE += bytes(40)
"""A program without sections that have names."""


def session_of(name: str, nops: int = 40, included: tuple[str, ...] = ("steps.c",)) -> EmulatedSession:
    """Of a model of three steps: the first is 5 instructions, the second is never run, the third has ``nops`` in each
    of three turns."""
    compiler, machine, flags = KINDS[name]
    skip_without(compiler, RUNNERS[name].program)
    csrc = Path(instruction_counting.__file__).with_name("csrc")
    files = {
        "model.c": (MODEL + REST).encode(),
        "steps.c": STEPS.replace("NOPS", "; ".join(["nop"] * nops)).encode(),
        "uma_runtime.h": csrc.joinpath("uma_runtime.h").read_bytes(),
        "uma_ways.c": b'#ifdef UMA_RUN_BEGINS\n#error "its steps have marks"\n#endif\n#define UMA_RUN_BEGINS()\n'
        b'#define UMA_STEP_ENDS(step)\n#include "steps.c"\n',
        "uma_graph.c": b'#include "steps.c"\n',
    }
    part = CompileUnit(
        find_compiler(compiler, Machine.parse(machine)), ["model.c"], ["-std=gnu99", "-O2", "-Wall", *flags]
    )
    image = make_image([part], files, RUNNERS[name], where="model net", counted=included)
    return EmulatedModel(image, RUNNERS[name], "net", (), (), (), (), (), (), 0, is_counted=True).session()


@pytest.mark.few(2)
@pytest.mark.parametrize("name", KINDS)
def test_a_program_whose_instructions_are_known(name: str) -> None:
    session = session_of(name)
    session.run()
    counts = session.counts
    assert counts is not None and session.uncounted is None
    assert set(counts.steps) == {0, 2}
    first, third = counts.steps[0], counts.steps[2]
    assert (first.instructions, first.cycles, [*first.mnemonics]) == (5, 5, ["nop"])
    assert third.functions["spin"] == 3 * 41  # and a return
    assert 3 * 42 <= third.instructions <= 3 * 50 and third.mnemonics["nop"] == 3 * 40
    assert counts.rest.mnemonics["nop"] == 2 and (first.times, third.times) == (1, 3)
    parts = (*counts.steps.values(), counts.rest)
    assert counts.whole.instructions == sum(one.instructions for one in parts) == sum(counts.whole.functions.values())
    more = session_of(name, 50)
    more.run()
    assert more.counts is not None and more.counts.whole.instructions == counts.whole.instructions + 30


def test_steps_of_an_interpreter_are_numbered_as_they_come() -> None:
    session = session_of("qemu-mps2-an386", included=("uma_graph.c",))
    session.run()
    assert session.counts is not None and set(session.counts.steps) == {0, 1, 2, 3}
    assert [session.counts.steps[at].mnemonics["nop"] for at in range(4)] == [5, 40, 40, 40]


def test_of_branches_and_loops_the_whole_is_counted() -> None:
    session = session_of("qemu-mps2-an386", included=("uma_ways.c",))
    session.run()
    assert session.counts is not None and not session.counts.steps
    assert session.counts.whole.mnemonics["nop"] == 2 + 5 + 3 * 40


def test_another_version_of_the_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator itself refuses the plugin; the run goes on without counts."""
    session = session_of("qemu-mps2-an386")
    monkeypatch.setattr(instruction_counting, "_INTERFACE", 99)
    session.run()
    assert session.counts is None
    assert session.uncounted is not None
    assert session.uncounted.startswith("qemu-system-arm does not take the plugin that counts: ")
    assert "99" in session.uncounted
    monkeypatch.setattr(instruction_counting, "_INTERFACE", 1)
    session.run()
    assert session.counts is not None and session.uncounted is None


def test_a_machine_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of("qemu-mps2-an386")

    def none() -> None:
        raise ToolchainError("no C compiler was found")

    monkeypatch.setattr(instruction_counting, "find_compiler", none)
    session.run()
    assert (session.counts, session.uncounted) == (
        None,
        "the emulator's plugin that counts cannot be made: no C compiler was found",
    )


def test_a_program_that_fails_fails_with_the_plugin_as_without(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of("qemu-mps2-an386")
    monkeypatch.setattr(emulator, "place_plugin", lambda *_: ("-no-such-option",))
    monkeypatch.setattr(session, "_command", (session._command[0], "-neither"))
    with pytest.raises(ToolchainError, match="the program stopped without a result"):
        session.run()


def test_marks() -> None:
    assert marks_of(IMAGE) == []


@pytest.mark.parametrize("text", [None, "", "0 0\n", "1 0\n", "2 2\n"])
def test_of_no_whole_run_there_are_no_counts(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "counts").write_text(text)
    assert read_counts(tmp_path, IMAGE) is None


@pytest.mark.parametrize("row", ["0 10 5", "x 10 5 nop", "0 zz 5 nop", "0 10 x nop"])
def test_what_is_no_file_of_the_plugins(row: str, tmp_path: Path) -> None:
    (tmp_path / "counts").write_text(f"1 1\n{row}\n")
    with pytest.raises(ToolchainError, match="the emulator's counts cannot be read"):
        read_counts(tmp_path, IMAGE)


def test_addresses_that_are_no_functions(tmp_path: Path) -> None:
    (tmp_path / "counts").write_text("1 1\n-1 10 5 nop\n3 14 2 ldr.w\n3 10 1 b\n")
    counts = read_counts(tmp_path, IMAGE)
    assert counts is not None
    assert (counts.rest.functions, counts.steps[3].instructions, counts.steps[3].cycles) == ({"?": 5}, 3, 6)
    assert counts.whole.mnemonics == {"nop": 5, "ldr.w": 2, "b": 1}


@pytest.mark.parametrize(
    ("mnemonics", "cycles"),
    [
        ("ldr ldrb ldrsb.w str.w vldrw.u32 vstr ld1r lb lw sb c.lw c.sdsp fld", 2),
        ("ldrd strd ldp stp", 3),
        ("push.w pop ldm stmdb vpush vldmia", 5),
        ("b b.n bne beq.w bl blx cbz b.eq ret jal jalr bgeu c.bnez c.j", 2),
        ("sdiv udiv remu divw", 6),
        ("add mul smlad vmov.f32 le dls bfi bic bfc sub subs sxtb c.add c.li c.mv c.sub sbc nop lsl lui lsls", 1),
        ("? ?0fff ?0ff005c0 ?11ee2048", 1),
        ("?91ec301f ?d0fd011e ?90ed001f", 2),
    ],
)
def test_cycles(mnemonics: str, cycles: int) -> None:
    assert {name: cycles_of(name) for name in mnemonics.split()} == dict.fromkeys(mnemonics.split(), cycles)


def test_the_table_is_as_it_is_documented() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "microcontrollers.md").read_text(encoding="utf-8")
    for what, cycles, _ in CYCLES:
        assert f"| {what} | {cycles} |" in page
