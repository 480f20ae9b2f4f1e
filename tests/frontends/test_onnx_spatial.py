"""Convolutions turned round, of three dimensions, and pools of all forms: what they compute, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from tests._support.onnx_builder import run_onnxruntime
from tests.frontends.test_onnx_moving import Inputs, Known, below, built, check, floats, refused

from uma.frontends import import_model
from uma.relay.evaluate import evaluate
from uma.relay.expr import Call
from uma.relay.visit import post_order

TRANSPOSED: dict[str, tuple[Inputs, dict[str, Any]]] = {
    "1-D": ([floats(2, 3, 5), floats(3, 2, 4)], {"strides": [3]}),
    "a stride over the kernel": (
        [floats(1, 2, 4), Known(floats(2, 2, 2), "float32")],
        {"strides": [4], "output_padding": [1]},
    ),
    "2-D": (
        [floats(1, 4, 3, 5), Known(floats(4, 3, 3, 2), "float32"), floats(3)],
        {"strides": [2, 1], "pads": [1, 0, 0, 1]},
    ),
    "groups": ([floats(1, 4, 3, 3), floats(4, 3, 3, 3)], {"strides": [2, 2], "group": 2, "output_padding": [1, 0]}),
    "dilated": (
        [floats(1, 2, 3, 4), floats(2, 2, 2, 3)],
        {"strides": [2, 3], "dilations": [3, 2], "pads": [1, 1, 1, 1]},
    ),
    "3-D": ([floats(1, 2, 2, 3, 2), floats(2, 3, 2, 2, 3)], {"strides": [2, 1, 2], "pads": [0, 1, 0, 1, 0, 1]}),
    "of a shape": ([floats(1, 2, 3, 3), floats(2, 2, 3, 3)], {"strides": [3, 2], "output_shape": [8, 7]}),
    "as large as the data": ([floats(1, 2, 3, 3), floats(2, 2, 3, 3)], {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "as large, odd in front": ([floats(1, 2, 3, 3), floats(2, 2, 3, 4)], {"strides": [1, 1], "auto_pad": "SAME_LOWER"}),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolutions(name: str) -> None:
    inputs, attrs = TRANSPOSED[name]
    check("ConvTranspose", inputs, **attrs)


PHASES: dict[str, tuple[Inputs, dict[str, Any], int]] = {
    "fewer taps": ([floats(1, 3, 5, 4), floats(3, 16, 3, 3), floats(16)], {"strides": [2, 2], "pads": [1] * 4}, 4),
    "fewer elements": (
        [floats(2, 3, 4, 5), Known(floats(3, 16, 4, 4), "float32")],
        {"strides": [2, 2], "pads": [1] * 4},
        4,
    ),
    "an odd extent": ([floats(1, 3, 5), Known(floats(3, 32, 5), "float32"), floats(32)], {"strides": [3]}, 3),
    "an element more": (
        [floats(1, 3, 4, 4), floats(3, 16, 3, 3)],
        {"strides": [2, 1], "pads": [1, 1, 1, 1], "output_padding": [1, 0]},
        2,
    ),
    "a group for each channel": (
        [floats(1, 16, 3, 4), Known(floats(16, 1, 3, 3), "float32"), floats(16)],
        {"strides": [2, 2], "group": 16, "pads": [1, 0, 0, 1]},
        4,
    ),
    "dilated": ([floats(1, 3, 6), floats(3, 16, 2)], {"strides": [2], "dilations": [2], "pads": [1, 0]}, 2),
    "volumes": ([floats(1, 2, 3, 2, 3), floats(2, 16, 3, 3, 3)], {"strides": [2, 2, 2], "pads": [1] * 6}, 8),
    "no fewer taps": ([floats(1, 3, 40), floats(3, 16, 4)], {"strides": [2], "pads": [1, 1]}, 1),
    "few channels": ([floats(1, 3, 5, 4), floats(3, 2, 3, 3)], {"strides": [2, 2], "pads": [1] * 4}, 1),
    "many phases": ([floats(1, 3, 2, 2), floats(3, 16, 4, 4)], {"strides": [3, 3]}, 1),
    "fewer taps than phases": ([floats(1, 3, 4), floats(3, 16, 1)], {"strides": [2], "pads": [1, 1]}, 1),
    "without the first data": ([floats(1, 3, 9), floats(3, 16, 3)], {"strides": [2], "pads": [3, 1]}, 1),
}
"""Inputs, attributes, and how many convolutions compute it: one for each phase where that has fewer products."""


@pytest.mark.parametrize("name", PHASES)
def test_phases_of_a_transposed_convolution(name: str) -> None:
    inputs, attrs, count = PHASES[name]
    check("ConvTranspose", inputs, **attrs)
    b, y, _ = built("ConvTranspose", inputs, 18, attrs)
    body = import_model(b.build(y)).module.main.body
    made = [expr for expr in post_order(body) if isinstance(expr, Call) and (expr.op_name or "").startswith("nn.conv")]
    assert len(made) == count


SPATIAL: dict[str, tuple[str, Inputs, dict[str, Any]]] = {
    "blocks to an image": (
        "Col2Im",
        [floats(2, 12, 12), Known([5, 6]), Known([2, 3])],
        {"strides": [1, 2], "dilations": [2, 1], "pads": [0, 1, 1, 0]},
    ),
    "3-D convolution": (
        "Conv",
        [floats(1, 4, 4, 5, 3), floats(6, 2, 2, 3, 2), floats(6)],
        {"group": 2, "strides": [1, 2, 1]},
    ),
    "3-D maximum": ("MaxPool", [floats(1, 2, 4, 5, 3)], {"kernel_shape": [2, 3, 2], "strides": [1, 2, 1]}),
    "3-D mean": ("AveragePool", [floats(1, 2, 4, 5, 3)], {"kernel_shape": [2, 3, 2], "pads": [1, 0, 0, 0, 1, 1]}),
    "maximum with gaps": (
        "MaxPool",
        [floats(1, 2, 9, 8)],
        {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 0, 2, 1], "ceil_mode": 1},
    ),
}


@pytest.mark.parametrize("name", SPATIAL)
def test_windows_of_all_forms(name: str) -> None:
    op, inputs, attrs = SPATIAL[name]
    check(op, inputs, **attrs)


@pytest.mark.parametrize("counted", [0, 1])
def test_means_with_gaps(counted: int) -> None:
    """Of opset 19. Older versions of onnxruntime count what their windows with gaps do not see."""
    if counted and tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 24):
        pytest.skip(f"onnxruntime {onnxruntime.__version__}")
    attrs = {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 0, 2, 1], "count_include_pad": counted}
    check("AveragePool", [floats(1, 2, 9, 8)], 19, **attrs)


@pytest.mark.parametrize("storage_order", [0, 1])
def test_where_the_maxima_are(storage_order: int) -> None:
    b, _, given = built("Relu", [floats(2, 3, 5, 7)], 18, {})
    attrs = {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1], "storage_order": storage_order}
    results = b.node("MaxPool", "x0", outputs=2, **attrs)
    data = b.build(*results)
    for ours, theirs in zip(evaluate(import_model(data).module, given), run_onnxruntime(data, given), strict=True):
        assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs)


def test_maxima_go_back() -> None:
    places = np.array([[[[5, 7], [13, 15]], [[16, 19], [24, 30]]]])
    check("MaxUnpool", [floats(1, 2, 2, 2), places], kernel_shape=[2, 2], strides=[2, 2])


FAULTS: dict[str, tuple[str, Inputs, dict[str, Any]]] = {
    "does not fit data of shape (1, 2, 3)": ("ConvTranspose", [floats(1, 2, 3), floats(2, 2, 3, 3)], {}),
    "does not fit 2 channels in 3 groups": ("ConvTranspose", [floats(1, 2, 3), floats(2, 2, 3)], {"group": 3}),
    "it has kernel_shape (2,) and a weight": (
        "ConvTranspose",
        [floats(1, 2, 3), floats(2, 2, 3)],
        {"kernel_shape": [2]},
    ),
    "it has strides (0,) for 1 spatial dimensions": (
        "ConvTranspose",
        [floats(1, 2, 3), floats(2, 2, 3)],
        {"strides": [0]},
    ),
    "it has pads (1,) for 1 spatial dimensions": ("ConvTranspose", [floats(1, 2, 3), floats(2, 2, 3)], {"pads": [1]}),
    "it has the unknown auto_pad 'SAME'": ("ConvTranspose", [floats(1, 2, 3), floats(2, 2, 3)], {"auto_pad": "SAME"}),
    "it has an output_shape of 1 numbers": (
        "ConvTranspose",
        [floats(1, 2, 3, 3), floats(2, 2, 3, 3)],
        {"output_shape": [5]},
    ),
    "its result has the impossible extents (-1,)": (
        "ConvTranspose",
        [floats(1, 2, 3), floats(2, 2, 3)],
        {"pads": [3, 3]},
    ),
    "its result of (2,) elements has none of the data": (
        "ConvTranspose",
        [floats(1, 2, 3), floats(2, 2, 3)],
        {"pads": [9, -6]},
    ),
    "it has a bias of shape (3,) for 2 channels": ("ConvTranspose", [floats(1, 2, 3), floats(2, 2, 3), floats(3)], {}),
    "its blocks (2,) of images (5, 5) do not fit": ("Col2Im", [floats(1, 4, 4), Known([5, 5]), Known([2])], {}),
    "its data has 3 blocks, its images (4,)": ("Col2Im", [floats(1, 4, 3), Known([5]), Known([2])], {}),
    "its indices of shape (1, 2, 2) or kernel (2,) do not fit": (
        "MaxUnpool",
        [floats(1, 2, 3), below(1, 1, 2, 2)],
        {"kernel_shape": [2]},
    ),
    "its result has the impossible extents (2,)": (
        "MaxUnpool",
        [floats(1, 2, 3), below(1, 1, 2, 3), Known([1, 2, 2])],
        {"kernel_shape": [2]},
    ),
}


@pytest.mark.parametrize("message", FAULTS)
def test_windows_that_are_wrong(message: str) -> None:
    op, inputs, attrs = FAULTS[message]
    assert message in refused(op, inputs, **attrs)


def test_windows_in_the_padding_have_no_mean() -> None:
    attrs = {"kernel_shape": [2], "dilations": [3], "pads": [2, 2]}
    assert "it has windows that lie in the padding alone" in refused("AveragePool", [floats(1, 1, 1)], 19, **attrs)
