"""What functions of float32 are, to the last bit: in the loop form, of operations that give the same bits everywhere.

A definition consists of single additions, products and quotients of float32, selects, and operations on the bits of a
number: no function of a C library, and no sum that is rounded together with a product. So the interpreter, numpy, and
the C of every compiler and CPU give the same results, where these round to nearest and keep denormal numbers. (Of NaN
the bits are not said: x86 and Arm differ.) ``pow``, and sines of large angles, use float64 and integers of 64 bits as
well.

The form itself keeps ``exp(x)``: this is what interpreter, evaluation and code generator take for its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from ..form.exprs import Call, Expr, Imm, Select, Var
from ..form.fields import operands
from ..form.functions import register_float32_value
from ..form.visit import rewrite, substitute
from .angles import atan, cos, cos_far, sin, sin_far
from .exponentials import cosh, erf, exp, exp_flushed, expm1, sinh, tanh
from .logarithms import atanh, log, log1p
from .powers import pow as power

__all__ = ["DEFINITIONS", "ERRORS", "definition", "is_defined", "value_of", "written_out"]

DEFINITIONS: Mapping[str, Callable[..., Expr]] = {
    "exp": exp,
    "exp_flushed": exp_flushed,
    "expm1": expm1,
    "log": log,
    "log1p": log1p,
    "tanh": tanh,
    "sinh": sinh,
    "cosh": cosh,
    "atan": atan,
    "atanh": atanh,
    "erf": erf,
    "sin": sin,
    "cos": cos,
    "sin_far": sin_far,
    "cos_far": cos_far,
    "pow": power,
}
"""By name, functions of expressions of float32."""

ERRORS: Mapping[str, float] = {
    "exp": 0.93,
    "expm1": 1.75,
    "log": 0.87,
    "log1p": 1.44,
    "tanh": 2.61,
    "sinh": 2.36,
    "cosh": 1.4,
    "atan": 2.2,
    "atanh": 2.1,
    "erf": 1.32,
    "sin": 2.4,
    "cos": 2.4,
}
"""The largest error over every float32, in units of the last place. (pow is off by half of one, and a little.)"""

_PARAMS = ("x", "y")


def is_defined(expr: Expr) -> bool:
    """Whether ``expr`` is a function of float32 that has a definition here."""
    return isinstance(expr, Call) and expr.name in DEFINITIONS and expr.dtype == "float32"


@cache
def definition(name: str) -> tuple[tuple[Var, ...], Expr]:
    """The parameters of a function, variables of float32, and what it gives."""
    define = DEFINITIONS[name]
    count = define.__code__.co_argcount
    params = tuple(Var(param, "float32") for param in _PARAMS[:count])
    return params, define(*params)


def written_out(expr: Expr) -> Expr:
    """``expr`` with definitions in the places of functions that have one."""

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Call) or not is_defined(node):
            return None
        params, body = definition(node.name)
        return written_out(substitute(body, dict(zip(params, node.args, strict=True))))

    return rewrite(expr, rule)


@cache
def value_of(name: str) -> Callable[..., Any]:
    """A function of Python's floats, which float32 holds; gives one that it holds."""
    params, body = definition(name)
    order: dict[Expr, int] = {param: number for number, param in enumerate(params)}
    steps: list[tuple[Callable[..., Any], tuple[int, ...]]] = []
    _compile(body, order, steps, [len(params)])
    last = order[body]

    def value(*args: float) -> float:
        values = list(args)
        for meaning, places in steps:
            values.append(meaning(*[values[place] for place in places]))
        return float(values[last])

    return value


def _compile(expr: Expr, order: dict[Expr, int], steps: list[Any], count: list[int]) -> None:
    """Notes what computes ``expr``, after what it needs."""
    if expr in order:
        return
    for part in operands(expr):
        _compile(part, order, steps, count)
    if isinstance(expr, Imm):
        value = expr.value
        meaning: Callable[..., Any] = lambda: value  # noqa: E731 - as short as its use
    elif isinstance(expr, Select):
        meaning = _chosen
    else:
        assert expr.meaning is not None
        meaning = expr.meaning
    order[expr] = count[0]
    count[0] += 1
    steps.append((meaning, tuple(order[part] for part in operands(expr))))


def _chosen(condition: bool, a: Any, b: Any) -> Any:
    return a if condition else b


for _name in DEFINITIONS:
    register_float32_value(_name, partial(value_of, _name))
