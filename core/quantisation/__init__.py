"""From float to integers, by onnxruntime's quantiser, with the settings that a target's accelerators ask for.

`data` is what it is calibrated with, `graph` the float model as far as its settings depend on it, `scales` those that
are powers of two, `onnxruntime` the quantiser, `agreement` how far its result is from the float model.
"""

from .agreement import Agreement
from .quantise import Quantised, quantize

__all__ = ["Agreement", "Quantised", "quantize"]
