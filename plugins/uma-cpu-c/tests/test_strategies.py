"""Layers by register tiles: int8 to the bit, floats to 1e-5, by gcc and by clang; and where today's loops stay."""

from __future__ import annotations

import numpy as np
import pytest
from tests._support.built_layers import PLUGINS, check, features, layers, same
from tests._support.random_layers import Layers, reference

import uma
from uma.relay import Function, IRModule, TensorType, Var, call, const
from uma.tir import PrimFunc, interpret


@pytest.mark.few(1)
@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_random_layers(cc: str) -> None:
    text = check(*layers(3, 11), f"c -cc={cc} -opt=2")
    if "avx2" in features():
        assert "UMA_FMA_f32x8" in text and "UMA_DOT" in text and "UMA_ROWS" in text and "uma_transpose_32" in text


@pytest.mark.soak
@pytest.mark.parametrize("cc", ["gcc", "clang"])
@pytest.mark.parametrize(
    ("machine", "form"),
    [
        ("x86_64-linux-gnu -mcpu=x86-64-v3", "UMA_DOT2"),
        ("x86_64-linux-gnu -mcpu=x86-64-v4", "UMA_DOT2"),
        ("x86_64-linux-gnu -mcpu=alderlake", "UMA_DOT4"),
        ("x86_64-linux-gnu -mcpu=icelake-server", "UMA_DOT4"),
        ("aarch64-linux-gnu -mcpu=cortex-a53", "UMA_SDOT2"),
        ("aarch64-linux-gnu -mcpu=cortex-a76", "UMA_SDOT4"),
    ],
)
def test_loops_for_other_cpus_in_the_portable_forms(machine: str, form: str, cc: str) -> None:
    """The loops of a CPU that this machine may not be, with what it has of the instructions."""
    loops = layers(7, 40, f"c -mtriple={machine} -opt=2")
    assert form in check(*loops, f"c -cc={cc} -opt=2")


def test_pixels_that_are_beyond_their_row() -> None:
    """Borders that are as wide as the kernel, or wider."""
    made, rng = Layers(1), np.random.default_rng(2)
    for (kh, kw), padding, stride in (((1, 1), (0, 0, 1, 2), 2), ((2, 2), (0, 2, 0, 0), 1), ((1, 3), (3, 3, 3, 3), 2)):
        weight = const(rng.uniform(-1, 1, (kh, kw, 1, 8)).astype(np.float32))
        x = made.input((1, 5, 4, 8), "float32")
        made.outputs.append(call("nn.conv2d", x, weight, strides=(stride, stride), padding=padding, groups=8))
    values = made.values()
    check(made.module, values, reference(made.module, values), "c -opt=2")


@pytest.mark.few(1)
@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_first_layers_are_given_no_copy_with_borders(cc: str) -> None:
    """Tiles at the border leave out what is beyond it: the same bits, as what they leave out adds nothing."""
    made, rng = Layers(1), np.random.default_rng(2)
    for width, channels, (kh, kw), padding, stride, rows_apart in (
        (120, 3, (3, 3), (1, 1, 1, 1), 2, 1),
        (61, 1, (5, 4), (2, 3, 0, 2), 1, 1),
        (57, 8, (3, 1), (0, 0, 2, 0), 1, 2),
    ):
        weight = const(rng.uniform(-1, 1, (kh, kw, channels, 8)).astype(np.float32))
        x = made.input((2, 7, width, channels), "float32")
        attrs = {"strides": (stride, stride), "padding": padding, "dilation": (rows_apart, 1)}
        made.outputs.append(call("nn.relu", call("nn.conv2d", x, weight, **attrs)))
    values = made.values()
    artifact = uma.build(made.module, f"c -cc={cc} -opt=2", name="layers", plugins=PLUGINS)
    same(artifact.run(values), reference(made.module, values))
    if "avx2" in features():
        assert "piece0" not in artifact.files["layers.c"].decode() and artifact.arena_bytes == 0


def test_many_sums_of_few_data_are_written_row_by_row() -> None:
    """What is written is far more than what is read, and more than a cache holds."""
    made, rng = Layers(1), np.random.default_rng(2)
    for shape, kernel, channels in (
        ((2, 700, 4), (), 411),
        ((1, 90, 67, 1), (3, 3), 80),
        ((1, 61, 70, 2), (1, 1), 130),
    ):
        weight = const(rng.uniform(-1, 1, (*kernel, shape[-1], channels)).astype(np.float32))
        x = made.input(shape, "float32")
        border = {"padding": (1, 1, 1, 1)} if kernel == (3, 3) else {}
        sums = call("nn.conv2d", x, weight, **border) if kernel else call("matmul", x, weight)
        made.outputs.append(call("nn.relu", sums))
    values = made.values()
    text = check(made.module, values, reference(made.module, values), "c -opt=2")
    if "avx2" in features():
        blocks, rows = (text.find(f"for (int32_t {name}") for name in ("i2_o_o_", "i1_o_"))
        assert 0 <= rows < blocks


def test_where_all_values_become_one_there_is_nothing_to_schedule() -> None:
    """As where the zero point is the largest number, and what is below it is cut off."""
    x = Var("x", TensorType((4, 8), "int8"))
    sums = call("qnn.dense", x, const(np.ones((16, 8), np.int8)), input_zero_point=3)
    module = IRModule.from_functions({"main": Function((x,), call("clip", sums, a_min=5, a_max=5))})
    loops = uma.build(module, "c -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3", plugins=PLUGINS, stop_after="flatten")
    assert isinstance(loops, IRModule)
    (func,) = (function for function in loops.functions.values() if isinstance(function, PrimFunc))
    (found,) = interpret(
        func, {buffer.name: np.zeros(buffer.shape, "int8") for buffer in func.buffers("input")}
    ).values()
    assert (found == 5).all()


@pytest.mark.parametrize(
    "target",
    [
        "c -mtriple=x86_64-linux-gnu",
        "c -mtriple=x86_64-linux-gnu -mcpu=x86-64-v4 -opt=s",
        "c -mcpu=cortex-m7f",
    ],
)
def test_elsewhere_todays_loops_stay(target: str) -> None:
    made = Layers(1)
    made.add("conv2d", True)
    made.add("dense", False)
    assert "uma_vectors.h" not in uma.build(made.module, target, plugins=PLUGINS).files


def grouped(dtype: str, inner: int, out: int, kernel: int, groups: int) -> Layers:
    """A grouped convolution of a few rows."""
    made = Layers(5)
    x = made.input((1, 6, 7, inner), dtype)
    weight = const(made.numbers((kernel, kernel, inner // groups, out), dtype))
    attrs = {"padding": (kernel // 2,) * 4, "groups": groups}
    made.outputs.append(call("nn.conv2d" if dtype == "float32" else "qnn.conv2d", x, weight, **attrs))
    return made


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("cpu", "integers"),
    [
        ("x86_64-linux-gnu -mcpu=x86-64-v3", "UMA_DOT2"),
        ("x86_64-linux-gnu -mcpu=icelake-server", "UMA_DOT4"),
        ("aarch64-linux-gnu -mcpu=cortex-a53", "UMA_SDOT2"),
        ("aarch64-linux-gnu -mcpu=cortex-a76", "UMA_SDOT4"),
    ],
)
def test_groups_whose_channels_fill_no_vectors_are_tiles(cpu: str, integers: str) -> None:
    for inner, out, kernel, groups in ((32, 20, 3, 4), (8, 264, 1, 2)):
        for dtype, form in (("float32", "UMA_FMA_f32x"), ("int8", integers)):
            made = grouped(dtype, inner, out, kernel, groups)
            assert form in c_text(made, f"c -mtriple={cpu}")


def c_text(made: Layers, target: str) -> str:
    return uma.build(made.module, target, name="n", plugins=PLUGINS).files["n.c"].decode()


def test_groups_are_merged_where_they_fill_a_vector_together() -> None:
    """Where that takes fewer products: 9 channels are three groups of four bytes, 18 are five."""
    target = "c -mtriple=x86_64-linux-gnu -mcpu=icelake-server"
    assert "UMA_DOT4_i32x16(" in c_text(grouped("int8", 18, 12, 5, 2), target)
    assert "UMA_DOT4_i32x16(" not in c_text(grouped("int8", 16, 12, 5, 2), target)


def test_weights_between_merged_groups_add_nothing() -> None:
    """They stand for 0, whatever the zero point."""
    made = Layers(4)
    for inner, out, kernel, groups, zero in ((18, 12, 5, 2, 0), (4, 8, 3, 4, 5), (12, 6, 3, 6, 5)):
        x = made.input((1, 5, 7, inner), "int8")
        weight = const(made.numbers((kernel, kernel, inner // groups, out), "int8"))
        attrs = {"padding": (kernel // 2,) * 4, "groups": groups, "input_zero_point": 3, "kernel_zero_point": zero}
        made.outputs.append(call("qnn.conv2d", x, weight, **attrs))
    values = made.values()
    check(made.module, values, reference(made.module, values), "c -opt=2")


def test_rows_of_a_large_picture_are_read_by_all_groups_in_turn() -> None:
    """What all groups read is more than a cache holds: some rows, then the next ones."""
    made = Layers(1)
    x = made.input((1, 66, 70, 60), "float32")
    weight = const(made.numbers((1, 1, 10, 42), "float32"))
    made.outputs.append(call("nn.relu", call("nn.conv2d", x, weight, groups=6)))
    values = made.values()
    check(made.module, values, reference(made.module, values), "c -opt=2")
