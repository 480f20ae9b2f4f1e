"""Compiling and linking: shared libraries, objects and programs, from sources in a temporary folder."""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import ToolchainError, UsageError
from ..support.compiler_flags import refused_file_names, refused_flags
from ..support.interruptible import SIGNAL_POLL_S
from ..support.machines import Machine
from ..targets.values import suggest
from .discovery import INSTALL_HINT, Compiler
from .stack import Measured, measuring_flags, stack_bytes
from .subprocesses import Running, ending, excerpt, no_thread, run

__all__ = [
    "STACK_SYMBOL",
    "CompilationError",
    "CompileUnit",
    "compile_objects",
    "compile_program",
    "compile_shared",
    "refused_program",
    "try_link",
]

STACK_SYMBOL = "uma_stack_bytes"
"""In a shared library, a symbol the value of which is the stack that its function takes, where that is known."""

_TIMEOUT_S = 600.0
_LINK_TIMEOUT_S = 20.0
# Names that no file of the caller's can have.
_LINKED = ".linked"
_TEMPORARY = ".temporary"


class CompilationError(ToolchainError):
    """A compiler or linker refuses what it is given.

    Args:
        what, where, hint: as of `UmaError`; a hint says that the machine is at fault.
        output: all that it printed.
    """

    def __init__(self, what: str, *, where: str, hint: str | None, output: str) -> None:
        super().__init__(what, where=where, hint=hint)
        self.output = output


@dataclass(frozen=True)
class CompileUnit:
    """Sources that are compiled alike.

    Args:
        compiler: from `find_compiler`.
        sources: names of the files, one object each.
        flags: for each compilation, in order.
        objects: names of files that are objects already.
    """

    compiler: Compiler
    sources: Sequence[str]
    flags: Sequence[str] = ()
    objects: Sequence[str] = ()


def compile_shared(
    parts: Sequence[CompileUnit],
    files: Mapping[str, str | bytes],
    output: Path,
    *,
    libraries: Sequence[Path] = (),
    stack_of: str | None = None,
    complete: bool = False,
    jobs: int = 2,
    timeout_s: float = _TIMEOUT_S,
) -> Path:
    """Compile `parts` and link them into the shared library `output`.

    Everything happens in a temporary folder that holds `files` and is the compiler's working folder, so includes and
    ``.incbin`` find what lies beside the source. `output` appears whole or not at all; its folder must exist.

    Args:
        parts: which of `files` to compile, with what; the compiler of the first one also links. ``-fPIC``, ``-shared``
            and ``-lm`` are added.
        files: file name to content; text is written as UTF-8.
        output: where the library goes; replaced if it exists.
        libraries: files of other libraries that it needs, which it will find where they are now.
        stack_of: the function whose stack the library tells, as `STACK_SYMBOL`.
        complete: refuse symbols that neither it nor ``libraries`` define, instead of leaving them to the process that
            loads it.
        jobs: how many compilers run at once.
        timeout_s: seconds that one compiler may take.

    Returns:
        `output`.

    Raises:
        UsageError: a flag or a file name is not allowed, or the sources are not among the files.
        ToolchainError: the compiler failed, hung or could not be started, or the output's folder cannot be written.
    """

    def make(folder: _Folder) -> None:
        objects = folder.compile(parts, ("-fPIC",), jobs)
        nbytes = None if stack_of is None else stack_bytes(map(folder.measured, objects), stack_of)
        stack_flags = () if nbytes is None else (f"-Wl,--defsym={STACK_SYMBOL}={nbytes}",)
        # Apple's linker refuses undefined symbols by default, and does not know the option.
        defined = ("-Wl,-z,defs",) if complete and sys.platform != "darwin" else ()
        folder.link(parts[0].compiler, "the library", ("-shared", "-fPIC", *stack_flags, *defined), objects, libraries)

    return _run_compiler(make, parts, files, output, timeout_s)


def compile_program(
    parts: Sequence[CompileUnit],
    files: Mapping[str, str | bytes],
    output: Path,
    *,
    flags: Sequence[str] = (),
    libraries: Sequence[Path] = (),
) -> Path:
    """Compile `parts` and link them into the program `output`.

    Args:
        parts, files, output, libraries: as for `compile_shared`. The flags of the first part are given
            to its compiler again when it links: they say which of its own libraries it takes.
        flags: for the linker.

    Returns:
        `output`.

    Raises:
        UsageError, ToolchainError: as for `compile_shared`.
    """

    def make(folder: _Folder) -> None:
        objects = folder.compile(parts)
        folder.link(parts[0].compiler, "the program", (*parts[0].flags, *flags), objects, libraries)

    return _run_compiler(make, parts, files, output)


def compile_objects(parts: Sequence[CompileUnit], files: Mapping[str, str | bytes]) -> dict[str, Measured]:
    """Compile `parts`, each source to an object: ``NAME.c`` to ``NAME.c.o``.

    Args:
        parts, files: as for `compile_shared`.

    Returns:
        Name of each object to its content, with what the compiler says of its stack, in the order of the sources; then
        those that were there.

    Raises:
        UsageError, ToolchainError: as for `compile_shared`.
    """
    _check(parts, files)
    try:
        with tempfile.TemporaryDirectory(prefix="uma-objects-", ignore_cleanup_errors=True) as name:
            folder = _Folder(Path(name), files)
            return {object: folder.measured(object) for object in folder.compile(parts)}
    except OSError as error:
        raise _unwritable(error, "the folder for temporary files") from error


def _run_compiler(
    make: Callable[[_Folder], None],
    parts: Sequence[CompileUnit],
    files: Mapping[str, str | bytes],
    output: Path,
    timeout_s: float = _TIMEOUT_S,
) -> Path:
    """What ``make`` links in a folder, at ``output``."""
    _check(parts, files)
    try:
        # Beside the output, so that the last step is a rename within one file system.
        with tempfile.TemporaryDirectory(prefix=".uma-build-", dir=output.parent, ignore_cleanup_errors=True) as name:
            make(_Folder(Path(name), files, timeout_s))
            os.replace(Path(name, _LINKED), output)
    except OSError as error:
        raise _unwritable(error, str(output.parent)) from error
    return output


def _check(parts: Sequence[CompileUnit], files: Mapping[str, str | bytes]) -> None:
    if refused := refused_flags([flag for part in parts for flag in part.flags]):
        raise UsageError(
            f"the compiler flag {refused[0]!r} is not allowed",
            hint="allowed are optimisation, -march/-mcpu/-mtune, -std, warnings, -g, -D and a list of -m and -f flags",
        )
    if bad_names := refused_file_names([*files]):
        raise UsageError(f"{bad_names[0]!r} is not an allowed name of a source file")
    sources = [name for part in parts for name in part.sources]
    if missing := [name for part in parts for name in (*part.sources, *part.objects) if name not in files]:
        raise UsageError(f"the source {missing[0]!r} is not among the files")
    if not sources and not any(part.objects for part in parts):
        raise UsageError("there is no source to compile")


def _unwritable(error: OSError, where: str) -> ToolchainError:
    return ToolchainError(
        f"cannot write what the compiler needs or makes: {error.strerror}",
        where=where,
        hint="make room there, or choose a folder that can be written",
    )


class _Folder:
    """A folder in which some files are compiled."""

    def __init__(self, path: Path, files: Mapping[str, str | bytes], timeout_s: float = _TIMEOUT_S) -> None:
        self.path = path
        self._timeout_s = timeout_s
        self._running = Running()
        path.joinpath(_TEMPORARY).mkdir()
        for name, content in files.items():
            path.joinpath(name).write_bytes(content.encode() if isinstance(content, str) else content)

    def step(self, compiler: Compiler, what: str, arguments: Sequence[str], output: str) -> None:
        """Run a compiler; ToolchainError where it fails, or does not make the file ``output``."""
        command = (*compiler.command, *arguments)
        status, text = run(
            command,
            cwd=self.path,
            timeout_s=self._timeout_s,
            temporary=self.path / _TEMPORARY,
            running=self._running,
            hint=INSTALL_HINT,
        )
        if status != 0:
            if cpu := next((one for pattern in _UNKNOWN_CPU if (one := pattern.search(text))), None):
                valid = _VALID_CPUS.search(text)
                near = suggest(cpu[1], re.findall(r"[\w.+-]+", valid[1]) if valid else ())
                raise ToolchainError(
                    f"{compiler.name} does not know the CPU {cpu[1]!r}",
                    where=shlex.join(command),
                    hint=f"{near}-mcpu takes native, or a CPU that this compiler knows",
                )
            raise CompilationError(
                f"{compiler.name} could not {what} ({ending(status)})\n{excerpt(text)}".rstrip("\n"),
                where=shlex.join(command),
                hint=_hint(text),
                output=text,
            )
        product = self.path / output
        if product.is_symlink() or not product.is_file():
            raise ToolchainError(
                f"{compiler.name} made no file when it was to {what}",
                where=shlex.join(command),
                hint=INSTALL_HINT,
            )

    def link(
        self,
        compiler: Compiler,
        what: str,
        flags: Sequence[str],
        objects: Sequence[str],
        libraries: Sequence[Path],
    ) -> None:
        """Link objects of the folder into its file `_LINKED`."""
        compiler = replace(compiler, command=compiler.linker or compiler.command)
        self.step(compiler, f"link {what}", (*flags, *objects, "-o", _LINKED, *_rpaths(libraries), "-lm"), _LINKED)

    def measured(self, object_name: str) -> Measured:
        """One of the objects, with what its compiler says of the stack."""
        frames = self.path.joinpath(object_name).with_suffix(".su")
        text = frames.read_text(encoding="utf-8", errors="replace") if frames.is_file() else None
        return Measured(self.path.joinpath(object_name).read_bytes(), text)

    def compile(self, parts: Sequence[CompileUnit], flags: Sequence[str] = (), jobs: int = 2) -> list[str]:
        """Compile the sources of `parts`, with `flags` besides their own; gives the names of all objects."""

        def compile_one(part: CompileUnit, source: str) -> str:
            object_name = f"{source}.o"
            # Flags for C mean nothing to an assembler, which clang says of each of them.
            quiet = ("-Wno-unused-command-line-argument",) if source.endswith(".S") else ()
            part_flags = (*measuring_flags(part.compiler), *part.flags, *flags, *quiet)
            self.step(part.compiler, f"compile {source}", (*part_flags, "-c", source, "-o", object_name), object_name)
            return object_name

        with ThreadPoolExecutor(max_workers=jobs) as pool:
            try:
                objects = [pool.submit(compile_one, part, source) for part in parts for source in part.sources]
                return [*map(_result, objects), *(name for part in parts for name in part.objects)]
            except BaseException as error:  # an interrupt must not wait for compilers that may take minutes
                pool.shutdown(wait=False, cancel_futures=True)
                self._running.stop()
                if isinstance(error, RuntimeError):
                    raise no_thread(error) from error
                raise


def _result(name: Future[str]) -> str:
    while not wait([name], timeout=SIGNAL_POLL_S).done:
        pass
    return name.result()


def _rpaths(libraries: Sequence[Path]) -> list[str]:
    # By its path, a library is the one that was found, whatever else lies in its folder; none begins with a hyphen.
    # -Wl would split a path at its commas.
    files = [str(library.absolute()) for library in libraries]
    folders = dict.fromkeys(str(library.absolute().parent) for library in libraries)
    return [*files, *(text for folder in folders for text in ("-Xlinker", "-rpath", "-Xlinker", folder))]


_PROGRAM = (
    "#include <math.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <string.h>\n"
    'volatile float x = 2.0f;\nint main(void) { return (int32_t)sqrtf(x) + (int)strlen(""); }\n'
)


def refused_program(compiler: Compiler, machine: Machine | None = None) -> str | None:
    """Return what a compiler prints if it cannot make a small program with the C library; None if it can.

    Args:
        compiler: from `find_compiler`.
        machine: what it compiles for; None for this machine.

    Raises:
        ToolchainError: as for `try_link`.
    """
    compiler = replace(compiler, command=compiler.linker or compiler.command)
    # Start-up code is the firmware's.
    bare = ["-nostartfiles"] if machine is not None and machine.is_bare else []
    links, text = try_link(compiler, _PROGRAM, [*bare, "-lm"], tell_files=False)
    return None if links else text.strip() or f"{compiler.name} prints nothing"


def try_link(
    compiler: Compiler, program: str, arguments: Sequence[str], *, tell_files: bool = True
) -> tuple[bool, str]:
    """Whether a program links, and what compiler and linker print about it.

    Args:
        compiler: from `find_compiler`.
        program: C, with a ``main``.
        arguments: for the linker.
        tell_files: have it print the files that it takes, a line for each, which not every linker does.

    Raises:
        ToolchainError: the compiler hung or could not be started, or no temporary folder can be made.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="uma-link-", ignore_cleanup_errors=True) as name:
            Path(name, "program.c").write_text(program, encoding="utf-8")
            command = (
                *compiler.command,
                "-w",
                "-fno-builtin",
                "program.c",
                "-o",
                "program",
                *arguments,
                *(["-Wl,-t"] if tell_files else []),
            )
            folder = Path(name)
            status, text = run(command, cwd=folder, timeout_s=_LINK_TIMEOUT_S, temporary=folder, hint=INSTALL_HINT)
    except OSError as error:
        raise ToolchainError(
            f"cannot write what the compiler needs: {error.strerror}",
            where="the folder for temporary files",
            hint="make room there, or choose another one with TMPDIR",
        ) from error
    return status == 0, text


_UNKNOWN_CPU = tuple(
    re.compile(pattern)
    for pattern in (
        r"error: bad value '([\w.+-]+)' for '-m(?:arch|cpu)='",  # gcc for x86
        r"error: unknown target CPU '([\w.+-]+)'",  # clang
        r"error: unrecognized -mcpu target: ([\w.+-]+)",  # gcc for Arm
        r"error: unknown value '([\w.+-]+)' for '-mcpu'",  # gcc for AArch64
        r"error: '-mcpu=([\w.+-]+)': unknown CPU",  # gcc for RISC-V
        r"does not support '-m(?:arch|cpu)=([\w.+-]+)'",  # clang for Arm
    )
)
_VALID_CPUS = re.compile(r"valid (?:arguments|target CPU values)[^\n]*? are: ([^\n;]*)")


def _hint(text: str) -> str | None:
    if "No space left on device" in text:
        return "the disk is full: make room, or choose other folders with TMPDIR and UMA_CACHE_DIR"
    if re.search(r"fatal error: '?(?:stdint|stddef|string|math)\.h'?", text) or "cannot find -lm" in text:
        packages = (
            "libc6-dev, glibc-devel, musl-dev; libnewlib-arm-none-eabi, picolibc-riscv64-unknown-elf, "
            "libc6-dev-arm64-cross for other machines"
        )
        return f"the C library's development files are missing: install them ({packages})"
    return None
