"""Small tools for tests of the loop form: functions from text, the value of an expression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from uma.tir.form.interp import interpret
from uma.tir.form.nodes import Bind, Buffer, Expr, Imm, Param, PrimFunc, Stmt, Store, Var
from uma.tir.form.printer import print_expr
from uma.tir.form.text import parse_func
from uma.tir.form.visit import buffers_read, walk


def func(text: str) -> PrimFunc:
    """The function that ``text`` is, less the line ``@prim_func``."""
    return parse_func("@prim_func\n" + text.lstrip())[1]


def expression(text: str, dtype: str, variables: Sequence[Var], buffers: Sequence[Buffer] = ()) -> Expr:
    """The expression of ``dtype`` that ``text`` is, of some variables and buffers."""
    params = [f"{buffer.name}: In[{buffer.dtype}, {buffer.shape}]" for buffer in buffers]
    lines = [f"{var.name}: {var.dtype} = {print_expr(Imm(0, var.dtype), var.dtype)}" for var in variables]
    head = f"def f({', '.join([*params, f'result_: Out[{dtype}, ()]'])}):\n"
    whole = func(head + "".join(f"    {line}\n" for line in [*lines, f"result_[()] = {text}"]))
    (store,) = [stmt for stmt in walk(whole.body) if isinstance(stmt, Store)]
    return store.value


def evaluate(expr: Expr, values: Mapping[Var, Any] | None = None, **arrays: np.ndarray) -> Any:
    """What the interpreter gives for an expression of variables with these values and of buffers with this data.

    Returns:
        A numpy scalar of the expression's dtype.
    """
    result = Buffer("result_", (), expr.dtype)
    stmt: Stmt = Store(result, (), expr)
    for var, value in (values or {}).items():
        stmt = Bind(var, Imm(value, var.dtype), stmt)
    inputs = [Param(buffer, "input") for buffer in buffers_read(expr)]
    given = {param.buffer.name: arrays[param.buffer.name] for param in inputs}
    return interpret(PrimFunc((*inputs, Param(result, "output")), stmt), given)["result_"][()]
