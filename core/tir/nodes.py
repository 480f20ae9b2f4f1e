"""The loop form: nodes and what they mean.

Expressions are pure, statements have effects, and both are interned. Names are unique within a `PrimFunc`: no
variable or buffer is declared twice, so that nothing ever has to be renamed to be moved.

Arithmetic means the same in the interpreter and in generated C:

- Integers wrap around in two's complement. ``floordiv`` and ``floormod`` round to minus infinity, ``truncdiv`` to
  zero; dividing by zero and shifting by less than 0 or by the width or more is a fault. ``shr`` keeps the sign.
- ``float32`` and ``float64`` are IEEE 754, round to nearest even; a compiler may contract ``a * b + c``.
- ``min(a, b)`` is ``a if a < b else b`` and ``max(a, b)`` is ``a if a > b else b``: where one is NaN, or both are
  zeros, the result is ``b``. So ``min(max(x, low), high)`` is never NaN, and ``max(0, x)`` keeps NaN. An `Update` has
  the buffer as ``a``.
- `Cast` from float to integer truncates and saturates, NaN gives 0; between integers it wraps; to bool it is ``!= 0``.
- `Select` evaluates one branch only, ``and`` and ``or`` the right side only when needed: guarded loads are legal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Literal

from ..errors import InternalError
from ..interning import Node
from .dtype import DTYPES, bits, bounds, is_float, is_integer, is_signed, itemsize
from .scalar import round_float32

__all__ = [
    "BINARY",
    "COMPARISONS",
    "INDEX",
    "MATH",
    "Alloc",
    "Bin",
    "Bind",
    "Block",
    "Buffer",
    "Call",
    "Cast",
    "Expr",
    "For",
    "If",
    "Imm",
    "Load",
    "LoopKind",
    "Param",
    "PrimFunc",
    "Select",
    "Seq",
    "Stmt",
    "Store",
    "Un",
    "Update",
    "Var",
    "const",
    "maximum",
    "minimum",
    "seq",
]

INDEX = "int32"
"""The type of loop variables and indices."""

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
BINARY = (
    *("add", "sub", "mul", "div", "floordiv", "floormod", "truncdiv", "min", "max"),
    *("shl", "shr", "bitand", "bitor", "bitxor", "and", "or"),
    *COMPARISONS,
)
MATH: dict[str, int] = {
    **dict.fromkeys(("exp", "log", "tanh", "erf", "sqrt", "floor", "ceil", "trunc", "round_even"), 1),
    "pow": 2,
    "clz": 1,
}
"""Pure functions and their number of arguments. All but ``clz`` take and give one float type; ``clz`` counts the
leading zero bits of an int32 or uint32 and gives int32, 32 for 0."""

Number = int | float | bool


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Expr(Node):
    """An expression of one scalar type, ``dtype``."""

    dtype: str

    def __repr__(self) -> str:
        # Short on purpose: spelt out, an expression that shares its parts may be exponentially long.
        return f"<{type(self).__name__} {self.dtype}>"

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
        return Bin("ne", self, self._coerce(other))

    def __neg__(self) -> Expr:
        return Un("neg", self)

    def __invert__(self) -> Expr:
        return Un("not", self)

    def astype(self, dtype: str) -> Expr:
        """This value converted to ``dtype``; itself where it has that type, folded where it is a constant."""
        return self if dtype == self.dtype else Cast(self, dtype)


ExprLike = Expr | int | float | bool


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise InternalError(what, where="tir")


@dataclass(frozen=True, eq=False, slots=True, init=False)
class Var(Expr):
    """A loop variable or a bound name."""

    name: str

    def __init__(self, name: str, dtype: str = INDEX) -> None:
        _require(name.isidentifier(), f"{name!r} is not a name")
        _require(dtype in DTYPES, f"variable {name!r} has unknown dtype {dtype!r}")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "dtype", dtype)


@dataclass(frozen=True, eq=False, slots=True, init=False)
class Imm(Expr):
    """A constant. float32 constants are held rounded to float32; integers are in range."""

    value: Number

    def __init__(self, value: Number, dtype: str) -> None:
        _require(dtype in DTYPES, f"constant {value!r} has unknown dtype {dtype!r}")
        if is_float(dtype):
            value = float(value)
            if dtype == "float32":
                value = round_float32(value)
        else:
            whole = value.is_integer() if isinstance(value, float) else int(value) == value
            _require(whole, f"{value!r} is not a whole number, as {dtype} must be")
            low, high = bounds(dtype)
            _require(low <= value <= high, f"constant {value} does not fit {dtype}")
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
        _require(value.dtype == dtype, f"expected {dtype}, got an expression of {value.dtype}")
        return value
    return Imm(value, dtype)


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Bin(Expr):
    """``op(a, b)``; both operands have one type, comparisons give bool."""

    op: str
    a: Expr
    b: Expr

    def __init__(self, op: str, a: Expr, b: Expr) -> None:
        _require(op in BINARY, f"unknown binary operation {op!r}")
        _require(a.dtype == b.dtype, f"{op} of {a.dtype} and {b.dtype}: cast one of them")
        dtype = a.dtype
        if op in ("and", "or"):
            _require(dtype == "bool", f"{op} takes bool, not {dtype}")
        elif op == "div":
            _require(is_float(dtype), f"div takes float, not {dtype}: use floordiv or truncdiv")
        elif op in ("floordiv", "floormod", "truncdiv", "shl", "shr", "bitand", "bitor", "bitxor"):
            _require(is_integer(dtype), f"{op} takes integers, not {dtype}")
        elif op not in ("eq", "ne"):
            _require(dtype != "bool", f"{op} does not take bool")
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "a", a)
        object.__setattr__(self, "b", b)
        object.__setattr__(self, "dtype", "bool" if op in COMPARISONS else dtype)


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Un(Expr):
    """``op(a)``: ``neg`` and ``abs`` of a signed type (the smallest integer stays itself), ``not`` of bool."""

    op: str
    a: Expr

    def __init__(self, op: str, a: Expr) -> None:
        _require(op in ("neg", "abs", "not"), f"unknown unary operation {op!r}")
        fits = a.dtype == "bool" if op == "not" else is_signed(a.dtype)
        _require(fits, f"{op} does not take {a.dtype}")
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "a", a)
        object.__setattr__(self, "dtype", a.dtype)


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Cast(Expr):
    """``a`` converted to ``dtype``."""

    a: Expr

    def __init__(self, a: Expr, dtype: str) -> None:
        _require(dtype in DTYPES, f"cast to unknown dtype {dtype!r}")
        object.__setattr__(self, "a", a)
        object.__setattr__(self, "dtype", dtype)

    def _key(self) -> Hashable:
        return (self.a, self.dtype)


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Select(Expr):
    """``a if condition else b``; only the branch taken is evaluated."""

    condition: Expr
    a: Expr
    b: Expr

    def __init__(self, condition: Expr, a: Expr, b: Expr) -> None:
        _require(condition.dtype == "bool", f"condition is {condition.dtype}, not bool")
        _require(a.dtype == b.dtype, f"select between {a.dtype} and {b.dtype}: cast one of them")
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
        scope: the memory it lives in: ``global`` for what is passed in, ``local`` for the stack of the kernel.
        alignment: of its first byte, in bytes; a power of two, at least the element's size.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    scope: str = "global"
    alignment: int = 0

    def __post_init__(self) -> None:
        _require(self.name.isidentifier(), f"{self.name!r} is not a name")
        _require(self.dtype in DTYPES, f"buffer {self.name!r} has unknown dtype {self.dtype!r}")
        _require(all(extent > 0 for extent in self.shape), f"buffer {self.name!r} has shape {self.shape}")
        alignment = self.alignment or itemsize(self.dtype)
        _require(
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
        return self.size * itemsize(self.dtype)

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Load:
        return Load(self, _indices(indices))


def _indices(indices: ExprLike | Iterable[ExprLike]) -> tuple[Expr, ...]:
    if isinstance(indices, (Expr, int, float)):
        indices = (indices,)
    return tuple(const(index, INDEX) for index in indices)


def _check_access(buffer: Buffer, indices: tuple[Expr, ...]) -> None:
    _require(
        len(indices) == len(buffer.shape),
        f"{buffer.name!r} has {len(buffer.shape)} dimensions and is accessed with {len(indices)} indices",
    )
    for index in indices:
        _require(index.dtype == INDEX, f"index of {buffer.name!r} is {index.dtype}, not {INDEX}")


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Load(Expr):
    """``buffer[indices]``."""

    buffer: Buffer
    indices: tuple[Expr, ...]

    def __init__(self, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        _check_access(buffer, indices)
        object.__setattr__(self, "buffer", buffer)
        object.__setattr__(self, "indices", indices)
        object.__setattr__(self, "dtype", buffer.dtype)


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Call(Expr):
    """A function of `MATH`."""

    name: str
    args: tuple[Expr, ...]

    def __init__(self, name: str, *args: Expr) -> None:
        _require(name in MATH, f"unknown function {name!r}")
        _require(len(args) == MATH[name], f"{name} takes {MATH[name]} arguments, not {len(args)}")
        dtype = args[0].dtype
        if name == "clz":
            _require(is_integer(dtype) and bits(dtype) == 32, f"clz takes int32 or uint32, not {dtype}")
        else:
            fits = is_float(dtype) and all(arg.dtype == dtype for arg in args)
            _require(fits, f"{name} takes arguments of one float type")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "args", args)
        object.__setattr__(self, "dtype", INDEX if name == "clz" else dtype)


def minimum(a: Expr, b: ExprLike) -> Expr:
    """The smaller of ``a`` and ``b``; see ``min`` above for floats."""
    return Bin("min", a, a._coerce(b))


def maximum(a: Expr, b: ExprLike) -> Expr:
    """The larger of ``a`` and ``b``; see ``max`` above for floats."""
    return Bin("max", a, a._coerce(b))


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Stmt(Node):
    """A statement."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Seq(Stmt):
    """Statements in order. Built by `seq`, which keeps it flat; the empty one does nothing."""

    stmts: tuple[Stmt, ...]

    def __post_init__(self) -> None:
        scopes = self.stmts[:-1]
        flat = len(self.stmts) != 1 and not any(isinstance(s, Seq) for s in self.stmts)
        _require(flat and not any(isinstance(s, (Bind, Alloc)) for s in scopes), "a Seq is not flat: build it with seq")


def seq(*stmts: Stmt) -> Stmt:
    """The statements one after the other, in the one normal form.

    Nested sequences are flattened. A `Bind` or `Alloc` takes what follows into its scope, which changes nothing
    since names are unique, and makes the text form unambiguous.
    """
    flat: list[Stmt] = []
    for stmt in stmts:
        flat.extend(stmt.stmts if isinstance(stmt, Seq) else (stmt,))
    for position, stmt in enumerate(flat[:-1]):
        if isinstance(stmt, Bind):
            rest = seq(stmt.body, *flat[position + 1 :])
            return seq(*flat[:position], Bind(stmt.var, stmt.value, rest))
        if isinstance(stmt, Alloc):
            rest = seq(stmt.body, *flat[position + 1 :])
            return seq(*flat[:position], Alloc(stmt.buffer, rest))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


LoopKind = Literal["serial", "parallel", "unrolled"]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class For(Stmt):
    """``body`` for ``var`` = 0 .. ``extent`` - 1. Iterations of a ``parallel`` loop must not depend on one another."""

    var: Var
    extent: Expr
    body: Stmt
    kind: LoopKind = "serial"

    def __post_init__(self) -> None:
        _require(self.extent.dtype == self.var.dtype == INDEX, f"loop {self.var.name!r} does not count in {INDEX}")
        _require(self.kind in ("serial", "parallel", "unrolled"), f"unknown loop kind {self.kind!r}")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class If(Stmt):
    """``then`` where ``condition`` holds, else ``otherwise``, if there is one."""

    condition: Expr
    then: Stmt
    otherwise: Stmt | None = None

    def __post_init__(self) -> None:
        _require(self.condition.dtype == "bool", f"condition is {self.condition.dtype}, not bool")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Bind(Stmt):
    """``var = value`` within ``body``."""

    var: Var
    value: Expr
    body: Stmt

    def __post_init__(self) -> None:
        _require(self.var.dtype == self.value.dtype, f"{self.var.name!r} is {self.var.dtype}, not {self.value.dtype}")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Alloc(Stmt):
    """``buffer`` exists within ``body``, uninitialised at first."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Store(Stmt):
    """``buffer[indices] = value``."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr

    def __post_init__(self) -> None:
        _check_access(self.buffer, self.indices)
        _require(self.value.dtype == self.buffer.dtype, f"{self.value.dtype} stored to {self.buffer.name!r}")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Update(Stmt):
    """``buffer[indices] = op(buffer[indices], value)`` with ``op`` one of add, mul, min, max: one step of a reduction.

    Steps of one reduction may be reordered for integers, never for floats.
    """

    op: str
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr

    def __post_init__(self) -> None:
        _check_access(self.buffer, self.indices)
        _require(self.op in ("add", "mul", "min", "max"), f"unknown reduction {self.op!r}")
        _require(self.value.dtype == self.buffer.dtype, f"{self.value.dtype} stored to {self.buffer.name!r}")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Block(Stmt):
    """``body`` under a label, unique in its function, by which passes and schedules address it."""

    label: str
    body: Stmt

    def __post_init__(self) -> None:
        _require(self.label.isidentifier(), f"{self.label!r} is not a label")


Role = Literal["input", "output", "constant", "workspace"]


@dataclass(frozen=True, eq=False, slots=True)
class Param(Node):
    """A parameter of a `PrimFunc`. Inputs and constants are read, outputs written, workspaces both."""

    buffer: Buffer
    role: Role

    def __post_init__(self) -> None:
        _require(self.role in _ROLES, f"parameter {self.buffer.name!r} has unknown role {self.role!r}")
        _require(self.buffer.scope == "global", f"parameter {self.buffer.name!r} has scope {self.buffer.scope!r}")


_ROLES = ("input", "output", "constant", "workspace")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class PrimFunc(Node):
    """A kernel. It has no name: a module names it, and two that are equal are one.

    Args:
        params: inputs, then outputs, constants and workspaces.
        body: what it does; every output element is written before it is read.
        may_alias: pairs (output, input) of parameter names that may be the same memory; all others are distinct.
    """

    params: tuple[Param, ...]
    body: Stmt
    may_alias: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        order = [_ROLES.index(param.role) for param in self.params]
        _require(order == sorted(order), "parameters must come as inputs, outputs, constants, workspaces")
        roles = {param.buffer.name: param.role for param in self.params}
        _require(len(roles) == len(self.params), "two parameters share a name")
        for out, given in self.may_alias:
            fits = roles.get(out) == "output" and roles.get(given) == "input"
            _require(fits, f"may_alias names ({out!r}, {given!r}), not an output and an input")

    def buffers(self, role: Role) -> tuple[Buffer, ...]:
        """The parameters of one role, in order."""
        return tuple(param.buffer for param in self.params if param.role == role)
