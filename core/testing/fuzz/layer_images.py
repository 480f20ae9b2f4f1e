"""Many layers compiled as one image, run in a process of its own, layer by layer and all at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...errors import DeviceError, UmaError
from ...lowering.build_targets import BuildTargets
from ...pipeline.driver import make_artifact
from ...pipeline.line_buffering import RowsAsked
from ...pipeline.stages import Build, Form
from ...program import Call, Program, Wait, plan
from ...relay.expr import Expr, Tuple
from ...relay.module import IRModule
from ...toolchain.origins import PluginCodeError
from ...toolchain.packing_engine import packing_engine
from ...verification.stepwise_model import runs_of
from .layer import Layer, layer_name, module_of, number_of

if TYPE_CHECKING:
    import numpy as np

    from ...runtime.model_process import IsolatedModel, Isolation, Stopped, Written

__all__ = ["BuildFailed", "Image", "Ran", "Unbuilt", "images_of", "lowered_of", "unbuilt_of"]

_UNTOUCHED = 0x5A
"""In every byte of what no step has written."""


class BuildFailed(Exception):
    """An image cannot be built.

    Args:
        error: why.
        stage: the last stage that ended before.
    """

    def __init__(self, error: UmaError, stage: str) -> None:
        super().__init__(error.what)
        self.error, self.stage = error, stage


@dataclass(frozen=True)
class Ran:
    """What a run of a layer gave.

    Args:
        results: its outputs; None where the run did not end.
        stopped: how it ended instead: it crashed, hung, or the device reported a fault; empty where it did not.
        kind: of ``stopped``: ``crash``, ``hang`` or ``fault``.
        beside: what was written that is nobody's, in words; empty for nothing.
    """

    results: tuple[np.ndarray, ...] | None
    stopped: str = ""
    kind: str = ""
    beside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unbuilt:
    """A layer of which nothing can be made.

    Args:
        layer: the layer.
        error: why.
        stage: the last stage that ended before.
    """

    layer: Layer
    error: UmaError
    stage: str


@dataclass
class _Stages:
    """What a build gave after its stages."""

    last: str = "import"
    forms: dict[str, IRModule] = field(default_factory=dict)

    def __call__(self, stage: str, form: Form, made_by: str | None = None) -> None:
        self.last = stage
        if isinstance(form, IRModule):
            self.forms[stage] = form


class Image:
    """Layers compiled as one.

    Args:
        layers: the layers.
        members: what they are built for.
        isolation: the process that they run in.
        form: of the module of these layers another form, to build on; by default as they are.

    Attributes:
        lowered: the module after it was lowered.
        patterns: of each layer the patterns by which accelerators take parts of it, in order.
        refusals: of each layer the patterns whose lowering refused parts of it, each with its reason.

    Raises:
        BuildFailed: what keeps them from being built.
    """

    def __init__(
        self, layers: Sequence[Layer], members: BuildTargets, isolation: Isolation, form: IRModule | None = None
    ) -> None:
        self.layers, self.members, self.isolation = tuple(layers), members, isolation
        self.stages = _Stages()
        build = Build("attacked", members, self.stages, reuse=False, rows=RowsAsked())
        try:
            program = build.run(module_of(layers) if form is None else form)
            assert isinstance(program, Program)
            self.program = program
            self.stages.last = "plan"
            self._memory = plan(program, reuse=False, guarded=True, engine=packing_engine)
            self.stages.last = "generate"
            artifact = make_artifact(program, self._memory, members, stepwise=True)
            self.stages.last = "compile"
            runs = runs_of(artifact, isolation, program, self._memory.offsets)
        except UmaError as error:
            raise BuildFailed(error, self.stages.last) from error
        self.runs: IsolatedModel = runs  # type: ignore[assignment]  # this machine's
        self.lowered = self.stages.forms["simplify"]
        self.patterns = _patterns(build, len(self.layers))
        self.refusals = _refusals(build, len(self.layers))
        self._buffers = {buffer.name: buffer for buffer in program.buffers}
        outputs = iter([buffer.tensor or buffer.name for buffer in program.outputs])
        self._outputs = [[next(outputs) for _ in layer.results] for layer in self.layers]
        self._steps = [self._steps_of(number) for number in range(len(self.layers))]

    def _steps_of(self, number: int) -> list[int]:
        """The positions of the steps of a layer, and of the waits for them."""
        name = layer_name(number)
        positions = [at for at, step in enumerate(self.program.steps) if isinstance(step, Call) and name in step.layers]
        outputs = {b.name for b in self.program.outputs if (b.tensor or b.name) in self._outputs[number]}
        for at, step in enumerate(self.program.steps):
            if isinstance(step, Call) and at not in positions and outputs & set(step.args):
                positions.append(at)
        queues: dict[tuple[str | None, str | None], int] = {}
        for at in positions:
            step = self.program.steps[at]
            if isinstance(step, Call) and step.queue is not None:
                queues.setdefault((step.device, step.queue), at)
        for at, step in enumerate(self.program.steps):
            if isinstance(step, Wait) and queues.get((step.device, step.queue), at) < at:
                positions.append(at)
        return sorted(positions)

    def results_of(self, number: int, module: IRModule | None = None) -> list[Expr]:
        """The expressions of the lowered ``main`` that a layer gives."""
        module = module or self.lowered
        body = module.main.body
        fields = list(body.fields) if isinstance(body, Tuple) else [body]
        signature = module.signature
        fields = list(signature.of_outputs(fields)) if signature is not None else fields
        first = sum(len(layer.results) for layer in self.layers[:number])
        return fields[first : first + len(self.layers[number].results)]

    def name_inputs(self, number: int, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The inputs of a layer by the names that they have in the image."""
        params = self.layers[number].function.params
        return {f"x{number}_{at}": arrays[param.name] for at, param in enumerate(params)}

    def device_steps(self, number: int) -> list[int]:
        """The steps of a layer that a device computes."""
        steps = self.program.steps
        return [at for at in self._steps[number] if getattr(steps[at], "device", None) is not None]

    # --- running ---------------------------------------------------------------------------------------------------

    def put(self, arrays: Mapping[int, Mapping[str, np.ndarray]], runs: IsolatedModel | None = None) -> None:
        """Fill the inputs of layers, and make sure that nothing is left of results."""
        import numpy as np

        runs = runs or self.runs
        for number, one in arrays.items():
            for name, array in self.name_inputs(number, one).items():
                np.copyto(runs.inputs[name], array)
            for name in self._outputs[number]:
                runs.outputs[name].reshape(-1).view(np.uint8)[:] = _UNTOUCHED
        for buffer in self.program.role("intermediate"):
            offset = self._memory.offsets.get(buffer.name)
            if offset is not None and buffer.in_arena and not buffer.in_scratch:
                runs.arena[offset : offset + buffer.nbytes] = _UNTOUCHED

    def run(self, number: int, arrays: Mapping[str, np.ndarray], runs: IsolatedModel | None = None) -> Ran:
        """Run one layer."""
        runs = runs or self.runs
        self.put({number: arrays}, runs)
        return self._ran(number, lambda: runs.run(self._steps[number]), runs)

    def run_all(
        self, arrays: Mapping[int, Mapping[str, np.ndarray]], runs: IsolatedModel | None = None
    ) -> list[Ran] | str:
        """Run all layers, one after the other; a text where the run did not end."""
        runs = runs or self.runs
        self.put(arrays, runs)
        try:
            outcome = runs.run()
        except DeviceError as error:
            return error.what
        if not isinstance(outcome, list):
            return outcome.reason
        beside: dict[int, list[str]] = {}
        for row in outcome:
            step = self.program.steps[row.step]
            layers = step.layers if isinstance(step, Call) else ()
            for name in layers:
                layer_number = number_of(name)
                if layer_number is not None:
                    beside.setdefault(layer_number, []).append(self._beside(row))
        return [
            Ran(self._results(number, runs), beside=tuple(beside.get(number, ()))) for number in range(len(self.layers))
        ]

    def _ran(self, number: int, run: Callable[[], Stopped | list[Written]], runs: IsolatedModel) -> Ran:
        try:
            outcome = run()
        except DeviceError as error:
            return Ran(None, error.what, "fault")
        if not isinstance(outcome, list):
            return Ran(None, outcome.reason, "hang" if outcome.reason.startswith("did not end") else "crash")
        return Ran(self._results(number, runs), beside=tuple(dict.fromkeys(map(self._beside, outcome))))

    def _results(self, number: int, runs: IsolatedModel) -> tuple[np.ndarray, ...]:
        return tuple(
            runs.outputs[name].copy().reshape(expr.shape)
            for name, expr in zip(self._outputs[number], self.layers[number].results, strict=True)
        )

    def _beside(self, row: Written) -> str:
        near = row.below if row.above is None or (row.below is not None and row.behind <= row.before) else row.above
        where = f"behind {near}" if near == row.below else f"before {near}"
        return f"{row.count} byte{'s' if row.count > 1 else ''} {where}" if near else f"{row.count} bytes of nobody"

    def context(self, number: int) -> IsolatedModel:
        """One more context of the image, with devices of its own, in the same process."""
        from ...runtime.model_process import IsolatedModel

        return IsolatedModel(self.isolation, self.runs.image, number)


def _patterns(build: Build, count: int) -> list[tuple[str, ...]]:
    patterns: list[list[str]] = [[] for _ in range(count)]
    if build.placement is not None:
        for region in build.placement.regions.values():
            for claim, call in zip(region.claims, region.calls, strict=True):
                for name in build.placement.module.spans[call]:
                    number = number_of(name)
                    if number is not None:
                        patterns[number].append(claim.match.pattern.name)
    return [tuple(names) for names in patterns]


def _refusals(build: Build, count: int) -> list[list[tuple[str, str]]]:
    refusals: list[list[tuple[str, str]]] = [[] for _ in range(count)]
    if build.placement is not None:
        for one in build.placement.withdrawn:
            names = {name for node in one.nodes for name in build.placement.source.spans[node]}
            for number in {number_of(name) for name in names} - {None}:
                refusals[number or 0].append((one.pattern, one.reason))
    return refusals


def lowered_of(layers: Sequence[Layer], members: BuildTargets) -> tuple[IRModule, list[list[Expr]]]:
    """Layers lowered, not compiled, and what each gives in the ``main`` of that.

    Raises:
        UmaError: what keeps them from being lowered.
    """
    build = Build("attacked", members, reuse=False, rows=RowsAsked())
    lowered = build.run(module_of(layers), "simplify")
    assert isinstance(lowered, IRModule)
    body = lowered.main.body
    fields = list(body.fields) if isinstance(body, Tuple) else [body]
    results, first = [], 0
    for layer in layers:
        results.append(fields[first : first + len(layer.results)])
        first += len(layer.results)
    return lowered, results


def unbuilt_of(layer: Layer, members: BuildTargets) -> Unbuilt | None:
    """Why a layer cannot be brought as far as a plan of memory; None where it can."""
    stages = _Stages()
    build = Build("attacked", members, stages, reuse=False, rows=RowsAsked())
    try:
        program = build.run(module_of([layer]))
        assert isinstance(program, Program)
        stages.last = "plan"
        plan(program, reuse=False, guarded=True, engine=packing_engine)
    except UmaError as error:
        return Unbuilt(layer, error, stages.last)
    return None


def images_of(
    layers: Sequence[Layer], members: BuildTargets, isolation: Isolation, most: int
) -> tuple[list[Image], list[Unbuilt]]:
    """Images of layers, of so many each; a layer of which none can be made is left out, the others are built
    nevertheless."""
    images: list[Image] = []
    unbuilt: list[Unbuilt] = []
    broken: set[str] = set()  # C of the plugin that keeps a single layer from being compiled
    waiting = [list(layers[at : at + most]) for at in range(0, len(layers), most)]
    while waiting:
        some = waiting.pop(0)
        if not some:
            continue
        try:
            images.append(Image(some, members, isolation))
        except BuildFailed as failed:
            error, stage = failed.error, failed.stage
            if isinstance(error, PluginCodeError) and error.what in broken:
                continue  # one layer shows it
            if isinstance(error, PluginCodeError) and len(some) == 1:
                broken.add(error.what)
            named = [number for part in (error.where or "").split(", ") if (number := number_of(part)) is not None]
            if len(some) == 1:
                unbuilt.append(Unbuilt(some[0], error, stage))
            elif len(set(named)) == 1:
                waiting.insert(0, some[: named[0]] + some[named[0] + 1 :])
                waiting.insert(0, [some[named[0]]])
            else:
                waiting[:0] = [some[: len(some) // 2], some[len(some) // 2 :]]
    return images, unbuilt
