"""What holds of every module. Runs between passes, so that the culprit is known."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import InternalError
from ..tir.nodes import PrimFunc
from ..tir.verify import verify as verify_prim_func
from .expr import Call, Constant, Function, GlobalVar, Var
from .module import IRModule, func_type
from .visit import post_order

__all__ = ["verify"]


def verify(module: IRModule) -> None:
    """Check what the constructors of expressions cannot see.

    - Every function has the type of its `GlobalVar`, and names are unique.
    - Functions are closed, nested ones too.
    - A called `GlobalVar` is a function of the module; functions do not call each other in a circle.
    - PrimFuncs hold what `uma.tir.verify` asks for.

    Raises:
        InternalError: one of these does not hold; it names the function and the layers.
    """
    names = [var.name for var in module.functions]
    if len(set(names)) != len(names):
        raise InternalError(f"two functions share a name: {', '.join(sorted(names))}")
    for var, function in module.functions.items():
        if var.type is not func_type(function):
            raise InternalError(f"the function has type {func_type(function)}, its name {var.type}", where=var.name)
        if isinstance(function, PrimFunc):
            verify_prim_func(function)
        else:
            _verify_function(module, function, var.name)
    _verify_acyclic(module)


def _verify_function(module: IRModule, function: Function, where: str) -> None:
    known = set(function.params)
    for expr in post_order(function.body):
        layers = ", ".join(module.spans[expr])
        place = f"{where}, {layers}" if layers else where
        if isinstance(expr, Var) and expr not in known:
            raise InternalError(f"{expr.name!r} is no parameter of the function that mentions it", where=place)
        if isinstance(expr, Constant) and (expr.data.shape != expr.shape or expr.data.flags.writeable):
            raise InternalError(f"a constant of type {expr.type} holds an array of {expr.data.shape}", where=place)
        if isinstance(expr, (Function, GlobalVar)):
            raise InternalError("functions are called, they are not values", where=place)
        if isinstance(expr, Call):
            if isinstance(expr.op, Function):
                _verify_function(module, expr.op, f"{place}, nested function")
            elif isinstance(expr.op, GlobalVar) and expr.op not in module.functions:
                raise InternalError(f"call of {expr.op.name!r}, which the module does not have", where=place)


def _calls(function: Function) -> Iterator[GlobalVar]:
    for expr in post_order(function.body):
        if isinstance(expr, Call) and isinstance(expr.op, GlobalVar):
            yield expr.op
        elif isinstance(expr, Call) and isinstance(expr.op, Function):
            yield from _calls(expr.op)


def _verify_acyclic(module: IRModule) -> None:
    open_: dict[GlobalVar, None] = {}
    done: set[GlobalVar] = set()

    def visit(var: GlobalVar) -> None:
        if var in open_:
            raise InternalError(f"functions call each other in a circle: {', '.join(v.name for v in open_)}")
        function = module.functions[var]
        if var not in done and isinstance(function, Function):
            open_[var] = None
            for callee in dict.fromkeys(_calls(function)):
                visit(callee)
            del open_[var]
        done.add(var)

    for var in module.functions:
        visit(var)
