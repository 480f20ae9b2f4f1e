"""Targets: what hardware there is, as kinds with typed attributes."""

from .kind import Attribute, AttributeType, TargetKind, Value
from .limits import Limits
from .target import Target, parse_target

__all__ = ["Attribute", "AttributeType", "Limits", "Target", "TargetKind", "Value", "parse_target"]
