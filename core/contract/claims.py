"""What a plugin claims of an accelerator: what its conformance is checked against, and what the report prints."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..errors import PluginError
from ..targets.kind import shown

if TYPE_CHECKING:
    from ..relay import Expr, IRModule

__all__ = ["Claims"]


@dataclass(frozen=True)
class Claims:
    """What a plugin claims of one of its accelerators, for ``uma check`` and `uma.testing`.

    Args:
        targets: further targets of the kind, as text, that are checked besides the one that was asked for:
            ``my_device -array_dim=16``.
        cycles: by what share of them the counted cycles of a layer may differ from those of `estimate_cost`: 0.1 for a
            tenth, 0.0 for equal ones. None where nothing is claimed.
        counter: the counter of the `Runtime` that has the cycles.
        tolerance: by how much float results may differ from the reference, as a share of the largest magnitude of the
            reference's elements. Integers are always compared exactly. With a tolerance, layers are not compared where
            one op computes a NaN or an infinity that another one reads.
        faults: of the `Runtime`, those that no check can reach, each with the reason: what only hardware finds.
        samples: gives further layers to check, expressions over variables, or modules with a ``main``: what cannot be
            made up from a pattern, such as the plugin's own operators with operands that make sense.

    Raises:
        PluginError: a field is malformed.
    """

    targets: tuple[str, ...] = ()
    cycles: float | None = None
    counter: str = "cycles"
    tolerance: float = 0.0
    faults: Mapping[int, str] = field(default_factory=dict)
    samples: Callable[[], Sequence[Expr | IRModule]] | None = None

    def __post_init__(self) -> None:
        targets: object = self.targets
        if not isinstance(targets, (tuple, list)) or not all(isinstance(one, str) and one for one in targets):
            raise PluginError(f"Claims.targets is {shown(targets)}", hint='a tuple of texts: ("my_device -lanes=4",)')
        for name in ("cycles", "tolerance"):
            value: Any = getattr(self, name)
            if name == "cycles" and value is None:
                continue
            if type(value) not in (int, float) or not (math.isfinite(value) and value >= 0):
                raise PluginError(f"Claims.{name} is {shown(value)}, not a share from 0 on", hint="0.1 is a tenth")
        counter: object = self.counter
        if not isinstance(counter, str) or not counter:
            raise PluginError(f"Claims.counter is {shown(counter)}, not the name of a counter")
        faults: object = self.faults
        if not isinstance(faults, Mapping):
            raise PluginError(f"Claims.faults is {shown(faults)}", hint='{16: "only a broken bus gives it"}')
        for code, reason in faults.items():
            if type(code) is not int or not isinstance(reason, str) or not reason.strip():
                raise PluginError(f"Claims.faults: {shown(code)} is not a fault code with a reason")
        samples: object = self.samples
        if samples is not None and not callable(samples):
            raise PluginError(f"Claims.samples is {shown(samples)}, not a function that gives layers")
        object.__setattr__(self, "targets", tuple(self.targets))
        object.__setattr__(self, "faults", MappingProxyType(dict(self.faults)))
