"""Recurrent layers of the graph form: types that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
from tests._support.op_cases import on

from uma.errors import ModelError

GATES, WEIGHT, STATE, LENGTHS = ((5, 2, 3), "float32"), ((3, 3), "float32"), ((2, 3), "float32"), ((2,), "int32")


@pytest.mark.parametrize(
    ("name", "types", "attrs", "message"),
    [
        ("nn.rnn", [((5, 2), "float32"), WEIGHT, STATE, LENGTHS], {}, "not (time, batch, 1 * units)"),
        ("nn.gru", [((5, 2, 4), "float32"), WEIGHT, ((3,), "float32"), STATE, LENGTHS], {}, "batch, 3 * units)"),
        ("nn.rnn", [GATES, ((3, 4), "float32"), STATE, LENGTHS], {}, "its argument 1 has the shape (3, 4), not (3, 3)"),
        (
            "nn.rnn",
            [GATES, WEIGHT, ((2, 3), "float64"), LENGTHS],
            {},
            "its argument 2 is float64, its gates are float32",
        ),
        ("nn.rnn", [GATES, WEIGHT, STATE, ((2,), "int64")], {}, "int32"),
        ("nn.rnn", [((5, 2, 3), "int32"), WEIGHT, STATE, LENGTHS], {}, "float"),
        ("nn.rnn", [GATES, WEIGHT, STATE, LENGTHS], {"clip": 0.0}, "its clip 0.0 is not positive"),
    ],
)
def test_what_does_not_fit(name: str, types: list[Any], attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        on(name, *types, **attrs)
    assert message in str(caught.value)
