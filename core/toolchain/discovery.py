"""The C compilers on this machine: finding one, for this machine or another, and asking what it is.

What reaches a compiler's command line is never free text. Compilers go by a known name, flags pass an allowlist,
file names hold no separators, and everything is handed over as a list of arguments, without a shell. POSIX only.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ..errors import NoCompilerError, ToolchainError, UsageError
from ..support.compiler_flags import KNOWN_COMPILERS
from ..support.machines import Machine, same_triple
from .subprocesses import ending, run

__all__ = ["INSTALL_HINT", "Compiler", "find_compiler", "host_cpu_id"]

_SEARCH_ORDER = ("cc", "gcc", "clang", "ziglang")
INSTALL_HINT = "install gcc or clang, or add one to this environment with: pip install ziglang"
"""What to do where no compiler works."""

_PICOLIBC = "picolibc.specs"
_LIBRARIES = {"arm-none-eabi": "libnewlib-arm-none-eabi", "riscv64-unknown-elf": "picolibc-riscv64-unknown-elf"}
"""What distributions call the C library of a machine without an operating system."""

_PROBE_TIMEOUT_S = 20.0
_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Compiler:
    """A C compiler that was found and answered.

    Attributes:
        command: how to start it: an absolute path, then arguments that are always given.
        name: the name by which it was found.
        kind: whose command line it understands.
        version: what it says of itself, whole, so that a distribution's patch level tells two apart.
        target: the machine it compiles for, as a triple.
        linker: what links what it compiles, where it does not do that itself: a command as the first.
    """

    command: tuple[str, ...]
    name: str
    kind: Literal["gcc", "clang"]
    version: str
    target: str
    linker: tuple[str, ...] | None = None

    @property
    def identity(self) -> str:
        """Digest that differs when this compiler may produce other code than another."""
        parts = (*self.command, self.kind, self.version, self.target, *(self.linker or ()))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def find_compiler(name: str | None = None, machine: Machine | None = None) -> Compiler:
    """The compiler called `name`, else the user's ``CC``, else the first of cc, gcc, clang, ziglang that answers.

    A name that comes with a target or an artifact must match `KNOWN_COMPILERS` and is looked up on PATH. ``CC`` is the
    user's own word about this machine, so it may also be an absolute path; it is never split into words.

    Args:
        name: a known name.
        machine: what to compile for; None for this machine. For another one the default is its own gcc
            (``arm-none-eabi-gcc``), and clang and ziglang are told the triple.

    Raises:
        UsageError: `name` or ``CC`` is not acceptable.
        NoCompilerError: none was named, and there is none.
        ToolchainError: the compiler is not there, does not behave like one, or compiles for another machine.
    """
    if name is not None and not KNOWN_COMPILERS.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a known name of a C compiler",
            hint="use cc, gcc, clang, gcc-VERSION, clang-VERSION, ziglang, or TRIPLE-gcc for another machine; for a "
            "path, set CC in the environment",
        )
    if machine is not None:
        return _cross(name or f"{machine.triple}-gcc", machine.triple, machine.is_bare)
    if name is not None:
        return _installed_compiler(name, where=None)
    chosen = os.environ.get("CC", "")
    if chosen:
        return _from_environment(chosen)
    failures: list[ToolchainError] = []
    for candidate in _SEARCH_ORDER:
        command = _locate(candidate)
        if command is None:
            continue
        try:
            return _probe(candidate, command)
        except ToolchainError as error:  # a stub such as the cc of a bare macOS: the next one may well work
            failures.append(error)
    if failures:
        what = "no C compiler works: " + "; ".join(error.what for error in failures)
        raise ToolchainError(what, where=failures[0].where, hint=INSTALL_HINT) from failures[0]
    raise NoCompilerError("no C compiler was found", where="PATH", hint=INSTALL_HINT)


def _cross(name: str, triple: str, is_bare: bool) -> Compiler:
    hint = f"install it: its package is often called gcc-{triple}"
    if not name.endswith("-gcc"):
        hint = f"install it, or {triple}-gcc, and give that as -cc"
    command = _locate(name)
    if command is None:
        raise ToolchainError(f"the C compiler {name!r} for {triple} is not installed", where="PATH", hint=hint)
    linker: tuple[str, ...] | None = None
    if name == "ziglang":
        command = (*command, f"--target={_zig_triple(triple)}")
    elif name.startswith("clang"):
        command = (*command, f"--target={triple}")
        if is_bare:
            extra, linker = _gcc_for_clang(name, triple)
            command = (*command, *extra)
    elif is_bare:
        command = (*command, *_picolibc(command))
    compiler = replace(_probe(name, command), linker=linker)
    # What zig calls its target has versions of Linux and its C library in it; it compiles for no other.
    if name != "ziglang" and not same_triple(compiler.target, triple):
        raise ToolchainError(
            f"the C compiler {name!r} compiles for {compiler.target}, not for {triple}", where=command[0], hint=hint
        )
    return compiler


def _zig_triple(triple: str) -> str:
    """What zig calls a machine: it has no vendors, and names some architectures in its own way."""
    architecture, *others = triple.split("-")
    named = {"i686": "x86"}.get(architecture, architecture)
    system = others[others.index("linux") :] if "linux" in others else others
    return "-".join((named, *system))


def _gcc_for_clang(name: str, triple: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What clang is told of a machine without an operating system, and what links what it compiles: the C library and
    the linker are those of the cross gcc, which clang does not find by itself.

    Raises:
        ToolchainError: that is not installed, or has no C library.
    """
    gcc = _locate(f"{triple}-gcc")
    package = _LIBRARIES.get(triple, "its C library")
    hint = f"install gcc-{triple} and {package}"
    if gcc is None:
        what = f"{name!r} needs the C library and the linker of {triple}-gcc, which is not installed"
        raise ToolchainError(what, where="PATH", hint=hint)
    linker = (*gcc, *_picolibc(gcc))
    folders = [folder for folder in _include_folders(linker) if Path(folder, "math.h").is_file()]
    if not folders:
        raise ToolchainError(f"{triple}-gcc, whose C library {name!r} needs, has none", where=gcc[0], hint=hint)
    # The ABI of Arm without an operating system has enumerations as small as they can be; clang leaves that open.
    enums = ("-fshort-enums",) if triple.startswith("arm-") else ()
    return (*enums, *(word for folder in folders for word in ("-isystem", folder))), linker


def _picolibc(gcc: tuple[str, ...]) -> tuple[str, ...]:
    """What a gcc is told that comes without a C library where picolibc is installed for it, as on Debian."""
    if any(Path(folder, "math.h").is_file() for folder in _include_folders(gcc)):
        return ()
    status, specs = run(
        (*gcc, f"-print-file-name={_PICOLIBC}"), cwd=None, timeout_s=_PROBE_TIMEOUT_S, hint=INSTALL_HINT
    )
    return (f"--specs={_PICOLIBC}",) if status == 0 and os.path.isabs(specs.strip()) else ()


def _include_folders(gcc: tuple[str, ...]) -> list[str]:
    """Where a gcc looks for headers."""
    command = (*gcc, "-E", "-v", "-x", "c", os.devnull)
    status, text = run(command, cwd=None, timeout_s=_PROBE_TIMEOUT_S, hint=INSTALL_HINT)
    return [line.strip() for line in text.splitlines() if line.startswith(f" {os.sep}")] if status == 0 else []


def _from_environment(chosen: str) -> Compiler:
    where = "environment variable CC"
    if KNOWN_COMPILERS.fullmatch(chosen):
        return _installed_compiler(chosen, where=where)
    if not os.path.isabs(chosen):
        raise UsageError(
            f"CC={chosen!r} is neither a known name of a C compiler nor an absolute path",
            where=where,
            hint="set it to a name such as gcc-12 or to one absolute path without arguments, or unset it",
        )
    return _probe(Path(chosen).name, (chosen,))


def _installed_compiler(name: str, *, where: str | None) -> Compiler:
    command = _locate(name)
    if command is None:
        raise ToolchainError(f"the C compiler {name!r} is not installed", where=where, hint=INSTALL_HINT)
    return _probe(name, command)


def _locate(name: str) -> tuple[str, ...] | None:
    if name != "ziglang":
        path = shutil.which(name)
        return None if path is None else (os.path.abspath(path),)
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        return None
    # Not `python -m ziglang`: that would put the folder being compiled on the module path of a Python process.
    binary = Path(spec.origin).with_name("zig")
    # zig turns the undefined-behaviour sanitizer on by itself, and its run-time library is not in a shared library.
    return (str(binary), "cc", "-fno-sanitize=undefined") if binary.is_file() else None


def _probe(name: str, command: tuple[str, ...]) -> Compiler:
    try:
        stat = os.stat(command[0])
    except OSError as error:
        raise ToolchainError(
            f"cannot start the C compiler {name!r}: {error.strerror}", where=command[0], hint=INSTALL_HINT
        ) from error
    return _identify(name, command, (stat.st_ino, stat.st_size, stat.st_mtime_ns))


@functools.lru_cache(maxsize=32)
def _identify(name: str, command: tuple[str, ...], _stamp: tuple[int, int, int]) -> Compiler:
    """Ask the compiler what it is; the stamp makes a replaced compiler a new question."""

    def ask(option: str) -> str:
        status, output = run((*command, option), cwd=None, timeout_s=_PROBE_TIMEOUT_S, hint=INSTALL_HINT)
        if status != 0:
            raise ToolchainError(
                f"the C compiler {name!r} fails when asked for {option} ({ending(status)})",
                where=shlex.join((*command, option)),
                hint=INSTALL_HINT,
            )
        return output.strip()

    version = ask("--version")
    clang = re.search(r"clang version [0-9]", version)
    if clang is None and not re.search(r"Free Software Foundation", version):
        raise ToolchainError(
            f"{name!r} does not say that it is gcc or clang, but {version.splitlines()[0][:80] if version else ''!r}",
            where=command[0],
            hint=INSTALL_HINT,
        )
    triple = re.search(r"^Target: (\S+)$", version, re.MULTILINE)
    target = triple.group(1) if triple else ask("-dumpmachine")
    return Compiler(command, name, "gcc" if clang is None else "clang", version, target)


@functools.cache
def host_cpu_id() -> str:
    """Digest that differs between CPUs for which ``-march=native`` may mean different things."""
    facts = {platform.machine(), platform.processor()}
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    # x86 then Arm names. Lines repeat per core; unequal cores (big.LITTLE) each add theirs.
    keys = (
        "vendor_id", "cpu family", "model", "model name", "stepping", "flags",
        "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features",
        "isa", "uarch",
    )  # fmt: skip
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in keys:
            facts.add(f"{key.strip()}={value.strip()}")
    return hashlib.sha256("\n".join(sorted(facts)).encode()).hexdigest()
