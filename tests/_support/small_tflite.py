"""The small network of docs/ethosu.md as a TFLite file: ``python -m tests._support.small_tflite OUT.tflite``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from .tflite_builder import TFLiteBuilder

__all__ = ["sounds"]


def sounds() -> bytes:
    """A convolution, a pool and a dense layer, of int8."""
    net = TFLiteBuilder()
    data = net.input((1, 8, 8, 4), "int8", scale=0.05, zero_point=5, name="sound")
    weights = np.array([3, -2, 1, 4, 0, -5, 2, 2, -1, 1, 6, -3, 2, -4, 5, 1], np.int8).reshape(1, 2, 2, 4)
    kernel = net.constant(weights, scale=0.1, zero_point=0)
    bias = net.constant(np.zeros(1, np.int32), scale=0.005, zero_point=0)
    convolved = net.tensor((1, 7, 7, 1), "int8", scale=0.08, name="conv")
    net.op("CONV_2D", [data, kernel, bias], [convolved], padding=1, strideH=1, strideW=1)
    pooled = net.tensor((1, 1, 7, 1), "int8", scale=0.08, name="pool")
    net.op("MAX_POOL_2D", [convolved], [pooled], padding=1, strideH=1, strideW=1, filterHeight=7, filterWidth=1)
    flat = net.tensor((1, 7), "int8", scale=0.08, name="flat")
    net.op("RESHAPE", [pooled, net.constant([1, 7], "int32")], [flat])
    weights = np.array([2, -1, 1, 3, 5, -2, 4, 1, 1, -3, 2, 6, -5, 3], np.int8).reshape(2, 7)
    dense = net.tensor((1, 2), "int8", scale=0.16, name="dense")
    net.op("FULLY_CONNECTED", [flat, net.constant(weights, scale=0.25, zero_point=0), -1], [dense])
    return net.finish(dense)


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(sounds())
