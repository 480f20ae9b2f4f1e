"""``uma report``: a page of a model or of an artifact, and the same as data."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from tests._support.reports import Page
from tests._support.small_models import NET, Uma


def test_of_a_model_and_of_its_artifact(uma: Uma, folder: Path) -> None:
    done = uma("report", "net.py", "--target", "c", "-o", "net.html")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("c runs all 5 layers") and lines[-1] == "net: the report is net.html"
    page = Page((folder / "net.html").read_text(encoding="utf-8"))
    assert all(line in page.text for line in lines[:-1])
    assert "block/pool" in page.text and "image:0" in page.text

    assert uma("build", "net.py", "--target", "c", "-o", "out", "-q").code == 0
    record = uma("report", "out", "-o", "out.json", "--no-compile", "--json").json
    assert (record["name"], record["file"]) == ("net", "out.json") and len(record["summary"]) == 3
    report = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    assert not report["of_artifact"] and report["footprint"]["stack_bytes"] is None
    assert len(report["layers"]) == 6

    shutil.rmtree(folder / "out" / "model")
    done = uma("report", "out", "-o", "out.json", "--no-compile")
    assert (done.code, done.err) == (0, "")
    report = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    assert report["of_artifact"]

    assert len(report["steps"]) == 3 and report["footprint"]["arena_bytes"] > 0


def test_with_times(uma: Uma, folder: Path) -> None:
    assert uma("report", "net.py", "--target", "c", "-o", "net.csv", "--profile", "-q").code == 0
    with (folder / "net.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    steps = [row for row in rows if row["record"] == "step"]
    assert len(steps) == 3 and all(float(row["time_us"]) > 0 for row in steps)
    assert next(row for row in rows if row["record"] == "model")["profiled"] == "10"


def test_names_with_markup(uma: Uma, folder: Path) -> None:
    evil = "</title><script>alert(1)</script>"
    (folder / "evil.py").write_text(NET.replace("block/relu", evil).replace("image:0", evil))
    for suffix in ("html", "md", "json", "csv"):
        assert uma("report", "evil.py", "--target", "c", "--no-compile", "-o", f"evil.{suffix}", "-q").code == 0
    page = Page((folder / "evil.html").read_text(encoding="utf-8"))
    assert evil in page.text and len(page.scripts) == 1 and page.tags["title"] - page.tags.get("path", 0) <= 1
    assert "<script>" not in (folder / "evil.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (["net.py"], 2, "reporting on a model file needs --target"),
        (["missing.onnx", "--target", "c"], 2, "there is no file missing.onnx"),
        (["net.py", "--target", "c", "-o", "x.pdf"], 2, "a report cannot be a file '.pdf'"),
        (["net.py", "--target", "c", "-o", "no/x.html"], 2, "there is no folder for the report"),
        (["net.py", "--target", "c", "--profile", "--no-compile"], 2, "--profile runs what --no-compile does not make"),
        ([".", "--target", "c"], 2, "an artifact is built already"),
        (["."], 2, "there is no artifact"),
    ],
)
def test_bad_input_leaves_nothing(uma: Uma, arguments: list[str], code: int, what: str) -> None:
    assert what in uma("report", *arguments).error(code)


@pytest.mark.parametrize("change", [{"schema_version": 6}, {"schema_version": 99}, {"name": "</script>"}])
def test_an_artifact_of_another_version_or_changed(uma: Uma, folder: Path, change: dict[str, object]) -> None:
    assert uma("build", "net.py", "--target", "c", "-o", "out", "-q", "--no-compile").code == 0
    path = folder / "out" / "metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert uma("report", "out", "-o", "r.html").error(3)
    assert not (folder / "r.html").exists()
