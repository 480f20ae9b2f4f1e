"""A layer: a small function of the graph form that is to be taken, or refused, and many of them as one module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...errors import UmaError
from ...relay.expr import Call, Constant, Expr, Function, Tuple, Var, macs_of
from ...relay.module import IRModule, Spans
from ...relay.visit import post_order, substitute
from ...tir.form.symbolic_dims import bounds_of

__all__ = [
    "Layer",
    "calls_in",
    "free_function",
    "layer_name",
    "macs_in",
    "module_of",
    "number_of",
    "with_body",
    "work_of",
]

_PREFIX = "attacked_"


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer.

    Args:
        function: from its inputs to its results; constants are inside.
        pattern: the name of the pattern that it is about.
        origin: where it comes from: ``pattern``, ``sample``, or the name of a model.
        varied: what was made different from the layer that it was made of, in words, each about one attribute or size.
    """

    function: Function
    pattern: str
    origin: str = "pattern"
    varied: tuple[str, ...] = ()

    def replace_body(self, body: Expr, *varied: str) -> Layer:
        """The same with another body, and what that has varied."""
        return replace(self, function=with_body(body), varied=(*self.varied, *varied))

    @property
    def results(self) -> tuple[Expr, ...]:
        """What it gives."""
        body = self.function.body
        return body.fields if isinstance(body, Tuple) else (body,)

    @property
    def title(self) -> str:
        """What it is, for people."""
        names = [call.op_name or "" for call in calls_in(self.function.body)]
        shapes = ", ".join(f"{param.dtype}{list(param.shape)}" for param in self.function.params)
        varied = f" with {'; '.join(self.varied)}" if self.varied else ""
        return f"{' > '.join(names)} of {shapes}{varied}"


def calls_in(body: Expr) -> list[Call]:
    """The calls that an expression is computed by, operands first."""
    return [expr for expr in post_order(body) if isinstance(expr, Call)]


def with_body(body: Expr) -> Function:
    """The function of its own variables, in the order in which they are used, that computes ``body``."""
    return Function([expr for expr in post_order(body) if isinstance(expr, Var)], body)


def free_function(function: Function, prefix: str) -> Function:
    """``function`` with parameters ``prefix0``, ``prefix1``, which no other function has."""
    new: dict[Expr, Expr] = {
        param: Var(f"{prefix}{number}", param.type) for number, param in enumerate(function.params)
    }
    params = [one for one in new.values() if isinstance(one, Var)]
    return Function(params, substitute(function.body, new))


def layer_name(number: int) -> str:
    """What the layer of that number is called in a module of many."""
    return f"{_PREFIX}{number}"


def number_of(name: str) -> int | None:
    """The number of the layer of that name; None where it is none."""
    rest = name.removeprefix(_PREFIX)
    return int(rest) if name != rest and rest.isdigit() else None


def module_of(layers: Sequence[Layer]) -> IRModule:
    """One module of many layers: its inputs are ``x0_0``, ``x0_1``, ``x1_0`` and so on, its results those of the layers
    one after the other. Spans name the layer of each call."""
    params: list[Var] = []
    results: list[Expr] = []
    spans = Spans()
    for number, layer in enumerate(layers):
        function = free_function(layer.function, f"x{number}_")
        params += function.params
        body = function.body
        results += body.fields if isinstance(body, Tuple) else (body,)
        for expr in post_order(body):
            if not isinstance(expr, (Var, Constant)):
                spans.add(expr, (layer_name(number),))
    main = Function(params, results[0] if len(results) == 1 else Tuple(results))
    return IRModule.from_functions({"main": main}, spans)


def macs_in(call: Call) -> int:
    """The multiply-accumulates of a call, 0 where its op says nothing of them."""
    try:
        count = macs_of(call)
    except UmaError:
        return 0
    return int(bounds_of(count)[1])


def work_of(layer: Layer) -> int:
    """About how much there is to compute: multiply-accumulates, and elements."""
    elements: int = sum(param.tensor.size for param in layer.function.params)
    for call in calls_in(layer.function.body):
        elements += sum(arg.tensor.size for arg in call.args) + macs_in(call)
    return elements
