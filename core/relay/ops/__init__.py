"""The core's operators, one module per family. Importing this package registers them all."""

from . import (
    activation,
    conv,
    dense,
    elementwise,
    indexing,
    norm,
    pool,
    qnn,
    qnn_activation,
    qnn_arith,
    qnn_pool,
    qnn_softmax,
    reduce,
    shape,
)

__all__ = [
    "activation",
    "conv",
    "dense",
    "elementwise",
    "indexing",
    "norm",
    "pool",
    "qnn",
    "qnn_activation",
    "qnn_arith",
    "qnn_pool",
    "qnn_softmax",
    "reduce",
    "shape",
]
