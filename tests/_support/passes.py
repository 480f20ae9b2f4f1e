"""Passes for tests, and plugins that have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uma.hookspecs import Pass
from uma.lowering.build_targets import BuildTargets, resolve_targets
from uma.plugins import PluginEntry, PluginHost
from uma.relay import Expr, Function, GlobalVar, IRModule, Spans, rewrite
from uma.relay.module import AnyFunction, func_type
from uma.tir.form import nodes as tir
from uma.tir.form.visit import child_statements, operands, rebuild

from .plugins import entry_of, host_kind, toy

__all__ = ["Rewrite", "by_host", "each_loop", "of_graph", "of_loops", "of_main", "passing"]

Rewrite = Callable[[IRModule], IRModule]


def passing(label: str, *passes: Pass, ops: tuple[str, ...] = ("nn.relu",), **hooks: Any) -> list[PluginEntry]:
    """An accelerator that takes ``ops``, and has passes."""
    return toy(label, *ops, passes=lambda: list(passes), **hooks)


def by_host(*passes: Pass, others: tuple[list[PluginEntry], ...] = (), label: str = "plain") -> BuildTargets:
    """The targets of a build on a host that has passes, and on the accelerators of ``others`` before it."""
    entries = [entry for plugin in others for entry in plugin]
    host = entry_of(host_kind(label), passes=lambda: list(passes))
    return resolve_targets([*(entry.kind for entry in entries), label], PluginHost(lambda: [*entries, *host]))


def of_graph(rule: Callable[[Expr], Expr | None], *names: str) -> Rewrite:
    """A pass that rewrites the graph form of the functions of these names; without names, of all."""

    def fn(module: IRModule) -> IRModule:
        spans = Spans(dict(module.spans))
        functions: dict[GlobalVar, AnyFunction] = dict(module.functions)
        for var, function in module.functions.items():
            if isinstance(function, Function) and var.name in (names or (var.name,)):
                body = rewrite(function.body, rule, spans.record_rewrite)
                made = Function(function.params, body, dict(function.attrs))
                del functions[var]
                functions[GlobalVar(var.name, func_type(made))] = made
        return IRModule(functions, spans, module.signature)

    return fn


def of_main(rule: Callable[[Expr], Expr | None]) -> Rewrite:
    """A pass that rewrites ``main``."""
    return of_graph(rule, "main")


def of_loops(change: Callable[[tir.PrimFunc], tir.PrimFunc]) -> Rewrite:
    """A pass that changes all loops, not what they take and give."""

    def fn(module: IRModule) -> IRModule:
        functions: dict[GlobalVar, AnyFunction] = {
            var: change(function) if isinstance(function, tir.PrimFunc) else function
            for var, function in module.functions.items()
        }
        return IRModule(functions, module.spans, module.signature)

    return fn


def each_loop(change: Callable[[tir.For], tir.Stmt]) -> Callable[[tir.PrimFunc], tir.PrimFunc]:
    """Loops with each ``for`` changed, inner ones first."""

    def statement(stmt: tir.Stmt) -> tir.Stmt:
        made = rebuild(stmt, operands(stmt), [statement(inner) for inner in child_statements(stmt)])
        return change(made) if isinstance(made, tir.For) else made

    return lambda func: tir.PrimFunc(func.params, statement(func.body), func.may_alias, func.memories)
