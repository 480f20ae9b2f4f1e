"""Networks of the kinds that people bring, small, with random weights, in the form in which exporters write them.

`python -m tests.networks FOLDER` writes them as files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import onnx

from .pictures import PICTURES
from .sequences import SEQUENCES
from .transformers import TRANSFORMERS

__all__ = ["NETWORKS"]

NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = MappingProxyType({**PICTURES, **SEQUENCES, **TRANSFORMERS})
"""A network's maker by its name; the same bytes each time."""
