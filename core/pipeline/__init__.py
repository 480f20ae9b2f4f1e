"""The build: from a model and a target to an artifact."""

from .driver import build
from .stages import STAGES

__all__ = ["STAGES", "build"]
