"""Regions that several matches were merged into: `uma verify` names the match that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests._support.plugins import HOST, entry_of, module_of, taking, toy
from tests._support.regions import CHAIN, OPS, X, whole
from tests._support.small_models import Uma
from tests._support.te_lowerings import lowered

from uma.hookspecs import Pattern, Refuse
from uma.plugins import PluginEntry, PluginHost
from uma.relay import Call, Function, GlobalVar, IRModule, Tuple, TupleGetItem, call, const
from uma.relay.pattern import Match, any_, op, outputs, tuple_item, wildcard
from uma.relay.text import print_module
from uma.relay.visit import post_order
from uma.targets import Target

Install = Callable[[list[PluginEntry]], None]
VERIFY = ("verify", "m.py", "--target", "npu", "--target", "plain")


@pytest.fixture
def uma(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Uma:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(print_module(CHAIN)[0])
    return Uma(capsys)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    def install(entries: list[PluginEntry]) -> None:
        host = PluginHost(lambda: [*entries, *entry_of(HOST)])
        monkeypatch.setattr("uma.plugins.default_host", lambda: host)

    return install


def off_by_one(function: Function) -> Any:
    return lowered(Function(function.params, call("add", function.body, const(1))))


def accelerator_of(wrong: str | None = None, **hooks: Any) -> list[PluginEntry]:
    """It takes all ops of the model, one of them wrongly."""
    return toy(
        "npu", patterns=lambda: [taking("npu", op, off_by_one if op == wrong else lowered) for op in OPS], **hooks
    )


def matches(function: Function) -> int:
    return sum(isinstance(expr, Call) for expr in post_order(function.body))


def test_what_is_right(uma: Uma, install: Install) -> None:
    install(accelerator_of())
    done = uma(*VERIFY)
    assert (done.code, done.err) == (0, "")
    assert "3 results of matches of 1 merged region, each lowered by itself: all agree\n" in done.out
    record = uma(*VERIFY, "--json").json
    assert [(row["region"], row["layers"], row["ok"]) for row in record["parts"]] == [
        ("npu_0", ["first"], True),
        ("npu_0", ["second"], True),
        ("npu_0", ["third"], True),
    ]
    assert record["parts_skipped"] == [] and all(row["compared"] >= 8 for row in record["parts"])


@pytest.mark.few(1)
@pytest.mark.parametrize(("op", "layer"), [("nn.relu", "first"), ("add", "second"), ("multiply", "third")])
def test_the_match_that_is_wrong_is_named(uma: Uma, install: Install, op: str, layer: str) -> None:
    install(accelerator_of(op))
    done = uma(*VERIFY)
    assert done.code == 7
    head, where, hint = done.err.splitlines()
    assert head.startswith(f"uma: error: layer {layer} differs from its reference: 8 of 8 elements differ")
    assert where == "  where: a match of region npu_0 of npu, lowered by itself, sample 'random 0'"
    assert hint == "  hint: the region as a whole differs too"


def test_what_is_not_taken_alone(uma: Uma, install: Install) -> None:
    def of_three(module: IRModule, function: Function) -> tuple[IRModule, GlobalVar]:
        if matches(function) < 3:
            raise Refuse("it takes three or none")
        return whole(function)

    install(accelerator_of(relay_to_tir=of_three))
    done = uma(*VERIFY)
    assert (done.code, done.err) == (0, "")
    said = "3 matches of merged regions could not be taken alone: its owner refuses it alone: it takes three or none\n"
    assert said in done.out
    rows = uma(*VERIFY, "--json").json["parts_skipped"]
    assert [(row["region"], row["target"], row["layers"]) for row in rows] == [
        ("npu_0", "npu", ["first"]),
        ("npu_0", "npu", ["second"]),
        ("npu_0", "npu", ["third"]),
    ]


def test_a_hook_that_fails_on_a_match_alone(uma: Uma, install: Install) -> None:
    def of_three(module: IRModule, function: Function) -> tuple[IRModule, GlobalVar]:
        if matches(function) < 3:
            raise KeyError("bias")
        return whole(function)

    install(accelerator_of(relay_to_tir=of_three))
    done = uma(*VERIFY)
    assert done.code == 0
    assert "3 matches of merged regions could not be taken alone: its owner does not lower it alone: " in done.out


def test_what_is_wrong_when_it_is_merged(uma: Uma, install: Install) -> None:
    def merged(module: IRModule, function: Function) -> tuple[IRModule, GlobalVar] | None:
        if matches(function) < 3:
            return None
        return whole(Function(function.params, call("add", function.body, const(1)), dict(function.attrs)))

    install(accelerator_of(relay_to_tir=merged))
    done = uma(*VERIFY)
    assert done.code == 7
    assert "layer first, second, third differs from its reference" in done.err
    assert "  hint: each of its matches that is taken alone agrees: it is how they are merged" in done.err


# A match of two results: one of them, both, or neither is used by other matches of the region and by the host.
HALVES = call("split", X, indices=(2,), axis=1)
LOW, HIGH = call("nn.relu", TupleGetItem(HALVES, 0)), call("clip", TupleGetItem(HALVES, 1), a_min=0.0, a_max=3.0)
JOINED = call("multiply", LOW, HIGH)
SHAPES = {
    "both inside": JOINED,
    "both inside and outside": Tuple([JOINED, LOW, HIGH]),
    "one inside, one outside": Tuple([call("multiply", LOW, LOW), HIGH]),
    "one unused outside": Tuple(
        [call("multiply", LOW, const([[2], [3]])), call("tanh", call("cast", HIGH, dtype="float32"))]
    ),
    "two such matches": Tuple(
        [
            JOINED,
            call("nn.relu", TupleGetItem(SECOND := call("split", call("multiply", X, X), indices=(2,), axis=1), 0)),
            call("clip", TupleGetItem(SECOND, 1), a_min=0.0, a_max=3.0),
        ]
    ),
    "views between": Tuple(
        [call("multiply", call("reshape", LOW, newshape=(4,)), call("reshape", HIGH, newshape=(4,))), LOW]
    ),
    "one result twice": Tuple([JOINED, LOW, LOW]),
    "the split itself": Tuple(
        [TupleGetItem(HALVES, 0), call("multiply", TupleGetItem(HALVES, 1), TupleGetItem(HALVES, 1))]
    ),
}


def pairs(wrong: bool = False) -> list[PluginEntry]:
    """An accelerator that takes the two halves as one match, and products, and splits; perhaps one result wrongly."""
    halves = op("split")(wildcard("int32").named("x"), indices=any_, axis=any_)
    both = outputs(op("nn.relu")(tuple_item(halves, 0)), op("clip")(tuple_item(halves, 1), a_min=0, a_max=any_))

    def lower(match: Match, target: Target) -> Any:
        function = match.function
        assert isinstance(function.body, Tuple)
        low, high = function.body.fields
        return lowered(Function(function.params, Tuple([low, call("add", high, const(int(wrong)))])))

    patterns = [Pattern("npu.both", both, None, lower), taking("npu", "multiply"), taking("npu", "split")]
    return toy("npu", patterns=lambda: patterns)


@pytest.mark.few(2)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_match_of_several_results(shape: str, uma: Uma, install: Install, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(print_module(module_of(SHAPES[shape]))[0])
    install(pairs())
    done = uma(*VERIFY, "--json")
    assert (done.code, done.err) == (0, "")
    record = done.json
    assert record["parts_skipped"] == [] and len(record["parts"]) >= 3 and all(row["ok"] for row in record["parts"])


def test_a_wrong_result_of_a_match_of_several(uma: Uma, install: Install, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(print_module(module_of(JOINED, {LOW: ["low"], HIGH: ["high"]}))[0])
    install(pairs(wrong=True))
    done = uma(*VERIFY)
    assert done.code == 7
    head, where, _ = done.err.splitlines()
    assert head.startswith("uma: error: layer low, high differs from its reference: 4 of 4 elements differ")
    assert where == "  where: a match of region npu_0 of npu, lowered by itself, sample 'random 0'"
