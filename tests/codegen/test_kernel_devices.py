"""Kernels that use an accelerator: the text, and that compiled against a toy it computes what the interpreter does."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests._support.c_programs import SANITIZED, STRICT, UNSIMPLIFIED, Run, run_compiled
from tests._support.tir_devices import DEFINITIONS, C, device_funcs
from tests._support.tir_strategies import arguments, same_bits

from uma.codegen.kernel import kernel_source
from uma.errors import InternalError
from uma.tir.form.interp import interpret
from uma.tir.form.nodes import PrimFunc
from uma.tir.form.text import parse_func
from uma.tir.rewrites.flatten import flatten
from uma.tir.rewrites.scratch_hoisting import hoist_scratch
from uma.tir.rewrites.simplify import simplify
from uma.tir.rewrites.unroll import unroll


def parsed(text: str) -> PrimFunc:
    """The function that ``text`` is, with the toy's memories and intrinsics."""
    return parse_func(f"{DEFINITIONS}\n@prim_func\n{dedent(text).strip()}\n")[1]


def body(text: str) -> str:
    """The C within the function of these loops, but for what caches need."""
    whole = kernel_source("f", hoist_scratch(parsed(text)))
    lines = whole[whole.index("\n{\n") + 3 : whole.rindex("}")].splitlines()
    return dedent("\n".join(line for line in lines if "uma_clean(" not in line)).strip()


def test_a_kernel_of_an_accelerator_reads_well() -> None:
    dense = parsed(
        """
        def dense(x: In[int8, (8, 16)], out: Out[int32, (8, 4)], w: Const[int8, (16, 4)]):
            memories(spad, acc)
            b = alloc(int8, (16, 4), scope("spad"))
            copy(view(b[0, 0], axis(0), axis(1)), view(w[0, 0], axis(0), axis(1)), (16, 4))
            for i in range(2):
                a = alloc(int8, (4, 16), scope("spad"))
                t = alloc(int32, (4, 4), scope("acc"))
                copy(view(a[0, 0], axis(0), axis(1)), view(x[i * 4, 0], axis(0), axis(1)), (4, 16))
                copy(view(t[0, 0], axis(0), axis(1)), view(out[i * 4, 0], axis(0), axis(1)), (4, 4))
                for k in unrolled(2):
                    mac(
                        view(a[0, k * 4], axis(0), axis(1)), view(b[k * 4, 0], axis(0), axis(1)),
                        view(t[0, 0], axis(0), axis(1)), 4, 4, 4,
                    )
                copy(view(out[i * 4, 0], axis(0), axis(1)), view(t[0, 0], axis(0), axis(1)), (4, 4))
        """
    )
    assert kernel_source("dense", hoist_scratch(flatten(unroll(dense)))) == dedent(
        """\
        static int32_t dense(
            uma_device *device,
            const int8_t *restrict x_,
            int32_t *restrict out_,
            const int8_t *restrict w_,
            uint32_t b_,
            uint32_t a_,
            uint32_t t_)
        {
            uma_clean(device, x_, 128u);
            uma_clean(device, out_, 128u);
            uma_clean(device, w_, 64u);
            UMA_TRY(toy_in(device, b_, w_, 64, 1, 1, 1));
            for (int32_t i_ = 0; i_ < 2; ++i_) {
                UMA_TRY(toy_in(device, a_, &x_[i_ * 64], 64, 1, 1, 1));
                UMA_TRY(toy_acc_in(device, t_, &out_[i_ * 16], 64));
                UMA_TRY(toy_mac(device, t_, 16, 4, a_, 16, 1, b_, 4, 1, 4, 4, 4));
                UMA_TRY(toy_mac(device, t_, 16, 4, a_ + 4, 16, 1, b_ + 16, 4, 1, 4, 4, 4));
                UMA_TRY(toy_acc_out(device, &out_[i_ * 16], t_, 64));
            }
            uma_invalidate(device, out_, 128u);
            return 0;
        }
        """
    )


def test_a_copy_takes_the_longest_rows_and_the_fewest_loops() -> None:
    strided = body(
        """
        def f(x: In[int8, (3, 8, 16)], y: Out[int8, (1,)]):
            memories(spad)
            y[0] = 0
            t = alloc(int8, (3, 4, 8), scope("spad"))
            copy(view(t[0, 0, 0], axis(0), axis(1), axis(2)), view(x[0, 2, 4], axis(0), axis(1), axis(2)), (3, 4, 8))
        """
    )
    assert strided.splitlines()[1:] == [
        "for (int32_t row_1_ = 0; row_1_ < 3; ++row_1_) {",
        "    UMA_TRY(toy_in(device, t_ + row_1_ * 32, &x_[row_1_ * 128 + 36], 8, 4, 8, 16));",
        "}",
        "return 0;",
    ]


def test_rows_that_are_copied_one_by_one_are_in_a_loop() -> None:
    by_row = body(
        """
        def f(x: In[int32, (8, 16)], y: Out[int8, (1,)]):
            memories(acc)
            y[0] = 0
            t = alloc(int32, (4, 4), scope("acc"))
            copy(view(t[0, 0], axis(0), axis(1)), view(x[2, 4], axis(0, 2), axis(1)), (4, 4))
        """
    )
    assert by_row.splitlines()[1:] == [
        "for (int32_t row_1_ = 0; row_1_ < 4; ++row_1_) {",
        "    UMA_TRY(toy_acc_in(device, t_ + row_1_ * 16, &x_[row_1_ * 32 + 36], 16));",
        "}",
        "return 0;",
    ]


def test_elements_that_do_not_lie_side_by_side_are_rows_and_no_transfer_is_empty() -> None:
    text = body(
        """
        def f(x: In[int8, (8, 16)], y: Out[int8, (1,)]):
            memories(spad)
            y[0] = 0
            t = alloc(int8, (8,), scope("spad"))
            for i in range(8):
                copy(view(t[0], axis(0)), view(x[0, i], axis(0)), (i,))
                copy(view(t[0], axis(0)), view(x[i, 0], axis(1)), (i + 1,))
                copy(view(t[0], axis(0)), view(x[i, 0], axis(1)), (0,))
                copy(view(t[i]), view(x[i, 7]), ())
        """
    )
    assert text.splitlines()[2:-2] == [
        "    if (i_ > 0) {",
        "        UMA_TRY(toy_in(device, t_, &x_[i_], 1, i_, 1, 16));",
        "    }",
        "    UMA_TRY(toy_in(device, t_, &x_[i_ * 16], i_ + 1, 1, 1, 1));",
        "    if (false) {",
        "        UMA_TRY(toy_in(device, t_, &x_[i_ * 16], 0, 1, 1, 1));",
        "    }",
        "    UMA_TRY(toy_in(device, t_ + i_, &x_[i_ * 16 + 7], 1, 1, 1, 1));",
    ]


def test_copies_on_the_host_are_loops() -> None:
    func = parsed(
        """
        def f(x: In[int8, (8, 16)], y: Out[int8, (16, 8)]):
            copy(view(y[0, 0], axis(0), axis(1)), view(x[0, 0], axis(1), axis(0)), (16, 8))
        """
    )
    text = kernel_source("f", func)
    assert text.startswith("static void f(const int8_t *restrict x_, int8_t *restrict y_)\n")
    assert "y_[i_1_ * 8 + i_2_] = x_[i_2_ * 16 + i_1_];" in text


def test_what_is_read_for_a_copy_is_read_before_it() -> None:
    func = parsed(
        """
        def f(x: In[int32, (8,)], y: Out[int32, (8,)]):
            for i in range(8):
                y[i] = 7 - i
            copy(view(y[min(max(y[4], 0), 4)], axis(0)), view(x[y[7]], axis(0)), (4,))
        """
    )
    assert "const int32_t v_1_ = " in kernel_source("f", func)


def test_a_device_that_no_text_mentions_is_an_unused_parameter() -> None:
    source = """
    silent = memory(64)

    @intrinsic("silent_clear({a})")
    def clear(a: Operand[int8, (4,), scope("silent")]):
        for i in range(4):
            a[i] = 0

    @prim_func
    def f(x: In[int8, (4,)], y: Out[int8, (1,)], t: Workspace[int8, (4,), scope("silent")]):
        memories(silent)
        y[0] = 0
        clear(view(t[0], axis(0)))
    """
    text = kernel_source("f", parse_func(dedent(source))[1])
    assert "    (void)device;\n" in text
    assert "uint32_t t_)" in text


def test_memory_of_an_accelerator_has_its_address_from_outside() -> None:
    func = parsed(
        """
        def f(x: In[int8, (4,)], y: Out[int8, (1,)]):
            memories(spad)
            y[0] = 0
            t = alloc(int8, (4,), scope("spad"))
            copy(view(t[0], axis(0)), view(x[0], axis(0)), (4,))
        """
    )
    with pytest.raises(InternalError, match="'t' is allocated in memory 'spad' and has no address") as caught:
        kernel_source("f", func)
    assert caught.value.hint == "hoist_scratch makes it a parameter"


# Compiled


def test_compiled_kernels_give_what_the_interpreter_gives(tmp_path: Path) -> None:
    runs: list[Run] = []
    expected: list[dict[str, np.ndarray]] = []

    @settings(
        max_examples=settings().max_examples // 6, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
    )
    @given(data=st.data(), func=device_funcs())
    def collect(data: st.DataObject, func: PrimFunc) -> None:
        arrays = data.draw(arguments(func))
        wanted = interpret(func, arrays)
        for made in (hoist_scratch(func), hoist_scratch(flatten(unroll(simplify(func))))):
            shapes = {buffer.name: buffer.shape for buffer in made.buffers("output")}
            runs.append(Run(made, arrays))
            expected.append({name: array.reshape(shapes[name]) for name, array in wanted.items()})

    collect()
    for compiler, flags in (("gcc", SANITIZED), ("gcc", (*STRICT, "-O2")), ("clang", (*STRICT, "-O2"))):
        found = run_compiled(runs, compiler, (*flags, *UNSIMPLIFIED), tmp_path, C)
        for run, wanted, got in zip(runs, expected, found, strict=True):
            for name, array in wanted.items():
                assert same_bits(array, got[name]), f"{name} by {compiler} of\n{kernel_source('kernel', run.func)}"


def test_a_fault_ends_the_kernel_with_its_code(tmp_path: Path) -> None:
    func = parsed(
        """
        def f(x: In[int32, (4,)], y: Out[int32, (4,)], t: Workspace[int32, (4,), scope("acc")]):
            memories(acc)
            for i in range(4):
                y[i] = i
            copy(view(t[0], axis(0)), view(x[0], axis(0)), (4,))
            sum(view(y[0]), view(t[0], axis(0)), 4)
            copy(view(y[0], axis(0)), view(t[0], axis(0)), (4,))
        """
    )
    run = Run(func, {"x": np.arange(4, dtype=np.int32)})
    for broken, code in ((C, 0), (C.replace("toy_acc[2048]", "toy_acc[12]"), 3), (C.replace("== NULL", "!= NULL"), 91)):
        if code == 0:
            run_compiled([run], "gcc", STRICT, tmp_path, broken)
            continue
        with pytest.raises(AssertionError, match=r"stopped with code " + str(code)):
            run_compiled([run], "gcc", STRICT, tmp_path, broken)
