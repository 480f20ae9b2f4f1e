"""What a project says of itself to UMA: ``[tool.uma]`` of the nearest pyproject.toml."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .errors import UsageError

__all__ = ["SETTINGS", "Project", "ProjectError", "find_project"]

SETTINGS = (
    "costs",
    "disable-plugins",
    "hybrid",
    "io",
    "max-cycles",
    "max-ram",
    "max-rom",
    "partition",
    "plan",
    "requantize",
    "targets",
)
"""The keys of ``[tool.uma]``."""

_MAX_BYTES = 1 << 20


class ProjectError(UsageError):
    """The file of a project is at fault, whatever it was read for; ``where`` names it."""


class Project(NamedTuple):
    """The table ``[tool.uma]`` of a project.

    Args:
        path: of the file.
        settings: what the table holds; the keys are in `SETTINGS`, the values as the file has them.
    """

    path: str
    settings: Mapping[str, object]


def find_project(folder: str | os.PathLike[str] | None = None) -> Project | None:
    """The project that ``folder`` (default: the current one) is in: that of the nearest pyproject.toml above it.

    Raises:
        ProjectError: the file cannot be read, is no TOML, or has a setting for UMA that there is not.
    """
    try:
        start = os.getcwd() if folder is None else os.path.abspath(folder)
    except FileNotFoundError:  # the current folder was removed: it is in no project
        return None
    path = next(filter(os.path.isfile, _candidates(start)), None)
    return None if path is None else Project(path, _settings(path))


def _candidates(folder: str) -> Iterator[str]:
    yield os.path.join(folder, "pyproject.toml")
    while (above := os.path.dirname(folder)) != folder:
        folder = above
        yield os.path.join(folder, "pyproject.toml")


def _settings(path: str) -> Mapping[str, object]:
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        what = f"the project's file cannot be read: {error.strerror}"
        raise ProjectError(what, where=path, hint="make it readable") from error
    if b"uma" not in content:
        return {}  # it says nothing to UMA, and what is wrong with it is not UMA's business
    if len(content) > _MAX_BYTES:
        what = f"the project's file has more than {_MAX_BYTES} bytes"
        raise ProjectError(what, where=path, hint="it should be the file of a project")
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        table: object = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # what is wrong with TOML or with UTF-8 is a ValueError
        what = f"the project's file is no TOML: {error}"
        raise ProjectError(what, where=path, hint="mend it: UMA reads [tool.uma] of it") from error
    for name in ("tool", "uma"):
        table = table.get(name, {}) if isinstance(table, dict) else None
    if not isinstance(table, dict):
        raise ProjectError("[tool.uma] is no table", where=path, hint='write [tool.uma.targets] and name = "c -opt=2"')
    for name in table:
        if name not in SETTINGS:
            import difflib

            close = difflib.get_close_matches(name, SETTINGS, 1)
            did = f"did you mean {close[0]!r}? " if close else ""
            what = f"[tool.uma] has the setting {name[:100]!r}, which there is not"
            raise ProjectError(what, where=path, hint=f"{did}there are {', '.join(SETTINGS)}")
    return table
