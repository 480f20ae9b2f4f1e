"""A chain of 50,000 ops: nothing recurses, and everything takes time linear in the length."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator

import pytest
from tests._support.plugins import fused

from uma.relay.expr import Call, Expr, Function, Var, call, const
from uma.relay.module import IRModule, Spans
from uma.relay.text import parse_module, print_module
from uma.relay.transform import canonicalise, value_range
from uma.relay.types import TensorType
from uma.relay.verify import verify
from uma.relay.visit import rewrite

SIZES = (12_500, 25_000, 50_000)

# Per op, from the smallest to the largest size. What is quadratic is 4 times slower; a busy machine is not a fault.


def build(length: int) -> IRModule:
    """Relus, clips, sums with constants and with values of before."""
    x = Var("x", TensorType((1, 2, 4), "int32"))
    spans = Spans()
    values: list[Expr] = [x, x]
    steps: tuple[Callable[[Expr, int], Call], ...] = (
        lambda last, i: call("nn.relu", last),
        lambda last, i: call("add", last, const(i % 7 + 1)),
        lambda last, i: call("clip", last, a_min=-5, a_max=i % 50 + 1),
        lambda last, i: call("maximum", last, values[-2]),
    )
    for i in range(length):
        values.append(steps[i % len(steps)](values[-1], i))
        spans.add(values[-1], [f"layer{i}"])
    return IRModule.from_functions({"main": Function([x], values[-1])}, spans)


def double(expr: Expr) -> Expr | None:
    return call("add", expr.args[0], expr.args[0]) if isinstance(expr, Call) and expr.op_name == "nn.relu" else None


def steps(length: int) -> Iterator[tuple[str, float]]:
    """The time of the processor that each step takes, in seconds."""
    clock = time.process_time()

    def lap() -> float:
        nonlocal clock
        now = time.process_time()
        clock, before = now, clock
        return now - before

    module = build(length)
    yield "build", lap()
    text, constants = print_module(module)
    yield "print", lap()
    parsed = parse_module(text, constants)
    assert parsed == module
    yield "parse", lap()
    verify(module)
    yield "verify", lap()
    assert rewrite(module.main.body, double, Spans(dict(module.spans)).record_rewrite) is not module.main.body
    yield "rewrite", lap()
    canonical = canonicalise(module)
    yield "canonicalise", lap()
    kernels = fused(canonical)
    yield "fuse", lap()
    value_range(canonical.main.body)
    yield "value_range", lap()
    del module, parsed, canonical, kernels
    yield "free", lap()


@pytest.fixture
def quiet() -> Iterator[None]:
    """What other tests left behind is not scanned over and over by the garbage collector."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("sizes", [(2_500,), pytest.param(SIZES, marks=pytest.mark.soak)])
def test_chains(sizes: tuple[int, ...], quiet: None, record_property: Callable[[str, object], None]) -> None:
    # Times are shown, not asserted: they should be the same at every length.
    times = {length: dict(steps(length)) for length in sizes}
    lines = [f"chains of calls, us CPU per call {'':10}" + "".join(f"{n:>8}" for n in sizes)]
    for name in times[sizes[0]]:
        per_call = "".join(f"{times[length][name] / length * 1e6:8.1f}" for length in sizes)
        lines.append(f"  {name:<41}{per_call}")
    record_property("measured", "\n".join(lines))
