"""The results of stages beside the form: where a model was placed, and which program buffer holds which expression."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from ..artifact.record import RowsRecord, StripsRecord
from ..lowering.declined_strategies import Decline
from ..lowering.mac_count import Work, work_of
from ..lowering.sequence import Where
from ..partition import Placement
from ..program import Program
from ..relay.expr import Expr, Function
from ..relay.module import IRModule
from .buffer_map import buffers_of
from .passes import Tolerated

__all__ = ["Facts"]


@dataclass(frozen=True)
class Facts:
    """The results of the stages so far. Each stage returns its own; a field keeps its default until its stage has run.

    Args:
        placement: the target of every op, with reasons; of the stage ``partition``.
        strips: the layers that are computed in strips of columns; None for none.
        fused: the module before it is lowered; of the stage ``fuse``.
        lowered_main: the lowered form of each expression of the ``main`` of ``fused``.
        lowered_bodies: likewise for each function that control flow runs, by its name.
        instructions: the approximate instruction count of each kernel whose host's plugin stated it.
        on_other_hosts: the kernels, calls of the ``main`` of ``fused``, that the first host does not run, with the
            labels of their hosts.
        declined: the reasons why strategies left kernels of hosts to slower loops, in the order of the kernels.
        tolerated: the changes by passes that may change results, in order.
        rewriters: the plugins' passes, as ``label.pass``, that replaced calls of ``main`` after it was lowered.
        where: the program's buffers of the values of the lowered ``main``.
        site_buffers: for each place where control flow runs a function its name and the buffers of its values.
        rows: the ways to run layers row by row, and the chosen one; None if there was no choice.
        unblocked: the program before blocks of rows were formed; None if none were.
    """

    placement: Placement | None = None
    strips: StripsRecord | None = None
    fused: IRModule | None = None
    lowered_main: Mapping[Expr, Expr] = field(default_factory=dict)
    lowered_bodies: Mapping[str, Mapping[Expr, Expr]] = field(default_factory=dict)
    instructions: Mapping[Expr, int] = field(default_factory=dict)
    on_other_hosts: Mapping[Expr, str] = field(default_factory=dict)
    declined: tuple[Decline, ...] = ()
    tolerated: tuple[Tolerated, ...] = ()
    rewriters: tuple[str, ...] = ()
    where: Where = field(default_factory=dict)
    site_buffers: tuple[tuple[str, Where], ...] = ()
    rows: RowsRecord | None = None
    unblocked: Program | None = None

    def buffers_of(self, expr: Expr) -> tuple[str, ...] | None:
        """Return the names of the program's buffers that hold ``expr`` of the ``main`` of ``fused``, one per tensor.

        None where a plugin's pass replaced it, so that the program has it nowhere.
        """
        return buffers_of(expr, self.lowered_main, self.where)

    @property
    def sites(self) -> Iterator[tuple[Function, Callable[[Expr], tuple[str, ...] | None]]]:
        """The functions that control flow runs, before they were lowered, once for each place where one is run, with
        its `buffers_of`."""
        for name, where in self.site_buffers:
            function = None if self.fused is None else self.fused[name]
            if isinstance(function, Function):
                yield function, partial(buffers_of, became=self.lowered_bodies.get(name, {}), where=where)

    def work(self, program: Program) -> dict[int, Work]:
        """Return the model's work in the steps of ``program``, the result of these stages, by position; only of steps
        whose work is known."""
        if self.fused is None:
            return {}
        unblocked = program if self.unblocked is None else self.unblocked
        counts = work_of(self.fused, self.buffers_of, unblocked)
        # Blocks of rows move the calls, and share their buffers.
        pairs = zip(unblocked.calls, program.calls, strict=True)
        return {at: counts[before] for (before, _), (at, _) in pairs if before in counts}
