"""The checks, a module each, in the order in which they run.

What is cheap and explains what follows comes first: a plugin whose hooks give something else each time is better told
so than that a layer differs.
"""

from __future__ import annotations

from ..outcome import Check
from .c_sources import C_SOURCES
from .cost import COST
from .documentation import DOCUMENTATION
from .faults import FAULTS
from .graphs import GRAPHS
from .layers import LAYERS
from .packaging import PACKAGING
from .registration import REGISTRATION

__all__ = ["CHECKS"]

CHECKS: tuple[Check, ...] = (REGISTRATION, PACKAGING, DOCUMENTATION, C_SOURCES, LAYERS, GRAPHS, FAULTS, COST)
