"""UMA's own kit tries to break the plugin: what ``uma check`` does, each check a test."""

from __future__ import annotations

import pytest

import uma.testing


@pytest.mark.parametrize("check", uma.testing.checks("uma-mac-array", layers=8), ids=str)
def test_conformance(check: uma.testing.BoundCheck) -> None:
    check.run().raise_for_findings()
