"""A saved state is the model's: it fits whatever the model is built for, and wherever its layers are pinned to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests._support.plugins import HOST, accelerator, entry_of, taking
from tests._support.regions import CHAIN, RELU, SUM, X

import uma
from uma.errors import ModelError
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.pins import pin_layers, unpinned
from uma.plugins import PluginHost
from uma.relay import Call, Function, GlobalVar, IRModule, Var, call
from uma.relay.text import parse_module, print_module

FILTER = """\
signature(inputs=[tensor('x'), tensor('past')], outputs=[tensor('y'), tensor('next')])

@function
def main(x: Tensor[(4,), int32], past: Tensor[(4,), int32]) -> Tuple[Tensor[(4,), int32], Tensor[(4,), int32]]:
    v0: ('sum',) = add(x, past)
    v1: ('twice',) = multiply(v0, const(2, int32))
    v2: ('relu',) = nn.relu(v1)
    return (v2, v1)
"""
NPUS = ("one: npu", "two: npu", "plain")
STEP = np.arange(4, dtype=np.int32)


@pytest.fixture
def plugins() -> PluginHost:
    takes = [taking("npu", name) for name in ("nn.relu", "add", "multiply")]
    return PluginHost(lambda: [*entry_of(HOST), *entry_of(accelerator("npu"), patterns=lambda: takes)])


def test_a_state_fits_other_pins_and_other_targets(plugins: PluginHost) -> None:
    def build(targets: Any, text: str = FILTER, **pins: str) -> uma.Artifact:
        module = parse_module(text)
        return uma.build(module, targets, states={"past": "next"}, pins=pins, plugins=plugins)

    first = build("plain").session()
    first.run(STEP)
    saved, expected = first.save(), first.run(STEP)["y"]
    np.testing.assert_array_equal(expected, STEP * 6)
    others = [
        build(NPUS),
        build(NPUS, sum="one", twice="two"),
        build(NPUS, sum="two", relu="plain"),
        build(NPUS, FILTER.replace("add(x, past)", "add(x, past) @ 'two'"), twice="one"),
        build("host: plain; npu", sum="npu"),
    ]
    for other in others:
        session = other.session()
        session.restore(saved)
        np.testing.assert_array_equal(session.run(STEP)["y"], expected)
        assert session.save().arrays.keys() == {"past"}
    for changed in (FILTER.replace("const(2", "const(3"), FILTER.replace("'twice'", "'thrice'")):
        with pytest.raises(ModelError, match="another model"):
            build(NPUS, changed, sum="one").session().restore(saved)


def test_what_a_module_is_without_pins(plugins: PluginHost) -> None:
    members = resolve_targets(NPUS, plugins)
    pinned = pin_layers(CHAIN, {"first": "one", "second": "two", "third": "plain"}, members)
    assert isinstance(pinned, IRModule) and "@ 'two'" in print_module(pinned)[0]
    assert unpinned(pinned) == CHAIN and print_module(unpinned(pinned)) == print_module(CHAIN)


def test_functions_have_no_pins_then_either() -> None:
    p = Var("p", RELU.type)
    inner = Function([p], call("nn.relu", p).pinned("one"), {"Composite": "npu.relu", "Compiler": "one"})
    outer = Function([p], Call(inner, [p]), {"Compiler": "two"})
    made = unpinned(IRModule({GlobalVar("f", outer.type): outer, GlobalVar("main", SUM.type): outer}))
    for function in made.functions.values():
        assert isinstance(function, Function) and isinstance(function.body, Call)
        assert function.attrs == () and isinstance(function.body.op, Function)
        assert function.body.op.attrs == (("Composite", "npu.relu"),)
        assert function.body.op.body is call("nn.relu", p)
    both = call("add", call("nn.relu", X).pinned("one"), call("nn.relu", X).pinned("two"))
    assert unpinned(IRModule.from_functions({"main": Function([X], both)})).main.body is call(
        "add", call("nn.relu", X), call("nn.relu", X)
    )
