"""A small engine for products of matrices, with its tiles: int8 operands, int32 sums, 8x8 results and a depth of 32."""

from __future__ import annotations

from uma.tir import CopyCommand, ExecCommand, Machine, PrimFunc, parse_func, parse_machine, tiling
from uma.tir.schedule import Schedule

_MACHINE = """
spad = memory(
    spad_bytes,
    align(8),
    copy_in="mm_load({device}, {to}, {from}, {rows}, {row_bytes}, {to_stride}, {from_stride})",
    start_in="mm_start_load({device}, {to}, {from}, {rows}, {row_bytes}, {to_stride}, {from_stride})",
)
sums = memory(
    sum_bytes,
    align(4),
    copy_out="mm_read({device}, {to}, {from}, {rows}, {row_bytes}, {to_stride}, {from_stride})",
    start_out="mm_start_read({device}, {to}, {from}, {rows}, {row_bytes}, {to_stride}, {from_stride})",
)
dma = queue("mm_wait({device}, {pending})")

@intrinsic("mm_zero({device}, {out}, {out_stride0}, {rows}, {columns})")
def mm_zero(out: Operand[int32, (8, 8), scope("sums")], rows: int32, columns: int32):
    for i in range(rows):
        for j in range(columns):
            out[i, j] = 0

@intrinsic("mm_mac({device}, {out}, {out_stride0}, {a}, {a_stride0}, {b}, {b_stride0}, {rows}, {columns}, {depth})")
def mm_mac(
    out: Operand[int32, (8, 8), scope("sums")],
    a: Operand[int8, (8, 32), scope("spad")],
    b: Operand[int8, (32, 8), scope("spad")],
    rows: int32,
    columns: int32,
    depth: int32,
):
    for i in range(rows):
        for j in range(columns):
            for k in range(depth):
                out[i, j] += int32(a[i, k]) * int32(b[k, j])
"""

_LAYER = """
@prim_func
def product(x: In[int8, (ROWS, DEPTH)], y: Out[int32, (ROWS, COLUMNS)], w: Const[int8, (DEPTH, COLUMNS)]):
    with block("sum"):
        for i in range(ROWS):
            for j in range(COLUMNS):
                y[i, j] = 0
                for k in range(DEPTH):
                    y[i, j] += int32(x[i, k]) * int32(w[k, j])
"""

ISSUE = 2
"""Cycles of each command, besides its own."""

TEN = [
    ((12, 8, 24), (128, 64)), ((9, 9, 16), (96, 128)), ((1, 24, 40), (256, 32)), ((16, 4, 20), (512, 128)),
    ((7, 9, 29), (200, 100)), ((20, 3, 12), (64, 32)), ((4, 16, 17), (128, 64)), ((10, 10, 32), (256, 200)),
    ((5, 11, 36), (80, 24)), ((13, 5, 20), (120, 80)),
]  # fmt: skip
"""Layers (rows, columns, depth) that are tiled, each with the bytes of the memories."""


def machine(spad_bytes: int, sum_bytes: int) -> Machine:
    """The engine with scratchpads of these sizes."""
    return parse_machine(_MACHINE, {"spad_bytes": spad_bytes, "sum_bytes": sum_bytes}, "mm")


def layer(rows: int, columns: int, depth: int) -> PrimFunc:
    """y = x * w, plain loops."""
    return parse_func(_LAYER, numbers={"ROWS": rows, "COLUMNS": columns, "DEPTH": depth})[1]


def cycles(command: ExecCommand | CopyCommand) -> int:
    """What a command costs without its issue."""
    if isinstance(command, CopyCommand):
        return 20 + command.rows * -(-command.row_bytes // 8)
    return command["rows"] if command.intrinsic.name == "mm_zero" else 4 + command["rows"] * command["depth"]


def nest_of(func: PrimFunc, engine: Machine) -> tiling.Nest:
    """The product's loops, with what they become."""
    zero, mac = engine.intrinsics
    return tiling.nest_of(
        func,
        "sum",
        {"x": "spad", "w": "spad", "y": "sums"},
        [
            tiling.Instruction(zero, {"rows": "i", "columns": "j"}, "first"),
            tiling.Instruction(mac, {"rows": "i", "columns": "j", "depth": "k"}),
        ],
    )


def costs_of(engine: Machine) -> tiling.Costs:
    """With the queue."""
    return tiling.Costs(cycles, ISSUE, engine.queues[0])


def scheduled(func: PrimFunc, tiles: tiling.Tiles, engine: Machine) -> PrimFunc:
    """The loops that the tiles ask for."""
    zero, mac = engine.intrinsics
    s = Schedule(func)
    made = tiling.tile_and_stage(s, "sum", tiles, engine)
    assert made.init is not None
    s.tensorize(s.loops(made.init)[-2], zero)
    s.tensorize(made.cut.parts["i"], mac)
    tiling.double_buffer(s, made.cut, made.buffers, engine.queues[0])
    return s.func
