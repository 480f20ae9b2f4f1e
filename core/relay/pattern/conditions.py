"""What a pattern may ask of one value: of an attribute, a dtype, an extent.

A value is fixed, opened with `any_`, or tested by a function that says in words what it asks (`where`). Functions
come from plugins: whatever they do wrong becomes a `PluginError` that says where.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ...errors import PluginError
from ...tir.form.dtype import DTYPES
from ..types import TensorType, Type

__all__ = [
    "ANYTHING",
    "Anything",
    "Condition",
    "Fixed",
    "TensorCondition",
    "Where",
    "any_",
    "plain",
    "shown",
    "truth",
    "where",
]

_SHOWN_CHARS = 80
_WORDS = re.compile(r"[^\W\d][\w.+-]*( [\w.+-]+)*")


@dataclass(frozen=True)
class Anything:
    """The condition that everything meets."""

    def holds(self, value: Any) -> bool:
        return True

    def wanted(self) -> str:
        return "anything"

    def __repr__(self) -> str:
        return "any_"


any_: Final = Anything()
"""Opens an attribute, a dtype or an extent: any value matches."""


@dataclass(frozen=True)
class Fixed:
    """The condition that one value meets, to the last bit: ``-0.0`` is not ``0.0``."""

    value: Any
    _spelled: str | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parts = self.value if isinstance(self.value, tuple) else (self.value,)
        object.__setattr__(self, "_spelled", repr(self.value) if any(isinstance(p, float) for p in parts) else None)

    def holds(self, value: Any) -> bool:
        return bool(value == self.value) and (self._spelled is None or repr(value) == self._spelled)

    def wanted(self) -> str:
        return plain(self.value)


@dataclass(frozen=True)
class Where:
    """The condition that a function tests, see `where`."""

    function: Callable[[Any], Any]
    reason: str

    def holds(self, value: Any) -> bool:
        """Whether the function says so.

        Raises:
            PluginError: the function raises, or gives no bool.
        """
        try:
            result = self.function(value)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise PluginError(
                f"a test raised {type(error).__name__}: {error}", where=f"test {self.reason!r}, given {shown(value)}"
            ) from error
        answer = truth(result)
        if answer is None:
            raise PluginError(
                f"a test gave {shown(result)}, not True or False", where=f"test {self.reason!r}, given {shown(value)}"
            )
        return answer

    def wanted(self) -> str:
        return self.reason


Condition = Anything | Fixed | Where


def where(function: Callable[[Any], Any], reason: str) -> Where:
    """A test of an attribute's value or of an extent.

    Args:
        function: is given the value; gives True or False.
        reason: what it asks, in words that can follow "the pattern takes": ``"square strides"``.

    Raises:
        PluginError: there is no function, or no reason.
    """
    if not callable(function):
        raise PluginError(f"where({shown(function)}, ...) needs a function of the value")
    return Where(function, sentence(reason, "where()"))


def sentence(reason: object, name: str) -> str:
    """``reason``, if it is text on one line; PluginError otherwise."""
    if not isinstance(reason, str) or not reason.strip() or not reason.isprintable():
        raise PluginError(f"{name} needs a reason on one line, not {shown(reason)}", hint="say what it asks, in words")
    return reason


def truth(result: object) -> bool | None:
    """A bool, numpy's too; None for anything else."""
    if isinstance(result, bool):
        return result
    dtype = getattr(result, "dtype", None)
    if getattr(dtype, "kind", None) == "b" and getattr(result, "shape", None) == ():
        return bool(result)
    return None


def shown(value: object) -> str:
    """``value`` for a message, on one line and short."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a repr of someone else's may do anything, and this text only explains
        text = f"a value of type {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 3]}..."


def plain(value: object) -> str:
    """A value found in a model, for an explanation: as `shown`, but words without quotes, and numpy's numbers plain."""
    if isinstance(value, list):
        return shown([_bare(part) for part in value])
    return shown(tuple(map(_bare, value)) if isinstance(value, tuple) else _bare(value))


def _bare(value: object) -> object:
    is_number = hasattr(value, "dtype") and getattr(value, "shape", None) == ()
    return _Bare(value) if is_number or (isinstance(value, str) and _WORDS.fullmatch(value)) else value


@dataclass(frozen=True, repr=False)
class _Bare:
    value: object

    def __repr__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class TensorCondition:
    """What a pattern asks of a type.

    Args:
        dtypes: those it takes; None for any.
        shape: a condition per extent; None for any shape.
        rank: the number of dimensions; None for any.
    """

    dtypes: tuple[str, ...] | None = None
    shape: tuple[Condition, ...] | None = None
    rank: int | None = None

    def holds(self, type_: Type) -> bool:
        return self.fault(type_) is None

    def fault(self, type_: Type) -> tuple[str, str, str] | None:
        """The first thing that is wrong with ``type_``: what, what it is, and what was wanted; None if nothing is.

        Raises:
            PluginError: a test of an extent is at fault.
        """
        if not isinstance(type_, TensorType):
            return "type", str(type_), "one tensor"
        if self.dtypes is not None and type_.dtype not in self.dtypes:
            return "dtype", type_.dtype, " or ".join(self.dtypes)
        if self.rank is not None and len(type_.shape) != self.rank:
            return "rank", f"{len(type_.shape)} (shape {type_.shape})", str(self.rank)
        if self.shape is None:
            return None
        if len(type_.shape) != len(self.shape):
            return "rank", f"{len(type_.shape)} (shape {type_.shape})", str(len(self.shape))
        for dimension, (extent, condition) in enumerate(zip(type_.shape, self.shape, strict=True)):
            if not condition.holds(extent):
                return f"extent {dimension} of shape", f"{extent} (shape {type_.shape})", condition.wanted()
        return None


ANYTHING = TensorCondition()


def tensor_condition(
    dtype: str | Sequence[str] | Anything, shape: Sequence[int | Anything | Where] | None, rank: int | None
) -> TensorCondition:
    """A condition from what a plugin wrote.

    Raises:
        PluginError: a dtype, an extent or the rank is none, or shape and rank are both given.
    """
    if shape is not None and rank is not None:
        raise PluginError("a pattern gives a shape and a rank", hint="the shape says how many dimensions there are")
    if rank is not None and (type(rank) is not int or rank < 0):
        raise PluginError(f"rank {shown(rank)} is not a number of dimensions")
    return TensorCondition(_dtypes(dtype), None if shape is None else _shape(shape), rank)


def _dtypes(dtype: str | Sequence[str] | Anything) -> tuple[str, ...] | None:
    if isinstance(dtype, Anything):
        return None
    names = (dtype,) if isinstance(dtype, str) else _items(dtype, "dtypes")
    for name in names:
        if not isinstance(name, str) or name not in DTYPES:
            raise PluginError(f"unknown dtype {shown(name)} in a pattern", hint=f"one of {', '.join(DTYPES)}, or any_")
    if not names:
        raise PluginError("a pattern takes no dtype at all", hint="any_ takes all of them")
    return names


def _shape(shape: Sequence[int | Anything | Where]) -> tuple[Condition, ...]:
    conditions: list[Condition] = []
    for extent in _items(shape, "a shape"):
        if isinstance(extent, (Anything, Where)):
            conditions.append(extent)
        elif type(extent) is int and extent > 0:
            conditions.append(Fixed(extent))
        else:
            raise PluginError(
                f"extent {shown(extent)} in a pattern's shape",
                hint="a positive number, any_, or where(function, reason)",
            )
    return tuple(conditions)


def _items(values: Iterable[Any], description: str) -> tuple[Any, ...]:
    if not isinstance(values, (tuple, list)):
        raise PluginError(f"{shown(values)} is not {description}", hint="a tuple or a list")
    return tuple(values)
