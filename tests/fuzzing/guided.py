"""Fuzz readers guided by coverage, with atheris: ``python -m tests.fuzzing.guided onnx --seconds 60``.

What is new is kept in ``build/fuzz/READER/corpus``, and found again by the next run; a file that is at fault is written
beside it. Mutations are those of `tests.fuzzing.readers` and libFuzzer's.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import pkgutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path("build") / "fuzz"
PACKAGES = ("frontends", "relay", "tir", "program", "artifact", "runtime", "partition", "plain_files", "json_record")
"""What of uma is instrumented."""

MISSING = "coverage-guided fuzzing needs atheris, which has wheels for Linux on x86-64: make fuzz installs it"


def fuzz(name: str, seconds: int) -> None:
    """Fuzz one reader for so long; ends the process."""
    import atheris

    with atheris.instrument_imports(include=["uma"], enable_loader_override=False):
        for package in PACKAGES:
            _import_all(importlib.import_module(f"uma.{package}"))
    from tests._support.fuzz import try_input
    from tests.fuzzing.readers import READERS

    reader = READERS[name]
    seeds = reader.seeds()
    corpus = FOLDER / name / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        corpus.joinpath(hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        if seed % 2:
            try:
                return reader.mutant((data, *seeds[:1]), seed // 2)[:max_size]
            except Exception:  # noqa: BLE001 - a mutation of fields needs a file that parses; libFuzzer's does not
                pass
        return bytes(atheris.Mutate(data, max_size))

    def read(data: bytes) -> None:
        trial = try_input(reader.load, data)
        if trial.fault is not None:
            raise trial.fault

    options = {
        "max_total_time": seconds,
        "max_len": 2 * max(map(len, seeds)),
        "timeout": 60,
        "rss_limit_mb": 8192,
        "print_final_stats": 1,
        "artifact_prefix": f"{FOLDER / name}/",
    }
    arguments = [f"-{key}={value}" for key, value in options.items()]
    atheris.Setup([sys.argv[0], *arguments, str(corpus)], read, custom_mutator=mutate)
    atheris.Fuzz()


def _import_all(package: ModuleType) -> None:
    """Import the modules of a package, and of those in it."""
    for found in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{package.__name__}."):
        if not found.name.endswith(".__main__"):
            importlib.import_module(found.name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line: each reader in a process of its own; 1 where one is at fault."""
    if importlib.util.find_spec("atheris") is None:
        print(MISSING, file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(description="Fuzz readers guided by coverage.")
    parser.add_argument("readers", nargs="*", metavar="READER", help="of tests.fuzzing.readers (default: all)")
    parser.add_argument("--seconds", type=int, default=60, help="of each reader (default: 60)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.here:
        fuzz(args.readers[0], args.seconds)
    from tests.fuzzing.readers import READERS

    failed: list[Any] = []
    for name in args.readers or READERS:
        if name not in READERS:
            parser.error(f"unknown reader {name!r}; one of {', '.join(READERS)}")
        command = [sys.executable, "-m", "tests.fuzzing.guided", name, "--seconds", str(args.seconds), "--here"]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    print(f"at fault: {', '.join(failed)}; the files are in {FOLDER}" if failed else "nothing is at fault")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
