"""A record of every op: where it went, and why not elsewhere."""

from __future__ import annotations

import json
from typing import get_args

import numpy as np
import pytest
from tests._support.partitions import BOTH, ONES, X, Y, model, owner, relu, w

from uma.partition import OpRecord, Owner, Reason, Refusal, place
from uma.partition.record import ReasonKind
from uma.relay import Expr, Function, IRModule, Spans, TensorType, Tuple, TupleGetItem, Var, call, const
from uma.relay.pattern import Clause, Failed, FailureKind, Pattern, any_, constant, op, optional, outputs, wildcard
from uma.support.json_record import to_json
from uma.targets.limits import Limits


def only(body: Expr, name: str, *owners: Owner, spans: dict[Expr, list[str]] | None = None) -> OpRecord:
    module = IRModule.from_functions({"main": Function([X, Y], body)}, Spans(spans or {}))
    (record,) = (record for record in place(module, owners).records() if record.op == name)
    assert json.loads(json.dumps(to_json(record))) == to_json(record)
    return record


def why(body: Expr, name: str, *owners: Owner, spans: dict[Expr, list[str]] | None = None) -> Reason:
    (reason,) = only(body, name, *owners, spans=spans).why
    return reason


def test_every_op_in_order() -> None:
    x = Var("x", TensorType((3, 5), "int8"))
    dense = call("qnn.dense", x, const(np.ones((2, 5), np.int8)))
    body = call("nn.relu", call("add", dense, const(np.ones(2, np.int32))))
    module = IRModule.from_functions({"main": Function([x], body)}, Spans({dense: ["fc", "fc2"]}))
    matmul = op("qnn.dense")(wildcard("int8"), constant("int8"))
    records = place(module, [owner("npu", matmul)]).records()
    assert records[0] == OpRecord("qnn.dense", ("fc", "fc2"), 30, "npu", "npu.p0", "npu_0", ())
    assert [(record.op, record.macs, record.owner) for record in records[1:]] == [
        ("add", 0, None),
        ("nn.relu", 0, None),
    ]
    assert to_json(records[0]) == {
        "op": "qnn.dense",
        "layers": ["fc", "fc2"],
        "macs": 30,
        "owner": "npu",
        "pattern": "npu.p0",
        "region": "npu_0",
        "pin": None,
        "free": False,
        "why": [],
    }


def test_taken_by_another() -> None:
    value = call("nn.relu", call("add", X, Y))
    dsp = owner("dsp", relu())
    assert why(value, "nn.relu", BOTH, dsp) == Reason("dsp", None, "taken", None, "taken already by npu", "npu")
    # The first owner could not have it, for reasons of its own.
    assert why(value, "nn.relu", owner("npu", op("add")(w(), w())), dsp).kind == "none"


def test_the_clause_and_the_value_that_failed() -> None:
    few = Clause("few", lambda match: Failed(np.int64(match.root.shape[1])), "at most 2 channels, not {value}")
    npu = owner("npu", Pattern("npu.relu", relu(), [few]))
    reason = why(call("nn.relu", X), "nn.relu", npu)
    assert (reason.pattern, reason.kind, reason.clause) == ("npu.relu", "clause", "few")
    assert reason.reason.startswith("clause few: at most 2 channels, not ")
    assert to_json(reason)["value"] == reason.value
    assert isinstance(reason.value, str)


def test_the_attribute_that_failed() -> None:
    npu = owner("npu", op("clip")(w(), a_min=0, a_max=any_))
    reason = why(call("clip", X, a_min=-1, a_max=1), "clip", npu)
    assert (reason.kind, reason.clause, reason.value) == ("attribute", None, "-1.0")
    assert reason.reason == "clip: attribute a_min is -1.0, the pattern takes 0.0"


def test_no_pattern_looks_at_it() -> None:
    assert why(call("maximum", X, Y), "maximum", BOTH) == Reason(
        "npu", None, "none", None, "no pattern takes maximum", None
    )


def test_a_value_that_is_used_outside() -> None:
    npu = owner("npu", op("nn.relu")(op("add")(w(), w())))
    a = call("add", X, Y)
    user = call("maximum", a, X)
    body = call("minimum", call("nn.relu", a), user)
    assert why(body, "add", npu, spans={user: ["m1", "m2"]}) == Reason(
        "npu",
        "npu.p0",
        "escapes",
        None,
        "pattern npu.p0 matches, but the value of add inside of it is also used by maximum (m1, m2)",
        None,
    )
    assert why(body, "nn.relu", npu).reason.endswith("is also used by maximum")
    for result in (Tuple([call("nn.relu", a), a]), Tuple([a, call("nn.relu", a)])):
        assert why(result, "add", npu).reason.endswith("the value of add inside of it is a result of the model, too")


def test_a_match_that_overlaps_another() -> None:
    npu = owner("npu", op("add")(w(), w()), op("nn.relu")(op("add")(w(), w())))
    reason = why(call("nn.relu", call("add", X, Y)), "nn.relu", npu)
    assert (reason.pattern, reason.kind) == ("npu.p1", "overlap")
    assert reason.reason == "pattern npu.p1 matches, but pattern npu.p0 of npu came first"


def test_a_match_at_a_root_that_was_taken() -> None:
    """Nobody tried it, as its root was no longer free."""
    npu = owner("npu", relu(), op("nn.relu")(op("add")(w(), w())))
    reason = why(call("nn.relu", call("add", X, Y)), "add", npu)
    assert (reason.pattern, reason.kind) == ("npu.p1", "overlap")
    assert reason.reason == "pattern npu.p1 matches, but pattern npu.p0 of npu came first"


def test_a_match_that_overlaps_another_owners() -> None:
    npu, dsp = owner("npu", op("add")(w(), w())), owner("dsp", op("nn.relu")(op("add")(w(), w())))
    record = only(call("nn.relu", call("add", X, Y)), "nn.relu", npu, dsp)
    assert record.why[1].reason == "pattern dsp.p0 matches, but pattern npu.p0 of npu came first"


@pytest.mark.parametrize(
    ("limits", "value", "text"),
    [
        (Limits(nbytes=60), 64, "it has 64 bytes, and a region of npu at most 60"),
        (Limits(outputs=1), 2, "it has 2 outputs, and a region of npu at most 1"),
        (Limits(operands=2), 3, "it has 3 inputs and outputs, and a region of npu at most 2"),
    ],
)
def test_a_limit(limits: Limits, value: int, text: str) -> None:
    npu = owner("npu", op("split")(w(), indices=any_, axis=any_), limits=limits)
    split = call("split", X, indices=(2,), axis=1)
    body = call("concatenate", TupleGetItem(split, 1), TupleGetItem(split, 0), axis=1)
    assert why(body, "split", npu) == Reason(
        "npu", "npu.p0", "limit", None, f"pattern npu.p0 matches, but {text}", value
    )


def test_a_limit_of_inputs() -> None:
    npu = owner("npu", op("add")(w(), w()), limits=Limits(inputs=1))
    assert only(call("add", X, X), "add", npu).owner == "npu"
    text = "pattern npu.p0 matches, but it has 2 inputs, and a region of npu at most 1"
    assert why(call("add", X, Y), "add", npu) == Reason("npu", "npu.p0", "limit", None, text, 2)


def test_a_match_that_would_need_what_it_gives() -> None:
    data = w()
    npu = owner("npu", outputs(op("nn.relu")(data), op("add")(data, w())))
    reason = why(call("add", X, call("maximum", call("nn.relu", X), Y)), "nn.relu", npu)
    assert reason.kind == "cycle"
    assert reason.reason == "pattern npu.p0 matches, but one of its results is needed to compute another of its inputs"


def test_a_refusal() -> None:
    placement = place(model(call("nn.relu", call("add", X, ONES))), [BOTH])
    after = placement.refuse([Refusal("npu_0", placement.regions["npu_0"].calls[0], "its scratchpad is full")])
    assert after.records()[0].why == (Reason("npu", "npu.p1", "refused", None, "its scratchpad is full", None),)


def test_a_refusal_of_a_match_and_of_a_smaller_one_is_told_once() -> None:
    grown = optional(op("add")(w(), w()), lambda value: op("nn.relu")(value))
    placement = place(model(call("nn.relu", call("add", X, Y))), [owner("npu", grown)])
    for _ in range(2):
        placement = placement.refuse([Refusal("npu_0", None, "its scratchpad is full")])
    told = Reason("npu", "npu.p0", "refused", None, "its scratchpad is full", None)
    assert [record.why for record in placement.records()] == [(told,), (told,)]


def test_every_kind_of_failure_is_a_kind_of_reason() -> None:
    assert set(get_args(FailureKind)) <= set(get_args(ReasonKind))
