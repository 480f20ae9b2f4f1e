"""What kinds say of the quantised models that they take."""

from __future__ import annotations

import re
from typing import Any

import pytest

from uma.errors import PluginError, UsageError
from uma.targets import QuantisedForm, TargetKind


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"scales": "round"}, "'scales' of a quantised form is 'round'"),
        ({"symmetric": 1}, "'symmetric' of a quantised form is 1"),
        ({"per_channel": 0}, "'per_channel' of a quantised form is 0"),
        ({"activation_bits": 9}, "'activation_bits' of a quantised form is 9"),
        ({"weight_bits": 1}, "'weight_bits' of a quantised form is 1"),
        ({"weight_bits": True}, "'weight_bits' of a quantised form is True"),
        ({"bias_bits": 33}, "'bias_bits' of a quantised form is 33"),
        ({"weight_scale": 0.3}, "'weight_scale' of a quantised form is 0.3"),
        ({"activation_scale": -0.5}, "'activation_scale' of a quantised form is -0.5"),
        ({"bias_scale": float("inf")}, "'bias_scale' of a quantised form is inf"),
        ({"bias_scale": 1}, "'bias_scale' of a quantised form is 1"),
    ],
)
def test_a_form_that_makes_no_sense(fields: dict[str, Any], what: str) -> None:
    with pytest.raises(PluginError, match=f"^{re.escape(what)}"):
        QuantisedForm(**fields)


def test_of_several_the_narrowest_counts() -> None:
    wide, narrow = QuantisedForm(), QuantisedForm("power-of-two", True, False, 8, 6, 12, 0.5, 0.25, 0.125)
    assert QuantisedForm.for_all({"a": wide, "b": narrow}) == narrow
    assert QuantisedForm.for_all({"b": narrow, "a": wide}) == narrow
    assert QuantisedForm.for_all({"a": wide}) == wide


def test_two_that_know_one_scale_each() -> None:
    forms = {"a": QuantisedForm(), "b": QuantisedForm(weight_scale=0.5), "c": QuantisedForm(weight_scale=0.25)}
    with pytest.raises(UsageError) as caught:
        QuantisedForm.for_all(forms)
    assert caught.value.what == ("no model is quantised for both: 'b' has the weight scale 0.5 and no other, 'c' 0.25")


def test_a_host_declares_one_as_well() -> None:
    form = QuantisedForm(per_channel=False)
    assert TargetKind("able", help="a host", is_host=True, quantised=form).quantised is form
