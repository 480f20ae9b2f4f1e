"""``uma verify``, ``uma explain`` and ``uma report`` of an artifact."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests._support.small_models import Uma

HOST = "c -mcpu=x86-64 -opt=1"


def test_commands_take_an_artifact(uma: Uma, folder: Path) -> None:
    uma("build", "net.py", "--target", HOST, "-o", "out", "-q")
    assert "all agree" in uma("verify", "out", "--samples", 2).out
    explained = uma("explain", "out", "--json").json
    assert explained["layers"] == uma("explain", "net.py", "--target", HOST, "--json").json["layers"]
    said = uma("verify", "out", "--target", HOST, "--max-ram", "1K").error(2)
    hint = "leave out --target, --max-ram; the artifact records how it was built"
    assert said == f"an artifact is built already\n  hint: {hint}\n"
    assert uma("explain", "net.py").error(2).startswith("explaining a model file needs --target\n")
    assert uma("verify", "out", "--against", "litert").error(2).startswith("litert reads model files alone\n")
    shutil.rmtree(folder / "out" / "model")
    said = uma("verify", "out").error(3)
    assert said.startswith("the artifact does not keep the model that it was built from\n  where: net\n")


def test_a_report_says_why_it_shows_no_layers(uma: Uma, folder: Path) -> None:
    uma("build", "net.py", "--target", HOST, "-o", "out", "-q")
    (folder / "out" / "model" / "build.json").unlink()
    done = uma("report", "out", "--no-compile")
    assert done.code == 0 and done.err.startswith("note: the report shows the artifact without the layers of its model")
