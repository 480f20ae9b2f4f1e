"""Less RAM, row by row, on the command line: ``--max-ram``, with the stack, and ``uma explain --memory``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests._support.row_nets import small_net
from tests._support.small_models import Uma

from uma import build

GIVEN = ("1-import.py", "--target", "c -opt=s")


@pytest.fixture
def rows(folder: Path) -> Path:
    """The folder that commands run in, with a network whose layers can be run by rows."""
    build(small_net(), "c", dump=folder, stop_after="import")
    return folder


def test_memory_is_explained(uma: Uma, rows: Path) -> None:
    said = uma("explain", *GIVEN, "--memory").out
    assert "bytes of RAM without the stack: arena " in said and "ram is fullest at step " in said
    assert "ways to run layers row by row, by bytes of RAM without the stack:" in said
    found = uma("explain", *GIVEN, "--memory", "--json").json["memory"]
    points = found["rows"]["points"]
    assert len(points) > 2 and found["rows"]["chosen"] == 0 and found["ram_bytes"] == points[0]["ram_bytes"]
    assert found["peaks"][0]["alive"]
    assert "memory" not in uma("explain", *GIVEN, "--json").json


def test_the_project_says_which_way_is_explained(uma: Uma, rows: Path) -> None:
    least = uma("explain", *GIVEN, "--memory", "--json").json["memory"]["rows"]["points"][-1]["ram_bytes"]
    (rows / "pyproject.toml").write_text(f"[tool.uma]\nmax-ram = {least}\n")
    found = uma("explain", *GIVEN, "--memory", "--json").json["memory"]
    assert found["ram_bytes"] == least and found["rows"]["chosen"] == len(found["rows"]["points"]) - 1


def test_the_stack_counts_for_the_way_that_is_built(uma: Uma, rows: Path) -> None:
    points = uma("explain", *GIVEN, "--memory", "--json").json["memory"]["rows"]["points"]
    limit = points[0]["ram_bytes"]  # all layers at once fit, but for the stack
    made = uma("build", *GIVEN, "--max-ram", str(limit), "-o", "out", "--json").json
    assert made["stack_bytes"] > 0 and made["ram_bytes"] <= limit
    built = json.loads((rows / "out" / "metadata.json").read_text())["rows"]
    assert built["chosen"] >= 1 and built["points"][built["chosen"]]["ram_bytes"] + made["stack_bytes"] <= limit


def test_layers_say_their_rows_and_chain_and_line_buffers_their_heights(uma: Uma, rows: Path) -> None:
    given = (*GIVEN, "--memory", "--max-ram", "4500")
    said = uma("explain", *given).out
    assert "00 conv2d 3x3 3->8 s1 [conv0], 103,680 MACs -> c, rows 24 of chain 0\n" in said
    assert "of chain 0 ('conv1'): 3 of 24 rows, 960 bytes\n" in said
    assert "'conv0' to 'conv5' (6)" in said and "no layer to" not in said
    found = uma("explain", *given, "--json").json
    assert [layer["by_rows"] for layer in found["layers"] if layer["layers"]] == [
        {"chain": 0, "rows": rows} for rows in (24, 24, 12, 12, 12, 6)
    ]
    lines = found["memory"]["line_buffers"]
    assert {line["chain"] for line in lines} == {0}
    assert {line["layers"][0]: (line["rows"], line["height"], line["bytes"]) for line in lines}["conv1"] == (3, 24, 960)
    assert "rows" not in uma("explain", *GIVEN).out


def test_what_a_limit_builds_is_verified_layer_by_layer(uma: Uma, rows: Path) -> None:
    found = uma("verify", *GIVEN, "--max-ram", "4500", "--samples", 1, "--json").json
    assert found["equal"] is True and [row["layers"][0] for row in found["kernels"]] == [f"conv{k}" for k in range(6)]
    assert {row["against"] for row in found["outputs"]} == {"inspected", "references", "first run"}
    done = uma("verify", *GIVEN, "--max-ram", "1K")
    assert done.code == 4 and "1,024 are allowed by --max-ram" in done.err
    done = uma("report", *GIVEN, "--max-ram", "1K", "--no-compile", "-o", "page.html")
    assert done.code == 4 and "1,024 are allowed by --max-ram" in done.err
    (rows / "pyproject.toml").write_text('[tool.uma]\nmax-ram = "1K"\n')
    assert "1,024 are allowed by max-ram in [tool.uma]" in uma("verify", *GIVEN).err
