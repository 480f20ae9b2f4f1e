"""Counting the instructions of an emulated model, step by step: a plugin of the emulator, and what its counts say.

The plugin is C (``emulation/uma_counting.c``), compiled for this machine and kept as compiled models are. Where steps
begin and end the program itself says, in a section that is not loaded: the instructions are those of a program without
marks.
"""

from __future__ import annotations

import shutil
import struct
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from ..errors import ToolchainError
from ..toolchain.cache import Cache, library_key
from ..toolchain.compile import CompileUnit, compile_shared
from ..toolchain.discovery import find_compiler
from ..toolchain.elf import functions, section_bytes
from .cycle_table import cycles_of

__all__ = ["Counts", "Tally", "marks_of", "place_plugin", "read_counts"]

_SOURCE = "uma_counting.c"
_INTERFACE = 1
"""Version of the plugins' interface: that of QEMU 6 to 8.1."""

_SECTION = ".uma_marks"
_PLUGIN = "uma_counting.so"
_MARKS, _COUNTS = "marks", "counts"
_NO_STEP, _TIMES = -1, "="


@dataclass(frozen=True)
class Tally:
    """What was executed of one step.

    Args:
        instructions: how many.
        cycles: roughly, by the table of `mnemonics`.
        functions: name of each function to how many of them were its own; ``?`` for what no function has.
        mnemonics: how many of each.
        times: how often the step came to its end.
    """

    instructions: int
    cycles: int
    functions: Mapping[str, int]
    mnemonics: Mapping[str, int]
    times: int


@dataclass(frozen=True)
class Counts:
    """What was executed from the call of a model to its return.

    Args:
        whole: everything.
        steps: by the number of the step; those that were executed.
        rest: what is not a step's: the way into the run and out of it.
    """

    whole: Tally
    steps: Mapping[int, Tally]
    rest: Tally


def marks_of(image: bytes) -> list[tuple[int, int]]:
    """Address and meaning of the marks of a program, see ``uma_counted.h``; none where it has no marks.

    Raises:
        ToolchainError: it is not ELF, or is cut short.
    """
    wide = image[4:5] == b"\x02"
    row = struct.Struct("<QI" if wide else "<II")
    content = section_bytes(image, _SECTION) or b""
    return [row.unpack_from(content, at) for at in range(0, len(content) - row.size + 1, row.size)]


def place_plugin(folder: Path, image: bytes) -> tuple[str, ...]:
    """Put the plugin and the marks of a program into the folder that an emulator is to work in.

    Returns:
        The emulator's arguments.

    Raises:
        ToolchainError: this machine has no C compiler, or it cannot compile the plugin.
    """
    shutil.copyfile(_plugin(), folder / _PLUGIN)
    lines = "".join(f"{address:x} {mark}\n" for address, mark in marks_of(image))
    folder.joinpath(_MARKS).write_text(lines, encoding="utf-8")
    # By a name of its own: in the arguments a comma would end the path.
    return "-plugin", f"./{_PLUGIN}"


def _plugin() -> Path:
    source = Path(__file__).with_name("emulation").joinpath(_SOURCE).read_bytes()
    flags = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", f"-DUMA_PLUGIN_VERSION={_INTERFACE}")
    parts = [CompileUnit(find_compiler(), [_SOURCE], flags)]
    key = library_key({_SOURCE: sha256(source).hexdigest()}, parts)
    return Cache().library(key, lambda output: compile_shared(parts, {_SOURCE: source}, output))


def read_counts(folder: Path, image: bytes) -> Counts | None:
    """What the plugin wrote into the emulator's folder; None where it wrote nothing of one whole run.

    Raises:
        ToolchainError: the program is not ELF, or the file is not the plugin's.
    """
    try:
        lines = folder.joinpath(_COUNTS).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    if not lines or lines[0] != "1 1":
        return None
    table = functions(image)
    rows: dict[int, list[tuple[str, str, int]]] = {}
    times: dict[int, int] = {}
    try:
        for line in lines[1:]:
            step, address, count, mnemonic = line.split(" ", 3)
            if mnemonic == _TIMES:
                times[int(step)] = int(count)
                rows.setdefault(int(step), [])
                continue
            rows.setdefault(int(step), []).append((_function(table, int(address, 16)), mnemonic, int(count)))
    except ValueError as error:
        raise ToolchainError(f"the emulator's counts cannot be read: {error}", where=_COUNTS) from error
    steps = {step: _tally(tallies, times.get(step, 0)) for step, tallies in sorted(rows.items()) if step != _NO_STEP}
    whole = _tally([row for tallies in rows.values() for row in tallies], 1)
    return Counts(whole, steps, _tally(rows.get(_NO_STEP, []), 1))


def _function(table: list[tuple[int, int, str]], address: int) -> str:
    at = bisect_right(table, address, key=lambda row: row[0]) - 1
    if at < 0 or address >= table[at][0] + table[at][1]:
        return "?"
    return table[at][2]


def _tally(rows: list[tuple[str, str, int]], times: int) -> Tally:
    by_function: dict[str, int] = {}
    by_mnemonic: dict[str, int] = {}
    for function, mnemonic, count in rows:
        by_function[function] = by_function.get(function, 0) + count
        by_mnemonic[mnemonic] = by_mnemonic.get(mnemonic, 0) + count
    cycles = sum(count * cycles_of(mnemonic) for mnemonic, count in by_mnemonic.items())
    ordered = dict(sorted(by_function.items(), key=lambda one: (-one[1], one[0])))
    mnemonics = dict(sorted(by_mnemonic.items(), key=lambda one: (-one[1], one[0])))
    return Tally(sum(by_function.values()), cycles, ordered, mnemonics, times)
