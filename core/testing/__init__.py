"""The kit that authors of plugins test with: is a plugin what it claims to be?

    import pytest
    import uma.testing

    @pytest.mark.parametrize("check", uma.testing.checks("my_device"), ids=str)
    def test_conformance(check: uma.testing.BoundCheck) -> None:
        check.run().raise_for_findings()

`check` runs everything at once, as ``uma check`` does. Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..support.late_binding import lazy_names

if TYPE_CHECKING:
    from ..hookspecs import Claims
    from .record import CheckResult, ClauseCount, Conformance, Finding
    from .runner import BoundCheck, check, checks

__all__ = ["BoundCheck", "CheckResult", "Claims", "ClauseCount", "Conformance", "Finding", "check", "checks"]

__getattr__, __dir__ = lazy_names(
    __name__,
    __all__,
    {
        "..hookspecs": ("Claims",),
        ".record": ("CheckResult", "ClauseCount", "Conformance", "Finding"),
        ".runner": ("BoundCheck", "check", "checks"),
    },
)
