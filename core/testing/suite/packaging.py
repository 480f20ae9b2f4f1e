"""Whether what a user installs is all that there is: files, licence, entry points, keywords, requirements, types."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from ...plugins.entry import CORE, GROUP, normalised
from ...support.package_metadata import Distribution, read
from ...targets import Alias, TargetKind
from ...toolchain.cache import default_folder
from ..outcome import Check, Outcome, Progress
from ..sources import files_below, imported_package, installed, package_in, package_name, source_of
from ..subject import read_project

__all__ = ["PACKAGING", "kind_keywords"]

_BUILD_TIMEOUT_S = 300.0
_TYPES_TIMEOUT_S = 300.0
_C = (".c", ".h", ".S", ".inc")
_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "venv", "build", "dist", "__pycache__", "*.egg-info", ".mypy_cache", ".ruff_cache", ".pytest_cache"
)
_KIND_KEYWORD = re.compile(r"uma-(host|accelerator|alias):")
_BACKEND = """
import importlib, os, sys
sys.path[:0] = [os.path.abspath(path) for path in sys.argv[3:]]
module, _, name = sys.argv[1].partition(":")
backend = importlib.import_module(module)
for part in filter(None, name.split(".")):
    backend = getattr(backend, part)
print(backend.build_wheel(sys.argv[2]))
"""


@dataclass(frozen=True)
class _Packed:
    """What a wheel has, or what was installed of one.

    Args:
        what: in words, for findings.
        files: paths below site-packages.
        metadata: the headers of METADATA.
        points: names and values of the entry points of plugins.
        licences: files of the licence.
    """

    what: str
    files: frozenset[str]
    metadata: Message
    points: Mapping[str, str]
    licences: tuple[str, ...]


def _packaging(outcome: Outcome, progress: Progress) -> None:
    subject = outcome.subject
    source, distribution = source_of(subject), installed(subject)
    package = imported_package(subject)
    packed: _Packed | None = None
    if source is not None:
        inside = package_in(source, package_name(subject))
        if inside is None:
            outcome.find("packaging", f"the sources have no package {package_name(subject)}", str(source), "files")
        elif package is not None and inside.resolve() != package.resolve():
            outcome.note(f"what is imported is {package}, not {inside}: what is checked besides is the former")
        progress("packaging: building the wheel")
        packed = _built(outcome, source)
        if packed is not None and inside is not None:
            _compare(outcome, packed, dict(files_below(inside)))
    elif distribution is not None:
        packed = _of_installed(distribution)
        _compare_record(outcome, distribution)
    if packed is None:
        if not outcome.notes and not outcome.findings:
            outcome.skipped = f"there is neither a distribution {subject.plugin.entry.distribution} nor a source tree"
    else:
        _licence(outcome, packed)
        _points(outcome, packed)
        _keywords(outcome, packed)
        _requirements(outcome, packed)
        outcome.note(f"looked at {packed.what}")
    progress("packaging: types")
    _types(outcome, source, package)


PACKAGING = Check(
    "packaging", "files, licence, entry points, keywords, requirements and types", "packaging", _packaging, "plugin"
)


def _built(outcome: Outcome, source: Path) -> _Packed | None:
    """The wheel that the sources give, by the backend that they name; None where that is not installed, or fails."""
    system = read_project(source).get("build-system", {})
    table = system if isinstance(system, dict) else {}
    backend = table.get("build-backend", "setuptools.build_meta:__legacy__")
    paths = [path for path in table.get("backend-path", ()) if isinstance(path, str)]
    if not isinstance(backend, str):
        outcome.find("packaging", "build-backend is not text", str(source / "pyproject.toml"), "wheel")
        return None
    top = backend.partition(":")[0].partition(".")[0]
    if not paths and importlib.util.find_spec(top) is None:
        outcome.note(f"no wheel was built: {top}, which the project builds with, is not installed here")
        return None
    with tempfile.TemporaryDirectory(prefix="uma-check-") as name:
        copy, output = Path(name, "source"), Path(name, "wheel")
        output.mkdir()
        shutil.copytree(source, copy, ignore=_LEFT_OUT, symlinks=True)
        command = [sys.executable, "-c", _BACKEND, backend, str(output), *paths]
        try:
            done = subprocess.run(
                command, cwd=copy, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            outcome.find(
                "packaging", f"building the wheel takes more than {_BUILD_TIMEOUT_S:g} s", str(source), "wheel"
            )
            return None
        wheels = list(output.glob("*.whl"))
        if done.returncode != 0 or len(wheels) != 1:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["it made no wheel"]
            outcome.find("packaging", f"the wheel cannot be built: {last[0][:300]}", str(source), "wheel")
            return None
        try:
            return _of_wheel(wheels[0])
        except (BadZipFile, KeyError, ValueError, UnicodeDecodeError) as error:
            outcome.find("packaging", f"the wheel that is built cannot be read: {error}", str(source), "wheel")
            return None


def _of_wheel(path: Path) -> _Packed:
    with ZipFile(path) as wheel:
        names = frozenset(wheel.namelist())
        [info] = {name.partition("/")[0] for name in names if name.partition("/")[0].endswith(".dist-info")}
        metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
        text = wheel.read(f"{info}/entry_points.txt").decode() if f"{info}/entry_points.txt" in names else ""
    return _Packed(f"the wheel {path.name}", names, metadata, _points_of(text), _licence_files(names))


def _of_installed(distribution: Distribution) -> _Packed:
    names = frozenset(str(file) for file in read(distribution, lambda one: one.files or []) or ())
    raw: str | None = read(distribution, lambda one: one.read_text("METADATA"))
    metadata = Parser().parsestr(raw or "")
    text = read(distribution, lambda one: one.read_text("entry_points.txt")) or ""
    return _Packed("what is installed", names, metadata, _points_of(text), _licence_files(names))


def _points_of(text: str) -> dict[str, str]:
    """The entry points of plugins in the text of ``entry_points.txt``."""
    _, _, rest = text.partition(f"[{GROUP}]")
    lines = rest.partition("\n[")[0].splitlines()
    return {name.strip(): value.strip() for name, sign, value in (line.partition("=") for line in lines) if sign}


def _licence_files(names: frozenset[str]) -> tuple[str, ...]:
    files = [name for name in names if ".dist-info/" in name]
    return tuple(sorted(name for name in files if re.search(r"licen[cs]e|copying|notice", name, re.IGNORECASE)))


def _compare(outcome: Outcome, packed: _Packed, sources: Mapping[str, Path]) -> None:
    """Every file of the package is in the wheel."""
    missing = [name for name in sources if name not in packed.files]
    for kind, names in (
        ("C", [name for name in missing if name.endswith(_C)]),
        ("Python", [name for name in missing if name.endswith((".py", ".pyi"))]),
        ("other", [name for name in missing if not name.endswith((*_C, ".py", ".pyi"))]),
    ):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            noun = {"C": "C file", "Python": "module", "other": "file"}[kind] + ("s" if len(names) > 1 else "")
            message = f"{packed.what} lacks the {noun} {', '.join(names[:3])}{more}, which the sources have"
            outcome.find("packaging", message, str(sources[names[0]]), "files")
    if not any(name.endswith("/py.typed") for name in packed.files) and any("/" in name for name in sources):
        message = f"{packed.what} has no py.typed: type checkers take nothing that it declares"
        outcome.find("packaging", message, next(iter(sources)).partition("/")[0], "types")


def _compare_record(outcome: Outcome, distribution: Distribution) -> None:
    """What was installed is there, and nothing of the package is there that was not installed."""
    import base64
    import hashlib

    listed = read(distribution, lambda one: list(one.files or [])) or []
    if not listed:
        outcome.note("the installed distribution has no list of its files")
        return
    names = {str(file) for file in listed}
    for file in listed:
        path = Path(str(file.locate()))
        if not path.is_file():
            if path.suffix != ".pyc":
                outcome.find("packaging", f"the file {file}, which was installed, is gone", str(path), "files")
            continue
        if file.hash is not None and file.hash.mode in hashlib.algorithms_guaranteed:
            digest = base64.urlsafe_b64encode(hashlib.new(file.hash.mode, path.read_bytes()).digest()).rstrip(b"=")
            if digest.decode() != file.hash.value:
                outcome.find("packaging", f"the file {file} is another than was installed", str(path), "files")
    package = imported_package(outcome.subject)
    if package is None or not any(name.startswith(f"{package.name}/") for name in names):
        outcome.note("what is imported is not part of what the distribution installed: their files were not compared")
        return
    if package.is_dir():
        for name, path in files_below(package):
            if name not in names:
                outcome.find("packaging", f"the file {name} is in no list of what was installed", str(path), "files")
        if f"{package.name}/py.typed" not in names:
            message = "py.typed was not installed: type checkers take nothing that the package declares"
            outcome.find("packaging", message, package.name, "types")


def _licence(outcome: Outcome, packed: _Packed) -> None:
    named = packed.metadata.get("License-Expression") or packed.metadata.get("License")
    classified = [line for line in packed.metadata.get_all("Classifier", []) if line.startswith("License ::")]
    if not named and not classified:
        message = f"the metadata of {packed.what} name no licence"
        outcome.find("packaging", message, 'license = "..." under [project]', "licence")
    if not packed.licences:
        message = f"{packed.what} has no file with the text of the licence"
        outcome.find("packaging", message, "license-files under [project]", "licence")


def _points(outcome: Outcome, packed: _Packed) -> None:
    plugin = outcome.subject.plugin
    for name in (*plugin.kinds, *plugin.aliases):
        if name not in packed.points:
            message = f"{packed.what} has no entry point for {name!r}, which the plugin registers"
            outcome.find("packaging", message, f"group {GROUP}", "entry_points")
    for name, value in packed.points.items():
        module = value.partition(":")[0].partition(".")[0].strip()
        at_all = {f"{module}/__init__.py", f"{module}.py"} & packed.files
        if module == package_name(outcome.subject) and not at_all and packed.what != "what is installed":
            message = f"{packed.what} has no module {module}, which its entry point {name!r} names"
            outcome.find("packaging", message, f"group {GROUP}", "entry_points")


def kind_keywords(kinds: Iterable[TargetKind | Alias]) -> frozenset[str]:
    """Return the keywords by which an index shows the kinds and aliases of a distribution without importing it:
    ``uma-host:KIND:DEVICE_TYPE``, ``uma-accelerator:KIND:DEVICE_TYPE`` and ``uma-alias:ALIAS``.
    """
    return frozenset(
        f"uma-alias:{kind.name}"
        if isinstance(kind, Alias)
        else f"uma-{'host' if kind.is_host else 'accelerator'}:{kind.name}:{kind.device_type}"
        for kind in kinds
    )


def _keywords(outcome: Outcome, packed: _Packed) -> None:
    """The keywords name the kinds and aliases that the plugin registers, and no others."""
    plugin = outcome.subject.plugin
    registered = kind_keywords([*plugin.kinds.values(), *plugin.aliases.values()])
    keywords = set(re.split(r"[,\s]+", packed.metadata.get("Keywords", "")))
    for keyword in sorted(registered - keywords):
        message = f"the metadata of {packed.what} lack the keyword {keyword!r}, by which indexes list it"
        outcome.find("packaging", message, "keywords under [project]", "keywords")
    for keyword in sorted(one for one in keywords - registered if _KIND_KEYWORD.match(one)):
        message = f"the metadata of {packed.what} have the keyword {keyword!r}, which the plugin does not register"
        outcome.find("packaging", message, "keywords under [project]", "keywords")


def _requirements(outcome: Outcome, packed: _Packed) -> None:
    """It says with which cores it works: from which, and up to which."""
    from packaging.requirements import InvalidRequirement, Requirement

    requirements: list[Requirement] = []
    for line in packed.metadata.get_all("Requires-Dist", []):
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            outcome.find("packaging", f"a requirement cannot be read: {line!r}", packed.what, "requirements")
            continue
        if normalised(requirement.name) == CORE:
            requirements.append(requirement)
    if not requirements:
        message = f"{packed.what} does not require {CORE}: pip cannot tell with which cores it works"
        outcome.find("packaging", message, "dependencies under [project]", "requirements")
        return
    operators = {spec.operator for one in requirements for spec in one.specifier}
    exact = operators & {"==", "~=", "==="}
    if not exact and not operators & {">=", ">"}:
        message = f"the requirement {requirements[0]} has no lower bound"
        outcome.find("packaging", message, "dependencies under [project]", "requirements")
    if not exact and not operators & {"<", "<="}:
        message = (
            f"the requirement {requirements[0]} has no upper bound: a later core may break it, and pip installs it"
        )
        outcome.find("packaging", message, "dependencies under [project]", "requirements")


def _types(outcome: Outcome, source: Path | None, package: Path | None) -> None:
    """``mypy --strict`` has nothing to say, where it is installed."""
    if importlib.util.find_spec("mypy") is None:
        outcome.note("types were not checked: mypy is not installed here")
        return
    if package is None:
        return
    cache = default_folder() / "mypy"
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-pretty", "--no-color-output"]
    command += ["--cache-dir", str(cache), str(package)]
    try:
        done = subprocess.run(
            command, cwd=source or Path.cwd(), capture_output=True, text=True, timeout=_TYPES_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        outcome.note(f"types were not checked: mypy takes more than {_TYPES_TIMEOUT_S:g} s")
        return
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    if done.returncode not in (0, 1) or (done.returncode and not errors):
        last_line = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["it says nothing"]
        outcome.note(f"types were not checked: mypy failed: {last_line[0][:200]}")
    elif errors:
        place, _, text = errors[0].partition(": error: ")
        more = f"; {len(errors) - 1} more" if len(errors) > 1 else ""
        outcome.find("packaging", f"mypy --strict: {text}{more}", place, "types")
    else:
        outcome.note("mypy --strict finds nothing")
