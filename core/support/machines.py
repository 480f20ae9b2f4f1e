"""The machines that code is compiled for where it is not this one, the emulators that run it here, and what this
machine's CPU can."""

from __future__ import annotations

import platform
import re
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ..errors import UsageError

__all__ = [
    "ARCHITECTURES",
    "RUNNERS",
    "Architecture",
    "EmulatedBoard",
    "Machine",
    "Memory",
    "Runner",
    "cpu_features",
    "find_runner",
    "runners_for",
    "same_triple",
]

_CPUINFO = Path("/proc/cpuinfo")
_TRIPLE = re.compile(r"[a-z][a-z0-9_]{0,15}(?:-[a-z0-9_]{1,15}){1,3}", re.ASCII)
_CPU = re.compile(r"[a-z0-9][a-z0-9_.+-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class Architecture:
    """What the object files of one architecture say of themselves (System V ABI, chapter 4, and its supplements).

    Args:
        elf_machine: ``e_machine``.
        bits: size of an address.
    """

    elf_machine: int
    bits: int


ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "aarch64": Architecture(183, 64),
        "arm": Architecture(40, 32),
        "i686": Architecture(3, 32),
        "loongarch64": Architecture(258, 64),
        "mips64el": Architecture(8, 64),
        "mipsel": Architecture(8, 32),
        "powerpc64le": Architecture(21, 64),
        "riscv32": Architecture(243, 32),
        "riscv64": Architecture(243, 64),
        "x86_64": Architecture(62, 64),
    }
)
"""The architectures that models are compiled for, by the names that triples begin with. All store the lowest byte
first, as weights are written."""

_BIG_ENDIAN = (
    "aarch64_be", "armeb", "hppa", "m68k", "mips", "mips64", "or1k", "powerpc", "powerpc64", "s390", "s390x", "sparc",
    "sparc64",
)  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """A machine that code is compiled for.

    Args:
        triple: as compilers name it, with Linux or no system at all: ``aarch64-linux-gnu``, ``arm-none-eabi``.
        cpu: of a machine without an operating system, which its CPU tells from others; else None.
    """

    triple: str
    cpu: str | None = None

    @classmethod
    def parse(cls, text: str) -> Machine:
        """The machine that ``text`` names: ``aarch64-linux-gnu``, ``arm-none-eabi cortex-m0``.

        Raises:
            UsageError: it is no such name, or one of a machine for which models cannot be compiled.
        """
        triple, space, cpu = text.partition(" ")
        if not _TRIPLE.fullmatch(triple) or (space and not _CPU.fullmatch(cpu)):
            hint = "write aarch64-linux-gnu, or arm-none-eabi cortex-m4"
            raise UsageError(f"{text[:100]!r} names no machine", hint=hint)
        architecture = triple.partition("-")[0]
        if architecture in _BIG_ENDIAN:
            raise UsageError(
                f"{triple!r} is a machine that stores the highest byte first: weights are written for those that "
                "store the lowest byte first"
            )
        if architecture not in ARCHITECTURES:
            names = ", ".join(ARCHITECTURES)
            raise UsageError(f"{architecture!r} is not an architecture that is known", hint=f"there are {names}")
        machine = cls(triple, cpu if space else None)
        parts = triple.split("-")[1:]
        if "linux" not in parts and not machine.is_bare:
            raise UsageError(f"{triple!r} has a system that is not known", hint="a triple has linux, none or elf in it")
        if machine.is_bare and machine.cpu is None:
            raise UsageError(f"{triple!r} is not a whole machine: it has no operating system, and its CPU is not said")
        if machine.cpu is not None and not machine.is_bare:
            raise UsageError(f"{text!r} names a CPU, which does not tell machines with Linux apart")
        return machine

    def __str__(self) -> str:
        return self.triple if self.cpu is None else f"{self.triple} {self.cpu}"

    @property
    def architecture(self) -> Architecture:
        """What its object files say of themselves."""
        return ARCHITECTURES[self.triple.partition("-")[0]]

    @property
    def is_bare(self) -> bool:
        """Whether it has no operating system."""
        parts = self.triple.split("-")[1:]
        return "linux" not in parts and ("none" in parts or parts[-1] == "elf")

    @property
    def is_this(self) -> bool:
        """Whether this Python runs on such a machine, so that it can load a library for it."""
        if self.is_bare or sys.platform != "linux":
            return False
        return same_triple(self.triple, _own_triple())


def this_machine() -> Machine | None:
    """The machine that this Python runs on; None where objects are not ELF, or where it is none that is known."""
    if sys.platform != "linux":
        return None
    try:
        return Machine.parse(_own_triple())
    except UsageError:
        return None


def _own_triple() -> str:
    return str(sysconfig.get_config_var("MULTIARCH") or f"{platform.machine()}-linux-gnu")


def same_triple(triple: str, other: str) -> bool:
    """Whether two triples are spellings of one: ``x86_64-linux-gnu`` and ``x86_64-pc-linux-gnu``."""
    first, second = triple.split("-"), other.split("-")
    return (first[0], first[-1]) == (second[0], second[-1])


@dataclass(frozen=True)
class Memory:
    """Memory of a board: its first address and its size, in bytes."""

    base: int
    size_bytes: int


@dataclass(frozen=True)
class EmulatedBoard:
    """A board without an operating system, as an emulator has it.

    Args:
        name: what the emulator calls it.
        cpus: those for which code is compiled that its CPU runs, its own first.
        flash: holds code and constants; its first words are the vectors.
        ram: holds everything else.
        stack_bytes: of the RAM.
    """

    name: str
    cpus: tuple[str, ...]
    flash: Memory
    ram: Memory
    stack_bytes: int


@dataclass(frozen=True)
class Runner:
    """An emulator that runs on this machine.

    Args:
        name: by which a target asks for it.
        program: what is started, found on PATH.
        architecture: of the code that it runs.
        board: what it emulates; None where it runs programs for Linux.
    """

    name: str
    program: str
    architecture: str
    board: EmulatedBoard | None = None

    def objection(self, machine: Machine) -> str | None:
        """Why it does not run what is compiled for a machine, in words; None if it does."""
        if machine.triple.partition("-")[0] != self.architecture or machine.is_bare == (self.board is None):
            runs = "without an operating system" if self.board else "with Linux"
            return f"{self.name} runs what is compiled for {self.architecture} machines {runs}, not for {machine}"
        if self.board is not None and machine.cpu not in self.board.cpus:
            return f"{self.name} has a {self.board.cpus[0]}, which does not run what is compiled for {machine.cpu}"
        return None


_V6M = ("cortex-m0", "cortex-m0plus", "cortex-m1")
_V7M = ("cortex-m4f", "cortex-m4", "cortex-m3", *_V6M)
_ZBT = Memory(0, 4 << 20), Memory(0x20000000, 4 << 20)
_BOARDS = (
    EmulatedBoard("microbit", _V6M, Memory(0, 256 << 10), Memory(0x20000000, 16 << 10), 2 << 10),
    EmulatedBoard("mps2-an385", ("cortex-m3", *_V6M), *_ZBT, 64 << 10),
    EmulatedBoard("mps2-an386", _V7M, *_ZBT, 64 << 10),
    EmulatedBoard("mps2-an500", ("cortex-m7f", "cortex-m7", *_V7M), *_ZBT, 64 << 10),
    EmulatedBoard(
        "mps3-an547",
        ("cortex-m55", "cortex-m33f", "cortex-m33", "cortex-m23"),
        Memory(0, 512 << 10),
        Memory(0x20000000, 512 << 10),
        64 << 10,
    ),
)

_RISC_V_BOARDS = (
    EmulatedBoard("virt", ("generic",), Memory(0x80000000, 64 << 20), Memory(0x84000000, 64 << 20), 64 << 10),
)

RUNNERS: Mapping[str, Runner] = MappingProxyType(
    {
        runner.name: runner
        for runner in (
            *(Runner(f"qemu-{board.name}", "qemu-system-arm", "arm", board) for board in _BOARDS),
            *(Runner(f"qemu-{board.name}", "qemu-system-riscv64", "riscv64", board) for board in _RISC_V_BOARDS),
            *(Runner(f"qemu-{name}", f"qemu-{name}", name) for name in ("aarch64", "arm", "riscv64")),
        )
    }
)
"""The emulators that a target may name, by their names."""


def find_runner(name: str, machine: Machine | None) -> Runner:
    """The emulator of that name, which runs what is compiled for ``machine``; None is this machine.

    Raises:
        UsageError: there is none, or it runs something else.
    """
    if name not in RUNNERS:
        raise UsageError(f"{name[:60]!r} is not an emulator that is known", hint=f"there are {', '.join(RUNNERS)}")
    if machine is None:
        raise UsageError(f"{name!r} is for another machine, and none is named")
    if reason := RUNNERS[name].objection(machine):
        raise UsageError(reason, hint=f"{' or '.join(runners_for(machine)) or 'no emulator that is known'} does")
    return RUNNERS[name]


def runners_for(machine: Machine) -> list[str]:
    """The names of the emulators that run what is compiled for ``machine``."""
    return [runner.name for runner in RUNNERS.values() if runner.objection(machine) is None]


def cpu_features() -> frozenset[str]:
    """The instructions that all cores of this machine have, as Linux calls them in ``/proc/cpuinfo`` (``avx2``,
    ``asimddp``); nothing where the system does not say.
    """
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    cores = re.findall(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return frozenset.intersection(*(frozenset(core.split()) for core in cores)) if cores else frozenset()
