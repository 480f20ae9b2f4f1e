"""The tool behind ``make raises``, without the run that it takes minutes for."""

from __future__ import annotations

import pytest
from tests import raises

SOURCE = """
class Reader:
    def read(self, text):
        if not text:
            raise ValueError(
                "no text"
            )
        try:
            return int(text)
        except ValueError:
            raise
"""


def test_every_raise_is_found_with_its_function_and_all_its_lines() -> None:
    first, second = raises.raises_in(SOURCE, "reader.py")
    assert first == raises.Raise("reader.py", "Reader.read", range(5, 8), "raise ValueError('no text')")
    assert second == raises.Raise("reader.py", "Reader.read", range(11, 12), "raise")


def test_what_was_not_reached_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    found = list(raises.raises_in(SOURCE, "reader.py"))
    assert raises.report(found, {"reader.py": {5, 8, 9}}, {})
    assert capsys.readouterr().out.splitlines() == [
        "reader.py:11: raise",
        "2 raises; no test reaches 1 of them, and 0 for a reason",
    ]
    assert not raises.report(found, {"reader.py": {6, 11}}, {})


def test_of_two_that_read_alike_both_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    found = list(raises.raises_in("def f(x):\n    if x:\n        raise E\n    raise E\n", "f.py"))
    assert raises.report(found, {}, {})
    assert capsys.readouterr().out.splitlines()[:2] == ["f.py:3: raise E", "f.py:4: raise E"]


def test_an_explained_raise_is_not_listed_and_a_needless_explanation_is(capsys: pytest.CaptureFixture[str]) -> None:
    found = list(raises.raises_in(SOURCE, "reader.py"))
    explained = {("reader.py", "Reader.read", "raise"): "only on the moon"}
    assert not raises.report(found, {"reader.py": {5}}, explained)
    assert capsys.readouterr().out.splitlines() == [
        "reader.py:11: raise (only on the moon)",
        "2 raises; no test reaches 0 of them, and 1 for a reason",
    ]
    assert raises.report(found, {"reader.py": {5, 11}}, explained)
    assert "reader.py: Reader.read: raise: explained in raises.py, but it is reached or gone" in capsys.readouterr().out


def test_every_explanation_is_of_one_raise() -> None:
    files = {file for file, _, _ in raises.EXPLAINED}
    keys = [one.key for file in files for one in raises.raises_in((raises.ROOT / file).read_text("utf-8"), file)]
    assert {key: keys.count(key) for key in raises.EXPLAINED} == dict.fromkeys(raises.EXPLAINED, 1)


def test_every_test_that_is_left_out_is_there() -> None:
    for test in raises.DISTURBED:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (raises.ROOT / file).read_text(encoding="utf-8")
