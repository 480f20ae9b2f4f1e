"""The two sides of a comparison: copies of the sources, each installed in an environment of its own."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

from tests.same.errors import SameError

__all__ = ["Side", "base_side", "current_side", "find_commit", "work_side"]

IRRELEVANT = ("tests", "integration_tests", "docs", "benchmarks")
"""Top folders without influence on what is built: their files are not part of the key of a work tree."""

RELEVANT = ("numpy", "onnx", "protobuf", "flatbuffers", "tflite")
"""Packages whose version may change results."""

KEPT = 4
"""How many environments are kept, those that were used last."""


@dataclass(frozen=True)
class Side:
    """One of two trees that are compared.

    Args:
        name: for messages, for example ``base 83a9141``.
        key: of its results: the same key builds the same bytes.
        python: the interpreter of the environment that the tree is installed in.
    """

    name: str
    key: str
    python: Path


def current_side() -> Side:
    """Return the environment of this process, whatever is installed in it."""
    return Side("this environment", f"current-{_identify_tools()}", Path(sys.executable))


def find_commit(root: Path, revision: str) -> str:
    """Return the full name of a commit.

    Raises:
        SameError: there is no such commit.
    """
    return _git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").decode().strip()


def base_side(folder: Path, root: Path, commit: str) -> Side:
    """Return the side of a commit; install it below ``folder`` unless that was process before.

    Args:
        folder: of the tool.
        root: of the repository.
        commit: its full name.

    Raises:
        SameError: the installation fails.
    """
    archive = _git(root, "archive", "--format=tar", commit)

    def fill(tree: Path) -> None:
        subprocess.run(["tar", "-x", "-C", str(tree)], input=archive, check=True)

    key = f"base-{commit}-{_identify_tools()}"
    return Side(f"base {commit[:7]}", key, _prepare(folder / "environments" / key, fill))


def work_side(folder: Path, root: Path) -> Side:
    """Return the side of the work tree as it is now, in a copy.

    Raises:
        SameError: the installation fails.
    """
    listing = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").decode()
    names = sorted({name for name in listing.split("\0") if name and os.path.lexists(root / name)})
    digest = hashlib.sha256()
    for name in names:
        if name.partition("/")[0] not in IRRELEVANT and not name.endswith(".md"):
            path = root / name
            content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)

    def fill(tree: Path) -> None:
        for name in names:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, tree / name, follow_symlinks=False)

    key = f"work-{digest.hexdigest()[:16]}-{_identify_tools()}"
    return Side("work tree", key, _prepare(folder / "environments" / key, fill))


def _git(root: Path, *arguments: str) -> bytes:
    try:
        process = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=False)
    except FileNotFoundError as error:
        raise SameError("there is no git", "install git: the tool reads the base from it") from error
    if process.returncode:
        if arguments[0] == "rev-parse":
            revision = arguments[-1].removesuffix("^{commit}")
            hint = "name a commit, tag or branch that `git log` shows, for example BASE=HEAD; fetch it if it is missing"
            raise SameError(f"{root} has no commit {revision!r}", hint)
        message = process.stderr.decode(errors="replace").strip()
        raise SameError(f"git {arguments[0]} fails in {root}: {message}", "run it in a clone of the repository")
    return process.stdout


def _identify_tools() -> str:
    """Return the Python and a digest of the package versions that may change results."""
    versions = []
    for name in RELEVANT:
        try:
            versions.append(f"{name}=={version(name)}")
        except PackageNotFoundError:
            versions.append(f"{name} is missing")
    digest = hashlib.sha256("\n".join(versions).encode()).hexdigest()
    return f"py{sys.version_info.major}.{sys.version_info.minor}-{digest[:8]}"


def _prepare(environment: Path, fill: Callable[[Path], None]) -> Path:
    """Return the interpreter of the environment in ``environment``, which is made anew unless it is complete.

    A file marks complete ones, so that an interrupted installation is not mistaken for one. This process holds a lock
    on it, because only some environments are kept, and none that is in use is removed.
    """
    python, marker = environment / "venv" / "bin" / "python", environment / "complete"
    environment.parent.mkdir(parents=True, exist_ok=True)
    with (environment.parent / "lock").open("a") as lock:  # one process installs at a time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not marker.exists():
            shutil.rmtree(environment, ignore_errors=True)
            (environment / "tree").mkdir(parents=True)
            print(f"installing {environment.name}", flush=True)
            fill(environment / "tree")
            venv.EnvBuilder(symlinks=True).create(environment / "venv")
            _install(python, environment)
        marker.touch()  # now, for the order in which environments are removed
        _lock(marker, fcntl.LOCK_SH)
        for old in sorted(environment.parent.glob("*/complete"), key=os.path.getmtime)[:-KEPT]:
            if _lock(old, fcntl.LOCK_EX | fcntl.LOCK_NB):
                shutil.rmtree(old.parent)
    process = _run([python, "-c", "import uma.cli"])
    if process.returncode:
        reason = (process.stderr.strip().splitlines() or ["it prints nothing"])[-1]
        raise SameError(
            f"the environment {environment} cannot import uma.cli: {reason}", f"remove {environment}, and run again"
        )
    return python


def _lock(marker: Path, operation: int) -> bool:
    """Lock an environment until this process ends; return whether no other one prevents it."""
    descriptor = os.open(marker, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, operation)
    except BlockingIOError:
        os.close(descriptor)
        return False
    return True


def _install(python: Path, environment: Path) -> None:
    """Install the tree and its plugins, with the package versions of this environment."""
    tree, pins = environment / "tree", environment / "constraints.txt"
    lines = {f"{one.metadata['Name']}=={one.version}" for one in distributions() if not _is_local(one.read_text)}
    pins.write_text("\n".join(sorted(lines)) + "\n")
    projects = [f"{tree}[onnx,tflite]"]
    projects += [str(path.parent) for path in sorted(tree.glob("*/*/pyproject.toml")) if path.parts[-3] != "packaging"]
    editable = [word for project in projects for word in ("-e", project)]
    process = None
    for installer in (["uv", "pip", "install", "--python"], ["pip", "install", "--python"]):
        process = _run([sys.executable, "-m", *installer, python, "--quiet", "--constraint", pins, *editable])
        if process.returncode == 0:
            return
    assert process is not None
    last = "\n  ".join(process.stderr.strip().splitlines()[-5:])
    hint = "the installer needs a package index or its cache; then run again"
    raise SameError(f"{environment.name} cannot be installed into {environment / 'venv'}:\n  {last}", hint)


def _is_local(read_text: Callable[[str], str | None]) -> bool:
    """Whether a distribution was installed from a folder."""
    return "file://" in (read_text("direct_url.json") or "")


def _run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "UMA_"))}
    return subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True, check=False)
