"""Which plugins are not wanted, and who says so: an environment variable, the project, or whoever made the host."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..support.project_file import find_project

__all__ = ["VARIABLE", "disabled_names"]

VARIABLE = "UMA_DISABLE_PLUGINS"
"""The environment variable: names of distributions or entry points, with commas between them."""

_SETTING = "disable-plugins"


def disabled_names(names: Iterable[str]) -> dict[str, str]:
    """Names of distributions or entry points, and by whom each of them is disabled, in words.

    Args:
        names: names besides those of `VARIABLE` and of ``disable-plugins`` in ``[tool.uma]`` of the project.

    Raises:
        ProjectError: the project's file cannot be read, or its setting is not a list of names.
    """
    project = find_project()
    listed = [] if project is None else project.names(_SETTING, "uma-my-plugin")
    disabled = dict.fromkeys(listed, f"by {_SETTING} in [tool.uma] of pyproject.toml")
    variable = os.environ.get(VARIABLE, "").split(",")
    disabled |= dict.fromkeys(filter(None, map(str.strip, variable)), f"by the environment variable {VARIABLE}")
    return disabled | dict.fromkeys(names, "on request")
