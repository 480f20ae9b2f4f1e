"""Rewriting a module: what a rule does not speak of is handed on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ..errors import PluginError
from .expr import Expr, Function, GlobalVar
from .module import AnyFunction, IRModule, Spans, func_type
from .visit import Rule, children, nested_exprs, rewrite, with_children

__all__ = ["Rewriter"]


class Rewriter:
    """A module that is being rewritten. Layers, attributes of functions, other functions and what the model calls its
    inputs and outputs are handed on; with `rewrite`, pins too.

        def relu_once(module: IRModule) -> IRModule:
            def rule(expr: Expr) -> Expr | None:
                ...
            return Rewriter(module).rewrite(rule)

    Args:
        module: what is rewritten; stays as it is.

    Attributes:
        module: it.
        spans: the layers of its expressions, and of what came of them so far.
    """

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self.spans = Spans(dict(module.spans))

    def rewrite(self, rule: Rule, *names: str) -> IRModule:
        """The module with ``rule`` applied to every expression of some functions, children first.

        Args:
            rule: is given an expression whose children are rewritten already; gives its replacement, or None to leave
                it. What it gives is not rewritten again. A new call in the place of a pinned one has its pin, and what
                takes the place of an expression has its layers.
            names: of functions of the graph form; by default ``main``.

        Raises:
            ModelError: the module has no such function.
            PluginError: a function is not of the graph form, or takes or gives other types then.
        """
        functions = {}
        for name in names or ("main",):
            function = self.module[name]
            if not isinstance(function, Function):
                raise PluginError(f"{name!r} is a {type(function).__name__}, which no rule for expressions rewrites")
            functions[name] = self.function(function, rewrite(function.body, rule, self.spans.moved))
            if functions[name].type is not function.type:
                what = f"a rewrite makes {name!r}, which is of type {function.type}, one of type {functions[name].type}"
                raise PluginError(what, hint="what others call keeps what it takes and gives")
        return self.with_functions(functions)

    def rebuild(
        self,
        order: Iterable[Expr],
        rule: Callable[[Expr, Expr], Expr | None] = lambda old, made: None,
        given: Mapping[Expr, Expr] | None = None,
    ) -> dict[Expr, Expr]:
        """What expressions become, one after the other; who takes the place of one has its layers. Pins are the rule's.

        Args:
            order: the expressions, each after its children.
            rule: is given an expression, and the same with children that were rebuilt; gives what it becomes, or None
                for that.
            given: what is known already; these are left alone, and so is every child that is not in ``order``.
        """
        done = dict(given or {})
        for expr in order:
            if expr not in done:
                rebuilt = with_children(expr, [done.get(child, child) for child in children(expr)])
                made = rule(expr, rebuilt)
                done[expr] = rebuilt if made is None else made
                self.spans.moved(expr, done[expr])
        return done

    def function(self, function: Function, body: Expr) -> Function:
        """``function`` with another body, and what it had besides; itself where it is the same."""
        return function if body is function.body else Function(function.params, body, dict(function.attrs))

    def with_main(self, body: Expr) -> IRModule:
        """The module with this body of ``main``, with the layers of what is left, and all else as it was."""
        return self.with_functions({"main": self.function(self.module.main, body)})

    def with_functions(self, functions: Mapping[str, Function]) -> IRModule:
        """The module with these in the place of functions of the same names, with the layers of what is left."""
        module = self.module
        named: dict[str, AnyFunction] = {var.name: function for var, function in module.functions.items()}
        if all(named[name] is made for name, made in functions.items()) and self.spans == module.spans:
            return module
        named.update(functions)
        every = {var: named[var.name] for var in module.functions if var.name != "main"}
        if "main" in named:
            every = {GlobalVar("main", func_type(named["main"])): named["main"], **every}
        kept = (expr for made in every.values() if isinstance(made, Function) for expr in nested_exprs(made))
        return IRModule(every, self.spans.only(kept), module.signature)
