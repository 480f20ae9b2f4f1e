"""The model that an artifact was built from, read back: it is built again, and must give the same artifact."""

from __future__ import annotations

from ..artifact import Artifact
from ..artifact.model_folder import SavedModel
from ..errors import ModelError, UmaError
from ..plugins import PluginHost
from ..support.float_environment import default_mode
from .driver import finish_build, start_build
from .kept_model import KeptModel, parse_kept_model

__all__ = ["read_kept_model", "try_kept_model"]


def read_kept_model(artifact: Artifact, plugins: PluginHost) -> KeptModel:
    """Return the model that an artifact was built from. One that was saved is built again, and must give the artifact.

    Args:
        artifact: it.
        plugins: where its targets come from.

    Raises:
        ModelError: the artifact keeps no model, or a damaged one; or its model does not give the same artifact here.
        UsageError, PluginError, RequirementError, ToolchainError: as for `uma.build`.
    """
    source = artifact.built_from
    if isinstance(source, KeptModel):
        return source
    with default_mode():
        kept = parse_kept_model({} if source is None else source.files(), artifact, plugins)
        _require_same(kept, artifact)
    return kept


def try_kept_model(artifact: Artifact, plugins: PluginHost) -> tuple[KeptModel | None, str | None]:
    """Return the result of `read_kept_model`; or None, and why the model that the artifact keeps cannot be built again,
    None if it keeps none."""
    source = artifact.built_from
    try:
        if source is None or (isinstance(source, SavedModel) and not source.files()):
            return None, None
        return read_kept_model(artifact, plugins), None
    except UmaError as error:
        return None, error.what


def _require_same(kept: KeptModel, artifact: Artifact) -> None:
    """ModelError unless the model gives the files of the artifact."""
    build = start_build(kept.loaded, kept.members)
    again = finish_build(build, kept.loaded)
    names = sorted(again.files.keys() | artifact.files.keys())
    different = [name for name in names if again.files.get(name) != artifact.files.get(name)]
    if not different:
        return
    what = f"its model does not give this artifact here: {different[0]!r} differs"
    versions = {**again.record.plugins, "uma-core": again.record.uma_version}
    before = {**artifact.record.plugins, "uma-core": artifact.record.uma_version}
    others = [
        f"{name} {before[name]} (here {versions.get(name)})" for name in before if versions.get(name) != before[name]
    ]
    hint = f"it was built with {', '.join(others)}" if others else "the CPU or the project may be another one"
    raise ModelError(what, where=artifact.name, hint=f"{hint}; build the model again")
