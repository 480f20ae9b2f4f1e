"""Random graphs, random patterns, predicates, limits and refusals: what must hold of every placement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from tests._support.partitions import Case, cases, check, check_impossible, ops_of, refusals_of

from uma.errors import RequirementError
from uma.partition import Placement, place
from uma.relay import Call
from uma.relay.text import parse_module, print_module
from uma.support.json_record import to_json

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ("host",)


def placements(case: Case) -> list[Placement]:
    """The first, and one after each round of refusals, until something cannot be where it is pinned to."""
    found: list[Placement] = []
    try:
        found.append(place(case.module, case.owners, HOSTS))
    except RequirementError as error:
        check_impossible(case.module, case.owners, error)
        return []
    for numbers in case.refusals:
        try:
            found.append(found[-1].refuse(refusals_of(found[-1], numbers)))
        except RequirementError as error:
            assert "is pinned to" in error.what
            break
    return found


def check_case(case: Case) -> None:
    before: Placement | None = None
    for numbers, placement in zip(((), *case.refusals), placements(case), strict=False):
        check(case.module, placement)
        check_records(case, placement)
        if before is not None:
            refused = list(refusals_of(before, numbers))
            gone = set(before.claims) - set(placement.claims)
            named = {refusal.region for refusal in refused}
            assert bool(gone) == bool(refused)
            assert all(claim in before.regions[name].claims for claim in gone for name in named) or len(named) > 1
            assert len(placement.withdrawn) == len(before.withdrawn) + len(gone)
        before = placement


def check_records(case: Case, placement: Placement) -> None:
    records = placement.records()
    assert sum(ops_of(placement.source, placement.source.main).values()) == len(records)
    labels = [owner.label for owner in case.owners]
    for record in records:
        assert json.loads(json.dumps(to_json(record))) == to_json(record)
        assert {reason.owner for reason in record.why} == set(labels) - {record.owner}
        assert (record.owner is None) == (record.region is None)
        assert record.pattern is None or record.owner is not None
        assert all(reason.reason for reason in record.why)
    owned = [claim for claim in placement.claims for node in claim.match.nodes if isinstance(node, Call)]
    wanted = sorted(claim.match.pattern.name for claim in owned)
    assert wanted == sorted(
        record.pattern for record in records if record.region in placement.regions and record.pattern
    )


@given(cases())
@settings(max_examples=30)
def test_random_placements(case: Case) -> None:
    check_case(case)


@pytest.mark.soak
@given(cases())
@settings(max_examples=10_000)
def test_many_random_placements(case: Case) -> None:
    check_case(case)


@given(cases())
def test_placing_is_deterministic_and_prints(case: Case) -> None:
    for one, other in zip(placements(case), placements(case), strict=True):
        assert one.module == other.module
        assert [claim.nodes for claim in one.claims] == [claim.nodes for claim in other.claims]
        assert one.records() == other.records()
        assert parse_module(*print_module(one.module)) == one.module


@given(cases())
def test_what_was_placed_stays_where_it_is(case: Case) -> None:
    if not (found := placements(case)):
        return
    placed = found[0]
    again = place(placed.module, case.owners, HOSTS)
    for name in placed.regions:
        assert again.module[name] is placed.module[name]
    owned = [record.owner for record in placed.records()]
    assert sum(owner is not None for owner in owned) <= sum(r.owner is not None for r in again.records())


SCRIPT = """
import hashlib
from tests._support.partitions import BOTH, X, Y, any_, model, op, owner, w
from uma.partition import place
from uma.relay import TupleGetItem, call
from uma.relay.text import print_module

value = X
for number in range(60):
    split = call("split", call("add", value, Y), indices=(2,), axis=1)
    joined = call("concatenate", TupleGetItem(split, 1), call("nn.relu", TupleGetItem(split, 0)), axis=1)
    value = call("maximum", call("nn.relu", joined), call("clip", value, a_min=-number, a_max=9))
halves = op("split")(w(), indices=any_, axis=any_)
owners = [BOTH, owner("dsp", op("clip")(w(), a_min=any_, a_max=any_), halves, op("maximum")(w(), w()))]
placement = place(model(value), owners)
print(hashlib.sha256((print_module(placement.module)[0] + repr(placement.records())).encode()).hexdigest())
"""


@pytest.mark.soak
def test_another_process_places_alike() -> None:
    """Whatever seed strings are hashed with, and wherever objects lie in memory."""
    found = set()
    for seed in ("0", "1", "77"):
        command = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        found.add(done.stdout)
    assert len(found) == 1
