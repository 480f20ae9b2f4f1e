"""Whole kernels as schedules make them: they compute what the plain loops do, in the form that is wanted."""

from __future__ import annotations

import pytest
from tests._support.schedules import agree, parsed

from uma.tir import Alloc, Buffer, Copy, Exec, For, Intrinsic, PrimFunc, Update, Var, const, parse_machine, walk
from uma.tir.schedule import Schedule, VectorUnit, replay
from uma.tir.schedule.schedule import _MADE

LANES = 8


def dot4() -> Intrinsic:
    """Four products of bytes added to each lane."""
    acc = Buffer("acc", (LANES,), "int32", "register")
    a, w = Buffer("a", (4,), "uint8"), Buffer("w", (LANES, 4), "int8")
    lane, b = Var("lane"), Var("b")
    step = Update("add", acc, (lane,), a[b].astype("int32") * w[lane, b].astype("int32"))
    body = For(lane, const(LANES), For(b, const(4), step))
    return Intrinsic("dot4", (acc, a, w), (), body, statement="{acc} = dot4({acc}, {a}, {w})", include="dot.h")


CONV = parsed("""
    def f(
        x: In[int8, (2, 5, 2)], y: Out[int8, (2, 5, 12)],
        w: Const[int8, (1, 3, 2, 16, 4)], bias: Const[int32, (16,)],
        copy: Workspace[uint8, (4, 7, 3)], acc: Workspace[int32, (2, 5, 16)],
    ):
        with block("pad"):
            for p in range(4):
                for q in range(7):
                    for r in range(3):
                        copy[p, q, r] = (
                            uint8(int32(x[p - 1, q - 1, r]) + 128)
                            if p >= 1 and p < 3 and q >= 1 and q < 6 and r < 2 else 128
                        )
        with block("conv"):
            for i in range(2):
                for j in range(5):
                    for o in range(16):
                        acc[i, j, o] = bias[o]
                        for ky in range(3):
                            for kx in range(2):
                                for c in range(4):
                                    k: int32 = kx * 4 + c
                                    acc[i, j, o] += int32(copy[i + ky, (j * 3 + k) // 3, (j * 3 + k) % 3]) * int32(
                                        w[o // 16, ky, k // 4, o % 16, k % 4]
                                    )
        with block("requantise"):
            for a in range(2):
                for b in range(5):
                    for n in range(12):
                        y[a, b, n] = int8(min(max((acc[a, b, n] + 8) >> 6, -128), 127))
""")


def executions(func: PrimFunc) -> int:
    return sum(isinstance(part, Exec) for part in walk(func.body))


def test_an_int8_convolution_in_register_tiles() -> None:
    """Tiles of 3 pixels by 2 vectors of 8 channels; 12 of 16 channels are wanted; 2 pixels are left over. A run of
    kernel columns by channels goes across the dimensions of the padded copy."""
    s = Schedule(CONV, VectorUnit(32, 16))
    i, j, o, ky, kx, c = s.loops("conv")
    r = s.fuse(kx, c)
    ro, _ = s.split(r, 4)
    oo, within = s.split(o, 16)
    v, lane = s.split(within, LANES)
    jo, ji = s.split(j, 3, tail="peel")
    s.reorder(oo, i, jo, ji, v, lane)
    init = s.decompose_reduction("conv", ji)
    s.reorder(ky, ro, ji, v, lane, f"{r.name}_i")
    s.reverse_compute_at("requantise", jo)
    *_, b, n = s.loops("requantise")
    nv, nlane = s.split(n, LANES, tail="peel")
    acc = s.cache_write("conv", "acc", "register", at=jo)
    assert acc.shape == (3, 2, LANES)
    s.tensorize(lane, dot4())
    for loop in (ji, v, *s.loops(init)[-3:-1], b):
        s.unroll(loop)
    s.vectorize(s.loops(init)[-1])
    s.vectorize(nlane)
    s.unroll(nv)
    made = s.func
    agree(CONV, made)
    assert executions(made) == 2  # in the tile, and in that of what is left over
    assert [param.buffer.shape for param in made.params] == [(2, 5, 2), (2, 5, 12), (1, 3, 2, 16, 4), (16,), (84,)]


FLOAT_CONV = parsed("""
    def f(
        x: In[float32, (5, 6, 3)], y: Out[float32, (3, 4, 8)],
        w: Const[float32, (3, 3, 3, 8)], bias: Const[float32, (8,)],
    ):
        acc = alloc(float32, (3, 4, 8))
        with block("conv"):
            for i in range(3):
                for j in range(4):
                    for o in range(8):
                        acc[i, j, o] = 0.0
                        for ky in range(3):
                            for kx in range(3):
                                for c in range(3):
                                    acc[i, j, o] = fma(x[i + ky, j + kx, c], w[ky, kx, c, o], acc[i, j, o])
        with block("relu"):
            for a in range(3):
                for b in range(4):
                    for n in range(8):
                        y[a, b, n] = max(acc[a, b, n] + bias[n], 0.0)
""")


def test_a_float_convolution_in_register_tiles() -> None:
    """Tiles of 3 pixels of a row by one vector of channels; sums that are rounded once are steps of a reduction."""
    s = Schedule(FLOAT_CONV, VectorUnit(32, 16))
    _, j, o, ky, kx, c = s.loops("conv")
    jo, ji = s.split(j, 3, tail="peel")
    init = s.decompose_reduction("conv", ji)
    s.reorder(ky, kx, c, ji, o)
    s.reverse_compute_at("relu", jo)
    acc = s.cache_write("conv", "acc", at=jo)
    assert (acc.shape, acc.scope) == ((3, 8), "register")
    for label, pixel, lane in (("conv", ji, o), (init, *s.loops(init)[-2:]), ("relu", *s.loops("relu")[-2:])):
        assert s.loops(label)[-1] == lane
        s.unroll(pixel)
        s.vectorize(lane)
    made = s.func
    agree(FLOAT_CONV, made)
    # The whole tile, and one of a pixel.
    assert [part.buffer.shape for part in walk(made.body) if isinstance(part, Alloc)] == [(3, 8), (3, 8)]


DEPTHWISE = parsed("""
    def f(x: In[int8, (5, 4, 11)], y: Out[int8, (3, 4, 11)], w: Const[int8, (3, 11)], bias: Const[int32, (11,)]):
        row = alloc(int32, (5, 4, 11))
        acc = alloc(int32, (3, 4, 11))
        with block("shift"):
            for p in range(5):
                for q in range(4):
                    for r in range(11):
                        row[p, q, r] = int32(x[p, q, r]) - 3
        with block("conv"):
            for i in range(3):
                for j in range(4):
                    for o in range(11):
                        acc[i, j, o] = bias[o]
                        for ky in range(3):
                            acc[i, j, o] += row[i + ky, j, o] * int32(w[ky, o])
        with block("requantise"):
            for a in range(3):
                for b in range(4):
                    for n in range(11):
                        y[a, b, n] = int8(min(max(acc[a, b, n] >> 3, -128), 127))
""")


@pytest.mark.parametrize("scope", ["local", "register"])
def test_a_depthwise_convolution_keeps_the_rows_that_the_next_one_needs(scope: str) -> None:
    """Columns and blocks of 4 channels outside, rows inside: each makes one new row of the window only."""
    s = Schedule(DEPTHWISE, VectorUnit(16, 16))
    i, j, o, ky = s.loops("conv")
    oo, lane = s.split(o, 4, tail="peel")
    s.reorder(oo, j, i, lane)
    init = s.decompose_reduction("conv", lane)
    s.reorder(ky, lane)
    s.reverse_compute_at("requantise", i)
    s.compute_at("shift", i)
    s.cache_write("conv", "acc", at=i)
    if scope == "register":
        s.set_scope("row", "register")
    rolling = s.rolling("row", i)
    assert rolling.shape == (3, 4) and rolling.scope == scope
    s.unroll(ky)
    for label in ("shift", "conv", init, "requantise"):
        s.vectorize(s.loops(label)[-1])
    made = s.func
    agree(DEPTHWISE, made)
    rows = [part.extent for part in walk(made.body) if isinstance(part, For) and part.var.name.startswith("p")]
    assert rows == [const(3)] * 2  # three rows at first, for both parts of the channels; then one at a time


@pytest.mark.parametrize("tail", ["peel", "shrink"])
def test_a_matrix_product_in_blocks_with_a_packed_panel(tail: str) -> None:
    """The columns of a block are copied side by side first; partial sums of two halves are added at last."""
    func = parsed("""
        def f(a: In[int32, (6, 8)], b: In[int32, (8, 10)], y: Out[int32, (6, 10)]):
            with block("mm"):
                for i in range(6):
                    for j in range(10):
                        y[i, j] = 0
                        for k in range(8):
                            y[i, j] += a[i, k] * b[k, j]
    """)
    s = Schedule(func)
    i, j, k = s.loops("mm")
    jo, ji = s.split(j, 4, tail=tail)  # type: ignore[arg-type]  # both are tails
    io, ii = s.split(i, 3)
    s.reorder(jo, io, ii, ji)
    s.decompose_reduction("mm", jo)
    ko, ki = s.split(k, 4)
    s.reorder(ko, ki, ii, ji)
    panel = s.cache_read("mm", "b", at=jo, layout=(1, 0))
    assert panel.shape == (4, 8)
    assert s.cache_write("mm", "y", at=io).shape in ((3, 4), (3, 4))
    parts = s.rfactor(ko)
    assert parts.shape == (2, 3, 4)
    s.parallel(ko)
    agree(func, s.func)


MACHINE = parse_machine("""
act = memory(
    4096,
    copy_in="load({to}, {from}, {row_bytes})",
    copy_out="store({to}, {from}, {row_bytes})",
    start_in="start_load({to}, {from}, {row_bytes})",
    start_out="start_store({to}, {from}, {row_bytes})",
)
wgt = memory(4096, copy_in="load_w({to}, {from}, {row_bytes})", start_in="start_w({to}, {from}, {row_bytes})")
sums = memory(4096, align(16))
dma = queue("wait({device}, {pending})")

@intrinsic("mac({device}, {acc}, {a}, {a_stride0}, {w}, {w_stride0}, {pixels}, {depth})")
def mac(
    acc: Operand[int32, (16, 4), align(16), scope("sums")],
    a: Operand[int8, (16, 64), scope("act")],
    w: Operand[int8, (64, 4), scope("wgt")],
    pixels: int32,
    depth: int32,
):
    for p in range(pixels):
        for k in range(depth):
            for n in range(4):
                acc[p, n] += int32(a[p, k]) * int32(w[k, n])

@intrinsic("clear({device}, {acc}, {pixels}, {value})")
def clear(acc: Operand[int32, (16, 4), align(16), scope("sums")], pixels: int32, value: int32):
    for p in range(pixels):
        for n in range(4):
            acc[p, n] = value

@intrinsic("requantise({device}, {out}, {acc}, {pixels}, {shift}, {mode})")
def requantise(
    out: Operand[int8, (16, 4), scope("act")],
    acc: Operand[int32, (16, 4), align(16), scope("sums")],
    pixels: int32,
    shift: int32,
    mode: int32,
):
    for p in range(pixels):
        for n in range(4):
            up: int32 = acc[p, n] + (1 << (shift - 1)) if mode == 1 else acc[p, n]
            out[p, n] = int8(min(max(up >> shift, -128), 127))
""")
DENSE = parsed("""
    def f(x: In[int8, (10, 6)], y: Out[int8, (10, 8)], w: Const[int8, (2, 6, 4)]):
        acc = alloc(int32, (10, 8))
        with block("dense"):
            for i in range(10):
                for o in range(8):
                    acc[i, o] = 5
                    for k in range(6):
                        acc[i, o] += int32(x[i, k]) * int32(w[o // 4, k, o % 4])
        with block("requantise"):
            for p in range(10):
                for q in range(8):
                    y[p, q] = int8(min(max((acc[p, q] + 4) >> 3, -128), 127))
""")


@pytest.mark.parametrize("queued", [False, True])
def test_an_accelerator_computes_while_its_scratchpads_are_filled(queued: bool) -> None:
    """Tiles of 4 rows, the last of which is smaller, through scratchpads in two halves."""
    s = Schedule(DENSE)
    i, o, k = s.loops("dense")
    io, ii = s.split(i, 4, tail="shrink")
    oo, oi = s.split(o, 4)
    s.reorder(oo, io, ii, oi)
    init = s.decompose_reduction("dense", ii)
    s.reorder(ii, k, oi)
    s.reverse_compute_at("requantise", io)
    act, wgt = (s.cache_read("dense", name, MACHINE.memory(to), at=io) for name, to in (("x", "act"), ("w", "wgt")))
    s.cache_write("dense", "acc", MACHINE.memory("sums"), at=io)
    out = s.cache_write("requantise", "y", MACHINE.memory("act"), at=io)
    s.tensorize(s.loops(init)[-2], MACHINE.intrinsic("clear"))
    s.tensorize(ii, MACHINE.intrinsic("mac"))
    s.tensorize(s.loops("requantise")[-2], MACHINE.intrinsic("requantise"), mode=1, shift=3)
    if queued:
        s.double_buffer([act, wgt, out], io, MACHINE.queue("dma"))
    made = s.func
    agree(DENSE, made)
    assert executions(made) == 3
    assert [part.queue is not None for part in walk(made.body) if isinstance(part, Copy)].count(queued) >= 3
    _MADE.clear()
    assert replay(DENSE, s.trace).func is made
    assert 's.tensorize("i_i", mac)' in str(s.trace)
