"""The plugin as users meet it: its kind, alias and attributes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from uma.errors import UsageError
from uma.lowering.build_targets import resolve_targets
from uma.plugins import PluginEntry, PluginHost
from uma_ethosu_like.machine import ATTRIBUTES, CONFIGURATIONS, Machine

README = Path(__file__).parent.parent / "README.md"


@pytest.fixture
def host() -> PluginHost:
    return PluginHost(
        lambda: [
            PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
            PluginEntry("ethosu_like", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
            PluginEntry("ethosu", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
            PluginEntry("vela", "uma_ethosu_like", "uma-ethosu-like", "0.1.0"),
        ]
    )


@pytest.mark.parametrize("name", ["ethosu_like", "ethosu"])
def test_the_name_is_enough(host: PluginHost, name: str) -> None:
    members = resolve_targets(name, host)
    assert [member.label for member in members.all] == ["ethosu_like", "c"]
    machine = Machine.from_target(members["ethosu_like"].target)
    assert machine == Machine() and (machine.macs, machine.clock_hz, machine.arena_bytes) == (128, 500e6, 2 << 20)


@pytest.mark.parametrize("macs", [32, 64, 128, 256])
def test_there_are_four_sizes(host: PluginHost, macs: int) -> None:
    members = resolve_targets(f"ethosu_like -macs={macs} -sram_bytes=1M -arena_cache_bytes=24000", host)
    machine = Machine.from_target(members["ethosu_like"].target)
    assert machine.arena_bytes == 24000
    rows, columns, channels = machine.configuration.ofm_ublock
    assert rows * columns * channels * machine.configuration.ifm_ublock[2] == macs


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("-macs=512", "macs"),
        ("-macs=96", "there is no machine with 96 multipliers"),
        ("-arena_cache_bytes=4M", "an arena cache of 4194304 bytes does not fit a memory of 2097152 bytes"),
        ("-clock_hz=0", "clock_hz"),
        ("-impl=fpga", "impl"),
        ("-mac=64", "did you mean 'macs'"),
    ],
)
def test_what_it_cannot_be_is_refused(host: PluginHost, text: str, what: str) -> None:
    with pytest.raises(UsageError, match=re.escape(what)):
        resolve_targets(f"ethosu_like {text}", host)


def test_the_shared_memory_is_as_published() -> None:
    assert {macs: (one.shram_kib, one.lut_address) for macs, one in CONFIGURATIONS.items()} == {
        32: (16, 14 << 10),
        64: (16, 14 << 10),
        128: (24, 22 << 10),
        256: (48, 46 << 10),
    }
    assert [hex(one.config_word) for one in CONFIGURATIONS.values()] == ["0x1005", "0x1006", "0x1807", "0x3008"]
    assert [one.usable_banks(lut=False) for one in CONFIGURATIONS.values()] == [16, 16, 22, 46]
    assert CONFIGURATIONS[128].granule("acc40") == 12


def test_the_page_names_every_attribute_and_size() -> None:
    page = README.read_text(encoding="utf-8")
    assert not [one.name for one in ATTRIBUTES if f"`{one.name}`" not in page]
    for macs, one in CONFIGURATIONS.items():
        rows, columns, channels = one.ofm_ublock
        row = f"| {macs} | {rows} x {columns} x {channels} | {one.shram_kib} KiB | {one.reserved_banks} KiB |"
        assert row in page
