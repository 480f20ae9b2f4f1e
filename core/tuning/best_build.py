"""``uma.build``: from a model and a target to the artifact of the best plan."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, overload

from ..artifact import Artifact
from ..artifact.footprint import footprint
from ..artifact.record import ArtifactRecord, RowsRecord
from ..lowering.build_targets import BuildTargets, TargetLike, resolve_targets
from ..option_values import Limit
from ..options import BuildKeywords, BuildOptions
from ..pipeline.driver import build_loaded, check_stage, lower_loaded
from ..pipeline.loading import LoadedModel, Model, read_model, with_max_ram
from ..pipeline.memory_limit import beside_stack, require_ram
from ..pipeline.stages import Form
from ..plugins import default_host
from ..support.float_environment import default_mode
from .build_costs import with_costs
from .plan_selection import select_plan

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["build", "build_best", "fit_stack"]

_Result = TypeVar("_Result")


@overload
def build(
    model: Model, target: TargetLike, *, stop_after: None = None, **options: Unpack[BuildKeywords]
) -> Artifact: ...


@overload
def build(model: Model, target: TargetLike, *, stop_after: str, **options: Unpack[BuildKeywords]) -> Form: ...


def build(
    model: Model, target: TargetLike, *, stop_after: str | None = None, **options: Unpack[BuildKeywords]
) -> Artifact | Form:
    """Compile a model.

    Args:
        model: path of a TFLite or ONNX file or of a dumped text form, a module, an ``onnx.ModelProto`` with all its
            data in it, as ``onnx.load`` gives it, or a ``torch.export.ExportedProgram``; what is not a path is called
            ``model`` unless ``name`` says otherwise.
        target: what to build for, in any form that `uma.targets.read_targets` takes: a text, a `Target`, a dict, a
            list of these, or a dict from labels to them; accelerators and hosts in order of priority.
        stop_after: a stage, one of `STAGES`, behind which the build ends.
        options: see `uma.options.BuildOptions`.

    Returns:
        The artifact; nothing has been compiled by the C compiler yet. With ``stop_after`` the form that the stage
        gives: an `IRModule`, behind the last one a `Program`. It can be built on.

    Raises:
        UsageError: a target, a path, a stage or an option is wrong, or there is no such option.
        ModelError: the model is malformed, or has unsupported ops: all of these are named; or its import exceeds
            ``import_limit``.
        RequirementError: layers cannot run where they are pinned to: all of these are named, with the reasons; or
            strips of columns bring nothing; or nothing takes as little as ``max_ram``: it says what is alive where the
            least that there is takes most; or an input cannot be given row by row.
        PluginError: a target's plugin, or the partitioner, is at fault.
        ToolchainError: a library that a target needs is missing.
    """
    asked = BuildOptions.read("build", options)
    if stop_after is not None:
        check_stage(stop_after)
    # Before the model is read, which may take long.
    members = with_costs(resolve_targets(target, asked.plugins or default_host(), asked.partition))
    with default_mode():
        loaded = read_model(model, members, asked)
        if stop_after is not None:
            return lower_loaded(loaded, members, stop_after, dump=asked.dump)
        artifact = build_best(loaded, members, dump=asked.dump)
    if asked.max_ram is not None:
        require_ram(artifact.record, footprint(artifact.record), asked.max_ram)
    return artifact


def fit_stack(
    loaded: LoadedModel,
    limit: Limit | None,
    build: Callable[[LoadedModel], _Result],
    sizes: Callable[[_Result], tuple[ArtifactRecord, int | None]],
) -> tuple[_Result, LoadedModel]:
    """Build a model, and again with less RAM for the rest as long as its stack does not fit into the limit.

    Args:
        loaded: the model.
        limit: on its RAM with the stack; None for one build.
        build: builds a model.
        sizes: returns the record and the stack in bytes of what was built; None for an unknown stack.

    Returns:
        The last result of ``build``, and the model that it was built from.
    """
    rows: RowsRecord | None = None
    while True:
        result = build(loaded)
        if limit is None:
            return result, loaded
        record, stack_bytes = sizes(result)
        rest = beside_stack(record, stack_bytes, limit)
        if rest is None or record.rows == rows:
            return result, loaded
        loaded, rows = with_max_ram(loaded, rest), record.rows


def build_best(
    loaded: LoadedModel,
    members: BuildTargets,
    *,
    dump: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Artifact:
    """Compile a model with the plan that `select_plan` selects. For arguments see `build_loaded`.

    Raises:
        RequirementError: none of the best plans takes as little RAM.
    """
    return build_loaded(loaded, select_plan(loaded, members).members, dump=dump, progress=progress)
