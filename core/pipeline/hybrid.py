"""How layers of float32 whose weights are integers are computed, as TFLite files have them."""

from __future__ import annotations

from ..errors import UsageError
from ..frontends.model import HYBRID
from ..project import ProjectError, find_project
from ..target.values import shown

__all__ = ["check_hybrid", "project_hybrid"]


def check_hybrid(hybrid: object) -> str:
    """What was asked for, one of `HYBRID`; the first where nothing was.

    Raises:
        UsageError: it is none of them.
    """
    if hybrid is None:
        return HYBRID[0]
    if not isinstance(hybrid, str) or hybrid not in HYBRID:
        raise UsageError(f"hybrid layers are not computed as {shown(hybrid)}", hint=f"one of {', '.join(HYBRID)}")
    return hybrid


def project_hybrid() -> str | None:
    """What the project asks for: ``hybrid`` in ``[tool.uma]``; None where it says nothing.

    Raises:
        ProjectError: as `find_project`; or it is none of `HYBRID`.
    """
    project = find_project()
    if project is None or "hybrid" not in project.settings:
        return None
    try:
        return check_hybrid(project.settings["hybrid"])
    except UsageError as error:
        raise ProjectError(error.what, where=f"{project.path}, in [tool.uma]", hint=error.hint) from error
