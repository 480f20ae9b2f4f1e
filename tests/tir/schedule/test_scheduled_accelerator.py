"""A convolution on an accelerator of its own memories: tiles, copies and instructions by a schedule alone."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from tests._support.schedules import agree, parsed

from uma.tir import CopyCommand, ExecCommand, PrimFunc, Var, count_commands, parse_machine
from uma.tir.schedule import Schedule

_ROWS = "{to}, {from}, {rows}, {row_bytes}, {to_stride}, {from_stride}"
MACHINE = parse_machine(f"""
acts = memory(4096, copy_in="take({_ROWS})", copy_out="give({_ROWS})")
weights = memory(4096, align(4), copy_in="hold({_ROWS})")
sums = memory(4096, align(16))

@intrinsic("bias({{acc}}, {{record}}, {{pixels}})")
def bias(acc: Operand[int32, (64, 4), scope("sums")], record: Operand[int32, (3, 4), scope("weights")], pixels: int32):
    for p in range(pixels):
        for n in range(4):
            acc[p, n] = record[0, n]

@intrinsic("mac({{acc}}, {{acc_stride0}}, {{act}}, {{act_stride0}}, {{act_stride1}}, {{act_stride2}}, {{wgt}}, \\
{{wgt_stride0}}, {{height}}, {{width}}, {{taps}}, {{depth}})")
def mac(
    acc: Operand[int32, (8, 8, 4), scope("sums")],
    act: Operand[int8, (8, 8, 4, 16), scope("acts")],
    wgt: Operand[int8, (4, 16, 4), scope("weights")],
    height: int32,
    width: int32,
    taps: int32,
    depth: int32,
):
    for y in range(height):
        for x in range(width):
            for t in range(taps):
                for k in range(depth):
                    for n in range(4):
                        acc[y, x, n] += int32(act[y, x, t, k]) * int32(wgt[t, k, n])

@intrinsic("scale({{out}}, {{out_stride0}}, {{acc}}, {{record}}, {{pixels}}, {{channels}}, {{zero}})")
def scale(
    out: Operand[int8, (64, 4), scope("acts")],
    acc: Operand[int32, (64, 4), scope("sums")],
    record: Operand[int32, (3, 4), scope("weights")],
    pixels: int32,
    channels: int32,
    zero: int32,
):
    for p in range(pixels):
        for n in range(channels):
            out[p, n] = int8(min(max(((acc[p, n] * record[1, n] + record[2, n]) >> 8) + zero, -128), 127))
""")
ACTS, WEIGHTS, SUMS = (next(m for m in MACHINE.memories if m.name == name) for name in ("acts", "weights", "sums"))


class Sizes(NamedTuple):
    """Of a convolution, channels last, and of its tiles: rows, columns, blocks of four channels."""

    batch: int
    height: int
    width: int
    channels: int
    taps: int
    columns: int
    stride: int
    outputs: int
    tile: tuple[int, int, int]

    @property
    def out(self) -> tuple[int, int]:
        return (self.height - self.taps) // self.stride + 1, (self.width - self.columns) // self.stride + 1

    @property
    def blocks(self) -> int:
        return -(-self.outputs // 4)


def convolution(s: Sizes) -> PrimFunc:
    depth, row, (rows, columns) = s.columns * s.channels, s.width * s.channels, s.out
    return parsed(f"""
        def f(
            data: In[int8, ({s.batch}, {s.height}, {row})],
            out: Out[int8, ({s.batch}, {rows}, {columns}, {s.outputs})],
            weight: Const[int8, ({s.blocks}, {s.taps}, {depth}, 4)],
            record: Const[int32, ({s.blocks}, 3, 4)],
        ):
            acc = alloc(int32, ({s.batch}, {rows}, {columns}, {4 * s.blocks}))
            with block("mac"):
                for b in range({s.batch}):
                    for y in range({rows}):
                        for x in range({columns}):
                            for g in range({s.blocks}):
                                for n in range(4):
                                    acc[b, y, x, g * 4 + n] = record[g, 0, n]
                                    for t in range({s.taps}):
                                        for k in range({depth}):
                                            acc[b, y, x, g * 4 + n] += (
                                                int32(data[b, y * {s.stride} + t, x * {s.stride * s.channels} + k])
                                                * int32(weight[g, t, k, n])
                                            )
            with block("scale"):
                for b2 in range({s.batch}):
                    for y2 in range({rows}):
                        for x2 in range({columns}):
                            for c in range({s.outputs}):
                                out[b2, y2, x2, c] = int8(min(max(
                                    ((acc[b2, y2, x2, c] * record[c // 4, 1, c % 4]
                                    + record[c // 4, 2, c % 4]) >> 8) + 3, -128), 127))
    """)


def scheduled(sizes: Sizes) -> Schedule:
    s = Schedule(convolution(sizes))
    height, width, blocks = sizes.tile
    block: Var | str = "g"
    tiles = [s.split("y", height), s.split("x", width)]
    outer, inner = ["b", tiles[0][0], tiles[1][0]], [tiles[0][1], tiles[1][1], "n"]
    if blocks < sizes.blocks:
        group, block = s.split("g", blocks)
        outer.insert(0, group)
    s.reorder(*outer, block, *inner)
    s.reverse_compute_at("scale", block)
    first = s.decompose_reduction("mac", tiles[0][1])
    s.reorder("t", "k", "n")
    s.cache_write("mac", "acc", SUMS, at=block)
    s.cache_read("mac", "data", ACTS, at=tiles[1][0])
    s.cache_read("mac", "weight", WEIGHTS, at=block)
    s.cache_read("scale", "record", WEIGHTS, at=block)
    s.cache_write("scale", "out", ACTS, at=tiles[1][0])

    def pixels(label: str) -> Var:
        """All pixels of a tile where its rows follow one another, else those of a row."""
        *_, rows, columns, _ = s.loops(label)
        return s.fuse(rows, columns) if width == sizes.out[1] else columns

    s.tensorize(tiles[0][1], MACHINE.intrinsic("mac"))
    s.tensorize(pixels(first), MACHINE.intrinsic("bias"))
    s.tensorize(pixels("scale"), MACHINE.intrinsic("scale"), zero=3)
    return s


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param(Sizes(1, 6, 5, 3, 3, 2, 1, 6, (2, 3, 2)), id="columns in tiles"),
        pytest.param(Sizes(1, 6, 5, 3, 3, 2, 1, 6, (3, 4, 2)), marks=pytest.mark.soak, id="the last rows are fewer"),
        pytest.param(
            Sizes(2, 7, 5, 3, 3, 2, 2, 14, (2, 1, 2)), marks=pytest.mark.soak, id="groups of blocks, columns one by one"
        ),
        pytest.param(Sizes(2, 4, 3, 5, 1, 1, 1, 4, (1, 1, 1)), id="pixels one by one"),
        pytest.param(Sizes(1, 1, 1, 16, 1, 1, 1, 11, (1, 1, 2)), id="one pixel, the last group has one block"),
    ],
)
def test_a_convolution_in_tiles_is_exact(sizes: Sizes) -> None:
    s = scheduled(sizes)
    agree(convolution(sizes), s.func)
    counted = count_commands(s.func)
    macs = [
        (one, times) for one, times in counted.items() if isinstance(one, ExecCommand) and one.intrinsic.name == "mac"
    ]
    work = sum(times * one["height"] * one["width"] * one["taps"] * one["depth"] for one, times in macs)
    rows, columns = sizes.out
    assert work == sizes.batch * rows * columns * sizes.blocks * sizes.taps * sizes.columns * sizes.channels
    given = sum(n * one.nbytes for one, n in counted.items() if isinstance(one, CopyCommand) and one.source == "acts")
    assert given == sizes.batch * rows * columns * sizes.outputs
