"""The core's operators, one module per family. Importing this package registers them all."""

from . import arith, conv, dense, pool, reduce, shape

__all__ = ["arith", "conv", "dense", "pool", "reduce", "shape"]
