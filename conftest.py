"""Fixtures and settings that the tests of the core and of the plugins share."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import hypothesis
import pytest

pytest_plugins = ("pytester",)

FOR_TESTS = ("UMA_DOCS", "UMA_LAYERS", "UMA_MODELS", "UMA_PYTHONS", "UMA_SOAK")
"""What says something to the tests. Every other variable of ours is a user's, and the tests are nobody's."""

FOREIGN = re.compile(
    r"UMA_.*|CC|CPP|CXX|LD|AR|.*FLAGS|LDLIBS|TARGET_ARCH|MAKE.*|CPATH|(C|OBJC|CPLUS)_INCLUDE_PATH|LIBRARY_PATH"
    r"|(GCC|CLANG|CCC)_.*|PYTHON(WARNINGS|UTF8|COERCECLOCALE|IOENCODING|DEVMODE|UNBUFFERED|STARTUP|INSPECT|SAFEPATH"
    r"|OPTIMIZE|VERBOSE|PROFILEIMPORTTIME|DONTWRITEBYTECODE)|LANG|LANGUAGE|LC_.*|TZ|TERM|COLORTERM|COLUMNS|LINES"
    r"|NO_COLOR|.*FORCE_COLOR.*|CLICOLOR|PAGER|XDG_.*|SOURCE_DATE_EPOCH|PYTEST_ADDOPTS|PIP_.*|UV_.*|POSIXLY_CORRECT|CDPATH|ENV|BASH_ENV",
    re.ASCII,
)
"""Variables of the environment that change what compilers, make, shells, Python, pip or UMA do or print."""

_SOAK = os.environ.get("UMA_SOAK") == "1"

# Before anything is imported that reads them; what the tests start inherits it. A test sets what it is about.
for _name in [name for name in os.environ if FOREIGN.fullmatch(name) and name not in FOR_TESTS]:
    del os.environ[_name]
os.environ["LC_ALL"] = "C.UTF-8"  # as in most places: what is read and printed is UTF-8
sys.dont_write_bytecode = False  # to rewrite the assertions of all tests takes a worker 15 s
os.umask(0o022)  # a folder that all may write to is no cache, and makes for warnings
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # so shells start what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples differ from run to run for people, who can look at a failure; what lands must not depend on luck.
hypothesis.settings.register_profile(
    "default", max_examples=16, deadline=None, derandomize="CI" in os.environ, print_blob=True
)
hypothesis.settings.register_profile("soak", max_examples=5_000, deadline=None, print_blob=True)
hypothesis.settings.load_profile("soak" if _SOAK else "default")


_WRITTEN_BY_THE_SCAFFOLD = {
    f"examples/uma-mac-array/tests/test_conformance.py::test_conformance[{check}]" for check in ("layers", "graphs")
}
"""Soak tests in a file that must be what `uma new-plugin` writes, so it has no marks of this repository."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--update-golden``."""
    parser.addoption("--update-golden", action="store_true", help="write what the tests got into their golden files")


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what ``few`` leaves out as ``soak``; skips the tests marked ``soak`` unless they were asked for."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.nodeid in _WRITTEN_BY_THE_SCAFFOLD:
            item.add_marker(pytest.mark.soak)
        if item.get_closest_marker("few") and not item.get_closest_marker("soak"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for each in cases.values():
        marker = each[0].get_closest_marker("few")
        assert marker is not None
        (count,) = marker.args
        kept = {round(number * (len(each) - 1) / max(count - 1, 1)) for number in range(count)}
        for number, item in enumerate(each):
            if number not in kept:
                item.add_marker(pytest.mark.soak)
    if not _SOAK:
        for item in items:
            if item.get_closest_marker("soak"):
                item.add_marker(pytest.mark.skip(reason="a soak test: set UMA_SOAK=1, or run `make soak`"))


COMPILERS = ("gcc", "clang", "g++", "clang++")
"""What tests start by name; where one is not installed, a test that starts it is skipped."""


@contextmanager
def _skipping() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        if error.filename in COMPILERS and shutil.which(error.filename) is None:
            pytest.skip(f"{error.filename} is not installed")
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Skips a test marked ``needs`` where a tool is missing that it names, and one whose fixtures miss a compiler."""
    for marker in item.iter_markers("needs"):
        from tests._support.tools import skip_without  # not before a test wants it: it imports uma

        skip_without(*marker.args)
    with _skipping():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Skips a test that starts a compiler that is not installed."""
    with _skipping():
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows what tests measured: the properties that they recorded under the name ``measured``."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    lines = [str(text) for report in reports for name, text in report.user_properties if name == "measured"]
    if lines:
        terminalreporter.section("measured")
        for line in sorted(lines):
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of real models: ``$UMA_MODELS``, else ``../shared/models`` beside the checkout."""
    named = os.environ.get("UMA_MODELS")
    folder = Path(named) if named else Path(__file__).resolve().parent.parent / "shared" / "models"
    if not folder.is_dir():
        if named:
            pytest.fail(f"UMA_MODELS names {named}, which is not a folder")
        pytest.skip(f"no real models: there is no {folder}, and UMA_MODELS is not set")
    return folder


@pytest.fixture(scope="session")
def compilers() -> tuple[str, ...]:
    """The C compilers of this machine, by name: gcc, clang or both."""
    from tests._support.tools import missing

    found = tuple(name for name in ("gcc", "clang") if missing(name) is None)
    if not found:
        pytest.skip(f"neither gcc nor clang can be used: {missing('gcc')}, {missing('clang')}")
    return found


class Golden:
    """Compares text with a file that was reviewed and committed: ``golden(text, "conv2d.c")``.

    The file is ``golden/<test file's stem>/<name>`` beside the test file.
    """

    def __init__(self, folder: Path, node_id: str, update: bool) -> None:
        self._folder, self._node_id, self._update = folder, node_id, update

    def __call__(self, text: str, name: str) -> None:
        """Fails with the difference and what to do about it; with ``--update-golden`` writes the file instead."""
        path = self._folder / name
        if self._update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
            return
        remedy = f"If the new text is right: pytest --update-golden '{self._node_id}', then read `git diff`."
        if not path.is_file():
            pytest.fail(f"there is no golden file {path}\n{remedy}", pytrace=False)
        expected = path.read_bytes().decode()
        if text != expected:
            lines = expected.splitlines(keepends=True), text.splitlines(keepends=True)
            diff = "".join(difflib.unified_diff(*lines, fromfile=str(path), tofile="what the test got"))
            pytest.fail(f"{diff}\n{remedy}", pytrace=False)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares text with a committed file: see `Golden`."""
    folder = request.path.parent / "golden" / request.path.stem
    return Golden(folder, request.node.nodeid, request.config.getoption("--update-golden"))
