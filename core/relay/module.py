"""A module: functions by name, and which layers of the model their expressions come from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType, NoneType
from typing import Any, TypeVar

from ..errors import ModelError, PluginError
from ..tir.form.nodes import PrimFunc
from ..tir.form.symbolic_dims import Dim
from .expr import Call, Expr, Function, GlobalVar, Tuple, TupleGetItem
from .extern import Extern
from .types import FuncType, TensorType, TupleType
from .visit import nested_exprs

__all__ = ["AnyFunction", "IRModule", "Signature", "Spans", "StateInfo", "TensorInfo", "func_type", "is_digest"]

T = TypeVar("T")

AnyFunction = Function | PrimFunc | Extern


class Spans:
    """Names of the model's layers, beside the graph: expressions that merge merge their layers.

    Calls, tuples and projections have layers; variables, constants and functions have none.

    A span is side data and not part of an expression's identity, so a rewrite has to hand it on: `moved` has the
    signature of the observer that `visit.rewrite` takes.

    Beside the layers stands what a partitioner wants hosts to compute together, where it decides that: a number for
    each such group. It is handed on with the layers, and is not part of a module's text.
    """

    def __init__(self, layers: Mapping[Expr, Iterable[str]] | None = None) -> None:
        self._layers: dict[Expr, tuple[str, ...]] = {}
        self._groups: dict[Expr, int] = {}
        self._fixed = False
        for expr, names in (layers or {}).items():
            self.add(expr, names)

    def __getitem__(self, expr: Expr) -> tuple[str, ...]:
        """The layers of ``expr``, in the order in which they were added; empty where none is known."""
        return self._layers.get(expr, ())

    def __contains__(self, expr: Expr) -> bool:
        return expr in self._layers

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spans) and (self._layers, self._groups) == (other._layers, other._groups)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __iter__(self) -> Iterator[tuple[Expr, tuple[str, ...]]]:
        return iter(self._layers.items())

    def add(self, expr: Expr, layers: Iterable[str]) -> None:
        """Note that ``expr`` belongs to ``layers`` too; nothing is noted of what can have no layer.

        Raises:
            PluginError: these are another's to read, or the layers are not names.
        """
        if self._fixed:
            raise PluginError(
                "the layers of a module that is only to be read cannot be added to",
                hint="add to a copy: spans = Spans(dict(module.spans))",
            )
        if not isinstance(expr, (Call, Tuple, TupleGetItem)):
            return
        names = tuple(layers)
        if isinstance(layers, str) or not all(isinstance(name, str) for name in names):
            raise PluginError("the layers of an expression must be a list of names", hint='["conv1"], not "conv1"')
        earlier = self[expr]
        new = earlier + tuple(dict.fromkeys(name for name in names if name not in earlier))
        if new:
            self._layers[expr] = new

    def record_rewrite(self, old: Expr, new: Expr) -> None:
        """Note that ``old`` was rewritten to ``new``."""
        self.add(new, self[old])
        if old in self._groups:
            self._groups.setdefault(new, self._groups[old])

    def join(self, expr: Expr, group: int) -> None:
        """Note that hosts are to compute ``expr`` together with what else is in a group, and with nothing besides."""
        self._groups[expr] = group

    @property
    def groups(self) -> Mapping[Expr, int]:
        """The groups that hosts are to compute together, by expression; whose is in none is the hosts' to decide."""
        return self._groups

    def copy(self) -> Spans:
        """The same, which can be added to."""
        copy = Spans(self._layers)
        copy._groups = dict(self._groups)
        return copy

    def read_only(self) -> Spans:
        """These, through a window that nothing can be added through."""
        window = Spans()
        window._layers, window._groups = self._layers, self._groups
        window._fixed = True
        return window

    def only(self, kept: Iterable[Expr]) -> Spans:
        """Those of the expressions in ``kept``."""
        kept = list(kept)
        subset = Spans({expr: self._layers[expr] for expr in kept if expr in self._layers})
        subset._groups = {expr: self._groups[expr] for expr in kept if expr in self._groups}
        return subset


@dataclass(frozen=True)
class TensorInfo:
    """What a model says of one of its inputs or outputs, besides the type.

    Args:
        name: the model's own name for it, any text.
        scale: real value = ``scale * (stored value - zero_point)``; None where it is not quantised.
        zero_point: see ``scale``; None where that is.
        shape: of what has open extents, once the type that it has in ``main`` has the largest of them only.

    Raises:
        ModelError: one of scale and zero point is given without the other.
    """

    name: str
    scale: float | None = None
    zero_point: int | None = None
    shape: tuple[Dim, ...] | None = None

    def __post_init__(self) -> None:
        if (self.scale is None) != (self.zero_point is None):
            raise ModelError(f"tensor {self.name!r} has a scale or a zero point without the other")


@dataclass(frozen=True)
class StateInfo:
    """A value that a model keeps from one run to the next: what a result gives is what a parameter takes then.

    Args:
        name: the model's own name for it, any text.
        input: position of the parameter of ``main`` that takes the old value.
        output: position of the result of ``main``, of the same type, that is the new value.
        initial: the value before the first run: the elements' bytes, little-endian, dense and row-major.
    """

    name: str
    input: int
    output: int
    initial: bytes


_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


def is_digest(text: str) -> bool:
    """Whether ``text`` is a SHA-256 in hexadecimal digits."""
    return _DIGEST.fullmatch(text) is not None


@dataclass(frozen=True)
class Signature:
    """What a model calls its inputs and outputs, and what it keeps.

    Args:
        inputs: what the caller gives: the parameters of ``main``, in order, without those that are state.
        outputs: what the caller gets: the results of ``main``, in order, without those that are state.
        states: what the model keeps from one run to the next.
        model: by which saved states know the model, whatever was made of it since it was read: the SHA-256, in
            hexadecimal, of its text then. Empty where nobody has asked yet, and without states.

    Raises:
        ModelError: ``model`` is no such digest.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    states: tuple[StateInfo, ...] = ()
    model: str = ""

    def __post_init__(self) -> None:
        if self.model and not is_digest(self.model):
            raise ModelError("a signature's model is not a SHA-256 in hexadecimal digits")

    def of_inputs(self, every: Sequence[T]) -> tuple[T, ...]:
        """Of one thing for each parameter of ``main``, those that are for the inputs."""
        kept = {state.input for state in self.states}
        return tuple(one for position, one in enumerate(every) if position not in kept)

    def of_outputs(self, every: Sequence[T]) -> tuple[T, ...]:
        """Of one thing for each result of ``main``, those that are for the outputs."""
        kept = {state.output for state in self.states}
        return tuple(one for position, one in enumerate(every) if position not in kept)

    @staticmethod
    def from_function(main: Function) -> Signature:
        """The signature of a function that came without one: inputs keep their names, outputs are numbered."""
        count = len(main.body.type.fields) if isinstance(main.body.type, TupleType) else 1
        outputs = ("output",) if count == 1 else tuple(f"output{i}" for i in range(count))
        return Signature(tuple(TensorInfo(p.name) for p in main.params), tuple(map(TensorInfo, outputs)))


def func_type(function: AnyFunction) -> FuncType:
    """What a function takes and gives. A PrimFunc takes its inputs and constants and gives its outputs; the constants
    of an Extern are inside it."""
    if isinstance(function, Function):
        assert isinstance(function.type, FuncType)
        return function.type
    constants = function.buffers("constant") if isinstance(function, PrimFunc) else ()
    params = [TensorType(b.shape, b.dtype) for b in function.buffers("input") + constants]
    results = [TensorType(b.shape, b.dtype) for b in function.buffers("output")]
    return FuncType(tuple(params), results[0] if len(results) == 1 else TupleType(tuple(results)))


@dataclass(frozen=True)
class IRModule:
    """Functions of the graph form, loops and what back-ends made under names; ``main`` is the model.

    Args:
        functions: each under a `GlobalVar` of its name and type.
        spans: layers of expressions in these functions.
        signature: what the model calls its inputs and outputs; None where it never said.

    Raises:
        ModelError: a field is of another type.
    """

    functions: Mapping[GlobalVar, AnyFunction]
    spans: Spans = field(default_factory=Spans)
    signature: Signature | None = None

    def __post_init__(self) -> None:
        functions: dict[Any, Any] = dict(self.functions)
        for var, function in functions.items():
            if not isinstance(var, GlobalVar) or not isinstance(function, (Function, PrimFunc, Extern)):
                actual = f"{type(function).__name__} under {type(var).__name__}"
                raise ModelError(f"a module has {actual}, not a Function, PrimFunc or Extern under a GlobalVar")
        spans: object = self.spans
        signature: object = self.signature
        if not isinstance(spans, Spans) or not isinstance(signature, (Signature, NoneType)):
            actual = f"{type(spans).__name__} and {type(signature).__name__}"
            raise ModelError(f"a module has {actual}, not Spans and a Signature")
        object.__setattr__(self, "functions", MappingProxyType(functions))

    @staticmethod
    def from_functions(
        functions: Mapping[str, AnyFunction], spans: Spans | None = None, signature: Signature | None = None
    ) -> IRModule:
        """A module from functions by name.

        Args:
            functions: ``main`` is the model, where it is one.
            spans: the layers of their expressions; by default none.
            signature: what the model calls its inputs and outputs; by default the parameters' names.

        Raises:
            ModelError: a name is not an identifier.
        """
        named = {GlobalVar(name, func_type(f)): f for name, f in functions.items()}
        return IRModule(named, spans or Spans(), signature)

    def __getitem__(self, name: str) -> AnyFunction:
        return self.functions[self.global_var(name)]

    def global_var(self, name: str) -> GlobalVar:
        """The variable of that name.

        Raises:
            ModelError: the module has no such function.
        """
        for var in self.functions:
            if var.name == name:
                return var
        names = ", ".join(var.name for var in self.functions)
        raise ModelError(f"the module has no function {name!r}", hint=f"it has {names or 'none'}")

    def read_only(self) -> IRModule:
        """This module for other people's code, which cannot change it."""
        return IRModule(self.functions, self.spans.read_only(), self.signature)

    @property
    def main(self) -> Function:
        """The model.

        Raises:
            ModelError: there is no ``main`` in the graph form.
        """
        main = self["main"]
        if not isinstance(main, Function):
            raise ModelError("main is not a function of the graph form")
        return main

    def with_main(self, main: Function, spans: Spans) -> IRModule:
        """This module with another ``main``, and with those of ``spans`` that are of expressions in its functions."""
        others = {var: f for var, f in self.functions.items() if var.name != "main"}
        functions = {GlobalVar("main", func_type(main)): main, **others}
        kept = spans.only(e for f in functions.values() if isinstance(f, Function) for e in nested_exprs(f))
        return IRModule(functions, kept, self.signature)
