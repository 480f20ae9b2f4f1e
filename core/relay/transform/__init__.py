"""Rewrites of the graph form that do not depend on a target."""

from .canonical import canonicalise
from .value_range import value_range

__all__ = ["canonicalise", "value_range"]
