"""The driver on the simulator, and on registers that answer as silicon would."""

from __future__ import annotations

import random
import re
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import uma
import uma_ethosu_like
from uma_ethosu_like.commands import command, encode
from uma_ethosu_like.device import COUNTERS, FAULTS, SIMULATOR_BYTES, describe_payload, make_runtime
from uma_ethosu_like.machine import CONFIGURATIONS, Machine
from uma_ethosu_like.payload import STREAM_OFFSET, write_payload

HERE = Path(__file__).parent
CSRC = Path(uma_ethosu_like.__file__).parent / "csrc"
INCLUDE = Path(uma.__file__).parent / "runtime" / "csrc"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-fno-sanitize-recover=all")

STOP = command("OP_STOP", mask=0xFFFF)


def copy(length: int = 16, source: int = 0, destination: int = 1, start: int = 0) -> list[int]:
    """The stream that copies bytes from the start of a region, ``start`` bytes from it, to another."""
    commands = [
        command("SET_DMA0_SRC_REGION", region=source, mode=0, stride_mode=0),
        command("SET_DMA0_SRC", start),
        command("SET_DMA0_DST_REGION", region=destination, mode=0, stride_mode=0),
        command("SET_DMA0_DST", 0),
        command("SET_DMA0_LEN", length),
        command("OP_DMA_START"),
        command("OP_DMA_WAIT", outstanding=0),
        STOP,
    ]
    return encode(commands)


@dataclass(frozen=True)
class Region:
    data: bytes
    writable: bool = True
    shift: int = 0


FROM, TO = Region(bytes(range(1, 33)), writable=False), Region(bytes(32))


@dataclass(frozen=True)
class Run:
    payload: bytes = write_payload(copy(), 128)
    regions: Sequence[Region] = (FROM, TO)
    shift: int = 0


@dataclass(frozen=True)
class Device:
    """A device and what is run on it; if it is silicon, what its registers say."""

    runs: Sequence[Run] = (Run(),)
    machine: Machine = field(default_factory=Machine)
    silicon: bool = False
    cid: int = 0xB105F00D
    identity: int = 0x10060000
    config: int = CONFIGURATIONS[128].config_word
    status_at_end: int = 0x22
    never_resets: bool = False
    memory_bytes: int = SIMULATOR_BYTES
    parameters: tuple[int, ...] | None = None


@dataclass(frozen=True)
class ChildFailed:
    """Fault codes of opening, and for each run of activate, run and deactivate; counters and memory of each run."""

    opened: int
    codes: list[tuple[int, int, int]]
    counters: list[dict[str, int]]
    memory: list[list[bytes]]
    writes: list[tuple[int, int]]


@pytest.fixture(scope="module")
def program(
    compilers: tuple[str, ...], simulator_objects: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("eu_device") / "eu_device"
    sources = [HERE / "eu_device_main.c", CSRC / "eu_driver.c", CSRC / "eu_sim_bus.c"]
    options = [
        *STRICT,
        "-O1",
        "-g",
        "-fsanitize=address,undefined",
        "-DEU_POLL_LIMIT=1000",
        f"-I{CSRC}",
        f"-I{INCLUDE}",
    ]
    command = [compilers[0], *options, *sources, *simulator_objects, "-o", out]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def run(program: Path, *devices: Device) -> list[ChildFailed]:
    given = struct.pack("<I", len(devices))
    for one in devices:
        parameters = make_runtime(one.machine).parameters if one.parameters is None else one.parameters
        given += struct.pack("<3I", one.silicon, len(parameters), one.memory_bytes)
        given += struct.pack(f"<{len(parameters)}q", *parameters)
        given += struct.pack("<5I", one.cid, one.identity, one.config, one.status_at_end, one.never_resets)
        given += struct.pack("<I", len(one.runs))
        for each in one.runs:
            given += struct.pack("<3I", len(each.payload), each.shift, len(each.regions)) + each.payload
            for region in each.regions:
                given += struct.pack("<3I", len(region.data), region.writable, region.shift) + region.data
    done = subprocess.run([program], input=given, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
    ended, out = [], memoryview(done.stdout)

    def take(form: str) -> tuple[int, ...]:
        nonlocal out
        found = struct.unpack_from(form, out)
        out = out[struct.calcsize(form) :]
        return found

    for one in devices:
        [opened] = take("<i")
        codes, counters, memory, writes = [], [], [], []
        if opened == 0:
            for each in one.runs:
                codes.append(take("<3i"))
                counters.append(dict(zip(COUNTERS, take(f"<{len(COUNTERS)}Q"), strict=True)))
                memory.append([struct.pack(f"{len(r.data)}B", *take(f"{len(r.data)}B")) for r in each.regions])
            assert take("<i") == (0,)
        if one.silicon:
            pairs = iter(take(f"<{2 * take('<I')[0]}I"))
            writes = list(zip(pairs, pairs, strict=True))
        ended.append(ChildFailed(opened, codes, counters, memory, writes))
    assert not out
    return ended


def outcome(program: Path, payload: bytes, *regions: Region, **more: object) -> int:
    """The fault code of one run on the simulator, which has run something else before and does afterwards."""
    one = Run(payload, regions or (FROM, TO), **more)
    [ended] = run(program, Device([Run(), one, Run()]))
    assert ended.codes[0] == ended.codes[2] == (0, 0, 0), "the device is usable before and again"
    assert ended.memory[0] == ended.memory[2] and ended.counters[0] == ended.counters[2]
    activated, code, deactivated = ended.codes[1]
    assert (activated, deactivated) == (0, 0)
    return code


def test_a_stream_runs_and_is_counted(program: Path) -> None:
    [ended] = run(program, Device([Run()]))
    assert (ended.opened, ended.codes) == (0, [(0, 0, 0)])
    assert ended.memory == [[FROM.data, FROM.data[:16] + bytes(16)]]
    [counters] = ended.counters
    assert (counters["operations"], counters["dma_bytes"], counters["macs"]) == (1, 16, 0)
    assert counters["cycles"] == counters["dma_cycles"] > 0


def test_constants_are_in_flash_and_all_else_is_in_sram(program: Path) -> None:
    """Whether it may be written or not: arrays of the caller are in SRAM."""
    given = Region(FROM.data), FROM, TO, Region(TO.data)
    runs = [Run(write_payload(copy(source=n, destination=2), 128), given) for n in (0, 1, 3)]
    [ended] = run(program, Device(runs, Machine(flash_latency_cycles=1000)))
    assert [code for _, code, _ in ended.codes] == [0, 0, 0]
    cycles = [one["cycles"] for one in ended.counters]
    assert cycles[0] > 1000 > cycles[1] == cycles[2]


def test_faster_memory_takes_fewer_cycles(program: Path) -> None:
    slow, fast = run(
        program, Device(machine=Machine(flash_bytes_per_cycle=0.5)), Device(machine=Machine(flash_latency_cycles=1))
    )
    assert slow.counters[0]["cycles"] > fast.counters[0]["cycles"]


@pytest.mark.parametrize("macs", sorted(CONFIGURATIONS))
def test_each_size_runs_its_own_streams_and_no_others(program: Path, macs: int) -> None:
    runs = [Run(write_payload(copy(), other)) for other in sorted(CONFIGURATIONS)]
    [ended] = run(program, Device(runs, Machine(macs=macs)))
    assert [code for _, code, _ in ended.codes] == [0 if other == macs else 68 for other in sorted(CONFIGURATIONS)]


def word(at: int, value: int) -> bytes:
    """A payload in which a word is another one."""
    data = Run().payload
    return data[: 4 * at] + struct.pack("<I", value) + data[4 * at + 4 :]


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"", 66),
        (b"COP", 66),
        (Run().payload[:-4], 66),
        (Run().payload[:-2], 66),
        (Run().payload[:12], 66),
        (Run().payload[:16], 66),
        (Run().payload[:4] + Run().payload[16:], 66),
        (Run().payload + Run().payload[STREAM_OFFSET - 4 :], 66),
        (word(0, 0x31504F44), 66),
        (word(0, 0x32504F43), 67),
        (word(4, 6), 66),
        (word(2, 0x1817), 67),
        (word(2, 0x10001807), 68),
        (word(3, 0x20060000), 67),
        (word(3, 0x10160000), 67),
        (word(3, 0x10000000), 0),
    ],
)
def test_payloads_that_are_refused(program: Path, payload: bytes, code: int) -> None:
    assert outcome(program, payload) == code


def test_changed_payloads_end_with_a_fault_or_run(program: Path) -> None:
    chance, runs = random.Random(1), []
    for _ in range(300):
        data = bytearray(Run().payload)
        for _ in range(chance.choice((1, 1, 2, 5))):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        runs.append(Run(bytes(data[: len(data) - chance.choice((0, 0, 0, 4, 8, 9))])))
    [ended] = run(program, Device([*runs, Run()]))
    assert {code for _, code, _ in ended.codes} <= {0, *FAULTS} and ended.codes[-1] == (0, 0, 0)
    assert {66, 67, 68} < {code for _, code, _ in ended.codes}
    assert all(memory[0] == FROM.data for memory in ended.memory), "nobody writes what may only be read"


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        ([0x3FF], 2),
        ([0x00FF0002, *STOP.words], 3),
        ([0x00090006], 5),
        ([0x000A0006], 4),
        (encode([command("OP_CONV")]), 5),
        ([0x4030], 6),
        ([], 7),
        (copy()[:-1], 7),
        (copy(length=48), 8),
        (copy(start=17), 8),
        (copy(source=2), 8),
        (copy(source=1, destination=0), 9),
    ],
)
def test_streams_that_trap(program: Path, stream: list[int], code: int) -> None:
    assert outcome(program, write_payload(stream, 128)) == code


def test_memory_that_the_machine_cannot_be_given(program: Path) -> None:
    payload = Run().payload
    assert outcome(program, payload, *[TO] * 8) == 0
    assert outcome(program, payload, *[TO] * 9) == 69
    assert outcome(program, payload, shift=4) == 70
    odd = FROM, Region(bytes(32), shift=8)
    assert outcome(program, payload, *odd) == 0
    [ended] = run(program, Device([Run(regions=odd)], silicon=True))
    assert ended.codes == [(0, 70, 0)]


def test_counters_add_up_over_a_run_and_begin_anew(program: Path) -> None:
    one, other = run(program, Device([Run()]), Device([Run(), Run(write_payload(copy(32), 128)), Run()]))
    assert [each["dma_bytes"] for each in other.counters] == [16, 32, 16]
    assert other.counters[2] == one.counters[0]


@pytest.mark.parametrize(
    ("device", "code"),
    [
        (Device(silicon=True, identity=0), 64),
        (Device(silicon=True, identity=0xFFFFFFFF), 64),
        (Device(silicon=True, config=CONFIGURATIONS[64].config_word), 65),
        (Device(silicon=True, config=0x10001807), 65),
        (Device(parameters=(128,)), 65),
        (Device(silicon=True, parameters=()), 65),
        (Device(memory_bytes=1000), 78),
        (Device(silicon=True, never_resets=True), 72),
    ],
)
def test_devices_that_do_not_open(program: Path, device: Device, code: int) -> None:
    [ended] = run(program, device)
    assert ended.opened == code


@pytest.mark.parametrize(
    ("status", "code"), [(0x22, 0), (0x26, 73), (0x12, 74), (0x82, 75), (0x102, 76), (0x02, 77), (0x01, 71)]
)
def test_what_silicon_says(program: Path, status: int, code: int) -> None:
    [ended] = run(program, Device([Run(), Run()], silicon=True, status_at_end=status))
    assert ended.codes == [(0, code, 0)] * 2
    assert all(each["cycles"] == 1 << 32 | 77 and each["mac_cycles"] == 55 for each in ended.counters)
    assert all(each["macs"] == 0 for each in ended.counters)
    running = [value for offset, value in ended.writes if offset == 0x8 and value & 0x10]
    assert len(running) == (2 if status & 1 else 0), "what is running still is stopped"


def test_silicon_is_driven_by_its_own_registers(program: Path) -> None:
    """In the order of the public driver: reset, ports, counters; addresses, sizes, then the command."""
    [ended] = run(program, Device(silicon=True))
    assert {offset for offset, _ in ended.writes} <= set(range(0, 0x1000, 4)), "none of the simulator's"
    start = max(n for n, (offset, _) in enumerate(ended.writes) if offset == 0xC)
    assert ended.writes[start:] == [
        (0x00C, 0),
        (0x008, 0),
        (0x01C, 3),
        *((0x040 + 4 * n, 0x0F1F0000) for n in range(4)),
        (0x380, 0x30),
        (0x1A8, 0),
        (0x184, 0x80000001),
        (0x180, 7),
        *((0x080 + 4 * n, 0x1000 if n in (0, 2) else 0) for n in range(16)),
        (0x03C, 0b0101_0101_0101_0111),
        (0x010, 0x1000),
        (0x014, 0),
        (0x020, 4 * len(copy())),
        (0x008, 1),
        (0x008, 2),
        (0x008, 0xC),
        (0x008, 0xC),
    ]


def test_faults_and_counters_are_those_of_the_c_sources() -> None:
    enum = re.search(r"typedef enum eu_fault \{(.*?)\}", (CSRC / "eu_sim.h").read_text(encoding="utf-8"), re.DOTALL)
    names = re.findall(r"^\s+(EU_\w+)", enum[1], re.MULTILINE)
    assert names[0] == "EU_FAULT_NONE" and names[-1] == "EU_N_FAULTS"
    registers = (CSRC / "eu_regs.h").read_text(encoding="utf-8")
    driver = [int(code) for code in re.findall(r"#define EU_FAULT_\w+ (\d+)", registers)]
    assert list(FAULTS) == [*range(1, len(names) - 1), *driver]
    counters = re.findall(r"^\s+EU_COUNT_(\w+)", registers, re.MULTILINE)
    assert tuple(name.lower() for name in counters) == COUNTERS


def test_a_payload_is_shown() -> None:
    assert describe_payload(Run().payload)[:2] == [
        (STREAM_OFFSET, "SET_DMA0_SRC_REGION region=0 mode=external stride_mode=1d"),
        (STREAM_OFFSET + 4, "SET_DMA0_SRC 0x0"),
    ]


@pytest.mark.soak
def test_the_other_compiler_takes_it_without_a_warning(compilers: tuple[str, ...], tmp_path: Path) -> None:
    for compiler in compilers[1:]:
        sources = [CSRC / "eu_driver.c", CSRC / "eu_sim_bus.c"]
        command = [compiler, *STRICT, "-O1", f"-I{CSRC}", f"-I{INCLUDE}", "-c", *sources]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
