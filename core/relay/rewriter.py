"""Rewriting a module: what a rule does not speak of is handed on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ..errors import ModelError, PluginError
from ..support.counters import active_counters
from .expr import Expr, Function, GlobalVar
from .module import AnyFunction, IRModule, func_type
from .visit import Rule, children, nested_exprs, post_order, rewrite, with_children

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
        self.spans = module.spans.copy()
        self._there = set(_exprs(module.functions.values()))

    def rewrite(self, rule: Rule, *names: str) -> IRModule:
        """The module with ``rule`` applied to every expression of some functions, children first.

        Args:
            rule: is given an expression whose children are rewritten already; gives its replacement, or None to leave
                it. What it gives is not rewritten again. A new call in the place of a pinned one has its pin, and what
                takes the place of an expression has its layers, with all that is new in it.
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
            functions[name] = self.function(function, rewrite(function.body, rule, self.record_rewrite))
            if functions[name].type is not function.type:
                text = f"a rewrite makes {name!r}, which is of type {function.type}, one of type {functions[name].type}"
                raise PluginError(text, hint="what others call keeps what it takes and gives")
        return self.with_functions(functions)

    def record_rewrite(self, old: Expr, new: Expr) -> None:
        """Note that ``new``, with all that is new in it, stands for ``old``: it belongs to the layers of that."""
        self.spans.record_rewrite(old, new)
        for part in post_order(new, known=self._there.__contains__):
            self.spans.record_rewrite(old, part)
            self._there.add(part)

    def rebuild(
        self,
        order: Iterable[Expr],
        rule: Callable[[Expr, Expr], Expr | None] = lambda old, new: None,
        done: dict[Expr, Expr] | None = None,
    ) -> dict[Expr, Expr]:
        """What expressions become, one after the other; who takes the place of one has its layers. Pins are the rule's.

        Args:
            order: the expressions, each after its children.
            rule: is given an expression, and the same with children that were rebuilt; gives what it becomes, or None
                for that.
            done: what is known already, which is left alone, as is every child that is not in ``order``. Is added to.

        Returns:
            ``done``.

        Raises:
            ModelError: from the rule; names the layers of the expression, unless the rule named a place.
        """
        done = {} if done is None else done
        counters = active_counters()
        for expr in order:
            if expr not in done:
                rebuilt = with_children(expr, [done.get(child, child) for child in children(expr)])
                try:
                    new = rule(expr, rebuilt)
                except ModelError as error:
                    error.where = error.where or ", ".join(map(repr, self.spans[expr])) or None
                    raise
                done[expr] = rebuilt if new is None else new
                if counters is not None:
                    counters.add_rule("relay", rule, done[expr] is not rebuilt)
                self.spans.record_rewrite(expr, done[expr])
                self._there.add(done[expr])
        return done

    def function(self, function: Function, body: Expr) -> Function:
        """``function`` with another body, and what it had besides; itself where it is the same."""
        return function if body is function.body else Function(function.params, body, dict(function.attrs))

    def with_main(self, body: Expr) -> IRModule:
        """The module with this body of ``main``, with the layers of what is left, and all else as it was."""
        return self.with_functions({"main": self.function(self.module.main, body)})

    def with_functions(self, functions: Mapping[str, AnyFunction]) -> IRModule:
        """The module with these in the place of functions of the same names, or behind all others, with the layers of
        what is left."""
        named = {var.name: (var, function) for var, function in self.module.functions.items()}
        pairs = {name: (GlobalVar(name, func_type(function)), function) for name, function in functions.items()}
        if all(named.get(name) == pair for name, pair in pairs.items()) and self.spans == self.module.spans:
            return self.module
        named.update(pairs)
        return self.module_of(dict(sorted(named.values(), key=lambda pair: pair[0].name != "main")))

    def module_of(self, functions: Mapping[GlobalVar, AnyFunction]) -> IRModule:
        """A module of these functions and no others, with their layers, and what the model calls its inputs."""
        return IRModule(functions, self.spans.only(_exprs(functions.values())), self.module.signature)


def _exprs(functions: Iterable[AnyFunction]) -> Iterable[Expr]:
    return (expr for function in functions if isinstance(function, Function) for expr in nested_exprs(function))
