"""The documentation does what it says: its console blocks are run, its links and files exist."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests._support.float_nets import calibration_file, conv_net
from tests._support.small_tflite import sounds
from tests._support.tools import skip_without
from tests._support.type_checkers import CHECKERS, type_faults
from tests.test_layers import face_faults

from uma.support.compiler_flags import ALLOWED_FLAGS
from uma.support.machines import RUNNERS

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", *ROOT.glob("plugins/uma-[!c]*/README.md")])
DIGITS = ROOT / "examples" / "digits"
TOOLS = {
    "cross.md": ("arm-none-eabi-gcc", "qemu-system-arm", "make"),
    "microcontrollers.md": ("arm-none-eabi-gcc", "qemu-system-arm"),
}
"""What pages need besides Python and a C compiler."""
PACKAGES = {"ethosu.md": "ethosu"}
"""What pages need besides of Python: Arm's compiler Vela."""
MODELS = {
    "ethosu.md": {"sounds.tflite": sounds},
    "quantize.md": {"seen.onnx": lambda: conv_net().SerializeToString(), "samples.npz": calibration_file},
}
"""Files that the folder of a page's reader has besides."""
CHAPTERS = [ROOT / "docs" / f"{name}.md" for name in ("accelerators", "lowering", "devices", "testing")]
"""Pages that build one package together: each has the files of all, and their plugin is installed."""
TUTORIAL = ROOT / "docs" / "tutorial.md"
"""A page that builds a package of its own, step by step; it is installed where the page says so."""

FROM_A_CLONE = [ROOT / "README.md", ROOT / "docs" / "getting-started.md"]
"""Pages whose reader stands in a fresh clone; the reader of the others has the folder that getting-started.md makes."""

AS_DOCS = pytest.mark.skipif(os.environ.get("UMA_DOCS") != "1", reason="set UMA_DOCS=1, or run `make docs`")
"""Pages are run with the rest of the documentation; of the README, every test run sees that it is true."""

NOT_CLONED = ("build", "dist", "tests", "integration_tests", "__pycache__", "*.egg-info", ".*")

PIP = """
import pathlib, re, sys
if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib
for argument in sys.argv[2:]:
    folder, extras = re.fullmatch(r"([^[]+)(?:\\[(.*)\\])?", argument).groups()
    project = tomllib.loads((pathlib.Path(folder) / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    missing = set(filter(None, (extras or "").split(","))) - set(project.get("optional-dependencies", ()))
    assert sys.argv[1] == "install" and not missing, missing
    print("it is there:", project["name"])
"""
"""Stands for pip, which needs an index: sees that what it is to install is where the page says."""

_BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    """A file to write (its name and text), or a command to run (its text and what it prints).

    Where ``+`` stands behind its name, the text is added to the file, below two empty lines. What is printed may leave
    things out: a line ``...`` stands for any lines, ``...`` within a line for anything.
    """

    line: int
    kind: str
    head: str
    text: str


def steps(page: str) -> Iterator[Step]:
    """The fenced blocks that are ``console`` or ``sh``, or have a file's name after the language, in order."""
    for block in _BLOCK.finditer(page):
        line = page.count("\n", 0, block.start()) + 1
        _, _, name = block[1].partition(" ")
        if name:
            yield Step(line, "file", name, block[2])
        elif block[1] == "console":
            for offset, part in _commands(block[2]):
                command, _, output = part.partition("\n")
                yield Step(line + 1 + offset, "command", command.removeprefix("$ "), output)
        elif block[1] == "sh":
            yield Step(line + 1, "script", block[2], "")


def _commands(block: str) -> Iterator[tuple[int, str]]:
    starts = [match.start() for match in re.finditer(r"^\$ ", block, re.MULTILINE)]
    for start, end in zip(starts, [*starts[1:], len(block)], strict=True):
        yield block.count("\n", 0, start), block[start:end]


def expectation(text: str) -> re.Pattern[str]:
    """What matches the output that a page shows."""
    lines = ("(?:.*\n)*?" if line == "...\n" else _line(line) for line in text.splitlines(keepends=True))
    return re.compile("".join(lines))


MEASURED = re.compile(
    r"(?<= in )\d+\.\d+(?= ?s$)|(?<=: )\d+\.\d+(?= us$)"  # times
    r"|\d+\.\d\d +\d+\.\d%(?= +[\d-])|(?<= )\d+\.\d +\d+\.\d%(?= +(?:\d+|\.\.\.)$)"  # of a profile
    r"|us +share +MACs +GOP/s +of peak +bytes$"
    r"|\d+\.\d(?= GOP/s (?:float32|int8))|\d+(?= MHz;)|\d+\.\d(?= ns$)"
    r"|(?<=^  ROM    )[\d,]+(?= bytes)|(?<=^  RAM    )[\d,]+(?= bytes)|(?<=code )[\d,]+$|(?<=stack )[\d,]+$"
    r"|\b\d+\.\d+\.\d+\b"  # versions
)
"""What a page shows of one machine, one compiler or one version: another number of the same kind will do."""


def _line(line: str) -> str:
    parts, end = [], 0
    for found in MEASURED.finditer(line):
        kind = re.sub(" +", " +", re.sub("[0-9][0-9.,]*", "\0", found[0])).replace("\0", "[0-9][0-9.,]*")
        # A number of another length moves the columns beside it.
        parts += [re.sub(r"(?:\\ ){2,}", " +", _exactly(line[end : found.start()])), kind]
        end = found.end()
    return "".join([*parts, _exactly(line[end:])])


def _exactly(text: str) -> str:
    return "[^\n]*?".join(re.escape(part) for part in text.split("..."))


@pytest.fixture(scope="module")
def shell_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """``uma`` and ``python`` are those of this Python; the pages share a cache, whichever process runs them."""
    tools = tmp_path_factory.mktemp("bin")
    for name, module in (("uma", "-m uma"), ("python", "")):
        script = tools / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        script.chmod(stat.S_IRWXU)
    path = os.pathsep.join([str(tools), os.environ["PATH"]])
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache-of-pages"
    return {**os.environ, "PATH": path, "UMA_CACHE_DIR": str(cache), "LC_ALL": "C.UTF-8"}


@pytest.fixture
def clone(tmp_path: Path, shell_environment: dict[str, str]) -> tuple[Path, dict[str, str]]:
    """A copy of what is in the repository, and an environment in which all that pip and make install is there."""
    shutil.copytree(ROOT, tmp_path / "clone", symlinks=True, ignore=shutil.ignore_patterns(*NOT_CLONED))
    tools, venv = tmp_path / "bin", tmp_path / "venv"
    for folder in (tools, venv / "bin"):
        folder.mkdir(parents=True)
    for path, what in ((tools / "pip", f"-c '{PIP}'"), (venv / "bin" / "python", "")):
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {what} "$@"\n')
        path.chmod(stat.S_IRWXU)
    (venv / ".demo").touch()
    path = os.pathsep.join([str(tools), shell_environment["PATH"]])
    unwanted = ("PYTHON", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")
    kept = {name: value for name, value in shell_environment.items() if name not in unwanted}
    return tmp_path / "clone", {**kept, "PATH": path, "VENV": str(venv)}


def run_step(step: Step, folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of a command."""
    done = subprocess.run(
        ["sh", "-c", step.head],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@AS_DOCS
@pytest.mark.parametrize("page", FROM_A_CLONE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_work_where_the_reader_stands(page: Path, clone: tuple[Path, dict[str, str]]) -> None:
    folder, environment = clone
    for step in steps(page.read_text(encoding="utf-8")):
        place = f"{page.name}:{step.line}: $ {step.head}"
        if step.kind == "file":
            write_file(folder, step)
        elif step.kind == "script":  # where it leads is where the reader stands from now on
            activated = step.head.replace("python3 -m venv .venv && . .venv/bin/activate", ":")
            status, output = run_step(dataclasses.replace(step, head=f"set -e\n{activated}\npwd"), folder, environment)
            assert status == 0, f"{place}\n{output}"
            folder = Path(output.splitlines()[-1])
        else:
            status, output = run_step(step, folder, environment)
            assert expectation(step.text).fullmatch(output), f"{place}\n{output}\ninstead of\n{step.text}"
            assert status == 0, f"{place} fails"


def write_file(folder: Path, step: Step) -> None:
    name = step.head.removesuffix(" +")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((f"{path.read_text()}\n\n" if name != step.head else "") + step.text)


def build_wheel(project: Path, site: Path) -> zipfile.ZipFile:
    """Of a package, in the folder ``dist`` of another one."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(site / "dist")]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [built] = (site / "dist").iterdir()
    return zipfile.ZipFile(built)


def installed_from(site: Path, environment: dict[str, str], *more: Path) -> dict[str, str]:
    """An environment in which Python finds what is in folders."""
    path = os.pathsep.join([*map(str, more), str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**environment, "PYTHONPATH": path}


def installed_in_place(project: Path, site: Path, environment: dict[str, str]) -> dict[str, str]:
    """What ``pip install -e`` makes: the metadata of a package are found, and its modules where they are edited."""
    with build_wheel(project, site) as wheel:
        wheel.extractall(site, [name for name in wheel.namelist() if ".dist-info/" in name])
    return installed_from(site, environment, project / "src")


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for packages."""
    pytest.importorskip("hatchling", reason="hatchling, which builds the wheel of the pages' plugin, is not installed")
    return tmp_path_factory.mktemp("site")


@pytest.fixture(scope="module")
def chapters(
    tmp_path_factory: pytest.TempPathFactory, shell_environment: dict[str, str]
) -> tuple[Path, dict[str, str]]:
    """The files of `CHAPTERS`, and an environment in which their plugin is installed as pip would."""
    pytest.importorskip("hatchling", reason="hatchling, which builds the wheel of the pages' plugin, is not installed")
    folder, site = tmp_path_factory.mktemp("chapters"), tmp_path_factory.mktemp("site")
    for page in CHAPTERS:
        for step in steps(page.read_text(encoding="utf-8")):
            if step.kind == "file":
                write_file(folder, step)
    [project] = (path.parent for path in folder.glob("*/pyproject.toml"))
    with build_wheel(project, site) as wheel:
        wheel.extractall(site)
    return folder, installed_from(site, shell_environment)


@pytest.fixture
def tutorial(tmp_path: Path) -> Path:
    """A folder with the files of `TUTORIAL` as they are at its end."""
    for step in steps(TUTORIAL.read_text(encoding="utf-8")):
        if step.kind == "file":
            write_file(tmp_path, step)
    return tmp_path


@AS_DOCS
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page not in FROM_A_CLONE],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_commands_do_what_the_page_says(
    page: Path, shell_environment: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    environment = shell_environment
    skip_without(*TOOLS.get(page.name, ()))
    if page.name in PACKAGES:
        pytest.importorskip(PACKAGES[page.name], reason="a package that the page's commands need is not installed")
    if page in CHAPTERS:
        folder, environment = request.getfixturevalue("chapters")
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    for name in ("digits.onnx", "scans.npz"):
        shutil.copy(DIGITS / name, tmp_path)
    for name, made in MODELS.get(page.name, {}).items():
        (tmp_path / name).write_bytes(made())
    status = 0
    for step in steps(page.read_text(encoding="utf-8")):
        place = f"{page.name}:{step.line}: $ {step.head}"
        if step.kind == "file":
            write_file(tmp_path, step)
        if step.kind == "script" and page == TUTORIAL:
            project = tmp_path / step.head.strip().removeprefix("pip install -e ")
            environment = installed_in_place(project, request.getfixturevalue("site"), environment)
        if step.kind != "command":
            continue
        status, output = run_step(
            dataclasses.replace(step, head=step.head.replace("$?", str(status))), tmp_path, environment
        )
        assert expectation(step.text).fullmatch(output), f"{place}\n{output}\ninstead of\n{step.text}"
        assert status == 0 or "uma: error" in step.text, f"{place} fails"


def anchors(page: str) -> set[str]:
    """Of the headings of a page, as GitHub and Sphinx make them."""
    plain = re.sub(r"^(`{3,}).*?^\1$", "", page, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", plain, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def dead_links(files: Sequence[Path]) -> list[str]:
    """Links of Markdown files, pictures among them, to files that are not there and headings that files do not have."""
    dead = []
    for file in files:
        plain = re.sub(r"^(`{3,}).*?^\1$", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        links = re.findall(r"\]\(([^)\s]+)\)|<(?:img|source|a)\b[^>]*?(?:src|srcset|href)=\"([^\"]+)\"", plain)
        for link in (first or second for first, second in links):
            where, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link):
                continue
            goal = file.parent / where if where else file
            if not goal.exists() or (anchor and anchor not in anchors(goal.read_text(encoding="utf-8"))):
                dead.append(f"{file.name}: {link}")
    return dead


def test_links_lead_somewhere() -> None:
    pages = [
        path
        for path in ROOT.rglob("*.md")
        if not any(part.startswith(".") or part in ("build", "dist") for part in path.relative_to(ROOT).parts)
    ]
    assert {*PAGES} < {*pages}
    assert dead_links(pages) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    nested = "# C d\n```sh\n# no\n[x](no.md)\n```\n[x](../a.md#one-two)\n![y](../no.svg)\n"
    (tmp_path / "b" / "c.md").write_text(nested)
    top = '## One, `two`\n[x](b/c.md#c-d) [y](b/c.md#no) [z](#no) [w](https://x.org)\n<img src="n">'
    (tmp_path / "a.md").write_text(top)
    found = dead_links([tmp_path / "a.md", tmp_path / "b" / "c.md"])
    assert found == ["a.md: b/c.md#no", "a.md: #no", "a.md: n", "c.md: ../no.svg"]


def test_the_table_of_exit_codes_is_complete() -> None:
    import uma.errors

    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    codes = {cls.exit_code for cls in vars(uma.errors).values() if isinstance(cls, type)}
    assert {int(code) for code in re.findall(r"^\| (\d) \|", text, re.MULTILINE)} == codes | {0}


def test_the_rule_for_names_is_that_of_new_plugin() -> None:
    from uma.scaffold.names import Names

    text = (ROOT / "docs" / "publish.md").read_text(encoding="utf-8")
    names = Names.from_text("acme_npu")
    shown = re.findall(
        r"^\| .* \| .* \| `(.*)` \|$", text.partition("\n## Names\n")[2].partition("\n## ")[0], re.MULTILINE
    )
    made = [names.kind, names.distribution, names.package, f"{names.kind}.conv2d"]
    assert shown == [*made, *map(names.put, ("my_npu_load", "MY_NPU_ID", "my_npu_driver.c"))]


def test_every_option_is_documented() -> None:
    from uma.cli import _parser

    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    [commands] = [action for action in _parser()._actions if isinstance(action.choices, dict)]
    for name, command in (commands.choices or {}).items():
        section = text.partition(f"## uma {name}\n")[2].partition("\n## ")[0]
        assert section, f"there is no section on uma {name}"
        for action in command._actions:
            if action.option_strings and action.dest not in ("help", "json", "quiet", "verbose"):
                shown = (re.search(rf"{option}\b", section) for option in action.option_strings)
                assert any(shown), f"uma {name} {action.dest}"


def test_the_guide_names_every_hook_phase_and_field() -> None:
    from docs.generate.names import HOOKS

    from uma import hookspecs
    from uma.contract.passes import PHASES
    from uma.targets import Limits

    text = "".join(page.read_text(encoding="utf-8") for page in (*CHAPTERS, ROOT / "docs" / "passes.md"))
    missing = [hook for hook in HOOKS if f"\n| `{hook}(" not in text]
    missing += [phase for phase in PHASES if f"\n| `{phase}` |" not in text]
    for record in (hookspecs.Runtime, Limits):
        missing += [field.name for field in dataclasses.fields(record) if f"`{field.name}`" not in text]
    header = (ROOT / "core" / "runtime" / "csrc" / "uma_device.h").read_text(encoding="utf-8")
    driver = re.search(r"typedef struct uma_driver \{(.*?)\} uma_driver;", header, re.DOTALL)
    assert driver is not None
    members = re.findall(r"(?:\(\*)?(\w+)(?:\)\([^)]*\))?;", re.sub(r"/\*.*?\*/", "", driver[1], flags=re.DOTALL))
    missing += [member for member in members if f"`{member}`" not in text]
    assert len(members) == 9 and not missing


def test_the_lists_of_flags_emulators_and_cpus_are_complete() -> None:
    text = (ROOT / "docs" / "cross.md").read_text(encoding="utf-8")
    table = text.partition("\n## Flags\n")[2].partition("\n## ")[0]
    flags = [f"| `{rule.shown}` | {rule.about} |" for rule in ALLOWED_FLAGS]
    assert re.findall(r"^\| `.*", table, re.MULTILINE) == flags
    table = text.partition("\n## Running it here\n")[2]
    rows = []
    for runner in RUNNERS.values():
        board = runner.board
        if board is None:
            rows.append(f"| `{runner.name}` | programs of {runner.architecture} machines with Linux | |")
            continue
        sizes = ", ".join(f"{memory.size_bytes >> 10} KB" for memory in (board.flash, board.ram))
        rows.append(f"| `{runner.name}` | {', '.join(board.cpus)} | {sizes} |")
    assert re.findall(r"^\| `.*", table, re.MULTILINE) == rows
    cpus = pytest.importorskip("uma_cpu_c.cpus", reason="the plugin of kind c is not installed").CORTEX_M
    assert not [cpu for cpu in cpus if f"`{cpu}`" not in text]


def test_the_guides_plugins_use_only_the_public_face(chapters: tuple[Path, dict[str, str]], tutorial: Path) -> None:
    files = sorted([*chapters[0].glob("*/**/*.py"), *tutorial.glob("*/src/**/*.py")])
    assert len(files) == 13
    assert not {file.name: faults for file in files if (faults := face_faults(file.read_text(encoding="utf-8")))}


@pytest.mark.soak
@pytest.mark.parametrize("checker", CHECKERS)
def test_the_guides_plugins_are_typed_strictly(
    checker: str, chapters: tuple[Path, dict[str, str]], tutorial: Path
) -> None:
    folder, _ = chapters
    assert type_faults(checker, folder / "uma-vadd" / "src" / "uma_vadd") == ""
    assert type_faults(checker, tutorial / "uma-mac8" / "src" / "uma_mac8") == ""


@pytest.mark.soak
def test_the_smallest_back_end_passes_pyright() -> None:  # mypy sees it with the sources
    assert type_faults("basedpyright", ROOT / "examples" / "uma-null" / "src" / "uma_null") == ""


def test_an_expectation_may_leave_things_out() -> None:
    pattern = expectation("a ... b\n...\nend (1.5)\n")
    assert pattern.fullmatch("a 12 b\nx\ny\nend (1.5)\n") and pattern.fullmatch("a  b\nend (1.5)\n")
    assert not pattern.fullmatch("a 12\nb\nend (1.5)\n") and not pattern.fullmatch("a 1 b\nend (1x5)\n")


def test_what_is_measured_may_be_another_number() -> None:
    head = "m: built in {} s\n  ROM    {} bytes: weights 8,000, code {}\n"
    shown = head.format("1.2", "9,000", "1,000") + "  a   b   0.05    0.2%  9  1.0  2.5%  7\n1.2.3\n"
    other = head.format("31.25", "9", "10,000") + "  a   b  11.05   10.2%  9  12.0  12.5%  7\n0.1.0\n"
    changes = [("8,000", "8,001"), ("%", ""), (" s\n", " s \n"), ("  9  ", "  8  ")]
    wrong = [other.replace(*change) for change in changes]
    assert expectation(shown).fullmatch(other)
    assert not any(expectation(shown).fullmatch(text) for text in wrong)
