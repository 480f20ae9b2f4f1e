"""The kit that authors of plugins test with: is a plugin what it claims to be?

    import pytest
    import uma.testing

    @pytest.mark.parametrize("check", uma.testing.checks("my_device"), ids=str)
    def test_conformance(check: uma.testing.BoundCheck) -> None:
        check.run().raise_for_findings()

`check` runs everything at once, as ``uma check`` does. Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..hookspecs import Claims
    from .record import CheckResult, ClauseCount, Conformance, Finding
    from .runner import BoundCheck, check, checks

__all__ = ["BoundCheck", "CheckResult", "Claims", "ClauseCount", "Conformance", "Finding", "check", "checks"]

_WHERE = {
    "BoundCheck": ".runner",
    "CheckResult": ".record",
    "Claims": "..hookspecs",
    "ClauseCount": ".record",
    "Conformance": ".record",
    "Finding": ".record",
    "check": ".runner",
    "checks": ".runner",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'uma.testing' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_WHERE[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
