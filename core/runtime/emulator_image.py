"""Programs that an emulator runs: a model, what feeds it, and what is below the two."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import ModelError, RequirementError
from ..support.machines import EmulatedBoard, Runner
from ..toolchain.cache import Cache, library_key
from ..toolchain.compile import CompileUnit, compile_program
from ..toolchain.elf import segments
from .abi import abi

__all__ = ["make_image"]

_FOLDER = Path(__file__).with_name("emulation")
_HEADERS = ("uma_counted.h", "uma_emulated.h", "uma_emulated_board.h")
_COUNTED = "uma_counted_steps.c"
_BOARD = "uma_emulated_board.c"
_COMMON = "uma_emulated.c"
_SCRIPT = "uma_emulated.ld"

_VERSION = re.compile(rb"^#define UMA_ABI_VERSION (\d+)$", re.MULTILINE)

_REGION_BYTES = 1 << 28
"""The linker is told of more memory than there is, so that it places everything, and it can be said how much it is."""


def make_image(
    parts: Sequence[CompileUnit],
    files: Mapping[str, bytes],
    runner: Runner,
    libraries: Sequence[Path] = (),
    *,
    where: str,
    counted: Sequence[str] | None = None,
) -> Path:
    """The program, from the cache.

    Args:
        parts: the sources of the model and of ``uma_model_entry``. What is added here is compiled as the first one is.
        files: name to content.
        runner: what it is for.
        libraries: files of libraries that it needs.
        where: names the model in errors.
        counted: the files with the hooks of the model's steps, in the order in which one file includes them; then the
            program has marks by which its instructions are counted, see `counting`. They are not sources of ``parts``.

    Raises:
        ModelError: the model was generated for another version of the ABI.
        RequirementError: it does not fit into the memory of the emulated board.
        UsageError, ToolchainError: as for `compile_program`.
    """
    version_match = _VERSION.search(files.get("uma_runtime.h", b""))
    version = 0 if version_match is None else int(version_match[1])
    if version != abi().version:
        raise ModelError(
            f"the model has version {version} of the ABI, this UMA reads version {abi().version}",
            where=where,
            hint="build the model again with this version of UMA",
        )
    surroundings, sources, flags = _surroundings(runner)
    files = {**files, **surroundings}
    if counted is not None:
        files[_COUNTED] = _counted_text(counted).encode()
        marked = (*parts[0].flags, "-DUMA_COUNTED")
        parts = [replace(parts[0], sources=(_COUNTED, *parts[0].sources), flags=marked), *parts[1:]]
    parts = [*parts, replace(parts[0], sources=sources, objects=())]
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}

    def build(output: Path) -> None:
        compile_program(parts, files, output, flags=flags, libraries=libraries)
        if runner.board is not None:
            _check_fit(output.read_bytes(), runner.name, runner.board, where)

    return Cache().library(library_key(digests, parts, libraries), build)


@functools.cache
def _surroundings(runner: Runner) -> tuple[dict[str, bytes], tuple[str, ...], tuple[str, ...]]:
    """The files that are added to a model's, those to compile, and what the linker is told."""
    start_up = "uma_emulated_cortex_m.c" if runner.architecture == "arm" else "uma_emulated_riscv.c"
    sources = (_COMMON, "uma_emulated_linux.c") if runner.board is None else (_COMMON, _BOARD, start_up)
    files = {name: (_FOLDER / name).read_bytes() for name in (*_HEADERS, *sources)}
    # A model without devices comes without it.
    files["uma_device.h"] = (_FOLDER.with_name("csrc") / "uma_device.h").read_bytes()
    if runner.board is None:
        return files, sources, ("-static",)
    files[_SCRIPT] = _script(runner.board).encode()
    return files, sources, ("-nostartfiles", "-T", _SCRIPT)


def _counted_text(included: Sequence[str]) -> str:
    """The model with marks where its steps end. The interpreter of a table of steps goes from one to the next; that of
    branches and loops knows their numbers when it runs only, and is counted as a whole."""
    lines = ["/* A model, its instructions to be counted. */", '#include "uma_counted.h"']
    if "uma_ways.c" not in included:
        ends = "UMA_MARK_NEXT()" if "uma_graph.c" in included else "UMA_MARK(step)"
        lines += ["#define UMA_RUN_BEGINS() UMA_MARK_OUTSIDE()", f"#define UMA_STEP_ENDS(step) {ends}"]
    return "\n".join([*lines, *(f'#include "{name}"' for name in included), ""])


def _script(board: EmulatedBoard) -> str:
    """The linker script. The stack is at the low end of the RAM, so that it does not grow into the model's arena. Below
    it are bytes that must stay as they are: on some boards, addresses where there is nothing can be written to."""
    end = board.ram.base + board.ram.size_bytes
    return f"""\
ENTRY(uma_reset)
MEMORY
{{
    FLASH (rx) : ORIGIN = {board.flash.base:#x}, LENGTH = {_REGION_BYTES:#x}
    RAM (rwx) : ORIGIN = {board.ram.base:#x}, LENGTH = {_REGION_BYTES:#x}
}}
SECTIONS
{{
    .text : {{ KEEP(*(.vectors)) *(.text .text.*) *(.rodata .rodata.* .srodata .srodata.*) . = ALIGN(8); }} > FLASH
    .ARM.extab : {{ *(.ARM.extab .ARM.extab.*) }} > FLASH
    .ARM.exidx : {{ __exidx_start = .; *(.ARM.exidx .ARM.exidx.*) __exidx_end = .; }} > FLASH
    .guard (NOLOAD) : {{ uma_guard_begin = .; . = . + {board.stack_bytes // 4:#x}; }} > RAM
    .stack (NOLOAD) : {{ uma_stack_begin = .; . = . + {board.stack_bytes:#x}; uma_stack_end = .; }} > RAM
    .data : ALIGN(8)
    {{ uma_data_begin = .; *(.data .data.* .sdata .sdata.*) . = ALIGN(8); uma_data_end = .; }} > RAM AT > FLASH
    uma_data_load = LOADADDR(.data);
    .bss (NOLOAD) : ALIGN(8)
    {{ uma_bss_begin = .; *(.bss .bss.* .sbss .sbss.*) *(COMMON) . = ALIGN(8); uma_bss_end = .; }} > RAM
    .uma_marks 0 : {{ KEEP(*(.uma_marks)) }}
    uma_heap_begin = uma_bss_end;
    uma_heap_end = {end:#x};
}}
"""


def _check_fit(image: bytes, name: str, board: EmulatedBoard, where: str) -> None:
    for kind, memory, load in (("flash", board.flash, True), ("RAM", board.ram, False)):
        ends = [
            segment.load_address + segment.file_bytes if load else segment.address + segment.memory_bytes
            for segment in segments(image)
            if memory.base <= (segment.load_address if load else segment.address) < memory.base + _REGION_BYTES
        ]
        used_bytes = max(ends, default=memory.base) - memory.base
        if used_bytes > memory.size_bytes:
            raise RequirementError(
                f"the program takes {used_bytes:,} bytes of {kind}, and {name} has {memory.size_bytes:,}",
                where=where,
                hint="choose an emulator of a larger board",
            )
