"""A rough number of cycles for an instruction, by its mnemonic: good to compare two programs on one core, no more.

There is no pipeline in it, no wait state of a flash, no beat of a vector unit; every branch counts as taken.
"""

from __future__ import annotations

import fnmatch
import functools
import re

__all__ = ["CYCLES", "cycles_of"]

CYCLES: tuple[tuple[str, int, str], ...] = (
    ("load or store of two words", 3, "ldrd strd ldp stp ldpsw"),
    ("load or store of several registers", 5, "ldm* stm* push pop vldm* vstm* vpush vpop"),
    (
        "load or store",
        2,
        "ldr* str* ldur* stur* vldr* vstr* vld[1-4]* vst[1-4]* ld[1-4]* st[1-4]* "
        "lb lbu lh lhu lw lwu ld sb sh sw sd flw fld fsw fsd c.[fls]*[wd] c.[fls]*[wd]sp",
    ),
    ("division", 6, "sdiv udiv div divu divw divuw rem remu remw remuw"),
    (
        "branch",
        2,
        "b bl bx blx br blr ret cbz cbnz tbz tbnz tbb tbh beq bne bcs bhs bcc blo bmi bpl bvs bvc bhi bls bge blt bgt "
        "ble j jal jr jalr call tail beqz bnez bltu bgeu bltz bgez blez bgtz bgtu bleu c.j c.jal c.jr c.jalr c.beqz "
        "c.bnez",
    ),
)
"""What, cycles, and the mnemonics that it stands for, as patterns; the first row that one is in counts. What is in none
counts as 1, as does the end of a loop without overhead (``le``). What stands behind a point (``.w``, ``.f32``) does not
matter, but for the ``c.`` of compressed instructions."""

_ROWS = tuple((cycles, [re.compile(fnmatch.translate(name)) for name in names.split()]) for _, cycles, names in CYCLES)
_THUMB32 = re.compile(r"\?([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})")
_LOAD_CYCLES = 2


def _moves_vector(mnemonic: str) -> bool:
    """Whether bytes are a load or store of MVE, which disassemblers older than Armv8.1-M do not know: those of the
    coprocessors 14 and 15 in the space of loads and stores (Armv8-M Architecture Reference Manual, C2.4)."""
    halves = _THUMB32.fullmatch(mnemonic)
    if halves is None:
        return False
    first, second = int(halves[2] + halves[1], 16), int(halves[4] + halves[3], 16)
    return first & 0xEE00 == 0xEC00 and second & 0x0E00 == 0x0E00


@functools.cache
def cycles_of(mnemonic: str) -> int:
    """Cycles of an instruction, 1 where nothing is known of it.

    Args:
        mnemonic: as the emulator's disassembler names it; or ``?`` and its bytes in hexadecimal, as they lie in memory.
    """
    if mnemonic.startswith("?"):
        return _LOAD_CYCLES if _moves_vector(mnemonic) else 1
    name = mnemonic.lower()
    if not name.startswith("c."):
        name = name.partition(".")[0]
    return next((cycles for cycles, names in _ROWS if any(one.fullmatch(name) for one in names)), 1)
