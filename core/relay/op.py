"""Declaring operators: everything there is to say of one, in one place.

An op's declaration is the only place that knows it. The verifier, the parser, the docs, the reference interpreter,
constant folding, lowering and the pattern language all derive from it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

from ..errors import InternalError, ModelError
from ..support.interning import Node
from ..support.interruptible import call_interruptibly
from ..support.rounding import ROUNDINGS
from ..tir.form.dtype import DTYPES, computes
from ..tir.form.scalar_semantics import round_float32
from ..tir.form.symbolic_dims import Dim, Extent, OpenExtentError
from .types import TensorType, TupleType, Type, tensor_type

if TYPE_CHECKING:
    import numpy as np

    from ..tir.form.nodes import PrimFunc
    from ..tir.te.tensors import Tensor

__all__ = [
    "MISSING",
    "ROUNDINGS",
    "Attr",
    "AttrType",
    "Attrs",
    "Boolean",
    "Bounds",
    "Choice",
    "Dtype",
    "FixedPoint",
    "FloatScale",
    "Int",
    "Ints",
    "Kind",
    "NanRule",
    "Op",
    "Real",
    "Scale",
    "Specials",
    "Text",
    "define_op",
    "get_op",
    "known_ops",
    "register_op",
    "registered_ops",
]


_LARGE = 2**24
"""How many elements, or products of operands' elements, a reference may have to compute before a signal must be able to
end it: some hundredths of a second."""


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()
"""An attribute has no such value."""


@dataclass(frozen=True)
class FixedPoint:
    """Scales as 31-bit fixed-point numbers: channel c is multiplied by ``multiplier[c] * 2 ** (shift[c] - 31)``.

    Args:
        multiplier: one per channel, or one for all; 0 or in [2**30, 2**31), or smaller at the cost of precision.
        shift: the exponent, positive to the left; as many as multipliers, each in -31 .. 30.
        rounding: how the product with the integer x becomes an integer. With s = 31 - shift:

            - ``double``: rounds twice, as gemmlowp and TFLite's reference convolutions do. First
              ``high = (y * multiplier + 2**30) >> 31`` (a rounding doubling high multiply), where y is
              ``x * 2**max(shift, 0)`` wrapped to int32; then ``high / 2**max(-shift, 0)``, half away from zero.
            - ``up``: once, half towards plus infinity: ``(x * multiplier + 2**(s - 1)) >> s``.
            - ``even``: once, half to even.
            - ``away``: once, half away from zero.

        The result is an exact integer, which what follows (a zero point, saturation) takes as it is.
    """

    multiplier: tuple[int, ...]
    shift: tuple[int, ...]
    rounding: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "multiplier", _numbers(_int, self.multiplier, "multipliers"))
        object.__setattr__(self, "shift", _numbers(_int, self.shift, "shifts"))
        if self.rounding not in ROUNDINGS:
            raise ModelError(f"unknown rounding {self.rounding!r}", hint=f"one of {', '.join(ROUNDINGS)}")
        if not self.multiplier or len(self.multiplier) != len(self.shift):
            raise ModelError(f"{len(self.multiplier)} multipliers and {len(self.shift)} shifts")
        for m, s in zip(self.multiplier, self.shift, strict=True):
            if not 0 <= m < 2**31 or not -31 <= s <= 30:
                raise ModelError(f"fixed-point scale {m} * 2**({s} - 31) is out of range")

    def __len__(self) -> int:
        return len(self.multiplier)

    @property
    def is_one(self) -> bool:
        """Whether all channels are multiplied by 1, as `fixed_point` says it."""
        return set(zip(self.multiplier, self.shift, strict=True)) == {(1 << 30, 1)}


@dataclass(frozen=True)
class FloatScale:
    """Scales as float32: the product with the integer is taken in float32 and rounded half to even.

    Args:
        scale: one per channel, or one for all; finite and positive, held rounded to float32.
    """

    scale: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", tuple(map(round_float32, _numbers(_real, self.scale, "scales"))))
        if not self.scale:
            raise ModelError("a scale needs at least one number")
        for s in self.scale:
            if not (math.isfinite(s) and s > 0):
                raise ModelError(f"scale {s} is not a positive finite number")

    def __len__(self) -> int:
        return len(self.scale)

    @property
    def is_one(self) -> bool:
        """Whether all channels are multiplied by 1."""
        return set(self.scale) == {1.0}


def _numbers(normalise: Callable[[Any], Any], values: Any, subject: str) -> tuple[Any, ...]:
    try:
        return tuple(map(normalise, values))
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"{subject} {values!r}: {error}") from error


@dataclass(frozen=True)
class AttrType:
    """How an attribute's value is checked and brought into its one normal form.

    Args:
        name: for docs and errors.
        normalise: gives the normal form, hashable and equal only to itself; raises ValueError or TypeError.
    """

    name: str
    normalise: Callable[[Any], Any]


def _int(value: Any) -> Any:
    if isinstance(value, Extent):
        return value
    if isinstance(value, bool) or int(value) != value:
        raise ValueError("not a whole number")
    return int(value)


def _real(value: Any) -> float:
    if isinstance(value, (bool, str)):
        raise TypeError("not a number")
    result = float(value)
    if isinstance(value, int) and result != value:
        raise ValueError("no float64 is this number")
    return result


def _bool(value: Any) -> bool:
    if value not in (True, False):
        raise ValueError("not True or False")
    return bool(value)


def _dtype(value: Any) -> str:
    if value not in DTYPES:
        raise ValueError(f"not one of {', '.join(DTYPES)}")
    return str(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a string")
    return str(value)


def _scale(value: Any) -> FixedPoint | FloatScale:
    if not isinstance(value, (FixedPoint, FloatScale)):
        raise TypeError("not a FixedPoint or FloatScale")
    return value


Int = AttrType("int", _int)
Real = AttrType("float", _real)
Boolean = AttrType("bool", _bool)
Dtype = AttrType("dtype", _dtype)
Text = AttrType("str", _text)
Scale = AttrType("FixedPoint or FloatScale", _scale)


def Ints(length: int | None = None) -> AttrType:
    """A tuple of integers, of a fixed length where one is given."""

    def normalise(value: Any) -> tuple[int, ...]:
        result = tuple(map(_int, value))
        if length is not None and len(result) != length:
            raise ValueError(f"not {length} integers")
        return result

    return AttrType("ints" if length is None else f"{length} ints", normalise)


def Choice(*choices: str) -> AttrType:
    """One of some words."""

    def normalise(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"not one of {', '.join(choices)}")
        return str(value)

    return AttrType(" | ".join(choices), normalise)


@dataclass(frozen=True)
class Attr:
    """One attribute of an op.

    Args:
        name: keyword of the constructor.
        type: what it may hold.
        doc: one line.
        neutral: the value that does nothing, which is the default then. Attributes without one (a rounding, an axis)
            must be named by every pattern.
        default: the default of an attribute that has no neutral value; without either it must be given.
    """

    name: str
    type: AttrType
    doc: str
    neutral: Any = MISSING
    default: Any = MISSING

    def __post_init__(self) -> None:
        if self.neutral is not MISSING:
            object.__setattr__(self, "default", self.neutral)

    def normalise(self, value: Any, op: str) -> Any:
        """``value`` in the one form in which calls hold it.

        Args:
            value: anything.
            op: the name of the op, for the error.

        Raises:
            ModelError: it does not fit the type.
        """
        try:
            return self.type.normalise(value)
        except (TypeError, ValueError, OverflowError) as error:
            message = f"attribute {self.name!r} of {op} is {value!r}: {error}"
            raise ModelError(message, hint=f"it takes {self.type.name}") from error


@dataclass(frozen=True, eq=False, slots=True)
class Attrs(Node):
    """The attributes of one call, all of them, in declared order: ``attrs["strides"]`` or ``attrs.strides``."""

    items: tuple[tuple[str, Any], ...]

    def _key(self) -> tuple[tuple[str, Any], ...]:
        # Ops may declare one name with several types, and Python takes 1, 1.0 and True for the same.
        return tuple([(name, _exact(value)) for name, value in self.items])

    def __getitem__(self, name: str) -> Any:
        for key, value in self.items:
            if key == name:
                return value
        raise InternalError(f"no attribute {name!r}", hint=f"there are {', '.join(key for key, _ in self.items)}")

    def __getattr__(self, name: str) -> Any:
        for key, value in self.items:
            if key == name:
                return value
        raise AttributeError(name)

    def replace(self, **changes: Any) -> dict[str, Any]:
        """The attributes as keywords for a new call, some changed."""
        return {**dict(self.items), **changes}


def _exact(value: Any) -> Any:
    if isinstance(value, float):
        # float.hex tells -0.0 from 0.0 and makes NaN equal to itself.
        return (float, value.hex())
    if isinstance(value, bool):
        return (bool, value)
    if isinstance(value, tuple):
        return tuple([_exact(v) for v in value])
    return value


STEP_OPERATIONS = 1000
"""Scalar operations that numpy does in the time of one step of a loop in Python."""

Kind = Literal["elementwise", "broadcast", "injective", "reduction", "opaque"]
"""How an op's elements depend on its inputs':

- ``elementwise``: element i of every input of the output's shape;
- ``broadcast``: the same, inputs being broadcast as numpy does;
- ``injective``: each output element is one element of an input, or a constant (reshape, transpose, slice, pad);
- ``reduction``: sums or maxima over inputs; elementwise ops can follow in the same loops;
- ``opaque``: anything else, for example softmax; nothing is fused with it.
"""


NanRule = Literal["kept", "ignored", "moved", "unequal", "largest", "smallest", "replaced"]
"""What an op makes of NaN among its floats:

- ``kept``: each element of the result that is computed from one is NaN;
- ``ignored``: the result is that of the other elements; of none it is -inf for a maximum, inf for a minimum, place 0;
- ``moved``: elements are copied, whatever they are;
- ``unequal``: it compares as unequal to all numbers and to itself, and as neither larger nor smaller;
- ``largest``, ``smallest``: in the order of the elements it is above, or below, all numbers;
- ``replaced``: the result has a number in its place, which the remark names.

The rule holds for every position, order and split of a reduction, in scalar and in vector code.
"""


@dataclass(frozen=True)
class Specials:
    """What an op makes of NaN, infinities and -0: a row of the table in ``docs/operators.md``.

    Infinities and zeros follow IEEE 754, one operation after the other, unless the remark says otherwise. The sign of a
    zero result is unspecified.

    Args:
        nan: the rule for NaN.
        remark: exceptions and additions to it.
        onnx: how onnxruntime differs; it is empty where it agrees.
        tflite: how LiteRT's reference kernels differ; it is empty where they agree.
    """

    nan: NanRule
    remark: str = ""
    onnx: str = ""
    tflite: str = ""


@dataclass(frozen=True)
class Bounds:
    """What is proven of the elements of an integer tensor: all lie in ``low`` .. ``high``.

    ``data`` holds the elements themselves where the tensor is a constant; bounds are equal whatever they hold.
    """

    low: int
    high: int
    data: np.ndarray | None = field(default=None, compare=False)

    def __iter__(self) -> Iterator[int]:
        return iter((self.low, self.high))


@dataclass(frozen=True, eq=False)
class Op:
    """The declaration of an operator.

    Args:
        name: dotted, for example ``nn.conv2d``.
        doc: what it computes: shapes, dtypes, and the formula or its source.
        inputs: names of the tensor arguments; a single ``"*data"`` takes any number, at least one.
        attrs: the attributes.
        infer: ``infer(attrs, *types)`` gives the type of the result, or raises ModelError with what does not fit. Its
            docstring says the same in words, for the documentation.
        reference: ``reference(attrs, *arrays)`` computes it in numpy, exactly and slowly. Gives an array, or a tuple.
        compute: ``compute(attrs, out, *tensors)`` states it as a tensor expression; ``out`` is the type of the result.
            None where the op has no loops (its calls are removed or refused before lowering), or ``loops`` gives them.
        loops: ``loops(attrs, out, *types)`` gives them where elements depend on one another, from step to step: a
            function of the loop form with an input for each argument and an output for each tensor of the result. Such
            an op is a kernel of its own. With ``compute``, which says the same, they are for fixed extents.
        open_loops: whether ``loops`` takes types with open extents: the symbols of these, by name, are further inputs
            behind those of the arguments, int32 (1,) each; buffers have the largest extents.
        kind: see `Kind`.
        value_range: ``value_range(attrs, out, types, *bounds)`` gives the `Bounds` of an integer result from the types
            of the inputs and their bounds (None for one that is not an integer tensor), as if nothing overflowed; None
            where it knows nothing.
        macs: ``macs(attrs, out, *types)`` counts multiply-accumulates; None means zero.
        effort: ``effort(attrs, out, *types)`` counts what the reference does beyond its multiply-accumulates and one
            visit of each element of its arguments and results: elements of arrays that it makes in between, and
            `STEP_OPERATIONS` for each step of a loop in Python. None means nothing.
        terms: ``terms(attrs, *arrays)`` returns the magnitudes that the rounding errors of the formula are relative to:
            for each float of the result the largest term, where terms cancel and rounding the operands does not show
            it. None where the result itself and its operands show the errors.
        commutative: whether its two inputs may change places; patterns match it in both orders.
        stored: whether its arguments may be float16, which nothing computes with; those of an injective op may.
        specials: what it makes of NaN, infinities and -0. None where no operand is of floats; injective ops have the
            rule ``moved`` without saying so.
    """

    name: str
    doc: str
    inputs: tuple[str, ...]
    infer: Callable[..., Type]
    reference: Callable[..., np.ndarray | tuple[np.ndarray, ...]]
    compute: Callable[..., Tensor | tuple[Tensor, ...]] | None
    kind: Kind
    loops: Callable[..., PrimFunc] | None = None
    open_loops: bool = False
    attrs: tuple[Attr, ...] = ()
    value_range: Callable[..., Bounds | None] | None = None
    macs: Callable[..., Dim] | None = None
    effort: Callable[..., int] | None = None
    terms: Callable[..., np.ndarray] | None = None
    commutative: bool = False
    stored: bool = False
    specials: Specials | None = None
    _by_name: Mapping[str, Attr] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {attr.name: attr for attr in self.attrs})
        if self.kind == "injective" and self.specials is None:
            object.__setattr__(self, "specials", Specials("moved"))

    def make_attrs(self, values: Mapping[str, Any]) -> Attrs:
        """All attributes from those given.

        Raises:
            ModelError: one is unknown, missing, or of the wrong type.
        """
        for name in values:
            if name not in self._by_name:
                close = difflib.get_close_matches(name, self._by_name, 1)
                raise ModelError(
                    f"{self.name} has no attribute {name!r}",
                    hint=f"did you mean {close[0]!r}?" if close else f"it has {', '.join(self._by_name) or 'none'}",
                )
        items: list[tuple[str, Any]] = []
        for attr in self.attrs:
            value = values.get(attr.name, attr.default)
            if value is MISSING:
                raise ModelError(f"{self.name} needs the attribute {attr.name!r}", hint=attr.doc)
            items.append((attr.name, attr.normalise(value, self.name)))
        return Attrs(tuple(items))

    def evaluate(self, attrs: Attrs, *arrays: Any) -> np.ndarray | tuple[np.ndarray, ...]:
        """What ``reference`` gives, as arrays. An infinity is a value, as in what is compiled: nobody is warned."""
        import numpy as np

        def reference() -> np.ndarray | tuple[np.ndarray, ...]:
            with np.errstate(all="ignore"):
                return self.reference(attrs, *arrays)

        sizes = [array.size for array in arrays if isinstance(array, np.ndarray)]
        work = sum(sizes) if self.macs is None else math.prod(sizes)
        result = call_interruptibly(reference) if work >= _LARGE else reference()
        return tuple(map(np.asarray, result)) if isinstance(result, tuple) else np.asarray(result)

    def infer_type(self, types: Sequence[Type], attrs: Attrs) -> Type:
        """Type of a call with arguments of ``types``.

        Raises:
            ModelError: the arguments do not fit; the message names the op and their types.
        """
        variadic = self.inputs[:1] == ("*data",)
        if not types or (not variadic and len(types) != len(self.inputs)):
            raise ModelError(f"{self.name} takes {', '.join(self.inputs)}; got {len(types)} arguments")
        for position, type_ in enumerate(types):
            if not isinstance(type_, TensorType):
                name = "data" if variadic else self.inputs[position]
                raise ModelError(f"{name} of {self.name} must be a tensor, not {type_}")
        try:
            if not self.stored and self.kind != "injective":
                for type_ in types:
                    if not computes(tensor_type(type_).dtype):
                        message = f"it computes with no {tensor_type(type_).dtype}"
                        raise ModelError(message, hint="cast it to float32, and the result back")
            return self.infer(attrs, *types)
        except OpenExtentError as error:
            operands = ", ".join(map(str, types))
            raise OpenExtentError(f"{self.name}({operands}) takes no such open extents: {error.what}") from error
        except ModelError as error:
            operands = ", ".join(map(str, types))
            raise ModelError(f"{self.name}({operands}): {error.what}", where=error.where, hint=error.hint) from error

    def outputs(self, out: Type) -> tuple[TensorType, ...]:
        """The tensors of a result of type ``out``."""
        return out.fields if isinstance(out, TupleType) else (tensor_type(out),)

    def __repr__(self) -> str:
        return f"Op({self.name})"


_OPS: dict[str, Op] = {}
"""The core's own."""

_KNOWN: ContextVar[Mapping[str, Op]] = ContextVar("known_ops", default=MappingProxyType({}))
"""Those of plugins, where they are known."""

_RENAMED = {"cut": "take_first"}
"""The present names of ops that were renamed: text forms and kept models may have the former ones."""


@contextmanager
def known_ops(ops: Mapping[str, Op]) -> Iterator[None]:
    """Within it ``ops``, by their names, are found beside the core's: plugins of other builds know nothing of them."""
    token = _KNOWN.set(MappingProxyType({**_KNOWN.get(), **ops}))
    try:
        yield
    finally:
        _KNOWN.reset(token)


def register_op(op: Op) -> Op:
    """Make ``op`` known by its name.

    Raises:
        InternalError: the name is taken.
    """
    if op.name in _OPS:
        raise InternalError(f"op {op.name!r} is declared twice")
    _OPS[op.name] = op
    return op


_OpFields = ParamSpec("_OpFields")


def _registering(constructor: Callable[_OpFields, Op]) -> Callable[_OpFields, Op]:
    def define(*args: _OpFields.args, **kwargs: _OpFields.kwargs) -> Op:
        return register_op(constructor(*args, **kwargs))

    return define


define_op = _registering(Op)
"""Create an `Op` from its fields, and register it."""


def registered_ops() -> Mapping[str, Op]:
    """All ops by name, in the order of their names; those of plugins where they are known, see `known_ops`."""
    return dict(sorted({**_KNOWN.get(), **_OPS}.items()))


def get_op(name: str) -> Op:
    """The op of that name.

    Raises:
        ModelError: there is none, or it was renamed.
    """
    ops = registered_ops() if name not in _OPS else _OPS
    if name not in ops:
        if name in _RENAMED:
            what = f"the op {name!r} is called {_RENAMED[name]!r} now"
            raise ModelError(what, hint="rename it in the text, or build from the original model again")
        close = difflib.get_close_matches(name, ops, 1)
        raise ModelError(f"unknown op {name!r}", hint=f"did you mean {close[0]!r}?" if close else None)
    return ops[name]
