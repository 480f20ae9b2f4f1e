"""Lowerings at fault: each is an error that names plugin, hook, region or pattern, layers, and what was expected."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests._support import fake_device
from tests._support.plugins import HOST, built, entry_of, members_of, module_of, taking, toy
from tests._support.regions import CHAIN, OPS, T, X, fault

from uma.errors import ModelError, PluginError
from uma.hookspecs import LoweredKernel, Pattern, Runtime, Strategy
from uma.lowering.build_targets import resolve_targets
from uma.plugins import PluginHost
from uma.relay import Call, Expr, Function, GlobalVar, IRModule, Var, call
from uma.relay.module import func_type
from uma.relay.pattern import Match, any_, op, wildcard
from uma.relay.types import TensorType
from uma.tir import Machine, te
from uma.tir.form import nodes as tir


def loops(inputs: list[tuple[int, ...]], output: tuple[int, ...], dtype: str = "int32", **given: Any) -> tir.PrimFunc:
    """Loops of some type, which compute nothing much."""
    xs = [te.placeholder(shape, dtype, f"x{i}") for i, shape in enumerate(inputs)]
    cs = [te.placeholder(shape, dtype, f"c{i}") for i, shape in enumerate(given.get("constants", []))]
    return te.prim_func(xs, [te.compute(output, lambda *_: tir.const(0, dtype), "y")], constants=cs).func


def writes_its_input() -> tir.PrimFunc:
    x, y = tir.Buffer("x", (2, 4), "int32"), tir.Buffer("y", (2, 4), "int32")
    here = (tir.const(0), tir.const(0))
    body = tir.Seq((tir.Store(y, here, tir.Load(x, here)), tir.Store(x, here, tir.const(1))))
    return tir.PrimFunc((tir.Param(x, "input"), tir.Param(y, "output")), body)


def entry_calling(*functions: tir.PrimFunc, made: Callable[[list[GlobalVar], tuple[Var, ...]], Expr]) -> Any:
    """A `relay_to_tir` whose entry's body is what ``made`` gives of the names of ``functions`` and its parameters."""

    def relay_to_tir(function: Function) -> tuple[IRModule, GlobalVar]:
        names = [GlobalVar(f"f{i}", func_type(func)) for i, func in enumerate(functions)]
        entry = Function(function.params, made(names, function.params))
        var = GlobalVar("entry", func_type(entry))
        return IRModule({**dict(zip(names, functions, strict=True)), var: entry}), var

    return relay_to_tir


def prim(func: tir.PrimFunc) -> Any:
    def relay_to_tir() -> tuple[IRModule, GlobalVar]:
        made = IRModule.from_functions({"f": func})
        return made, made.global_var("f")

    return relay_to_tir


def ill_typed(function: Function) -> tuple[IRModule, GlobalVar]:
    """The name has the type of the region, the function another."""
    var = GlobalVar("f", func_type(function))
    return IRModule({var: loops([(4,)], (4,))}), var


def raises(error: BaseException) -> Any:
    def relay_to_tir() -> None:
        raise error

    return relay_to_tir


ONE, WITH_CONSTANT = loops([(2, 4)], (2, 4)), loops([(2, 4)], (2, 4), constants=[(4,)])
UNKNOWN = GlobalVar("unknown", func_type(ONE))

BAD_MODULES: dict[str, tuple[Any, str]] = {
    "no tuple": (lambda: "loops", "gave 'loops' from hook relay_to_tir"),
    "a tuple of three": (lambda: (1, 2, 3), "gave no pair of a module and its entry in hook relay_to_tir"),
    "no module": (lambda: ({}, UNKNOWN), "gave no pair of an IRModule and a GlobalVar in hook relay_to_tir"),
    "no entry": (lambda: (IRModule.from_functions({"f": ONE}), "f"), "gave no pair of an IRModule and a GlobalVar"),
    "an entry that is missing": (
        lambda: (IRModule.from_functions({"f": ONE}), UNKNOWN),
        "gave the entry 'unknown', which its module does not have",
    ),
    "an ill-typed module": (ill_typed, r"not sound: the function has type \(Tensor\[\(4,\), int32\]\)"),
    "an unknown global": (
        entry_calling(made=lambda names, params: Call(UNKNOWN, params)),
        "not sound: call of 'unknown', which the module does not have",
    ),
    "a variable of nowhere": (
        entry_calling(ONE, made=lambda names, params: Call(names[0], [Var("z", T)])),
        "not sound: 'z' is not a parameter of the function",
    ),
    "a wrong dtype": (prim(loops([(2, 4)], (2, 4), "int8")), r"gave the entry 'f' of type .*int8.*, not .*int32"),
    "a wrong shape": (prim(loops([(4, 2)], (2, 4))), "gave the entry 'f' of type"),
    "a wrong result": (prim(loops([(2, 4)], (8,))), "gave the entry 'f' of type"),
    "a constant as an input": (prim(WITH_CONSTANT), "constants are given by an entry function that calls the loops"),
    "too many inputs": (prim(loops([(2, 4), (2, 4)], (2, 4))), "inputs in order, then results"),
    "loops that write into their input": (prim(writes_its_input()), "not sound: malformed loops: input 'x' is written"),
    "what is not lowered": (
        entry_calling(made=lambda names, params: call("nn.relu", params[0])),
        "gave an entry that calls nn.relu, which is not lowered",
    ),
    "what it was given": (
        lambda function: given_back(function),
        "gave an entry that calls a function, which is not lowered",
    ),
    "a computed constant": (
        entry_calling(WITH_CONSTANT, loops([(2, 4)], (4,)), made=lambda n, p: Call(n[0], [p[0], Call(n[1], [p[0]])])),
        "gave an entry in which constant 'w0' of 'f0' is computed",
    ),
    "an exception": (
        raises(ZeroDivisionError("by nought")),
        "failed in hook relay_to_tir: ZeroDivisionError: by nought",
    ),
    "the end of the world": (raises(SystemExit(3)), "failed in hook relay_to_tir: SystemExit: 3"),
    "an error of the core's": (raises(ModelError("mine")), "failed in hook relay_to_tir: uma.errors.ModelError: mine"),
    "an error of plugins": (raises(PluginError("no licence")), "no licence"),
    "a module of junk": (
        lambda: (IRModule({1: 2}), UNKNOWN),
        "failed in hook relay_to_tir: .*a module has int under int",
    ),
}


def given_back(function: Function) -> tuple[IRModule, GlobalVar]:
    made = IRModule.from_functions({"f": function})
    return made, made.global_var("f")


@pytest.mark.parametrize("case", list(BAD_MODULES))
def test_what_relay_to_tir_may_not_give(case: str) -> None:
    hook, what = BAD_MODULES[case]
    error = fault(members_of(toy("npu", *OPS, relay_to_tir=hook)))
    assert re.search(what, error.what), error.what
    text = f"{error.what} {error.where}"
    assert "hook relay_to_tir" in text and "region 'npu_0'" in text
    assert str(error.where).startswith("first, second, third, ")


def test_parameters_in_another_order() -> None:
    relu = op("nn.relu")
    join = op("concatenate")(relu(wildcard("int32")), relu(wildcard("int32")), axis=any_)
    other = Var("z", TensorType((3, 4), "int32"))
    body = call("concatenate", call("nn.relu", X), call("nn.relu", other), axis=0)
    hooks: dict[str, Any] = {"patterns": lambda: [Pattern("npu.join", join)]}
    members = members_of(toy(**hooks, relay_to_tir=prim(loops([(3, 4), (2, 4)], (5, 4)))))
    assert "inputs in order" in fault(members, module_of(body)).what


BAD_LOWERED: dict[str, tuple[Callable[[Function], Any], str]] = {
    "no Lowered": (lambda function: ONE, "gave PrimFunc instead of LoweredKernel or ScheduledKernel from"),
    "False": (lambda function: False, "gave bool instead of LoweredKernel or ScheduledKernel from"),
    "a wrong dtype": (
        lambda function: LoweredKernel(loops([(2, 4)], (2, 4), "int8")),
        r"gave loops with inputs \(Tensor\[\(2, 4\), int8\]\), not \(Tensor\[\(2, 4\), int32\]\) from",
    ),
    "a wrong output": (
        lambda function: LoweredKernel(loops([(2, 4)], (8,))),
        r"gave loops with outputs \(Tensor\[\(8,\), int32\]\), not \(Tensor\[\(2, 4\), int32\]\) from",
    ),
    "too many inputs": (lambda function: LoweredKernel(loops([(2, 4), (2, 4)], (2, 4))), "gave loops with inputs"),
    "loops that write into their input": (
        lambda function: LoweredKernel(writes_its_input()),
        "gave loops that are not sound: malformed loops: input 'x' is written",
    ),
    "no constants": (lambda function: LoweredKernel(WITH_CONSTANT), ""),
    "a constant of another dtype": (lambda function: LoweredKernel(WITH_CONSTANT, (np.zeros(4),)), ""),
    "an exception": (lambda function: {}["weights"], "failed in WHERE: KeyError: 'weights'"),
}


@pytest.mark.parametrize("hook", ["lower", "strategy of a pattern", "strategy of an op"])
@pytest.mark.parametrize("case", list(BAD_LOWERED))
def test_what_a_lowering_of_a_match_may_not_give(case: str, hook: str) -> None:
    lower, what = BAD_LOWERED[case]
    if hook == "lower":
        name, members = "lower of pattern 'npu.add'", members_of(toy(patterns=lambda: [taking("npu", "add", lower)]))
    else:
        of = "npu.add" if "pattern" in hook else "add"
        name = f"strategy '{of}'"
        hooks: dict[str, Any] = {
            "patterns": lambda: [taking("npu", "add", None)],
            "strategies": lambda: [Strategy(of, lambda fusion, target: lower(fusion.function))],
        }
        members = members_of(toy(**hooks))
    error = fault(members)
    assert re.search(what.replace("WHERE", name), error.what), error.what
    assert name in f"{error.what} {error.where}"
    assert str(error.where).startswith("second, ")
    if "constant" in case:
        assert "the function takes (int32[4])" in error.what


@pytest.mark.parametrize("hook", ["lower", "relay_to_tir"])
@pytest.mark.parametrize(
    ("runtime", "what"),
    [
        (None, "a device, for which hook runtime gives no driver"),
        (fake_device.runtime(machine=Machine()), "the memory 'spad', which its Runtime does not declare"),
        (
            fake_device.runtime(machine=Machine((fake_device.SPAD,))),
            "the intrinsic 'add', which its Runtime does not declare",
        ),
    ],
)
def test_loops_that_use_what_their_plugin_does_not_declare(runtime: Runtime | None, what: str, hook: str) -> None:
    func = fake_device.doubling(8)
    flat = Var("flat", TensorType((8,), "int32"))
    hooks: dict[str, Any] = {"relay_to_tir": prim(func)} if hook == "relay_to_tir" else {}
    patterns = lambda: [taking("npu", "nn.relu", lambda function: LoweredKernel(func))]  # noqa: E731 - as short as its use
    relu = call("nn.relu", flat)
    error = fault(
        members_of(toy(patterns=patterns, runtime=lambda: runtime, **hooks)), module_of(relu, {relu: ["first"]})
    )
    name = "f" if hook == "relay_to_tir" else "relu"
    assert error.what == f"plugin uma-npu 1.0 gave loops '{name}' that use {what}, in a lowering, for region 'npu_0'"
    assert str(error.where).startswith("first, ")


def test_a_pattern_that_fails() -> None:
    def predicate(match: Match) -> bool:
        raise ZeroDivisionError("by nought")

    error = fault(members_of(toy(patterns=lambda: [taking("npu", "add", predicate=predicate)])))
    raised = "a predicate raised ZeroDivisionError: by nought"
    assert error.what == f"plugin uma-npu 1.0 has a pattern that fails: {raised}"
    assert str(error.where).startswith("second, ") and "npu.add" in str(error.where)


def test_a_pattern_of_the_hosts_that_fails() -> None:
    def predicate(match: Match) -> bool:
        raise ZeroDivisionError("by nought")

    entries = entry_of(HOST, patterns=lambda: [taking("plain", "add", None, predicate)])
    with pytest.raises(PluginError, match=r"uma-plain 1.0 has a pattern that fails: .*by nought") as caught:
        built(CHAIN, resolve_targets("plain", PluginHost(lambda: entries)))
    assert str(caught.value.where).startswith("second, ")


def test_a_hosts_lowering_at_fault_names_its_layer() -> None:
    entries = entry_of(HOST, strategies=lambda: [Strategy("add", lambda fusion, target: 3)])  # type: ignore[arg-type,return-value]  # 3 is not a `LoweredKernel`
    wrong = r"uma-plain 1.0 gave int instead of LoweredKernel or ScheduledKernel from strategy 'add'"
    with pytest.raises(PluginError, match=wrong) as caught:
        built(CHAIN, resolve_targets("plain", PluginHost(lambda: entries)))
    assert str(caught.value.where).startswith("second, ")
