"""Targets: what hardware there is, as kinds with typed attributes."""

from .kind import Attribute, AttributeType, TargetKind, Value
from .target import Target, parse_target

__all__ = ["Attribute", "AttributeType", "Target", "TargetKind", "Value", "parse_target"]
