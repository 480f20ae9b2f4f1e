"""Partitioners are arguments: what they are given, what may be tried and taken back, and what is a fault of theirs."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests._support.installed import install
from tests._support.partitions import BOTH, Case, X, Y, cases, check, model, owner, regions, relu, w
from tests._support.plugins import HOST, entry_of, module_of, toy

from uma.errors import PluginError, RequirementError, UsageError
from uma.partition import (
    Candidate,
    Owner,
    Partitioner,
    Problem,
    Refusal,
    Regions,
    Selection,
    eager,
    find_partitioner,
    place,
)
from uma.partition.preassigned_regions import normalise_preassigned
from uma.plugins import PluginHost
from uma.relay import Call, IRModule, Spans, TensorType, Tuple, Var, call
from uma.relay.pattern import Graph, any_, op, outputs, wildcard
from uma.targets.limits import Limits
from uma.tuning import build


def one_by_one(problem: Problem) -> Regions:
    """Each match is a region."""
    choice = Selection(problem)
    for one in problem.owners:
        for candidate in problem.candidates(one, taken=choice.candidate_by_node):
            choice.add(candidate)
    return [[candidate] for candidate in choice.all]


def nothing(problem: Problem) -> Regions:
    """All is the host's."""
    return []


def all_of(problem: Problem) -> list[Candidate]:
    return [candidate for one in problem.owners for candidate in problem.candidates(one)]


RELUS = call("nn.relu", call("add", call("nn.relu", X), Y))


class TestWhatTheyAreGiven:
    def test_candidates_of_all_owners_overlap(self) -> None:
        problem = Problem(Graph(RELUS), [BOTH, owner("dsp", relu())])
        assert [(one.owner, one.nodes[-1].op_name) for one in all_of(problem)] == [  # type: ignore[attr-defined]  # all are calls
            ("npu", "nn.relu"),
            ("npu", "nn.relu"),
            ("npu", "add"),
            ("dsp", "nn.relu"),
            ("dsp", "nn.relu"),
        ]

    def test_candidates_are_values(self) -> None:
        problem, again = Problem(Graph(RELUS), [BOTH]), Problem(Graph(RELUS), [BOTH])
        assert all_of(problem) == all_of(again)
        assert set(all_of(problem)) == set(problem.all_candidates) and len(set(all_of(problem))) == 3

    def test_another_choice_is_built_as_it_is_given(self) -> None:
        module = model(RELUS)
        assert list(regions(place(module, [BOTH]))) == ["npu_0"]
        placement = place(module, [BOTH], partitioner=one_by_one)
        assert regions(placement) == {"npu_0": [["nn.relu"]], "npu_1": [["add"]], "npu_2": [["nn.relu"]]}

    def test_what_is_left_is_explained(self) -> None:
        placement = place(model(RELUS), [BOTH], partitioner=nothing)
        assert not placement.regions
        for record in placement.records():
            (why,) = record.why
            assert (why.kind, record.owner) == ("left", None)
            assert why.reason == f"pattern {why.pattern} matches, but the partitioner left it"

    def test_after_a_refusal_it_decides_again(self) -> None:
        seen: list[Problem] = []

        def watched(problem: Problem) -> Regions:
            seen.append(problem)
            return one_by_one(problem)

        before = place(model(RELUS), [BOTH], partitioner=watched)
        after = before.refuse([Refusal("npu_1", None, "no")])
        assert regions(after) == {"npu_0": [["nn.relu"]], "npu_1": [["nn.relu"]]}
        first, second = seen
        assert (first.kept, first.freed) == ((), None)
        assert set(second.kept) == set(after.claims)
        assert second.freed == before.regions["npu_1"].claims[0].nodes
        assert before.regions["npu_1"].claims[0] not in all_of(second)

    def test_a_build_takes_one(self) -> None:
        x = Var("x", TensorType((3,), "int32"))
        module = module_of(call("nn.relu", call("add", x, x)))
        host = PluginHost(lambda: [*toy("npu", "add", "nn.relu"), *entry_of(HOST)])
        seen: list[list[str]] = []

        def watched(problem: Problem) -> Regions:
            seen.append([one.label for one in problem.owners])
            return one_by_one(problem)

        build(module, ["npu", "plain"], partition=watched, plugins=host)
        assert seen == [["npu"]]
        with pytest.raises(UsageError, match="there is no partitioner 'watched'"):
            build(module, ["npu", "plain"], partition="watched", plugins=host)


NUMBERS = st.lists(st.integers(0, 99), max_size=30)


@settings(max_examples=20)
@given(cases(), NUMBERS)
def test_what_was_tried_can_be_taken_back(case: Case, numbers: list[int]) -> None:
    check_tries(case, numbers)


@pytest.mark.soak
@settings(max_examples=1000)
@given(cases(), NUMBERS)
def test_what_was_tried_can_be_taken_back_at_length(case: Case, numbers: list[int]) -> None:
    check_tries(case, numbers)


def check_tries(case: Case, numbers: list[int]) -> None:
    """A choice is what its candidates make it, whatever was tried in between; and it is a placement."""
    source = normalise_preassigned(case.module, {one.label: one for one in case.owners})
    problem = Problem(Graph(source.main), case.owners)
    found = all_of(problem)
    choice = Selection(problem)
    for number in numbers if found else ():
        candidate = found[number % len(found)]
        before = choice.order()
        if candidate in choice.all:
            choice.discard(candidate)
            assert choice.obstacle(candidate) is None
        else:
            obstacle = choice.obstacle(candidate)
            assert choice.order() == before  # asking changes nothing
            assert choice.add(candidate) == obstacle
    afresh = Selection(problem)
    assert all(afresh.add(candidate) is None for candidate in choice.all)
    for candidate in found:
        there, here = afresh.obstacle(candidate), choice.obstacle(candidate)
        assert (there and there.kind) == (here and here.kind)
    if any(one.pin in problem.limits for one in problem.graph.order if isinstance(one, Call)):
        return
    chosen = set(choice.all)

    def same(again: Problem) -> Regions:
        return [[one] for one in all_of(again) if one in chosen]

    placement = place(case.module, case.owners, ["host"], partitioner=same)
    assert {claim for region in placement.regions.values() for claim in region.claims} == chosen


@settings(max_examples=20)
@given(cases())
def test_another_way_of_choosing_gives_the_same_results(case: Case) -> None:
    check_one_by_one(case)


@pytest.mark.soak
@settings(max_examples=1000)
@given(cases())
def test_another_way_of_choosing_gives_the_same_results_at_length(case: Case) -> None:
    check_one_by_one(case)


def check_one_by_one(case: Case) -> None:
    try:
        placement = place(case.module, case.owners, ["host"], one_by_one)
    except (PluginError, RequirementError) as error:
        assert "pinned" in error.what
        return
    # That regions could be larger is what was decided.
    alone = [replace(one, limits=replace(one.limits, merge=False)) for one in placement.owners]
    check(case.module, replace(placement, owners=tuple(alone)))


# --- faults ----------------------------------------------------------------------------------------------------------

A, B = wildcard("int32"), wildcard("int32")
PAIR = owner("npu", outputs(op("nn.relu")(A), op("add")(A, w())))
OTHER = owner("dsp", outputs(op("clip")(B, a_min=any_, a_max=any_), op("maximum")(B, w())))
LEFT, RIGHT = call("nn.relu", X), call("clip", Y, a_min=0, a_max=9)
TWO = call("subtract", call("add", X, RIGHT), call("maximum", Y, LEFT))
"""``npu`` needs what ``dsp`` gives, and gives what that needs."""


def each(problem: Problem) -> Regions:
    return [[one] for one in all_of(problem)]


def together(problem: Problem) -> Regions:
    return [all_of(problem)]


def tampered(problem: Problem) -> Regions:
    first = all_of(problem)[0]
    return [[Candidate(first.owner, first.match, first.nodes[:-1])]]


def elsewhere(problem: Problem) -> Regions:
    return [[one] for one in all_of(Problem(Graph(call("nn.relu", Y)), problem.owners))]


def raising(problem: Problem) -> Iterator[list[Candidate]]:
    yield []
    raise KeyError("plan")


@dataclass(frozen=True)
class Bad:
    """A partitioner that is at fault, and what is said of it."""

    partitioner: Callable[[Problem], Any]
    owners: list[Owner]
    what: str
    where: str | None = "one"
    body: Any = LEFT


LARGE = owner("npu", op("nn.relu")(op("add")(w(), w())))
SMALL = owner("npu", relu(), op("add")(w(), w()), limits=Limits(matches=1))
FEW = owner("npu", relu(), op("add")(w(), w()), limits=Limits(outputs=1))
TINY = owner("npu", relu(), op("add")(w(), w()), limits=Limits(nbytes=96))
SUM = call("nn.relu", call("add", X, Y))
RELU2 = call("nn.relu", SUM)
FORK = Tuple([LEFT, call("add", LEFT, Y)])

BAD = [
    Bad(tampered, [LARGE], "gives a match of 'npu.p0' that is not a candidate: it may lose ops, or mix them", body=SUM),
    Bad(elsewhere, [BOTH], "gives a match of 'npu.p0' that is not a candidate: it may lose ops, or mix them", None),
    Bad(each, [BOTH, owner("dsp", relu())], "gives nn.relu away twice, to 'npu' and to 'dsp'"),
    Bad(lambda p: [[one, one] for one in all_of(p)], [BOTH], "gives nn.relu away twice, to 'npu' and to 'npu'"),
    Bad(together, [BOTH, owner("dsp", relu())], "mixes ops of 'npu' and 'dsp' in one region"),
    Bad(
        each, [PAIR, OTHER], "makes a cycle: what regions of 'npu' and 'dsp' need is computed from what they", body=TWO
    ),
    Bad(
        lambda p: [[one for one in all_of(p) if one.nodes[-1] is not SUM]],
        [owner("npu", relu(), op("maximum")(w(), w()))],
        "makes a cycle: what regions of 'npu' need is computed from what they give",
        body=call("maximum", call("add", LEFT, Y), X),
    ),
    Bad(
        together,
        [owner("npu", *(p.pattern for one in (PAIR, OTHER) for p in one.patterns))],
        "makes a cycle: what regions of 'npu' need is computed from what they give",
        body=TWO,
    ),
    Bad(together, [SMALL], "gives a region of 2 matches, where 'npu' takes at most 1", body=SUM),
    Bad(together, [replace(SMALL, limits=Limits(merge=False))], "gives a region of 2 matches, where", body=SUM),
    Bad(together, [TINY], "gives a region of 160 bytes, where 'npu' takes at most 96", body=RELU2),
    Bad(
        together,
        [replace(FEW, limits=Limits(inputs=1))],
        "gives a region of 2 inputs, where 'npu' takes at most 1",
        body=Tuple([LEFT, call("nn.relu", Y)]),
    ),
    Bad(
        together,
        [replace(FEW, limits=Limits(operands=3))],
        "gives a region of 4 inputs and outputs, where 'npu' takes at most 3",
        body=FORK,
    ),
    Bad(together, [FEW], "gives a region of 2 outputs, where 'npu' takes at most 1", body=FORK),
    Bad(
        each,
        [LARGE],
        "gives a match of 'npu.p0' that cannot be had: the value of add inside of it is a result of the model, too",
        body=Tuple([SUM, call("add", X, Y)]),
    ),
    Bad(
        each,
        [BOTH],
        "gives a match of 'npu.p0' that cannot be had: nn.relu in it is pinned to host",
        body=call("nn.relu", X).pinned("host"),
    ),
    Bad(lambda p: [[]], [BOTH], "gives a region of nothing", None),
    Bad(lambda p: [[LEFT]], [BOTH], "gives a value of type Call in a region, which holds candidates", None),
    Bad(lambda p: 3, [BOTH], "failed: TypeError: 'int' object is not iterable", None),
    Bad(lambda p: None, [BOTH], "failed: TypeError: 'NoneType' object is not iterable", None),
    Bad(raising, [BOTH], "failed: KeyError: 'plan'", None),
    Bad(nothing, [BOTH], "loses ops that are pinned: one: nn.relu is pinned to 'npu'", None, LEFT.pinned("npu")),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.what[:40])
def test_what_is_a_fault_of_theirs(bad: Bad) -> None:
    """The partitioner is named, where it is written, and the layers that it is about."""
    layers = Spans({one: ["one"] for one in Graph(bad.body).order if not isinstance(one, Var)})
    module = IRModule.from_functions(model(bad.body).functions and {"main": model(bad.body).main}, layers)
    with pytest.raises(PluginError, match=re.escape(bad.what)) as caught:
        place(module, bad.owners, ["host"], bad.partitioner)
    name = re.escape(bad.partitioner.__qualname__)
    assert re.match(rf"partitioner [\w.]*\.{name} \(.*test_partitioners\.py:\d+\) ", caught.value.what)
    assert caught.value.where == bad.where and "'eager'" in (caught.value.hint or "")


def test_what_nobody_could_place_is_no_fault_of_theirs() -> None:
    module = model(call("multiply", X, Y).pinned("npu"))
    with pytest.raises(RequirementError, match="multiply is pinned to 'npu', which does not take it"):
        place(module, [BOTH], [], one_by_one)


def test_errors_of_patterns_stay_those_of_patterns() -> None:
    bad = owner("npu", wildcard_that_fails())
    with pytest.raises(PluginError, match="ZeroDivisionError") as caught:
        place(model(LEFT), [bad], [], one_by_one)
    assert "partitioner" not in caught.value.what


def wildcard_that_fails() -> Any:
    from uma.relay.pattern import Clause, Pattern

    return Pattern("npu.bad", relu(), [Clause("bad", lambda match: 1 / 0, "it is bad")])


# --- names -----------------------------------------------------------------------------------------------------------

SOURCE = """
def alone(problem):
    return [[one] for owner in problem.owners for one in problem.candidates(owner)]

def broken(problem):
    return 7

number = 3
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Installs a distribution with partitioners."""
    monkeypatch.syspath_prepend(tmp_path)

    def made(name: str, points: str, **options: Any) -> Path:
        files = {"entry_points.txt": f"[uma.partitioners]\n{points}\n"}
        info = install(tmp_path, name, source=SOURCE, files=files, **options)
        importlib.invalidate_caches()
        return info

    yield made
    for module in [one for one in sys.modules if one.startswith("uma_named")]:
        del sys.modules[module]


def test_by_name(site: Callable[..., Path]) -> None:
    site("uma-named", "alone = uma_named:alone\nbroken = uma_named:broken")
    assert find_partitioner("eager") is eager
    assert regions(place(model(LEFT), [BOTH], [], find_partitioner("alone"))) == {"npu_0": [["nn.relu"]]}
    with pytest.raises(PluginError, match=r"partitioner 'broken' of plugin uma-named 1\.0 failed: TypeError"):
        place(model(LEFT), [BOTH], [], find_partitioner("broken"))


def test_a_name_that_there_is_not(site: Callable[..., Path]) -> None:
    site("uma-named", "alone = uma_named:alone")
    with pytest.raises(UsageError, match="there is no partitioner 'eagre'") as caught:
        find_partitioner("eagre")
    hint = "did you mean 'eager'? there are alone, collage, eager; a plugin may bring others"
    assert caught.value.hint == hint


def test_one_that_is_disabled_is_not_there(site: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    site("uma-named", "alone = uma_named:alone")
    monkeypatch.setenv("UMA_DISABLE_PLUGINS", "uma-named")
    with pytest.raises(UsageError, match="there is no partitioner 'alone'"):
        find_partitioner("alone")


def test_two_of_one_name(site: Callable[..., Path]) -> None:
    site("uma-named", "alone = uma_named:alone")
    site("uma-named2", "alone = uma_named2:alone", version="2.0")
    with pytest.raises(PluginError, match=r"uma-named 1\.0 and uma-named2 2\.0 both have a partitioner 'alone'"):
        find_partitioner("alone")


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("uma_named:missing", "cannot be imported: AttributeError: module 'uma_named' has no attribute 'missing'"),
        ("uma_named_gone:x", "cannot be imported: ModuleNotFoundError"),
        ("uma_named:number", "has 3 as a partitioner, which is not a function"),
    ],
)
def test_one_that_leads_nowhere(site: Callable[..., Path], value: str, what: str) -> None:
    site("uma-named", f"alone = {value}")
    with pytest.raises(PluginError, match=re.escape(f"plugin uma-named 1.0 {what}")):
        find_partitioner("alone")


def test_what_is_neither_a_name_nor_a_function() -> None:
    with pytest.raises(UsageError, match="3 is not a partitioner"):
        find_partitioner(3)  # type: ignore[arg-type]  # a number is neither
    given: Partitioner = nothing
    assert find_partitioner(given) is nothing
