"""What the metadata of artifacts say, to be compared."""

from __future__ import annotations

import copy
from typing import Any

__all__ = ["without_work"]


def without_work(metadata: dict[str, Any]) -> dict[str, Any]:
    """The metadata without what no loops tell of the model: op, shape and multiply-accumulates of the calls."""
    made = copy.deepcopy(metadata)
    for call in made["calls"]:
        del call["op"], call["shape"], call["macs"]
    return made
