"""Strategies that give a kernel of tensor expressions, its loops scheduled: `ScheduledKernel`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests._support.plugins import entry_of, members_of, module_of, toy
from tests._support.programs import interpret_program

from uma.errors import PluginError
from uma.hookspecs import Fusion, Pattern, ScheduledKernel, Strategy
from uma.lowering import loops
from uma.lowering.build_targets import BuildTargets, resolve_targets
from uma.pipeline.stages import Build
from uma.plugins import PluginHost
from uma.program import Program
from uma.relay import Expr, Function, IRModule, TensorType, Var, call, const
from uma.relay.evaluate import evaluate
from uma.relay.pattern import any_, constant, op, wildcard
from uma.targets import Target, TargetKind
from uma.tir import Imm, te
from uma.tir.form.nodes import PrimFunc
from uma.tir.form.text import parse_func
from uma.tir.proofs.indices import Unproven
from uma.tir.schedule import Schedule

X = Var("x", TensorType((1, 6, 6, 2), "float32"))
WHOLE = np.random.default_rng(1).integers(-4, 5, (2, 3, 3, 2, 4)).astype(np.float32)
"""Whole numbers: sums of their products are exact in any order."""


def layer(weight: np.ndarray) -> Expr:
    product = call("nn.conv2d", X, const(weight), padding=(1, 1, 1, 1))
    return call("nn.relu", call("add", product, const([1.0, -2.0, 3.0, 0.5])))


def network() -> IRModule:
    """Two convolutions, each with bias and activation, that differ in their weights."""
    return module_of(call("concatenate", layer(WHOLE[0]), layer(WHOLE[1]), axis=-1))


def host_of(lower: Callable[[Fusion, Target], Any], name: str = "nn.conv2d") -> BuildTargets:
    host = TargetKind("mine", help="a host", is_host=True)
    entries = entry_of(host, strategies=lambda: [Strategy(name, lower)])
    return resolve_targets("mine", PluginHost(lambda: entries))


def kernels(module: IRModule, members: BuildTargets) -> dict[str, PrimFunc]:
    """What became loops, by name, of a program that computes what the model means."""
    build = Build("m", members)
    lowered = build.run(module, "lower")
    assert isinstance(lowered, IRModule)
    program = build.run(lowered)
    assert isinstance(program, Program)
    data = np.random.default_rng(0).integers(-4, 5, X.type.shape).astype(np.float32)
    found = interpret_program(program, {"in_x": data.ravel()})["out_0"]
    (expected,) = evaluate(module, {"x": data})
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)
    return {var.name: f for var, f in lowered.functions.items() if isinstance(f, PrimFunc)}


def padded_anchor(fusion: Fusion) -> tuple[te.Tensor, te.Tensor]:
    """The convolution of an input with a border of zeros; and that input."""
    data, weight = (fusion.tensors.by_expr[operand][0] for operand in fusion.operands)
    assert fusion.anchor is not None
    _, height, width, depth = data.shape
    pieces = [
        ((0, 0, 0, 0), (1, height + 2, width + 2, depth), lambda *_: Imm(0.0, "float32")),
        ((0, 1, 1, 0), data.shape, lambda *at: data[at]),
    ]
    padded = te.assemble((1, height + 2, width + 2, depth), "float32", pieces, "padded")
    kh, kw, ci = te.reduce_axis(3, "kh"), te.reduce_axis(3, "kw"), te.reduce_axis(depth, "ci")
    product = te.compute(
        fusion.anchor.shape,
        lambda n, h, w, c: te.sum(padded[n, h + kh, w + kw, ci] * weight[kh, kw, ci, c], (kh, kw, ci)),
        "product",
    )
    return product, padded


def test_loops_that_nothing_was_done_to_are_lowered_as_others_are() -> None:
    asked: list[list[str]] = []

    def conv2d(fusion: Fusion, target: Target) -> ScheduledKernel:
        kernel = fusion.plain()
        asked.append(list(kernel.labels.values()))
        return ScheduledKernel(kernel)

    made = kernels(network(), host_of(conv2d))
    assert asked[:2] == [["reduce0", "compute0"]] * 2
    assert len([name for name in made if "conv2d" in name]) == 1, "equal but for their constants"


def test_what_is_elementwise_throughout_is_offered_by_any_of_its_ops() -> None:
    """Not where a kernel has an anchor besides."""
    asked: list[list[str | None]] = []

    def negative(fusion: Fusion, target: Target) -> ScheduledKernel:
        asked.append([one.op_name for one in fusion.calls])
        return ScheduledKernel(fusion.plain())

    made = call("abs", call("negative", call("multiply", X, X)))
    kernels(
        module_of(call("concatenate", made, call("negative", layer(WHOLE[0])), axis=-1)), host_of(negative, "negative")
    )
    assert asked == [["multiply", "negative", "abs"]]


def test_an_anchor_may_be_computed_in_another_way() -> None:
    def conv2d(fusion: Fusion, target: Target) -> ScheduledKernel:
        product, padded = padded_anchor(fusion)
        kernel = fusion.plain(product, keep=[padded])
        assert list(kernel.labels)[:2] == [padded, product]
        return ScheduledKernel(kernel)

    (conv,) = (function for name, function in kernels(network(), host_of(conv2d)).items() if "conv2d" in name)
    assert [buffer.shape for buffer in conv.buffers("constant")] == [(3, 3, 2, 4), (4,)]


def test_a_residual_may_be_what_the_prologue_gives() -> None:
    def fold(fusion: Fusion, target: Target) -> ScheduledKernel:
        (data,) = (fusion.tensors.by_expr[operand][0] for operand in fusion.operands)
        k = te.reduce_axis(6, "k")
        assert fusion.anchor is not None
        total = te.compute(fusion.anchor.shape, lambda n, h, c: te.sum(data[n, h, k, c], k), "total")
        return ScheduledKernel(fusion.plain(total))

    rectified = call("nn.relu", X)
    kernels(module_of(call("multiply", call("sum", rectified, axis=(2,)), const(2.0))), host_of(fold, "sum"))


def test_an_accelerators_strategy_may_schedule_too() -> None:
    product = op("nn.conv2d")(wildcard("float32"), constant("float32"), padding=any_)
    table = [Pattern("npu.conv2d", product)]
    hooks: dict[str, Any] = {
        "patterns": lambda: table,
        "strategies": lambda: [Strategy("npu.conv2d", lambda fusion, target: ScheduledKernel(fusion.plain()))],
    }
    made = kernels(network(), members_of(toy(**hooks)))
    (conv,) = (function for name, function in made.items() if name.startswith("conv2d"))
    assert [buffer.shape for buffer in conv.buffers("constant")] == [WHOLE[0].shape], "equal but for their weights"


def other_loops(fusion: Fusion) -> te.Kernel:
    text = (
        "@prim_func\ndef f(x: In[float32, (2,)], y: Out[float32, (2,)]):\n    for i in range(2):\n        y[i] = x[i]"
    )
    return replace(fusion.plain(), func=parse_func(text)[1])


def own_placeholder(fusion: Fusion) -> te.Kernel:
    x, w = te.placeholder((1, 6, 6, 2), "float32", "x"), te.placeholder((4,), "float32", "mine")
    return te.plain([x], [te.compute((1, 6, 6, 4), lambda n, h, v, c: x[n, h, v, 0] * w[c], "y")], [w])


def out_of_bounds(fusion: Fusion) -> te.Kernel:
    x = te.placeholder((1, 6, 6, 2), "float32", "x")
    (w, b) = (
        tensor
        for param, tensor in zip(fusion.function.params, fusion.tensors.params, strict=True)
        if param in fusion.known
    )
    return te.plain([x], [te.compute((1, 6, 6, 4), lambda n, h, v, c: x[n, h, v, c], "y")], [w, b])


def in_registers(fusion: Fusion) -> te.Kernel:
    """The sums of a row in registers, and the loops over them as they were."""
    kernel = fusion.plain()
    schedule = Schedule(kernel.func)
    sums, label = next(iter(kernel.labels.items()))
    schedule.cache_write(label, kernel.buffers[sums], "register", at=schedule.loops(label)[1])
    return replace(kernel, func=schedule.func)


FAULTY: dict[str, tuple[Callable[[Fusion], Any], str]] = {
    "loops of another type": (
        other_loops,
        r"gave loops with inputs \(Tensor\[\(2,\), float32\]\), not \(Tensor\[\(1, 6",
    ),
    "constants of its own": (own_placeholder, "gave loops that are not sound: nothing is bound to constant 'mine'"),
    "no loops": (
        lambda fusion: replace(fusion.plain(), func="loops"),  # type: ignore[arg-type]  # text is not a function
        "ScheduledKernel.kernel.func is 'loops', not a PrimFunc",
    ),
    "no kernel": (lambda fusion: 3, "ScheduledKernel.kernel is 3, not a Kernel"),
    "an exception": (lambda fusion: {}["tile"], "failed in strategy 'nn.conv2d': KeyError: 'tile'"),
    "an anchor of another type": (
        lambda fusion: fusion.plain(te.compute((4,), lambda i: i, "y")),
        r"Fusion.plain is given the anchor 'y', Tensor\[\(4,\), int32\], where nn.conv2d gives Tensor\[\(1, ",
    ),
    "what is not computed is kept": (
        lambda fusion: fusion.plain(keep=[fusion.tensors.params[0]]),
        "is to be kept and is not computed",
    ),
}


@pytest.mark.parametrize("case", list(FAULTY))
def test_a_strategy_at_fault_is_named_and_ends_the_build(case: str) -> None:
    make, what = FAULTY[case]
    with pytest.raises(PluginError) as caught:
        Build("m", host_of(lambda fusion, target: ScheduledKernel(make(fusion)))).run(network(), "lower")
    text = f"{caught.value.what} {caught.value.where}"
    assert re.search(what, text), text
    assert "uma-mine 1.0" in text and "strategy 'nn.conv2d'" in text


def illegal(fusion: Fusion) -> te.Kernel:
    """Sums that would be finished before their products are added."""
    kernel = fusion.plain()
    schedule = Schedule(kernel.func)
    (_, label), *_ = kernel.labels.items()
    schedule.vectorize(schedule.loops(label)[-1])
    return replace(kernel, func=schedule.func)


def strided(fusion: Fusion) -> te.Kernel:
    """A vectorized loop whose lanes write every fourth element."""
    kernel = fusion.plain()
    schedule = Schedule(kernel.func)
    *_, label = kernel.labels.values()
    *_, column, channel = schedule.loops(label)
    schedule.reorder(channel, column)
    schedule.vectorize(schedule.split(column, 2)[1])
    return replace(kernel, func=schedule.func)


NOT_SCHEDULED: dict[str, tuple[Callable[[Fusion], te.Kernel], str, str]] = {
    "an illegal schedule": (illegal, "failed in strategy 'nn.conv2d': .*ScheduleError", "its schedule fails: loop"),
    "loops that are not safe": (
        out_of_bounds,
        "gave loops that are not safe from strategy 'nn.conv2d': index",
        "its loops are not safe: index",
    ),
    "a register that the loops choose": (
        in_registers,
        "gave loops that are not safe .*: 'a0_register' is in registers, and the index by 'i2' is not constant",
        "its loops are not safe: 'a0_register' is in registers",
    ),
    "vectors that no C makes": (
        strided,
        "gave loops that have no C from strategy 'nn.conv2d': vectorized loop .* lie 4 apart, not side by side",
        "its loops have no C: vectorized loop",
    ),
}


@pytest.mark.parametrize("case", NOT_SCHEDULED)
def test_a_host_that_cannot_schedule_a_kernel_is_named_and_the_next_strategy_is_asked(case: str) -> None:
    make, warning, reason = NOT_SCHEDULED[case]
    asked: list[str] = []

    def next_one(fusion: Fusion, target: Target) -> None:
        asked.append(fusion.calls[0].op_name or "")

    def failing(fusion: Fusion, target: Target) -> ScheduledKernel:
        return ScheduledKernel(make(fusion))

    host = TargetKind("mine", help="a host", is_host=True)
    strategies = [Strategy("nn.conv2d", failing), Strategy("nn.conv2d", next_one)]
    members = resolve_targets("mine", PluginHost(lambda: entry_of(host, strategies=lambda: strategies)))
    build = Build("m", members)
    with pytest.warns(RuntimeWarning, match=f"plugin uma-mine 1.0 {warning}") as caught:
        lowered = build.run(network(), "lower")
    assert isinstance(lowered, IRModule) and set(asked) == {"nn.conv2d"}
    assert "other loops are used instead" in str(caught[0].message)
    assert all(one.by == "strategy 'nn.conv2d'" and one.reason.startswith(reason) for one in build.facts.declined)
    assert len(build.facts.declined) == 2, "of each layer"
    default = Build("m", host_of(lambda fusion, target: None)).run(network(), "lower")
    assert (
        isinstance(default, IRModule) and list(lowered.functions.values())[1:] == list(default.functions.values())[1:]
    )


def test_loops_that_are_not_safe_once_they_are_unrolled_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Unproven("index i is not proven to be within 'y'", None, "write fewer elements")
    monkeypatch.setattr(loops, "unproven", lambda func: found)
    build = Build("m", host_of(lambda fusion, target: ScheduledKernel(fusion.plain())))
    with pytest.warns(RuntimeWarning, match=r"gave loops that have no C from strategy 'nn\.conv2d': index i"):
        build.run(network(), "lower")
    assert {one.reason for one in build.facts.declined} == {f"its loops have no C: {found}"}


def test_an_accelerator_that_cannot_schedule_a_match_ends_the_build() -> None:
    product = op("nn.conv2d")(wildcard("float32"), constant("float32"), padding=any_)
    hooks: dict[str, Any] = {
        "patterns": lambda: [Pattern("npu.conv2d", product)],
        "strategies": lambda: [Strategy("npu.conv2d", lambda fusion, target: ScheduledKernel(illegal(fusion)))],
    }
    with pytest.raises(PluginError, match=r"failed in strategy 'npu\.conv2d': .*ScheduleError"):
        Build("m", members_of(toy(**hooks))).run(network(), "lower")


@pytest.mark.parametrize("given", [0, -3, 2.0, True, "many"])
def test_an_estimate_of_instructions_is_a_whole_number(given: object) -> None:
    x = Var("x", TensorType((2,), "float32"))
    kernel = Fusion(Function([x], call("negative", x))).plain()
    assert ScheduledKernel(kernel, 7).instructions == 7 and ScheduledKernel(kernel).instructions is None
    with pytest.raises(PluginError, match=r"ScheduledKernel\.instructions is .*, not a whole number above 0") as caught:
        ScheduledKernel(kernel, given)  # type: ignore[arg-type]  # what the test is about
    assert caught.value.hint == "leave it out where it is not known"


def test_a_fusion_asks_for_loops_by_rows_only_where_it_says_so() -> None:
    x = Var("x", TensorType((2,), "float32"))
    made = Function([x], call("negative", x))
    assert not Fusion(made).by_rows and Fusion(made, by_rows=True).by_rows


def test_without_an_anchor_there_is_none_to_compute_in_another_way() -> None:
    x = Var("x", TensorType((2,), "float32"))
    body = call("nn.relu", call("negative", x))
    tensor = te.compute((2,), lambda i: Imm(0.0, "float32"), "y")
    with pytest.raises(PluginError, match="is given the anchor 'y' of a fusion that has none"):
        Fusion(Function([x], body)).plain(tensor)


def test_none_leaves_the_kernel_to_the_next_strategy_and_to_the_core() -> None:
    default = kernels(network(), host_of(lambda fusion, target: None))
    assert default == kernels(network(), host_of(lambda fusion, target: None, "nn.dense"))
