"""Limits on RAM, ROM and the cycles of accelerators: what is counted, what is said, and where a limit comes from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests._support import fake_device as fake
from tests._support.model_c import network, remembering
from tests._support.program_artifact import metadata_of
from tests._support.scale_artifact import artifact_of

from uma.artifact import Artifact
from uma.artifact.footprint import Footprint, footprint
from uma.contract.cost import Cost
from uma.contract.drivers import Clock
from uma.errors import RequirementError, UsageError
from uma.reports.costs import RegionCost
from uma.reports.limits import (
    LIMITS,
    Cycles,
    Limit,
    accelerator_cycles,
    parse_amount,
    project_limits,
    require_limits,
)


@pytest.fixture(scope="module")
def net() -> Artifact:
    return artifact_of(*metadata_of(network()))


def limited(artifact: Artifact, memory: Footprint, *cycles: Cycles, **amounts: int) -> str:
    """What is said of limits, by their names with underscores; empty where they are kept."""
    limits = {name.replace("_", "-"): Limit(amount, f"--{name}") for name, amount in amounts.items()}
    try:
        require_limits(artifact.record, memory, limits, cycles)
    except RequirementError as error:
        assert error.exit_code == 4
        return str(error)
    return ""


class TestAmounts:
    @pytest.mark.parametrize(
        ("text", "name", "amount"),
        [
            ("0", "max-ram", 0),
            ("65536", "max-ram", 65536),
            ("64K", "max-ram", 65536),
            ("64k", "max-rom", 65536),
            ("1M", "max-rom", 1 << 20),
            ("2G", "max-rom", 2 << 30),
            ("50K", "max-cycles", 50_000),
            ("1M", "max-cycles", 1_000_000),
            ("64 K", "max-ram", 65536),
            ("64KB", "max-ram", 65536),
            ("64kib", "max-rom", 65536),
        ],
    )
    def test_amounts(self, text: str, name: str, amount: int) -> None:
        assert parse_amount(text, name) == amount

    @pytest.mark.parametrize("text", ["", "K", "-1", "1.5M", "64  K", "1e3", "٣", "9" * 16, "64K\n"])
    def test_anything_else(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not an amount; write it like 64K"):
            parse_amount(text, "max-ram")

    @pytest.mark.parametrize(("text", "unit"), [("64q", "q"), ("1ms", "ms"), ("5Kiba", "Kiba")])
    def test_unknown_units(self, text: str, unit: str) -> None:
        with pytest.raises(ValueError, match=f"unknown unit '{unit}' in '{text}'; use K, M or G"):
            parse_amount(text, "max-ram")


class TestProject:
    @pytest.fixture
    def project(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        return tmp_path / "pyproject.toml"

    def test_it_may_limit(self, project: Path) -> None:
        project.write_text('[tool.uma]\nmax-ram = "64K"\nmax-cycles = 24030\n')
        said = "in [tool.uma] of pyproject.toml"
        assert project_limits() == {
            "max-ram": Limit(65536, f"max-ram {said}"),
            "max-cycles": Limit(24030, f"max-cycles {said}"),
        }
        project.write_text("[tool.uma]\n")
        assert project_limits() == {}

    def test_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("uma.reports.limits.find_project", lambda: None)
        assert project_limits() == {}

    @pytest.mark.parametrize("value", ['"64q"', "-1", "true", "1.5", '["64K"]', '""'])
    def test_what_is_no_amount(self, project: Path, value: str) -> None:
        project.write_text(f"[tool.uma]\nmax-rom = {value}\n")
        with pytest.raises(UsageError, match="max-rom: ") as error:
            project_limits()
        assert error.value.where == f"{project}, in [tool.uma]"
        assert error.value.hint == 'write max-rom = "64K", or a whole number'


class TestMemory:
    def test_what_is_within_is_fine(self, net: Artifact) -> None:
        memory = footprint(net.record, 1000, 96)
        assert limited(net, memory, max_ram=memory.ram_bytes, max_rom=memory.rom_bytes) == ""

    def test_ram_says_what_is_alive(self, net: Artifact) -> None:
        memory = footprint(net.record, 1000, 96)
        total = memory.arena_bytes + 40 + 24 + 96
        assert memory.ram_bytes == total
        said = limited(net, memory, max_ram=total - 1)
        assert said.splitlines()[:3] == [
            f"the model takes {total} bytes of RAM, {total - 1} are allowed by --max_ram",
            "    arena 56, inputs 40, outputs 24, stack 96; 1 bytes too many",
            "    alive at the peak of ram, step 0 ('dense */ 1', 'é\\\\'):",
        ]
        assert "      t: 56 bytes, float32[2, 7]\n" in said
        assert "hint: most of it is the stack of kernels: -opt=s" in said
        said = limited(net, footprint(net.record), max_ram=100)
        assert "arena 56, inputs 40, outputs 24; 20 bytes too many\n" in said  # what nobody tells is not in it
        assert "hint: make what 'dense */ 1', 'é\\\\' takes or gives smaller" in said
        assert "of int8 instead of float32 it is a quarter" in said

    @pytest.mark.parametrize(
        ("part", "hint"),
        [
            ("state_bytes", "keeps from run to run"),
            ("input_bytes", "a smaller shape"),
            ("output_bytes", "nobody reads"),
        ],
    )
    def test_what_most_of_it_is(self, part: str, hint: str, net: Artifact) -> None:
        memory = replace(footprint(net.record), **{part: 5000})  # type: ignore[arg-type]  # a field by its name
        said = limited(net, memory, max_ram=1)
        assert hint in said and f"{part.partition('_')[0]}" in said

    def test_a_model_without_an_arena(self) -> None:
        artifact = artifact_of(*metadata_of(remembering()))
        said = limited(artifact, footprint(artifact.record), max_ram=1)
        assert said.startswith("the model takes ") and "state " in said

    def test_rom_says_whose_weights(self, net: Artifact) -> None:
        said = limited(net, footprint(net.record, 10, 0), max_rom=1)
        weights = net.constant_bytes
        assert said.splitlines()[:3] == [
            f"the model takes {weights + 10} bytes of ROM, 1 are allowed by --max_rom",
            f"    weights {weights}, code 10",
            "      weights of 'dense */ 1', 'é\\\\': 140 bytes",
        ]
        assert "of int8 instead of float32 they are a quarter" in said
        assert "most of it is code: -opt=s" in limited(net, footprint(net.record, 1 << 20, 0), max_rom=1)
        assert "code unknown" in limited(net, footprint(net.record), max_rom=1)

    def test_weights_of_integers(self) -> None:
        artifact = artifact_of(*metadata_of(remembering()))
        memory = replace(footprint(artifact.record, 0, 0), constant_bytes=100)
        assert "hint: most of it is weights: make the layers above smaller" in limited(artifact, memory, max_rom=1)

    def test_rom_that_is_not_known(self, net: Artifact) -> None:
        said = limited(net, footprint(net.record), max_rom=1 << 20)
        assert said.startswith("--max_rom allows 1,048,576 bytes of ROM, and how much the code takes is not known\n")
        assert "hint: leave out --no-compile" in said

    def test_all_limits_are_told_at_once(self, net: Artifact) -> None:
        said = limited(net, footprint(net.record, 10, 10), max_ram=1, max_rom=1, max_cycles=1)
        assert [name in said for name in ("max_ram", "max_rom", "max_cycles")] == [True] * 3


class TestCycles:
    def test_no_accelerator(self, net: Artifact) -> None:
        said = limited(net, footprint(net.record), max_cycles=5)
        assert said.startswith("--max_cycles allows 5 cycles of each accelerator, and the model runs on none\n")

    def test_each_accelerator(self, net: Artifact) -> None:
        rows = (
            Cycles("a", 100, "counted", ("region_0, 90 cycles, estimated: 'conv'",)),
            Cycles("b", 99, "estimated", ()),
            Cycles("c", None, "estimated", ()),
        )
        said = limited(net, footprint(net.record), *rows, max_cycles=99)
        assert said.splitlines()[:3] == [
            "one run takes of 'a' 100 cycles, as counted, 99 are allowed by --max_cycles",
            "    region_0, 90 cycles, estimated: 'conv'",
            "--max_cycles allows 99 cycles, and how many 'c' takes is not known",
        ]
        assert "'b'" not in said

    def test_as_the_simulator_counts_else_as_is_estimated(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path))
        counting = fake.runtime(clock=Clock(1e6, "operations", None))
        artifact = artifact_of(*metadata_of(fake.chain("a", "b"), fake.devices(a=counting, b=fake.runtime())))
        costs = [
            RegionCost("r0", "a", ("conv", "relu"), Cost(cycles=10)),
            RegionCost("r1", "b", ("one", "two", "three", "four"), Cost(cycles=20.4)),
            RegionCost("r2", "b", (), Cost(cycles=30)),
            RegionCost("r3", "c", ("x",), None),
            RegionCost("r4", "d", ("x",), Cost(seconds=1.0)),
        ]
        assert accelerator_cycles(artifact, costs) == (
            Cycles("a", 3, "counted", ("r0, 10 cycles, estimated: 'conv', 'relu'",)),
            Cycles(
                "b",
                50,
                "estimated",
                (
                    "r2, 30 cycles, estimated: no layer",
                    "r1, 20 cycles, estimated: 'one', 'two', 'three' and 1 more",
                ),
            ),
            Cycles("c", None, "estimated", ("r3, unknown, estimated: 'x'",)),
            Cycles("d", None, "estimated", ("r4, unknown, estimated: 'x'",)),
        )
        first, *_ = accelerator_cycles(artifact, costs, compiles=False)
        assert (first.cycles, first.how) == (10, "estimated")

    def test_every_limit_is_a_setting(self) -> None:
        from uma.support.project_file import SETTINGS

        assert set(LIMITS) < set(SETTINGS)
