"""The core's operators, one module per family. Importing this package registers them all."""

from . import arith, conv, dense, pool, qnn, qnn_activation, qnn_arith, qnn_pool, qnn_softmax, reduce, shape

__all__ = [
    "arith",
    "conv",
    "dense",
    "pool",
    "qnn",
    "qnn_activation",
    "qnn_arith",
    "qnn_pool",
    "qnn_softmax",
    "reduce",
    "shape",
]
