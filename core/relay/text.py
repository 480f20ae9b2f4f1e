"""The text form of modules: a subset of Python's syntax. ``parse_module(*print_module(m)) == m``.

Grammar::

    module     = [signature NEWLINE] { definition } { function | loops | extern }
    signature  = "signature(inputs=[" tensors "], outputs=[" tensors "]"
                 [", states=[" state { "," state } "]"] [", model=" STRING] ")"
    tensors    = [ tensor { "," tensor } ]
    tensor     = "tensor(" STRING [", scale=" FLOAT ", zero_point=" int] [", shape=" tuple] ")"
    state      = "state(" STRING ", input=" INT ", output=" INT ", initial=" (zeros | list | STRING) ")"
    zeros      = "zeros(" INT ")"

    function   = "@function" ["(" attributes ")"] NEWLINE "def" NAME "(" [ param { "," param } ] ") ->" type ":" NEWLINE
                 INDENT { function | NAME [":" tuple] "=" expr NEWLINE } "return" expr NEWLINE DEDENT
    param      = NAME ":" type
    type       = tensortype | "Tuple[" tensortype { "," tensortype } "]"
    tensortype = "Tensor[" tuple "," NAME "]"
    expr       = (NAME | constant | call) ["[" INT "]"] ["@" STRING] | "(" { expr "," } ")"
    call       = (NAME { "." NAME } | control) "(" [ expr { "," expr } ] [","] [ attributes ] ")"
    control    = "If(" NAME "," NAME ")" | "Loop(" NAME "," INT ")"
    attributes = NAME "=" value { "," NAME "=" value }
    constant   = "const(" (number | bool | list | STRING) ["," tuple] "," NAME ")"
    value      = number | bool | STRING | tuple | NAME "(" value { "," value } ")" | extent
    extent     = term { ("+" | "-") term }
    term       = factor { "*" factor }
    factor     = INT | NAME "[" INT ":" INT "]"
    tuple      = "(" [ value { "," value } [","] ] ")"
    list       = "[" [ (number | bool) { "," (number | bool) } ] "]"
    number     = ["-"] (INT | FLOAT | "inf" | "nan")
    int        = ["-"] INT
    bool       = "True" | "False"

Definitions (memories, queues, intrinsics) and loops are those of `uma.tir.form.text`; for externs, which back-ends
make, see `uma.relay.extern_text`. ::

    signature(inputs=[tensor('x', scale=0.5, zero_point=3)], outputs=[tensor('y')],
              states=[state('last', input=1, output=1, initial=zeros(64))])

    @function
    def main(x: Tensor[(1, 8), int8]) -> Tensor[(1, 4), int8]:
        @function(Primitive='1')
        def f0(p0: Tensor[(1, 8), int8], p1: Tensor[(4, 8), int8]) -> Tensor[(1, 4), int32]:
            v0: ('dense',) = qnn.dense(p0, p1, input_zero_point=3)
            return v0
        v0: ('dense',) = f0(x, const('5f36...', (4, 8), int8))
        v1 = cast(v0, dtype='int8')
        return v1

Functions of the module that control flow runs are named before its arguments: ``If(then, otherwise)(condition, x)``,
``Loop(body, 2)(go, x, y)``, of which the first two are carried from turn to turn.

An open extent is a sum of products of numbers and of names of parameters of ``main``, each with its least and its
largest value: ``Tensor[(1, tokens[1:128], 64), float32]``.

Every call has a line and a name. What stands where Python has a type are the layers of the model that the call
belongs to. A call that is pinned to a target has its label behind it: ``cast(v0, dtype='int8') @ 'npu'``. Attributes
that hold their default are left out. Where a function of the module has the name of an op, the op is called with
``op.`` before its name. Constants of up to 16 elements stand in the text, larger ones beside it, by the SHA-256 of
their bytes. The signature says what the model calls its inputs and outputs, and what it keeps from one run to the next.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ModelError, TextError
from ..tir.form.dtype import DTYPES, bounds, is_float
from ..tir.form.scalar_semantics import round_float
from ..tir.form.source_text import Source
from ..tir.form.symbolic_dims import Extent, parse_extent
from ..tir.form.text import Defined, parse_def
from ..tir.form.text_exprs import called
from .expr import Call, Constant, Expr, Function, GlobalVar, If, Loop, Tuple, TupleGetItem, Var, const
from .extern import Kernel
from .extern_text import parse_extern
from .module import AnyFunction, IRModule, Signature, Spans, StateInfo, TensorInfo, func_type, is_digest
from .op import get_op
from .printer import OP_PREFIX, RECORDS, print_module
from .types import MAX_BYTES, FuncType, TensorType, TupleType, Type
from .verify import faults

if TYPE_CHECKING:
    import numpy as np

__all__ = ["parse_module", "print_module"]

_MAX_INTEGER = 2**64
"""No dtype holds larger ones; they are refused before anything tries to print them."""


def _number(node: ast.expr) -> int | float | None:
    """The number that ``node`` spells, its sign, ``inf`` and ``nan`` included; None where it spells none."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    size = node.operand if isinstance(node, ast.UnaryOp) and negative else node
    if isinstance(size, ast.Name) and size.id in ("inf", "nan"):
        value: int | float = float(size.id)
    elif isinstance(size, ast.Constant) and type(size.value) in (int, float):
        value = size.value  # type: ignore[assignment]  # mypy does not follow type()
    else:
        return None
    return -value if negative else value


def _is_element(value: Any, dtype: str) -> bool:
    if dtype == "bool":
        return isinstance(value, bool)
    if type(value) not in (int, float) or (type(value) is float and not is_float(dtype)):
        return False
    if not is_float(dtype):
        low, high = bounds(dtype)
        return bool(low <= value <= high)
    # Infinity is spelt; a finite number that becomes it is a mistake.
    return not math.isfinite(value) or math.isfinite(round_float(value, dtype))


def _subscript(node: ast.expr) -> tuple[str, list[ast.expr]]:
    """The name and what stands in brackets behind it; an empty name for anything else."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        return "", []
    return node.value.id, node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def _names_extents(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Subscript) for part in ast.walk(node))


def parse_module(text: str, constants: Mapping[str, np.ndarray] | None = None, name: str = "<text>") -> IRModule:
    """The module that ``text`` spells.

    Args:
        text: as `print_module` gives it, or written by hand.
        constants: arrays by the SHA-256 of their little-endian bytes, in hexadecimal.
        name: what to call the text in errors.

    Raises:
        TextError: with line and column.
    """
    return _Parser(Source(text, name), constants or {}).module()


class _Parser:
    def __init__(self, source: Source, constants: Mapping[str, np.ndarray]) -> None:
        self.source = source
        self.constants = constants
        self.globals: dict[str, GlobalVar] = {}
        self.spans = Spans()
        self.zeros_left = MAX_BYTES
        """What zeros of states may still take: a short text could ask for more than there is."""

    def module(self) -> IRModule:
        signature: Signature | None = None
        lowered: dict[str, Kernel] = {}
        nodes: dict[str | None, ast.stmt] = {}
        definitions: list[ast.FunctionDef] = []
        defined = Defined(self.source)
        for statement in self.source.parse().body:
            if defined.take(statement):
                continue
            if isinstance(statement, ast.Expr) and signature is None:
                signature, nodes[None] = self.signature(statement.value), statement
                continue
            if not isinstance(statement, ast.FunctionDef):
                raise self.source.error(statement, "expected a function", "def name(...): under @function")
            name = statement.name
            if name in nodes:
                raise self.source.error(statement, f"function {name!r} is defined twice")
            nodes[name] = statement
            definitions.append(statement)
            mark = self._decorator(statement)
            if mark == "prim_func":
                lowered[name] = parse_def(statement, defined)[1]
            elif mark == "extern":
                lowered[name] = parse_extern(statement, defined, self.content)[1]
            with self.at(statement):
                type_ = func_type(lowered[name]) if name in lowered else self.declared(statement)
                self.globals[name] = GlobalVar(name, type_)
        functions: dict[GlobalVar, AnyFunction] = {
            self.globals[d.name]: lowered[d.name] if d.name in lowered else self.function(d) for d in definitions
        }
        module = IRModule(functions, self.spans, signature)
        for fault in faults(module):
            raise self.source.error(nodes[fault.function], fault.what)
        return module

    @contextlib.contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """What a constructor refuses is an error of the text at ``node``."""
        try:
            yield
        except TextError:
            raise
        except ModelError as error:
            raise self.source.error(node, error.what, error.hint) from error

    # --- parts -------------------------------------------------------------------------------------------------------

    def _decorator(self, definition: ast.FunctionDef) -> str:
        marks = definition.decorator_list
        mark = marks[0].func if len(marks) == 1 and isinstance(marks[0], ast.Call) else marks[0] if marks else None
        if len(marks) != 1 or not isinstance(mark, ast.Name) or mark.id not in ("function", "prim_func", "extern"):
            raise self.source.error(definition, "a function is marked with @function, @prim_func or @extern")
        return mark.id

    def signature(self, node: ast.expr) -> Signature:
        pairs = {k.arg: k.value for k in node.keywords} if isinstance(node, ast.Call) else {}
        called = node.func if isinstance(node, ast.Call) and not node.args else None
        sides = {"inputs", "outputs"}
        if not isinstance(called, ast.Name) or called.id != "signature" or set(pairs) - {"states", "model"} != sides:
            raise self.source.error(node, "expected signature(inputs=[...], outputs=[...])")
        inputs, outputs = (tuple(map(self.tensor_info, self.elements(pairs[side]))) for side in ("inputs", "outputs"))
        states = self.elements(pairs["states"]) if "states" in pairs else []
        model = self.value(pairs["model"]) if "model" in pairs else ""
        if "model" in pairs and not (isinstance(model, str) and is_digest(model)):
            raise self.source.error(pairs["model"], "expected a SHA-256 in hexadecimal digits")
        return Signature(inputs, outputs, tuple(map(self.state_info, states)), model)

    def elements(self, node: ast.expr) -> list[ast.expr]:
        if not isinstance(node, (ast.List, ast.Tuple)):
            raise self.source.error(node, "expected [...]")
        return node.elts

    def tensor_info(self, node: ast.expr) -> TensorInfo:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "tensor":
            name = [self.value(arg) for arg in node.args]
            keywords = {k.arg: self.value(k.value) for k in node.keywords}
            kinds = {key: type(value) for key, value in keywords.items()}
            shape = keywords.get("shape")
            fits = shape is None or (isinstance(shape, tuple) and all(type(e) in (int, Extent) for e in shape))
            kinds.pop("shape", None)
            if list(map(type, name)) == [str] and kinds in ({}, {"scale": float, "zero_point": int}) and fits:
                return TensorInfo(name[0], keywords.get("scale"), keywords.get("zero_point"), shape)
        raise self.source.error(node, "expected tensor('name') or tensor('name', scale=0.5, zero_point=3)")

    def state_info(self, node: ast.expr) -> StateInfo:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "state":
            name = [self.value(arg) for arg in node.args]
            keywords = {k.arg: k.value for k in node.keywords}
            if list(map(type, name)) == [str] and set(keywords) == {"input", "output", "initial"}:
                input_index, output_index = (self.value(keywords[side]) for side in ("input", "output"))
                if type(input_index) is int and type(output_index) is int:
                    return StateInfo(name[0], input_index, output_index, self.initial(keywords["initial"]))
        raise self.source.error(node, "expected state('name', input=1, output=1, initial=zeros(64))")

    def initial(self, node: ast.expr) -> bytes:
        """The bytes of a state's initial value: ``zeros(64)``, ``[1, 2]`` byte for byte, or a digest."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zeros":
            sizes = [self.value(arg) for arg in node.args]
            if list(map(type, sizes)) == [int] and not node.keywords and 0 <= sizes[0] <= self.zeros_left:
                self.zeros_left -= sizes[0]
                return bytes(sizes[0])
        elif isinstance(node, ast.List):
            octets = [self.value(element) for element in node.elts]
            if all(type(octet) is int and 0 <= octet < 256 for octet in octets):
                return bytes(octets)
        elif type(digest := self.value(node)) is str:
            if digest not in self.constants:
                raise self.source.error(node, "the bytes of this state are missing", "keep the constants with the text")
            initial = self.constants[digest].tobytes()
            if hashlib.sha256(initial).hexdigest() != digest:
                raise self.source.error(node, "the bytes of this state are not those of its digest")
            return initial
        raise self.source.error(node, "expected zeros(bytes), a list of bytes, or a digest")

    def declared(self, definition: ast.FunctionDef) -> FuncType:
        """The type that a definition states."""
        if definition.returns is None:
            raise self.source.error(definition, "the type of the result is missing", "def name(...) -> Tensor[...]:")
        return FuncType(tuple(param.type for param in self.params(definition)), self.type(definition.returns))

    def params(self, definition: ast.FunctionDef) -> list[Var]:
        args = definition.args
        if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs or args.defaults:
            raise self.source.error(definition, "parameters are name: type, without defaults or stars")
        if getattr(definition, "type_params", None):
            raise self.source.error(definition, "a function has no type parameters")
        params = []
        for arg in args.args:
            if arg.annotation is None:
                raise self.source.error(arg, f"parameter {arg.arg!r} needs a type", "x: Tensor[(1, 8), int8]")
            with self.at(arg):
                params.append(Var(arg.arg, self.type(arg.annotation)))
        return params

    def type(self, node: ast.expr) -> Type:
        name, parts = _subscript(node)
        if name != "Tuple":
            return self.tensor(node)
        with self.at(node):
            return TupleType(tuple(map(self.tensor, parts)))

    def tensor(self, node: ast.expr) -> TensorType:
        name, parts = _subscript(node)
        if name != "Tensor" or len(parts) != 2:
            raise self.source.error(node, "expected a type", "Tensor[(1, 8), int8] or Tuple[Tensor[...], ...]")
        return self.tensor_type(*parts)

    def tensor_type(self, shape: ast.expr, dtype: ast.expr) -> TensorType:
        extents = self.value(shape)
        if not isinstance(extents, tuple) or not all(type(extent) in (int, Extent) for extent in extents):
            raise self.source.error(shape, "expected a shape, a tuple of integers")
        if not isinstance(dtype, ast.Name) or dtype.id not in DTYPES:
            raise self.source.error(dtype, "expected a dtype", f"one of {', '.join(DTYPES)}")
        with self.at(shape):
            return TensorType(extents, dtype.id)

    def function(self, definition: ast.FunctionDef) -> Function:
        if self._decorator(definition) != "function":
            raise self.source.error(definition, "a nested function is marked with @function")
        params = self.params(definition)
        names: dict[str, Expr] = {param.name: param for param in params}
        *statements, last = definition.body
        for statement in statements:
            self.statement(statement, names)
        if not isinstance(last, ast.Return) or last.value is None:
            raise self.source.error(last, "a function ends with return")
        body = self.expr(last.value, names)
        mark = definition.decorator_list[0]
        attrs = {}
        if isinstance(mark, ast.Call):
            attrs = self.keywords(mark)
            if mark.args or not all(isinstance(value, str) for value in attrs.values()):
                raise self.source.error(mark, "expected attributes that are strings", "@function(Primitive='1')")
        if self.declared(definition).result is not body.type:
            raise self.source.error(last, f"the result is {body.type}, declared is another type")
        with self.at(definition):
            return Function(params, body, attrs)

    def statement(self, node: ast.stmt, names: dict[str, Expr]) -> None:
        value: Expr
        layers = None
        if isinstance(node, ast.FunctionDef):
            name, value = node.name, self.function(node)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, self.expr(node.value, names)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            name, value = node.target.id, self.expr(node.value, names)
            layers = self.value(node.annotation)
            if not isinstance(layers, tuple) or not all(isinstance(layer, str) for layer in layers):
                raise self.source.error(node.annotation, "expected the names of layers, a tuple of strings")
        else:
            raise self.source.error(node, "expected name = ..., a nested function, or return")
        if name in names:
            raise self.source.error(node, f"{name!r} is defined twice")
        names[name] = value
        if layers:
            self.spans.add(value, layers)

    def expr(self, node: ast.expr, names: Mapping[str, Expr]) -> Expr:
        with self.at(node):
            return self._expr(node, names)

    def _expr(self, node: ast.expr, names: Mapping[str, Expr]) -> Expr:
        if isinstance(node, ast.Name):
            if node.id not in names:
                raise self.source.error(node, f"{node.id!r} is not defined")
            return names[node.id]
        if isinstance(node, ast.Tuple):
            return Tuple([self.expr(field, names) for field in node.elts])
        if isinstance(node, ast.Subscript):
            return self.field(node, names)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return self.pinned(node, names)
        if isinstance(node, ast.Call):
            return self.call(node, names)
        raise self.source.error(node, "expected a call, a name, a tuple or a field")

    def field(self, node: ast.Subscript, names: Mapping[str, Expr]) -> Expr:
        index = self.value(node.slice)
        if type(index) is not int:
            raise self.source.error(node.slice, "expected the index of a field")
        if isinstance(node.value, ast.Subscript):
            raise self.source.error(node.value, "a field is not a tuple")
        return TupleGetItem(self.expr(node.value, names), index)

    def pinned(self, node: ast.BinOp, names: Mapping[str, Expr]) -> Expr:
        inner = self.expr(node.left, names) if isinstance(node.left, ast.Call) else None
        label = self.value(node.right)
        if not isinstance(inner, Call) or not isinstance(label, str):
            raise self.source.error(node, "expected a call and the label that it is pinned to", "cast(x) @ 'npu'")
        return inner.pinned(label)

    def call(self, node: ast.Call, names: Mapping[str, Expr]) -> Expr:
        if isinstance(node.func, ast.Call) and called(node.func) in ("If", "Loop"):
            if node.keywords:
                raise self.source.error(node, "control flow takes no attributes")
            return Call(self.control(node.func), [self.expr(arg, names) for arg in node.args])
        name = self.dotted(node.func)
        if name == "const":
            return self.const(node)
        args = [self.expr(arg, names) for arg in node.args]
        local = names.get(name)
        callee = local if isinstance(local, Function) else self.globals.get(name)
        return Call(callee or get_op(name.removeprefix(OP_PREFIX)), args, self.keywords(node))

    def control(self, node: ast.Call) -> If | Loop:
        """What stands before the arguments of control flow."""
        name = called(node)
        functions = [self.globals.get(arg.id) if isinstance(arg, ast.Name) else None for arg in node.args]
        if len(node.args) == 2 and not node.keywords and functions[0] is not None:
            if name == "If" and functions[1] is not None:
                return If(functions[0], functions[1])
            if name == "Loop" and type(count := self.value(node.args[1])) is int:
                return Loop(functions[0], count)
        raise self.source.error(node, "expected If(then, otherwise) or Loop(body, 2) of functions of the module")

    def keywords(self, node: ast.Call) -> dict[str, Any]:
        values = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.source.error(keyword.value, "expected name=value")
            values[keyword.arg] = self.value(keyword.value)
        return values

    def dotted(self, node: ast.expr) -> str:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            raise self.source.error(node, "expected the name of an op or a function")
        return ".".join([node.id, *reversed(parts)])

    def const(self, node: ast.Call) -> Constant:
        import numpy as np

        usage = "const(3, int32), const([1, 2], int32), const([1, 2], (2, 1), int32) or const('digest', (2, 1), int32)"
        if node.keywords or len(node.args) not in (2, 3):
            raise self.source.error(node, "expected a constant", usage)
        first, dtype = node.args[0], node.args[-1]
        digest = self.value(first) if isinstance(first, ast.Constant) else None
        if isinstance(digest, str):
            if len(node.args) != 3 or digest not in self.constants:
                raise self.source.error(first, f"no constant {digest!r} came with the text", usage)
            return self.stored(first, digest, self.tensor_type(node.args[1], dtype))
        listed = first.elts if isinstance(first, ast.List) else [first]
        values = [self.value(element) for element in listed]
        shape: ast.expr = ast.parse(f"({len(values)},)" if isinstance(first, ast.List) else "()", mode="eval").body
        type_ = self.tensor_type(node.args[1] if len(node.args) == 3 else ast.copy_location(shape, first), dtype)
        if len(values) != type_.size:
            raise self.source.error(first, f"expected {type_.size} numbers for {type_}", usage)
        for value, element in zip(values, listed, strict=True):
            if not _is_element(value, type_.dtype):
                raise self.source.error(element, f"expected a number that {type_.dtype} holds")
        return const(np.array(values, dtype=type_.dtype).reshape(type_.shape))

    def content(self, node: ast.AST, digest: str) -> bytes:
        """The bytes that came with the text under a digest."""
        if digest not in self.constants:
            raise self.source.error(node, f"no bytes {digest!r} came with the text")
        return self.constants[digest].tobytes()

    def stored(self, node: ast.expr, digest: str, type_: TensorType) -> Constant:
        """The constant of that digest: its bytes, whatever array they came as."""
        import numpy as np

        data = self.constants[digest].tobytes()
        if len(data) != type_.nbytes:
            raise self.source.error(node, f"the constant that came as {digest!r} has {len(data)} bytes, not {type_}")
        constant = const(np.frombuffer(data, np.dtype(type_.dtype).newbyteorder("<")).reshape(type_.shape))
        if constant.digest != digest:
            raise self.source.error(node, f"the constant that came as {digest!r} is another")
        return constant

    def value(self, node: ast.expr) -> Any:
        """The literal that ``node`` spells."""
        number = _number(node)
        if isinstance(number, int) and abs(number) >= _MAX_INTEGER:
            raise self.source.error(node, "this number is too large")
        if number is not None:
            return number
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bool)):
            return node.value
        if isinstance(node, ast.Tuple):
            return tuple(map(self.value, node.elts))
        if isinstance(node, (ast.BinOp, ast.Subscript, ast.UnaryOp)) and _names_extents(node):
            with self.at(node):
                return parse_extent(ast.unparse(node).replace(" * ", "*"))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RECORDS:
            record, args = RECORDS[node.func.id], list(map(self.value, node.args))
            if node.keywords or len(args) != len(dataclasses.fields(record)):
                names = ", ".join(field.name for field in dataclasses.fields(record))
                raise self.source.error(node, f"expected {node.func.id}({names})")
            with self.at(node):
                return record(*args)
        raise self.source.error(node, "expected a literal")
