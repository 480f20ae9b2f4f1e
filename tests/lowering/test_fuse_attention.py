"""Attention that a host's pattern takes whole: put together before kernels are made, in pieces where none takes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from tests._support.partitions import inputs_of
from tests._support.plugins import installed_host, module_of

from uma.hookspecs import Pattern
from uma.lowering.fuse import fuse
from uma.partition import Owner
from uma.relay import Call, Expr, Function, IRModule, TensorType, Var, call, const
from uma.relay.evaluate import evaluate
from uma.relay.pattern import Match, any_, op, wildcard
from uma.relay.visit import nested_exprs


def attention(name: str, keys: int = 5) -> Expr:
    """In pieces, of four queries."""
    q, k, v = (
        Var(f"{name}_{one}", TensorType((2, rows, 4), "float32")) for one, rows in (("q", 4), ("k", keys), ("v", keys))
    )
    scores = call("multiply", call("matmul", q, call("transpose", k, axes=(0, 2, 1))), const(np.float32(0.5)))
    return call("matmul", call("nn.softmax", scores), v)


def host(predicate: Callable[[Match], bool] | None = None) -> Owner:
    """A host with a pattern that takes attention whole."""
    term = op("nn.attention")(*(wildcard("float32") for _ in range(3)), scale=any_)
    return replace(installed_host().host.owner, patterns=(Pattern("host.attention", term, predicate),))


def taken(module: IRModule) -> list[tuple[str | None, list[str | None]]]:
    """The kernels: of which pattern, and their ops."""
    found = []
    for expr in nested_exprs(module.main):
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            calls = [one.op_name for one in nested_exprs(expr.op) if isinstance(one, Call)]
            found.append((expr.op.attr("Composite"), calls))
    return found


def same(made: IRModule, module: IRModule) -> None:
    inputs = inputs_of(module.main)
    for got, expected in zip(evaluate(made, inputs), evaluate(module, inputs), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-6)


def test_a_pattern_of_the_host_takes_it_whole() -> None:
    mixed = attention("a")
    module = module_of(call("nn.relu", mixed), {mixed: ["mixed"]})
    made = fuse(module, [host()])
    assert ("host.attention", ["nn.attention"]) in taken(made)
    whole = next(one for one in nested_exprs(made.main) if isinstance(one, Call) and isinstance(one.op, Function))
    assert "mixed" in made.spans[whole]
    same(made, module)


def test_what_the_pattern_does_not_take_stays_as_it_was() -> None:
    module = module_of(attention("a"))
    plain = replace(host(), patterns=())
    assert fuse(module, [host(lambda found: False)]) == fuse(module, [plain])


def test_one_of_two_is_taken() -> None:
    module = module_of(call("add", attention("a"), attention("b", keys=7)))
    made = fuse(module, [host(lambda found: found.root.args[1].shape[1] == 7)])
    assert [name for name, _ in taken(made)].count("host.attention") == 1
    same(made, module)


def test_what_a_partitioner_gave_to_two_kernels_stays_apart() -> None:
    mixed = attention("a")
    module = module_of(mixed)
    assert isinstance(mixed, Call)
    module.spans.join(mixed, 0)
    made = fuse(module, [host()])
    assert "host.attention" not in [name for name, _ in taken(made)]
    same(made, module)


def test_what_is_pinned_to_a_host_without_the_pattern_stays_in_pieces() -> None:
    mixed = attention("a")
    assert isinstance(mixed, Call)
    module = module_of(mixed.pinned("other"))
    other = replace(host(), label="other", patterns=())
    made = fuse(module, [host(), other])
    assert "host.attention" not in [name for name, _ in taken(made)]
    same(made, module)
