"""Transforms, frames and grids of a shape, and images read between their elements, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder
from tests._support.onnx_compared import Build, agree, with_
from tests.frontends.test_onnx_run_time import Fed, ints

from uma.errors import ModelError
from uma.frontends import import_model
from uma.relay.evaluate import evaluate

RNG = np.random.default_rng(0)
F = np.float32


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(F)


# --- transforms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 2])
def test_transforms(parts: int) -> None:
    """Along any axis, of any length, of the lower half of the frequencies: against numpy."""
    x = floats(2, 9, 6, parts)
    whole = x[..., 0] if parts == 1 else x[..., 0] + 1j * x[..., 1]
    for axis, length, onesided in ((1, None, 0), (2, 5, 0), (-2, 8, 1), (1, 12, 1)):
        if onesided and parts == 2:
            continue
        b = OnnxBuilder(20)
        given = "" if length is None else b.constant(length, "int64")
        y = b.node("DFT", b.input("x", x.shape), given, b.constant(axis, "int64"), onesided=onesided)
        (found,) = evaluate(import_model(b.model(y).SerializeToString()).module, {"x": x})
        wanted = np.fft.fft(whole, length, axis % 4 if axis > 0 else 2)
        if onesided:
            wanted = wanted[:, :, : wanted.shape[2] // 2 + 1] if axis == -2 else wanted[:, : wanted.shape[1] // 2 + 1]
        np.testing.assert_allclose(found, np.stack([wanted.real, wanted.imag], -1), 1e-4, 1e-5)


def test_back_from_the_lower_half() -> None:
    x = floats(3, 10, 1)
    for count in (9, 10):
        wide = np.fft.rfft(x[:, :count, 0])
        half = np.stack([wide.real, wide.imag], -1).astype(F)
        b = OnnxBuilder(19)
        y = b.node("DFT", b.input("x", half.shape), b.constant(count, "int64"), axis=1, inverse=1, onesided=1)
        (found,) = evaluate(import_model(b.model(y).SerializeToString()).module, {"x": half})
        np.testing.assert_allclose(found, x[:, :count], 1e-4, 1e-5)


@pytest.mark.parametrize("parts", [1, 2])
def test_back_to_pairs(parts: int) -> None:
    x = floats(2, 7, 3, parts)
    whole = x[..., 0] if parts == 1 else x[..., 0] + 1j * x[..., 1]
    for axis, length in ((1, None), (2, 5), (1, 4)):
        b = OnnxBuilder(20)
        given = "" if length is None else b.constant(length, "int64")
        y = b.node("DFT", b.input("x", x.shape), given, b.constant(axis, "int64"), inverse=1)
        (found,) = evaluate(import_model(b.model(y).SerializeToString()).module, {"x": x})
        wanted = np.fft.ifft(whole, length, axis)
        np.testing.assert_allclose(found, np.stack([wanted.real, wanted.imag], -1), 1e-4, 1e-5)


def test_transforms_of_frames() -> None:
    signal, window = floats(2, 40, 1), np.hanning(16).astype(F)
    agree(with_("STFT", np.array(5), window, np.array(16)), {"x": signal}, 17, 1e-5)
    agree(with_("STFT", np.array(8), window, onesided=0), {"x": signal}, 17, 1e-5)
    agree(with_("STFT", np.array(7), None, np.array(12)), {"x": signal}, 17, 1e-5)


FED = {
    "an axis": Fed("DFT", [floats(2, 4, 4, 1), None, np.array(-2, np.int64)], [(2, 4, 4, 2)], opset=20),
    "a length": Fed("DFT", [floats(2, 4, 1), np.array(6, np.int64)], [(2, 4, 2)], opset=19, attrs={"onesided": 1}),
    "a step": Fed("STFT", [floats(1, 30, 1), np.array(5, np.int64), None, np.array(10)], [(1, 5, 6, 2)], (3,), 17),
    "frames": Fed("STFT", [floats(1, 32, 1), np.array(4, np.int64), None, np.array(8)], [(1, 7, 5, 2)], opset=17),
    "a shape to crop to": Fed("CenterCropPad", [floats(5, 3, 4), ints(2, 4, 7)], [(2, 4, 7)]),
    "a size of a grid": Fed("AffineGrid", [floats(2, 2, 3), ints(2, 1, 3, 4)], [(2, 3, 4, 2)], opset=20),
    "an image and its blocks": Fed("Col2Im", [floats(1, 6, 8), ints(4, 3), ints(1, 2)], [(1, 3, 4, 3)]),
    "blocks": Fed("Col2Im", [floats(1, 6, 12), ints(4, 4), ints(2, 1)], [(1, 3, 4, 4)], (1,)),
    "a shape to unpool to": Fed(
        "MaxUnpool",
        [floats(1, 1, 2, 2), ints(5, 7, 13, 15).reshape(1, 1, 2, 2), ints(1, 1, 5, 5)],
        [(1, 1, 5, 5)],
        attrs={"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
}


@pytest.mark.parametrize("name", FED)
def test_what_is_fed_at_run_time(name: str) -> None:
    """What is computed is what is computed where it is known."""
    case = FED[name]
    parameters = {key: value for key, value in case.fed.items() if key != "x0"}
    (wanted,) = evaluate(import_model(case.model(), constants=dict(parameters)).module, {"x0": case.values[0]})
    (found,) = evaluate(import_model(case.model()).module, case.fed)
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-6, strict=True)


# --- frames and grids ------------------------------------------------------------------------------------------------


def test_data_is_cropped_and_padded_around_its_centre() -> None:
    agree(with_("CenterCropPad", np.array([4, 5, 2])), {"x": floats(7, 2, 2)}, 18)
    agree(with_("CenterCropPad", np.array([3, 8]), axes=[-1, 0]), {"x": floats(5, 4, 6)}, 18)


@pytest.mark.parametrize("aligned", [0, 1])
def test_grids(aligned: int) -> None:
    agree(with_("AffineGrid", np.array([2, 3, 4, 5]), align_corners=aligned), {"x": floats(2, 2, 3)}, 20, 1e-5)
    agree(with_("AffineGrid", np.array([1, 1, 2, 3, 4]), align_corners=aligned), {"x": floats(1, 3, 4)}, 20, 1e-5)


# --- areas -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("corners", ["half_pixel", "output_half_pixel"])
def test_regions(mode: str, corners: str) -> None:
    """Within the image, at its edges, and outside of it."""
    regions = np.array([[0, 0, 4, 5], [2.3, 1.1, 9.7, 6.2], [-3, -2, 3, 2], [5, 5, 5.5, 5.2], [7, 3, 12, 9]], F)
    build = with_(
        "RoiAlign",
        regions,
        np.array([0, 1, 1, 0, 1]),
        mode=mode,
        coordinate_transformation_mode=corners,
        output_height=2,
        output_width=3,
        sampling_ratio=2,
        spatial_scale=0.8,
    )
    agree(build, {"x": floats(2, 3, 7, 8)}, 16, 1e-5)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("own", [1, 2])
def test_convolutions_whose_taps_move(group: int, own: int) -> None:
    """With gaps, strides and pads, a mask and a bias: against the convolution of what is read."""
    x, weight = floats(2, 4, 6, 7), floats(4, 4 // group, 2, 3)
    how: dict[str, Any] = {"pads": [1, 0, 0, 2], "strides": [2, 1], "dilations": [1, 2], "group": group}
    height, width = (6 + 1 - 2) // 2 + 1, (7 + 2 - 5) + 1
    inputs = {
        "x": x,
        "w": weight,
        "offset": floats(2, own * 12, height, width) * 2,
        "b": floats(4),
        "mask": floats(2, own * 6, height, width),
    }
    b = OnnxBuilder(19)
    names = [b.input(name, value.shape) for name, value in inputs.items()]
    y = b.node("DeformConv", *names, offset_group=own, **how)
    (found,) = evaluate(import_model(b.model(y).SerializeToString()).module, inputs)
    wanted = np.zeros((2, 4, height, width))
    offset = inputs["offset"].reshape(2, own, 6, 2, height, width)
    mask = inputs["mask"].reshape(2, own, 6, height, width)
    for n, o, i, r, s, t in np.ndindex(2, 4, 4 // group, height, width, 6):
        channel = o // (4 // group) * (4 // group) + i
        k = channel // (4 // own)
        at = r * 2 - 1 + t // 3 + offset[n, k, t, 0, r, s], s + t % 3 * 2 + offset[n, k, t, 1, r, s]
        value = 0.0
        for q, p in np.ndindex(2, 2):
            row, column = int(np.floor(at[0])) + q, int(np.floor(at[1])) + p
            if 0 <= row < 6 and 0 <= column < 7:
                value += x[n, channel, row, column] * (1 - abs(at[0] - row)) * (1 - abs(at[1] - column))
        wanted[n, o, r, s] += weight[o, i, t // 3, t % 3] * value * mask[n, k, t, r, s]
    np.testing.assert_allclose(found, wanted + inputs["b"].reshape(1, 4, 1, 1), 1e-4, 1e-4)


# --- what is wrong ---------------------------------------------------------------------------------------------------


def inputs_of(op: str, *shapes: tuple[int, ...], **attrs: Any) -> Build:
    def build(b: OnnxBuilder) -> str:
        names = [b.input(f"x{i}", shape) if shape != (-1,) else "" for i, shape in enumerate(shapes)]
        made: str = b.node(op, *names, **attrs)
        return made

    return build


def roi(data: tuple[int, ...] = (1, 1, 4, 4), dtype: str = "int64", **attrs: Any) -> Build:
    def build(b: OnnxBuilder) -> str:
        rest = b.constant(np.zeros((2, 4)), "float32"), b.constant([0, 0], dtype)
        made: str = b.node("RoiAlign", b.input("x", data), *rest, **attrs)
        return made

    return build


def deform(*shapes: tuple[int, ...], **attrs: Any) -> Build:
    return inputs_of("DeformConv", *shapes, **attrs)


IMAGE, KERNEL, OFFSET = (1, 2, 4, 4), (2, 2, 3, 3), (1, 18, 2, 2)

REFUSED: dict[str, tuple[Build, int]] = {
    "not real numbers or pairs of them in the last dimension": (inputs_of("DFT", (2, 3)), 19),
    "it goes along axis 2, that of real and imaginary parts": (inputs_of("DFT", (1, 2, 1), axis=2), 19),
    "it makes real numbers of what are not pairs": (inputs_of("DFT", (1, 2, 1), inverse=1, onesided=1), 19),
    "it is a transform of 0 elements": (lambda b: b.node("DFT", b.input("x", (1, 2, 1)), b.constant(0, "int64")), 19),
    "its signal has the shape (4,)": (lambda b: b.node("STFT", b.input("x", (4,)), b.constant(1, "int64")), 17),
    "it has neither a window nor a frame_length": (
        lambda b: b.node("STFT", b.input("x", (1, 4)), b.constant(1, "int64")),
        17,
    ),
    "its frames of 9 by 1 with no window do not fit 4 elements": (
        lambda b: b.node("STFT", b.input("x", (1, 4)), b.constant(1, "int64"), "", b.constant(9, "int64")),
        17,
    ),
    "its frames of 2 by 1 with a window of shape (3,) do not fit 4 elements": (
        lambda b: b.node(
            "STFT", b.input("x", (1, 4)), b.constant(1, "int64"), b.input("w", (3,)), b.constant(2, "int64")
        ),
        17,
    ),
    "its data of shape (2, 3) cannot become (4,)": (
        lambda b: b.node("CenterCropPad", b.input("x", (2, 3)), b.constant([4], "int64")),
        18,
    ),
    "there is no axis 0 in 0 dimensions": (
        lambda b: b.node("CenterCropPad", b.input("x", ()), b.constant([4], "int64"), axes=[0]),
        18,
    ),
    "its input 'n' is computed at run time, and the model does not say the shape of its result": (
        lambda b: b.node("CenterCropPad", b.input("x", (2, 3)), b.input("n", (2,), "int64")),
        18,
    ),
    "its size (4, 5) does not fit matrices of shape (1, 3, 4)": (
        lambda b: b.node("AffineGrid", b.input("x", (1, 3, 4)), b.constant([1, 1, 4, 5], "int64")),
        20,
    ),
    "its matrices are int32, not floats": (
        lambda b: b.node("AffineGrid", b.input("x", (1, 2, 3), "int32"), b.constant([1, 1, 4, 5], "int64")),
        20,
    ),
    "it has the unknown mode 'min' or 'half_pixel'": (roi(mode="min"), 16),
    "its regions of shape (2, 4) do not fit data of shape (1, 4)": (roi((1, 4)), 16),
    "images chosen by float32": (roi(dtype="float32"), 16),
    "its sampling_ratio is 0": (roi(), 16),
    "its weight of shape (2, 2, 3, 3) does not fit data of shape (1, 2, 4)": (deform((1, 2, 4), KERNEL, OFFSET), 19),
    "does not fit 2 channels in 2 groups": (deform(IMAGE, KERNEL, OFFSET, group=2), 19),
    "its offsets of shape (1, 9, 2, 2) do not fit a result of 2 by 2": (deform(IMAGE, KERNEL, (1, 9, 2, 2)), 19),
    "its mask of shape (1, 1, 2, 2) does not fit": (deform(IMAGE, KERNEL, OFFSET, (-1,), (1, 1, 2, 2)), 19),
    "it has a bias of shape (3,) for 2 channels": (deform(IMAGE, KERNEL, OFFSET, (3,)), 19),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message: str) -> None:
    build, opset = REFUSED[message]
    b = OnnxBuilder(opset)
    with pytest.raises(ModelError) as caught:
        import_model(b.model(build(b)).SerializeToString())
    assert message in str(caught.value)


def test_floats_are_read_not_integers() -> None:
    b = OnnxBuilder(16)
    rest = b.constant(np.zeros((1, 4)), "float32"), b.constant([0], "int64")
    data = b.model(b.node("RoiAlign", b.input("x", (1, 1, 4, 4), "int32"), *rest)).SerializeToString()
    with pytest.raises(ModelError, match="1 by 1 parts of int32"):
        import_model(data)
