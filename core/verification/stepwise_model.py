"""A model compiled with memory for every value of its own, of which single steps can be run, so that each kernel can be
compared with its reference, on what the model gives it or on other values of its operands' ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..artifact import Artifact
from ..lowering.build_targets import BuildTargets
from ..lowering.fuse import is_view
from ..lowering.mac_count import BuffersOf, StepsOf, called_function
from ..lowering.region_lowering import label_of
from ..pipeline.driver import make_artifact
from ..pipeline.line_buffering import RowsAsked
from ..pipeline.loading import LoadedModel
from ..pipeline.stages import Build
from ..program import Call as CallStep
from ..program import Program, Wait, plan, raised
from ..program.program import arguments
from ..program.wait_insertion import finish_positions
from ..relay.computed_dimensions import cut_symbols
from ..relay.control_bodies import is_control
from ..relay.dimension_binding import bind_function_dimensions
from ..relay.evaluate import evaluate
from ..relay.expr import Call, Constant, Expr, Function, GlobalVar, is_open, tensors_of
from ..relay.module import Signature
from ..relay.op import Bounds
from ..relay.types import TensorType
from ..relay.visit import post_order
from ..tir.form.symbolic_dims import substitute_symbols
from ..toolchain.packing_engine import packing_engine
from .operand_ranges import ranges
from .results import Bound, Difference, KernelCheck, KernelChecks, Overrun, Sides, Skipped, StepStop
from .rounding_error import relative_bounds, rounding_bounds

if TYPE_CHECKING:
    import numpy as np

    from ..runtime.model_process import EmulatedRuns, IsolatedModel, Isolation, Stopped, Written

__all__ = ["Inspected", "StepwiseModel", "Unit", "build_stepwise", "runs_of"]


_UNTOUCHED = 0x5A
"""In every byte of what no step has written."""


@dataclass(frozen=True, eq=False)
class Unit:
    """What is compared as a whole: a kernel of a host, or a region of an accelerator.

    Args:
        name: of the kernel, or of the region.
        label: of the accelerator, or of the host that it is pinned to.
        layers: the model's layers that it computes.
        expr: the call, of the model's ``main``.
        function: what it should compute.
        results: the buffers of what it gives.
        steps: the positions of the steps that compute it from its operands, and of the waits for them.
        buffers_of: where the values are of the function that it is in.
    """

    name: str
    label: str | None
    layers: tuple[str, ...]
    expr: Call
    function: Function
    results: tuple[str, ...]
    steps: tuple[int, ...]
    buffers_of: BuffersOf

    @cached_property
    def relative_bounds(self) -> tuple[float, ...]:
        """How far each result may be off by rounding, relative to its range."""
        return relative_bounds(self.function)


def runs_of(
    artifact: Artifact, isolation: Isolation, program: Program | None = None, offsets: Mapping[str, int] | None = None
) -> IsolatedModel | EmulatedRuns:
    """What runs an artifact: in a process of its own, or in an emulator.

    Args:
        artifact: the model.
        isolation: the process.
        program, offsets: of a model of which single steps can be run, what it was made from, and where its buffers are.
    """
    from ..runtime.model_process import EmulatedRuns

    if not artifact.is_native:
        return EmulatedRuns(artifact.session())
    if program is None or offsets is None:
        return artifact.isolated(isolation)
    arena = {b.name: (offsets[b.name], b.nbytes) for b in program.buffers if b.in_arena and not b.in_scratch}
    state = {b.name: (offsets[b.name], b.nbytes) for b in program.states}
    return artifact.isolated(isolation, arena, state)


def build_stepwise(loaded: LoadedModel, members: BuildTargets, *, reuse: bool = False) -> tuple[Build, Program]:
    """Return how a model is built for single steps, and its program: every value is whole and has memory.

    Args:
        loaded: the model.
        members: what it is built for.
        reuse: give values the memory that they have in the artifact.
    """
    options = loaded.options
    # Single steps are run of what is not a block of rows.
    rows = RowsAsked() if reuse else RowsAsked.from_targets(members, options.max_ram, least=options.strips is not None)
    build = Build(loaded.name, members, reuse=reuse, consent=loaded.consent, options=options, rows=rows)
    program = build.run(loaded.form)
    assert isinstance(program, Program)
    return build, raised(program)


class StepwiseModel:
    """A program compiled with memory for every value, of which single steps can be run.

    Args:
        program: the program.
        members: what it is compiled for.
        isolation: the process that it runs in.
        reuse: compile it with the memory that the artifact itself has: then nothing can be compared, but a step that
            crashes is known.

    Attributes:
        checks: of the results of its steps.
        skipped: the calls without a reference.
        overruns: bytes written beside buffers, each once.
        stops: the steps that crashed or hung, each once.
    """

    def __init__(self, program: Program, members: BuildTargets, isolation: Isolation, *, reuse: bool = False) -> None:
        self.program, self._members = program, members
        self.memory = plan(program, reuse=reuse, guarded=True, engine=packing_engine)
        artifact = make_artifact(program, self.memory, members, stepwise=True)
        self._calls = artifact.record.calls
        self.is_native = artifact.is_native
        self.runs = runs_of(artifact, isolation, program, self.memory.offsets)
        self._buffers = {buffer.name: buffer for buffer in program.buffers}
        self._finished = finish_positions(program)
        self._constants = self._constant_arrays()
        self._states: dict[str, np.ndarray] = {}
        self._overruns: dict[tuple[int, str | None, str | None], Overrun] = {}
        self.checks = KernelChecks()
        self.skipped: tuple[Skipped, ...] = ()
        self.stops: list[StepStop] = []

    @property
    def overruns(self) -> tuple[Overrun, ...]:
        return tuple(self._overruns.values())

    def run(self, inputs: Mapping[str, np.ndarray], states: Mapping[str, np.ndarray], sample: str) -> bool:
        """Run the model, note a step that crashes or hangs, and return whether all of it ran.

        Args:
            inputs: by name, as the C takes them.
            states: their values before the run, by name.
            sample: the name of the inputs.
        """
        self._prepare(inputs, states)
        return self._noting(self.runs.run(), sample) is None

    def check(self, sample: str) -> None:
        """Compare the results of the last run, of ``sample``, with their references."""

    def bounds(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Bound]:
        """Return how far outputs or states of the artifact may differ from those of this model, by name."""
        return {}

    def results(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """The outputs and the new states of the last run, by name."""
        return (
            {name: array.copy() for name, array in self.runs.outputs.items()},
            {name: array.copy() for name, array in self.runs.states.items()},
        )

    def _prepare(self, inputs: Mapping[str, np.ndarray], states: Mapping[str, np.ndarray]) -> None:
        import numpy as np

        for name, array in inputs.items():
            np.copyto(self.runs.inputs[name], array)
        if states and not self.runs.states:
            self.runs.reset()
        for name, array in states.items():
            np.copyto(self.runs.states[name], array)
        self._states = dict(states)
        if self.is_native:
            for buffer in self.program.role("intermediate"):
                self._bytes(buffer.name)[:] = _UNTOUCHED  # the bytes of the run before are not a result

    def _noting(self, outcome: Stopped | list[Written], sample: str) -> Stopped | None:
        """Note what went wrong in a run."""
        if isinstance(outcome, list):
            for row in outcome:
                key = row.step, row.below, row.above
                self._overruns.setdefault(key, self._overrun(row, sample))
            return None
        step = outcome.step
        place = self._place(step, [] if step is None else self._under_way(step))
        if all((stop.step, stop.kernel) != (step, place[0]) for stop in self.stops):
            self.stops.append(StepStop(step, *place, outcome.reason, sample))
        return outcome

    def _under_way(self, step: int) -> list[int]:
        """The launches that have not finished when a step ends."""
        return [at for at, one in self.program.calls if one.queue is not None and at < step <= self._finished[at]]

    def _place(self, step: int | None, flying: Sequence[int]) -> tuple[str, tuple[str, ...], str | None]:
        """The kernel, layers and target of a step and of what is under way with it."""
        if step is None:
            labels = self.program.devices
            return "", (), labels[0] if len(labels) == 1 else None
        rows = [self._calls[at] for at in (step, *flying)]
        layers = tuple(dict.fromkeys(layer for row in rows for layer in row.layers))
        one = self.program.steps[flying[0] if flying else step]
        host = one.host if isinstance(one, CallStep) else None
        return rows[0].kernel, layers, one.device or host or self._members.host.label

    def _overrun(self, row: Written, sample: str) -> Overrun:
        flying = self._under_way(row.step)
        kernel, layers, target = self._place(row.step, flying)
        roles: dict[str, str] = {}
        for at in (row.step, *flying):
            step = self.program.steps[at]
            if isinstance(step, CallStep):
                roles |= {
                    self._buffers[name].tensor or name: param.role for param, name in arguments(self.program, step)
                }
                roles |= {name: param.role for param, name in arguments(self.program, step)}
        between = f"between {row.below or 'nothing'} and {row.above or 'nothing'}"
        if row.below in roles and (row.above not in roles or row.behind <= row.before):
            beside = f"behind its {roles[row.below]}"
            far = f", {row.behind} bytes from its end" if row.behind else ""
        elif row.above in roles:
            beside = f"before its {roles[row.above]}"
            far = f", up to {row.before} bytes from its beginning" if row.before else ""
        else:
            beside, far, between = between, "", "neither of which is its"
        text = f"{row.count} byte{'s' if row.count > 1 else ''} {beside}{far} ({between})"
        return Overrun(row.step, kernel, layers, target, text, sample)

    # --- memory ----------------------------------------------------------------------------------------------------

    def _constant_arrays(self) -> dict[str, np.ndarray]:
        import numpy as np

        return {
            buffer.name: np.frombuffer(buffer.data or b"", buffer.dtype).reshape(buffer.shape)
            for buffer in self.program.role("constant")
        }

    def _bytes(self, name: str) -> np.ndarray:
        """The bytes of a buffer."""
        import numpy as np

        return self._array(name).reshape(-1).view(np.uint8)

    def _array(self, name: str) -> np.ndarray:
        """A buffer's value; of a state the one before the run."""
        buffer = self._buffers[name]
        if buffer.role == "constant":
            return self._constants[name]
        tables = {"input": self.runs.inputs, "output": self.runs.outputs, "state": self._states}
        if buffer.role in tables:
            return tables[buffer.role][buffer.tensor or buffer.name]
        offset = self.memory.offsets[name]
        return self.runs.arena[offset : offset + buffer.nbytes].view(buffer.dtype).reshape(buffer.shape)

    def _put(self, names: Sequence[str], arrays: Sequence[np.ndarray]) -> None:
        import numpy as np

        for name, array in zip(names, arrays, strict=True):
            buffer = self._buffers[name]
            if buffer.role == "state":
                held = buffer.tensor or buffer.name
                self._states[held] = array.reshape(buffer.shape)
                np.copyto(self.runs.states[held], array.reshape(buffer.shape))
            else:
                np.copyto(self._array(name), array.reshape(buffer.shape))


class Inspected(StepwiseModel):
    """A model, whose kernels and regions are compared with the references of their ops.

    Args:
        loaded: the model.
        members: what it is built for.
        isolation: the process that it runs in.
        known: bounds of its inputs, by name, where they are better than those of their types.

    Attributes:
        placement: what went where; None where the model was lowered already.
        tolerated: what passes did that may change results, in order.
        units: in the order in which they are computed.
        inner: of branches and of loops' bodies, for each place where one is run: of what it did there last.
        ranges: what is proven of the values of the model's ``main``.
        extents: what the open extents of its module are in the run, by their symbols; a run is given inputs as the C
            takes them.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        members: BuildTargets,
        isolation: Isolation,
        *,
        known: Mapping[str, Bounds] = MappingProxyType({}),
    ) -> None:
        build, program = build_stepwise(loaded, members)
        assert build.fused is not None
        super().__init__(program, members, isolation)
        self.fused, self.placement = build.fused, build.placement
        self.tolerated = build.facts.tolerated
        self.buffers_of = build.facts.buffers_of
        self._steps_of = StepsOf(self.program)
        rewriters = " and ".join(f"pass {name}" for name in build.facts.rewriters)
        reason = f"{rewriters} put something else in its place"
        self.units, self.skipped = self._units(self.fused.main, build.facts.buffers_of, reason)
        self.inner: tuple[Unit, ...] = ()
        for function, buffers_of in build.facts.sites if self.is_native else ():
            units, skipped = self._units(function, buffers_of, reason)
            self.inner, self.skipped = (*self.inner, *units), (*self.skipped, *skipped)
        main = self.fused.main
        self.extents: Mapping[str, int] = {}
        self._cuts = cut_symbols(post_order(self.fused.main.body))
        bounds: dict[Expr, Bounds] = {param: known[param.name] for param in main.params if param.name in known}
        has_open = any(map(is_open, main.params))
        self.ranges = {} if has_open else ranges(main, self.fused.functions, bounds)
        self._seen: dict[str, tuple[float, float]] = {}
        self._broken: set[Unit] = set()
        self._dead = False  # nothing can be run: the crash belongs to no kernel or region

    # --- running ---------------------------------------------------------------------------------------------------

    def run(self, inputs: Mapping[str, np.ndarray], states: Mapping[str, np.ndarray], sample: str) -> bool:
        """As `StepwiseModel.run`. After a step that crashes or hangs the others run: the references of its unit replace
        its results."""
        if not self._broken and not self._dead and super().run(inputs, states, sample):
            return True
        if self._dead:
            return False
        self._prepare(inputs, states)
        for unit in self.units:
            if unit not in self._broken:
                self._noting(self.runs.run(unit.steps), sample)
            if unit in self._broken:
                self._put(unit.results, self._whole(unit, self._expected(unit, self.operands(unit))))
        owned = {step for unit in self.units for step in unit.steps}
        rest = [step for step in range(len(self.program.steps)) if step not in owned]
        if rest:
            self._noting(self.runs.run(rest), sample)
        return False

    def _noting(self, outcome: Stopped | list[Written], sample: str) -> Stopped | None:
        stopped = super()._noting(outcome, sample)
        if stopped is not None:
            steps = {stopped.step, *([] if stopped.step is None else self._under_way(stopped.step))}
            units = [unit for unit in self.units if steps & set(unit.steps)]
            self._broken.update(units)
            self._dead = self._dead or not units
        return stopped

    # --- comparing -------------------------------------------------------------------------------------------------

    def check(self, sample: str) -> None:
        import numpy as np

        if self._dead:
            return
        for unit in self.units:
            inputs = self.operands(unit)
            for arg, array in zip(unit.expr.args, inputs, strict=True):
                buffers = self.buffers_of(arg) or ("",)
                finite = array[np.isfinite(array)]
                if finite.size:
                    low, high = self._seen.get(buffers[0], (finite.min().item(), finite.max().item()))
                    self._seen[buffers[0]] = min(low, finite.min().item()), max(high, finite.max().item())
            if unit not in self._broken:
                self._compare(unit, inputs, sample)
        for unit in self.inner:
            if not all((self._bytes(name) == _UNTOUCHED).all() for name in unit.results):  # it was run
                self._compare(unit, self.operands(unit), sample)
        self._check_copies(sample)

    def drive(self) -> None:
        """Run each kernel and region by itself, on operands at the ends of their ranges, and compare its results.

        Integers reach the ends proven for every input of the model, floats and indices those of the samples.
        """
        import numpy as np

        from .operand_ranges import directed

        if not self.is_native or self._dead:
            return
        for unit in self.units:
            places = {}
            for arg in unit.expr.args:
                buffers = self.buffers_of(arg)
                if isinstance(arg, Constant) or buffers is None or self._buffers[buffers[0]].role == "constant":
                    continue
                places[buffers[0]] = arg, self._ends(arg, buffers[0])
            if any(ends is None for _, ends in places.values()) or not places:
                continue
            for kind, arrays in directed([(arg, ends) for arg, ends in places.values() if ends is not None]):
                if unit in self._broken:
                    break
                for name, array in zip(places, arrays, strict=True):
                    self._put((name,), (array,))
                for name in unit.results:
                    self._bytes(name)[:] = _UNTOUCHED
                inputs = tuple(np.array(array) for array in self.operands(unit))
                sample = f"operands: {kind}"
                if self._noting(self.runs.run(unit.steps), sample) is None:
                    self._compare(unit, inputs, sample, driven=True)

    def operands(self, unit: Unit) -> tuple[np.ndarray, ...]:
        """What a unit was given."""
        return tuple(self.value(arg, unit.buffers_of) for arg in unit.expr.args)

    def value(self, expr: Expr, buffers_of: BuffersOf | None = None) -> np.ndarray:
        """What the compiled model has as the value of ``expr``, which is known; of a state the old one.

        Args:
            expr: of the model's ``main``, or of what ``buffers_of`` is for.
            buffers_of: where the values of another function are.
        """
        if isinstance(expr, Constant):
            return expr.data
        buffers = (buffers_of or self.buffers_of)(expr)
        assert buffers is not None
        return self._cut(self._array(buffers[0]), expr.tensor)

    def _compare(self, unit: Unit, inputs: tuple[np.ndarray, ...], sample: str, *, driven: bool = False) -> None:
        """Add the results of a unit that was given ``inputs``, beside what they should be."""
        operands = {param.name: array for param, array in zip(unit.function.params, inputs, strict=True)}
        function, types = self._valued(unit.function), tensors_of(unit.function.body.type)
        computed = self._computed()
        results = evaluate(function, operands, computed)
        bounds = rounding_bounds(unit.relative_bounds, function, operands, results, computed)
        for number, expected in enumerate(results):
            got = self._array(unit.results[number])
            got = self._cut(got, types[number]) if types[number].is_open else got
            got = got.reshape(expected.shape) if got.size == expected.size else got

            def check(difference: Difference, got: np.ndarray = got, expected: np.ndarray = expected) -> KernelCheck:
                sides = None
                if not difference.ok:
                    sides = Sides(tuple(array.copy() for array in inputs), got.copy(), expected)
                return KernelCheck(unit.name, unit.label, unit.layers, difference, sides, sample)

            self.checks.add(unit.results[number], got, expected, bounds[number], check, driven=driven)

    def _expected(self, unit: Unit, inputs: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        names = (param.name for param in unit.function.params)
        return evaluate(self._valued(unit.function), dict(zip(names, inputs, strict=True)), self._computed())

    def _valued(self, function: Function) -> Function:
        return bind_function_dimensions(function, self.extents) if self.extents else function

    def _computed(self) -> dict[str, int]:
        """The values that the last run computed of open extents, by their symbols."""
        extents = {}
        for name, (symbol, count) in self._cuts.items():
            extents[name] = min(max(int(self.value(count).reshape(-1)[0]), symbol.low), symbol.high)
        return extents

    def _values(self) -> dict[str, int]:
        """The values of open extents in the last run, by their symbols."""
        return {**self.extents, **self._computed()}

    def _cut(self, array: np.ndarray, type_: TensorType) -> np.ndarray:
        """A value of ``type_`` of what its buffer holds: of open extents these are the first elements."""
        if not type_.is_open:
            return array.reshape(type_.shape)
        return array.reshape(type_.bound.shape)[tuple(map(slice, substitute_symbols(type_.shape, self._values())))]

    def _whole(self, unit: Unit, results: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What a unit gives, as its buffers hold it."""
        import numpy as np

        values = []
        for result, type_ in zip(results, tensors_of(unit.function.body.type), strict=True):
            whole = np.zeros(type_.bound.shape, result.dtype) if type_.is_open else result
            self._cut(whole, type_)[...] = result.reshape(substitute_symbols(type_.shape, self._values()))
            values.append(whole)
        return values

    def _check_copies(self, sample: str) -> None:
        """Add the outputs for which no op stands: copies of what is an input, a constant or another output."""
        main = self.fused.main
        signature = self.fused.signature or Signature.from_function(main)
        types = signature.of_outputs(tensors_of(main.body.type))
        sources = self.buffers_of(main.body) or ()
        sources = signature.of_outputs(sources) if sources else ()
        for output, source, type_ in zip(self.program.outputs, sources, types, strict=bool(sources)):
            if output.name != source:
                step = next(step for _, step in self.program.calls if output.name in step.args)
                got, expected = self._array(output.name), self._array(source)
                if type_.is_open:
                    got, expected = self._cut(got, type_), self._cut(expected, type_)
                got = got.reshape(expected.shape) if got.size == expected.size else got

                def check(
                    difference: Difference,
                    got: np.ndarray = got,
                    expected: np.ndarray = expected,
                    step: CallStep = step,
                ) -> KernelCheck:
                    sides = None if difference.ok else Sides((), got.copy(), expected.copy())
                    return KernelCheck(step.function, None, step.layers, difference, sides, sample)

                self.checks.add(f"copy {output.name}", got, expected, Bound(), check)

    def _ends(self, expr: Expr, buffer: str) -> tuple[float, float] | None:
        """The lowest and the highest value that an operand is given; None where nobody knows."""
        bounds = self.ranges.get(expr)
        if isinstance(bounds, Bounds):
            return bounds.low, bounds.high
        return self._seen.get(buffer)

    # --- units -----------------------------------------------------------------------------------------------------

    def _units(self, main: Function, buffers_of: BuffersOf, why: str) -> tuple[tuple[Unit, ...], tuple[Skipped, ...]]:
        """What of a function can be compared, and what cannot, for a reason."""
        units: list[Unit] = []
        skipped: list[Skipped] = []
        for expr in post_order(main.body):
            if not isinstance(expr, Call) or is_view(expr) or is_control(expr):
                continue
            function = called_function(self.fused, expr)
            assert function is not None  # of loops there is no reference in relay
            label, layers = label_of(function) or expr.pin, self.fused.spans[expr]
            results = buffers_of(expr)
            if results is None:
                skipped.append(Skipped(label, layers, why))
                continue
            name = expr.op.name if isinstance(expr.op, GlobalVar) else self._writer_of(results[0])
            steps = self._steps(expr, results, buffers_of)
            units.append(Unit(name, label, layers, expr, function, results, steps, buffers_of))
        return tuple(units), tuple(skipped)

    def _writer_of(self, buffer: str) -> str:
        """The function whose step writes ``buffer``."""
        return next(step.function for _, step in self.program.calls if buffer in step.args)

    def _steps(self, expr: Call, results: tuple[str, ...], buffers_of: BuffersOf) -> tuple[int, ...]:
        """The steps that compute ``results`` from the operands of ``expr``, and the waits behind those on a queue."""
        inputs = [name for arg in expr.args for name in buffers_of(arg) or ()]
        steps = set(self._steps_of(results, inputs))
        queues = {(s.device, s.queue): at for at in sorted(steps, reverse=True) for s in [self.program.steps[at]]}
        for position, one in enumerate(self.program.steps):
            if isinstance(one, Wait) and queues.get((one.device, one.queue), position) < position:
                steps.add(position)
        return tuple(sorted(steps))
