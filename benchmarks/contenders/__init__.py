"""Who is compared: a file for each, which prepares its cheapest repeated call of a model, on one thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["OURS", "PEERS", "Contender", "Format", "Prepared", "contenders", "sample"]

Format = Literal["tflite", "onnx"]

OURS: Mapping[Format, str] = MappingProxyType({"tflite": "uma tflite", "onnx": "uma onnx"})
"""What we are called, by the format in which we are given a model."""

PEERS: Mapping[str, Format] = MappingProxyType(
    {"litert": "tflite", "onnxruntime": "onnx", "onnxruntime u8": "onnx", "openvino": "onnx"}
)
"""The others, and what they read: each is compared with us as given the same file. ``u8`` is given quantised models as
unsigned bytes."""


@dataclass(frozen=True)
class Prepared:
    """A model that is loaded, its inputs and outputs bound.

    Args:
        call: one inference.
        facts: what else is to be known of it.
    """

    call: Callable[[], object]
    facts: Mapping[str, Any] = field(default_factory=dict)


class Contender(Protocol):
    """One of those that are compared."""

    def version(self) -> str | None:
        """Its version; None where it is not installed."""
        ...

    def prepare(self, path: Path) -> Prepared | None:
        """A model, loaded; None where this one is not for it."""
        ...


def contenders() -> Mapping[str, tuple[Format, Contender]]:
    """All, by name, and what they read."""
    from . import litert_xnnpack, onnxruntime_cpu, openvino_cpu, uma_c

    peers: tuple[Contender, ...] = (
        litert_xnnpack.LiteRT(),
        onnxruntime_cpu.Onnxruntime(),
        onnxruntime_cpu.Onnxruntime(unsigned=True),
        openvino_cpu.OpenVINO(),
    )
    ours = {name: (read, uma_c.Uma()) for read, name in OURS.items()}
    return MappingProxyType(
        {**ours, **{name: (read, one) for (name, read), one in zip(PEERS.items(), peers, strict=True)}}
    )


def sample(shape: Any, dtype: Any) -> npt.NDArray[Any]:
    """A seeded input: floats from -1 to 1, all values of small integers, 1 for others, which may be indices."""
    rng, kind = np.random.default_rng(0), np.dtype(dtype)
    extents = [int(extent) for extent in np.atleast_1d(np.asarray(shape))] if np.size(shape) else []
    if kind.kind == "f":
        return rng.uniform(-1, 1, extents).astype(kind)
    if kind.itemsize > 2:
        return np.ones(extents, kind)
    info = np.iinfo(kind)
    return rng.integers(info.min, info.max, extents, dtype=kind, endpoint=True)
