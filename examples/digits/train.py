"""Train a small convolutional network on handwritten digits, quantise it to int8, write digits.onnx and scans.npz.

The data are the 1797 real scans (8x8 pixels, values 0..16) that scikit-learn ships. Neighbours look alike, as if they
stood writer after writer, so the last 360 are kept for the test: that is harder than a random split, which would ask
about hands that the network has seen.

    python train.py               train on the first 1437 scans, write both files, report accuracy on the last 360
    python train.py --validate    cross-validate within the first 1437, which is how the network was chosen

Needs torch, scikit-learn, onnx and onnxruntime; README.md names the versions that made the committed files.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # it has no types
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

FOLDER = Path(__file__).resolve().parent
TEST_SCANS = 360
FOLDS = 5
SEED = 0
EPOCHS = 80
BATCH = 32
LEARNING_RATE = 1e-2
LABEL_SMOOTHING = 0.05
SHIFT_PIXELS = 0.7


class ConvNorm(nn.Module):
    """A convolution that keeps the size, with batch normalisation: one convolution once training is over."""

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
    """Each scan moved by a random part of a pixel, up to SHIFT_PIXELS along each axis, without wrapping around."""
    move = torch.eye(2, 3).repeat(len(scans), 1, 1)
    # affine_grid counts a whole side as 2.
    move[:, :, 2] = (torch.rand(len(scans), 2) * 2 - 1) * SHIFT_PIXELS * 2 / scans.shape[-1]
    grid = functional.affine_grid(move, list(scans.shape), align_corners=False)
    return functional.grid_sample(scans, grid, align_corners=False)


def train(scans: Tensor, labels: Tensor) -> Network:
    """A trained network in evaluation mode; the same data, versions and CPU give the same weights."""
    torch.manual_seed(SEED)
    network = Network()
    optimizer = torch.optim.AdamW(network.parameters())
    steps = EPOCHS * math.ceil(len(scans) / BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    for _ in range(EPOCHS):
        for batch in torch.split(torch.randperm(len(scans)), BATCH):
            logits = network(shifted(scans[batch]))
            optimizer.zero_grad()
            torch.autograd.backward(functional.cross_entropy(logits, labels[batch], label_smoothing=LABEL_SMOOTHING))
            optimizer.step()
            schedule.step()
    return network.eval()


def rounded(values: Tensor, scale: float | Tensor, low: int, high: int) -> Tensor:
    """`values` in steps of `scale`: rounded half to even, clipped to low..high."""
    return (values / scale).round().clamp(low, high)


def power_of_two(values: Tensor, low: int, high: int) -> float:
    """The power of two that gives `values` the least squared error as the scale of integers low..high."""
    needed = max(values.max().item() / high, values.min().item() / min(low, -1), 2.0**-20)
    covering = 2.0 ** math.ceil(math.log2(needed))

    def squared_error(scale: float) -> float:
        return (rounded(values, scale, low, high) * scale - values).square().sum().item()

    return min(covering, covering / 2, key=squared_error)  # half of it clips the outliers and is finer for the rest


@dataclass(frozen=True)
class Activation:
    """A tensor of the graph: real value = scale * (int8 value - zero_point).

    `values` are its real values for all calibration scans, after quantisation: each layer is calibrated on what the
    quantised layers before it give.
    """

    name: str
    scale: float
    zero_point: int
    values: Tensor


class QdqGraph:
    """Writes an int8 network as ONNX in QDQ form, layer by layer, and calibrates it on the way.

    Activations are int8 with one scale per tensor, weights symmetric int8 with one scale per output channel, biases
    int32 with the product of the two. All scales are powers of two, so sums and means are exact until they are rounded
    once: every correct implementation gives the same bytes, with or without floating-point hardware. What cannot be
    negative has the zero point -128, to use all 256 values.

    A layer's name is that of its node and of its output tensor.
    """

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def input(self, name: str, values: Tensor) -> Activation:
        return self._quantised("input", name, values, zero_point=-128)

    def conv(self, name: str, x: Activation, conv: nn.Conv2d, *, relu: bool) -> Activation:
        weight, bias = self._parameters(name, x, conv)
        pad = conv.kernel_size[0] // 2
        y = functional.conv2d(x.values, weight, bias, padding=pad, groups=conv.groups)
        inputs = [x.name, f"{name}_weight", f"{name}_bias"]
        output = self._node("Conv", name, inputs, f"{name}_exact", pads=[pad] * 4, group=conv.groups)
        return self._rectified(name, output, y) if relu else self._quantised(name, output, y)

    def add(self, name: str, a: Activation, b: Activation) -> Activation:
        output = self._node("Add", name, [a.name, b.name], f"{name}_exact")
        return self._rectified(name, output, a.values + b.values)

    def max_pool(self, name: str, x: Activation, size: int) -> Activation:
        y = functional.max_pool2d(x.values, size)
        output = self._node("MaxPool", name, [x.name], f"{name}_exact", kernel_shape=[size] * 2, strides=[size] * 2)
        return self._quantised(name, output, y, x.zero_point, x.scale)

    def mean(self, name: str, x: Activation) -> Activation:
        output = self._node("GlobalAveragePool", name, [x.name], f"{name}_exact")
        return self._quantised(name, output, x.values.mean(dim=(2, 3), keepdim=True), x.zero_point)

    def flatten(self, name: str, x: Activation) -> Activation:
        output = self._node("Flatten", name, [x.name], f"{name}_exact")
        return self._quantised(name, output, x.values.flatten(1), x.zero_point, x.scale)

    def dense(self, name: str, x: Activation, dense: nn.Linear) -> Activation:
        weight, bias = self._parameters(name, x, dense)
        inputs = [x.name, f"{name}_weight", f"{name}_bias"]
        output = self._node("Gemm", name, inputs, f"{name}_exact", transB=1)
        return self._quantised(name, output, functional.linear(x.values, weight, bias))

    def model(self, input_name: str, input_shape: list[int], output: str, output_shape: list[int]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self._nodes,
            "digits",
            [helper.make_tensor_value_info(input_name, TensorProto.FLOAT, input_shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, output_shape)],
            self._constants,
        )
        opsets = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="examples/digits/train.py")
        onnx.checker.check_model(model, full_check=True)
        return model

    def _node(self, op: str, name: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output

    def _constant(self, name: str, values: Tensor, dtype: type[np.generic]) -> str:
        self._constants.append(numpy_helper.from_array(values.numpy().astype(dtype), name))
        return name

    def _rectified(self, name: str, source: str, values: Tensor) -> Activation:
        output = self._node("Relu", f"{name}_relu", [source], f"{name}_rectified")
        return self._quantised(name, output, values.relu(), zero_point=-128)

    def _quantised(
        self, name: str, source: str, values: Tensor, zero_point: int = 0, scale: float | None = None
    ) -> Activation:
        """The tensor `name`: `source` through int8 and back, with a calibrated scale unless one is given."""
        low, high = -128 - zero_point, 127 - zero_point
        scale = scale or power_of_two(values, low, high)
        how = [
            self._constant(f"{name}_scale", torch.tensor(scale), np.float32),
            self._constant(f"{name}_zero_point", torch.tensor(zero_point), np.int8),
        ]
        self._node("QuantizeLinear", f"{name}_quantize", [source, *how], f"{name}_int8")
        self._node("DequantizeLinear", f"{name}_dequantize", [f"{name}_int8", *how], name)
        return Activation(name, scale, zero_point, rounded(values, scale, low, high) * scale)

    def _parameters(self, name: str, x: Activation, layer: nn.Conv2d | nn.Linear) -> tuple[Tensor, Tensor]:
        """Write the tensors `{name}_weight` and `{name}_bias` and give their values after quantisation."""
        assert layer.bias is not None
        weight, bias = layer.weight.detach(), layer.bias.detach()
        scale = torch.tensor([power_of_two(channel, -127, 127) for channel in weight])
        column = scale.reshape(-1, *[1] * (weight.dim() - 1))
        weight_int8 = rounded(weight, column, -127, 127)
        bias_int32 = rounded(bias, x.scale * scale, -(2**31), 2**31 - 1)
        weight_inputs = [
            self._constant(f"{name}_weight_int8", weight_int8, np.int8),
            self._constant(f"{name}_weight_scale", scale, np.float32),
            self._constant(f"{name}_weight_zero_point", torch.zeros_like(scale), np.int8),
        ]
        bias_inputs = [
            self._constant(f"{name}_bias_int32", bias_int32, np.int32),
            self._constant(f"{name}_bias_scale", x.scale * scale, np.float32),
        ]
        self._node("DequantizeLinear", f"{name}_weight_dequantize", weight_inputs, f"{name}_weight", axis=0)
        self._node("DequantizeLinear", f"{name}_bias_dequantize", bias_inputs, f"{name}_bias", axis=0)
        return weight_int8 * column, bias_int32 * x.scale * scale


@torch.no_grad()
def quantise(network: Network, scans: Tensor) -> onnx.ModelProto:
    """`network` as an int8 model for one scan, calibrated on `scans` [N, 1, 8, 8]."""
    graph = QdqGraph()

    def residual(name: str, x: Activation, block: Residual) -> Activation:
        y = graph.conv(f"{name}_depthwise", x, block.depthwise.folded(), relu=True)
        y = graph.conv(f"{name}_pointwise", y, block.pointwise.folded(), relu=False)
        return graph.add(f"{name}_add", x, y)

    x = graph.input("scan", scans)
    x = residual("block1", graph.conv("conv1", x, network.conv1.folded(), relu=True), network.block1)
    x = graph.max_pool("pool", graph.conv("conv2", x, network.conv2.folded(), relu=True), 2)
    x = graph.mean("mean", residual("block2", x, network.block2))
    graph.dense("logits", graph.flatten("features", x), network.dense)
    return graph.model("scan", [1, 1, 8, 8], "logits", [1, 10])


@torch.no_grad()
def float_accuracy(network: Network, scans: Tensor, labels: Tensor) -> float:
    """The share of `scans` [N, 1, 8, 8] whose largest logit is that of their label."""
    return float((network(scans).argmax(1) == labels).float().mean())


def int8_accuracy(model: onnx.ModelProto, scans: Tensor, labels: Tensor) -> float:
    """Accuracy in onnxruntime, which must give the same logits with and without its own quantised kernels."""
    logits = []
    for level in (
        onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    ):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        logits.append(np.concatenate([session.run(None, {"scan": scan[None].numpy()})[0] for scan in scans]))
    if not np.array_equal(logits[0], logits[1]):
        raise SystemExit("onnxruntime's quantised kernels and its plain operators give different logits")
    return float((logits[0].argmax(1) == labels.numpy()).mean())


def validate(scans: Tensor, labels: Tensor) -> None:
    """Print the accuracy on each fifth of the scans of a network trained on the other four."""
    totals = np.zeros(2)
    for fold, part in enumerate(torch.arange(len(scans)).tensor_split(FOLDS), 1):
        rest = torch.ones(len(scans), dtype=torch.bool)
        rest[part] = False
        network = train(scans[rest], labels[rest])
        model = quantise(network, scans[rest])
        result = float_accuracy(network, scans[part], labels[part]), int8_accuracy(model, scans[part], labels[part])
        totals += result
        print(f"fold {fold} of {FOLDS}: float {result[0]:.1%}, int8 {result[1]:.1%}", flush=True)
    print("mean: float {:.1%}, int8 {:.1%}".format(*totals / FOLDS))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--validate", action="store_true", help="cross-validate, write nothing")
    arguments = parser.parse_args()
    # One thread and fixed algorithms: sums are always taken in the same order.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    digits = load_digits()
    scans = torch.from_numpy(digits.images.astype(np.float32) / 16).unsqueeze(1)
    labels = torch.from_numpy(digits.target)
    seen, unseen = slice(None, -TEST_SCANS), slice(-TEST_SCANS, None)
    if arguments.validate:
        validate(scans[seen], labels[seen])
        return

    network = train(scans[seen], labels[seen])
    model = quantise(network, scans[seen])
    size_bytes = (FOLDER / "digits.onnx").write_bytes(model.SerializeToString(deterministic=True))
    np.savez_compressed(
        FOLDER / "scans.npz",
        scans=digits.images[unseen].astype(np.uint8),
        labels=digits.target[unseen].astype(np.uint8),
    )
    print(f"digits.onnx: {sum(p.numel() for p in network.parameters())} parameters, {size_bytes} bytes")
    print(f"accuracy on {TEST_SCANS} unseen scans, float: {float_accuracy(network, scans[unseen], labels[unseen]):.2%}")
    print(f"the same, int8 in onnxruntime: {int8_accuracy(model, scans[unseen], labels[unseen]):.2%}")


if __name__ == "__main__":
    main()
