"""Random models, owners and refusals, and what must hold of every placement: checked without the partitioner's help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from uma.errors import PluginError, RequirementError
from uma.partition import Owner, Placement, Refusal, Region
from uma.partition.preassigned_regions import normalise_preassigned
from uma.pipeline.pins import unpinned
from uma.relay import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Spans,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    call,
    children,
    const,
    post_order,
)
from uma.relay.evaluate import evaluate
from uma.relay.op import Op
from uma.relay.pattern import (
    Clause,
    Graph,
    Outputs,
    Pattern,
    PatternTable,
    Term,
    any_,
    constant,
    find,
    op,
    optional,
    outputs,
    tuple_item,
    wildcard,
)
from uma.relay.pattern.conditions import Anything
from uma.relay.types import TupleType
from uma.relay.verify import verify
from uma.relay.visit import nested_exprs, with_children, without_pin
from uma.targets.limits import Limits

FULL = TensorType((2, 4), "int32")
X, Y = Var("x", FULL), Var("y", FULL)
BINARY = ("add", "multiply", "subtract", "maximum")
ONES = const(np.ones((2, 4), np.int32))


def model(body: Expr, *params: Var, functions: Mapping[str, Function] | None = None) -> IRModule:
    """A module of a main with this body; its parameters are x and y unless others are given."""
    return IRModule.from_functions({"main": Function(params or (X, Y), body), **(functions or {})})


def inputs_of(function: Function) -> dict[str, np.ndarray]:
    """Small numbers, some of them negative."""
    return {
        param.name: ((np.arange(param.tensor.size) * (7 + number) + number) % 11 - 5)
        .astype(param.dtype)
        .reshape(param.shape)
        for number, param in enumerate(function.params)
    }


def w() -> Term:
    """Any input."""
    return wildcard(any_)


def relu() -> Term:
    """The smallest pattern."""
    return op("nn.relu")(w())


def owner(label: str, *patterns: Term | Outputs | Pattern, limits: Limits | None = None) -> Owner:
    """An owner of patterns that are named by their place where they have no name."""
    table = PatternTable(p if isinstance(p, Pattern) else Pattern(f"{label}.p{i}", p) for i, p in enumerate(patterns))
    return Owner(label, table, limits or Limits())


BOTH = owner("npu", relu(), op("add")(w(), w()))


def regions(placement: Placement) -> dict[str, list[list[str | None]]]:
    """For each region the ops of its matches."""
    return {
        region.name: [[n.op_name for n in claim.match.nodes if isinstance(n, Call)] for claim in region.claims]
        for region in placement.regions.values()
    }


def function_of(placement: Placement, name: str) -> Function:
    """A function of the partitioned module."""
    function = placement.module[name]
    assert isinstance(function, Function)
    return function


# --- what must hold --------------------------------------------------------------------------------------------------


def check(original: IRModule, placement: Placement) -> None:
    """All that must hold of a placement of ``original``."""
    verify(placement.module)
    inputs = inputs_of(original.main)
    wanted, found = evaluate(original, inputs), evaluate(placement.module, inputs)
    assert len(wanted) == len(found)
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(a, b)
    check_source(original, placement)
    check_ownership(placement)
    check_order(placement)
    owners = {owner.label: owner for owner in placement.owners}
    for region in placement.regions.values():
        check_region(placement.module, region, owners[region.owner])
    check_nothing_left(placement)
    check_pins(placement)


def ops_of(module: IRModule, function: Function) -> Counter[str]:
    """How often each op is computed, in functions that are called too."""
    found: Counter[str] = Counter()
    for expr in post_order(function.body):
        if isinstance(expr, Call):
            if isinstance(expr.op, Op):
                found[expr.op.name] += 1
            else:
                called = module.functions[expr.op] if isinstance(expr.op, GlobalVar) else expr.op
                assert isinstance(called, Function)
                found += ops_of(module, called)
    return found


def check_source(original: IRModule, placement: Placement) -> None:
    """What was placed has the ops of the model; some that differ in their pins alone are one."""
    placed = ops_of(placement.source, placement.source.main)
    alone = unpinned(original)
    assert ops_of(alone, alone.main) <= placed <= ops_of(original, original.main)


def check_ownership(placement: Placement) -> None:
    """Every op is computed once; every match is in one region, and nothing in two matches or in two functions."""
    source = placement.source
    assert ops_of(source, source.main) == ops_of(placement.module, placement.module.main)
    nodes = [node for claim in placement.claims for node in claim.nodes]
    assert len(nodes) == len(set(nodes))
    placed = [claim for region in placement.regions.values() for claim in region.claims]
    assert len(placed) == len(set(placed)) == len(placement.claims)
    assert set(placed) == set(placement.claims)
    gone = {(one.owner, one.pattern, one.nodes) for one in placement.withdrawn}
    assert not gone & {(claim.owner, claim.match.pattern.name, claim.match.nodes) for claim in placement.claims}
    inside: set[Expr] = set()
    for region in placement.regions.values():
        function = placement.module[region.name]
        assert isinstance(function, Function)
        assert (function.attr("Compiler"), function.attr("global_symbol")) == (region.owner, region.name)
        computed = {expr for expr in post_order(function.body) if isinstance(expr, Call)}
        assert computed and not computed & inside
        inside |= computed


def groups_of(placement: Placement) -> dict[Expr, object]:
    """For every node of main the region that it is in, or itself."""
    order = post_order(placement.source.main.body)
    groups: dict[Expr, object] = {expr: expr for expr in order}
    for region in placement.regions.values():
        groups.update((node, region.name) for claim in region.claims for node in claim.nodes)
    return groups


def has_cycle(groups: Mapping[Expr, object]) -> bool:
    """Whether the graph of the groups has one."""
    after: dict[object, set[object]] = {group: set() for group in groups.values()}
    for expr in groups:
        for child in children(expr):
            if groups[child] != groups[expr]:
                after[groups[child]].add(groups[expr])
    waiting = Counter(group for later in after.values() for group in later)
    ready = [group for group in after if not waiting[group]]
    done = 0
    while ready:
        done += 1
        for group in after[ready.pop()]:
            waiting[group] -= 1
            if not waiting[group]:
                ready.append(group)
    return done < len(after)


def comes_back(groups: Mapping[Expr, object], group: object) -> bool:
    """Whether a path of single nodes leaves a group and comes back: whether it is not convex."""
    users: dict[Expr, list[Expr]] = {expr: [] for expr in groups}
    for expr in groups:
        for child in children(expr):
            users[child].append(expr)
    stack = [user for expr in groups if groups[expr] == group for user in users[expr] if groups[user] != group]
    seen = set(stack)
    while stack:
        for user in users[stack.pop()]:
            if groups[user] == group:
                return True
            if user not in seen:
                seen.add(user)
                stack.append(user)
    return False


def check_order(placement: Placement) -> None:
    """Regions are convex, can run one after the other, and could not be larger."""
    groups = groups_of(placement)
    assert not has_cycle(groups)
    for name in placement.regions:
        assert not comes_back(groups, name)
    limits = {owner.label: owner.limits for owner in placement.owners}
    regions = list(placement.regions.values())
    for number, one in enumerate(regions):
        for other in regions[:number]:
            within = limits[one.owner]
            if one.owner != other.owner or not within.merge or not near(groups, one, other):
                continue
            if counts_operands(within):
                continue
            if within.matches and len(one.claims) + len(other.claims) > within.matches:
                continue
            if within.nbytes and nbytes_of([*one.claims, *other.claims]) > within.nbytes:
                continue
            both = {expr: one.name if group == other.name else group for expr, group in groups.items()}
            assert has_cycle(both), f"{one.name} and {other.name} could be one region"


def counts_operands(limits: Limits) -> bool:
    """Whether the limits bound inputs or outputs, of which a larger region may have fewer."""
    return (limits.outputs, limits.inputs, limits.operands) != (None, None, None)


def near(groups: Mapping[Expr, object], one: Region, other: Region) -> bool:
    """Whether a value goes from one to the other, or both use one that is not a constant."""
    used = [
        {child for expr in groups if groups[expr] == region.name for child in children(expr)} for region in (one, other)
    ]
    if any(groups[child] == other.name for child in used[0]) or any(groups[child] == one.name for child in used[1]):
        return True
    return any(not isinstance(expr, Constant) for expr in used[0] & used[1])


def nbytes_of(claims: Iterable[Any]) -> int:
    """Bytes of all tensors that matches touch, each once."""
    sizes: dict[object, int] = {}
    for claim in claims:
        for expr in (*claim.match.inputs, *claim.match.constants, *claim.match.roots):
            if isinstance(expr.type, TupleType):
                sizes.update({(expr, index): field.nbytes for index, field in enumerate(expr.type.fields)})
            else:
                key = (expr.tuple, expr.index) if isinstance(expr, TupleGetItem) else expr
                sizes[key] = expr.tensor.nbytes
    return sum(sizes.values())


def check_region(module: IRModule, region: Region, owner: Owner) -> None:
    """A region keeps within the limits, and is made of what the owner's patterns match."""
    function = module[region.name]
    assert isinstance(function, Function)
    limits = owner.limits
    assert len(region.claims) == len(region.calls) <= (limits.matches or len(region.claims))
    assert limits.merge or len(region.claims) == 1
    results = function.body.fields if isinstance(function.body, Tuple) else (function.body,)
    assert limits.outputs is None or len(results) <= limits.outputs
    assert limits.inputs is None or len(function.params) <= limits.inputs
    assert limits.operands is None or len(function.params) + len(results) <= limits.operands
    assert limits.nbytes is None or nbytes_of(region.claims) <= limits.nbytes
    assert all(isinstance(result.type, TensorType) for result in results)
    assert len(set(results)) == len(results)
    calls = [expr for expr in post_order(function.body) if isinstance(expr, Call)]
    assert set(calls) == set(region.calls)
    assert not any(isinstance(expr, Constant) for expr in post_order(function.body))
    for claim, made in zip(region.claims, region.calls, strict=True):
        composite = made.op
        assert isinstance(composite, Function)
        assert composite.attr("Composite") == claim.match.pattern.name
        roots = claim.match.roots
        body = composite.body if len(roots) == 1 else composite.body.fields[0]  # type: ignore[attr-defined]  # several roots make a tuple
        if isinstance(roots[0].type, TensorType) or len(roots) == 1:
            again = find(owner.patterns[claim.match.pattern.name], body, Graph(composite))
            sizes = [len(match.nodes) for match in again]
            assert len(claim.match.nodes) in sizes, "the pattern does not match its composite function"


def check_pins(placement: Placement) -> None:
    """What is pinned is where it is pinned to, and nothing that has its place is pinned any more."""
    labels = {owner.label for owner in placement.owners}
    for record in placement.records():
        if record.pin in labels:
            assert record.owner == record.pin
        elif record.pin is not None:
            assert record.owner is None
    for var, function in placement.module.functions.items():
        assert isinstance(function, Function)
        pins = {expr.pin for expr in nested_exprs(function) if isinstance(expr, Call)} - {None}
        assert not (pins & labels if var.name == "main" else pins)


def check_impossible(module: IRModule, owners: Sequence[Owner], error: RequirementError) -> None:
    """The one op that is pinned to an owner can really not be had; of several each may be in the way of another."""
    by_label = {owner.label: owner for owner in owners}
    main = normalise_preassigned(module, by_label).main
    pins = [e for e in post_order(main.body) if isinstance(e, Call) and e.pin in by_label]
    assert pins and "is pinned to" in error.what
    if len(pins) > 1:
        return
    (node,) = pins
    owner, graph = by_label[node.pin or ""], Graph(main)
    if owner.limits.nbytes or counts_operands(owner.limits):
        return
    for root in graph.order:
        for pattern in owner.patterns.rooted_at(root):
            for match in find(pattern, root, graph):
                if node not in match.nodes or len(match.roots) > 1 or match.escapes:
                    continue
                groups: dict[Expr, object] = {e: "match" if e in match.nodes else e for e in graph.order}
                foreign = any(isinstance(e, Call) and e.pin not in (None, owner.label) for e in match.nodes)
                assert foreign or comes_back(groups, "match")


@st.composite
def pinned(draw: st.DrawFn, module: IRModule, labels: Sequence[str]) -> IRModule:
    """``module``, in half of the cases with a few ops of ``main`` pinned, some of them for one of their users only."""
    calls = [e for e in post_order(module.main.body) if isinstance(e, Call) and isinstance(e.op, Op)]
    if not calls or not labels or draw(st.booleans()):
        return module
    chosen = draw(st.dictionaries(st.integers(0, len(calls) - 1), st.sampled_from(labels), min_size=1, max_size=3))
    pins = {calls[number]: label for number, label in chosen.items()}
    once = {calls[number] for number in chosen if draw(st.booleans())}
    spans = Spans(dict(module.spans))
    done: dict[Expr, Expr] = {}
    for expr in post_order(module.main.body):
        made = with_children(expr, [done[child] for child in children(expr)])
        for child in once.intersection(children(expr)):
            once.remove(child)
            done[child] = without_pin(done[child])
            spans.record_rewrite(child, done[child])
        done[expr] = made.pinned(pins.get(expr)) if isinstance(made, Call) else made
        spans.record_rewrite(expr, done[expr])
    return module.with_main(Function(module.main.params, done[module.main.body], dict(module.main.attrs)), spans)


def check_nothing_left(placement: Placement) -> None:
    """What an owner could take without more ado, it has."""
    graph = Graph(placement.source.main)
    owned = {node for claim in placement.claims for node in claim.nodes}
    gone = {(one.owner, one.pattern, one.nodes) for one in placement.withdrawn}
    for owner in placement.owners:
        if owner.limits.nbytes or counts_operands(owner.limits):
            continue
        for root in graph.order:
            for pattern in owner.patterns.rooted_at(root):
                for match in find(pattern, root, graph):
                    if any(isinstance(node, Call) and node.pin not in (None, owner.label) for node in match.nodes):
                        continue
                    if len(match.roots) == 1 and not match.escapes and not owned & set(match.nodes):
                        assert (owner.label, pattern.name, match.nodes) in gone


# --- random cases ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A model, which may have pins, also to ``host``, the accelerators, and which refusals come: in each round pairs of
    a number for a region and for what."""

    module: IRModule
    owners: tuple[Owner, ...]
    refusals: tuple[tuple[tuple[int, int], ...], ...]


@st.composite
def bodies(draw: st.DrawFn) -> Expr:
    """Results of small graphs with much sharing."""
    full: list[Expr] = [X, Y, ONES]
    half: list[Expr] = []

    def some(values: list[Expr]) -> Expr:
        return values[-1 - draw(st.integers(0, min(5, len(values) - 1)))]

    split: Expr | None = None
    for _ in range(draw(st.integers(2, 20))):
        kind = draw(st.sampled_from(["binary"] * 4 + ["relu", "clip"] * 2 + ["split", "half", "join", "given"]))
        if kind == "binary":
            full.append(call(draw(st.sampled_from(BINARY)), some(full), some(full)))
        elif kind == "relu":
            full.append(call("nn.relu", some(full)))
        elif kind == "clip":
            full.append(call("clip", some(full), a_min=-draw(st.integers(0, 1)), a_max=5))
        elif kind == "given":
            inner = call("nn.relu", call("add", X, ONES)) if draw(st.booleans()) else call("nn.relu", X)
            full.append(Call(Function([X], inner, {"Compiler": "npu0"}), [some(full)]))
        elif kind == "split":
            split = call("split", some(full), indices=(2,), axis=1)
            half.extend(TupleGetItem(split, index) for index in range(draw(st.integers(1, 2))))
        elif half and kind == "half":
            half.append(call("maximum", some(half), some(half)) if draw(st.booleans()) else call("nn.relu", some(half)))
        elif half:
            full.append(call("concatenate", some(half), some(half), axis=1))
    if split is not None and draw(st.integers(0, 9)) == 0:
        return split
    results = [draw(st.sampled_from(full[-4:])) for _ in range(draw(st.integers(1, 3)))]
    results += half[-draw(st.integers(0, 2)) :][:2] if half else []
    return Tuple(results) if len(results) > 1 else results[0]


Dtype = str | Anything


def written(draw: st.DrawFn, expr: Expr, depth: int, terms: dict[Expr, Term], dtype: Dtype = "int32") -> Term:
    """A pattern of ``expr``, so many ops deep, with leaves of a dtype."""
    if expr in terms:
        return terms[expr]
    made: Term
    if isinstance(expr, TupleGetItem):
        made = tuple_item(written(draw, expr.tuple, max(depth, 1), terms, dtype), expr.index)
    elif isinstance(expr, Call) and expr.op_name and depth > 0:
        args = [written(draw, arg, depth - 1 - draw(st.integers(0, 1)), terms, dtype) for arg in expr.args]
        attrs = {name: any_ if draw(st.booleans()) else value for name, value in expr.attrs.items}
        made = op(expr.op_name)(*args, **attrs)
        if expr.type is FULL and draw(st.integers(0, 5)) == 0:
            made = optional(made, lambda value: op("nn.relu")(value))
    elif isinstance(expr, Constant) and draw(st.booleans()):
        made = constant(dtype)
    else:
        made = wildcard(dtype)
    terms[expr] = made
    return made


def any_call(of: Expr, dtype: Dtype = "int32") -> Term:
    """A pattern of all calls of the op that ``of`` calls."""
    assert isinstance(of, Call) and of.op_name
    return op(of.op_name)(*(wildcard(dtype) for _ in of.args), **{name: any_ for name, _ in of.attrs.items})


def small(most: int) -> Clause:
    """At most so many ops and fields."""
    return Clause("small", lambda match: len(match.nodes) <= most, "it is too large")


@st.composite
def tables(draw: st.DrawFn, nodes: list[Expr], label: str, dtype: Dtype = "int32") -> PatternTable:
    """Some patterns of parts of a graph, with predicates; leaves have a dtype. None for a graph without ops."""
    table = PatternTable()
    for number in range(draw(st.integers(1, 5)) if nodes else 0):
        terms: dict[Expr, Term] = {}
        root = draw(st.sampled_from(nodes))
        pattern: Any = written(draw, root, draw(st.integers(1, 4)), terms, dtype)
        if draw(st.booleans()):
            pattern = any_call(root, dtype)
        elif draw(st.integers(0, 2)) == 0:
            others = [e for e in nodes if e is not root and any(child in terms for child in (e, *children(e)))]
            if others:
                second = written(draw, draw(st.sampled_from(others)), 2, terms, dtype)
                try:
                    Pattern("p", second)
                    pattern = outputs(pattern, second)
                except PluginError:
                    pass  # an input, or not tied, or the same: one output will do
        clauses = [small(draw(st.integers(1, 8))), Clause("few", lambda m: len(m.constants) < 2, "many constants")]
        table.add(Pattern(f"{label}.p{number}", pattern, clauses[: draw(st.integers(0, 2))]))
    return table


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    """Often none."""
    if draw(st.booleans()):
        return Limits()
    return Limits(
        matches=draw(st.sampled_from([None, 1, 2, 3])),
        outputs=draw(st.sampled_from([None, None, 1, 2])),
        nbytes=draw(st.sampled_from([None, None, 64, 96, 160, 256])),
        merge=draw(st.integers(0, 4)) > 0,
        inputs=draw(st.sampled_from([None, None, 1, 2, 3])),
        operands=draw(st.sampled_from([None, None, 2, 3, 4])),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A model, one to three accelerators, up to three rounds of refusals."""
    body = draw(bodies())
    nodes: list[Expr] = [e for e in post_order(body) if isinstance(e, Call) and e.op_name]
    if not nodes:
        body = call("nn.relu", X)
        nodes = [body]
    labels = [f"npu{number}" for number in range(draw(st.integers(1, 3)))]
    owners = tuple(Owner(label, draw(tables(nodes, label)), draw(limits())) for label in labels)
    number = st.integers(0, 99)
    rounds = draw(st.lists(st.lists(st.tuples(number, number), min_size=1, max_size=2), max_size=3))
    module = draw(pinned(model(body), [*labels, *["host"] * len(labels)]))
    return Case(module, owners, tuple(map(tuple, rounds)))


def refusals_of(placement: Placement, numbers: tuple[tuple[int, int], ...]) -> Iterator[Refusal]:
    """Refusals that such numbers stand for."""
    regions = list(placement.regions.values())
    for which, what in numbers if regions else ():
        region = regions[which % len(regions)]
        at: list[Expr | None] = [None]
        for made in region.calls:
            assert isinstance(made.op, Function)
            at += [made, made.op, *(e for e in post_order(made.op.body) if isinstance(e, Call))]
        yield Refusal(region.name, at[what % len(at)], f"number {what}")
