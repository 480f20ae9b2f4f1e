"""Tries to break what a plugin promises: that everything its patterns accept is computed as the ops mean it.

Layers are made up from patterns, cut out of models, and given by the plugin (`seeds`); each thing that can be varied
of them is varied (`mutations`, `layer_rebuild`, `values`), and the patterns are asked (`acceptance`). Those that are
taken are chosen so that few hold much (`selection`), compiled many at a time (`layer_images`), fed (`inputs`) and
computed three ways (`interpreter_runs`, `triage`), on two devices as well (`devices`), and in whole graphs (`graphs`).
What differs is made smaller (`shrinking`) and written down (`reproducers`).
"""

from __future__ import annotations

from .graphs import check_graphs
from .layers import check_layers, repeat

__all__ = ["check_graphs", "check_layers", "repeat"]
