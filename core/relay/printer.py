"""The text of a module; `text` has its grammar, and reads it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..tir.form.dtype import is_float
from ..tir.form.nodes import PrimFunc
from ..tir.form.text import Definitions, print_func
from .expr import Call, Constant, Expr, Function, GlobalVar, If, Loop, Tuple, TupleGetItem, Var
from .extern import Extern
from .extern_text import print_extern
from .float_requantisation import FloatForm, SumForm
from .module import IRModule, Signature, StateInfo, TensorInfo
from .op import FixedPoint, FloatScale, Op
from .types import TensorType, TupleType, Type
from .visit import post_order

if TYPE_CHECKING:
    import numpy as np

__all__ = ["OP_PREFIX", "RECORDS", "print_module"]

_INLINE_ELEMENTS = 16
"""Constants of more elements are kept apart from the text."""

RECORDS = {record.__name__: record for record in (FixedPoint, FloatScale, FloatForm, SumForm)}
"""Attribute values that are written as calls, by their names."""

OP_PREFIX = "op."
"""Precedes the name of an op that a function of the module has too."""


def print_module(module: IRModule) -> tuple[str, dict[str, np.ndarray]]:
    """The text of ``module``, and its larger constants by digest."""
    printer = _Printer(module)
    parts = []
    if module.signature is not None:
        parts.append(printer.signature(module.signature))
    loops = [function for function in module.functions.values() if isinstance(function, PrimFunc)]
    externs = [function for function in module.functions.values() if isinstance(function, Extern)]
    memories = [memory for extern in externs for memory in extern.memories]
    definitions = Definitions(loops, [var.name for var in module.functions], memories)
    parts += definitions.texts()
    for var, function in module.functions.items():
        if isinstance(function, PrimFunc):
            parts.append(print_func(function, var.name, definitions))
        elif isinstance(function, Extern):
            parts.append(printer.extern(function, var.name, definitions))
        else:
            parts.append("\n".join(printer.function(function, var.name, "")))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n", printer.constants


def _tensor_info(info: TensorInfo) -> str:
    quantised = "" if info.scale is None else f", scale={info.scale!r}, zero_point={info.zero_point!r}"
    shape = "" if info.shape is None else f", shape={info.shape}"
    return f"tensor({info.name!r}{quantised}{shape})"


def _type(type_: Type) -> str:
    if isinstance(type_, TensorType):
        return f"Tensor[{type_.shape}, {type_.dtype}]"
    assert isinstance(type_, TupleType)
    return f"Tuple[{', '.join(map(_type, type_.fields))}]"


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_value, value))}{',' if len(value) == 1 else ''})"
    if type(value) in RECORDS.values():
        numbers = (getattr(value, field.name) for field in dataclasses.fields(value))
        return f"{type(value).__name__}({', '.join(map(_value, numbers))})"
    return repr(value)


class _Printer:
    def __init__(self, module: IRModule) -> None:
        self.spans = module.spans
        self.globals = {var.name for var in module.functions}
        self.constants: dict[str, np.ndarray] = {}

    def signature(self, signature: Signature) -> str:
        sides = [
            f"inputs=[{', '.join(map(_tensor_info, signature.inputs))}]",
            f"outputs=[{', '.join(map(_tensor_info, signature.outputs))}]",
        ]
        if signature.states:
            sides.append(f"states=[{', '.join(map(self.state_info, signature.states))}]")
        if signature.model:
            sides.append(f"model={signature.model!r}")
        return f"signature({', '.join(sides)})"

    def extern(self, extern: Extern, name: str, definitions: Definitions) -> str:
        import numpy as np

        text, contents = print_extern(extern, name, definitions)
        self.constants.update({digest: np.frombuffer(data, np.uint8) for digest, data in contents.items()})
        return text

    def state_info(self, state: StateInfo) -> str:
        import numpy as np

        initial = state.initial
        if not any(initial):
            shown = f"zeros({len(initial)})"
        elif len(initial) <= _INLINE_ELEMENTS:
            shown = str(list(initial))
        else:
            digest = hashlib.sha256(initial).hexdigest()
            self.constants[digest] = np.frombuffer(initial, np.uint8)
            shown = repr(digest)
        return f"state({state.name!r}, input={state.input}, output={state.output}, initial={shown})"

    def function(self, function: Function, name: str, indent: str) -> Iterator[str]:
        """The lines of a definition."""
        attrs = ", ".join(f"{key}={value!r}" for key, value in function.attrs)
        params = ", ".join(f"{param.name}: {_type(param.type)}" for param in function.params)
        yield f"{indent}@function({attrs})" if attrs else f"{indent}@function"
        yield f"{indent}def {name}({params}) -> {_type(function.body.type)}:"
        used = self.globals.union(param.name for param in function.params)
        fresh = {kind: _names(kind, used) for kind in "vf"}
        names: dict[Expr, str] = {param: param.name for param in function.params}
        deeper = indent + "    "
        for expr in post_order(function.body):
            if isinstance(expr, Call) and isinstance(expr.op, Function) and expr.op not in names:
                names[expr.op] = next(fresh["f"])
                yield from self.function(expr.op, names[expr.op], deeper)
            if isinstance(expr, Constant):
                names[expr] = self.constant(expr)
            elif not isinstance(expr, Var):
                names[expr] = next(fresh["v"])
                layers = self.spans[expr]
                yield f"{deeper}{names[expr]}{f': {layers!r}' if layers else ''} = {self.expr(expr, names)}"
        yield f"{deeper}return {names[function.body]}"

    def expr(self, expr: Expr, names: Mapping[Expr, str]) -> str:
        if isinstance(expr, Tuple):
            return f"({''.join(names[field] + ', ' for field in expr.fields).rstrip()})"
        if isinstance(expr, TupleGetItem):
            return f"{names[expr.tuple]}[{expr.index}]"
        assert isinstance(expr, Call)
        args = [names[arg] for arg in expr.args]
        if isinstance(expr.op, Op):
            declared = zip(expr.op.attrs, expr.attrs.items, strict=True)
            args += [f"{name}={_value(value)}" for attr, (name, value) in declared if not _is_default(attr, value)]
            callee = f"{OP_PREFIX if expr.op.name in self.globals else ''}{expr.op.name}"
        elif isinstance(expr.op, If):
            callee = f"If({expr.op.then.name}, {expr.op.otherwise.name})"
        elif isinstance(expr.op, Loop):
            callee = f"Loop({expr.op.body.name}, {expr.op.carried})"
        else:
            callee = expr.op.name if isinstance(expr.op, GlobalVar) else names[expr.op]
        return f"{callee}({', '.join(args)}){'' if expr.pin is None else f' @ {expr.pin!r}'}"

    def constant(self, constant: Constant) -> str:
        type_ = constant.tensor
        if type_.size <= _INLINE_ELEMENTS and not (is_float(type_.dtype) and (constant.data != constant.data).any()):
            elements = constant.data.reshape(-1).tolist()
            shown = _value(elements[0]) if type_.shape == () else f"[{', '.join(map(_value, elements))}]"
            shape = "" if len(type_.shape) <= 1 else f"{type_.shape}, "
            return f"const({shown}, {shape}{type_.dtype})"
        self.constants[constant.digest] = constant.data
        return f"const({constant.digest!r}, {type_.shape}, {type_.dtype})"


def _is_default(attr: Any, value: Any) -> bool:
    return type(value) is type(attr.default) and _value(value) == _value(attr.default)


def _names(prefix: str, used: set[str]) -> Iterator[str]:
    number = 0
    while True:
        if f"{prefix}{number}" not in used:
            yield f"{prefix}{number}"
        number += 1
