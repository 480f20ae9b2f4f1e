"""Tiles for the loops of an accelerator: how a nest is cut so that it fits the memories and takes the fewest cycles."""

from __future__ import annotations

from .apply import CutLoops, StagedLoops, cut_results, cut_sums, double_buffer, stage
from .derive import nest_of
from .nest import Dimension, Fill, Instruction, LoopAxis, Nest, Staged, largest_operands
from .search import Constraints, Misfit, Tiles, choose_tiles, find_misfit, try_all_tiles
from .timeline import Costs

__all__ = [
    "Constraints",
    "Costs",
    "CutLoops",
    "Dimension",
    "Fill",
    "Instruction",
    "LoopAxis",
    "Misfit",
    "Nest",
    "Staged",
    "StagedLoops",
    "Tiles",
    "choose_tiles",
    "cut_results",
    "cut_sums",
    "double_buffer",
    "find_misfit",
    "largest_operands",
    "nest_of",
    "stage",
    "try_all_tiles",
]
