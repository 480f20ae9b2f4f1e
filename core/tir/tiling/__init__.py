"""Tiles for the loops of an accelerator: how a nest is cut so that it fits the memories and takes the fewest cycles."""

from __future__ import annotations

from .apply import StagedLoops, TiledLoops, double_buffer, tile_and_stage, tile_reduction_loops, tile_spatial_loops
from .cycle_model import Costs
from .derive import nest_of
from .nest import Dimension, Instruction, LoopAxis, Nest, PaddingFill, StagedBuffer, max_operand_extents
from .search import Constraints, Tiles, TilingFailure, choose_tiles, find_misfit, search_exhaustively

__all__ = [
    "Constraints",
    "Costs",
    "Dimension",
    "Instruction",
    "LoopAxis",
    "Nest",
    "PaddingFill",
    "StagedBuffer",
    "StagedLoops",
    "TiledLoops",
    "Tiles",
    "TilingFailure",
    "choose_tiles",
    "double_buffer",
    "find_misfit",
    "max_operand_extents",
    "nest_of",
    "search_exhaustively",
    "tile_and_stage",
    "tile_reduction_loops",
    "tile_spatial_loops",
]
