"""The values of options: their types, and how each is read and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from .errors import UsageError
from .support.argument_checks import check_mapping, path_of
from .support.c_text import c_identifier
from .support.formatting import format_value
from .support.import_budget import IMPORT_LIMIT
from .support.io_forms import IO_FORMS, IoForm
from .support.opt_ins import OPT_INS, split_key
from .support.weights_forms import WEIGHTS_FORMS, WeightsForm
from .targets.values import shown

if TYPE_CHECKING:
    from .frontends.dynamic_shapes import AskedShape
    from .frontends.fixed_inputs import Fixed
    from .plugins import PluginHost

__all__ = ["Allowed", "Limit", "StripsAsked"]

Shapes: TypeAlias = "Mapping[str, AskedShape]"
"""Shapes by input name, or extents by dimension name."""

Pins: TypeAlias = Mapping[str, str]
"""Labels of targets by layer names or patterns of these (``*``, ``?``, ``[...]``; case-sensitive). Where several match
one layer, the last applies."""

Allow: TypeAlias = Mapping[str, str]
"""Opt-ins to results that differ from the model's arithmetic: ``fixed-point`` or ``float`` under ``rounding`` or
``rounding:LAYER``, ``litert`` or ``float`` under ``hybrid``, ``declared`` or ``off`` under the name of a pass,
``LABEL.PASS``. Layers and passes may be patterns (``*``, ``?``, ``[...]``; case-sensitive). Where several match, the
last applies."""

LIMITS = {"max-ram": 1024, "max-rom": 1024, "max-cycles": 1000}
"""The limits by the names of flags and settings, and the factor of K for each; M is K of K, G is K of M."""

MAX_STRIPS = 16
"""More strips would consist almost only of borders."""

_AMOUNT = re.compile(r"([0-9]{1,15}) ?([A-Z]*)", re.ASCII | re.IGNORECASE)
_UNIT = re.compile(r"([KMG]?)(?:I?B)?", re.ASCII | re.IGNORECASE)
_STRIPS = re.compile(r"([0-9]{1,9})(?::(.+))?", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class Limit:
    """An upper bound for a resource of a model.

    Args:
        amount: bytes, or cycles.
        said: the option or setting that has it, for errors.
    """

    amount: int
    said: str

    @property
    def plain(self) -> int:
        """The value as `BuildOptions` accepts it."""
        return self.amount


@dataclass(frozen=True)
class StripsAsked:
    """The strips of columns to compute layers in.

    Args:
        count: number of strips.
        end: the last layer in strips; None for the layer that takes least RAM.
    """

    count: int
    end: str | None = None

    @property
    def plain(self) -> str:
        """The value as `BuildOptions` accepts it."""
        return f"{self.count}" if self.end is None else f"{self.count}:{self.end}"


@dataclass(frozen=True)
class Allowed:
    """The opt-ins to results that differ from the model's arithmetic.

    Args:
        entries: values by keys; see `Allow`.
    """

    entries: Mapping[str, str] = field(default_factory=dict)

    @property
    def plain(self) -> dict[str, str]:
        """The value as `BuildOptions` accepts it."""
        return dict(self.entries)

    def rules(self, subject: str) -> tuple[tuple[str, bool], ...]:
        """Return names or patterns of layers or passes, ``*`` for all, and whether they have the opt-in.

        Args:
            subject: ``rounding``, ``hybrid`` or ``pass``.
        """
        parts = [(*split_key(key), value == OPT_INS[subject][0]) for key, value in self.entries.items()]
        return tuple((pattern, is_allowed) for name, pattern, is_allowed in parts if name == subject)

    @property
    def hybrid(self) -> bool:
        """Whether hybrid layers are computed as LiteRT does; else their weights are dequantised."""
        return ("*", True) in self.rules("hybrid")

    @property
    def passes(self) -> tuple[str, ...]:
        """The names or patterns of the passes that may change results."""
        return tuple(pattern for pattern, is_allowed in self.rules("pass") if is_allowed)

    @property
    def texts(self) -> tuple[str, ...]:
        """The entries as ``--allow`` has them: ``rounding=fixed-point``."""
        return tuple(f"{key}={value}" for key, value in self.entries.items())


def parse_amount(text: str, name: str) -> int:
    """Return ``64K`` as a number.

    Args:
        text: a number, with ``K``, ``M`` or ``G`` after it where thousands are meant. In bytes it may go on with ``B``
            or ``iB``, which change nothing: ``64KiB`` and ``64 kb`` are ``64K``. Case does not matter.
        name: the limit, a key of `LIMITS`, which has the value of ``K``.

    Raises:
        ValueError: the text has another form, or an unknown unit.
    """
    amount = _AMOUNT.fullmatch(text)
    if amount is None:
        raise ValueError(f"{text[:40]!r} is not an amount; write it like 64K")
    unit = _UNIT.fullmatch(amount[2])
    if unit is None or (unit[0] != unit[1] and LIMITS[name] != 1024):
        raise ValueError(f"unknown unit {amount[2][:40]!r} in {text[:40]!r}; use K, M or G")
    power = " KMG".index(unit[1].upper() or " ")
    return int(amount[1]) * int(LIMITS[name] ** power)


def read_limit(text: str, name: str) -> Limit:
    """Return the limit that the flag ``--NAME`` gives; ValueError as for `parse_amount`."""
    return Limit(parse_amount(text, name), f"--{name}")


def ram_limit(value: object) -> Limit | None:
    """Return the limit for bytes or a text like ``64K``; None for no limit; UsageError for another value."""
    if value is None or isinstance(value, Limit):
        return value
    text = value if isinstance(value, str) else str(value) if type(value) is int else ""
    try:
        return Limit(parse_amount(text, "max-ram"), "max_ram")
    except ValueError as error:
        raise UsageError(f"max_ram={value!r} is not an amount", hint='give bytes, or a text like "64K"') from error


def read_strips(value: object) -> StripsAsked | None:
    """Return the strips for a number or a text like ``2:LAYER``; None for none.

    Raises:
        UsageError: the value has another form, or the number is not between 2 and `MAX_STRIPS`.
    """
    if value is None or isinstance(value, StripsAsked):
        return value
    text = value if isinstance(value, str) else str(value) if type(value) is int else ""
    parts = _STRIPS.fullmatch(text)
    if parts is None:
        what = f"{shown(value)} is not a number of strips"
        raise UsageError(what, hint="write it like 2, or with the last layer that is computed in strips, like 2:conv4")
    count = int(parts[1])
    if not 2 <= count <= MAX_STRIPS:
        raise UsageError(f"a picture cannot be computed in {count:,} strips", hint=f"make 2 to {MAX_STRIPS} of it")
    return StripsAsked(count, parts[2])


def check_allow(value: object) -> Allowed:
    """Return the opt-ins for a mapping, see `Allow`, or None for none; UsageError for another value."""
    if isinstance(value, Allowed):
        return value
    entries = {} if value is None else value
    if not isinstance(entries, Mapping) or not all(isinstance(key, str) for key in entries):
        what = f"allow is {format_value(value)}, not a mapping of texts"
        raise UsageError(what, hint='for example {"rounding": "fixed-point"}')
    for key, choice in entries.items():
        choices = OPT_INS[split_key(key)[0]]
        if choice not in choices:
            raise UsageError(f"{shown(choice)} is not a value of {key} in allow", hint=f"one of {', '.join(choices)}")
    return Allowed(entries)


def check_io(value: object) -> IoForm | None:
    """Return ``value``, one of `IO_FORMS` or None for the default; UsageError for another value."""
    if value is None:
        return None
    form = next((form for form in IO_FORMS if form == value), None)
    if form is None:
        raise UsageError(f"inputs and outputs cannot be in {shown(value)}", hint=f"io is one of {', '.join(IO_FORMS)}")
    return form


def check_weights(value: object) -> WeightsForm:
    form = next((form for form in WEIGHTS_FORMS if form == value), None)
    if form is None:
        raise UsageError(f"{shown(value)} is not a form of weights", hint=f"there are {', '.join(WEIGHTS_FORMS)}")
    return form


def check_name(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{format_value(value)} is not a name for a model", hint="give a C identifier, as a str")
    if value is not None and c_identifier(value) != value:
        raise UsageError(f"{value!r} is not a name for a model", hint=f"for example {c_identifier(value)}")
    return value


def check_shapes(value: object) -> Shapes | None:
    if value is None:
        return None
    example = '{"image": (1, 3, 224, 224)}'
    shapes = check_mapping(value, (list, tuple, int, str), "shapes", example)
    for extents in shapes.values():
        each = extents if isinstance(extents, (list, tuple)) else [extents]
        if not all(isinstance(extent, (int, str)) for extent in each):
            raise UsageError(f"{format_value(extents)} is not a shape", hint=f"for example shapes={example}")
    return shapes


def check_states(value: object) -> Mapping[str, str] | None:
    return None if value is None else check_mapping(value, str, "states", '{"state_in": "state_out"}')


def check_constants(value: object) -> Mapping[str, Fixed] | None:
    return None if value is None else check_mapping(value, object, "constants", '{"scale": 0.5}')


def check_stream_inputs(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        what = f"stream_inputs is {format_value(value)}, and no list of names"
        raise UsageError(what, hint='for example stream_inputs=["image"]')
    return tuple(dict.fromkeys(value))


def check_import_limit(value: object) -> int:
    if type(value) is not int or value < 1:
        hint = f"a whole number from 1 on; {IMPORT_LIMIT} by default"
        raise UsageError(f"the import limit is {format_value(value)}", hint=hint)
    return value


def check_dump(value: object) -> Path | None:
    return None if value is None else path_of(value, "the folder for dumps")


def check_plugins(value: object) -> PluginHost | None:
    from .plugins import PluginHost

    if value is not None and not isinstance(value, PluginHost):
        raise UsageError(
            f"{format_value(value)} is not a PluginHost", hint="leave plugins out for those that are installed"
        )
    return value
