"""Which `raise` of the sources no test reaches: ``make raises``, or ``python tests/raises.py [what pytest takes]``.

Without arguments, the whole suite (its soak tests excepted) is run under coverage, with the processes that the tests
start, and what it did not reach is listed. With arguments, pytest gets these, and what it reaches is added to what
earlier runs did: ``python tests/raises.py tests/cli -k doctor`` after a test was written. A source that was changed
since does not count as reached by earlier runs.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("core", "plugins/*/src", "examples/*/src")
DATA = ROOT / "build" / "raises"

EXPLAINED: dict[tuple[str, str, str], str] = {}
"""Why no test reaches a `raise`, by its file, its function and its text."""

if sys.version_info >= (3, 11):
    _SHALLOW = "raise self._error_at_offset(token.start(), _TOO_DEEP)"
    EXPLAINED["core/tir/form/source_text.py", "Source._require_shallow", _SHALLOW] = (
        "for Python 3.10, whose parser would crash"
    )
if sys.version_info < (3, 12):
    _PARAMETERS = "raise self.{}, 'a function has no type parameters')"
    for _file, _function, _call in (
        ("core/relay/text.py", "_Parser.params", "source.error(definition"),
        ("core/tir/form/text.py", "FuncParser.function", "error(node"),
    ):
        EXPLAINED[_file, _function, _PARAMETERS.format(_call)] = "of syntax that Python has from 3.12 on"

DISTURBED = (
    "tests/cli/test_cli_processes.py::test_a_full_disk",  # has no room for what is measured either
    "tests/cli/test_cli_processes.py::test_help_imports_nothing_heavy",  # coverage imports much
)
"""Tests that fail under coverage, for its own doing."""


@dataclass(frozen=True)
class Raise:
    """A `raise` statement: its file (from the root of the repository), the function around it, its lines and text."""

    file: str
    function: str
    lines: range
    text: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What stays the same when lines are added above it."""
        return self.file, self.function, self.text


def raises_in(source: str, file: str) -> Iterator[Raise]:
    """The `raise` statements of ``source``, in order."""

    def inside(node: ast.AST, function: str) -> Iterator[Raise]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            function = f"{function}.{node.name}".lstrip(".")
        elif isinstance(node, ast.Raise):
            assert node.end_lineno is not None
            yield Raise(file, function, range(node.lineno, node.end_lineno + 1), ast.unparse(node))
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr):  # which has no statement in it
                yield from inside(child, function)

    return inside(ast.parse(source), "")


def all_raises() -> list[Raise]:
    """Those of the core, the plugins and the examples."""
    files = sorted(path for folders in SOURCES for folder in ROOT.glob(folders) for path in folder.rglob("*.py"))
    relative = {path: path.relative_to(ROOT).as_posix() for path in files}
    return [found for path, file in relative.items() for found in raises_in(path.read_text(encoding="utf-8"), file)]


def run_tests(arguments: list[str]) -> int:
    """Runs pytest with ``arguments`` under coverage, which leaves its files in `DATA`; gives pytest's exit status."""
    DATA.mkdir(parents=True, exist_ok=True)
    settings = DATA / "coveragerc"
    include = "".join(f"\n    {ROOT}/{folders}/*" for folders in SOURCES)
    lines = ["[run]", "parallel = true", "patch = subprocess, _exit", f"data_file = {DATA}/data", f"include ={include}"]
    settings.write_text("\n".join([*lines, "disable_warnings = no-data-collected, module-not-measured", ""]))
    core = {"COVERAGE_CORE": "sysmon"} if sys.version_info >= (3, 12) else {}  # quicker than tracing
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", *arguments]
    command += [f"--deselect={test}" for test in DISTURBED]
    return subprocess.run(command, cwd=ROOT, env={**core, **os.environ}, check=False).returncode


def reached() -> dict[str, set[int]]:
    """The lines that the runs since the last whole one reached, by file."""
    from coverage import CoverageData
    from coverage.exceptions import DataError

    lines: dict[str, set[int]] = {}
    for path in DATA.glob("data.*"):
        data = CoverageData(str(path))
        try:
            data.read()
        except DataError:  # of a process that a test stopped, or gave no room, while it was written
            continue
        for file in data.measured_files():
            source = Path(file)
            if source.is_file() and source.stat().st_mtime < path.stat().st_mtime:
                lines.setdefault(source.relative_to(ROOT).as_posix(), set()).update(data.lines(file) or ())
    return lines


def report(found: list[Raise], lines: dict[str, set[int]], explained: dict[tuple[str, str, str], str]) -> bool:
    """Lists what was not reached, and explanations that are not needed; whether anything is to be done about it."""
    missed = [one for one in found if not lines.get(one.file, set()).intersection(one.lines)]
    for one in missed:
        reason = f" ({explained[one.key]})" if one.key in explained else ""
        print(f"{one.file}:{one.lines[0]}: {one.text}{reason}")
    needless = explained.keys() - {one.key for one in missed}
    for file, function, text in sorted(needless):
        print(f"{file}: {function}: {text}: explained in {Path(__file__).name}, but it is reached or gone")
    unexplained = sum(one.key not in explained for one in missed)
    print(f"{len(found)} raises; no test reaches {unexplained} of them, and {len(missed) - unexplained} for a reason")
    return bool(unexplained or needless)


def main(arguments: list[str]) -> int:
    """Runs the tests and reports; 1 if tests failed or something is listed."""
    if not arguments:
        shutil.rmtree(DATA, ignore_errors=True)
    failed = run_tests(arguments or ["-q", "-n", "2", "--dist", "worksteal"])
    return int(report(all_raises(), reached(), EXPLAINED) or failed != 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
