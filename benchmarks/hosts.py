"""Hosts whose costs repeat: by a formula, or by times that were taken once; and `Collage` by these."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

from uma.partition import Collage, CostProvider, Regions
from uma.partition.candidates import Problem
from uma.partition.collage import CostEstimate
from uma.relay.expr import Call, Expr, macs_of
from uma.relay.types import TensorType

__all__ = ["KEPT", "Formula", "Host", "Kept", "OnHost", "key_of"]

KEPT = Path(__file__).with_name("placement_x86.json")
"""Times of kernels on one x86; `benchmarks.kernel_times` took them."""

Key = tuple[str, int, str]
"""What a call is to a table of times: its op, its products, and the type of what it gives."""


class Host(Protocol):
    """Who tells what a host takes for calls that it computes together."""

    def kernel_ns(self, calls: Sequence[Call]) -> float:
        """How long it takes, in nanoseconds."""


@dataclass(frozen=True)
class Formula:
    """A host that takes so many nanoseconds for each thing that it does.

    Args:
        kernel: for calling what is computed together.
        product: for a multiply-accumulate.
        depthwise: for one of a convolution in groups.
        element: for an element that an op gives.
    """

    kernel: float
    product: float
    depthwise: float
    element: float

    def kernel_ns(self, calls: Sequence[Call]) -> float:
        """See `Host`."""
        return self.kernel + sum(map(self._call_ns, calls))

    def _call_ns(self, call: Call) -> float:
        in_groups = getattr(call.attrs, "groups", 1) != 1
        return macs_of(call) * (self.depthwise if in_groups else self.product) + _elements(call) * self.element


@dataclass(frozen=True)
class Kept:
    """A host of which times were kept: of kernels, by the call in them that has products, or is a pool or the like.
    What is in a kernel with such a call was timed with it; other calls take ``element`` nanoseconds for each element
    that they give.

    Args:
        path: the times, as `benchmarks.kernel_times` writes them.
        factor: by which they are multiplied.
        element: nanoseconds.
        kernel: likewise, for each call of a kernel.
    """

    path: Path = KEPT
    factor: float = 1.0
    element: float = 0.3
    kernel: float = 20.0

    @cached_property
    def _ns(self) -> dict[Key, float]:
        kept = json.loads(self.path.read_text(encoding="utf-8"))
        return {(op, macs, given): ns for op, macs, given, ns in kept["kernels"]}

    def kernel_ns(self, calls: Sequence[Call]) -> float:
        """See `Host`."""
        timed = [self._ns[key] for call in calls if (key := key_of(call)) in self._ns]
        if timed:
            return sum(timed) * self.factor
        return self.kernel + self.element * sum(map(_elements, calls))


def key_of(call: Call) -> Key:
    """By what a table of times knows a call."""
    return str(call.op_name), macs_of(call), str(call.type)


def _elements(call: Call) -> int:
    types = (call.type,) if isinstance(call.type, TensorType) else getattr(call.type, "fields", ())
    return sum(math.prod(cast("tuple[int, ...]", one.shape)) for one in types if isinstance(one, TensorType))


@dataclass(eq=False)
class OnHost(Collage):
    """`Collage` for a host that is not asked: what it computes costs what somebody else says.

    Args:
        host: who says so; None for the sources that `Collage` has.
    """

    host: Host | None = field(default=None, kw_only=True)

    def __call__(self, problem: Problem) -> Regions:
        """See `Collage`."""
        if self.host is not None and problem.costs is not None:
            problem.costs = cast("CostProvider", _Told(problem.costs, self.host))
        return super().__call__(problem)


class _Told:
    """Prices, of which a host's kernels are told by another."""

    def __init__(self, prices: CostProvider, host: Host) -> None:
        self._prices, self._host = prices, host

    def __getattr__(self, name: str) -> Any:
        return getattr(self._prices, name)

    def kernel(self, problem: Problem, nodes: Sequence[Expr], label: str, name: str) -> CostEstimate:
        """What calls cost that a host is given together."""
        return CostEstimate(round(self._host.kernel_ns([node for node in nodes if isinstance(node, Call)])), "table")
