"""The plugins that a project requires: ``require-plugins`` in ``[tool.uma]``."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..errors import RequirementError
from ..support.project_file import ProjectError, find_project
from .entry import PluginEntry, normalised

if TYPE_CHECKING:
    from packaging.requirements import Requirement

__all__ = ["check_required"]

_SETTING = "require-plugins"


def check_required(entries: Iterable[PluginEntry], disabled: Mapping[PluginEntry, str]) -> None:
    """Check that the plugins that the project requires are installed in a required version, and not disabled.

    Args:
        entries: all installed entry points.
        disabled: those that are disabled, and by whom, in words.

    Raises:
        ProjectError: the project's file cannot be read, or its setting is not a list of requirements.
        RequirementError: plugins are missing, disabled or of another version.
    """
    project = find_project()
    lines = [] if project is None else project.names(_SETTING, "uma-my-plugin>=0.3")
    if project is None or not lines:
        return
    from packaging.requirements import InvalidRequirement, Requirement

    installed = {normalised(entry.distribution): entry for entry in entries}
    where = f"{project.path}, {_SETTING} in [tool.uma]"
    faults: list[str] = []
    wanted: list[str] = []
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement as error:
            hint = f'write {_SETTING} = ["uma-my-plugin>=0.3"]'
            raise ProjectError(f"{line[:100]!r} is not a requirement", where=where, hint=hint) from error
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        entry = installed.get(normalised(requirement.name))
        text = f"{requirement.name}{requirement.specifier}"
        if entry is not None and entry in disabled:
            faults.append(f"{text}, which is disabled {disabled[entry]}")
        elif entry is None or not _admits(requirement, entry.version):
            faults.append(f"{text}, and {'it is not installed' if entry is None else f'{entry.version} is installed'}")
            wanted.append(text)
    if faults:
        hint = f"pip install {shlex.join(wanted)}" if wanted else f"enable the plugin, or change {_SETTING}"
        raise RequirementError(f"the project requires {'; '.join(faults)}", where=where, hint=hint)


def _admits(requirement: Requirement, version: str) -> bool:
    try:
        return requirement.specifier.contains(version, prereleases=True)
    except ValueError:  # a distribution without a version
        return False
