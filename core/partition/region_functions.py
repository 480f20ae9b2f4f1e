"""Writing down what was decided: a function per region, a composite function per match."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from ..relay.expr import Call, Constant, Expr, Function, GlobalVar, Tuple, TupleGetItem, Var
from ..relay.module import IRModule, Spans, func_type
from ..relay.op import Op
from ..relay.pattern import Graph
from ..relay.rewriter import Rewriter
from ..relay.types import TupleType
from ..relay.visit import children, post_order, with_children, without_pin
from .outlining import outline_function
from .record import Candidate, Region

__all__ = ["Names", "RegionWriter", "without_tuples", "wrap_matches", "write_regions"]


class Names:
    """New names for functions of a module.

    Args:
        taken: the names that it has.
    """

    def __init__(self, used: Iterable[str]) -> None:
        self._used = set(used)
        self._numbers: dict[str, Iterator[int]] = {}

    def new(self, label: str, wanted: str | None = None) -> str:
        """``wanted`` where it is given and free, else the label with the next number, counted from 0."""
        numbers = self._numbers.setdefault(label, itertools.count())
        name = wanted if wanted is not None and wanted not in self._used else f"{label}_{next(numbers)}"
        while name in self._used:
            name = f"{label}_{next(numbers)}"
        self._used.add(name)
        return name


def without_tuples(function: Function, rewriter: Rewriter) -> Function:
    """``function``, with what an op gives as a tuple used by its fields alone: tuples are put together anew.

    So the border of a region never cuts a tuple.
    """

    def rule(old: Expr, new: Expr) -> Expr | None:
        if isinstance(new, TupleGetItem):
            return None
        return with_children(new, [_put_together(child, rewriter) for child in children(new)])

    body = rewriter.rebuild(post_order(function.body), rule)[function.body]
    return rewriter.function(function, _put_together(body, rewriter))


def _put_together(expr: Expr, rewriter: Rewriter) -> Expr:
    if not (isinstance(expr, Call) and isinstance(expr.op, Op) and isinstance(expr.type, TupleType)):
        return expr
    whole = Tuple([TupleGetItem(expr, index) for index in range(len(expr.type.fields))])
    for new in (*whole.fields, whole):
        rewriter.spans.record_rewrite(expr, new)
    return whole


def _called(claim: Candidate, where: Mapping[Expr, Expr], spans: Spans) -> tuple[Call, dict[Expr, Expr]]:
    """A call of a match's composite function, constants being inside, and what the match's results are then."""
    match = claim.owner_match
    args = [expr for expr in match.inputs if not isinstance(expr, Constant)]
    attrs = {"Composite": match.pattern.name}
    if claim.taken is None:
        return outline_function(claim.nodes, match.roots, args, attrs, where, spans)
    for node in claim.taken.nodes:
        spans.add(node, dict.fromkeys(layer for expr in claim.taken.stands[node] for layer in spans[expr]))
    call, results = outline_function(claim.taken.nodes, match.roots, args, attrs, where, spans)
    return call, {claim.taken.value[expr]: new for expr, new in results.items()}


def wrap_matches(function: Function, order: Sequence[Expr | Candidate], rewriter: Rewriter) -> Function:
    """``function``, which is its owner's, with matches replaced by calls of their composite functions; no pins."""
    done: dict[Expr, Expr] = _leaves(function)
    for item in order:
        if isinstance(item, Candidate):
            done.update(_called(item, done, rewriter.spans)[1])
        else:
            rewriter.rebuild([item], lambda old, new: without_pin(new), done)
    return rewriter.function(function, done[function.body])


def _leaves(function: Function) -> dict[Expr, Expr]:
    return {expr: expr for expr in post_order(function.body) if isinstance(expr, (Var, Constant))}


def write_regions(
    module: IRModule,
    graph: Graph,
    order: Sequence[Expr | tuple[Candidate, ...]],
    labels: Collection[str],
    kernels: Sequence[Sequence[Expr]] = (),
    on_hosts: Mapping[Expr, str] = MappingProxyType({}),
) -> tuple[IRModule, list[Region]]:
    """``module`` with a function for every region, and the regions.

    Args:
        module: its ``main`` is what was placed.
        graph: of ``main``.
        order: what ``main`` computes, each after what it needs: the matches of a region, or what is in none.
        labels: of the owners. What is pinned to one, and left to the host nevertheless, is not pinned any more.
        kernels: what hosts are to compute together; noted in the module's spans.
        on_hosts: calls that are pinned to a host, and to which.
    """
    main, rewriter = module.main, Rewriter(module)
    spans = rewriter.spans
    for number, nodes in enumerate(kernels):
        for node in nodes:
            spans.join(node, number)
    names = Names(var.name for var in module.functions)
    functions: dict[str, Function] = {}
    regions: list[Region] = []

    def without_pins(old: Expr, new: Expr) -> Expr | None:
        if old in on_hosts and isinstance(new, Call):
            return new.pinned(on_hosts[old])
        return without_pin(new) if isinstance(new, Call) and new.pin in labels else None

    done: dict[Expr, Expr] = _leaves(main)
    for item in order:
        if isinstance(item, Expr):
            rewriter.rebuild([item], without_pins, done)
            continue
        label = item[0].owner
        name = names.new(label)
        writer = RegionWriter(item, graph, spans)
        function = writer.function({"Compiler": label, "global_symbol": name})
        functions[name] = function
        regions.append(Region(name, label, item, tuple(writer.calls)))
        call = Call(GlobalVar(name, func_type(function)), [done[expr] for expr in writer.params])
        spans.add(call, [layer for claim in item for node in claim.nodes for layer in spans[node]])
        for position, value in enumerate(writer.outputs):
            done[value] = call if len(writer.outputs) == 1 else TupleGetItem(call, position)
            spans.record_rewrite(value, done[value])
    functions["main"] = rewriter.function(main, done[main.body])
    return rewriter.with_functions(functions), regions


class RegionWriter:
    """The function of a region.

    Attributes:
        params: what is given to it, in the order of its parameters, as expressions of ``main``.
        outputs: what it gives, likewise.
        calls: of the composite functions, one per match.
    """

    def __init__(self, claims: tuple[Candidate, ...], graph: Graph, spans: Spans) -> None:
        self.params: dict[Expr, Var] = {}
        self.outputs: list[Expr] = []
        self.calls: list[Call] = []
        inside = {node for claim in claims for node in claim.nodes}
        values: dict[Expr, Expr] = {}
        for claim in claims:
            for expr in claim.match.inputs:
                if expr not in values and not isinstance(expr, Constant):
                    # Named by what it stands for: so no two regions share an expression, and with it its layers, and a
                    # region that is placed once more is the same function.
                    self.params[expr] = Var(f"p{graph.position(expr)}", expr.type)
                    values[expr] = self.params[expr]
            call, results = _called(claim, values, spans)
            self.calls.append(call)
            values.update(results)
            for old in results:
                if old is graph.result or any(user not in inside for user in graph.users(old)):
                    self.outputs.append(old)
        self._results = [values[old] for old in self.outputs]

    def function(self, attrs: Mapping[str, str]) -> Function:
        """The function, with these attributes."""
        results = self._results
        return Function(list(self.params.values()), results[0] if len(results) == 1 else Tuple(results), attrs)
