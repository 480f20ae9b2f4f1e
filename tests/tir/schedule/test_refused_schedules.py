"""What schedules refuse: each time the loop, the block or the buffer is named, and the reason given."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests._support.schedules import MATMUL, parsed

from uma.tir import PrimFunc
from uma.tir.schedule import Schedule, ScheduleError, Step, VectorUnit, replay

STAGES = parsed("""
    def f(x: In[int32, (4, 6)], y: Out[int32, (4, 6)], z: Out[int32, (4, 6)]):
        t = alloc(int32, (4, 6))
        u = alloc(int32, (4, 6))
        with block("first"):
            for a in range(4):
                for b in range(6):
                    t[a, b] = x[a, b] + 1
        with block("flip"):
            for c in range(4):
                for d in range(6):
                    u[c, d] = t[c, 5 - d] + t[c, d]
        with block("sum"):
            for i in range(4):
                for j in range(6):
                    y[i, j] = 0
                    for k in range(6):
                        y[i, j] += u[i, k] * j
        with block("down"):
            for p in range(4):
                for q in range(6):
                    z[p, q] = t[p, q] if p == 0 else z[p - 1, q]
""")
CHANGED = parsed("""
    def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
        t = alloc(int32, (4,))
        u = alloc(int32, (4,))
        with block("make"):
            for a in range(4):
                t[a] = x[a]
        with block("use"):
            for b in range(4):
                u[b] = t[b] * 2
        with block("change"):
            for c in range(4):
                t[c] = 7
        with block("last"):
            for d in range(4):
                y[d] = u[d] + t[d]
""")
ODD = parsed("""
    def f(x: In[int32, (5, 4)], y: Out[int32, (5, 4)]):
        t = alloc(int32, (12, 4))
        v = alloc(int32, (5,))
        with block("spread"):
            for a in range(5):
                for b in range(4):
                    t[a * 2, b] = x[a, b]
        with block("some"):
            for c in range(5):
                if c < 3:
                    v[c] = x[c, 0]
        with block("sum"):
            for i in range(5):
                for j in range(4):
                    y[i, j] = t[i * 2, j]
                    for k in range(5):
                        if k < i:
                            y[i, j] += x[k, j]
        with block("more"):
            for m in range(2):
                w = alloc(int32, ())
                w[()] = x[0, m]
                for n in range(3):
                    if y[m, 0] < 5:
                        for o in range(1):
                            y[n, o] += w[()]
""")
SOME = parsed("""
    def f(x: In[int32, (5,)], y: Out[int32, (2,)]):
        v = alloc(int32, (5,))
        with block("some"):
            for c in range(5):
                if c < 3:
                    v[c] = x[c]
        with block("use"):
            for i in range(2):
                y[i] = v[i]
""")

Case = tuple[PrimFunc, Callable[[Schedule], object], str]
CASES: dict[str, Case] = {
    "no loop": (MATMUL, lambda s: s.unroll("z"), "there is no loop 'z'"),
    "no block": (MATMUL, lambda s: s.loops("z"), "there is no block 'z'"),
    "no buffer": (MATMUL, lambda s: s.store_at("z", "i"), "there is no buffer 'z'"),
    "no scope": (MATMUL, lambda s: s.set_scope("t", "moon"), "there is no scope 'moon'"),
    # split, fuse
    "large factor": (MATMUL, lambda s: s.split("i", 2**31), "loop 'i' cannot be split by 2147483648"),
    "no primitive": (MATMUL, lambda s: replay(MATMUL, [Step("loops", ("sum",))]), "there is no primitive 'loops'"),
    "factor": (MATMUL, lambda s: s.split("i", 0), "loop 'i' cannot be split by 0"),
    "tail": (MATMUL, lambda s: s.split("i", 2, tail="crop"), "loop 'i' has no tail 'crop'"),  # type: ignore[arg-type]  # no such tail
    "marked": (MATMUL, lambda s: (s.unroll("k"), s.split("k", 2)), "loop 'k' is unrolled: it cannot be split any more"),
    "peeled": (
        MATMUL,
        lambda s: (s.split("i", 4, tail="peel"), s.split("i_o", 2)),
        "loop 'i_o' is peeled: it cannot be split any more",
    ),
    "pad what shrank": (
        MATMUL,
        lambda s: (s.split("i", 4), s.split("i_i", 2, tail="pad")),
        "loop 'i_i' has no constant extent",
    ),
    "part what shrank": (
        MATMUL,
        lambda s: (s.split("i", 4), s.part("i_i", 2)),
        "loop 'i_i' cannot be parted: its extent is not constant",
    ),
    "part beyond": (STAGES, lambda s: s.part("a", 4), "loop 'a' cannot be parted before iteration 4: it has 4"),
    "align an output": (
        STAGES,
        lambda s: s.align("y", 64),
        "'y' cannot be aligned to 64 bytes: it is an output, which",
    ),
    "align to 48": (STAGES, lambda s: s.align("t", 48), "'t' cannot be aligned to 48 bytes: it is to 4"),
    "pad an output": (STAGES, lambda s: s.split("i", 3, tail="pad"), "loop 'i' cannot be padded: `y[i, j] = 0` would"),
    "pad what is read": (STAGES, lambda s: s.split("a", 3, tail="pad"), "loop 'a' cannot be padded from 4 to 6"),
    "pad what reads a copy of its own": (
        STAGES,
        lambda s: (s.cache_read("flip", "t", at="d"), s.split("d", 4, tail="pad")),
        "loop 'd' cannot be padded from 6 to 8: `u[c, d] = t_local[5 - d] + t_local[d]` leaves 't_local'",
    ),
    "fuse apart": (MATMUL, lambda s: s.fuse("o", "k"), "loops 'o' and 'k' cannot be fused: the second is not directly"),
    "fuse what shrank": (
        MATMUL,
        lambda s: (s.split("i", 4), s.fuse("i_o", "i_i")),
        "loops 'i_o' and 'i_i' cannot be fused: the extent of the second is not constant",
    ),
    # reorder
    "twice": (MATMUL, lambda s: s.reorder("i", "i"), "loops 'i', 'i' cannot be reordered: one is named twice"),
    "two nests": (MATMUL, lambda s: s.reorder("i", "q"), "loops 'i', 'q' cannot be reordered: 'i' is not in one nest"),
    "beside": (MATMUL, lambda s: s.reorder("k", "o"), "loops 'k', 'o' cannot be reordered: a sequence of statements"),
    "room between": (
        parsed("""
            def f(x: In[int32, (2, 3)], y: Out[int32, (2, 3)]):
                for i in range(2):
                    t = alloc(int32, (3,))
                    for j in range(3):
                        t[j] = x[i, j]
                        y[i, j] = t[j]
        """),
        lambda s: s.reorder("j", "i"),
        "loops 'j', 'i' cannot be reordered: 't' is allocated between them",
    ),
    "asks between": (
        parsed("""
            def f(x: In[int32, (2, 3)], y: Out[int32, (2, 3)]):
                with block("copy"):
                    for a in range(2):
                        for b in range(3):
                            y[a, b] = x[a, b]
                for i in range(2):
                    if y[i, 0] > 0:
                        for j in range(3):
                            y[i, j] += 1
        """),
        lambda s: s.reorder("j", "i"),
        "loops 'j', 'i' cannot be reordered: `if y[i, 0] > 0:` between them asks for what they write",
    ),
    "extent": (
        MATMUL,
        lambda s: (s.split("i", 4), s.reorder("i_i", "i_o")),
        "loop 'i_i' cannot be put outside of 'i_o', on which its extent depends",
    ),
    "dependence": (
        parsed("""
            def f(x: In[int32, (4, 5)], y: Out[int32, (4, 5)]):
                for i in range(4):
                    for j in range(5):
                        y[i, j] = y[i - 1, j + 1] if i > 0 and j < 4 else x[i, j]
        """),
        lambda s: s.reorder("j", "i"),
        "loops 'j', 'i' cannot be put in that order: iterations of `y[i, j] =",
    ),
    # kinds
    "vectorize a sum": (MATMUL, lambda s: s.vectorize("k"), "loop 'k' cannot be vectorized: iterations of `t[i, o] +="),
    "parallel chain": (STAGES, lambda s: s.parallel("p"), "loop 'p' cannot be parallel: iterations of `z[p, q] ="),
    "vector of vectors": (
        STAGES,
        lambda s: (s.split("b", 2), s.vectorize("a"), s.vectorize("b_i"), s.func),
        "loop 'b_i' cannot be vectorized: it is within another one",
    ),
    "unroll what shrank": (
        MATMUL,
        lambda s: (s.split("i", 4), s.unroll("i_i"), s.func),
        "loop 'i_i' cannot be unrolled: its extent is not constant",
    ),
    "lanes": (STAGES, lambda s: (s.vectorize("a"), s.func), "vectorized loop 'a': an element of 't' may be written by"),
    # decompose_reduction, rfactor
    "nothing before": (STAGES, lambda s: s.decompose_reduction("first", "a"), "there is nothing before the reduction"),
    "another block": (
        STAGES,
        lambda s: s.decompose_reduction("sum", "a"),
        "the reduction of 'sum' cannot be decomposed",
    ),
    "room within": (ODD, lambda s: s.decompose_reduction("more", "m"), "'w', which is allocated within it, is used by"),
    "no update": (STAGES, lambda s: s.rfactor("a"), "loop 'a' cannot be factored: it has not one update"),
    "endless sum": (
        parsed("""
            def f(x: In[int32, (4,)], n: In[int32, ()], y: Out[int32, (1,)]):
                with block("sum"):
                    y[0] = 0
                    for k in range(n[()]):
                        y[0] += x[k % 4]
        """),
        lambda s: s.rfactor("k"),
        "loop 'k' cannot be factored: it has no constant bound",
    ),
    "uneven halves": (
        MATMUL,
        lambda s: s.rfactor("k", pairwise=True),
        "loop 'k' cannot be factored: its 5 parts cannot be summed up pairwise",
    ),
    # merge, peel
    "none merged": (MATMUL, lambda s: s.merge(), "loops  cannot be merged: it takes one or several"),
    "merged with itself": (MATMUL, lambda s: s.merge("i", "i"), "loops 'i', 'i' cannot be merged: it takes one or"),
    "merged with another extent": (
        MATMUL,
        lambda s: (s.split("i", 2), s.merge("i_o", "p")),
        "loops 'i_o', 'p' cannot be merged: 'p' has another extent than 'i_o'",
    ),
    "merged with other blocks": (
        MATMUL,
        lambda s: (s.split("i", 4, tail="peel"), s.split("p", 4), s.merge("i_o", "p_o")),
        "'p_o' is peeled elsewhere than 'i_o'",
    ),
    "merged from within": (
        MATMUL,
        lambda s: s.merge("o", "q"),
        "loops 'o', 'q' cannot be merged: they do not stand one after the other",
    ),
    "merged too deep": (
        MATMUL,
        lambda s: s.merge("i", "p", levels=3),
        "loops 'i', 'p' cannot be merged: there are not 3 loops directly within one another",
    ),
    "merged with what looks ahead": (
        parsed("""
            def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
                t = alloc(int32, (5,))
                with block("a"):
                    for i in range(4):
                        t[i + 1] = x[i]
                with block("b"):
                    for j in range(4):
                        y[j] = t[j + 1] + (t[j + 2] if j < 3 else 0)
        """),
        lambda s: s.merge("i", "j"),
        "meet in 't', the second in an earlier iteration than the first",
    ),
    "nothing to peel": (MATMUL, lambda s: s.peel("i"), "loop 'i' has no tail to be peeled"),
    # store_at
    "stored late": (
        MATMUL,
        lambda s: s.store_at("t", before="out"),
        "'t' cannot be stored before block 'out': it is used earlier",
    ),
    "stored nowhere": (MATMUL, lambda s: s.store_at("t", before="end"), "there is no block 'end' where buffers are"),
    "parameter stored": (MATMUL, lambda s: s.store_at("x"), "'x' is a parameter: it has no other place"),
    "nothing to read": (
        parsed("""
            def f(x: In[int32, (5,)], y: Out[int32, (5,)]):
                t = alloc(int32, (8,))
                u = alloc(int32, (5,))
                with block("a"):
                    for i in range(5):
                        t[i] = x[i]
                with block("b"):
                    for j in range(5):
                        u[j] = t[j] + 1
                with block("c"):
                    for k in range(5):
                        y[k] = u[k]
        """),
        lambda s: s.split("j", 4, tail="pad"),
        "loop 'j' cannot be padded from 5 to 8: `u[j] = t[j] + 1` would read elements of 't' that may have no value",
    ),
    "nothing to add to": (
        parsed("""
            def f(x: In[int32, (5,)], y: Out[int32, (5,)]):
                t = alloc(int32, (5,))
                with block("a"):
                    for i in range(5):
                        t[i] = 0
                with block("b"):
                    for j in range(5):
                        t[j] += x[j // 2]
                with block("c"):
                    for k in range(5):
                        y[k] = t[k]
        """),
        lambda s: s.split("j", 4, tail="pad"),
        "loop 'j' cannot be padded from 5 to 8: `t[j] += x[j // 2]` would read elements of 't' that may have no value",
    ),
    "spatial": (
        MATMUL,
        lambda s: (s.decompose_reduction("sum", "i"), s.reorder("k", "o"), s.rfactor("o")),
        "loop 'o' cannot be factored: its iterations do not add to one element",
    ),
    "guarded sum": (
        ODD,
        lambda s: (s.decompose_reduction("sum", "i"), s.rfactor("k")),
        "loop 'k' cannot be factored: what it adds to is not a whole box",
    ),
    # moves
    "reads nothing": (
        STAGES,
        lambda s: s.reverse_compute_at("down", "i"),
        "block 'down' cannot be computed at loop 'i'",
    ),
    "itself": (STAGES, lambda s: s.compute_at("first", "a"), "one is within the other"),
    "goes on": (MATMUL, lambda s: s.reverse_compute_at("out", "k"), "'t' is not done in one iteration of it: loop 'k'"),
    "no box": (SOME, lambda s: s.reverse_compute_at("use", "c"), "written of 'v' in one iteration is not a whole box"),
    "turned": (
        STAGES,
        lambda s: (s.split("b", 2), s.reverse_compute_at("flip", "b_o")),
        "`u[c, d] = t[c, 5 - d] + t[c, d]` does not read dimension 1 of 't' at one of its loops",
    ),
    "sums parts": (
        STAGES,
        lambda s: (s.split("d", 2), s.reverse_compute_at("sum", "d_o")),
        "writes an element in several iterations of the loops that would be parted",
    ),
    "not read everywhere": (
        parsed("""
            def f(x: In[int32, (5,)], y: Out[int32, (6,)]):
                t = alloc(int32, (5,))
                with block("a"):
                    for i in range(5):
                        t[i] = x[i]
                with block("b"):
                    for j in range(6):
                        y[j] = t[j - 1] if j > 0 else 7
        """),
        lambda s: s.reverse_compute_at("b", "i"),
        "`y[j] = t[j - 1] if j > 0 else 7` does not read 't' in all of its iterations, and would be left out there",
    ),
    "written elsewhere": (
        parsed("""
            def f(x: In[int32, (4,)], y: Out[int32, (2, 5)]):
                t = alloc(int32, (2, 5))
                with block("a"):
                    for i in range(2):
                        t[i, 0] = 7
                        for k in range(4):
                            t[i, k + 1] = x[k]
                with block("b"):
                    for m in range(2):
                        for n in range(5):
                            y[m, n] = t[m, n]
        """),
        lambda s: s.reverse_compute_at("b", "k"),
        "block 'b' cannot be computed at loop 'k': `t[i, 0] = 7`, outside of that loop, writes 't' too",
    ),
    "made later in the nest": (
        parsed("""
            def f(x: In[int32, (4,)], y: Out[int32, (2, 4)]):
                t = alloc(int32, (2, 4))
                u = alloc(int32, (2, 4))
                with block("a"):
                    for i in range(2):
                        for k in range(4):
                            t[i, k] = x[k]
                        for l in range(4):
                            u[i, l] = x[3 - l]
                with block("b"):
                    for m in range(2):
                        for n in range(4):
                            y[m, n] = t[m, n] + u[m, n]
        """),
        lambda s: s.reverse_compute_at("b", "k"),
        "block 'b' cannot be computed at loop 'k': `u[i, l] = x[3 - l]`, outside of that loop, writes 'u', "
        "which it reads, too",
    ),
    "in its own order": (
        parsed("""
            def f(x: In[int32, (5,)], y: Out[int32, (5,)]):
                t = alloc(int32, (5,))
                with block("a"):
                    for i in range(5):
                        t[4 - i] = x[i]
                with block("b"):
                    for j in range(5):
                        y[j] = t[j] + (y[j - 1] if j > 0 else 7)
        """),
        lambda s: s.reverse_compute_at("b", "i"),
        "meet in 'y', in different iterations of the loops that would be parted",
    ),
    "held for itself": (
        STAGES,
        lambda s: (s.cache_write("flip", "u", "local"), s.reverse_compute_at("flip", "a")),
        "block 'flip' cannot be computed at loop 'a': 'u_local', which it uses, is not there",
    ),
    "before": (
        STAGES,
        lambda s: s.reverse_compute_at("first", "c"),
        "block 'first' cannot be computed at loop 'c': it comes before",
    ),
    "after": (
        STAGES,
        lambda s: s.compute_at("flip", "a"),
        "block 'flip' cannot be computed at loop 'a': it comes after",
    ),
    "one nest": (
        MATMUL,
        lambda s: (s.reverse_compute_at("out", "i"), s.reverse_compute_at("out", "o")),
        "block 'out' cannot be computed at loop 'o': they are in one nest already",
    ),
    "own loops": (
        parsed("""
            def f(x: In[int32, (3,)], y: Out[int32, (3,)]):
                t = alloc(int32, (3,))
                for i in range(3):
                    with block("a"):
                        t[i] = x[i]
                for j in range(3):
                    with block("b"):
                        y[j] = t[j]
        """),
        lambda s: s.compute_at("a", "j"),
        "block 'a' cannot be computed at loop 'j': it is within loops of its own",
    ),
    "between": (CHANGED, lambda s: s.compute_at("use", "d"), "`with block(\"change\"):`, between them, uses 't'"),
    "overwrites": (CHANGED, lambda s: s.compute_at("use", "c"), "both write 't', or it overwrites what is read there"),
    "wanted": (
        parsed("""
            def f(x: In[int32, (3,)], y: Out[int32, (3,)], z: Out[int32, (3,)]):
                with block("a"):
                    for i in range(3):
                        y[i] = x[i]
                with block("b"):
                    for j in range(3):
                        z[j] = y[j]
        """),
        lambda s: s.compute_at("a", "j"),
        "block 'a' cannot be computed at loop 'j': it writes 'y', of which all is wanted",
    ),
    "read elsewhere": (STAGES, lambda s: s.compute_at("flip", "p"), "block 'flip' cannot be computed at loop 'p'"),
    # inline
    "a sum": (STAGES, lambda s: s.inline("sum"), "block 'sum' cannot be inlined: it does not compute each element"),
    "an output": (
        parsed("""
            def f(x: In[int32, (3,)], y: Out[int32, (3,)]):
                with block("a"):
                    for i in range(3):
                        y[i] = x[i]
        """),
        lambda s: s.inline("a"),
        "block 'a' cannot be inlined: 'y' is an output",
    ),
    "written twice": (
        CHANGED,
        lambda s: s.inline("make"),
        "block 'make' cannot be inlined: `t[c] = 7` writes 't' as well",
    ),
    "changes": (CHANGED, lambda s: s.inline("use"), "`t[c] = 7` overwrites what it reads before `y[d] = u[d] + t[d]`"),
    "spread": (ODD, lambda s: s.inline("spread"), "`t[a * 2, b] = x[a, b]` does not write one element for each"),
    "again": (
        parsed("""
            def f(x: In[int32, (3,)], y: Out[int32, (3,)]):
                t = alloc(int32, (3,))
                with block("a"):
                    for k in range(2):
                        for i in range(3):
                            t[i] = x[i] + k
                with block("b"):
                    for j in range(3):
                        y[j] = t[j]
        """),
        lambda s: s.inline("a"),
        "loop 'k' writes an element several times, or a diagonal",
    ),
    "outside of it": (
        STAGES,
        lambda s: s.compute_at("first", "c"),
        "block 'first' cannot be computed at loop 'c': `z[p, q] =",
    ),
    "nobody reads": (
        parsed("""
            def f(x: In[int32, (3,)], y: Out[int32, (3,)]):
                t = alloc(int32, (3,))
                with block("a"):
                    for i in range(3):
                        t[i] = x[i]
                with block("b"):
                    for j in range(3):
                        y[j] = x[j]
        """),
        lambda s: s.compute_at("a", "j"),
        "block 'a' cannot be computed at loop 'j': nothing there reads 't'",
    ),
    "adds up": (
        parsed("""
            def f(x: In[int32, (3,)], y: Out[int32, (3,)]):
                t = alloc(int32, (3,))
                u = alloc(int32, (1,))
                with block("a"):
                    for i in range(3):
                        t[i] = x[i]
                        u[0] = x[i]
                with block("b"):
                    for j in range(3):
                        y[j] = t[j] + u[0]
        """),
        lambda s: s.compute_at("a", "j"),
        "block 'a' cannot be computed at loop 'j': its iterations depend on one another",
    ),
    "two parts": (
        parsed("""
            def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
                t = alloc(int32, (4, 4))
                with block("a"):
                    for i in range(4):
                        for k in range(4):
                            t[i, k] = x[i]
                with block("b"):
                    for j in range(4):
                        y[j] = t[j, j]
        """),
        lambda s: (s.split("k", 2), s.reorder("k_o", "i", "k_i"), s.split("i", 2), s.reverse_compute_at("b", "i_o")),
        "block 'b' cannot be computed at loop 'i_o': its loop 'j' would have to go over two parts at once",
    ),
    "as it lies": (
        parsed("""
            def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
                t = alloc(int32, (4,))
                with block("a"):
                    for i in range(4):
                        t[i] = x[i]
                copy(view(y[0], axis(0)), view(t[0], axis(0)), (4,))
        """),
        lambda s: s.inline("a"),
        "takes 't' as it lies in memory",
    ),
    "another iteration": (
        parsed("""
            def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
                t = alloc(int32, (4,))
                for i in range(4):
                    with block("a"):
                        t[i] = x[i]
                    with block("b"):
                        y[i] = t[i - 1] if i > 0 else 5
        """),
        lambda s: s.inline("a"),
        "uses it in another iteration of the loops around it",
    ),
    "beyond a buffer": (
        parsed("""
            def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
                t = alloc(int32, (4,))
                for i in range(4):
                    with block("make"):
                        u = alloc(int32, (1,))
                        u[0] = x[i]
                        with block("a"):
                            t[i] = u[0] + 1
                    with block("b"):
                        y[i] = t[i]
        """),
        lambda s: s.inline("a"),
        "block 'a' cannot be inlined: `y[i] = t[i]` is where 'u', which it reads, does not exist",
    ),
    "beyond a name": (
        parsed("""
            def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
                t = alloc(int32, (4,))
                for i in range(4):
                    with block("make"):
                        u: int32 = x[i] + 1
                        with block("a"):
                            t[i] = u * 2
                    with block("b"):
                        y[i] = t[i]
        """),
        lambda s: s.inline("a"),
        "block 'a' cannot be inlined: `y[i] = t[i]` is where 'u', which it reads, does not exist",
    ),
    # decomposing
    "first of all": (
        parsed("""
            def f(x: In[int32, (4,)], y: Out[int32, (1,)]):
                y[0] = 0
                with block("a"):
                    for i in range(1):
                        for k in range(4):
                            y[i] += x[k]
                        y[i] = y[i] * 2
        """),
        lambda s: s.decompose_reduction("a", "i"),
        "the reduction of 'a' cannot be decomposed at loop 'i': the reduction comes first within it",
    ),
    "asks": (
        parsed("""
            def f(x: In[int32, (4,)], y: Out[int32, (2,)]):
                for c in range(2):
                    y[c] = c
                with block("a"):
                    for i in range(2):
                        if y[0] < 5:
                            y[i] = 1
                            for k in range(4):
                                y[i] += x[k]
        """),
        lambda s: s.decompose_reduction("a", "i"),
        "`if y[0] < 5:` asks for what it writes",
    ),
    "met again": (
        parsed("""
            def f(x: In[int32, (4,)], y: Out[int32, (3,)]):
                y[0] = 1
                with block("a"):
                    for i in range(2):
                        y[i + 1] = y[i]
                        for k in range(4):
                            y[i + 1] += x[k]
        """),
        lambda s: s.decompose_reduction("a", "i"),
        "meet in 'y', in different iterations of it",
    ),
    # caches and places
    "reads only": (
        MATMUL,
        lambda s: s.cache_write("sum", "x"),
        "'x' cannot be kept in 'register' at block 'sum': nothing",
    ),
    "guarded write": (
        MATMUL,
        lambda s: (s.split("i", 4, tail="guard"), s.cache_write("sum", "t", at="i_o")),
        "`t[i_o * 4 + i_i, o] = 0`, which comes first, does not surely write all that is used",
    ),
    "unknown values": (
        parsed("""
            def f(x: In[int32, (5,)], y: Out[int32, (2,)]):
                v = alloc(int32, (5,))
                with block("some"):
                    for c in range(3):
                        v[c * 2] = x[c]
                with block("more"):
                    for i in range(2):
                        v[i * 2] += 1
                        y[i] = v[i * 2]
        """),
        lambda s: s.cache_write("more", "v"),
        "it cannot be seen which of its elements have a value there",
    ),
    "written there": (
        MATMUL,
        lambda s: s.cache_read("sum", "t", at="i"),
        "'t' cannot be read through 'local' at loop 'i'",
    ),
    "not read": (
        MATMUL,
        lambda s: s.cache_read("out", "x"),
        "'x' cannot be read through 'local' at block 'out': nothing",
    ),
    "no value": (
        parsed("""
            def f(x: In[int32, (5,)], y: Out[int32, (2,)]):
                v = alloc(int32, (5,))
                with block("some"):
                    for c in range(3):
                        v[c * 2] = x[c]
                with block("use"):
                    for i in range(2):
                        y[i] = v[i * 2]
        """),
        lambda s: s.cache_read("use", "v"),
        "it cannot be seen that all of what would be copied has a value",
    ),
    "layout": (
        MATMUL,
        lambda s: s.cache_read("sum", "x", layout=(0, 0)),
        "(0, 0) is not an order of the 2 dimensions of 'x'",
    ),
    "used outside": (
        MATMUL,
        lambda s: s.store_at("t", "i"),
        "'t' cannot be stored at loop 'i': it is used outside of it",
    ),
    "not used": (
        parsed("""
            def f(x: In[int32, (3,)], y: Out[int32, (3,)]):
                t = alloc(int32, ())
                with block("a"):
                    for i in range(3):
                        y[i] = x[i]
        """),
        lambda s: s.store_at("t", "i"),
        "'t' cannot be stored at loop 'i': nothing uses it there",
    ),
    "a diagonal": (
        parsed("""
            def f(x: In[int32, (3,)], y: Out[int32, (3, 3)]):
                t = alloc(int32, (3, 3))
                with block("all"):
                    for c in range(3):
                        for d in range(3):
                            t[c, d] = d
                with block("a"):
                    for i in range(3):
                        t[i, i] = x[i]
                    for p in range(3):
                        for q in range(3):
                            y[p, q] = t[p, q]
        """),
        lambda s: s.cache_write("a", "t", "local"),
        "`t[i, i] = x[i]`, which comes first, does not surely write all that is used",
    ),
    "before it is written": (
        parsed("""
            def f(x: In[int32, (3,)], y: Out[int32, (3,)]):
                t = alloc(int32, (3,))
                with block("all"):
                    for c in range(3):
                        t[c] = c
                with block("a"):
                    for i in range(3):
                        t[i] = x[i]
                        y[i] = t[2 - i]
        """),
        lambda s: s.cache_write("a", "t", "local"),
        "`t[i] = x[i]`, which comes first, does not surely write all that is used",
    ),
    "perhaps read": (
        parsed("""
            def f(x: In[int32, (3,)], y: Out[int32, (3,)]):
                t = alloc(int32, (3,))
                with block("all"):
                    for c in range(2):
                        t[c] = c
                with block("a"):
                    for i in range(3):
                        y[i] = t[i] if i < 2 else x[i]
        """),
        lambda s: s.cache_read("a", "t"),
        "it cannot be seen that all of what would be copied has a value",
    ),
    "carried on": (
        parsed("""
            def f(x: In[int32, (3,)], y: Out[int32, (3,)]):
                t = alloc(int32, ())
                with block("a"):
                    for i in range(3):
                        y[i] = x[i]
                        if i > 0:
                            y[i] += t[()]
                        t[()] = x[i]
        """),
        lambda s: s.store_at("t", "i"),
        "'t' cannot be stored at loop 'i': `y[i] += t[()]` needs what an earlier iteration left in it",
    ),
    "an input": (MATMUL, lambda s: s.set_scope("x", "local"), "'x' cannot be put in 'local': it is an input"),
    # rolling
    "rolls outside": (
        STAGES,
        lambda s: s.rolling("t", "c"),
        "'t' cannot roll along loop 'c': it is used outside of it",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_illegal_is_refused_and_changes_nothing(case: str) -> None:
    func, call, what = CASES[case]
    s = Schedule(func)
    with pytest.raises(ScheduleError) as caught:
        call(s)
    assert what in caught.value.what
    assert caught.value.where == "schedule"


def test_more_vectors_than_the_machine_has_are_refused() -> None:
    def tile(unit: VectorUnit, lanes: int) -> PrimFunc:
        s = Schedule(MATMUL, unit)
        s.split("i", 3, tail="peel")
        s.split("o", lanes)
        s.decompose_reduction("sum", "i_i")
        s.cache_write("sum", "t", at="i_o")
        s.vectorize("o_i")
        return s.func

    tile(VectorUnit(32, 6), 8)
    with pytest.raises(ScheduleError, match=r"'t_register' \(6\) take 6 vectors at once, in loop 'i_o'; .* has 5"):
        tile(VectorUnit(32, 5), 8)
    with pytest.raises(ScheduleError, match=r"loop 'o_i' makes vectors of 64 bytes of 't_register'; those .* have 32"):
        tile(VectorUnit(32, 16), 16)
