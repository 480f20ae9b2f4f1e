"""The class by which a function is scheduled, and the record of what was asked of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Literal, NamedTuple, TypeVar, cast

from ..form.nodes import Alloc, Block, Buffer, For, Intrinsic, Memory, PrimFunc, Queue, Var
from ..form.verify import verify
from ..form.visit import buffers_read, buffers_written, statements, variables
from ..proofs.intervals import Bounds
from . import buffering, cache_stages, compute_at, copy_blocks, loops, reductions, rows, tensorize
from .dependences import collect
from .finalisation import VectorUnit, finalise_schedule, in_loops
from .loops import Tail
from .sites import Site, block_site, chain, illegal, inline_bindings
from .state import State

__all__ = ["BlockInfo", "Schedule", "Step", "Trace", "replay"]

Loop = Var | str
"""A loop: its variable, or the name of that."""

Method = TypeVar("Method", bound=Callable[..., Any])


class BlockInfo(NamedTuple):
    """What a block is.

    Args:
        spatial: of the loops around its innermost statements those that say which element is written, outermost first.
        reduction: the others.
        reads, writes: the buffers that it uses.
    """

    spatial: tuple[Var, ...]
    reduction: tuple[Var, ...]
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]


class Step(NamedTuple):
    """One call of a method of `Schedule`. Loops and buffers are given by name.

    Args:
        name: of the method.
        args: that it was called with, one by one.
        named: that it was called with by name.
    """

    name: str
    args: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        arguments = [*map(_text, self.args), *(f"{name}={_text(value)}" for name, value in self.named)]
        return f"s.{self.name}({', '.join(arguments)})"


class Trace(tuple[Step, ...]):
    """The calls that made a schedule. As text they are Python: calls of a schedule ``s``, where memories, queues and
    intrinsics are names.
    """

    def __str__(self) -> str:
        return "\n".join(map(str, self))


def _text(value: Any) -> str:
    if isinstance(value, (Memory, Queue, Intrinsic)):
        return value.name
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))}{',' if len(value) == 1 else ''})"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _by_name(value: Any) -> Any:
    if isinstance(value, (Var, Buffer)):
        return value.name
    return tuple(map(_by_name, value)) if isinstance(value, (list, tuple)) else value


_PRIMITIVES: list[str] = []


def _recorded(method: Method) -> Method:
    """A primitive: a method that is noted in the trace when it has done its work."""
    _PRIMITIVES.append(method.__name__)

    @wraps(method)
    def run(self: Schedule, *args: Any, **named: Any) -> Any:
        step = Step(method.__name__, _by_name(args), tuple((name, _by_name(value)) for name, value in named.items()))
        key = (self._start, (*self._steps, step))
        # What is not simplified is remembered by whoever asked for that, as a whole.
        outcome = _MADE.get(key) if self._state.is_tidy else None
        if outcome is None:
            result = method(self, *args, **named)
            if self._state.is_tidy:
                _remembered(key, (replace(self._state, known=Bounds({})), result))
        else:
            self._state, result = outcome
        self._steps.append(step)
        return result

    return cast(Method, run)


_MADE: dict[Hashable, Any] = {}
"""What schedules have come to: by a function and the calls so far, the state and what the last one gave; with the unit
beside these, the function at last. Equal layers, which ask for the same, are scheduled once."""

_MOST_MADE = 1000


def _remembered(key: Hashable, outcome: Any) -> Any:
    if len(_MADE) >= _MOST_MADE:
        _MADE.clear()
    return _MADE.setdefault(key, outcome)


class Schedule:
    """Loops of a function in another form that computes the same: each method rewrites it, or says why it may not.

    A loop is given by its variable or its name, a block by its label, a buffer by itself or its name. Steps of one
    reduction (`Update`) may come in any order, those of floats as well; all else keeps its dependences. Tails that are
    peeled, and kinds of loops, are put into the function last, when ``func`` is asked for.

    Args:
        func: plain loops, such as `te.plain` gives.
        unit: the vectors of the machine, which ``func`` is checked against; None for no check.
        simplify: whether expressions are simplified at each step. Where they are not, ``func`` is not verified either,
            and the unit does not count: that is for whoever does both anyway.

    Raises:
        InternalError: the function is malformed. All methods raise `ScheduleError`, an InternalError, if what they are
            asked for is not there or not legal, and leave the schedule as it was.
    """

    def __init__(self, func: PrimFunc, unit: VectorUnit | None = None, *, simplify: bool = True) -> None:
        if simplify:
            verify(func)
        self.unit = unit
        self._start = (func, simplify)
        self._steps: list[Step] = []
        begun = _MADE.get((self._start, ()))
        if begun is None:
            begun = State(replace(func, body=inline_bindings(func.body)), is_tidy=simplify).tidy()
            _remembered((self._start, ()), replace(begun, known=Bounds({})))
        self._state: State = begun

    # What there is

    @property
    def func(self) -> PrimFunc:
        """The function as it is scheduled now: peeled, simplified, verified.

        Raises:
            ScheduleError: a loop cannot be of the kind that it was given, or needs more vectors than the unit has.
            InternalError: it is malformed, for example because the host would use an accelerator's memory.
        """
        if not self._state.is_tidy:
            return in_loops(self._state)
        key = (self._start, tuple(self._steps), self.unit)
        return cast(PrimFunc, _MADE.get(key) or _remembered(key, finalise_schedule(self._state, self.unit)))

    @property
    def trace(self) -> Trace:
        """The calls that were made, for `replay`, or to be printed."""
        return Trace(self._steps)

    def loops(self, label: str) -> list[Var]:
        """The variables of the loops around the innermost statements of a block, outermost first."""
        return [loop.var for loop in self._nest(label)]

    def _nest(self, label: str) -> tuple[For, ...]:
        site = block_site(self._state.func, label)
        return (*site.loops, *(stmt for stmt in chain(site.stmt) if isinstance(stmt, For)))

    def blocks(self, loop: Loop | None = None) -> list[str]:
        """The labels of the blocks within a loop, or of all, in the order of the text."""
        body = self._state.func.body if loop is None else self._state.loop(loop)[1].body
        return [part.label for part in statements(body) if isinstance(part, Block)]

    def buffers(self, loop: Loop) -> list[Buffer]:
        """The buffers that are made within a loop, in the order of the text."""
        _, stmt = self._state.loop(loop)
        return [part.buffer for part in statements(stmt.body) if isinstance(part, Alloc)]

    def block(self, label: str) -> BlockInfo:
        """What a block is."""
        site = block_site(self._state.func, label)
        outermost = next((stmt for stmt in site.path if isinstance(stmt, For)), site.stmt)
        bounds = Site(site.path[: site.path.index(outermost) + 1]).bounds
        innermost = chain(site.stmt)[-1]
        writes = [use for use in collect(outermost, bounds) if use.writes and use.stmt is innermost]
        telling = {var for use in writes for form in use.forms for term in form.terms for var in variables(term)}
        around = self.loops(label)
        spatial = tuple(var for var in around if var in telling)
        others = tuple(var for var in around if var not in telling)
        return BlockInfo(spatial, others, buffers_read(site.stmt), buffers_written(site.stmt))

    def _keep(self, state: State) -> None:
        self._state = state

    # Loops

    @_recorded
    def split(self, loop: Loop, factor: int, tail: Tail = "shrink") -> tuple[Var, Var]:
        """The loop ``x`` of X iterations as ``x_o`` over blocks of ``factor`` and ``x_i`` within one; their variables.

        What becomes of the last block where ``factor`` does not divide X is the ``tail``: ``shrink`` makes it smaller
        (``x_i`` runs to ``min(factor, X - factor * x_o)``); ``peel`` as well, and at last gives it loops of its own, so
        that all extents are constants (labels of the copy get a number); ``guard`` asks in each iteration whether it
        exists; ``pad`` makes X larger: what is written beyond must be in a buffer of the function itself, which grows,
        and what is read there must exist.
        """
        state, outer, inner = loops.split(self._state, loop, factor, tail)
        self._keep(state)
        return outer, inner

    @_recorded
    def fuse(self, a: Loop, b: Loop) -> Var:
        """Two loops, ``b`` of constant extent directly within ``a``, as one over all iterations of both."""
        state, var = loops.fuse(self._state, a, b)
        self._keep(state)
        return var

    @_recorded
    def merge(self, *order: Loop, levels: int = 1) -> tuple[Var, ...]:
        """Loops of one extent that stand one after the other, in this order and with nothing but blocks around them, as
        one: the first, of which each iteration does what one of each did. The blocks stand within it then. So it goes
        on for as many ``levels`` of loops as stand directly within one another; their variables.
        """
        state, merged = loops.merge(self._state, order, levels)
        self._keep(state)
        return tuple(merged)

    @_recorded
    def peel(self, loop: Loop) -> tuple[Var, ...]:
        """The loops that the outer loop of a split with ``tail="peel"`` will be at last, now: whole blocks, and the
        rest; their variables. So each can be dealt with in its own way.
        """
        state, parts = loops.peel(self._state, loop)
        self._keep(state)
        return parts

    @_recorded
    def reorder(self, *order: Loop) -> None:
        """Loops of one nest in this order, outermost first, in the places that they have now; others stay.

        What is asked, or named, between them moves inwards as far as it must.
        """
        self._keep(loops.reorder(self._state, order))

    @_recorded
    def part(self, loop: Loop, *places: int) -> None:
        """The loop as several, one after the other: before each of these iterations a new one begins. What is asked of
        all iterations is decided then where it is so for all of a part.
        """
        self._keep(loops.part(self._state, loop, places))

    @_recorded
    def unroll(self, loop: Loop) -> None:
        """The iterations will stand one after the other; the extent must be a constant at last."""
        self._keep(loops.unroll(self._state, loop))

    @_recorded
    def vectorize(self, loop: Loop) -> None:
        """The iterations, which must not depend on one another, will be lanes of vectors.

        The final extent must be a constant. Where it is not a power of two, as that of a peeled tail may be, there are
        smaller vectors: the last may do once more what the one before has done. Parts of registers are unrolled.
        """
        self._keep(loops.vectorize(self._state, loop))

    @_recorded
    def parallel(self, loop: Loop) -> None:
        """The iterations, which must not depend on one another, may run in any order."""
        self._keep(loops.parallel(self._state, loop))

    @_recorded
    def rows(self, loop: Loop) -> None:
        """The function will do one round of a loop: the one for the row that it is given, so that layers can run row by
        row (`PrimFunc.rows`). The loop is an outermost one, over the first dimension of its results, or of what it adds
        up, that has several elements; others beside it become part of the same rounds.

        What is made anew in each round may be allocated around the loop, but nothing is kept from one to the next but
        the sums of a reduction over rows.
        """
        self._keep(rows.rows(self._state, loop))

    # Blocks

    @_recorded
    def decompose_reduction(self, label: str, loop: Loop) -> str:
        """What stands before the reduction of a block, within ``loop``, in a nest of its own before that loop; the
        label of this nest, ``label_init``. Loops can be reordered across a reduction after that.
        """
        state, new = reductions.decompose_reduction(self._state, label, loop)
        self._keep(state)
        return new

    @_recorded
    def compute_at(self, label: str, loop: Loop) -> None:
        """The block before what stands in ``loop``, for just the elements that an iteration of that reads.

        What several iterations read is computed several times. The buffer keeps its size: see `store_at`.
        """
        self._keep(compute_at.compute_at(self._state, label, loop))

    @_recorded
    def reverse_compute_at(self, label: str, loop: Loop, tail: Literal["peel", "shrink"] = "peel") -> None:
        """The block after what stands in ``loop``, for just the elements that an iteration of that has written.

        Where the last iterations have written more than the block reads, their part is smaller: they get loops of their
        own (``peel``), or all have extents that say so (``shrink``).
        """
        self._keep(compute_at.reverse_compute_at(self._state, label, loop, tail))

    @_recorded
    def inline(self, label: str) -> None:
        """The block, which computes one buffer element by element, written into all that reads that; it is gone."""
        self._keep(compute_at.inline(self._state, label))

    @_recorded
    def decompose_padding(self, label: str) -> tuple[str, ...]:
        """The block, which chooses between two values by whether an element lies in a box (``y >= 1 and y < 9``), as a
        nest for the box, which keeps the label, and after it nests for what is around it, at most two for each loop;
        their labels, ``label_border`` and so on.
        """
        state, new = copy_blocks.decompose_padding(self._state, label)
        self._keep(state)
        return new

    @_recorded
    def as_copy(self, label: str) -> None:
        """The block, which stores elements of another buffer as they are, as one copy, such as an accelerator's memory
        needs.
        """
        self._keep(copy_blocks.as_copy(self._state, label))

    # Buffers

    @_recorded
    def cache_write(
        self, label: str, buffer: Buffer | str, scope: str | Memory = "register", at: Loop | None = None
    ) -> Buffer:
        """What an iteration of the loop ``at`` (or the block, where none is given) works on of ``buffer`` in a new
        buffer, ``buffer_scope``; this.

        It is copied in where it has a value that counts, in a block ``buffer_scope_in``, and out where somebody wants
        it, ``buffer_scope_out``; where nobody does, ``buffer`` is gone. In registers it has a dimension for each loop
        that goes through it, the lanes last.
        """
        state, new = cache_stages.cache_write(self._state, label, buffer, scope, at)
        self._keep(state)
        return new

    @_recorded
    def cache_read(
        self,
        label: str,
        buffer: Buffer | str,
        scope: str | Memory = "local",
        at: Loop | None = None,
        layout: Sequence[int] | None = None,
    ) -> Buffer:
        """What an iteration of the loop ``at`` (or the block, where none is given) reads of ``buffer``, copied to a new
        buffer first, ``buffer_scope``; this. The copy is the block ``buffer_scope_in``.

        ``layout`` is the order in which the dimensions of ``buffer`` lie in the new one, of which those that have one
        element are left out.
        """
        state, new = cache_stages.cache_read(self._state, label, buffer, at, scope, layout)
        self._keep(state)
        return new

    @_recorded
    def store_at(
        self,
        buffers: Buffer | str | Sequence[Buffer | str],
        loop: Loop | None = None,
        *,
        before: str | None = None,
        dims_from: int | None = None,
    ) -> tuple[Buffer, ...]:
        """Buffers of the function's own that are used in ``loop`` only, made anew in each iteration, as large as what
        that uses of them; the smaller buffers, of the same names. What was a workspace is on the stack then. Without a
        loop they stay as they are, in the function.

        They are made first there, or before what has the block ``before``. Dimensions of one element are left out, but
        for those from ``dims_from`` on, where that is given.
        """
        names = (buffers,) if isinstance(buffers, (Buffer, str)) else tuple(buffers)
        state, new = cache_stages.store_at(self._state, names, loop, before, dims_from)
        self._keep(state)
        return new

    @_recorded
    def set_scope(self, buffer: Buffer | str, scope: str | Memory) -> Buffer:
        """A buffer of the function's own in another memory; the new buffer, of the same name.

        That the host does not read and write an accelerator's memory is checked at last.
        """
        state, new = cache_stages.set_scope(self._state, buffer, scope)
        self._keep(state)
        return new

    @_recorded
    def align(self, buffer: Buffer | str, nbytes: int) -> Buffer:
        """A constant, or a buffer of the function's own, that begins at a multiple of so many bytes, such as those of a
        vector or of a line of the cache; the new buffer, of the same name.
        """
        state, new = cache_stages.align(self._state, buffer, nbytes)
        self._keep(state)
        return new

    @_recorded
    def rfactor(self, loop: Loop, pairwise: bool = False) -> Buffer:
        """The reduction that goes on along a loop in as many parts as that has iterations, which are independent then,
        and a sum of the parts: blocks ``b_parts_init`` and ``b_parts_sum`` for a result ``b``; the buffer ``b_parts``.

        Where some parts get fewer steps, as by a shrunk tail, there are as many as in a whole block. ``pairwise`` adds
        one half of the parts to the other, until one is left: their number is a power of two then.
        """
        state, new = reductions.rfactor(self._state, loop, pairwise)
        self._keep(state)
        return new

    @_recorded
    def rolling(self, buffer: Buffer | str, loop: Loop) -> Buffer:
        """A buffer of which each iteration of ``loop`` uses a window that moves along one dimension: what the iteration
        before has made is kept. In registers it is moved each time, in memory it stays, at its index modulo the size of
        the window. The first iteration, which makes all of its window, gets loops of its own; the new buffer.
        """
        state, new = buffering.rolling(self._state, buffer, loop)
        self._keep(state)
        return new

    @_recorded
    def double_buffer(self, buffers: Buffer | str | Sequence[Buffer | str], loop: Loop, queue: Queue) -> None:
        """Buffers in memories of an accelerator that each iteration of ``loop`` fills by one copy, or empties by one,
        in two halves: the copies for the next iteration run on the queue while this one computes, and so do those of
        the results of the one before. All buffers that share the queue are given at once.
        """
        names = (buffers,) if isinstance(buffers, (Buffer, str)) else tuple(buffers)
        self._keep(buffering.double_buffer(self._state, names, loop, queue))

    # Instructions

    @_recorded
    def tensorize(self, loop: Loop, intrinsic: Intrinsic, **values: int) -> None:
        """The loop, with all that stands within it, as one execution of an instruction that does the same.

        They are the same if the loops, with ``values`` for variables of the intrinsic and all simplified, can be told
        apart from its description by names, by the order of what is added and multiplied, and by the steps through
        buffers only: see `docs/schedules.md`. Variables without a value get what stands in their place. A buffer of
        the function's own through which an operand goes across dimensions gets one dimension.
        """
        self._keep(tensorize.tensorize(self._state, loop, intrinsic, values))


def replay(func: PrimFunc, trace: Iterable[Step], unit: VectorUnit | None = None) -> Schedule:
    """A schedule of ``func`` by the same calls.

    Raises:
        ScheduleError: one of them is not legal here, or there is no such primitive.
    """
    schedule = Schedule(func, unit)
    for step in trace:
        if step.name not in _PRIMITIVES:
            raise illegal(f"there is no primitive {step.name!r}", f"there are {', '.join(_PRIMITIVES)}")
        getattr(schedule, step.name)(*step.args, **dict(step.named))
    return schedule
