"""The graph form: immutable, interned expressions that know their types.

Building the same expression twice gives the same object. A bad call cannot be built: the constructor infers the
type and raises. Functions are closed: a body mentions no variables but its function's own parameters.
"""

from __future__ import annotations

import hashlib
import keyword
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ModelError
from ..support.import_budget import require_memory, spend_memory
from ..support.interning import Node
from ..tir.form.symbolic_dims import bounds_of
from .op import Attrs, Op, get_op
from .types import FuncType, TensorType, TupleType, Type, tensor_type

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Call",
    "Constant",
    "Control",
    "Expr",
    "Function",
    "GlobalVar",
    "If",
    "Loop",
    "Tuple",
    "TupleGetItem",
    "Var",
    "call",
    "const",
    "effort_of",
    "is_open",
    "macs_of",
    "tensors_of",
]


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Expr(Node):
    """A value of type ``type``."""

    type: Type

    @property
    def tensor(self) -> TensorType:
        """The type, where it is a tensor's; ModelError otherwise."""
        return tensor_type(self.type)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor; ModelError where it is none."""
        return self.tensor.shape

    @property
    def dtype(self) -> str:
        """The dtype of the tensor; ModelError where it is none."""
        return self.tensor.dtype

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        # Short on purpose: an expression may be 50,000 nodes deep. `relay.print_module` shows all of it.
        return f"<{type(self).__name__} {self.type}>"


def _check_name(name: str, role: str) -> None:
    # Names stand as they are in the text form and in C; ``const`` spells a constant there.
    if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name) or name == "const":
        raise ModelError(f"{name!r} is not a name for {role}", hint="ASCII letters, digits and underscores, no keyword")


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Var(Expr):
    """A parameter of a function, a tensor or a tuple of them.

    Its name is its identity: two inputs of one type are two variables.

    Args:
        name: an identifier.
        type_: a `TensorType` or `TupleType`.

    Raises:
        ModelError: the name is none, or the type is a function's.
    """

    name: str

    def __init__(self, name: str, type_: Type) -> None:
        _check_name(name, "a variable")
        if isinstance(type_, FuncType):
            raise ModelError(f"variable {name!r} cannot be a function")
        self._set(name=name, type=type_)


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Constant(Expr):
    """A tensor known at compile time. Two with the same type and content are one. Built by `const`.

    Args:
        type_: its type.
        digest: of its content.
        data: its elements, an array of that shape and dtype that nobody changes.
    """

    digest: str
    data: np.ndarray

    def __init__(self, type_: TensorType, digest: str, data: np.ndarray) -> None:
        self._set(type=type_, digest=digest, data=data)

    def _key(self) -> Hashable:
        return (self.type, self.digest)


def const(value: Any, dtype: str | None = None) -> Constant:
    """A constant holding a copy of ``value``.

    Args:
        value: an array, a number, or nested sequences of numbers.
        dtype: what to convert to; by default the array's own, int32 and float32 for plain numbers.

    Raises:
        ModelError: the dtype is not one of ours, the array is empty or ragged, or numbers do not fit an integer type.
    """
    import numpy as np

    try:
        array = np.asarray(value)
        if dtype is None:
            plain = {} if isinstance(value, (np.ndarray, np.generic)) else {"i": "int32", "f": "float32"}
            dtype = plain.get(array.dtype.kind, array.dtype.name)
        type_ = TensorType(array.shape, dtype)
        require_memory(type_.nbytes)
        with np.errstate(over="ignore", invalid="ignore"):
            data = np.array(array, dtype=np.dtype(dtype).newbyteorder("<"), order="C")
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(f"this is not an array of numbers: {error}") from error
    if data.dtype.kind in "iub" and array.dtype != data.dtype and not np.array_equal(data, array):
        raise ModelError(f"a constant of {dtype} cannot hold these numbers of {array.dtype.name}")
    spend_memory(data.nbytes)
    raw = data.tobytes()
    # Over bytes, which nobody can make writeable again.
    return Constant(type_, hashlib.sha256(raw).hexdigest(), np.frombuffer(raw, data.dtype).reshape(data.shape))


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class GlobalVar(Expr):
    """The name of a function of the module.

    Args:
        name: an identifier.
        type_: what the function takes and gives.

    Raises:
        ModelError: the name is not an identifier.
    """

    name: str

    def __init__(self, name: str, type_: FuncType) -> None:
        _check_name(name, "a function")
        self._set(name=name, type=type_)


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Function(Expr):
    """A closed function.

    Args:
        params: its parameters, with different names.
        body: its result.
        attrs: pairs of a name and a string, sorted by name: ``Composite`` (the pattern's name), ``Compiler`` (the
            target's label), ``Primitive`` (one kernel), ``global_symbol``. They are part of its identity.

    Raises:
        ModelError: two parameters share a name, the result is a function, or an attribute is malformed.
    """

    params: tuple[Var, ...]
    body: Expr
    attrs: tuple[tuple[str, str], ...]

    def __init__(self, params: Sequence[Var], body: Expr, attrs: Mapping[str, str] | None = None) -> None:
        if len({param.name for param in params}) != len(params):
            raise ModelError(f"two parameters share a name: {', '.join(param.name for param in params)}")
        if isinstance(body.type, FuncType):
            raise ModelError("the result of a function cannot be a function")
        items = sorted((attrs or {}).items())
        for key, value in items:
            _check_name(key, "an attribute of a function")
            if not isinstance(value, str):
                raise ModelError(f"attribute {key!r} of a function is {value!r}, not a string")
        self._set(
            params=tuple(params),
            body=body,
            attrs=tuple(items),
            type=FuncType(tuple(param.type for param in params), body.type),
        )

    def attr(self, name: str) -> str | None:
        """The attribute's value, None where it is not set."""
        return dict(self.attrs).get(name)


_FLAG = TensorType((), "bool")


def _signature_of(function: GlobalVar, role: str) -> FuncType:
    """What a function of control flow takes and gives; ModelError where it takes what is not a tensor."""
    type_ = function.type
    assert isinstance(type_, FuncType)  # a GlobalVar's is
    if not all(isinstance(param, TensorType) for param in type_.params):
        raise ModelError(f"{role}, {function.name!r}, takes a tuple; control flow hands on tensors")
    return type_


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class If(Expr):
    """What a call takes one of two functions by: ``If(then, otherwise)(condition, ...)``, the condition a bool of shape
    (). Both take the other arguments; one of them is run.

    Args:
        then, otherwise: functions of the module, of one type.

    Raises:
        ModelError: they are of different types, or take a tuple.
    """

    then: GlobalVar
    otherwise: GlobalVar

    def __init__(self, then: GlobalVar, otherwise: GlobalVar) -> None:
        type_ = _signature_of(then, "the first branch")
        if otherwise.type is not type_:
            raise ModelError(f"the branches of an If are of different types: {type_} and {otherwise.type}")
        self._set(then=then, otherwise=otherwise, type=FuncType((_FLAG, *type_.params), type_.result))


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Loop(Expr):
    """What a call runs a function by as long as a value is true: ``Loop(body, n)(go, ...)``.

    The first ``n`` arguments are carried: the body takes them with all others, which stay as they are, and gives their
    next values as a tuple. The first of them, a bool of shape (), says before each turn whether there is one. The call
    gives the carried values after the last turn; those that it was given where there is none.

    Args:
        body: a function of the module.
        carried: how many values are.

    Raises:
        ModelError: the body does not give what it is to be carried, or takes a tuple.
    """

    body: GlobalVar
    carried: int

    def __init__(self, body: GlobalVar, carried: int) -> None:
        type_ = _signature_of(body, "the body of a Loop")
        if not 0 < carried <= len(type_.params) or type_.params[0] is not _FLAG:
            raise ModelError(
                f"the body of a Loop of {carried} values, the first a bool of shape (), is of type {type_}"
            )
        values = TupleType(tuple(tensor_type(param) for param in type_.params[:carried]))
        if type_.result is not values:
            raise ModelError(f"the body of a Loop takes {values} and gives {type_.result}")
        self._set(body=body, carried=int(carried), type=type_)


Control = (If, Loop)
"""What a call runs functions of the module by."""

Callee = Op | GlobalVar | Function | If | Loop


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Call(Expr):
    """A call of an op, with attributes, or of a function, without.

    Args:
        op: what is called.
        args: what it is given.
        attrs: of the op; what is not given has its default.
        pin: the label of the target that it must run on; None where anyone may have it, and where the function that is
            called says by its attribute ``Compiler`` where it runs. It is part of the call's identity.

    Raises:
        ModelError: the arguments or the attributes do not fit, the message names the op and their types; or the pin is
            no label.
    """

    op: Callee
    args: tuple[Expr, ...]
    attrs: Attrs
    pin: str | None

    def __init__(
        self,
        op: Callee,
        args: Sequence[Expr],
        attrs: Mapping[str, Any] | Attrs | None = None,
        pin: str | None = None,
    ) -> None:
        types = tuple(arg.type for arg in args)
        if isinstance(op, Op):
            normalised = op.make_attrs(dict(attrs.items) if isinstance(attrs, Attrs) else attrs or {})
            type_ = op.infer_type(types, normalised)
        else:
            normalised = Attrs(())
            expected = op.type
            if not isinstance(expected, FuncType) or expected.params != types:
                raise ModelError(f"a function of type {expected} is called with ({', '.join(map(str, types))})")
            if attrs not in (None, {}, normalised):
                raise ModelError("the call of a function takes no attributes")
            type_ = expected.result
        if pin is not None:
            label: object = pin
            if not isinstance(label, str) or not (label.isascii() and label.isidentifier()):
                raise ModelError(
                    f"{pin!r} is not a label to pin a call to", hint="ASCII letters, digits and underscores"
                )
        self._set(op=op, args=tuple(args), attrs=normalised, pin=pin, type=type_)

    @property
    def op_name(self) -> str | None:
        """The op's name; None for the call of a function."""
        return self.op.name if isinstance(self.op, Op) else None

    def pinned(self, label: str | None) -> Call:
        """This call pinned to the target of that label and no other; with None, to none."""
        return self if label == self.pin else Call(self.op, self.args, self.attrs, label)


def call(name: str, *args: Expr, **attrs: Any) -> Call:
    """A call of the op called ``name``: ``call("nn.conv2d", data, weight, strides=(2, 2))``.

    Args:
        name: of an op of the core, or of a plugin whose ops are known here.
        args: its operands, in order.
        attrs: its attributes; what is not given has its default.

    Raises:
        ModelError: the op is unknown or the call is ill-typed.
    """
    return Call(get_op(name), args, attrs)


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Tuple(Expr):
    """Several tensors as one value; ModelError where one is not a tensor, or there is none."""

    fields: tuple[Expr, ...]

    def __init__(self, fields: Sequence[Expr]) -> None:
        self._set(fields=tuple(fields), type=TupleType(tuple(f.tensor for f in fields)))


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class TupleGetItem(Expr):
    """Field ``index`` of a tuple; ModelError where there is none."""

    tuple: Expr
    index: int

    def __init__(self, tuple_: Expr, index: int) -> None:
        if not isinstance(tuple_.type, TupleType) or not 0 <= index < len(tuple_.type.fields):
            raise ModelError(f"there is no field {index} in {tuple_.type}")
        self._set(tuple=tuple_, index=int(index), type=tuple_.type.fields[index])


def tensors_of(type_: Type) -> tuple[TensorType, ...]:
    """The tensors that a value of a type consists of; of a function none."""
    return type_.fields if isinstance(type_, TupleType) else (type_,) if isinstance(type_, TensorType) else ()


def is_open(expr: Expr) -> bool:
    """Whether an expression has an open extent, or is computed from what has one."""
    parts = (expr, *expr.args) if isinstance(expr, Call) else (expr,)
    return any(tensor.is_open for part in parts for tensor in tensors_of(part.type))


_MACS_PER_OPERATION = 8
"""Multiply-accumulates of one product of matrices that numpy does in the time of an operation on one element."""


def effort_of(call: Call) -> tuple[int, int]:
    """Return the bytes at a time and the scalar operations that the reference of an op's call needs, at most.

    Multiply-accumulates of an op that declares no further effort are those of one product of matrices.
    """
    assert isinstance(call.op, Op)
    tensors = [type_.bound for type_ in (*map(tensor_type, (arg.type for arg in call.args)), *tensors_of(call.type))]
    more = 0 if call.op.effort is None else call.op.effort(call.attrs, call.type, *(arg.type for arg in call.args))
    elements = sum(type_.size for type_ in tensors)
    products = macs_of(call) // (_MACS_PER_OPERATION if call.op.effort is None else 1)
    return 8 * (elements + more), elements + products + more


def macs_of(call: Call) -> int:
    """How many multiply-accumulates the call of an op is; with open extents, at most."""
    if not isinstance(call.op, Op) or call.op.macs is None:
        return 0
    return int(bounds_of(call.op.macs(call.attrs, call.type, *(arg.type for arg in call.args)))[1])
