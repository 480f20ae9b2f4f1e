"""What strategies decline, and why: who is asked then, who is told, and what is a fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests._support.plugins import HOST, checked, entry_of, host_kind, members_of, taking, toy
from tests._support.regions import CHAIN, X, fault
from tests._support.te_lowerings import lowered

from uma.errors import PluginError
from uma.hookspecs import Declined, Fusion, Refuse, Strategy
from uma.lowering.build_targets import BuildTargets, resolve_targets
from uma.lowering.declined_strategies import Decline
from uma.pipeline.driver import start_build
from uma.pipeline.loading import load_model
from uma.pipeline.stages import Build
from uma.plugins import PluginHost
from uma.relay import Function, IRModule, call
from uma.relay.pattern import Pattern, op, wildcard
from uma.reports.explain import explain
from uma.support.json_record import to_json
from uma.targets import Target

WHY = "the addition has 6 elements, which is not a multiple of 4"


def declining(fusion: Fusion, target: Target) -> Declined:
    return Declined(WHY)


def silent(fusion: Fusion, target: Target) -> None:
    return None


def giving(fusion: Fusion, target: Target) -> Any:
    return lowered(fusion.function)


def refusing(fusion: Fusion, target: Target) -> Any:
    raise Refuse("too hot")


def host(*lower: Callable[[Fusion, Target], Any], others: tuple[str, ...] = ()) -> BuildTargets:
    """A host, ``mine``, that is asked by these functions for additions, before ``others``."""
    entries = entry_of(host_kind("mine"), strategies=lambda: [Strategy("add", one) for one in lower])
    return resolve_targets(["mine", *others], PluginHost(lambda: [*entries, *entry_of(HOST)]))


def test_the_next_one_is_asked_and_the_reason_kept() -> None:
    """By a lesser strategy, or the core's own loops."""
    kept = Decline(("second",), "mine", "strategy 'add'", WHY)
    for lower in ((declining, giving), (declining, silent), (silent, declining), (declining,)):
        build, _ = checked(CHAIN, host(*lower))
        assert build.facts.declined == (kept,)
        assert explain(build).declined == (kept,)
        assert to_json(explain(build))["declined"] == [
            {"layers": ["second"], "target": "mine", "by": "strategy 'add'", "reason": WHY}
        ]


def test_where_the_first_one_gives_loops_nothing_is_said() -> None:
    for lower in ((giving, declining), (silent, giving, declining), (silent,), ()):
        assert checked(CHAIN, host(*lower))[0].facts.declined == ()


def test_of_a_host_that_did_not_get_the_kernel_nothing_is_said() -> None:
    build, _ = checked(CHAIN, host(declining, refusing, others=("plain",)))
    assert list(build.facts.on_other_hosts.values()) == ["plain"] and build.facts.declined == ()


def test_the_lowering_of_a_pattern_of_the_host() -> None:
    pattern = Pattern(
        "mine.add", op("add")(wildcard("int32"), wildcard("int32")), lower=lambda match, target: Declined(WHY)
    )
    entries = entry_of(host_kind("mine"), patterns=lambda: [pattern])
    build, _ = checked(CHAIN, resolve_targets("mine", PluginHost(lambda: entries)))
    assert build.facts.declined == (Decline(("second",), "mine", "lower of pattern 'mine.add'", WHY),)


def test_of_an_accelerator_the_fault_says_it() -> None:
    def members(*lower: Callable[[Fusion, Target], Any]) -> BuildTargets:
        strategies = [Strategy("npu.add", one) for one in lower]
        return members_of(toy(patterns=lambda: [taking("npu", "add", None)], strategies=lambda: strategies))

    assert f"nor by its pattern (strategy 'npu.add' declined: {WHY})" in fault(members(declining)).what
    build, _ = checked(CHAIN, members(declining, giving))
    assert build.facts.declined == () and [one.owner for one in explain(build).ops] == [None, "npu", None]


@pytest.mark.parametrize("reason", ["", " \n", None, 3])
def test_without_a_reason_it_is_a_fault(reason: Any) -> None:
    with pytest.raises(PluginError, match=r"uma-mine 1.0 declined without a reason in strategy 'add'") as caught:
        checked(CHAIN, host(lambda fusion, target: Declined(reason), giving))
    assert str(caught.value.where).startswith("second, ")


def test_each_kernel_says_it_once() -> None:
    """However often a build was run."""
    build = Build("m", host(declining))
    build.run(CHAIN)
    build.run(CHAIN)
    assert len(build.facts.declined) == 1
    twice = IRModule.from_functions({"main": Function([X], call("add", call("add", X, X), call("nn.relu", X)))})
    again = start_build(load_model(twice, name="m"), host(declining))
    again.run(twice)
    assert [one.sentence for one in again.facts.declined] == [f"(no layer): mine, strategy 'add': {WHY}"] * 2
