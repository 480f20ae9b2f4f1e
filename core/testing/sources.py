"""Where a plugin's files are: the sources that it is made from, and the package that is imported."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from ..errors import UsageError
from ..plugins.entry import normalised
from ..support.package_metadata import Distribution, PackageNotFoundError, distribution
from .subject import Subject, read_project

__all__ = ["files_below", "imported_package", "installed", "package_in", "package_name", "source_of"]

_SKIPPED = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"})
_MAX_ABOVE = 4


def package_name(subject: Subject) -> str:
    """The top-level package, or module, that the entry point names."""
    return subject.plugin.entry.value.partition(":")[0].partition(".")[0]


def imported_package(subject: Subject) -> Path | None:
    """The folder of the package that is imported, or the file where it is one module; None where it is not a file."""
    spec = importlib.util.find_spec(package_name(subject))
    if spec is None:
        return None
    for place in spec.submodule_search_locations or ():
        return Path(place)
    return Path(spec.origin) if spec.origin is not None and Path(spec.origin).is_file() else None


def source_of(subject: Subject) -> Path | None:
    """The folder of the plugin's sources: the one that was given, else the one that its package is imported from, as by
    an editable install; None where only what was installed is known."""
    if subject.source is not None:
        return subject.source
    package = imported_package(subject)
    if package is None:
        return None
    for folder in list(package.parents)[:_MAX_ABOVE]:
        if not (folder / "pyproject.toml").is_file():
            continue
        try:
            project = read_project(folder).get("project")
        except UsageError:
            return None  # what is wrong with it is said where it is asked for by name
        name = project.get("name") if isinstance(project, dict) else None
        if isinstance(name, str) and normalised(name) == normalised(subject.plugin.entry.distribution):
            return folder
        return None
    return None


def package_in(source: Path, name: str) -> Path | None:
    """Where a source tree has the package, or the module."""
    for folder in (source / "src", source, *(sub for sub in sorted(source.iterdir()) if sub.is_dir())):
        if (folder / name / "__init__.py").is_file():
            return folder / name
        if (folder / f"{name}.py").is_file():
            return folder / f"{name}.py"
    return None


def files_below(package: Path) -> Iterator[tuple[str, Path]]:
    """The files of a package, by their paths below its parent, without what tools leave there."""
    if package.is_file():
        yield package.name, package
        return
    for file in sorted(package.rglob("*")):
        parts = file.relative_to(package).parts
        if not file.is_file() or _SKIPPED & set(parts) or file.suffix in (".pyc", ".pyo", ".so", ".o"):
            continue
        if not any(part.startswith(".") for part in parts):
            yield (package.name + "/" + "/".join(parts)), file


def installed(subject: Subject) -> Distribution | None:
    """What is installed under the name of the plugin's distribution; None where nothing is."""
    try:
        return distribution(subject.plugin.entry.distribution)
    except PackageNotFoundError:
        return None
