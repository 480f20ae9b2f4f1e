"""The build: from a model and a target to an artifact."""

from .driver import build, lower_to
from .stages import STAGES

__all__ = ["STAGES", "build", "lower_to"]
