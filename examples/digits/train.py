"""Train a small convolutional network on handwritten digits, quantise it to int8 and write `digits.onnx` and `scans.npz`.

The data are the 1797 real scans (8x8 pixels, values 0..16) that scikit-learn ships. They stand in the order in which
they were collected, one writer after the other, so the last 360 are kept for the test: mostly the digits of people
whose hand the network has never seen, which is harder than a random split.

    python train.py               train on the first 1437 scans, write both files, report the accuracy on the last 360
    python train.py --validate    five-fold cross-validation within the first 1437 (how the network was chosen)

Needs torch, scikit-learn, onnx and onnxruntime; the versions that made the committed files are in README.md.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

FOLDER = Path(__file__).resolve().parent
TEST_SCANS = 360
SEED = 3
EPOCHS = 80
BATCH = 32
LEARNING_RATE = 1e-2
SHIFT_PIXELS = 0.7
FOLDS = 5


class ConvNorm(nn.Module):
    """A "same" convolution and its batch normalisation, which become one convolution when training is over."""

    def __init__(self, inputs: int, outputs: int, kernel: int, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.conv(x))
        return y

    def folded(self) -> nn.Conv2d:
        return fuse_conv_bn_eval(self.conv, self.norm)


class Residual(nn.Module):
    """relu(x + pointwise(relu(depthwise(x))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = ConvNorm(channels, channels, 3, groups=channels)
        self.pointwise = ConvNorm(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x + self.pointwise(functional.relu(self.depthwise(x))))


class Network(nn.Module):
    """Scans [N, 1, 8, 8] with values 0..1 to logits [N, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = ConvNorm(1, 16, 3)
        self.block1 = Residual(16)
        self.conv2 = ConvNorm(16, 32, 3)
        self.block2 = Residual(32)
        self.dropout = nn.Dropout(0.2)
        self.dense = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block1(functional.relu(self.conv1(x)))
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = self.block2(x).mean(dim=(2, 3))
        y: Tensor = self.dense(self.dropout(x))
        return y


def shifted(scans: Tensor) -> Tensor:
    """Each scan moved by its own random fraction of a pixel, up to SHIFT_PIXELS in each direction."""
    pixel = 2 / scans.shape[-1]  # affine_grid counts a whole scan as 2
    move = torch.eye(2, 3).repeat(len(scans), 1, 1)
    move[:, :, 2] = (torch.rand(len(scans), 2) * 2 - 1) * SHIFT_PIXELS * pixel
    grid = functional.affine_grid(move, list(scans.shape), align_corners=False)
    return functional.grid_sample(scans, grid, align_corners=False)


def train(scans: Tensor, labels: Tensor) -> Network:
    """A trained network in evaluation mode; the same SEED, data and versions give the same weights."""
    torch.manual_seed(SEED)
    network = Network()
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE)
    steps = EPOCHS * -(-len(scans) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(scans)).split(BATCH):
            optimizer.zero_grad()
            loss = functional.cross_entropy(network(shifted(scans[batch])), labels[batch], label_smoothing=0.05)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return network.eval()


@dataclass(frozen=True)
class Activation:
    """A quantised tensor of the graph: real value = scale * (int8 - zero_point).

    `values` are the dequantised values for all calibration scans, so that each layer is calibrated on what the
    quantised layers before it really give.
    """

    name: str
    scale: float
    zero_point: int
    values: Tensor


def power_of_two(values: Tensor, low: int, high: int) -> float:
    """The power of two that, as a scale of integers low..high (zero is 0), gives `values` the least squared error."""
    smallest = max(float(values.max()) / high, float(values.min()) / low if low else 0.0, 2.0**-20)
    covers_all = 2.0 ** np.ceil(np.log2(smallest))
    candidates = [covers_all, covers_all / 2]  # half the scale clips outliers and is finer for all others
    return min(candidates, key=lambda s: float(((values / s).round().clamp(low, high) * s - values).square().sum()))


class QdqGraph:
    """Writes an int8 network as ONNX in QDQ form, layer by layer, calibrating as it goes.

    Every operator stands between DequantizeLinear and QuantizeLinear. Activations are int8 with one scale per tensor,
    weights symmetric int8 with one scale per output channel, biases int32 with the product of the two. All scales are
    powers of two: accumulators, residual sums and means are then exact, and any correct implementation gives the same
    bytes, with or without floating point. Layers that end in a relu have the zero point -128: all 256 values are used.
    """

    def __init__(self, name: str, shape: list[int], values: Tensor) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._input = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        self.input = self._quantised(name, values, unsigned=True)

    def conv(self, name: str, x: Activation, conv: nn.Conv2d, relu: bool) -> Activation:
        weight, bias = self._parameters(name, x, conv.weight.detach(), conv.bias)
        padding = [int(p) for p in conv.padding]
        y = functional.conv2d(x.values, weight, bias, padding=padding, groups=conv.groups)
        self._node("Conv", name, self._inputs(name, x), pads=padding * 2, group=conv.groups)
        return self._rectified(name, y) if relu else self._quantised(name, y)

    def add_relu(self, name: str, a: Activation, b: Activation) -> Activation:
        self._node("Add", name, [self._dequantised(a), self._dequantised(b)])
        return self._rectified(name, a.values + b.values)

    def max_pool(self, name: str, x: Activation, size: int) -> Activation:
        self._node("MaxPool", name, [self._dequantised(x)], kernel_shape=[size, size], strides=[size, size])
        return self._quantised(name, functional.max_pool2d(x.values, size), like=x)

    def global_average_pool(self, name: str, x: Activation) -> Activation:
        self._node("GlobalAveragePool", name, [self._dequantised(x)])
        return self._quantised(name, x.values.mean(dim=(2, 3), keepdim=True), unsigned=True)

    def flatten(self, name: str, x: Activation) -> Activation:
        self._node("Flatten", name, [self._dequantised(x)])
        return self._quantised(name, x.values.flatten(1), like=x)

    def dense(self, name: str, x: Activation, dense: nn.Linear) -> Activation:
        weight, bias = self._parameters(name, x, dense.weight.detach(), dense.bias)
        self._node("Gemm", name, self._inputs(name, x), transB=1)
        return self._quantised(name, functional.linear(x.values, weight, bias))

    def model(self, output: Activation, name: str, shape: list[int]) -> onnx.ModelProto:
        """The model whose output `name` is the dequantised `output`; checked."""
        self._dequantised(output, name)
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self._nodes, "digits", [self._input], [value], self._constants)
        opsets = [helper.make_opsetid("", 17)]
        # IR version 8 goes with opset 17 and is read by runtimes back to 2022.
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="uma-example-digits")
        onnx.checker.check_model(model, full_check=True)
        return model

    def _node(self, op: str, name: str, inputs: list[str], **attributes: object) -> None:
        self._nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))

    def _constant(self, name: str, array: np.ndarray) -> str:
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def _rectified(self, name: str, values: Tensor) -> Activation:
        self._node("Relu", f"{name}_relu", [name])
        return self._quantised(f"{name}_relu", functional.relu(values), unsigned=True)

    def _quantised(
        self, name: str, values: Tensor, unsigned: bool = False, like: Activation | None = None
    ) -> Activation:
        zero_point = like.zero_point if like else -128 if unsigned else 0
        low, high = -128 - zero_point, 127 - zero_point
        scale = like.scale if like else power_of_two(values, low, high)
        inputs = [
            name,
            self._constant(f"{name}_scale", np.array(scale, np.float32)),
            self._constant(f"{name}_zero_point", np.array(zero_point, np.int8)),
        ]
        self._node("QuantizeLinear", f"{name}_quantized", inputs)
        return Activation(name, scale, zero_point, (values / scale).round().clamp(low, high) * scale)

    def _dequantised(self, x: Activation, name: str | None = None) -> str:
        # Each reader has a DequantizeLinear of its own, the form in which runtimes look for quantised operators.
        name = name or f"{x.name}_to_{len(self._nodes)}"
        self._node("DequantizeLinear", name, [f"{x.name}_quantized", f"{x.name}_scale", f"{x.name}_zero_point"])
        return name
