"""A model with its devices as a program of its own: run with sanitizers, or with accesses of its drivers changed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from ..artifact import Artifact
from ..errors import ToolchainError, UsageError
from ..support.c_text import c_identifier
from ..toolchain.compile import CompilationError
from ..toolchain.discovery import Compiler, find_compiler
from ..toolchain.subprocesses import excerpt, run

__all__ = ["Case", "Ending", "Perturbed", "RegisterAccess"]

_HARNESS = Path(__file__).with_name("csrc") / "uma_perturb.c"
_SANITIZED = ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_PLAIN_S, _BUILD_S, _ALL_S = 120.0, 300.0, 600.0
_MAIN = "uma_perturb_main.c"


class RegisterAccess(NamedTuple):
    """One access of a driver to a register.

    Args:
        is_write: else it is a read.
        device: its position in the model.
        offset, value: of the register.
        is_address: whether it is a half of the address of memory.
    """

    is_write: bool
    device: int
    offset: int
    value: int
    is_address: bool


@dataclass(frozen=True)
class Case:
    """One change of what a driver does or sees, as ``uma_perturb.c`` has them.

    Args:
        kind: its name there.
        device, index, offset, value: what it says of them.
        shown: the same in words.
    """

    kind: str
    device: int
    index: int
    offset: int
    value: int
    shown: str


@dataclass(frozen=True)
class Ending:
    """How a case ended.

    Args:
        opened: the fault code of opening; 0 where that went well.
        code: the fault code of the run, or of opening; 0 for none.
        status: of the run, as ``uma_runtime.h`` has them.
        recovered: whether a run without a change is right afterwards.
        signal: that ended the process; 0 where none did.
        skipped: whether it was not tried, as others had no end.
    """

    opened: int = 0
    code: int = 0
    status: int = 0
    recovered: bool = True
    signal: int = 0
    skipped: bool = False


class Perturbed:
    """The program, compiled. Leave it at the end of a ``with``.

    Args:
        artifact: a model for this machine.
        sanitized: with the address and undefined-behaviour sanitizers.

    Attributes:
        constant_bytes: size of the model's constants.

    Raises:
        ToolchainError: it cannot be compiled.
        PluginCodeError: C of the plugin is the reason.
        UsageError: the model is for another machine.
    """

    def __init__(self, artifact: Artifact, *, sanitized: bool = False) -> None:
        if not artifact.is_native:
            raise UsageError("the model is for another machine, and cannot be run here")
        self._folder = tempfile.TemporaryDirectory(prefix="uma-check-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        try:
            self._program = _compiled(artifact, folder, find_compiler(), sanitized)
            self.constant_bytes = artifact.constant_bytes
        except BaseException:
            self._folder.cleanup()
            raise

    def __enter__(self) -> Perturbed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def _run(self, *arguments: str, stdin: str = "", seconds: float = _PLAIN_S) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
        try:
            return subprocess.run(
                [str(self._program), *arguments],
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(arguments, -14, "", f"it did not end within {seconds:g} s")

    def plain(self) -> tuple[str, str] | None:
        """What is wrong with two runs without a change, and where; None for nothing."""
        done = self._run("plain")
        if done.returncode == 0:
            return None
        for line in done.stderr.splitlines():
            if (match := re.search(r"(?:^|/)([\w.+-]+\.[ch]:\d+)(?::\d+)?: runtime error: (.*)", line)) is not None:
                return match[2], match[1]
            if (match := re.search(r"ERROR: AddressSanitizer: ([\w-]+)", line)) is not None:
                place = re.search(r"#\d+ .* in (\w+) (?:\S*/)?([\w.+-]+\.[ch]:\d+)", done.stderr)
                return match[1], f"{place[1]}, {place[2]}" if place is not None else ""
        said = done.stdout.strip().splitlines()[-1:] or done.stderr.strip().splitlines()[-1:] or [""]
        how = {4: "a device cannot be opened", 5: "a run is stopped", 6: "the runs differ"}
        return f"{how.get(done.returncode, f'the program ends with {done.returncode}')}: {said[0]}".rstrip(": "), ""

    def record(self) -> list[RegisterAccess] | str:
        """What drivers do to the registers of their devices in one run; or, in words, why there is none."""
        done = self._run("record")
        if done.returncode != 0:
            return f"the program ends with {done.returncode} {done.stdout.strip()[-100:]}"
        accesses = []
        for line in done.stdout.splitlines():
            how, *numbers = line.split()
            device, offset, value, address = map(int, numbers)
            accesses.append(RegisterAccess(how == "w", device, offset, value, bool(address)))
        return accesses

    def endings(self, cases: Sequence[Case], seconds: int) -> list[Ending]:
        """How each case ends.

        Args:
            cases: what is changed, one at a time.
            seconds: of the processor that one may take.

        Raises:
            ToolchainError: the program ended before its time.
        """
        half = (len(cases) + 1) // 2
        with ThreadPoolExecutor(2) as pool:
            parts = pool.map(lambda some: self._endings(some, seconds), (cases[:half], cases[half:]))
            return [one for part in parts for one in part]

    def _endings(self, cases: Sequence[Case], seconds: int) -> list[Ending]:
        lines = "".join(f"{one.kind} {one.device} {one.index} {one.offset} {one.value}\n" for one in cases)
        done = self._run("run", str(seconds), stdin=lines, seconds=_ALL_S)
        endings: list[Ending] = []
        for line in done.stdout.splitlines():
            if ended := re.search(r"signal (\d+)$", line):
                endings.append(Ending(signal=int(ended[1])))
            elif line == "skipped":
                endings.append(Ending(skipped=True))
            elif ended := re.search(r"exit (\d+)$", line):
                endings.append(Ending(signal=-int(ended[1])))
            elif ended := re.fullmatch(r"(-?\d+) (-?\d+) (-?\d+) (-?\d+) (\d)", line):
                opened, status, _, code, after = map(int, ended.groups())
                endings.append(Ending(opened, code, status, bool(after)))
        if len(endings) != len(cases):
            raise ToolchainError(f"of {len(cases)} changed runs {len(endings)} have an end", where=done.stderr[-200:])
        return endings


def _compiled(artifact: Artifact, folder: Path, compiler: Compiler, sanitized: bool) -> Path:
    name = c_identifier(artifact.name)
    for file, content in artifact.files.items():
        if "/" not in file:
            folder.joinpath(file).write_bytes(content)
    folder.joinpath(_HARNESS.name).write_bytes(_HARNESS.read_bytes())
    main = f'#include "{name}.h"\n\nconst uma_model *uma_perturbed_model(void);\n\n'
    main += "const unsigned char *uma_perturbed_constants(void);\n\n"
    main += f"const uma_model *uma_perturbed_model(void)\n{{\n    return {name}_model();\n}}\n\n"
    constants = "NULL"
    if artifact.constant_bytes:
        constants = f"{name}_weights"
        main += f"extern const unsigned char {constants}[];\n\n"
    main += f"const unsigned char *uma_perturbed_constants(void)\n{{\n    return {constants};\n}}\n"
    folder.joinpath(_MAIN).write_text(main, encoding="utf-8")
    compiled = artifact.record.compile
    if compiled.libraries:
        raise ToolchainError(f"the model is linked with {compiled.libraries[0].name}, which is not part of the check")
    sources = [source for host in compiled.hosts for source in host.sources]
    flags = (*compiled.hosts[0].flags, *(_SANITIZED if sanitized else ("-O2",)))
    command = (
        *compiler.command,
        "-std=c99",
        *flags,
        *dict.fromkeys((*sources, _MAIN, _HARNESS.name)),
        "-o",
        "program",
        "-lm",
    )
    status, text = run(command, cwd=folder, timeout_s=_BUILD_S)
    if status != 0:
        message = f"the program with the devices cannot be compiled\n{excerpt(text)}"
        error = CompilationError(message, where=shlex.join(command), hint=None, output=text)
        raise artifact.origins.fault(error, artifact.files) or error
    return folder / "program"
