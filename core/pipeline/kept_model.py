"""The model that an artifact was built from: kept in memory by a build, and written into the folder ``model``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ..artifact import Artifact
from ..errors import ModelError, UsageError
from ..lowering.build_targets import BuildTargets, resolve_targets
from ..option_values import Allowed
from ..options import BuildOptions
from ..partition import Decision, SavedPlan, plan_record
from ..partition.partitioner_registry import named_partitioner
from ..plugins import PluginHost
from ..program import Program
from ..runtime.objects import MODEL_FOLDER
from ..support import json_record, json_schema
from .dump import CONSTANTS_FILE, constants_file, parse_dump, print_form
from .loading import LoadedModel, read_model

__all__ = ["KeptModel", "parse_kept_model"]

_TEXT, _BUILD, _PLAN = "model.py", "build.json", "plan.json"
_MENDING = "give the model file instead, with the options that the artifact was built with"


@dataclass(frozen=True)
class _SavedBuild:
    """How a model is built again, as ``build.json`` has it; the targets are in the artifact's record."""

    schema_version: Literal[2]
    options: Mapping[str, Any]
    partition: str
    hybrid_layers: tuple[str, ...]
    notes: tuple[str, ...]
    simplified: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class KeptModel:
    """What an artifact was built from.

    Args:
        loaded: the model as it was read, with the options of the build.
        targets: of the build.
        decision: of the partitioner ``collage``; None if another one decided.
    """

    loaded: LoadedModel
    targets: BuildTargets
    decision: Decision | None = None

    @property
    def members(self) -> BuildTargets:
        """The targets of the build, with a partitioner that repeats what was decided by costs."""
        return self.targets if self._plan is None else replace(self.targets, partition=SavedPlan(self._plan))

    @property
    def _plan(self) -> Mapping[str, object] | None:
        if self.decision is not None:
            return plan_record(self.decision, self.targets.texts, self.targets.versions, reasons=False)
        partitioner = self.targets.partition
        return partitioner.record if isinstance(partitioner, SavedPlan) else None

    def files(self) -> dict[str, bytes]:
        """Return the files of the folder ``model``; nothing if a function of the caller's decided what goes where."""
        loaded, plan = self.loaded, self._plan
        name = "plan" if plan is not None else named_partitioner(self.targets.partition)
        if name is None:
            return {}
        options = loaded.options.to_json()
        build = _SavedBuild(2, options, name, loaded.hybrid_layers, loaded.notes, loaded.simplified)
        text, constants = print_form(loaded.form)
        files = {_TEXT: text.encode("utf-8", "backslashreplace"), _BUILD: _json(json_record.to_json(build))}
        if constants:
            files[CONSTANTS_FILE] = constants_file(constants)
        return files if plan is None else {**files, _PLAN: _json(plan)}


def _json(plain: object) -> bytes:
    return (json.dumps(plain, indent=1) + "\n").encode()


def parse_kept_model(files: Mapping[str, bytes], artifact: Artifact, plugins: PluginHost) -> KeptModel:
    """Return the model that the files of the folder ``model`` hold.

    Args:
        files: by name, as `KeptModel.files` returns them.
        artifact: that was built from it.
        plugins: where its targets come from.

    Raises:
        ModelError: there are no files, or they are damaged.
        UsageError, PluginError, RequirementError: as for `read_model`.
    """
    if not files:
        what = "the artifact does not keep the model that it was built from"
        raise ModelError(what, where=artifact.name, hint=_MENDING)
    where = Path(artifact.name, MODEL_FOLDER)
    try:
        text, plain = files[_TEXT].decode(), json.loads(files[_BUILD])
        if problem := json_schema.first_error(plain, json_record.json_schema_of(_SavedBuild)):
            raise ValueError(problem)
        build = json_record.from_json(_SavedBuild, plain)
        options = replace(BuildOptions.from_json(build.options), name=artifact.name)
        plan = json.loads(files[_PLAN]) if _PLAN in files else None
    except (KeyError, ValueError, RecursionError, UsageError) as error:
        what = f"the model that the artifact keeps cannot be read: {error}"
        raise ModelError(what, where=str(where), hint=_MENDING) from error
    partition = build.partition if plan is None else SavedPlan.from_record(plan, str(where / _PLAN))
    members = resolve_targets(list(artifact.record.targets), plugins, partition)
    with members.known_ops():
        form = parse_dump(text, files.get(CONSTANTS_FILE), where / _TEXT)
    if isinstance(form, Program):
        loaded = LoadedModel(form, artifact.name, options=options)
    else:  # its text has the hybrid layers as they were imported
        others = {key: value for key, value in options.allow.entries.items() if key != "hybrid"}
        loaded = read_model(form, members, replace(options, allow=Allowed(others)))
        loaded = replace(loaded, options=replace(loaded.options, allow=options.allow))
    notes, simplified = build.notes, build.simplified
    loaded = replace(loaded, notes=notes, simplified=simplified, hybrid_layers=build.hybrid_layers)
    return KeptModel(loaded, members)
