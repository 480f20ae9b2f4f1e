"""The tool behind ``make cost-of-change``: its changes fit the tree, and its table counts what they touch."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests import cost_of_change
from tests.cost_of_change import CHANGES, AnchorError, Change, Cost, Edit


def test_every_edit_fits_the_tree(tmp_path: Path) -> None:
    for change in CHANGES:
        for file in {edit.file for edit in change.edits}:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(cost_of_change.ROOT / file, tmp_path / file)
        for edit in change.edits:
            edit.apply(tmp_path, change.name)


@pytest.mark.parametrize(
    "source", ["", "c = 3\n", "a = 1\nb = 2\na = 1\n"], ids=["no file", "no anchor", "two anchors"]
)
def test_an_edit_that_does_not_fit_is_reported(source: str, tmp_path: Path) -> None:
    if source:
        (tmp_path / "m.py").write_text(source)
    with pytest.raises(AnchorError, match=r"change 'op': m.py .*; adapt the edit in cost_of_change.py"):
        Edit("m.py", "a = 1\n", "b = 2\n").apply(tmp_path, "op")


def test_the_cost_is_that_of_core(tmp_path: Path) -> None:
    edits = (Edit("core/a.py", "x", "1\n2\n"), Edit("core/a.py", "y", "3"), Edit("plugins/p.py", "z", "4"))
    assert cost_of_change.cost_of(Change("op", 3, edits, "")) == Cost("op", 1, 3, 3)
    rows = cost_of_change.table([Cost("op", 1, 3, 3), Cost("option", 16, 20, 5)]).splitlines()
    assert [row.split() for row in rows[1:]] == [["op", "1", "3", "3"], ["option", "16", "5", "20", "above"]]


def test_an_unknown_change_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cost_of_change.main(["opp"]) == 2
    assert "unknown change 'opp'; changes: op, " in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_every_change_works_in_a_copy(change: Change) -> None:
    assert cost_of_change.check_change(change) is None


@pytest.mark.soak
def test_a_change_that_does_nothing_or_does_not_work_is_at_fault() -> None:
    edit = Edit("core/version.py", '"""The version of UMA', ", as a text")
    passing, failing = (cost_of_change.check_change(Change("op", 3, (edit,), check)) for check in ("", "assert False"))
    assert passing == "its check passes without it"
    assert failing is not None and failing.startswith("its check fails:\n")
