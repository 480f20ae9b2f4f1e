"""Whole kernels as schedules make them: they compute what the plain loops do, in the form that is wanted."""

from __future__ import annotations

from tests._support.schedules import agree, parsed

from uma.tir import Buffer, Exec, For, Intrinsic, PrimFunc, Update, Var, const, walk
from uma.tir.schedule import Schedule, VectorUnit

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
