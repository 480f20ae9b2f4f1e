"""The functions of `uma` that return typed results: explain, verify, report, plan and installed_targets."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .artifact import Artifact, load
from .artifact.archive import is_artifact
from .artifact.footprint import footprint
from .errors import PluginError, UsageError
from .lowering.build_targets import BuildTargets, TargetLike, resolve_targets
from .lowering.graph_queries import has_loops
from .options import BuildKeywords, BuildOptions
from .partition import Collage
from .pipeline.kept_model import KeptModel
from .pipeline.loading import LoadedModel, Model, read_model
from .pipeline.memory_limit import require_ram
from .pipeline.rebuild import read_kept_model, try_kept_model
from .plugins import PluginHost
from .program import Program
from .relay.module import IRModule
from .reports.explain import Explanation, explain_loaded
from .reports.overviews import PlacementPlan, make_plan, report_on
from .reports.report import Report, check_output
from .runtime.open_shapes import OpenShapes
from .support.argument_checks import path_of
from .support.float_environment import default_mode
from .support.formatting import format_value
from .support.html import html_of, table
from .targets import Alias, TargetKind
from .targets.kind import COMPOSITE
from .targets.parsing import COMPOSITE_KIND
from .targets.project import project_targets
from .tuning import build_best, with_costs
from .verification.index_inputs import index_extents
from .verification.models import verify as compare
from .verification.reference_runtimes import ORACLES, kept_states
from .verification.results import Verification
from .verification.samples import SAMPLES_EMULATED, check_count, data_set, filled, open_samples

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Unpack

__all__ = ["InstalledTargets", "explain", "installed_targets", "plan", "report", "verify"]


def explain(
    model: Model | Artifact,
    target: TargetLike | None = None,
    *,
    count: bool = False,
    **options: Unpack[BuildKeywords],
) -> Explanation:
    """Where every op of a model goes, and why not elsewhere.

    Args:
        model: as for `uma.build`; or an artifact, or its path, which is explained as it was built.
        target: as for `uma.build`; of an artifact it is known, as are all options of its build.
        count: also run the model once, on random inputs, for the cycles that devices count. This compiles and executes
            its code.
        options: see `uma.options.BuildOptions`; ``weights`` and ``dump`` have no effect here.

    Raises:
        UsageError: as for `uma.build`; or the model was lowered already, and has no ops; or a model has no target, or
            an artifact is given with an option of the build.
        ModelError: as for `uma.build`; or the artifact does not keep its model, or was built by other versions.
        RequirementError, PluginError, ToolchainError: as for `uma.build`.
    """
    with default_mode():
        _, kept = resolve_model(model, target, BuildOptions.read("explain", options))
        return explain_loaded(kept.loaded, kept.members, count=count, brought=True)


def verify(
    model: Model | Artifact,
    target: TargetLike | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    *,
    samples: int | None = None,
    against: str = "builtin",
    step_limit_s: float = 60.0,
    **options: Unpack[BuildKeywords],
) -> Verification:
    """Compare every kernel of a compiled model with the numpy references of its ops. This executes its code.

    Args:
        model: as for `uma.build`; or an artifact, or its path: then that is what is compared.
        target: as for `uma.build`; of an artifact it is known, as are all options of its build.
        inputs: arrays by the names of inputs, each of one sample or of many along its first axis; and labels under
            ``labels``, where accuracy is asked for.
        samples: how many to feed: those given, then generated ones; by default those given, and at least 8.
        against: ``builtin``, the references alone; or another runtime besides, ``litert`` or ``onnxruntime``.
        step_limit_s: how long one step may take before it counts as hanging.
        options: see `uma.options.BuildOptions`; ``weights`` and ``dump`` have no effect here.

    Returns:
        What was found; `Verification.ok` says whether all agrees.

    Raises:
        UsageError: as for `uma.build`; or ``samples``, ``against`` or ``step_limit_s`` make no sense, or another
            runtime has no model file to read; or a model has no target, or an artifact is given with an option
            of the build.
        ModelError: as for `uma.build`; or an input does not fit; or the artifact does not keep its model, or was built
            by other versions.
        RequirementError, PluginError, ToolchainError, DeviceError: as for `uma.build` and `Artifact.run`.
    """
    if against != "builtin" and against not in ORACLES:
        raise UsageError(f"{format_value(against)} is nothing to compare with", hint=f"builtin, {', '.join(ORACLES)}")
    check_options(samples, step_limit_s)
    build_options = BuildOptions.read("verify", options)
    is_file = isinstance(model, (str, os.PathLike)) and not is_artifact(model)
    file = Path(os.fspath(model)) if is_file and isinstance(model, (str, os.PathLike)) else None
    if against != "builtin" and file is None:
        raise UsageError(f"{against} reads model files alone", hint="give the path of one")
    with default_mode():
        artifact, kept = resolve_model(model, target, build_options)
        if artifact is None:
            artifact = build_best(kept.loaded, kept.members)
            if build_options.max_ram is not None:
                require_ram(artifact.record, footprint(artifact.record), build_options.max_ram)
        return verify_loaded(
            kept.loaded,
            artifact,
            kept.members,
            inputs or {},
            file=file,
            states=build_options.states or {},
            samples=samples,
            against=against,
            step_limit_s=step_limit_s,
        )


def verify_loaded(
    loaded: LoadedModel,
    artifact: Artifact,
    members: BuildTargets,
    inputs: Mapping[str, np.ndarray],
    *,
    file: Path | None,
    states: Mapping[str, str],
    samples: int | None,
    against: str,
    step_limit_s: float,
    where: str = "the inputs",
    progress: Callable[[str], None] | None = None,
) -> Verification:
    """As `verify`, of a model that was read and built.

    Args:
        loaded, artifact, members: the model, what it became, and its targets.
        inputs, states, samples, against, step_limit_s: as for `verify`.
        file: of the model; another runtime reads it.
        where: names the inputs in errors.
        progress: told of each part of the work that begins.
    """
    declared = artifact.record.inputs
    open_shapes = OpenShapes.from_rows(artifact.name, declared, artifact.record.outputs)
    if open_shapes is not None and (isinstance(loaded.form, Program) or has_loops(loaded.form)):
        what = "a form with open extents that was lowered already cannot be verified"
        raise UsageError(what, hint="verify the model's file")
    extents = index_extents(loaded.form) if isinstance(loaded.form, IRModule) else {}
    if open_shapes is not None:
        fed = open_samples(declared, open_shapes, inputs, extents)
    else:
        data = data_set(dict(inputs), declared, artifact.record.outputs, where)
        if samples is None and artifact.emulator is not None:
            samples = max(SAMPLES_EMULATED, len(data))
        fed = list(filled(data, declared, samples, extents))
    oracle = None
    if against != "builtin":
        assert file is not None
        kept = kept_states(loaded.form, states)
        oracle = against, partial(ORACLES[against], file, [row.shape for row in declared], kept, loaded.constants)
    return compare(
        loaded,
        artifact,
        members,
        fed,
        oracle=oracle,
        progress=progress,
        step_limit_s=step_limit_s,
    )


def report(
    model: Model | Artifact,
    target: TargetLike | None = None,
    output: str | os.PathLike[str] | None = None,
    *,
    profile: bool = False,
    compiled: bool = True,
    **options: Unpack[BuildKeywords],
) -> Report:
    """Report on a model or an artifact: targets, layers, memory, and the reasons why layers are not on accelerators.

    Args:
        model: as for `uma.build`; or an artifact, or its path.
        target: as for `uma.build`; of an artifact it is known, as are all options of its build.
        output: the file that the report is written to: a page (.html), or the same as .json, .csv or .md.
        profile: also run the model on random inputs, for times and cycles. This executes its code.
        compiled: compile the model, for the sizes of code and stack.
        options: see `uma.options.BuildOptions`; ``weights`` and ``dump`` have no effect here.

    Returns:
        The report; `Report.html` is the page.

    Raises:
        UsageError: as for `uma.build`; or a model has no target, an artifact is given with an option of the build, the
            file cannot be written, or a profile is asked for without compiling.
        ModelError, RequirementError, PluginError, ToolchainError, DeviceError: as for `uma.build` and
            `Artifact.profile`.
    """
    if output is not None:
        check_output(path_of(output, "a report"))
    build_options = BuildOptions.read("report", options)
    with default_mode():
        artifact, kept = resolve_artifact(model, target, build_options), None
        if artifact is None:
            _, kept = resolve_model(model, target, build_options)
        else:
            kept, _ = try_kept_model(artifact, build_options.plugins or installed_plugins())
        result = report_on(artifact, kept, profile=profile, compiled=compiled)
    if output is not None:
        result.save(output)
    return result


def plan(model: Model, target: TargetLike, **options: Unpack[BuildKeywords]) -> PlacementPlan:
    """Find the cheapest placement of a model's ops on its targets. Kernels of hosts may be compiled and timed here.

    Args:
        model, target: as for `uma.build`.
        options: see `uma.options.BuildOptions`; ``max_ram``, ``weights`` and ``dump`` have no effect here.
            ``partition`` is the partitioner with its arguments, such as a table of costs; by default ``Collage()``.

    Returns:
        The plan.

    Raises:
        UsageError: as for `uma.build`; or ``partition`` is another partitioner, or the model was lowered already.
        ModelError, RequirementError, PluginError, ToolchainError: as for `uma.build`.
    """
    build_options = BuildOptions.read("plan", {"partition": Collage(), **options})
    if not isinstance(build_options.partition, Collage):
        what = f"{format_value(build_options.partition)} makes no plan"
        raise UsageError(what, hint="give a uma.partition.Collage, or leave out partition")
    if resolve_artifact(model) is not None:
        raise UsageError("an artifact is placed already", hint="give the model's file")
    with default_mode():
        _, kept = resolve_model(model, target, build_options)
        return make_plan(kept.loaded, kept.members)[0]


def resolve_model(
    model: Model | Artifact, target: TargetLike | None, options: BuildOptions
) -> tuple[Artifact | None, KeptModel]:
    """Return the artifact, if ``model`` is one or its path, else None; and the model that it is built from.

    Args:
        model, target: as for `uma.build`.
        options: of the build.

    Raises:
        UsageError: a model has no target, or an artifact is given with an option of the build; or as for `read_model`.
        ModelError, RequirementError, PluginError, ToolchainError: as for `read_model` and `read_kept_model`.
    """
    host = options.plugins or installed_plugins()
    if (artifact := resolve_artifact(model, target, options)) is not None:
        return artifact, read_kept_model(artifact, host)
    assert not isinstance(model, Artifact)
    if target is None:
        raise UsageError("a model needs a target", hint='for example target="c"; only an artifact has one already')
    members = with_costs(resolve_targets(target, host, options.partition))
    return None, KeptModel(read_model(model, members, options), members)


def resolve_artifact(
    model: Model | Artifact, target: TargetLike | None = None, options: BuildOptions | None = None
) -> Artifact | None:
    """Return the artifact that ``model`` is, or is the path of; None for a model.

    Args:
        model: as for `verify`.
        target, options: of its build; an artifact records them.

    Raises:
        UsageError, ModelError: as for `refuse_options` and `uma.load`.
    """
    if not isinstance(model, Artifact) and not (isinstance(model, (str, os.PathLike)) and is_artifact(model)):
        return None
    names = [] if options is None else list(options.changed)
    refuse_options(names if target is None else [*names, "target"])
    return model if isinstance(model, Artifact) else load(model)


def refuse_options(names: Collection[str]) -> None:
    """UsageError if options of a build, of these names, come with an artifact."""
    if names:
        text = "an artifact is built already"
        raise UsageError(text, hint=f"leave out {', '.join(names)}; the artifact records how it was built")


def check_options(samples: int | None, step_limit_s: float) -> None:
    """That samples and the limit of a step make sense, before anything is built.

    Raises:
        UsageError: they do not.
    """
    check_count(samples)
    if not step_limit_s > 0:
        raise UsageError(f"the step limit {step_limit_s:g} is not positive", hint="give a positive number of seconds")


@dataclass(frozen=True)
class InstalledTargets:
    """What can be built for.

    Args:
        kinds: target kinds by name, the composite among them.
        aliases: of plugins.
        project: the targets that the project names in ``[tool.uma.targets]``; a kind or alias of the same name goes
            before one.
        unusable: names that plugins promise and cannot be had, and why.
    """

    kinds: Mapping[str, TargetKind]
    aliases: Mapping[str, Alias]
    project: Mapping[str, Alias]
    unusable: Mapping[str, PluginError]

    def __getitem__(self, name: str) -> TargetKind | Alias:
        """What a name stands for.

        Raises:
            KeyError: for nothing.
            PluginError: its plugin cannot be used.
        """
        if name in self.unusable:
            raise self.unusable[name]
        for named in (self.kinds, self.aliases, self.project):
            if name in named:
                return named[name]
        raise KeyError(name)

    def __repr__(self) -> str:
        return f"<InstalledTargets: {', '.join([*self.kinds, *self.aliases, *self.project])}>"

    def _repr_html_(self) -> str:
        """A row for each name that can be a target, and for each that cannot be used."""
        rows = [(name, "host" if kind.is_host else "accelerator", kind.help) for name, kind in self.kinds.items()]
        rows += [(name, "alias", alias.help) for name, alias in {**self.project, **self.aliases}.items()]
        rows += [(name, "unusable", error.what) for name, error in self.unusable.items()]
        return html_of(table("Targets", ("name", "", "meaning"), rows))

    def __contains__(self, name: object) -> bool:
        return any(name in named for named in (self.kinds, self.aliases, self.project))


def installed_targets(plugins: PluginHost | None = None) -> InstalledTargets:
    """What can be built for here: the kinds and aliases of installed plugins, which are imported, and the project's.

    Raises:
        ProjectError: what the project's file says of targets is wrong.
    """
    kinds: dict[str, TargetKind] = {}
    aliases: dict[str, Alias] = {}
    unusable: dict[str, PluginError] = {}
    for name, entry in (plugins or installed_plugins()).kinds().items():
        if isinstance(entry, PluginError):
            unusable[name] = entry
        elif isinstance(entry, Alias):
            aliases[name] = entry
        else:
            kinds[name] = entry
    return InstalledTargets({**kinds, COMPOSITE: COMPOSITE_KIND}, aliases, project_targets(), unusable)


def installed_plugins() -> PluginHost:
    """Return the installed plugins, looked up now: commands replace `default_host` for their own time."""
    from .plugins import default_host

    return default_host()
