"""Names that say nothing, replaced names, and exceptions that match nothing are reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.names import old_names, problems, read_names

BINDINGS = (
    "def found(): pass",
    "class _Made: pass\ndef _made(x): pass",
    "def f(given): pass",
    "f = lambda *, of: of",
    "left, (right, *told) = x",
    "class C:\n    own: int = 0",
    "class C:\n    def __init__(self): self._moved = 1",
    "import math as within",
    "try: pass\nexcept OSError as found: pass",
    "match x:\n    case [1, *made]: pass",
    "[found for found in x]",
)


@pytest.mark.parametrize("source", BINDINGS)
def test_each_kind_of_binding_is_checked(tmp_path: Path, source: str) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "module.py").write_text(source)
    assert len(problems(old_names(tmp_path, {}), {})) == 1


def test_replaced_names_are_checked_in_their_folder_only(tmp_path: Path) -> None:
    for folder in ("relay", "tir"):
        (tmp_path / "core" / folder).mkdir(parents=True)
        (tmp_path / "core" / folder / "cuts.py").write_text("class Pool: pass\nfound = 1\n")
    (tmp_path / "list.txt").write_text("core/relay Pool  # CandidateSet\ncore/relay cuts.py\n")
    names = old_names(tmp_path, read_names(tmp_path / "list.txt"))
    assert names == {"core/relay/cuts.py": {"cuts.py", "Pool", "found"}, "core/tir/cuts.py": {"found"}}
    exceptions = {"core/relay/cuts.py": {"cuts.py", "Pool", "found"}, "core/tir/cuts.py": {"found", "made"}}
    assert [line.split(": ")[:2] for line in problems(names, exceptions)] == [["core/tir/cuts.py", "made"]]
