"""``uma build --max-ram``, ``--max-rom`` and ``--max-cycles``, and the same in a project's settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests._support.plugins import entry_of, host_kind, toy
from tests._support.small_models import Uma

from uma.contract.cost import Cost
from uma.plugins import PluginHost


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain host, and ``npu``, which takes ReLUs and estimates 5,000 cycles for each."""
    npu = toy("npu", "nn.relu", estimate_cost=lambda function, region, target: Cost(cycles=5000))
    entries = [*npu, *entry_of(host_kind("plain"))]
    monkeypatch.setattr("uma.plugins.default_host", lambda: PluginHost(lambda: entries))


def test_what_is_exceeded_is_not_written(uma: Uma, installed: None, folder: Path) -> None:
    given = ("build", "net.py", "--target", "plain", "-o", "out")
    said = uma(*given, "--max-ram", "600", "--max-rom", "1K").error(4)
    assert "bytes of RAM, 600 are allowed by --max-ram\n" in said
    assert "alive at the peak of ram, step " in said and "hint: most of it is the inputs" in said
    assert not (folder / "out").exists()
    assert uma(*given, "--max-ram", "64K", "--max-rom", "64K").code == 0
    before = (folder / "out" / "metadata.json").read_bytes()
    assert "bytes of ROM, 5 are allowed by --max-rom" in uma(*given, "--max-rom", "5").error(4)
    assert (folder / "out" / "metadata.json").read_bytes() == before


def test_a_project_limits_and_the_command_line_says_more(uma: Uma, installed: None, folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.uma]\nmax-ram = 100\nmax-rom = "9M"\n')
    given = ("build", "net.py", "--target", "plain", "-o", "out", "-q")
    assert "100 are allowed by max-ram in [tool.uma] of pyproject.toml" in uma(*given).error(4)
    assert uma(*given, "--max-ram", "1M").code == 0
    assert uma("build", "net.py", "--target", "plain", "--stop-after", "canonicalise", "-q").code == 0
    (folder / "pyproject.toml").write_text("[tool.uma]\nmax-ram = 1.5\n")
    assert uma(*given).error(2).startswith("max-ram: '1.5' is not an amount; write it like 64K\n")


def test_cycles_are_those_of_accelerators(uma: Uma, installed: None, folder: Path) -> None:
    given = ("build", "net.py", "--target", "npu", "--target", "plain", "--no-compile", "-o", "out")
    said = uma(*given, "--max-cycles", "4K").error(4)
    assert said.startswith("one run takes of 'npu' 5,000 cycles, as estimated, 4,000 are allowed by --max-cycles\n")
    assert "5,000 cycles, estimated: 'block/relu'" in said
    assert uma(*given, "--max-cycles", "5K").code == 0
    said = uma("build", "net.py", "--target", "plain", "--no-compile", "--max-cycles", "1M").error(4)
    assert "and the model runs on none" in said


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--max-ram", "64q"], "argument --max-ram: unknown unit 'q' in '64q'; use K, M or G"),
        (["--max-rom", "-1"], "argument --max-rom: '-1' is not an amount; write it like 64K"),
        (["--max-cycles", "many"], "argument --max-cycles: 'many' is not an amount; write it like 64K"),
        (["--max-cycles", "64kb"], "argument --max-cycles: unknown unit 'kb' in '64kb'; use K, M or G"),
        (["--max-ram", "1", "--stop-after", "lower"], "--max-ram is for whole builds"),
    ],
)
def test_bad_input(options: list[str], what: str, uma: Uma, installed: None, files: None) -> None:
    assert uma("build", "net.py", "--target", "plain", *options).error(2).startswith(what)
