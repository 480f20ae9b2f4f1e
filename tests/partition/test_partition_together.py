"""Attention is put together for patterns that name it, and in pieces again where none takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests._support.partitions import inputs_of
from tests._support.plugins import accelerator, built, entry_of, members_of, module_of, taking, toy
from tests._support.programs import interpret_program
from tests._support.te_lowerings import lowered

from uma.errors import RequirementError
from uma.hookspecs import Clause, Pattern, Refuse
from uma.lowering.build_targets import BuildTargets
from uma.pipeline.stages import Build
from uma.plugins import PluginEntry
from uma.program import Program
from uma.relay import Expr, IRModule, TensorType, Var, call, const
from uma.relay.evaluate import evaluate
from uma.relay.pattern import Match, any_, op, wildcard
from uma.targets import Limits

Q, K, V = (Var(name, TensorType((1, 2, steps, 4), "float32")) for name, steps in (("q", 3), ("k", 5), ("v", 5)))
KT = call("transpose", K, axes=(0, 1, 3, 2))
SCORES = call("multiply", call("matmul", Q, KT), const(np.float32(0.3)))
MIXED = call("matmul", call("nn.softmax", SCORES), V)
AFTER = call("matmul", MIXED, Var("w", TensorType((4, 3), "float32")))
PIECES = ["transpose", "matmul", "multiply", "nn.softmax", "matmul", "matmul"]
WHOLE = ["nn.attention", "matmul"]


def attention(label: str, predicate: Any = None, lower: Callable[..., Any] | None = None) -> Pattern:
    term = op("nn.attention")(wildcard(any_), wildcard(any_), wildcard(any_), scale=any_)
    return Pattern(f"{label}.attention", term, predicate, lower or (lambda match, target: lowered(match.function)))


def taking_attention(label: str = "whole", *others: str, **given: Any) -> list[PluginEntry]:
    limits = given.pop("limits", Limits())
    patterns = [attention(label, **given), *(taking(label, name) for name in others)]
    return entry_of(accelerator(label, limits=limits), patterns=lambda: patterns)


def model(body: Expr = AFTER) -> IRModule:
    return module_of(body, {SCORES: ["scores"], MIXED: ["mixed"], AFTER: ["after"]})


def owners(build: Build) -> list[tuple[str, str | None]]:
    assert build.placement is not None
    return [(record.op, record.owner) for record in build.placement.records()]


def assert_computes(members: BuildTargets) -> Build:
    build, module = Build("m", members), model()
    program = build.run(module)
    assert isinstance(program, Program)
    inputs = inputs_of(module.main)
    got = interpret_program(program, {f"in_{name}": array.ravel() for name, array in inputs.items()})
    (expected,) = evaluate(module, inputs)
    np.testing.assert_allclose(got["out_0"].reshape(expected.shape), expected, rtol=0, atol=1e-4)
    return build


@pytest.mark.parametrize("is_first", [True, False])
def test_beside_an_accelerator_of_products(is_first: bool) -> None:
    """Both get what is theirs, in either order."""
    plugins = [taking_attention(), toy("products", "matmul")]
    build = assert_computes(members_of(*(plugins if is_first else plugins[::-1])))
    assert owners(build) == [("nn.attention", "whole"), ("matmul", "products")]
    assert build.placement is not None
    whole = build.placement.records()[0]
    assert (whole.pattern, whole.layers, whole.macs) == ("whole.attention", ("scores", "mixed"), 2 * 3 * 5 * (4 + 4))


def test_without_a_pattern_that_names_it_nothing_changes() -> None:
    members = members_of(toy("products", "matmul"))
    build = assert_computes(members)
    assert owners(build) == [(name, "products" if name == "matmul" else None) for name in PIECES]
    assert build.placement is not None and build.placement.together is None


def test_what_nobody_takes_is_in_pieces_again() -> None:
    """The same pieces: what is made of them is what is made where nobody names it."""
    eights = [Clause("eights", lambda match: match.root.shape[-1] % 8 == 0, "heads come in eights")]
    named = taking_attention(predicate=eights)
    members = [members_of(named, toy("products", "matmul")), members_of(toy("products", "matmul"))]
    builds = [built(model(), one) for one in members]
    assert owners(builds[0]) == owners(builds[1])
    programs = [build.run(model()) for build in builds]
    assert programs[0] == programs[1]


def test_one_of_two_is_taken() -> None:
    """The other is in pieces, and what depends on it is as it was."""
    wide = Var("wide", TensorType((1, 2, 5, 8), "float32"))
    keys = call("tanh", Var("keys", TensorType((1, 2, 5, 4), "float32")))
    again = call("matmul", Q, call("transpose", keys, axes=(0, 1, 3, 2)))
    first = call("matmul", call("nn.softmax", again), V)
    scores = call("matmul", first, call("transpose", call("tanh", keys), axes=(0, 1, 3, 2)))
    last = call("matmul", call("nn.softmax", scores), wide)
    fours = [Clause("fours", lambda match: match.root.shape[-1] == 4, "heads of four")]
    build = built(model(last), members_of(taking_attention(predicate=fours)))
    assert [owner for name, owner in owners(build) if name == "nn.attention"] == ["whole"]
    assert [owner for name, owner in owners(build) if name in ("matmul", "nn.softmax")] == [None] * 3


def test_what_is_larger_than_a_region_may_be() -> None:
    """It is said of the product that comes last."""
    build = assert_computes(members_of(taking_attention(limits=Limits(nbytes=400))))
    assert owners(build) == [(name, None) for name in PIECES]
    assert build.placement is not None
    (why,) = build.placement.records()[4].why
    assert (why.kind, why.pattern) == ("limit", "whole.attention")


def test_what_is_refused_after_all_is_in_pieces_again() -> None:
    def refuse(match: Match, target: object) -> Any:
        raise Refuse("not today")

    build = assert_computes(members_of(taking_attention(lower=refuse), toy("products", "matmul")))
    assert owners(build) == [(name, "products" if name == "matmul" else None) for name in PIECES]
    assert build.placement is not None
    records = build.placement.records()
    assert "not today" in [reason.reason for reason in records[4].why]


def test_pins() -> None:
    """What is pinned to one that takes products stays in pieces for it; what nobody has is an error as ever."""
    pinned = call("matmul", call("nn.softmax", SCORES), V).pinned("products")
    members = members_of(taking_attention(), toy("products", "matmul"))
    assert [owner for name, owner in owners(built(model(pinned), members)) if name == "matmul"][-1] == "products"
    pinned = call("matmul", call("nn.softmax", SCORES), V).pinned("whole")
    assert owners(built(model(pinned), members)) == [("nn.attention", "whole")]
    with pytest.raises(RequirementError, match="matmul is pinned to 'whole', which does not take it"):
        built(model(pinned), members_of(taking_attention(predicate=lambda match: False)))
