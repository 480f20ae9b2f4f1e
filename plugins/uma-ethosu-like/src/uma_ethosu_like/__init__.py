"""Target kind ``ethosu_like``: an NPU that runs command streams of Arm's Ethos-U55, with a simulator.

README.md says what of the machine is public, and what is assumed. `machine` and `commands` are its data sheet in
Python: configurations and memories, and the table of commands; `payload` is what a driver is given, `job` reads models
from files.
"""

from __future__ import annotations

from collections.abc import Sequence

from uma.hookspecs import hookimpl
from uma.target import Alias, TargetKind

from .machine import ATTRIBUTES, check_target

__all__ = ["ALIAS", "KIND", "UMA_PLUGIN_API", "register_target"]

UMA_PLUGIN_API = (0, 5)

KIND = TargetKind(
    "ethosu_like",
    ATTRIBUTES,
    help="an NPU that runs command streams of Ethos-U55, of 32 to 256 multipliers",
    device_type="npu",
    default_host="c",
    canonicalise=check_target,
)

ALIAS = Alias("ethosu", "ethosu_like", help="ethosu_like, beside a host")


@hookimpl
def register_target() -> Sequence[TargetKind | Alias]:
    """The kind, and its short name."""
    return [KIND, ALIAS]
