"""The choice of what runs row by row: what can, what it would take, and which of the ways to run the model is built.

Every kernel of the first host is lowered whole, as always. Where rows are wanted, those without a form of one row are
lowered once more by rows; the search over cuts weighs RAM against instructions; and the model is lowered for what was
chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..artifact.record import RowsEndRecord, RowsPointRecord, RowsRecord
from ..errors import RequirementError
from ..lowering.build_targets import BuildTargets
from ..option_values import Limit
from ..program import Buffer, Call, Plan, Program, by_rows, chain_fault, plan, streamed
from ..program.chain_partition import Cut, Cuts, Read, Tensor, Work
from ..program.program import arguments
from ..relay.expr import Expr
from ..tir.form.nodes import PrimFunc, RowForm
from ..tir.proofs.operations import operations
from ..tir.proofs.overlap import with_overlaps
from ..tir.rewrites.row_form import NoRows, row_form
from ..toolchain.packing_engine import packing_engine
from .facts import Facts
from .memory_limit import ram_bytes, shorten_names
from .streamed_inputs import HINT

__all__ = ["FREE", "Lowered", "RowsAsked", "RowsPoint", "choose_rows"]

FREE = 0.02
"""The part of its instructions that a host with little RAM may run more for rows that nobody asked for."""

_POINTS = 16
"""So many cuts are packed: of more, some between the first and the last."""


@dataclass(frozen=True)
class RowsAsked:
    """What rows are for.

    Args:
        max_ram: what the model may take without its stack; the cut is taken that fits and adds least.
        small: whether the host has little RAM: without a limit, the least RAM is taken that adds no more than `FREE`.
        frontier: whether to look at the cuts, though none of them is taken.
        least: whether without a limit the least RAM is taken, whatever it adds.
        inputs: the model's inputs, by its names, that the caller gives row by row: what reads them runs so.
    """

    max_ram: Limit | None = None
    small: bool = False
    frontier: bool = False
    least: bool = False
    inputs: tuple[str, ...] = ()

    @staticmethod
    def from_targets(
        members: BuildTargets,
        max_ram: Limit | None = None,
        frontier: bool = False,
        least: bool = False,
        inputs: tuple[str, ...] = (),
    ) -> RowsAsked:
        """What is asked where the targets are ``members``."""
        return RowsAsked(max_ram, "small_stack" in members.host.features, frontier, least, inputs)

    @property
    def any(self) -> bool:
        """Whether there is anything to look for."""
        return self.max_ram is not None or self.small or self.frontier or self.least or bool(self.inputs)


RowwiseKernels = frozenset[tuple[Expr, bool]]
"""The kernels that are lowered by rows: by the host's strategies, where it is True, else by the core."""


@dataclass(frozen=True)
class Lowered:
    """A model that was lowered.

    Args:
        program: of it, without blocks of rows.
        kernels: the calls of the fused ``main`` that one step each computes, by the position of that; for each the
            heights of the tensors that it uses, by the buffers' names.
        copied: the inputs of which the caller gives the rows, by the positions of the calls that copy these; of these
            calls ``kernels`` has the inputs.
        facts: of its stages.
    """

    program: Program
    kernels: Mapping[int, tuple[Expr, Mapping[str, int]]]
    copied: Mapping[int, str]
    facts: Facts


@dataclass(frozen=True)
class RowsPoint:
    """One way to run the model.

    Args:
        cut: its chains of calls.
        by_rows: the kernels that are lowered by rows.
        lowered: the model with these.
        program: with its blocks of rows.
        forms: the row forms of the functions in these, by their names in ``lowered``.
        memory: the plan of ``program``.
    """

    cut: Cut
    by_rows: RowwiseKernels
    lowered: Lowered
    program: Program
    forms: Mapping[str, PrimFunc]
    memory: Plan


@dataclass(frozen=True)
class _Form:
    """How a call is run by rows.

    Args:
        func: by rows.
        again: whether it comes of loops that were asked for by rows, of the host's strategies or of the core; None
            where it is that of the loops for all rows.
        added: instructions more than of the call at once.
    """

    func: PrimFunc
    again: bool | None
    added: int


def choose_rows(asked: RowsAsked, lowered: Callable[[RowwiseKernels], Lowered]) -> tuple[RowsPoint, RowsRecord]:
    """Choose which layers of a model without control flow run row by row.

    Args:
        asked: the goal.
        lowered: lowers the model, some of its kernels by rows.

    Returns:
        The chosen way, and the record of all of them.

    Raises:
        RequirementError: inputs are to be given row by row, and no way to run the model by rows reads them so.
    """
    return _Chooser(asked, lowered).choice()


class _Chooser:
    def __init__(self, asked: RowsAsked, lowered: Callable[[RowwiseKernels], Lowered]) -> None:
        self.asked = asked
        self._lower = lowered
        self._lowered: dict[RowwiseKernels, Lowered] = {}
        self.whole = self.lowered(RowwiseKernels())
        self.forms: dict[int, _Form] = {}
        self.reasons: dict[int, str] = {}
        self._refused: str | None = None
        self._forms: dict[tuple[PrimFunc, tuple[tuple[str, int], ...]], PrimFunc | NoRows] = {}

    def lowered(self, kernels: RowwiseKernels) -> Lowered:
        if kernels not in self._lowered:
            self._lowered[kernels] = self._lower(kernels)
        return self._lowered[kernels]

    def choice(self) -> tuple[RowsPoint, RowsRecord]:
        self._find_forms()
        search = self._cuts()
        cuts = search.frontier()
        if self.asked.least and (lowest := search.lowest()).peak < min((one.peak for one in cuts), default=lowest.peak):
            cuts += (lowest,)  # (what is long is not gone through to its end)
        if len(cuts) > _POINTS:
            cuts = tuple(cuts[round(at * (len(cuts) - 1) / (_POINTS - 1))] for at in range(_POINTS))
        points: list[RowsPoint] = []
        whole = () if self.whole.copied else (Cut(0, 0, ()),)
        for point in map(self._point, (*whole, *(cut for cut in cuts if cut.chains))):
            if point is not None and (not points or self._ram(point) < self._ram(points[-1])):
                points.append(point)
        if not points:
            raise self._unread()
        total = sum(self._instructions(at) for at, _ in self.whole.program.calls)
        chosen = self._chosen(points, total)
        record = RowsRecord(total, tuple(map(self._recorded, points)), chosen, tuple(self._ends()))
        return points[chosen], record

    def _ram(self, point: RowsPoint) -> int:
        return ram_bytes(point.program, point.memory)

    def _chosen(self, points: Sequence[RowsPoint], instructions: int) -> int:
        limit = self.asked.max_ram
        last = len(points) - 1
        if limit is not None:
            return next((at for at, one in enumerate(points) if self._ram(one) <= limit.amount), last)
        if self.asked.least:
            return last
        if not self.asked.small:
            return 0
        free = instructions * FREE
        return max((at for at, one in enumerate(points) if one.cut.added <= free), default=0)

    def _find_forms(self) -> None:
        """The row form of each call that has one, and why others have none."""
        missing: dict[int, Expr] = {}
        for at, call in self.whole.program.calls:
            reason = self._outside(at, call)
            if reason is not None:
                self.reasons[at] = reason
                continue
            row_form = self._form(self.whole, at)
            if isinstance(row_form, NoRows):
                self.reasons[at] = row_form.reason
                missing[at] = self.whole.kernels[at][0]
            else:
                self.forms[at] = _Form(row_form, None, 0)
        for by_host in (True, False):
            if not missing:
                return
            again = self.lowered(RowwiseKernels((kernel, by_host) for kernel in missing.values()))
            positions = {kernel: at for at, (kernel, _) in again.kernels.items()}
            for at, kernel in list(missing.items()):
                form = self._form(again, positions[kernel]) if kernel in positions else None
                if isinstance(form, PrimFunc):
                    del self.reasons[at], missing[at]
                    self.forms[at] = _Form(form, by_host, self._added(at, again, positions[kernel], form))

    def _outside(self, at: int, call: Call) -> str | None:
        """Why a call is not even asked for a form of one row."""
        if call.device is not None or call.host is not None:
            return f"it is for {call.device or call.host!r}, and rows are the first host's"
        if any(buffer.role == "state" for buffer in self._buffers(call)):
            return "it uses what is kept from run to run"
        if at not in self.whole.kernels:
            return "it is not a kernel of the model" if not call.layers else "it is a part of a kernel"
        return None

    def _buffers(self, call: Call) -> list[Buffer]:
        named = {buffer.name: buffer for buffer in self.whole.program.buffers}
        return [named[name] for name in call.args]

    def _form(self, lowered: Lowered, at: int) -> PrimFunc | NoRows:
        step = lowered.program.steps[at]
        assert isinstance(step, Call)
        func, heights = lowered.program.functions[step.function], lowered.kernels[at][1]
        assert isinstance(func, PrimFunc)
        passed = ((param.buffer.name, name) for param, name in arguments(lowered.program, step))
        known = tuple((param, heights[name]) for param, name in passed if name in heights)
        if (func, known) not in self._forms:
            self._forms[func, known] = row_form(func, dict(known))
        return self._forms[func, known]

    def _instructions(self, at: int) -> int:
        """About how many a call takes at once."""
        if (
            at in self.whole.kernels
            and (said := self.whole.facts.instructions.get(self.whole.kernels[at][0])) is not None
        ):
            return said
        step = self.whole.program.steps[at]
        assert isinstance(step, Call)
        function = self.whole.program.functions[step.function]
        return operations(function) if isinstance(function, PrimFunc) else 0

    def _added(self, at: int, again: Lowered, position: int, form: PrimFunc) -> int:
        """How many instructions more loops take that were asked for by rows: both said, or both counted. It is below 0
        where they take less."""
        kernel = self.whole.kernels[at][0]
        before, now = self.whole.facts.instructions.get(kernel), again.facts.instructions.get(kernel)
        if before is None or now is None:
            step = self.whole.program.steps[at]
            assert isinstance(step, Call)
            function = self.whole.program.functions[step.function]
            assert isinstance(function, PrimFunc)
            before, now = operations(function), operations(form)
        return now - before

    def _cuts(self) -> Cuts:
        program = self.whole.program
        numbers = {buffer.name: number for number, buffer in enumerate(program.buffers)}
        heights: dict[str, int] = {}
        works: list[Work] = []
        for at, step in enumerate(program.steps):
            works.append(Work((), ()) if not isinstance(step, Call) else self._work(at, step, numbers, heights))
        copied = set(self.whole.copied.values())
        tensors = [
            Tensor(
                0 if buffer.name in copied else _planned_bytes(buffer),
                heights.get(buffer.name, 1),
                buffer.role == "output",
                buffer.name in self._copies,
            )
            for buffer in program.buffers
        ]
        return Cuts(tensors, works)

    @property
    def _copies(self) -> dict[str, str]:
        """The inputs of which the caller gives the rows, by the buffers that take these."""
        steps = self.whole.program.steps
        return {step.args[1]: name for at, name in self.whole.copied.items() if isinstance(step := steps[at], Call)}

    def _unread(self) -> RequirementError:
        """Why inputs cannot be given row by row."""
        program, tensors = self.whole.program, {buffer.name: buffer.tensor for buffer in self.whole.program.inputs}
        for copy, name in self._copies.items():
            readers = [(at, step) for at, step in program.calls if copy in step.args[1:] or step.args[0] == copy]
            readers = [(at, step) for at, step in readers if at not in self.whole.copied]
            for at, step in readers:
                reason = self.reasons.get(at)
                if reason is None and self._reads_whole(at, step, copy):
                    rows = self.whole.kernels[at][1][copy]
                    reason = f"it needs all of its {rows} rows for each row that it makes"
                if reason is not None:
                    reader = shorten_names(step.layers or (step.function,))
                    what = f"input {tensors[name]!r} cannot be given row by row: {reader} reads it, and {reason}"
                    return RequirementError(what, where=program.name, hint=HINT)
        named = " and ".join(repr(tensors[name]) for name in self._copies.values())
        why = "the layers that read it are in no chain of layers that can be run by rows"
        what = f"input {named} cannot be given row by row: {self._refused or why}"
        return RequirementError(what, where=program.name, hint=HINT)

    def _reads_whole(self, at: int, step: Call, name: str) -> bool:
        rows = self.forms[at].func.rows
        passed = (param.buffer.name for param, argument in arguments(self.whole.program, step) if argument == name)
        return rows is None or any(rows.of(param) is None for param in passed)

    def _work(self, at: int, call: Call, numbers: Mapping[str, int], heights: dict[str, int]) -> Work:
        """A call for the search; ``heights`` has those of what calls before it make by rows, and gets its own."""
        function, form = self.whole.program.functions[call.function], self.forms.get(at)
        rows: RowForm | None = None if form is None else form.func.rows
        reads: list[Read] = []
        makes: list[int] = []
        whole = False
        for param, name in arguments(self.whole.program, call):
            lies = None if rows is None else rows.of(param.buffer.name)
            if param.role == "input":
                fits = lies is not None and lies.height == heights.get(name, lies.height)
                reads.append(Read(numbers[name], lies if fits else None))
            elif param.role == "output":
                makes.append(numbers[name])
                whole = whole or lies is None
                if lies is not None:
                    heights[name] = lies.height
        spaces = [buffer for buffer in self._buffers(call) if buffer.role == "workspace"]
        named = {param.buffer.name: numbers[name] for param, name in arguments(self.whole.program, call)}
        sizes = {param.buffer.name: param.buffer.nbytes for param, _ in arguments(self.whole.program, call)}
        pairs = [
            (out, operand, 0) for out, operand in getattr(function, "may_alias", ()) if sizes[out] == sizes[operand]
        ]
        pairs += getattr(function, "overlaps", ())
        workspaces = () if form is None else form.func.buffers("workspace")
        return Work(
            tuple(reads),
            tuple(makes),
            0 if rows is None else rows.extent,
            not whole,
            sum(map(_planned_bytes, spaces)),
            sum(buffer.nbytes for buffer in workspaces),
            0 if form is None else form.added,
            tuple((named[out], named[operand], distance) for out, operand, distance in pairs),
        )

    def _point(self, cut: Cut) -> RowsPoint | None:
        """The program of a cut, and its plan; None where a chain cannot be as the search has it."""
        members = [at for first, last in cut.chains for at in range(first, last + 1)]
        chosen = ((self.whole.kernels[at][0], self.forms[at].again) for at in members)
        kernels = RowwiseKernels((kernel, how) for kernel, how in chosen if how is not None)
        lowered = self.lowered(kernels)
        positions = {kernel: at for at, (kernel, _) in lowered.kernels.items()}
        chains: list[tuple[int, int]] = []
        forms: dict[str, PrimFunc] = {}
        for first, last in cut.chains:
            here = [positions.get(self.whole.kernels[at][0], -1) for at in range(first, last + 1)]
            if here != list(range(here[0], here[0] + len(here))) or here[0] < 0:
                return None
            for at in here:
                step, form = lowered.program.steps[at], self._form(lowered, at)
                assert isinstance(step, Call)
                if isinstance(form, NoRows):
                    return None
                form = with_overlaps(form)  # calls outside of chains are of it too
                if first < last and forms.setdefault(step.function, form) != form:
                    return None
            if first < last:
                chains.append((here[0], here[-1]))
        faults = (chain_fault(lowered.program, chain, forms) for chain in chains)
        fault = next((fault for fault in faults if fault is not None), None)
        if fault is not None:
            self._refused = fault
            return None
        program = by_rows(lowered.program, chains, forms) if chains else lowered.program
        program = streamed(program, set(lowered.copied.values()))
        return RowsPoint(cut, kernels, lowered, program, forms, plan(program, engine=packing_engine))

    def _recorded(self, point: RowsPoint) -> RowsPointRecord:
        calls = self.whole.program.steps
        chains = [
            tuple(
                _names(step)
                for at, step in enumerate(calls[first : last + 1], first)
                if isinstance(step, Call) and at not in self.whole.copied
            )
            for first, last in point.cut.chains
        ]
        return RowsPointRecord(point.memory.arena_bytes, self._ram(point), point.cut.added, tuple(chains))

    def _ends(self) -> list[RowsEndRecord]:
        calls = self.whole.program.calls
        return [RowsEndRecord(_names(call), self.reasons[at]) for at, call in calls if at in self.reasons]


def _names(call: Call) -> tuple[str, ...]:
    """The layers of a call; where none is known, its kernel."""
    return call.layers or (call.function,)


def _planned_bytes(buffer: Buffer) -> int:
    """What a buffer takes of the arena."""
    return buffer.nbytes if buffer.in_arena and not buffer.in_scratch else 0
