"""The table of ONNX's operators says what the importer takes."""

from __future__ import annotations

import json

import pytest
from tests.onnx_types import FILE, content

from uma.frontends.onnx.converters import CONVERTERS
from uma.frontends.onnx.fold import FOLDERS


def test_the_table_has_operators_that_there_are() -> None:
    found = json.loads(FILE.read_text(encoding="utf-8"))
    assert len(found) > 150 and set(found) <= {*CONVERTERS, *FOLDERS}


@pytest.mark.soak
def test_opsets_and_types_are_those_that_are_imported() -> None:
    assert FILE.read_text(encoding="utf-8") == content(), "made anew by `python tests/onnx_types.py`"
