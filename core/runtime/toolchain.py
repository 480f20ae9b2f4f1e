"""The C compiler of this machine: finding it, asking what it is, making a shared library with it.

What reaches the compiler's command line is never free text. Compilers go by a known name, flags pass an allowlist,
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
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, cast

from ..errors import ToolchainError, UsageError

__all__ = [
    "ALLOWED_FLAGS",
    "FILE_NAME",
    "KNOWN_COMPILERS",
    "Compiler",
    "Part",
    "compile_shared",
    "find_compiler",
    "host_cpu_id",
    "native_flags",
    "refused_file_names",
    "refused_flags",
    "try_link",
]

KNOWN_COMPILERS = re.compile(r"(?:cc|gcc|clang|(?:gcc|clang)-[1-9][0-9]?(?:\.[0-9]{1,2})?|ziglang)", re.ASCII)
"""The names by which a target may ask for a compiler; the whole name must match."""

ALLOWED_FLAGS = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        r"-O[0-3sgz]?",
        r"-m(?:arch|cpu|tune)=[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}",
        r"-mprefer-vector-width=(?:none|128|256|512)",
        r"-std=(?:c|gnu)(?:99|11|17)",
        r"-ffp-contract=(?:off|on|fast)",
        r"-f(?:no-)?(?:builtin|common|data-sections|function-sections|math-errno|omit-frame-pointer|plt|rounding-math"
        r"|semantic-interposition|strict-aliasing|trapping-math|tree-slp-vectorize|tree-vectorize|unroll-loops|wrapv)",
        r"-fvisibility=(?:default|hidden)",
        r"-pedantic|-W[a-z][a-z0-9+-]*(?:=[a-z0-9+-]+)?",
        r"-D[A-Za-z_][A-Za-z0-9_]{0,99}(?:=[A-Za-z0-9_]{0,100})?",
        r"-g[0-3]?",
    )
)
"""Flags that may reach a compiler, from a plugin or from an artifact's metadata; one of them must match wholly.

None of them makes a compiler load, run, read or write a file. ``-Ofast`` and ``-ffast-math`` are absent because
linking with them sets the flush-to-zero mode of the whole process.
"""

FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}", re.ASCII)
"""Names of generated files: one path component that no tool takes for an option."""

_NATIVE = re.compile(r"-m(?:arch|cpu|tune)=native")
_SEARCH_ORDER = ("cc", "gcc", "clang", "ziglang")
_INSTALL_HINT = "install gcc or clang, or add one to this environment with: pip install ziglang"
_PROBE_TIMEOUT_S = 20.0
_COMPILE_TIMEOUT_S = 600.0
_MAX_OUTPUT_BYTES = 1 << 20
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
    """

    command: tuple[str, ...]
    name: str
    kind: Literal["gcc", "clang"]
    version: str
    target: str

    @property
    def identity(self) -> str:
        """Digest that differs when this compiler may produce other code than another."""
        return hashlib.sha256("\0".join((*self.command, self.kind, self.version, self.target)).encode()).hexdigest()


@dataclass(frozen=True)
class Part:
    """Sources that are compiled alike.

    Args:
        compiler: from `find_compiler`.
        sources: names of the files, one object each.
        flags: for each compilation, in order.
    """

    compiler: Compiler
    sources: Sequence[str]
    flags: Sequence[str] = ()


def find_compiler(name: str | None = None) -> Compiler:
    """The compiler called `name`, else the user's ``CC``, else the first of cc, gcc, clang, ziglang that answers.

    A name that comes with a target or an artifact must match `KNOWN_COMPILERS` and is looked up on PATH. ``CC`` is the
    user's own word about this machine, so it may also be an absolute path; it is never split into words.

    Raises:
        UsageError: `name` or ``CC`` is not acceptable.
        ToolchainError: the compiler is not there, or does not behave like one.
    """
    if name is not None:
        if not KNOWN_COMPILERS.fullmatch(name):
            raise UsageError(
                f"{name!r} is not a known name of a C compiler",
                hint="use cc, gcc, clang, gcc-VERSION, clang-VERSION or ziglang; for a path, set CC in the environment",
            )
        return _found(name, where=None)
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
        raise ToolchainError(what, where=failures[0].where, hint=_INSTALL_HINT) from failures[0]
    raise ToolchainError("no C compiler was found", where="PATH", hint=_INSTALL_HINT)


def _from_environment(chosen: str) -> Compiler:
    where = "environment variable CC"
    if KNOWN_COMPILERS.fullmatch(chosen):
        return _found(chosen, where=where)
    if not os.path.isabs(chosen):
        raise UsageError(
            f"CC={chosen!r} is neither a known name of a C compiler nor an absolute path",
            where=where,
            hint="set it to a name such as gcc-12 or to one absolute path without arguments, or unset it",
        )
    return _probe(Path(chosen).name, (chosen,))


def _found(name: str, *, where: str | None) -> Compiler:
    command = _locate(name)
    if command is None:
        raise ToolchainError(f"the C compiler {name!r} is not installed", where=where, hint=_INSTALL_HINT)
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
            f"cannot start the C compiler {name!r}: {error.strerror}", where=command[0], hint=_INSTALL_HINT
        ) from error
    return _identify(name, command, (stat.st_ino, stat.st_size, stat.st_mtime_ns))


@functools.lru_cache(maxsize=32)
def _identify(name: str, command: tuple[str, ...], _stamp: tuple[int, int, int]) -> Compiler:
    """Ask the compiler what it is; the stamp makes a replaced compiler a new question."""

    def ask(option: str) -> str:
        status, output = _run((*command, option), cwd=None, timeout_s=_PROBE_TIMEOUT_S)
        if status != 0:
            raise ToolchainError(
                f"the C compiler {name!r} fails when asked for {option} ({_ending(status)})",
                where=shlex.join((*command, option)),
                hint=_INSTALL_HINT,
            )
        return output.strip()

    version = ask("--version")
    clang = re.search(r"clang version [0-9]", version)
    if clang is None and not re.search(r"Free Software Foundation", version):
        raise ToolchainError(
            f"{name!r} does not say that it is gcc or clang, but {version.splitlines()[0][:80] if version else ''!r}",
            where=command[0],
            hint=_INSTALL_HINT,
        )
    triple = re.search(r"^Target: (\S+)$", version, re.MULTILINE)
    target = triple.group(1) if triple else ask("-dumpmachine")
    return Compiler(command, name, "gcc" if clang is None else "clang", version, target)


def refused_flags(flags: Sequence[str]) -> list[str]:
    """Those of `flags` that no pattern of `ALLOWED_FLAGS` matches, in order."""
    return [flag for flag in flags if not any(pattern.fullmatch(flag) for pattern in ALLOWED_FLAGS)]


def refused_file_names(names: Sequence[str]) -> list[str]:
    """Those of `names` that do not match `FILE_NAME`, or that a file system without letter case would confuse."""
    seen: set[str] = set()
    refused = []
    for name in names:
        if not FILE_NAME.fullmatch(name) or name.lower() in seen:
            refused.append(name)
        seen.add(name.lower())
    return refused


def native_flags(flags: Sequence[str]) -> list[str]:
    """Those of `flags` whose meaning depends on the CPU that the compiler runs on."""
    return [flag for flag in flags if _NATIVE.fullmatch(flag)]


@functools.cache
def host_cpu_id() -> str:
    """Digest that differs between CPUs for which ``-march=native`` may mean different things."""
    facts = {platform.machine(), platform.processor()}
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    # x86 then Arm names. Lines repeat per core; unequal cores (big.LITTLE) each add theirs.
    wanted = (
        "vendor_id", "cpu family", "model", "model name", "stepping", "flags",
        "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features",
        "isa", "uarch",
    )  # fmt: skip
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in wanted:
            facts.add(f"{key.strip()}={value.strip()}")
    return hashlib.sha256("\n".join(sorted(facts)).encode()).hexdigest()


def compile_shared(
    parts: Sequence[Part],
    files: Mapping[str, str | bytes],
    output: Path,
    *,
    libraries: Sequence[Path] = (),
    jobs: int = 2,
    timeout_s: float = _COMPILE_TIMEOUT_S,
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
        jobs: how many compilers run at once.
        timeout_s: seconds that one compiler may take.

    Returns:
        `output`.

    Raises:
        UsageError: a flag or a file name is not allowed, or the sources are not among the files.
        ToolchainError: the compiler failed, hung or could not be started, or the output's folder cannot be written.
    """
    if refused := refused_flags([flag for part in parts for flag in part.flags]):
        raise UsageError(
            f"the compiler flag {refused[0]!r} is not allowed",
            hint="allowed are optimisation, -march/-mcpu/-mtune, -std, warnings, -g, -D and a list of -f flags",
        )
    if bad_names := refused_file_names([*files]):
        raise UsageError(f"{bad_names[0]!r} is not an allowed name of a source file")
    sources = [name for part in parts for name in part.sources]
    if missing := [name for name in sources if name not in files]:
        raise UsageError(f"the source {missing[0]!r} is not among the files")
    if not sources:
        raise UsageError("there is no source to compile")

    try:
        # Beside the output, so that the last step is a rename within one file system.
        with tempfile.TemporaryDirectory(prefix=".uma-build-", dir=output.parent, ignore_cleanup_errors=True) as name:
            library = _build(parts, files, libraries, Path(name), jobs, timeout_s)
            os.replace(library, output)
    except OSError as error:
        raise ToolchainError(
            f"cannot write what the compiler needs or makes: {error.strerror}",
            where=str(output.parent),
            hint="make room there, or choose a folder that can be written",
        ) from error
    return output


def _build(
    parts: Sequence[Part],
    files: Mapping[str, str | bytes],
    libraries: Sequence[Path],
    folder: Path,
    jobs: int,
    timeout_s: float,
) -> Path:
    """Compile and link inside `folder`; gives the library's path in it."""
    for file, content in files.items():
        folder.joinpath(file).write_bytes(content.encode() if isinstance(content, str) else content)
    running = _Running()

    def step(compiler: Compiler, what: str, arguments: Sequence[str]) -> None:
        command = (*compiler.command, *arguments)
        status, text = _run(command, cwd=folder, timeout_s=timeout_s, running=running)
        if status != 0:
            raise ToolchainError(
                f"{compiler.name} could not {what} ({_ending(status)})\n{_excerpt(text)}",
                where=shlex.join(command),
                hint=_hint(text),
            )

    def compile_one(part: Part, source: str) -> str:
        step(part.compiler, f"compile {source}", (*part.flags, "-fPIC", "-c", source, "-o", f"{source}.o"))
        return f"{source}.o"

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        try:
            objects = list(
                pool.map(compile_one, *zip(*((part, s) for part in parts for s in part.sources), strict=True))
            )
        except BaseException:  # an interrupt must not wait for compilers that may take minutes
            pool.shutdown(wait=False, cancel_futures=True)
            running.stop()
            raise
    library = folder / ".library.so"  # a name that no file of the caller's can have
    step(
        parts[0].compiler,
        "link the library",
        ("-shared", "-fPIC", *objects, "-o", library.name, *_linked(libraries), "-lm"),
    )
    return library


def _linked(libraries: Sequence[Path]) -> list[str]:
    # By its path, a library is the one that was found, whatever else lies in its folder; none begins with a hyphen.
    # -Wl would split a path at its commas.
    files = [str(library.absolute()) for library in libraries]
    folders = dict.fromkeys(str(library.absolute().parent) for library in libraries)
    return [*files, *(text for folder in folders for text in ("-Xlinker", "-rpath", "-Xlinker", folder))]


def try_link(compiler: Compiler, program: str, arguments: Sequence[str]) -> tuple[bool, str]:
    """Whether a program links, and what compiler and linker print about it.

    Args:
        compiler: from `find_compiler`.
        program: C, with a ``main``.
        arguments: for the linker. The files that it takes are printed, a line for each.

    Raises:
        ToolchainError: the compiler hung or could not be started, or no temporary folder can be made.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="uma-link-", ignore_cleanup_errors=True) as name:
            Path(name, "program.c").write_text(program, encoding="utf-8")
            command = (*compiler.command, "-w", "-fno-builtin", "program.c", "-o", "program", *arguments, "-Wl,-t")
            status, text = _run(command, cwd=Path(name), timeout_s=_PROBE_TIMEOUT_S)
    except OSError as error:
        raise ToolchainError(
            f"cannot write what the compiler needs: {error.strerror}",
            where="the folder for temporary files",
            hint="make room there, or choose another one with TMPDIR",
        ) from error
    return status == 0, text


class _Running:
    """The tools that work on one thing, each the leader of a process group, so that they can be stopped together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leaders: set[int] = set()
        self._stopped = False

    def add(self, leader: int) -> None:
        with self._lock:
            self._leaders.add(leader)
            if self._stopped:
                _kill(leader)

    def remove(self, leader: int) -> None:
        """Before its process is waited for: until then nothing else has its number."""
        with self._lock:
            self._leaders.discard(leader)

    def stop(self) -> None:
        """Kill all that were added, and all that will be."""
        with self._lock:
            self._stopped = True
            for leader in self._leaders:
                _kill(leader)


def _kill(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended by itself just now


def _run(
    command: Sequence[str], *, cwd: Path | None, timeout_s: float, running: _Running | None = None
) -> tuple[int, str]:
    """Exit status and merged output of a tool; it and its children are killed when it hangs or floods."""
    running = running or _Running()
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a compiler has children that hold the pipe: they must go with it
        )
    except OSError as error:
        raise ToolchainError(
            f"cannot start {Path(command[0]).name}: {error.strerror}", where=command[0], hint=_INSTALL_HINT
        ) from error
    running.add(process.pid)
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        _kill(process.pid)

    timer = threading.Timer(timeout_s, expire)
    timer.start()
    pipe = cast("IO[bytes]", process.stdout)
    flooded = True
    try:
        output = pipe.read(_MAX_OUTPUT_BYTES + 1)
        flooded = len(output) > _MAX_OUTPUT_BYTES
    finally:
        if flooded:
            _kill(process.pid)
        pipe.close()
        running.remove(process.pid)
        process.wait()
        timer.cancel()
    if expired.is_set():
        raise ToolchainError(
            f"{Path(command[0]).name} did not finish within {timeout_s:g} s and was stopped", where=shlex.join(command)
        )
    if flooded:
        raise ToolchainError(
            f"{Path(command[0]).name} printed more than {_MAX_OUTPUT_BYTES} bytes and was stopped",
            where=shlex.join(command),
        )
    return process.returncode, output.decode("utf-8", "replace")


def _ending(status: int) -> str:
    return f"killed by signal {-status}" if status < 0 else f"exit status {status}"


def _excerpt(text: str, lines: int = 10, columns: int = 200) -> str:
    shown = [line[:columns] for line in text.splitlines() if line.strip()]
    more = [f"... {len(shown) - lines} more lines"] if len(shown) > lines else []
    return "\n".join(f"    {line}" for line in [*shown[:lines], *more])


def _hint(text: str) -> str | None:
    if "No space left on device" in text:
        return "the disk is full: make room, or choose other folders with TMPDIR and UMA_CACHE_DIR"
    if re.search(r"fatal error: '?(?:stdint|stddef|string|math)\.h'?", text) or "cannot find -lm" in text:
        return "the C library's development files are missing: install them (libc6-dev, glibc-devel, musl-dev)"
    return None
