"""Why strategies left kernels to lesser loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..contract.lowered import Declined

__all__ = ["Decline", "decline_fault"]


@dataclass(frozen=True)
class Decline:
    """Of one kernel, or one match, what one strategy said.

    Args:
        layers: of the model.
        label: of the target.
        by: who said it, as ``strategy 'qnn.conv2d'``.
        reason: just that.
    """

    layers: tuple[str, ...]
    label: str
    by: str
    reason: str

    @property
    def sentence(self) -> str:
        """The same for people."""
        return f"{', '.join(self.layers) or '(no layer)'}: {self.label}, {self.by}: {self.reason}"

    json_fields: ClassVar = ("layers", "target=label", "by", "reason")


def decline_fault(declined: Declined) -> str | None:
    """What is wrong with it, None for a good one."""
    reason: object = declined.reason
    return None if isinstance(reason, str) and reason.strip() else "declined without a reason"
