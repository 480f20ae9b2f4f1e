"""About how many instructions the loops of ``uma_dsp.h`` take on a Cortex-M4 at ``-opt=2``.

The numbers were fitted to what an emulator counted of the layers of MLPerf Tiny's int8 models: all within a sixth, most
within a twentieth.
"""

from __future__ import annotations

from uma.tir import Bin, Call, Cast, Expr, Select, Un, walk

from .dsp_forms import PIXELS

__all__ = [
    "depth_instructions",
    "epilogue_instructions",
    "plane_instructions",
    "product_instructions",
    "window_instructions",
]

_TILE, _TILE_GROUP = 114, 27.5
_ROW, _ROW_GROUP = 60, 17
_EXPANDED, _GATHERED, _BESIDE = 7.5, 13, 128
_OUTPUT, _WINDOW = 27.75, 57
_OPERATION = 2.5
_LINE, _PAIR, _WIDER, _LAST, _COPIED, _CLEARED = 8, 44, 14, 35, 2.4, 3


def product_instructions(lines: int, across: int, groups: int, channels: int) -> float:
    """The products of ``lines`` rows of ``across`` pixels, whose sums have ``groups`` groups of four numbers, and their
    expansion from where they lie side by side.
    """
    tiles, rows = divmod(across, PIXELS)
    four = tiles * (_TILE + _TILE_GROUP * groups) + rows * (_ROW + _ROW_GROUP * groups)
    return lines * (four * -(-channels // 4) + across * groups * _EXPANDED)


def window_instructions(pixels: int, groups: int, beside: int) -> float:
    """What windows take more; ``beside`` are those that go beyond the sides of a picture with channels that are no
    multiple of four.
    """
    return pixels * groups * (_GATHERED - _EXPANDED) + beside * groups * _BESIDE


def depth_instructions(lines: int, across: int, channels: int) -> float:
    """Windows of three by three with data of their own for each channel, row by row."""
    return lines * across * (_OUTPUT * channels + _WINDOW)


def plane_instructions(lines: int, across: int, channels: int, stride: int, copied: int, plane: int) -> float:
    """The same in planes of ``plane`` numbers, of which ``copied`` are those of a channel."""
    pair = _PAIR + _WIDER * (stride - 1)
    row = _LINE + across // 2 * pair + across % 2 * _LAST
    return channels * (lines * row + copied * _COPIED) + plane * _CLEARED


def epilogue_instructions(value: Expr) -> float:
    """What follows of one element."""
    return _OPERATION * sum(isinstance(part, (Bin, Call, Cast, Select, Un)) for part in walk(value))
