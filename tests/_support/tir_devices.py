"""A small accelerator for tests of the loop form: memories, intrinsics, their C, and random functions that use them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from tests._support.tir_strategies import Scope, expressions, fill, statements

from uma.tir.form.nodes import (
    Alloc,
    Axis,
    Block,
    Buffer,
    Copy,
    Exec,
    Expr,
    For,
    If,
    Memory,
    Param,
    PrimFunc,
    Stmt,
    Var,
    View,
    const,
    maximum,
    minimum,
    seq,
)
from uma.tir.form.text import parse_machine

Draw = Any

_ROWS = "{device}, {to}, {from}, {row_bytes}, {rows}, {to_stride}, {from_stride}"

DEFINITIONS = f"""
spad = memory(4096, align(8), copy_in="toy_in({_ROWS})", copy_out="toy_out({_ROWS})")
acc = memory(2048, align(4), copy_in="toy_acc_in({{device}}, {{to}}, {{from}}, {{row_bytes}})", \\
copy_out="toy_acc_out({{device}}, {{to}}, {{from}}, {{row_bytes}})")

@intrinsic("toy_add({{device}}, {{out}}, {{out_stride0}}, {{a}}, {{a_stride0}}, {{b}}, {{b_stride0}}, {{n}})")
def add(a: Operand[int8, (8,), scope("spad")], b: Operand[int8, (8,), scope("spad")],
        out: Operand[int8, (8,), scope("spad")], n: int32):
    for i in range(n):
        out[i] = a[i] + b[i]

@intrinsic("toy_mac({{device}}, {{out}}, {{out_stride0}}, {{out_stride1}}, {{a}}, {{a_stride0}}, {{a_stride1}}, \\
{{b}}, {{b_stride0}}, {{b_stride1}}, {{m}}, {{n}}, {{k}})")
def mac(a: Operand[int8, (4, 4), scope("spad")], b: Operand[int8, (4, 4), scope("spad")],
        out: Operand[int32, (4, 4), scope("acc")], m: int32, n: int32, k: int32):
    for i in range(m):
        for j in range(n):
            total = alloc(int32, ())
            total[()] = 0
            for l in range(k):
                total[()] += int32(a[i, l]) * int32(b[l, j])
            out[i, j] += total[()]

@intrinsic("toy_sum({{device}}, {{out}}, {{a}}, {{a_stride0}}, {{n}})")
def sum(out: Operand[int32, ()], a: Operand[int32, (16,), scope("acc")], n: int32):
    out[()] = 0
    for i in range(n):
        out[()] += a[i]
"""


MACHINE = parse_machine(DEFINITIONS)
SPAD, ACC = MEMORIES = MACHINE.memories
ADD, MAC, SUM = MACHINE.intrinsics

C = """\
#include "uma_device.h"

/* Traps what hardware would get wrong: addresses outside a memory, and misaligned words. */
static unsigned char toy_spad[4096], toy_acc[2048];
static int32_t toy_executed;

static int32_t toy_move(unsigned char *to, const unsigned char *from, int32_t row_bytes, int32_t rows,
                        int32_t to_stride, int32_t from_stride)
{
    int32_t row;
    if (rows <= 0 || row_bytes <= 0) return 90;
    for (row = 0; row < rows; row++) memcpy(to + row * to_stride, from + row * from_stride, (size_t)row_bytes);
    return 0;
}

static int toy_outside(uint32_t address, int32_t row_bytes, int32_t rows, int32_t stride, size_t size)
{
    return rows <= 0 || stride < 0 || address + (size_t)(rows - 1) * (size_t)stride + (size_t)row_bytes > size;
}

#define TOY __attribute__((unused)) static int32_t
TOY toy_in(uma_device *device, uint32_t to, const void *from, int32_t row_bytes, int32_t rows,
                             int32_t to_stride, int32_t from_stride)
{
    if (device == NULL) return 91;
    if (toy_outside(to, row_bytes, rows, to_stride, sizeof toy_spad)) return 1;
    return toy_move(toy_spad + to, from, row_bytes, rows, to_stride, from_stride);
}

TOY toy_out(uma_device *device, void *to, uint32_t from, int32_t row_bytes, int32_t rows,
                              int32_t to_stride, int32_t from_stride)
{
    if (device == NULL) return 91;
    if (toy_outside(from, row_bytes, rows, from_stride, sizeof toy_spad)) return 2;
    return toy_move(to, toy_spad + from, row_bytes, rows, to_stride, from_stride);
}

TOY toy_acc_in(uma_device *device, uint32_t to, const void *from, int32_t row_bytes)
{
    if (device == NULL) return 91;
    if (toy_outside(to, row_bytes, 1, 0, sizeof toy_acc) || to % 4 != 0) return 3;
    return toy_move(toy_acc + to, from, row_bytes, 1, 0, 0);
}

TOY toy_acc_out(uma_device *device, void *to, uint32_t from, int32_t row_bytes)
{
    if (device == NULL) return 91;
    if (toy_outside(from, row_bytes, 1, 0, sizeof toy_acc) || from % 4 != 0) return 4;
    return toy_move(to, toy_acc + from, row_bytes, 1, 0, 0);
}

TOY toy_add(uma_device *device, uint32_t out, int32_t out_step, uint32_t a, int32_t a_step,
                              uint32_t b, int32_t b_step, int32_t n)
{
    int32_t i;
    toy_executed++;
    if (device == NULL || n < 0 || n > 8) return 5;
    for (i = 0; i < n; i++) {
        toy_spad[out + i * out_step] = (unsigned char)(toy_spad[a + i * a_step] + toy_spad[b + i * b_step]);
    }
    return 0;
}

TOY toy_mac(uma_device *device, uint32_t out, int32_t out_row, int32_t out_column, uint32_t a,
                              int32_t a_row, int32_t a_column, uint32_t b, int32_t b_row, int32_t b_column, int32_t m,
                              int32_t n, int32_t k)
{
    int32_t i, j, l;
    toy_executed++;
    if (device == NULL || out % 4 != 0) return 6;
    for (i = 0; i < m; i++) {
        for (j = 0; j < n; j++) {
            uint32_t total;
            memcpy(&total, toy_acc + out + i * out_row + j * out_column, sizeof total);
            for (l = 0; l < k; l++) {
                total += (uint32_t)((int32_t)(int8_t)toy_spad[a + i * a_row + l * a_column] *
                                    (int32_t)(int8_t)toy_spad[b + l * b_row + j * b_column]);
            }
            memcpy(toy_acc + out + i * out_row + j * out_column, &total, sizeof total);
        }
    }
    return 0;
}

TOY toy_sum(uma_device *device, int32_t *out, uint32_t a, int32_t a_step, int32_t n)
{
    int32_t i;
    uint32_t total = 0;
    toy_executed++;
    if (device == NULL) return 7;
    for (i = 0; i < n; i++) {
        int32_t value;
        memcpy(&value, toy_acc + a + i * a_step, sizeof value);
        total += (uint32_t)value;
    }
    *out = (int32_t)total;
    return 0;
}
"""
"""The accelerator for C programs: one, in static memory."""

# Random functions


@dataclass
class Device:
    """What statements may use besides their `Scope`.

    Args:
        tiles: buffers in the accelerator's memories, all elements of which are written.
        host: buffers of the host that may be copied from.
        targets: buffers of the host that may be copied to.
    """

    tiles: tuple[Buffer, ...]
    host: tuple[Buffer, ...]
    targets: tuple[Buffer, ...]


@st.composite
def device_funcs(draw: Draw, depth: int = 3) -> PrimFunc:
    """A function with copies and intrinsics that never faults; every output is written in full."""
    scope = Scope(dtypes=("int8", "int32", "bool"))

    def made(prefix: str, dtype: str) -> Buffer:
        shape = draw(st.sampled_from([(5, 6), (30,), (2, 3, 5), (1, 8, 4), (6, 5)]))
        return Buffer(scope.fresh(prefix), shape, dtype, alignment=draw(st.sampled_from([0, 0, 16])))

    inputs, outputs, workspaces = [[made(prefix, dtype) for dtype in ("int8", "int32")] for prefix in "xys"]
    scope = replace(scope, readable=tuple(inputs))
    body = []
    for buffer in (*outputs, *workspaces):
        body.append(draw(fill(buffer, scope)))
        scope = scope.with_buffer(buffer)
    device = Device((), (*inputs, *outputs, *workspaces), (*outputs, *workspaces))
    tiles = [(SPAD, (4, 4)), (SPAD, (2, 8)), (ACC, (4, 4))]
    body.append(draw(_tiles(scope, device, tiles[: draw(st.integers(0, 3))], depth)))
    roles = [(inputs, "input"), (outputs, "output"), (workspaces, "workspace")]
    params = tuple(Param(buffer, role) for group, role in roles for buffer in group)  # type: ignore[arg-type]  # roles, as they are spelt
    return PrimFunc(params, seq(*body), (), MEMORIES)


@st.composite
def device_statements(draw: Draw, scope: Scope, device: Device, depth: int) -> Stmt:
    """Statements of the host and of the accelerator."""
    stmts = [draw(_statement(scope, device, depth)) for _ in range(draw(st.integers(1, 3)))]
    return seq(*stmts)


@st.composite
def _statement(draw: Draw, scope: Scope, device: Device, depth: int) -> Stmt:
    kinds = ["host", "copy"]
    if device.tiles:
        kinds += ["store", "load", *["exec"] * 4]
    if depth > 0:
        kinds += ["tile", "tile", "for", "if", "block"]
    kind = draw(st.sampled_from(kinds))
    if kind == "host":
        return draw(statements(scope, 1))
    if kind == "copy":
        to = draw(st.sampled_from(device.targets))
        return draw(
            _copy(scope, to, draw(st.sampled_from([b for b in device.host if b.dtype == to.dtype and b is not to])))
        )
    if kind in ("store", "load"):
        tile = draw(st.sampled_from(device.tiles))
        others = [b for b in (device.targets if kind == "store" else device.host) if b.dtype == tile.dtype]
        other = draw(st.sampled_from(others))
        return draw(_copy(scope, other, tile) if kind == "store" else _copy(scope, tile, other))
    if kind == "exec":
        return draw(_exec(scope, device))
    inner = depth - 1
    if kind == "tile":
        memory = draw(st.sampled_from([SPAD, SPAD, ACC]))
        shape = draw(st.sampled_from([(4, 4), (16,), (2, 8), (2, 2, 4), ()]))
        return draw(_tiles(scope, device, [(memory, shape)], inner))
    if kind == "if":
        condition = draw(expressions("bool", scope, 2))
        otherwise = draw(st.none() | device_statements(scope, device, inner))
        return If(condition, draw(device_statements(scope, device, inner)), otherwise)
    if kind == "block":
        return Block(scope.fresh("b"), draw(device_statements(scope, device, inner)))
    var = Var(scope.fresh("i"))
    extent = draw(st.one_of(st.integers(0, 3).map(const), expressions("int32", scope, 1).map(lambda e: minimum(e, 3))))
    body = draw(device_statements(scope.with_var(var), device, inner))
    return For(var, extent, body, draw(st.sampled_from(["serial", "unrolled"])))


@st.composite
def _tiles(draw: Draw, scope: Scope, device: Device, tiles: list[tuple[Memory, tuple[int, ...]]], depth: int) -> Stmt:
    """Statements within the scope of buffers in an accelerator's memory, each written in full by a copy."""
    if not tiles:
        return draw(device_statements(scope, device, depth))
    (memory, shape), *others = tiles
    tile = Buffer(scope.fresh("t"), shape, "int32" if memory is ACC else "int8", memory.name)
    source = draw(st.sampled_from([b for b in device.host if b.dtype == tile.dtype]))
    to = View(tile, (const(0),) * len(shape), tuple(Axis(dim) for dim in range(len(shape))))
    # Where the source has no room for an axis, it is shown again and again.
    extents, axes, start = list(shape), [], [0] * len(source.shape)
    for extent in extents:
        dims = [d for d, size in enumerate(source.shape) if size - start[d] >= extent]
        dim = draw(st.sampled_from(dims)) if dims else 0
        axes.append(Axis(dim, 1 if dims else 0))
        start[dim] += extent - 1 if dims else 0
    first = tuple(draw(_index(scope, size - span)) for size, span in zip(source.shape, start, strict=True))
    copy = Copy(to, View(source, first, tuple(axes)), tuple(const(extent) for extent in extents))
    body = draw(_tiles(scope, replace(device, tiles=(*device.tiles, tile)), others, depth))
    return Alloc(tile, seq(copy, body))


@st.composite
def _index(draw: Draw, scope: Scope, end: int) -> Expr:
    """A number from 0 to ``end`` - 1."""
    free = draw(expressions("int32", scope, 2))
    return free % end if draw(st.booleans()) else minimum(maximum(free, 0), end - 1)


@st.composite
def _view(draw: Draw, scope: Scope, buffer: Buffer, extents: tuple[int, ...], repeats: bool) -> View | None:
    """A view of ``buffer`` with room for ``extents``, each along a dimension of its own, if there is one."""
    free = list(range(len(buffer.shape)))
    spans = [0] * len(buffer.shape)
    axes = []
    for extent in extents:
        dims = [d for d in free if buffer.shape[d] >= extent]
        if repeats and buffer.shape and (not dims or draw(st.integers(0, 4)) == 0):
            axes.append(Axis(0, 0))
            continue
        if not dims:
            return None
        dim = draw(st.sampled_from(dims))
        free.remove(dim)
        step = draw(st.integers(1, max(1, (buffer.shape[dim] - 1) // max(1, extent - 1)))) if extent > 1 else 1
        spans[dim] = step * (extent - 1)
        axes.append(Axis(dim, step))
    start = tuple([draw(_index(scope, size - span)) for size, span in zip(buffer.shape, spans, strict=True)])
    return View(buffer, start, tuple(axes))


@st.composite
def _copy(draw: Draw, scope: Scope, to: Buffer, source: Buffer) -> Stmt:
    rank = min(draw(st.sampled_from([0, 1, 2, 2, 3])), len(to.shape))
    extents = tuple([draw(st.integers(1, 5)) for _ in range(rank)])
    into, out_of = draw(_view(scope, to, extents, False)), draw(_view(scope, source, extents, True))
    if into is None or out_of is None:
        return seq()
    sizes = tuple([const(n) if draw(st.booleans()) else draw(_index(scope, n + 1)) for n in extents])
    return Copy(into, out_of, sizes)


@st.composite
def _exec(draw: Draw, scope: Scope, device: Device) -> Stmt:
    intrinsic = draw(st.sampled_from([ADD, MAC, SUM]))
    sizes = {var.name: draw(st.integers(0, 4)) for var in intrinsic.vars}
    extents = {
        ADD: dict.fromkeys(("a", "b", "out"), ("n",)),
        MAC: {"a": ("m", "k"), "b": ("k", "n"), "out": ("m", "n")},
        SUM: {"out": (), "a": ("n",)},
    }[intrinsic]
    views = []
    for param in intrinsic.params:
        pool = device.targets if param.scope == "global" else device.tiles
        fitting = [b for b in pool if b.dtype == param.dtype and param.scope in (b.scope, "global")]
        if not fitting:
            return seq()
        shape = tuple(max(1, sizes[name]) for name in extents[param.name])
        view = draw(_view(scope, draw(st.sampled_from(fitting)), shape, False))
        if view is None:
            return seq()
        views.append(view)
    values = [const(n) if draw(st.booleans()) else draw(_index(scope, n + 1)) for n in sizes.values()]
    return Exec(intrinsic, tuple(views), tuple(values))
