"""Targets that a project names for itself: ``[tool.uma.targets]`` of the nearest pyproject.toml."""

from __future__ import annotations

from pathlib import Path

from ..support.project_file import ProjectError, find_project
from .kind import Alias
from .values import is_attribute_name, shown

__all__ = ["project_targets"]


def project_targets(folder: Path | None = None) -> dict[str, Alias]:
    """The named targets of the project that ``folder`` (default: the current one) is in, in the order of the file.

    Raises:
        ProjectError: as `find_project`; or a name or target is malformed.
    """
    project = find_project(folder)
    if project is None:
        return {}
    place = f"{project.path}, in [tool.uma.targets]"
    table = project.settings.get("targets", {})
    if not isinstance(table, dict):
        raise ProjectError(f"{shown(table)} is not a table of targets", where=place, hint='write name = "c -opt=2"')
    aliases = {}
    for name, target in table.items():
        if not is_attribute_name(name):
            raise ProjectError(f"{shown(name)} is not a name of a target", where=place, hint="write it like my-board")
        if not isinstance(target, (str, dict, list)):
            raise ProjectError(f"{name} is {shown(target)}, no target", where=place, hint="a text, a table or a list")
        aliases[name] = Alias(name, target, help="of pyproject.toml")
    return aliases
