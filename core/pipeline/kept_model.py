"""The model that an artifact was built from: kept in memory by a build, and written into the folder ``model``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from ..artifact import Artifact
from ..errors import ModelError, UsageError
from ..lowering.build_targets import Members, resolve_targets
from ..option_values import Allowed, Limit, check_allow, check_io, read_strips
from ..options import BuildOptions
from ..partition import Decision, SavedPlan, plan_record
from ..partition.partitioner_registry import named_partitioner
from ..plugins import PluginHost
from ..program import Program
from ..runtime.objects import MODEL_FOLDER
from ..support import json_record, json_schema
from ..support.io_forms import IO_FORMS
from ..support.json_record import Constraint
from ..support.weights_forms import WEIGHTS_FORMS
from .dump import CONSTANTS_FILE, constants_file, parse_dump, print_form
from .loading import LoadedModel, read_model

__all__ = ["KeptModel", "parse_kept_model"]

_TEXT, _BUILD, _PLAN = "model.py", "build.json", "plan.json"
_MENDING = "give the model file instead, with the options that the artifact was built with"


@dataclass(frozen=True)
class _Options:
    """The options of a build, as ``build.json`` has them; the targets are in the artifact's record."""

    schema_version: Literal[2]
    allow: Mapping[str, str]
    hybrid_layers: tuple[str, ...]
    io: Annotated[str, Constraint(enum=IO_FORMS)]
    strips: str | None
    stream_inputs: tuple[str, ...]
    weights: Annotated[str, Constraint(enum=WEIGHTS_FORMS)]
    partition: str
    max_ram: Annotated[int, Constraint(minimum=0, maximum=2**63 - 1)] | None
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
    targets: Members
    decision: Decision | None = None

    @property
    def members(self) -> Members:
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
        loaded, said, plan = self.loaded, self.loaded.options, self._plan
        name = "plan" if plan is not None else named_partitioner(self.targets.partition)
        if name is None:
            return {}
        strips = said.strips
        options = _Options(
            schema_version=2,
            allow=said.allow.entries,
            hybrid_layers=loaded.hybrid_layers,
            io=said.io or IO_FORMS[0],
            strips=None if strips is None else f"{strips.count}" + ("" if strips.end is None else f":{strips.end}"),
            stream_inputs=said.stream_inputs,
            weights=said.weights,
            partition=name,
            max_ram=None if said.max_ram is None else said.max_ram.amount,
            notes=loaded.notes,
            simplified=loaded.simplified,
        )
        text, constants = print_form(loaded.form)
        files = {_TEXT: text.encode("utf-8", "backslashreplace"), _BUILD: _json(json_record.to_json(options))}
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
        if problem := json_schema.first_error(plain, json_record.json_schema_of(_Options)):
            raise ValueError(problem)
        options = json_record.from_json(_Options, plain)
        allow = check_allow(options.allow)
        plan = json.loads(files[_PLAN]) if _PLAN in files else None
    except (KeyError, ValueError, RecursionError, UsageError) as error:
        what = f"the model that the artifact keeps cannot be read: {error}"
        raise ModelError(what, where=str(where), hint=_MENDING) from error
    partition = options.partition if plan is None else SavedPlan.from_record(plan, str(where / _PLAN))
    members = resolve_targets(list(artifact.record.targets), plugins, partition)
    with members.known_ops():
        form = parse_dump(text, files.get(CONSTANTS_FILE), where / _TEXT)
    asked = BuildOptions(
        name=artifact.name,
        allow=Allowed({key: value for key, value in options.allow.items() if key != "hybrid"}),
        io=check_io(options.io),
        strips=read_strips(options.strips),
        stream_inputs=options.stream_inputs,
        max_ram=None if options.max_ram is None else Limit(options.max_ram, "the build of the artifact"),
        weights=next(form for form in WEIGHTS_FORMS if form == options.weights),
    )
    if isinstance(form, Program):
        loaded = LoadedModel(form, artifact.name, options=asked)
    else:
        loaded = read_model(form, members, asked)
    # The text has the hybrid layers as they were imported.
    loaded = replace(loaded, options=replace(loaded.options, allow=allow), hybrid_layers=options.hybrid_layers)
    return KeptModel(replace(loaded, notes=options.notes, simplified=options.simplified), members)
