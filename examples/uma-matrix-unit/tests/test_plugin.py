"""The plugin as a package: what it declares, ships and tells of itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from uma.errors import UsageError
from uma.hookspecs import Runtime
from uma.plugins import PluginEntry, PluginHost
from uma_matrix_unit import COUNTERS, FAULTS

PROJECT = Path(__file__).parent.parent
REGISTERS = (PROJECT / "src" / "uma_matrix_unit" / "csrc" / "mxu_regs.h").read_text()


@pytest.fixture
def host() -> PluginHost:
    return PluginHost(lambda: [PluginEntry("matrix_unit", "uma_matrix_unit", "uma-matrix-unit", "0.1.0")])


def runtime(host: PluginHost, text: str) -> Runtime:
    found = host.plugin_for("matrix_unit").call("runtime", target=host.target(text))
    assert isinstance(found, Runtime)
    return found


def test_it_is_an_accelerator_with_sizes(host: PluginHost) -> None:
    kind = host.kind("matrix_unit")
    assert (kind.device_type, kind.is_host) == ("npu", False)
    names = ["activation_bytes", "weight_bytes", "accumulator_bytes", "impl", "base"]
    assert [attribute.name for attribute in kind.attributes] == names


@pytest.mark.parametrize("text", ["-activation_bytes=255", "-weight_bytes=2000000", "-impl=fpga", "-base=-4"])
def test_what_it_cannot_be_is_refused(host: PluginHost, text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(text[1 : text.index("=")])):
        host.target(f"matrix_unit {text}")


def test_the_driver_knows_the_sizes(host: PluginHost) -> None:
    found = runtime(host, "matrix_unit -activation_bytes=1024 -weight_bytes=512 -accumulator_bytes=256")
    assert found.parameters == (1024, 512, 256)
    simulator = found.implementations["sim"]
    assert simulator.state_bytes >= 2 * (1024 + 512 + 256) and list(simulator.sources) == ["mxu_sim.c"]


def test_the_same_driver_serves_registers_in_memory(host: PluginHost) -> None:
    found = runtime(host, "matrix_unit -impl=mmio -base=1073741824")
    assert found.implementations["mmio"].bus == "uma_mmio_bus" and not found.implementations["mmio"].sources
    assert found.sources == runtime(host, "matrix_unit").sources


def test_every_fault_code_has_a_meaning() -> None:
    codes = {int(code) for code in re.findall(r"#define MXU_FAULT_\w+ (\d+)\b", REGISTERS)}
    assert codes == set(FAULTS)


def test_every_counter_has_a_name() -> None:
    count = re.search(r"#define MXU_N_COUNTERS (\d+) /\* (.*) \*/", REGISTERS)
    assert count is not None
    assert (int(count[1]), tuple(count[2].split(", "))) == (len(COUNTERS), COUNTERS)


def test_the_data_sheet_names_every_register_and_fault() -> None:
    text = (PROJECT / "README.md").read_text()
    registers = re.findall(r"#define MXU_(\w+) 0x([0-9A-F]{2})u\b", REGISTERS)
    missing = [name for name, _ in registers if f"`{name}`" not in text and name not in ("OPERANDS", "OPERANDS_END")]
    missing += [f"fault {code}" for code in FAULTS if f"\n| {code} |" not in text]
    assert not missing
