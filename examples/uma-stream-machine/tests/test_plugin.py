"""The plugin as a package: what it declares, ships and tells of itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from uma.errors import UsageError
from uma.hookspecs import Runtime
from uma.plugins import PluginEntry, PluginHost
from uma_stream_machine import COUNTERS, FAULTS
from uma_stream_machine.commands import COMMANDS, CommandType
from uma_stream_machine.packing import HEADER_BYTES, LANES
from uma_stream_machine.stream import QUEUE

PROJECT = Path(__file__).parent.parent
REGISTERS = (PROJECT / "src" / "uma_stream_machine" / "csrc" / "stm_regs.h").read_text()
DATA_SHEET = (PROJECT / "README.md").read_text()


@pytest.fixture
def host() -> PluginHost:
    return PluginHost(lambda: [PluginEntry("stream_machine", "uma_stream_machine", "uma-stream-machine", "0.1.0")])


def runtime(host: PluginHost, text: str) -> Runtime:
    found = host.plugin_for("stream_machine").call("runtime", target=host.target(text))
    assert isinstance(found, Runtime)
    return found


def test_it_is_an_accelerator_with_a_size(host: PluginHost) -> None:
    kind = host.kind("stream_machine")
    assert (kind.device_type, kind.is_host) == ("npu", False)
    assert [attribute.name for attribute in kind.attributes] == ["weight_bytes", "impl", "base"]


@pytest.mark.parametrize("text", ["-weight_bytes=511", "-weight_bytes=2000000", "-impl=fpga", "-base=-4"])
def test_what_it_cannot_be_is_refused(host: PluginHost, text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(text[1 : text.index("=")])):
        host.target(f"stream_machine {text}")


def test_the_driver_knows_the_size(host: PluginHost) -> None:
    found = runtime(host, "stream_machine -weight_bytes=1024")
    assert found.parameters == (1024,)
    simulator = found.implementations["sim"]
    assert simulator.state_bytes >= 2 * 1024
    assert sorted(simulator.sources) == ["stm_sim.c", "stm_sim.h", "stm_units.c"]


def test_the_same_driver_serves_registers_in_memory(host: PluginHost) -> None:
    found = runtime(host, "stream_machine -impl=mmio -base=1073741824")
    assert found.implementations["mmio"].bus == "uma_mmio_bus" and not found.implementations["mmio"].sources
    assert found.sources == runtime(host, "stream_machine").sources


def test_every_fault_code_has_a_meaning() -> None:
    codes = {int(code) for code in re.findall(r"#define STM_FAULT_\w+ (\d+)\b", REGISTERS)}
    assert codes == set(FAULTS)


def test_every_counter_has_a_name() -> None:
    count = re.search(r"#define STM_N_COUNTERS (\d+) /\* (.*) \*/", REGISTERS)
    assert count is not None
    assert (int(count[1]), tuple(count[2].split(", "))) == (len(COUNTERS), COUNTERS)


def test_compiler_and_machine_have_the_same_sizes() -> None:
    numbers = dict(re.findall(r"#define STM_(QUEUE|LANES|BLOCK_HEADER) (\d+)u", REGISTERS))
    assert numbers == {"QUEUE": str(QUEUE), "LANES": str(LANES), "BLOCK_HEADER": str(HEADER_BYTES)}


def test_the_data_sheet_names_every_register_and_fault() -> None:
    registers = re.findall(r"#define STM_(\w+) 0x[0-9A-F]{2,3}u\b", REGISTERS)
    missing = [name for name in registers if f"`{name}`" not in DATA_SHEET]
    missing += [f"fault {code}" for code in FAULTS if f"\n| {code} |" not in DATA_SHEET]
    assert not missing


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: kind.name)
def test_the_data_sheet_says_what_each_command_does(kind: CommandType) -> None:
    assert f"| {kind.opcode} | {kind.name} | {kind.words} | {kind.doc} |" in DATA_SHEET
    fields = [f"`{field.name}`" for field in kind.fields]
    assert not [name for name in fields if name not in DATA_SHEET]
