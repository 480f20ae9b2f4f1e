"""Loops that leave their buffers never become C: whoever made them is told so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests._support.passes import by_host, each_loop, of_loops
from tests._support.plugins import built, members_of, module_of, run, taking, toy
from tests._support.regions import CHAIN, RELU, X, fault
from tests._support.tir_tools import func

from uma.contract.passes import PHASES
from uma.errors import InternalError, ModelError, PluginError, TextError
from uma.hookspecs import CustomOp, LoweredKernel, Pass, Strategy
from uma.lowering.build_targets import resolve_targets
from uma.pipeline import stages
from uma.pipeline.driver import lower_loaded
from uma.pipeline.loading import load_model
from uma.plugins import default_host
from uma.program.text import parse_program
from uma.relay import Call, Function, GlobalVar, IRModule, call
from uma.relay.module import func_type
from uma.relay.op import Op
from uma.relay.text import print_module
from uma.tir import te
from uma.tir.form import nodes as tir

OFF_BY_ONE = func(
    """
def f(x: In[int32, (2, 4)], y: Out[int32, (2, 4)]):
    for i in range(2):
        for j in range(4):
            y[i, j] = x[i, j + 1]
"""
)
WHAT = "index j + 1 may be 1 to 4, and is not proven to be within dimension 1 of 'x', which has 4"

INCOMPLETE = func(
    """
def f(x: In[int32, (2, 4)], y: Out[int32, (2, 4)]):
    for i in range(2):
        for j in range(3):
            y[i, j] = x[i, j]
"""
)
RELU_ONLY = module_of(RELU, {RELU: ["first"]})


@pytest.mark.parametrize("hook", ["lower", "strategy", "relay_to_tir"])
@pytest.mark.parametrize(
    ("loops", "what"),
    [(OFF_BY_ONE, WHAT), (INCOMPLETE, "element [0, 3] of output 'y' is not surely written")],
    ids=["off by one", "incomplete"],
)
def test_a_lowering_that_is_not_safe_is_its_plugins_fault(hook: str, loops: tir.PrimFunc, what: str) -> None:
    def relay_to_tir() -> tuple[IRModule, GlobalVar]:
        made = IRModule.from_functions({"f": loops})
        return made, made.global_var("f")

    hooks: dict[str, Any] = {"patterns": lambda: [taking("npu", "nn.relu", lambda function: LoweredKernel(loops))]}
    if hook == "relay_to_tir":
        hooks["relay_to_tir"] = relay_to_tir
    elif hook == "strategy":
        hooks["patterns"] = lambda: [taking("npu", "nn.relu", None)]
        hooks["strategies"] = lambda: [Strategy("nn.relu", lambda fusion, target: LoweredKernel(loops))]
    error = fault(members_of(toy(**hooks)), RELU_ONLY)
    assert what in error.what and hook in error.what
    assert str(error.where).startswith("first, ")
    assert str(error.hint).startswith(("mend the index", "write every element"))


def longer(loop: tir.For) -> tir.Stmt:
    return tir.For(loop.var, loop.extent + 1, loop.body, loop.kind)


@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase.startswith("TIR")])
def test_a_pass_that_makes_loops_unsafe_is_named(phase: Any) -> None:
    members = by_host(Pass(phase, "lengthen", of_loops(each_loop(longer))))
    with pytest.raises(PluginError) as caught:
        built(RELU_ONLY, members)
    assert f"has pass 'lengthen' of {phase}, which gave loops 'relu' that are not safe: index" in caught.value.what
    assert "mend the index" in str(caught.value.hint)


def test_an_op_of_a_plugin_that_is_not_safe_is_its_fault() -> None:
    beyond = Op(
        "npu.next",
        "The next element. ``data``: any shape.",
        ("data",),
        infer=lambda attrs, data: data,
        reference=lambda attrs, data: data,
        compute=lambda attrs, out, x: te.compute(out.shape, lambda i, j: x[i, j + 1], "next"),
        kind="opaque",
    )
    members = members_of(toy(ops=lambda: [CustomOp(beyond)]))
    with members.known_ops():
        moved = call("npu.next", X)
        module = module_of(moved, {moved: ["first"]})
    with pytest.raises(PluginError, match=r"uma-npu 1.0 has op 'npu.next', whose loops are not safe: index") as caught:
        built(module, members)
    assert str(caught.value.where).startswith("first, ")


@pytest.mark.parametrize("stage", ["simplify_all", "unroll_all"])
def test_a_stage_of_ours_that_makes_loops_unsafe_is_named(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, stage, of_loops(each_loop(longer)))
    with pytest.raises(InternalError, match="loops are not safe: index") as caught:
        run(CHAIN, "m")
    assert str(caught.value.where).startswith(f"stage '{stage.removesuffix('_all')}', ")


def test_loops_that_come_with_a_module_are_the_models_fault() -> None:
    var = GlobalVar("f", func_type(OFF_BY_ONE))
    module = IRModule({GlobalVar("main", func_type(main := Function([X], Call(var, [X])))): main, var: OFF_BY_ONE})
    with pytest.raises(ModelError) as caught:
        run(module, "m")
    assert caught.value.what == WHAT
    assert str(caught.value.where).endswith("f, y[i, j] = x[i, j + 1]")


def test_an_index_that_was_changed_in_a_dump_is_found_in_its_line(tmp_path: Path) -> None:
    members = resolve_targets("c", default_host())
    lowered = lower_loaded(load_model(CHAIN, members), members, "flatten")
    assert isinstance(lowered, IRModule)
    text, _ = print_module(lowered)
    store = re.search(r"\[([\w *+]+)\] = ", text)
    assert store is not None
    dump = tmp_path / "dump.py"
    dump.write_text(text.replace(store[0], f"[{store[1]} + 100000] = ", 1))
    what = re.escape(f"index {store[1]} + 100000") + " may be 100000 to 100007, outside of dimension 0"
    with pytest.raises(TextError, match=what) as caught:
        load_model(dump, members)
    assert caught.value.line == text[: store.start()].count("\n") + 1


def test_a_program_text_is_held_to_it_as_well() -> None:
    text = """
@program
def m():
    a = input(int32, (4,))
    b = output(int32, (4,))
    f(a, b)

@prim_func
def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
    for i in range(4):
        y[i] = x[i - 1]
"""
    with pytest.raises(TextError, match="index i - 1 may be -1 to 2") as caught:
        parse_program(text, {}, "program.py")
    assert caught.value.where == "program.py:11:9"
