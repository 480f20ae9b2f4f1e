"""Filters as the machine reads them: records of bias and scale, then compressed weights."""

from __future__ import annotations

from .blocks import Block
from .machine import Configuration
from .operations import DTYPE_BYTES, Filter, Step
from .weights import Encoded, Order, Record, encode_filter

__all__ = ["Filters"]


class Filters:
    """Encodes the filters of a machine, each once."""

    def __init__(self, machine: Configuration) -> None:
        self._machine = machine
        self._encoded: dict[tuple[Filter, int, int, Order], Encoded] = {}

    def encoded(self, step: Step, block: Block) -> Encoded | None:
        """What a step needs, None if it has no filter."""
        whole, part = step.operation.filter, step.filter
        if whole is None or part is None:
            return None
        order = Order(
            self._machine.ofm_ublock[2],
            block.shape[2],
            8 * DTYPE_BYTES[step.ifm.dtype],
            step.operation.kind == "depthwise",
            block.part_kernel,
            step.operation.window.dilation,
            self._machine.ifm_ublock[2],
        )
        key = (whole, step.box.start[2], step.box.end[2], order)
        if key not in self._encoded:
            scales = zip(part.bias.tolist(), part.scales, strict=True)
            records = [Record(bias, scale.multiplier, scale.shift) for bias, scale in scales]
            self._encoded[key] = encode_filter(part.weights, records, order)
        return self._encoded[key]
