"""Kernels with copies in flight: the text, and that they wait for the right transfers of an engine that is late."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests._support.c_programs import SANITIZED, STRICT, UNSIMPLIFIED, Run, run_compiled
from tests._support.fake_device import runtime
from tests._support.tir_queues import (
    MACHINE,
    QUEUED,
    QUEUES,
    C,
    blocking,
    count_waits,
    pipelined,
    queued_funcs,
    with_wait,
)
from tests._support.tir_strategies import arguments, same_bits

from uma.codegen.kernel import kernel_source
from uma.tir.form.interp import interpret
from uma.tir.form.nodes import PrimFunc, Wait, seq
from uma.tir.form.text import parse_func
from uma.tir.rewrites.flatten import flatten
from uma.tir.rewrites.scratch_hoisting import hoist_scratch
from uma.tir.rewrites.simplify import simplify
from uma.tir.rewrites.unroll import unroll


def body(text: str) -> list[str]:
    """The C within the function of these loops, by lines, but for what caches need."""
    func = parse_func(f"{QUEUED}\n@prim_func\n{dedent(text).strip()}\n")[1]
    whole = kernel_source("f", hoist_scratch(func))
    lines = whole[whole.index("\n{\n") + 3 : whole.rindex("}")].splitlines()
    return dedent("\n".join(line for line in lines if "uma_clean(" not in line)).strip().splitlines()


def test_a_pipeline_reads_well() -> None:
    func = parse_func(pipelined(8, 2))[1]
    assert kernel_source("f", hoist_scratch(flatten(unroll(simplify(func))))) == dedent(
        """\
        static int32_t f(uma_device *device, const int8_t *restrict x_, int8_t *restrict y_, uint32_t t_, uint32_t r_)
        {
            uma_clean(device, x_, 64u);
            uma_clean(device, y_, 64u);
            UMA_TRY(toy_start_in(device, 0, t_, x_, 8, 1, 1, 1));
            for (int32_t i_ = 0; i_ < 8; ++i_) {
                if (i_ < 7) {
                    UMA_TRY(toy_start_in(device, 0, t_ + (i_ + 1) % 2 * 8, &x_[(i_ + 1) * 8], 8, 1, 1, 1));
                    UMA_TRY(toy_wait(device, 0, 1));
                } else {
                    UMA_TRY(toy_wait(device, 0, 0));
                }
                if (i_ >= 2) {
                    UMA_TRY(toy_wait(device, 1, 1));
                }
                UMA_TRY(toy_add(device, r_ + i_ % 2 * 8, 1, t_ + i_ % 2 * 8, 1, t_ + i_ % 2 * 8, 1, 8));
                UMA_TRY(toy_start_out(device, 1, &y_[i_ * 8], r_ + i_ % 2 * 8, 8, 1, 1, 1));
            }
            UMA_TRY(toy_wait(device, 1, 0));
            uma_invalidate(device, y_, 64u);
            return 0;
        }
        """
    )


COUNTED = """
def f(x: In[int32, (8, 4)], z: In[int32, (8, 8)], y: Out[int8, (1,)]):
    memories(acc)
    queues(dma, bus)
    a = alloc(int32, (2, 4), scope("acc"))
    b = alloc(int32, (2, 4), scope("acc"))
    y[0] = 0
    copy(view(a[0, 0], axis(0), axis(1)), view(x[0, 0], axis(0), axis(1)), (2, 4), dma)
    copy(view(b[0, 0], axis(0), axis(1)), view(z[0, 0], axis(0), axis(1)), ({rows}, 4), dma)
    wait(dma, {pending})
    wait(dma)
"""
"""The first copy is one transfer of all rows, the second one of each row."""


def test_a_copy_that_is_one_transfer_needs_no_counting() -> None:
    assert body(COUNTED.format(rows=1, pending=1)) == [
        "y_[0] = 0;",
        "UMA_TRY(toy_start_acc_in(device, 0, a_, x_, 32));",
        "UMA_TRY(toy_start_acc_in(device, 0, b_, z_, 16));",
        "UMA_TRY(toy_wait(device, 0, 1));",
        "UMA_TRY(toy_wait(device, 0, 0));",
        "return 0;",
    ]


def test_neither_does_a_wait_for_all() -> None:
    assert body(COUNTED.format(rows=2, pending=0))[-6:] == [
        "for (int32_t row_1_ = 0; row_1_ < 2; ++row_1_) {",
        "    UMA_TRY(toy_start_acc_in(device, 0, b_ + row_1_ * 16, &z_[row_1_ * 8], 16));",
        "}",
        "UMA_TRY(toy_wait(device, 0, 0));",
        "UMA_TRY(toy_wait(device, 0, 0));",
        "return 0;",
    ]


def test_transfers_are_counted_where_a_copy_is_several_and_is_left_pending() -> None:
    assert body(COUNTED.format(rows=2, pending=1)) == [
        "int32_t dma_1_[1] = {0};",
        "y_[0] = 0;",
        "dma_1_[0] = 0;",
        "UMA_TRY(toy_start_acc_in(device, 0, a_, x_, 32));",
        "++dma_1_[0];",
        "dma_1_[0] = 0;",
        "for (int32_t row_1_ = 0; row_1_ < 2; ++row_1_) {",
        "    UMA_TRY(toy_start_acc_in(device, 0, b_ + row_1_ * 16, &z_[row_1_ * 8], 16));",
        "    ++dma_1_[0];",
        "}",
        "UMA_TRY(toy_wait(device, 0, dma_1_[0]));",
        "UMA_TRY(toy_wait(device, 0, 0));",
        "return 0;",
    ]


def test_so_are_those_of_several_copies() -> None:
    lines = body(COUNTED.format(rows=2, pending=3))
    assert lines[0] == "int32_t dma_1_[3] = {0};"
    assert lines[2:6] == [
        "for (int32_t i_1_ = 2; i_1_ > 0; --i_1_) {",
        "    dma_1_[i_1_] = dma_1_[i_1_ - 1];",
        "}",
        "dma_1_[0] = 0;",
    ]
    assert lines[-3] == "UMA_TRY(toy_wait(device, 0, dma_1_[0] + dma_1_[1] + dma_1_[2]));"


# Compiled

EAGER = f"#define TOY_EAGER\n{C}"


def optimised(func: PrimFunc) -> PrimFunc:
    return hoist_scratch(flatten(unroll(simplify(func))))


def test_compiled_kernels_give_what_the_interpreter_gives(tmp_path: Path) -> None:
    runs: list[Run] = []
    expected: list[dict[str, np.ndarray]] = []

    @settings(
        max_examples=settings().max_examples // 8, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
    )
    @given(data=st.data(), func=queued_funcs())
    def collect(data: st.DataObject, func: PrimFunc) -> None:
        arrays = data.draw(arguments(func))
        wanted = interpret(blocking(func), arrays)
        for made in (hoist_scratch(func), optimised(func)):
            shapes = {buffer.name: buffer.shape for buffer in made.buffers("output")}
            runs.append(Run(made, arrays))
            expected.append({name: array.reshape(shapes[name]) for name, array in wanted.items()})

    collect()
    for compiler, flags, device in (
        ("gcc", SANITIZED, C),
        ("gcc", (*STRICT, "-O2"), EAGER),
        ("clang", (*STRICT, "-O2"), C),
    ):
        found = run_compiled(runs, compiler, (*flags, *UNSIMPLIFIED), tmp_path, device)
        for run, wanted, got in zip(runs, expected, found, strict=True):
            for name, array in wanted.items():
                assert same_bits(array, got[name]), f"{name} by {compiler} of\n{kernel_source('kernel', run.func)}"


def test_a_pipeline_without_one_of_its_waits_computes_something_else(tmp_path: Path) -> None:
    func = optimised(parse_func(pipelined(3, 2))[1])
    x = np.arange(1, 25, dtype=np.int8)

    def computed(made: PrimFunc) -> list[int]:
        # Each in a program of its own: what a kernel leaves in a queue comes to pass in the next one.
        return run_compiled([Run(made, {"x": x})], "gcc", STRICT, tmp_path, C)[0]["y"].tolist()

    assert computed(func) == (x * 2).tolist()
    assert count_waits(func.body) == 4
    for number in range(4):
        assert computed(with_wait(func, number, lambda wait: seq())) != (x * 2).tolist()
        assert computed(with_wait(func, number, lambda wait: Wait(wait.queue, wait.pending + 1))) != (x * 2).tolist()


def test_a_fault_of_an_engine_ends_the_kernel_with_its_code(tmp_path: Path) -> None:
    func = optimised(parse_func(pipelined(3, 2))[1])
    run = Run(func, {"x": np.zeros(24, np.int8)})
    for broken, code in (
        (C.replace("toy_spad[4096]", "toy_spad[12]"), 1),
        (C.replace("device == NULL || pending", "device != NULL || pending"), 91),
    ):
        with pytest.raises(AssertionError, match=r"stopped with code " + str(code)):
            run_compiled([run], "gcc", STRICT, tmp_path, broken)


# Declared


def test_a_queue_is_used_as_the_driver_declares_it() -> None:
    func = parse_func(pipelined(3, 2))[1]
    declared = runtime(machine=MACHINE)
    assert declared.undeclared(func) is None
    assert runtime(machine=replace(MACHINE, queues=QUEUES[:1])).undeclared(func) == "the queue 'bus'"
    other = parse_func(pipelined(3, 2).replace("toy_wait({device}, 1, {pending})", "system(1)"))[1]
    assert declared.undeclared(other) == "the queue 'bus'"
