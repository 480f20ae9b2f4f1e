"""Fresh Python environments, and wheels to install into them. No package registry is needed for that.

What a distribution says that it needs comes from the environment in which the tests run: its modules are linked, its
metadata copied, so that an installer finds it installed. What no distribution declares is not there.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Mapping
from ctypes.util import find_library
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests._support.installed import install
from tests._support.small_models import Done

from uma.plugins import GROUP

__all__ = ["ROOT", "Environment", "Wheels", "build_wheels", "make_wheel"]

ROOT = Path(__file__).resolve().parent.parent

# The back-end that every project of the repository names, called as an installer calls it.
_BUILD = """
import os, sys
from hatchling.build import build_wheel
folder, *projects = sys.argv[1:]
for project in projects:
    os.chdir(project)
    build_wheel(folder)
"""


class Wheels:
    """A folder of wheels, which takes the place of a package registry."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def _all(self) -> list[importlib.metadata.Distribution]:
        wheels = map(str, sorted(self.folder.glob("*.whl")))
        return [one for wheel in wheels for one in importlib.metadata.distributions(path=[wheel])]

    @property
    def served(self) -> Mapping[str, tuple[str, ...]]:
        """What each plugin of the repository serves, by the name of its distribution: its kind, then aliases of it."""
        points = {
            one.metadata["Name"]: tuple(point.name for point in one.entry_points if point.group == GROUP)
            for one in self._all
        }
        return {name: names for name, names in points.items() if names}

    @property
    def kinds(self) -> Mapping[str, str]:
        """The target kind of each, by the name of its distribution."""
        return {name: names[0] for name, names in self.served.items()}

    @property
    def accelerators(self) -> list[str]:
        """The target kinds but the host's that a fresh environment can build for: the library of one is not part of it,
        and the system may have it.
        """
        missing = {"onednn"} if find_library("dnnl") is None else set[str]()
        return sorted({*self.kinds.values()} - {"c"} - missing)

    def needs(self, *extras: str) -> list[Requirement]:
        """What the wheels require that is not among them, with extras of uma-core."""
        names = {canonicalize_name(one.metadata["Name"]) for one in self._all}
        asked = [Requirement(line) for one in self._all for line in one.requires or ()]
        return [line for line in asked if canonicalize_name(line.name) not in names and _applies(line, extras)]


def build_wheels(folder: Path, projects: Iterable[Path]) -> Wheels:
    """Build the wheels of projects."""
    pytest.importorskip("hatchling", reason="hatchling, which builds the wheels, is not installed")
    command = [sys.executable, "-c", _BUILD, str(folder), *map(str, projects)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Wheels(folder)


def make_wheel(folder: Path, name: str, *args: Any, **kwargs: Any) -> Path:
    """A wheel of one module; the arguments are those of `tests._support.installed.install`."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        info = install(root, name, *args, **kwargs)
        (info / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        files = sorted(file for file in root.rglob("*") if file.is_file())
        record = [_recorded(file.relative_to(root).as_posix(), file.read_bytes()) for file in files]
        (info / "RECORD").write_text("\n".join([*record, f"{info.name}/RECORD,,", ""]))
        wheel = folder / f"{info.name.removesuffix('.dist-info')}-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for file in [*files, info / "RECORD"]:
                archive.write(file, file.relative_to(root).as_posix())
    return wheel


def _recorded(path: str, content: bytes) -> str:
    """https://packaging.python.org/en/latest/specifications/recording-installed-packages"""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(content)}"


class Environment:
    """A Python environment that was just made, and what is installed into it.

    Args:
        folder: where; made.
        wheels: where the installer looks for what it is to install.
        needs: requirements that are there, with all that they require in turn.
        python: the interpreter; by default this one.
    """

    def __init__(
        self, folder: Path, wheels: Wheels, needs: Iterable[Requirement] = (), *, python: str | None = None
    ) -> None:
        if python is None:
            venv.EnvBuilder(symlinks=True).create(folder)
        else:
            subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.python = folder / "bin" / "python"
        [self.site] = folder.glob("lib/python3*/site-packages")
        self._wheels = wheels
        for distribution in _closure(needs):
            _link(distribution, self.site)

    def install(self, *what: str | Path, no_deps: bool = False) -> None:
        """Install, upgrade or downgrade with pip or uv: wheels, folders, requirements; with options of both."""
        alone = ["--no-deps"] if no_deps else []
        done = self._installer("install", "--no-index", "--find-links", str(self._wheels.folder), *alone, *what)
        assert done.returncode == 0, done.stdout + done.stderr

    def try_to_install(self, *what: str) -> str | None:
        """Install what may need more than the wheels have; what the installer says where it cannot."""
        done = self._installer("install", "--find-links", str(self._wheels.folder), *what)
        return (done.stderr or "it does not say why") if done.returncode else None

    def uninstall(self, *names: str) -> None:
        """Remove distributions with pip or uv."""
        done = self._installer("uninstall", *([] if _has_uv() else ["--yes"]), *names)
        assert done.returncode == 0, done.stdout + done.stderr

    def _installer(self, command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        if _has_uv():
            head = ["uv", "pip", command, "--quiet", "--python", str(self.python)]
        else:
            head = ["pip", "--quiet", "--python", str(self.python), command]
        # A wheel of the same name and version may be another today; what comes from elsewhere may be kept.
        own = {"UV_NO_CACHE": "1"} if "--no-index" in arguments else {}
        words = [sys.executable, "-m", *head, *map(str, arguments)]
        return subprocess.run(words, env={**_environment(), **own}, capture_output=True, text=True, check=False)

    def start(self, *command: object, **changes: str) -> subprocess.Popen[str]:
        """Start a command of this environment, ``uma`` or ``python``, in the current folder.

        Args:
            changes: variables of its environment.
        """
        words = [str(self.python.with_name(str(command[0]))), *map(str, command[1:])]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(words, env={**_environment(), **changes}, **pipes)

    def run(self, *command: object, **changes: str) -> Done:
        """Run a command of this environment to its end."""
        return finished(self.start(*command, **changes))

    def uma(self, *arguments: object, **changes: str) -> Done:
        """Run ``uma`` as it was installed."""
        return self.run("uma", *arguments, **changes)


def finished(process: subprocess.Popen[str]) -> Done:
    """Wait for a command."""
    with process:
        out, err = process.communicate(timeout=300)
    return Done(process.returncode, out, err)


def _has_uv() -> bool:
    return importlib.util.find_spec("uv") is not None


def _environment() -> dict[str, str]:
    """That of the tests, less what makes one Python find another's modules."""
    return {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}


def _applies(requirement: Requirement, extras: Iterable[str] = ()) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def _closure(needs: Iterable[Requirement]) -> list[importlib.metadata.Distribution]:
    """What is installed here of what is needed, and of what that needs in turn."""
    found: dict[tuple[str, frozenset[str]], importlib.metadata.Distribution] = {}
    waiting = list(needs)
    while waiting:
        requirement = waiting.pop()
        key = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if key in found:
            continue
        try:
            found[key] = importlib.metadata.distribution(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            pytest.skip(f"{requirement.name} is not installed here")
        further = map(Requirement, found[key].requires or ())
        waiting += [line for line in further if _applies(line, requirement.extras)]
    return list({name: distribution for (name, _), distribution in found.items()}.values())


def _link(distribution: importlib.metadata.Distribution, site: Path) -> None:
    files = distribution.files
    if files is None:
        pytest.skip(f"{distribution.metadata['Name']} was installed without a list of its files")
    for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
        source = Path(str(distribution.locate_file(top)))
        if top.endswith(".dist-info"):
            shutil.copytree(source, site / top)  # uv does not look into a folder that is a link
        elif not (site / top).exists():  # several may share a namespace
            (site / top).symlink_to(source)
