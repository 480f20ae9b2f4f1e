"""Build models in one environment: one JSON request per line on stdin, one JSON answer per line on stdout.

The interpreter of the environment under test runs this file as a script. It imports only the standard library, and
finds the compiler through the console script ``uma``, so that it works with trees whose modules have other names.

    python driver.py OBJECTS

The current folder is scratch space. A request is ``{"arguments": [...]}``, the words of a ``uma`` command that writes
the artifact to ``out`` and the dumps to ``dump``. The answer has the exit code (None if the command raised), all that
it printed, SHA-256 and size of each file, and the CPU seconds. Files of text are stored under OBJECTS by digest.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

FOLDERS = ("out", "dump")
"""Folders that a command writes."""


class Spelling(NamedTuple):
    """Words of the command line that are written differently in some trees.

    Args:
        module: the words are replaced in trees that have this module.
        words: the new words, perhaps none, by the old one.
    """

    module: str
    words: Mapping[str, Sequence[str]]


SPELLINGS = (Spelling("uma.support.opt_ins", {"--requantize": ("--allow",), "fixed-point": ("rounding=fixed-point",)}),)
"""All renamed words. Requests have the old ones."""


def _has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its package is missing
        return False


def spell(arguments: Iterable[str], spellings: Sequence[Spelling] = SPELLINGS) -> list[str]:
    """Return the arguments in the words of the tree that is installed here."""
    words: dict[str, Sequence[str]] = {}
    for spelling in spellings:
        if _has_module(spelling.module):
            words.update(spelling.words)
    return [new for word in arguments for new in words.get(word, (word,))]


def store(objects: Path, content: bytes) -> str:
    """Return the SHA-256 of ``content``; keep text, compressed, under ``objects``."""
    digest = hashlib.sha256(content).hexdigest()
    path = objects / digest[:2] / digest[2:]
    if not path.exists() and _is_text(content):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(zlib.compress(content, 6))
        os.replace(file.name, path)
    return digest


def _is_text(content: bytes) -> bool:
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False


def collect(objects: Path, folders: Sequence[str] = FOLDERS) -> dict[str, dict[str, Any]]:
    """Return digest and size of each file below ``folders``, by its path; keep what is text."""
    paths = [path for folder in folders for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    return {
        "files": {path.as_posix(): store(objects, path.read_bytes()) for path in paths},
        "sizes": {path.as_posix(): path.stat().st_size for path in paths},
    }


def build(command: Callable[[list[str]], object], arguments: Sequence[str], objects: Path) -> dict[str, Any]:
    """Run one command in the current folder and return the answer, without what it printed."""
    for folder in FOLDERS:
        shutil.rmtree(folder, ignore_errors=True)
    start = time.process_time()
    code: object
    try:
        code = command(spell(arguments))
    except SystemExit as error:
        code = error.code
    except Exception as error:  # noqa: BLE001 - the outcome of this build, which the judge compares
        print(*traceback.format_exception_only(type(error), error), sep="", end="", file=sys.stderr)
        code = None
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"code": code, **collect(objects), "cpu_seconds": round(seconds, 3), "peak_kib": peak}


def serve(lines: Iterable[str], command: Callable[[list[str]], object], objects: Path) -> Iterator[dict[str, Any]]:
    """Yield the answer to each request. What a command prints to the file descriptors 1 and 2 is its ``message``."""
    environment = f"{Path(sys.prefix).parent}/"  # each side has its own, and messages may name files there
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
        for line in lines:
            os.lseek(printed.fileno(), 0, os.SEEK_SET)
            os.ftruncate(printed.fileno(), 0)
            answer = build(command, json.loads(line)["arguments"], objects)
            sys.stdout.flush()
            sys.stderr.flush()
            printed.seek(0)
            message = printed.read().decode(errors="replace").replace(environment, "ENVIRONMENT/")
            yield {**answer, "message": message}


def main(objects: Path) -> None:
    """Answer requests until stdin ends."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        (script,) = entry_points(group="console_scripts", name="uma")
        for answer in serve(sys.stdin, script.load(), objects):
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
