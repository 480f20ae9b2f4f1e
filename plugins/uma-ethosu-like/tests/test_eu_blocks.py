"""Blocks and parts of operations: what they need, and what fits."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from uma_ethosu_like.blocks import fit_block, legal_blocks
from uma_ethosu_like.cost import choose_block
from uma_ethosu_like.machine import CONFIGURATIONS, Machine
from uma_ethosu_like.operations import (
    ELEMENTWISE,
    Box,
    FeatureMap,
    Kind,
    Operation,
    Scale,
    Step,
    Storage,
    Window,
)

WHOLE = Window()


def operation(
    kind: Kind, shape: tuple[int, int, int], channels: int, window: Window = WHOLE, second: bool = False, **more: Any
) -> Operation:
    """One on maps of int8 without places."""
    memory = Storage("memory", 1 << 20)
    rows, columns = (
        (extent + 2 * pad - span) // stride + 1
        for extent, pad, span, stride in zip(shape, window.padding, window.span, window.strides, strict=False)
    )
    ifm, ofm = FeatureMap.whole(memory, shape), FeatureMap.whole(memory, (rows, columns, channels))
    return Operation(kind, ofm, ifm, FeatureMap.whole(memory, shape) if second else None, window=window, **more)


@pytest.mark.parametrize("kind", ["conv", "depthwise", "max_pool"])
def test_a_part_reads_what_its_windows_cover(kind: Kind) -> None:
    rng = np.random.default_rng(2)
    for _ in range(60):
        kernel, strides, dilation = (tuple(map(int, rng.integers(1, most, 2))) for most in (5, 4, 3))
        window = Window(kernel, strides, dilation, (int(rng.integers(kernel[0])), int(rng.integers(kernel[1]))))
        shape = (int(rng.integers(9, 20)), int(rng.integers(9, 20)), 8)
        one = operation(kind, shape, 8, window)
        ends = one.ofm.shape
        first, last = zip(*(sorted(map(int, rng.choice(end + 1, 2, replace=False))) for end in ends), strict=True)
        part = Step(one, Box(first, last))
        top, left, bottom, right = part.padding
        for axis, (before, behind) in enumerate(((top, bottom), (left, right))):
            rows = [
                row * strides[axis] + tap * dilation[axis] - window.padding[axis]
                for row, tap in itertools.product(range(first[axis], last[axis]), range(kernel[axis]))
            ]
            assert (max(0, -min(rows)), max(0, max(rows) - shape[axis] + 1)) == (before, behind)
            start = part.ifm.offset // one.ifm.strides[axis] % shape[axis]
            assert (start, start + part.ifm.shape[axis]) == (max(0, min(rows)), min(shape[axis], max(rows) + 1))
        assert part.ifm.shape[2] == (8 if kind == "conv" else last[2] - first[2])
        assert part.ofm.shape == part.box.shape


def test_every_block_that_is_offered_fits_and_there_is_always_one() -> None:
    for machine in CONFIGURATIONS.values():
        for one in (
            operation("conv", (40, 40, 64), 256, Window((3, 3), padding=(1, 1))),
            operation("conv", (70, 70, 200), 16, Window((64, 64), (3, 3), (1, 1))),
            operation("conv", (1, 1, 640), 640),
            operation("depthwise", (64, 64, 8), 8, Window((7, 7), (3, 3), (2, 2))),
            operation("average_pool", (256, 256, 3), 3, Window((256, 16)), scale=Scale(1, 1), table=bytes(256)),
            operation("add", (10, 10, 40), 40, second=True),
        ):
            found = list(legal_blocks(one.whole, machine))
            assert choose_block(one.whole, Machine(macs=machine.macs))[0] in found
            for block in found:
                banks = [2, block.ifm_end, block.accumulator_start]
                if one.kind in ELEMENTWISE:
                    banks = [2, block.ifm2_start, block.ifm_end]
                assert banks == sorted(banks) and banks[-1] <= machine.usable_banks(lut=one.table is not None)
                assert not [n for n, unit in zip(block.shape, machine.ofm_ublock, strict=True) if n % unit]


@pytest.mark.soak
def test_the_shared_memory_is_divided_as_vela_divides_it() -> None:
    vela = pytest.importorskip("ethosu.vela.architecture_allocator", reason="Vela is not installed")
    from ethosu.vela.architecture_features import Accelerator, Block, create_default_arch
    from ethosu.vela.ethos_u55_regs.ethos_u55_regs import resampling_mode
    from ethosu.vela.operation import Kernel, NpuBlockType

    types = {
        "conv": NpuBlockType.ConvolutionMxN,
        "depthwise": NpuBlockType.ConvolutionDepthWise,
        "max_pool": NpuBlockType.Pooling,
        "add": NpuBlockType.ElementWise,
    }
    rng, compared = np.random.default_rng(3), 0
    for macs, machine in CONFIGURATIONS.items():
        arch = create_default_arch(Accelerator(f"ethos-u55-{macs}"))
        for kind in types:
            for _ in range(40):
                window = WHOLE
                if kind != "add":
                    height, width, down, across = map(int, rng.integers(1, [12, 12, 4, 4]))
                    window = Window((height, width), (down, across))
                depth, channels = map(int, rng.integers(1, 70, 2))
                one = operation(kind, (30, 31, depth), channels if kind == "conv" else depth, window, kind == "add")
                micro = machine.ofm_ublock
                shape = tuple(int(unit * rng.integers(1, 9)) for unit in micro)
                block = fit_block(one.whole, shape, machine)
                (kernel_rows, kernel_columns), (down, across) = window.kernel, window.strides
                theirs = vela.try_block_config(
                    Block(shape[1], shape[0], shape[2]),
                    arch,
                    types[kind],
                    *(Block(columns, rows, deep) for rows, columns, deep in (one.ofm.shape, one.ifm.shape)),
                    Block(*one.ifm.shape) if kind == "add" else None,
                    False,
                    8,
                    block.part_kernel if block else False,
                    Kernel(kernel_columns, kernel_rows, across, down),
                    0,
                    True,
                    resampling_mode.NONE,
                )
                if block is None:
                    assert theirs is None or kind == "conv"  # whose order of weights is not known then
                    continue
                found = (block.ifm_end, block.ifm2_start, block.accumulator_start)
                layout = theirs.layout
                assert found == (layout.ib_end, layout.ib_start2, layout.ab_start)
                compared += 1
    assert compared > 200
