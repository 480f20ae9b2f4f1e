"""`uma verify` proves anew that hosts requantise in floats as is asked for; `uma explain -v` counts it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests._support.plugins import HOST, entry_of
from tests._support.small_models import Uma

from uma.plugins import PluginHost
from uma.relay.expr import Call, Function, Var, call, const
from uma.relay.module import IRModule, Spans
from uma.relay.op import FixedPoint
from uma.relay.text import print_module
from uma.relay.transform.float_requantisation import requantise_in_floats
from uma.relay.types import TensorType

SCALE = FixedPoint((1518500249, 1893287561, 1120458719), (-8, -7, -9), "double")


def write(folder: Path, moved: float) -> None:
    """A layer whose form in floats has an offset that is moved by so much."""
    x = Var("x", TensorType((1, 5), "int8"))
    weight = const(np.random.default_rng(2).integers(-128, 128, (3, 5)).astype(np.int8))
    layer = call("qnn.requantize", call("qnn.dense", x, weight), scale=SCALE, dtype="int8")
    module = IRModule.from_functions({"main": Function([x], layer)}, Spans({layer: ["last"]}))
    made = requantise_in_floats(module, lambda call: frozenset({"float32"})).main.body
    assert isinstance(made, Call)
    form = made.attrs.form
    form = replace(form, offset=(form.offset[0] + moved, *form.offset[1:]))
    changed = Call(made.op, made.args, made.attrs.replace(form=form))
    (folder / "m.py").write_text(
        print_module(IRModule.from_functions({"main": Function([x], changed)}, Spans({changed: ["last"]})))[0]
    )


@pytest.fixture
def uma(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Uma:
    monkeypatch.chdir(tmp_path)
    host = PluginHost(lambda: [*entry_of(HOST)])
    monkeypatch.setattr("uma.plugins.default_host", lambda: host)
    return Uma(capsys)


def test_a_form_that_is_proven(uma: Uma, tmp_path: Path) -> None:
    write(tmp_path, 0.0)
    done = uma("verify", "m.py", "--target", "plain", "--samples", 1)
    assert (done.code, done.err) == (0, "")
    assert "3 channels are requantised in floats: proven to give what is asked for" in done.out
    done = uma("verify", "m.py", "--target", "plain", "--samples", 1, "--json")
    assert done.json["forms"] == [{"layers": ["last"], "form": "float32", "channels": 3, "unproven": 0}]


def test_a_form_that_is_not(uma: Uma, tmp_path: Path) -> None:
    """What is compiled computes it as it says, and so every kernel agrees with its reference."""
    write(tmp_path, 0.4)
    done = uma("verify", "m.py", "--target", "plain", "--samples", 1)
    assert done.code == 7
    what = "layer last is requantised in floats without proof: the float32 form of 1 of its 3 channels"
    assert what in done.err
    assert "all agree" in done.out


def test_explain_counts_channels(uma: Uma, tmp_path: Path) -> None:
    write(tmp_path, 0.0)
    done = uma("explain", "m.py", "--target", "plain", "-v")
    assert "channels that hosts requantise, by what they compute in: 3 in float32" in done.out
    assert uma("explain", "m.py", "--target", "plain", "--json").json["forms"] == {"float32": 3}
