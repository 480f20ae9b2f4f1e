"""``--io``: where inputs and outputs are, of all commands that build."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests._support.small_models import Uma

from uma.options import project_options
from uma.support.project_file import ProjectError


def test_the_command_and_the_project(uma: Uma, folder: Path) -> None:
    project = folder / "pyproject.toml"

    def how(*options: str) -> str:
        assert uma("build", "pair.py", "--target", "c", "--no-compile", "-o", "out", *options).code == 0
        rows = json.loads((folder / "out" / "metadata.json").read_text())["buffers"]
        (pool,) = {row["pool"] for row in rows if row["role"] in ("input", "output")}
        return str(pool)

    assert (how(), how("--io", "arena"), how("--io", "caller")) == ("None", "ram", "None")
    project.write_text('[tool.uma]\nio = "arena"\n')
    assert (how(), how("--io", "caller")) == ("ram", "None")
    project.write_text("[tool.uma]\nio = 5\n")
    with pytest.raises(ProjectError, match="inputs and outputs cannot be in 5"):
        project_options()
    assert "[tool.uma]" in uma("build", "pair.py", "--target", "c").error(2)
    project.unlink()
    assert "an artifact is built already" in uma("run", "out", "--io", "arena").error(2)


def test_what_is_said_of_ram(uma: Uma, folder: Path) -> None:
    told = uma("build", "net.py", "--target", "c", "--io", "arena", "-v")
    assert "bytes: arena, inputs and outputs in it, 512, stack" in told.out
    rows = [line.split()[:3] for line in told.out.splitlines() if line.split()[2:3] in (["input"], ["output"])]
    assert rows == [["ram", "in_x", "input"], ["ram", "out_0", "output"]]
    record = uma("build", "net.py", "--target", "c", "--io", "arena", "--json").json
    assert (record["input_bytes"], record["output_bytes"], record["arena_bytes"]) == (0, 0, 512)
    assert "--io arena" in uma("build", "net.py", "--target", "c", "--max-ram", "500").error(4)
    assert uma("verify", "net.py", "--target", "c", "--io", "arena", "--samples", "1", "-q").code == 0
    assert uma("run", "net.py", "--target", "c", "--io", "arena", "--profile", "-q").code == 0
