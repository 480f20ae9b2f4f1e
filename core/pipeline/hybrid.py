"""How layers of float32 whose weights are integers are computed, as TFLite files have them."""

from __future__ import annotations

from ..errors import UsageError
from ..option_values import check_hybrid
from ..support.project_file import ProjectError, find_project

__all__ = ["project_hybrid"]


def project_hybrid() -> str | None:
    """What the project asks for: ``hybrid`` in ``[tool.uma]``; None where it says nothing.

    Raises:
        ProjectError: as `find_project`; or it is none of `uma.frontends.HYBRID`.
    """
    project = find_project()
    if project is None or "hybrid" not in project.settings:
        return None
    try:
        return check_hybrid(project.settings["hybrid"])
    except UsageError as error:
        raise ProjectError(error.what, where=f"{project.path}, in [tool.uma]", hint=error.hint) from error
