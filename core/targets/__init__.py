"""Targets: what hardware there is, as kinds with typed attributes."""

from ..support.rounding import FixedPointForm
from .kind import Alias, Attribute, AttributeType, TargetKind, Value
from .limits import Limits
from .parsing import parse_target, read_target, read_targets
from .quantised import QuantisedForm
from .target import Target
from .values import ListOf, MapOf

__all__ = [
    "Alias",
    "Attribute",
    "AttributeType",
    "FixedPointForm",
    "Limits",
    "ListOf",
    "MapOf",
    "QuantisedForm",
    "Target",
    "TargetKind",
    "Value",
    "parse_target",
    "read_target",
    "read_targets",
]
