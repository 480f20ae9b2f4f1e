"""Whether the plugin's C is C99 without a warning, keeps to names of its own, allocates nothing, and runs clean."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...contract.devices import CORE_BUSES, MMIO_BUS
from ...errors import ToolchainError, UmaError, UsageError
from ...hookspecs import Runtime
from ...runtime import CSRC
from ...support.machines import Machine
from ...targets import Target
from ...toolchain.compile import refused_program
from ...toolchain.discovery import Compiler, find_compiler
from ...toolchain.elf import Definition, definitions
from ...toolchain.origins import PluginCodeError, enclosing_function
from ...toolchain.subprocesses import run
from ..fault_injection import Perturbed
from ..outcome import Check, Outcome, Progress
from ..sample_layers import artifact_of, built, small_layers, uses_device

__all__ = ["C_SOURCES"]

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror")
_COMPILERS = ("gcc", "clang")
_CORTEX_M = Machine("arm-none-eabi", "cortex-m4")
_CORTEX_M_FLAGS = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=soft")
_ALLOCATES = frozenset({"malloc", "calloc", "realloc", "free", "aligned_alloc", "posix_memalign", "alloca"})
_TIMEOUT_S = 120.0


def _c_sources(outcome: Outcome, progress: Progress) -> None:
    subject = outcome.subject
    runtime = subject.member.runtime
    if runtime is None or not any(name.endswith(".c") for files in _groups(runtime).values() for name in files):
        outcome.skipped = "the target brings no C"
        return
    compilers = _compilers(outcome)
    if not compilers:
        outcome.skipped = "there is no C compiler"
        return
    compiled: set[tuple[str, str]] = set()
    for implementation, files in _groups(runtime).items():
        progress(f"C of {subject.kind.name}{f', impl={implementation}' if implementation else ''}")
        new = [name for name, text in sorted(files.items()) if name.endswith(".c") and (name, text) not in compiled]
        compiled |= {(name, files[name]) for name in new}
        for compiler in compilers:
            _compile(outcome, compiler, files, new, runtime)
    _sanitized(outcome, compilers[0], progress)
    _cross(outcome, runtime, progress)


C_SOURCES = Check("c", "C: warnings, names, memory, sanitizers, a Cortex-M", "driver", _c_sources, "kind")


def _groups(runtime: Runtime) -> dict[str, dict[str, str]]:
    """The C files of driver and each implementation, by the value of ``impl``; those of the driver alone, under the
    empty name, where there is none with sources of its own."""
    groups = {
        name: {**runtime.sources, **implementation.sources}
        for name, implementation in runtime.implementations.items()
        if implementation.sources
    }
    return groups or {"": dict(runtime.sources)}


def _compilers(outcome: Outcome) -> list[Compiler]:
    """Each compiler of this machine that is another one; the default one first."""
    compilers: list[Compiler] = []
    for name in (None, *_COMPILERS):
        try:
            compiler = find_compiler(name)
        except (ToolchainError, UsageError) as error:
            if name is not None:
                outcome.note(f"{name} was left out: {error.what}")
            continue
        if all(_program(compiler) != _program(other) for other in compilers):
            compilers.append(compiler)
    return compilers


def _program(compiler: Compiler) -> str:
    return os.path.realpath(compiler.command[0])


def _headers() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(CSRC.glob("*.h"))}


def _compile(
    outcome: Outcome, compiler: Compiler, files: Mapping[str, str], names: Sequence[str], runtime: Runtime
) -> None:
    """Files, each alone, as strictly as all generated C is compiled; their symbols are looked at. Of one with which
    something is wrong, what other compilers say of it is not told."""
    with tempfile.TemporaryDirectory(prefix="uma-check-") as name:
        folder = Path(name)
        for file, content in {**_headers(), **{n: text.encode() for n, text in files.items()}}.items():
            folder.joinpath(file).write_bytes(content)
        for file in names:
            if any(finding.where == file for finding in outcome.findings):
                continue
            object_file = folder / f"{file}.o"
            # Tables of pointers are constant where code is not moved when it is loaded.
            command = (*compiler.command, *STRICT, "-O2", "-fno-pie", "-fno-common", "-c", file, "-o", object_file.name)
            status, text = run(command, cwd=folder, timeout_s=_TIMEOUT_S)
            if status != 0:
                message = f"{compiler.name} -Wall -Wextra -Werror -std=c99: {_first_error(text, files)}"
                outcome.find("driver", message, file, "warnings")
                continue
            try:
                _symbols(outcome, definitions(object_file.read_bytes()), file, runtime)
            except ToolchainError as error:
                outcome.note(f"symbols were not looked at: {error.what}")


def _first_error(output: str, files: Mapping[str, str]) -> str:
    """The first line of a compiler's output that says what is wrong, and the function of the plugin that it is in."""
    lines = output.strip().splitlines()
    first = next((line for line in lines if re.search(r"error|warning", line)), lines[0] if lines else "")
    place = re.match(r"(?:\./)?([\w.+-]+):(\d+):", first)
    function = None if place is None else enclosing_function(files.get(place[1], ""), int(place[2]))
    return first[:300] + (f" (in {function})" if function else "")


def _symbols(outcome: Outcome, symbols: Sequence[Definition], where: str, runtime: Runtime) -> None:
    prefixes = own_prefixes(runtime, outcome.subject.kind.name)
    foreign = [one.name for one in symbols if one.is_defined and one.is_global and not one.name.startswith(prefixes)]
    if foreign:
        message = (
            f"{', '.join(foreign[:4])} can be seen from outside and begins with nothing of the plugin's own "
            f"({', '.join(prefixes)}): two plugins in one image may both have it"
        )
        outcome.find("driver", message, where, "names")
    written = [one.name for one in symbols if one.is_defined and one.is_writable]
    if written:
        message = f"{', '.join(written[:4])} is a variable of the whole program: all devices of the kind share it"
        outcome.find("driver", f"{message}; keep it in device->state", where, "state")
    allocates = sorted({one.name for one in symbols if not one.is_defined} & _ALLOCATES)
    if allocates and runtime.libraries:
        outcome.note(f"{where} calls {', '.join(allocates)}, as its library does")
    elif allocates:
        outcome.find("driver", f"{', '.join(allocates)} is called: a driver works in what it is given", where, "memory")


def own_prefixes(runtime: Runtime, kind: str) -> tuple[str, ...]:
    """What names of a plugin's functions may begin with: what its driver, buses, header and kind begin with."""
    names = [runtime.driver, runtime.header and runtime.header.removesuffix(".h")]
    for implementation in runtime.implementations.values():
        names += [implementation.driver, implementation.bus if implementation.bus not in CORE_BUSES else None]
    prefixes = {kind}
    for name in filter(None, names):
        head = name.rpartition("_")[0]
        prefixes.add(f"{head}_" if head and head != "uma" else name)
    return tuple(sorted(prefixes))


def _sanitized(outcome: Outcome, compiler: Compiler, progress: Progress) -> None:
    """Small layers that are taken, run twice under the address and undefined-behaviour sanitizers."""
    subject = outcome.subject
    if subject.target.get_attr("impl") == "mmio":
        outcome.note("sanitizers: registers in memory have no simulator to run")
        return
    progress(f"{subject.kind.name}: sanitizers")
    layers = small_layers(subject, progress)
    if not layers:
        outcome.note("sanitizers: no layer was found that the patterns take")
        return
    _, program = built(layers, subject.members)
    if subject.member.runtime is None or subject.member.label not in program.devices:
        outcome.note("sanitizers: no layer reaches a device")
        return
    artifact = artifact_of(program, subject.members)
    again = artifact_of(built(layers, subject.members)[1], subject.members)
    other = [name for name in artifact.files if again.files.get(name) != artifact.files[name]]
    if other or len(again.files) != len(artifact.files):
        message = "the same layers, built twice by one process, give other files"
        outcome.find("lowering", message, ", ".join(other[:4]), "repeated")
    try:
        harness = Perturbed(artifact, sanitized=True)
    except PluginCodeError as error:
        if not any(one.check == "c.warnings" for one in outcome.findings):
            raise
        outcome.note(f"sanitizers: {error.what.splitlines()[0]}")
        return
    except ToolchainError as error:
        outcome.note(f"sanitizers: {error.what.splitlines()[0]}")
        return
    with harness:
        said = harness.plain()
    if said:
        outcome.find("driver", f"with address and undefined-behaviour sanitizers: {said[0]}", said[1], "sanitizers")
    else:
        outcome.note(f"sanitizers: {len(layers)} layers ran clean, twice")


def _cross(outcome: Outcome, runtime: Runtime, progress: Progress) -> None:
    """The driver, with registers in memory, for a Cortex-M; and with it a model where its host can be one."""
    subject = outcome.subject
    mmio = next((name for name, one in runtime.implementations.items() if one.bus == MMIO_BUS), None)
    if mmio is None:
        outcome.note("Cortex-M: the kind has no implementation with registers in memory")
        return
    try:
        compiler = find_compiler(machine=_CORTEX_M)
        refused = refused_program(compiler, _CORTEX_M)
    except ToolchainError as error:
        outcome.note(f"Cortex-M: {error.what}")
        return
    if refused is not None:
        outcome.note(f"Cortex-M: {compiler.name} makes no program with the C library: {refused.splitlines()[-1]}")
        return
    progress(f"{subject.kind.name}: a Cortex-M")
    files = {**runtime.sources, **runtime.implementations[mmio].sources}
    with tempfile.TemporaryDirectory(prefix="uma-check-") as name:
        folder = Path(name)
        for file, content in {**_headers(), **{n: text.encode() for n, text in files.items()}}.items():
            folder.joinpath(file).write_bytes(content)
        for file in sorted(one for one in files if one.endswith(".c")):
            if any(finding.where == file for finding in outcome.findings):
                continue
            command = (*compiler.command, *_CORTEX_M_FLAGS, *STRICT, "-Os", "-c", file, "-o", f"{file}.o")
            status, text = run(command, cwd=folder, timeout_s=_TIMEOUT_S)
            if status != 0:
                message = f"for a Cortex-M, {compiler.name}: {_first_error(text, files)}"
                outcome.find("driver", message, file, "cross")
    _cross_model(outcome, mmio, progress)


def _cross_model(outcome: Outcome, impl: str, progress: Progress) -> None:
    """A model for a Cortex-M with the device at an address, where host and kind have attributes that say so."""
    subject = outcome.subject
    host = subject.host.kind
    attrs: dict[str, object] = {"mtriple": _CORTEX_M.triple, "mcpu": _CORTEX_M.cpu}
    if not all(host.has(name) for name in attrs) or not all(subject.kind.has(name) for name in ("impl", "base")):
        outcome.note("Cortex-M: the driver was compiled; the host cannot be told to be one")
        return
    layers = small_layers(subject, progress, 4)
    if not layers:
        outcome.note("Cortex-M: the driver was compiled; no layer was found that the patterns take")
        return
    try:
        accelerator = Target(subject.target, {"impl": impl, "base": 0x4000_0000})
        members = subject.for_target(accelerator, Target(host, attrs)).members
        _, program = built(layers, members)
        if not uses_device(program, subject.member.label):
            outcome.note("Cortex-M: the driver was compiled; the layers do not reach the device")
            return
        objects = artifact_of(program, members).objects()
    except (ToolchainError, PluginCodeError) as error:
        outcome.find("driver", f"a model for a Cortex-M cannot be compiled: {error.what}", error.where or "", "cross")
    except UmaError as error:
        outcome.note(f"Cortex-M: the driver was compiled; no model was built: {error.what}")
    else:
        outcome.note(f"Cortex-M: {len(objects)} objects of {len(layers)} layers with impl={impl}")
