"""The small accelerator of `tir_devices` with two queues: its C, and random functions with copies in flight."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from tests._support.tir_devices import DEFINITIONS, device_funcs
from tests._support.tir_devices import C as TOY

from uma.tir.form.nodes import Alloc, Buffer, Copy, Exec, For, If, PrimFunc, Queue, Seq, Stmt, Wait, seq
from uma.tir.form.text import parse_machine
from uma.tir.form.visit import buffers_read, buffers_written, child_statements, operands, rebuild, views

Draw = Any

_ROWS = "{device}, {queue}, {to}, {from}, {row_bytes}, {rows}, {to_stride}, {from_stride}"
_ROW = "{device}, {queue}, {to}, {from}, {row_bytes}"


def _with_starts() -> str:
    lines = DEFINITIONS.replace("\\\n", "").split("\n")
    spad = f'start_in="toy_start_in({_ROWS})", start_out="toy_start_out({_ROWS})")'
    acc = f'start_in="toy_start_acc_in({_ROW})", start_out="toy_start_acc_out({_ROW})")'
    starts = {"spad = ": spad, "acc = ": acc}
    ends = [next((text for start, text in starts.items() if line.startswith(start)), None) for line in lines]
    lines = [line if end is None else f"{line[:-1]}, {end}" for line, end in zip(lines, ends, strict=True)]
    instruction = r'"toy_(add|mac|sum)\({device}, (.*)\)"'
    lines = [re.sub(instruction, r'\g<0>, start="toy_start_\1({device}, {queue}, \2)"', line) for line in lines]
    queues = 'dma = queue("toy_wait({device}, 0, {pending})")\nbus = queue("toy_wait({device}, 1, {pending})", 1)'
    return f"{queues}\n" + "\n".join(lines)


QUEUED = _with_starts()


MACHINE = parse_machine(QUEUED)
DMA, BUS = QUEUES = MACHINE.queues
SPAD, ACC = MEMORIES = MACHINE.memories

C = (
    TOY
    + """
/* Works when somebody waits for it, or needs the room, and no sooner; TOY_EAGER works at once. */
typedef struct toy_work {
    enum { TOY_MOVE, TOY_ADD, TOY_MAC, TOY_SUM } what;
    unsigned char *to;
    const unsigned char *from;
    int32_t *sum;
    int32_t n[12];
} toy_work;
static toy_work toy_works[2][16];
static int32_t toy_first[2], toy_count[2];

TOY toy_perform(uma_device *device, const toy_work *w)
{
    const int32_t *n = w->n;
    switch (w->what) {
    case TOY_ADD: return toy_add(device, (uint32_t)n[0], n[1], (uint32_t)n[2], n[3], (uint32_t)n[4], n[5], n[6]);
    case TOY_MAC:
        return toy_mac(device, (uint32_t)n[0], n[1], n[2], (uint32_t)n[3], n[4], n[5], (uint32_t)n[6], n[7], n[8], n[9],
                       n[10], n[11]);
    case TOY_SUM: return toy_sum(device, w->sum, (uint32_t)n[0], n[1], n[2]);
    default: return toy_move(w->to, w->from, n[0], n[1], n[2], n[3]);
    }
}

TOY toy_wait(uma_device *device, int32_t queue, int32_t pending)
{
    if (device == NULL || pending < 0) return 91;
    while (toy_count[queue] > pending) {
        int32_t status = toy_perform(device, &toy_works[queue][toy_first[queue]]);
        if (status != 0) return status;
        toy_first[queue] = (toy_first[queue] + 1) % 16;
        toy_count[queue]--;
    }
    return 0;
}

TOY toy_put(uma_device *device, int32_t queue, toy_work work)
{
    int32_t status = toy_wait(device, queue, 15);
    if (status != 0) return status;
    toy_works[queue][(toy_first[queue] + toy_count[queue]) % 16] = work;
    toy_count[queue]++;
#ifdef TOY_EAGER
    return toy_wait(device, queue, 0);
#else
    return 0;
#endif
}

TOY toy_start(uma_device *device, int32_t queue, unsigned char *to, const unsigned char *from, int32_t row_bytes,
              int32_t rows, int32_t to_stride, int32_t from_stride)
{
    toy_work work = {TOY_MOVE, to, from, NULL, {row_bytes, rows, to_stride, from_stride}};
    return toy_put(device, queue, work);
}

TOY toy_start_add(uma_device *device, int32_t queue, uint32_t out, int32_t out_step, uint32_t a, int32_t a_step,
                  uint32_t b, int32_t b_step, int32_t n)
{
    toy_work work = {TOY_ADD, NULL, NULL, NULL, {(int32_t)out, out_step, (int32_t)a, a_step, (int32_t)b, b_step, n}};
    return toy_put(device, queue, work);
}

TOY toy_start_mac(uma_device *device, int32_t queue, uint32_t out, int32_t out_row, int32_t out_column, uint32_t a,
                  int32_t a_row, int32_t a_column, uint32_t b, int32_t b_row, int32_t b_column, int32_t m, int32_t n,
                  int32_t k)
{
    toy_work work = {TOY_MAC, NULL, NULL, NULL, {0}};
    const int32_t numbers[] = {(int32_t)out, out_row, out_column, (int32_t)a, a_row, a_column,
                               (int32_t)b,   b_row,   b_column,   m,          n,     k};
    memcpy(work.n, numbers, sizeof numbers);
    return toy_put(device, queue, work);
}

TOY toy_start_sum(uma_device *device, int32_t queue, int32_t *out, uint32_t a, int32_t a_step, int32_t n)
{
    toy_work work = {TOY_SUM, NULL, NULL, out, {(int32_t)a, a_step, n}};
    return toy_put(device, queue, work);
}

TOY toy_start_in(uma_device *device, int32_t queue, uint32_t to, const void *from, int32_t row_bytes, int32_t rows,
                 int32_t to_stride, int32_t from_stride)
{
    if (toy_outside(to, row_bytes, rows, to_stride, sizeof toy_spad)) return 1;
    return toy_start(device, queue, toy_spad + to, from, row_bytes, rows, to_stride, from_stride);
}

TOY toy_start_out(uma_device *device, int32_t queue, void *to, uint32_t from, int32_t row_bytes, int32_t rows,
                  int32_t to_stride, int32_t from_stride)
{
    if (toy_outside(from, row_bytes, rows, from_stride, sizeof toy_spad)) return 2;
    return toy_start(device, queue, to, toy_spad + from, row_bytes, rows, to_stride, from_stride);
}

TOY toy_start_acc_in(uma_device *device, int32_t queue, uint32_t to, const void *from, int32_t row_bytes)
{
    if (toy_outside(to, row_bytes, 1, 0, sizeof toy_acc) || to % 4 != 0) return 3;
    return toy_start(device, queue, toy_acc + to, from, row_bytes, 1, 0, 0);
}

TOY toy_start_acc_out(uma_device *device, int32_t queue, void *to, uint32_t from, int32_t row_bytes)
{
    if (toy_outside(from, row_bytes, 1, 0, sizeof toy_acc) || from % 4 != 0) return 4;
    return toy_start(device, queue, to, toy_acc + from, row_bytes, 1, 0, 0);
}
"""
)
"""The accelerator for C programs: one, in static memory."""


def pipelined(tiles: int, depth: int) -> str:
    """The text of a function that doubles ``tiles`` rows, of which ``depth`` are on their way in, and as many out.

    Every wait in it is needed where ``2 <= depth < tiles``.
    """
    ahead = depth - 1
    return f"""{QUEUED}
@prim_func
def f(x: In[int8, ({tiles}, 8)], y: Out[int8, ({tiles}, 8)]):
    memories(spad)
    queues(dma, bus)
    t = alloc(int8, ({depth}, 8), scope("spad"))
    r = alloc(int8, ({depth}, 8), scope("spad"))
    for p in range({ahead}):
        copy(view(t[p, 0], axis(1)), view(x[p, 0], axis(1)), (8,), dma)
    for i in range({tiles}):
        if i < {tiles - ahead}:
            copy(view(t[(i + {ahead}) % {depth}, 0], axis(1)), view(x[i + {ahead}, 0], axis(1)), (8,), dma)
            wait(dma, {ahead})
        else:
            wait(dma)
        if i >= {depth}:
            wait(bus, {ahead})
        add(view(t[i % {depth}, 0], axis(1)), view(t[i % {depth}, 0], axis(1)), view(r[i % {depth}, 0], axis(1)), 8)
        copy(view(y[i, 0], axis(1)), view(r[i % {depth}, 0], axis(1)), (8,), bus)
    wait(bus)
"""


# What waits do to a function


def blocking(func: PrimFunc) -> PrimFunc:
    """``func`` with copies and executions that end where they are started."""

    def changed(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Wait):
            return seq()
        if isinstance(stmt, Copy):
            return Copy(stmt.to, stmt.source, stmt.shape)
        if isinstance(stmt, Exec):
            return Exec(stmt.intrinsic, stmt.args, stmt.values)
        return rebuild(stmt, operands(stmt), [changed(inner) for inner in child_statements(stmt)])

    return replace(func, body=changed(func.body), queues=())


def count_waits(stmt: Stmt) -> int:
    """How many waits the text of ``stmt`` has."""
    return isinstance(stmt, Wait) + sum(count_waits(inner) for inner in child_statements(stmt))


def with_wait(func: PrimFunc, number: int, change: Callable[[Wait], Stmt]) -> PrimFunc:
    """``func`` with one of its waits changed, counted in the order of the text."""
    left = [number]

    def changed(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Wait):
            left[0] -= 1
            return change(stmt) if left[0] == -1 else stmt
        return rebuild(stmt, operands(stmt), [changed(inner) for inner in child_statements(stmt)])

    return replace(func, body=changed(func.body))


# Random functions


@st.composite
def queued_funcs(draw: Draw) -> PrimFunc:
    """A function of `device_funcs` with some copies and executions on queues, and waits at random places that do."""
    func = draw(device_funcs())
    placer = _Placer(draw)
    body = seq(placer.stmt(func.body), *placer.settle(lambda _: True))
    return replace(func, body=body, memories=MEMORIES, queues=QUEUES)


@dataclass(frozen=True)
class _Started:
    """A copy or execution in flight, and how many loops and conditions are around its start."""

    stmt: Copy | Exec
    level: int


class _Placer:
    """Starts copies and executions, and waits for them.

    `flying` is what may be in flight at a place, in order: what is in flight is among the last of these.
    """

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.level = 0
        self.flying: dict[Queue, list[_Started]] = {queue: [] for queue in QUEUES}

    def settle(self, matters: Callable[[_Started], bool]) -> list[Stmt]:
        """Waits for all that matter, and perhaps for more."""
        waits: list[Stmt] = []
        for queue, flying in self.flying.items():
            needed = [position for position, started in enumerate(flying) if matters(started)]
            most = len(flying) - 1 - needed[-1] if needed else len(flying)
            if needed or (flying and self.draw(st.integers(0, 15)) == 0):
                pending = self.draw(st.sampled_from([most, most, self.draw(st.integers(0, most))]))
                waits.append(Wait(queue, pending))
                del flying[: len(flying) - pending]
        return waits

    def settle_for(self, read: Iterable[Buffer], written: Iterable[Buffer]) -> list[Stmt]:
        """Waits for what uses these buffers in another way."""
        used, changed = {*read, *written}, {*written}

        def matters(started: _Started) -> bool:
            return bool(used & {*buffers_written(started.stmt)} or changed & {*buffers_read(started.stmt)})

        return self.settle(matters)

    def stmt(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Seq):
            return seq(*[self.stmt(inner) for inner in stmt.stmts])
        if not child_statements(stmt) or (isinstance(stmt, For) and stmt.kind == "parallel"):
            return self.leaf(stmt)
        before = self.settle_for([b for expr in operands(stmt) for b in buffers_read(expr)], ())
        if isinstance(stmt, (For, If)):
            inside = self.branches(stmt)
        else:
            inside = [self.stmt(child_statements(stmt)[0])]
        if isinstance(stmt, Alloc):
            gone = stmt.buffer
            inside += self.settle(lambda started: gone in (view.buffer for view in views(started.stmt)))
            inside = [seq(*inside)]
        return seq(*before, rebuild(stmt, operands(stmt), inside))

    def leaf(self, stmt: Stmt) -> Stmt:
        before = self.settle_for(buffers_read(stmt), buffers_written(stmt))
        device = isinstance(stmt, (Copy, Exec)) and {view.buffer.scope for view in views(stmt)} & {"spad", "acc"}
        if isinstance(stmt, (Copy, Exec)) and device:
            queue = self.draw(st.sampled_from([None, DMA, DMA, DMA, BUS]))
            if isinstance(stmt, Exec):
                stmt = Exec(MACHINE.intrinsic(stmt.intrinsic.name), stmt.args, stmt.values, queue)
            if queue is not None:
                if isinstance(stmt, Copy):
                    stmt = Copy(stmt.to, stmt.source, stmt.shape, queue)
                self.flying[queue].append(_Started(stmt, self.level))
        return seq(*before, stmt)

    def branches(self, stmt: For | If) -> list[Stmt]:
        """What may not be executed, or more than once: what is started in it ends in it, and what is waited for in it
        may still be in flight after it."""
        at_entry, inside = self.flying, []
        self.level += 1
        for body in child_statements(stmt):
            self.flying = {queue: list(flying) for queue, flying in at_entry.items()}
            inner = self.stmt(body)
            inside.append(seq(inner, *self.settle(lambda started: started.level >= self.level)))
        self.level -= 1
        self.flying = at_entry
        return inside
