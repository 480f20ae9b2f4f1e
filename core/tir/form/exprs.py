"""Expressions of the loop form, and the buffers that they read; see `nodes`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ...errors import InternalError
from ...support.interning import Node
from .dtype import DTYPES, bounds, computes, is_float, is_integer, is_signed, itemsize
from .fields import READ
from .functions import FUNCTIONS
from .scalar_semantics import binary, cast, round_float, unary

__all__ = [
    "BINARY",
    "COMPARISONS",
    "INDEX",
    "Bin",
    "Buffer",
    "Call",
    "Cast",
    "Expr",
    "ExprLike",
    "Imm",
    "Load",
    "Select",
    "Symbolic",
    "Un",
    "Var",
    "check_access",
    "const",
    "flat_element",
    "maximum",
    "minimum",
    "require",
]

INDEX = "int32"
"""The type of loop variables and indices."""

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
"""The operations of `Bin` that give bool."""

BINARY = (
    *("add", "sub", "mul", "div", "floordiv", "floormod", "truncdiv", "min", "max"),
    *("shl", "shr", "bitand", "bitor", "bitxor", "and", "or"),
    *COMPARISONS,
)
"""The operations of `Bin`, on two operands of one type."""
Number = int | float | bool

Meaning = Callable[..., Any]
"""A function of Python's values: bool, int or float, as the dtypes say. It may raise `UndefinedResult`."""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Expr(Node):
    """An expression of one scalar type, ``dtype``."""

    dtype: str

    def __repr__(self) -> str:
        # Short on purpose: spelt out, an expression that shares its parts may be exponentially long.
        return f"<{type(self).__name__} {self.dtype}>"

    @property
    def meaning(self) -> Meaning | None:
        """What it computes from the values of all its operands; None where it is not a function of these."""
        return None

    @property
    def is_exact(self) -> bool:
        """Whether ``meaning`` gives the same bits as compiled code, everywhere."""
        return True

    def _coerce(self, other: ExprLike) -> Expr:
        return other if isinstance(other, Expr) else const(other, self.dtype)

    def __add__(self, other: ExprLike) -> Expr:
        return Bin("add", self, self._coerce(other))

    def __radd__(self, other: ExprLike) -> Expr:
        return Bin("add", self._coerce(other), self)

    def __sub__(self, other: ExprLike) -> Expr:
        return Bin("sub", self, self._coerce(other))

    def __rsub__(self, other: ExprLike) -> Expr:
        return Bin("sub", self._coerce(other), self)

    def __mul__(self, other: ExprLike) -> Expr:
        return Bin("mul", self, self._coerce(other))

    def __rmul__(self, other: ExprLike) -> Expr:
        return Bin("mul", self._coerce(other), self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return Bin("div", self, self._coerce(other))

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return Bin("div", self._coerce(other), self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return Bin("floordiv", self, self._coerce(other))

    def __mod__(self, other: ExprLike) -> Expr:
        return Bin("floormod", self, self._coerce(other))

    def __lshift__(self, other: ExprLike) -> Expr:
        return Bin("shl", self, self._coerce(other))

    def __rshift__(self, other: ExprLike) -> Expr:
        return Bin("shr", self, self._coerce(other))

    def __and__(self, other: ExprLike) -> Expr:
        return Bin("and" if self.dtype == "bool" else "bitand", self, self._coerce(other))

    def __or__(self, other: ExprLike) -> Expr:
        return Bin("or" if self.dtype == "bool" else "bitor", self, self._coerce(other))

    def __xor__(self, other: ExprLike) -> Expr:
        return Bin("bitxor", self, self._coerce(other))

    def __lt__(self, other: ExprLike) -> Expr:
        return Bin("lt", self, self._coerce(other))

    def __le__(self, other: ExprLike) -> Expr:
        return Bin("le", self, self._coerce(other))

    def __gt__(self, other: ExprLike) -> Expr:
        return Bin("gt", self, self._coerce(other))

    def __ge__(self, other: ExprLike) -> Expr:
        return Bin("ge", self, self._coerce(other))

    def equal(self, other: ExprLike) -> Expr:
        """The comparison; ``==`` is identity of nodes."""
        return Bin("eq", self, self._coerce(other))

    def not_equal(self, other: ExprLike) -> Expr:
        """Whether the values differ; ``!=`` compares the expressions."""
        return Bin("ne", self, self._coerce(other))

    def __neg__(self) -> Expr:
        return Un("neg", self)

    def __invert__(self) -> Expr:
        return Un("not", self)

    def astype(self, dtype: str) -> Expr:
        """This value converted to ``dtype``; itself where it has that type, folded where it is a constant."""
        return self if dtype == self.dtype else Cast(self, dtype)


class Symbolic:
    """A number that is known when the loops run: see `uma.tir.form.symbolic_dims.Extent`."""

    __slots__ = ()

    def expression(self, dtype: str) -> Expr:
        """It as an expression of type ``dtype``."""
        raise NotImplementedError  # each kind has its own


ExprLike = Expr | int | float | bool | Symbolic


def require(condition: bool, what: str) -> None:
    """Raise an `InternalError` that says ``what``, unless ``condition`` holds."""
    if not condition:
        raise InternalError(what, where="tir")


@dataclass(frozen=True, eq=False, slots=True, init=False)
class Var(Expr):
    """A loop variable or a bound name."""

    name: str

    def __init__(self, name: str, dtype: str = INDEX) -> None:
        require(name.isidentifier(), f"{name!r} is not a name")
        require(dtype in DTYPES, f"variable {name!r} has unknown dtype {dtype!r}")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "dtype", dtype)


@dataclass(frozen=True, eq=False, slots=True, init=False)
class Imm(Expr):
    """A constant. Those of float types are held rounded to it; integers are in range."""

    value: Number

    def __init__(self, value: Number, dtype: str) -> None:
        require(dtype in DTYPES, f"constant {value!r} has unknown dtype {dtype!r}")
        if is_float(dtype):
            value = round_float(value, dtype)
        else:
            is_whole = value.is_integer() if isinstance(value, float) else int(value) == value
            low, high = bounds(dtype)
            if not is_whole or not low <= value <= high:
                require(is_whole, f"{value!r} is not a whole number, as {dtype} must be")
                require(False, f"constant {value} does not fit {dtype}")
            value = bool(value) if dtype == "bool" else int(value)
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "dtype", dtype)

    def _key(self) -> Hashable:
        # float.hex tells -0.0 from 0.0 and makes NaN equal to itself.
        return (self.dtype, self.value.hex() if isinstance(self.value, float) else self.value)


def const(value: ExprLike, dtype: str = INDEX) -> Expr:
    """``value`` as an expression of type ``dtype``.

    Raises:
        InternalError: the value does not fit, or is an expression of another type.
    """
    if isinstance(value, Expr):
        require(value.dtype == dtype, f"expected {dtype}, got an expression of {value.dtype}")
        return value
    return value.expression(dtype) if isinstance(value, Symbolic) else Imm(value, dtype)


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Bin(Expr):
    """``op(a, b)``; both operands have one type, comparisons give bool."""

    op: str
    a: Expr
    b: Expr

    def __init__(self, op: str, a: Expr, b: Expr) -> None:
        dtype = _binary_dtype(op, a.dtype, b.dtype)
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "a", a)
        object.__setattr__(self, "b", b)
        object.__setattr__(self, "dtype", dtype)

    @property
    def meaning(self) -> Meaning:
        return binary(self.op, self.a.dtype)


@lru_cache(maxsize=1024)  # expressions are made all the time
def _binary_dtype(op: str, a: str, b: str) -> str:
    """The type of an operation on operands of two types."""
    require(op in BINARY, f"unknown binary operation {op!r}")
    require(a == b, f"{op} of {a} and {b}: cast one of them")
    require(computes(a), f"{op} does not take {a}: cast it to float32")
    if op in ("and", "or"):
        require(a == "bool", f"{op} takes bool, not {a}")
    elif op == "div":
        require(is_float(a), f"div takes float, not {a}: use floordiv or truncdiv")
    elif op in ("floordiv", "floormod", "truncdiv", "shl", "shr", "bitand", "bitor", "bitxor"):
        require(is_integer(a), f"{op} takes integers, not {a}")
    elif op not in ("eq", "ne"):
        require(a != "bool", f"{op} does not take bool")
    return "bool" if op in COMPARISONS else a


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Un(Expr):
    """``op(a)``: ``neg`` and ``abs`` of a signed type (the smallest integer stays itself), ``not`` of bool."""

    op: str
    a: Expr

    def __init__(self, op: str, a: Expr) -> None:
        require(op in ("neg", "abs", "not"), f"unknown unary operation {op!r}")
        fits = a.dtype == "bool" if op == "not" else is_signed(a.dtype) and computes(a.dtype)
        require(fits, f"{op} does not take {a.dtype}")
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "a", a)
        object.__setattr__(self, "dtype", a.dtype)

    @property
    def meaning(self) -> Meaning:
        return unary(self.op, self.dtype)


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Cast(Expr):
    """``a`` converted to ``dtype``; a float16 from and to wider floats only."""

    a: Expr

    def __init__(self, a: Expr, dtype: str) -> None:
        require(dtype in DTYPES, f"cast to unknown dtype {dtype!r}")
        half = "float16" in (a.dtype, dtype)
        require(not half or (is_float(a.dtype) and is_float(dtype)), f"{a.dtype} becomes {dtype} by way of float32")
        object.__setattr__(self, "a", a)
        object.__setattr__(self, "dtype", dtype)

    def _key(self) -> Hashable:
        return (self.a, self.dtype)

    @property
    def meaning(self) -> Meaning:
        return cast(self.a.dtype, self.dtype)


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Select(Expr):
    """``a if condition else b``; only the branch taken is evaluated."""

    condition: Expr
    a: Expr
    b: Expr

    def __init__(self, condition: Expr, a: Expr, b: Expr) -> None:
        require(condition.dtype == "bool", f"condition is {condition.dtype}, not bool")
        require(a.dtype == b.dtype, f"select between {a.dtype} and {b.dtype}: cast one of them")
        object.__setattr__(self, "condition", condition)
        object.__setattr__(self, "a", a)
        object.__setattr__(self, "b", b)
        object.__setattr__(self, "dtype", a.dtype)


@dataclass(frozen=True, eq=False, slots=True)
class Buffer(Node):
    """A dense row-major array.

    Args:
        name: unique within its function.
        shape: extents, all positive; ``()`` is a scalar.
        dtype: element type.
        scope: the memory it lives in: ``global`` for what is passed in, ``local`` for the stack of the kernel,
            ``register`` for variables of C, a vector each where a ``vectorized`` loop runs along the last dimension,
            else the name of an accelerator's own memory, `Memory`.
        alignment: of its first byte, in bytes; a power of two, at least the element's size.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    scope: str = "global"
    alignment: int = 0

    @property
    def _largest(self) -> tuple[int, ...]:
        """The shape that it has memory for."""
        return self.shape

    def __post_init__(self) -> None:
        require(self.name.isidentifier(), f"{self.name!r} is not a name")
        require(self.dtype in DTYPES, f"buffer {self.name!r} has unknown dtype {self.dtype!r}")
        require(all(extent > 0 for extent in self._largest), f"buffer {self.name!r} has shape {self.shape}")
        alignment = self.alignment or itemsize(self.dtype)
        require(
            alignment >= itemsize(self.dtype) and alignment & (alignment - 1) == 0,
            f"buffer {self.name!r} has alignment {alignment}",
        )
        object.__setattr__(self, "alignment", alignment)

    @property
    def size(self) -> int:
        """Number of elements."""
        total = 1
        for extent in self.shape:
            total *= extent
        return total

    @property
    def nbytes(self) -> int:
        """What its elements take, in bytes."""
        return self.size * itemsize(self.dtype)

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Load:
        return Load(self, _indices(indices))


def _indices(indices: ExprLike | Iterable[ExprLike]) -> tuple[Expr, ...]:
    if isinstance(indices, (Expr, int, float, Symbolic)):
        indices = (indices,)
    return tuple(const(index, INDEX) for index in indices)


def check_access(buffer: Buffer, indices: tuple[Expr, ...]) -> None:
    """Raise an `InternalError` unless ``indices`` are as many indices as ``buffer`` has dimensions."""
    rank = len(buffer.shape)
    if len(indices) != rank:
        require(False, f"{buffer.name!r} has {rank} dimensions and is accessed with {len(indices)} indices")
    for index in indices:
        if index.dtype != INDEX:
            require(False, f"index of {buffer.name!r} is {index.dtype}, not {INDEX}")


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Load(Expr):
    """``buffer[indices]``."""

    buffer: Buffer = field(metadata=READ)
    indices: tuple[Expr, ...]

    def __init__(self, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        check_access(buffer, indices)
        object.__setattr__(self, "buffer", buffer)
        object.__setattr__(self, "indices", indices)
        object.__setattr__(self, "dtype", buffer.dtype)


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Call(Expr):
    """A function of `FUNCTIONS` applied."""

    name: str
    args: tuple[Expr, ...]

    def __init__(self, name: str, *args: Expr) -> None:
        require(name in FUNCTIONS, f"unknown function {name!r}")
        row = FUNCTIONS[name]
        require(len(args) == row.arity, f"{name} takes {row.arity} arguments, not {len(args)}")
        dtype = args[0].dtype
        fits = dtype in row.takes and all(arg.dtype == dtype for arg in args)
        if is_float(row.takes[0]):
            require(fits, f"{name} takes arguments of one float type")
        dtypes = " and ".join(dict.fromkeys(arg.dtype for arg in args))
        require(fits, f"{name} takes {' or '.join(row.takes)}, not {dtypes}")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "args", args)
        object.__setattr__(self, "dtype", row.result(dtype))

    @property
    def meaning(self) -> Meaning:
        return FUNCTIONS[self.name].value(self.args[0].dtype)

    @property
    def is_exact(self) -> bool:
        return FUNCTIONS[self.name].is_exact(self.args[0].dtype)


def flat_element(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The position of an element, counted from the start of its buffer."""
    total: Expr = Imm(0, INDEX)
    for extent, index in zip(buffer.shape, indices, strict=True):
        if extent == 1:
            continue
        if not isinstance(total, Imm):
            total = total * extent
        elif total.value:
            total = Imm(total.value * extent, INDEX)
        if isinstance(total, Imm) and isinstance(index, Imm):
            total = Imm(total.value + index.value, INDEX)
        elif isinstance(total, Imm) and not total.value:
            total = index
        elif not isinstance(index, Imm) or index.value:
            total = total + index
    return total


def minimum(a: Expr, b: ExprLike) -> Expr:
    """The smaller of ``a`` and ``b``; see ``min`` above for floats."""
    return Bin("min", a, a._coerce(b))


def maximum(a: Expr, b: ExprLike) -> Expr:
    """The larger of ``a`` and ``b``; see ``max`` above for floats."""
    return Bin("max", a, a._coerce(b))
