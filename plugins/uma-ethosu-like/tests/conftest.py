"""The simulator as a program, and Vela as a function: streams go in, what became of them comes out."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uma_ethosu_like.vela
from uma_ethosu_like.commands import command, decode, encode
from uma_ethosu_like.network_file import read_job

HERE = Path(__file__).parent
CSRC = Path(uma_ethosu_like.__file__).parent / "csrc"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-g", "-fno-sanitize-recover=all")
SOURCES = ("sim", "op", "ops", "elementwise", "hazards", "cycles", "weights")

FAULTS = (
    *("none", "configuration", "command", "reserved", "value", "unset", "cut", "no stop", "address", "read only"),
    *("misaligned", "shape", "block", "weights", "table", "kernel hazard", "copy hazard", "unsupported", "work"),
)
"""As the enum `eu_fault`."""

HAZARDS = {
    "OP_DMA_WAIT": "copy hazard",
    **dict.fromkeys(("OP_KERNEL_WAIT", "OP_KERNEL_WAIT 1", "BLOCKDEP 0", "BLOCKDEP 1", "BLOCKDEP 2"), "kernel hazard"),
}
"""What a stream ends with that lacks a wait of this kind."""

KINDS = ("conv", "depthwise", "pool", "elementwise", "dma")
HEADER, RESULT, RECORD = struct.Struct("<i3I9QI4iI"), struct.Struct("<iIiIQ5Q5I4x2QQ2I"), struct.Struct("<2I3Q")
SPEEDS = (128, 32, 16, 64)
"""Bytes in 16 cycles and latency in cycles of SRAM, and of flash."""


@pytest.fixture
def hold_page(request: pytest.FixtureRequest) -> Callable[[Path, str, str], None]:
    """Holds what a page has between the marks of a name to a text; with ``--update-golden`` writes it there."""

    def hold(page: Path, name: str, text: str) -> None:
        before, begin, rest = page.read_text(encoding="utf-8").partition(
            f"<!-- {name}: made by {request.path.name} -->\n"
        )
        found, end, after = rest.partition(f"\n<!-- end of {name} -->")
        assert begin and end, f"{page.name} has no marks of {name}"
        if request.config.getoption("--update-golden"):
            page.write_text(f"{before}{begin}{text}{end}{after}", encoding="utf-8")
            return
        assert found == text, f"if that is right: pytest --update-golden {request.node.nodeid}, then read `git diff`"

    return hold


@dataclass(frozen=True)
class Case:
    """A stream and its memory: what is in `writable` goes back out."""

    macs: int
    words: Sequence[int]
    regions: Mapping[int, bytes]
    writable: frozenset[int] = frozenset()
    flash: frozenset[int] = frozenset()
    records: int = 0
    work_limit: int = 0
    speeds: tuple[int, ...] = SPEEDS

    def packed(self) -> bytes:
        sizes = [len(self.regions.get(number, b"")) for number in range(8)]
        flash, writable = (sum(1 << one for one in regions) for regions in (self.flash, self.writable))
        head = (self.macs, flash, len(self.words), self.records, self.work_limit, *sizes, writable, *self.speeds, 0)
        data = b"".join(self.regions.get(number, b"") for number in range(8))
        return HEADER.pack(*head) + np.asarray(self.words, "<u4").tobytes() + data


@dataclass(frozen=True)
class ChildFailed:
    """How a stream ended."""

    fault: str
    word: int
    slot: int
    other: int
    cycles: int
    kind_cycles: Mapping[str, int]
    kind_count: Mapping[str, int]
    macs: int
    dma_bytes: int
    records: Sequence[tuple[int, ...]]  # word, kind, start, cycles, macs
    regions: Mapping[int, bytes] = field(repr=False)


@dataclass(frozen=True)
class Npu:
    """The compiled simulator."""

    program: Path
    faults: tuple[str, ...] = FAULTS
    hazards: Mapping[str, str] = field(default_factory=lambda: HAZARDS)

    @staticmethod
    def case(**fields: Any) -> Case:
        """See `Case`."""
        return Case(**fields)

    @staticmethod
    def weakened(words: Sequence[int]) -> list[tuple[str, list[int]]]:
        """A stream with one wait less, or one that waits for less, for each: of which kind of `HAZARDS` it is."""
        found: list[tuple[str, list[int]]] = []
        dependency = 0
        for at, one in decode(words):
            before, same, behind = words[:at], words[at : at + one.type.words], words[at + one.type.words :]
            if one.type.name == "SET_BLOCKDEP":
                dependency = one["value"]
            elif one.type.name in ("OP_DMA_WAIT", "OP_KERNEL_WAIT"):
                found.append((one.type.name, [*before, *behind]))
                if one.type.name == "OP_KERNEL_WAIT" and one["outstanding"] == 0:
                    less = encode([command("OP_KERNEL_WAIT", outstanding=1)])
                    found.append(("OP_KERNEL_WAIT 1", [*before, *less, *behind]))
            elif one.type.name in ("OP_CONV", "OP_DEPTHWISE", "OP_POOL", "OP_ELEMENTWISE") and dependency < 3:
                less, again = (encode([command("SET_BLOCKDEP", value)]) for value in (dependency + 1, dependency))
                found.append((f"BLOCKDEP {dependency}", [*before, *less, *same, *again, *behind]))
        return found

    def run(self, *cases: Case) -> list[ChildFailed]:
        """Runs each."""
        out = self._call(b"".join(one.packed() for one in cases))
        ended, at = [], 0
        for case in cases:
            values = RESULT.unpack_from(out, at)
            at += RESULT.size
            fault, word, slot, other, cycles, *rest = values
            count = min(rest[14], case.records)
            records = [RECORD.unpack_from(out, at + number * RECORD.size) for number in range(count)]
            at += case.records * RECORD.size
            regions = {}
            for number in sorted(case.writable):
                regions[number] = out[at : at + len(case.regions[number])]
                at += len(regions[number])
            kinds = dict(zip(KINDS, rest[:5], strict=True)), dict(zip(KINDS, rest[5:10], strict=True))
            ended.append(ChildFailed(FAULTS[fault], word, slot, other, cycles, *kinds, *rest[10:12], records, regions))
        assert at == len(out)
        return ended

    def fuzz(self, case: Case, seed: int, times: int) -> dict[str, int]:
        """Runs a stream so often, changed each time, and gives how often each fault ended it."""
        counts = struct.unpack(f"<{len(FAULTS)}I", self._call(case.packed(), "fuzz", str(seed), str(times)))
        return dict(zip(FAULTS, counts, strict=True))

    def _call(self, data: bytes, *arguments: str) -> bytes:
        done = subprocess.run([self.program, *arguments], input=data, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
        return done.stdout


def compiled(compiler: str, folder: Path, *flags: str) -> Npu:
    """The test program, with the simulator."""
    program = folder / f"eu_sim_{compiler}"
    sources = [str(CSRC / f"eu_{name}.c") for name in SOURCES]
    command = [compiler, *STRICT, *flags, f"-I{CSRC}", str(HERE / "eu_sim_main.c"), *sources, "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Npu(program)


@pytest.fixture(scope="session")
def compile_npu() -> Callable[..., Npu]:
    """`compiled`."""
    return compiled


@pytest.fixture(scope="session")
def npu(compilers: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Npu:
    """The simulator, with sanitizers that look for undefined behaviour and foreign memory."""
    return compiled(compilers[0], tmp_path_factory.mktemp("ethos_u"), "-fsanitize=address,undefined")


@pytest.fixture(scope="session")
def simulator_objects(compilers: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The simulator without sanitizers, for programs that are about something else: that compiles in less time."""
    folder = tmp_path_factory.mktemp("ethos_u_objects")
    command = [compilers[0], "-std=c99", "-O0", "-fPIC", "-c", *(str(CSRC / f"eu_{name}.c") for name in SOURCES)]
    subprocess.run(command, cwd=folder, check=True)
    return [folder / f"eu_{name}.o" for name in SOURCES]


@dataclass(frozen=True)
class Compiled:
    """What Vela made of a model: a stream, constants, and where inputs and outputs lie (region, offset, bytes)."""

    macs: int
    words: Sequence[int]
    regions: Mapping[int, bytes]
    writable: frozenset[int]
    flash: frozenset[int]
    inputs: Sequence[tuple[int, int, int]]
    outputs: Sequence[tuple[int, int, int]]
    cycles: int  # Vela's own estimate

    def case(self, *inputs: np.ndarray, words: Sequence[int] | None = None, **options: Any) -> Case:
        """A run with these inputs; memory is full of what no one wrote."""
        regions = dict(self.regions)
        for (region, offset, size), array in zip(self.inputs, inputs, strict=True):
            data = np.ascontiguousarray(array).tobytes()
            assert len(data) == size
            regions[region] = regions[region][:offset] + data + regions[region][offset + size :]
        stream = self.words if words is None else words
        return Case(self.macs, stream, regions, self.writable, self.flash, **options)

    def results(self, ended: ChildFailed) -> list[bytes]:
        """The outputs of a run."""
        return [ended.regions[region][offset : offset + size] for region, offset, size in self.outputs]


class VelaRefused(Exception):
    """Vela left something of a model to a CPU, or failed."""


COMPILE = """
import contextlib, json, sys, traceback
from ethosu.vela import vela
for arguments in json.load(sys.stdin):
    with contextlib.suppress(SystemExit):
        try:
            vela.main(arguments)
        except Exception:  # whatever it is: the others are still to be compiled, and this one leaves no file
            traceback.print_exc()
"""


@dataclass(frozen=True)
class Vela:
    """Vela, as a program."""

    folder: Path

    def __call__(self, model: bytes, macs: int, *options: str) -> Compiled:
        """What Vela makes of a TFLite model.

        Raises:
            VelaRefused: not all of it runs on the NPU.
        """
        [compiled] = self.many([(model, macs, *options)])
        if compiled is None:
            raise VelaRefused
        return compiled

    def many(self, models: Sequence[tuple[Any, ...]]) -> list[Compiled | None]:
        """What it makes of each (model, macs, option, ...), in one process; None of what it refuses."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        commands = []
        for number, (model, macs, *options) in enumerate(models):
            here = folder / str(number)
            here.mkdir()
            (here / "model.tflite").write_bytes(model)
            command = ["--accelerator-config", f"ethos-u55-{macs}", "--output-format", "raw", "--output-dir", str(here)]
            commands.append([*command, *options, str(here / "model.tflite")])
        program = [sys.executable, "-c", COMPILE]
        done = subprocess.run(program, input=json.dumps(commands), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [self._read(folder / str(number), macs) for number, (_, macs, *_) in enumerate(models)]

    @staticmethod
    def _read(folder: Path, macs: int) -> Compiled | None:
        if not (found := list(folder.glob("*_vela*.npz"))):
            return None
        [summary] = folder.glob("*_summary_*.csv")
        names, values = (line.split(",") for line in summary.read_text("utf-8").splitlines()[:2])
        job = read_job(found[0])
        regions = {number: one.data or b"\xaa" * one.nbytes for number, one in job.regions.items()}
        flash = frozenset(number for number, one in job.regions.items() if one.data is not None)
        places = [[(one.region, one.offset, one.nbytes) for one in row] for row in (job.inputs, job.outputs)]
        cycles = int(dict(zip(names, values, strict=True))["cycles_total"])
        return Compiled(macs, job.payload.words, regions, frozenset({*regions} - flash), flash, *places, cycles)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a program in the place of Vela, which is installed: a script, whose argument is the folder for what it
    writes.
    """
    real = subprocess.run

    def put(script: str) -> None:
        def run(command: list[str], **options: Any) -> Any:
            if "ethosu.vela" not in command:
                return real(command, **options)
            out = command[command.index("--output-dir") + 1]
            return real([sys.executable, "-S", "-c", script, out], **options)

        monkeypatch.setattr(uma_ethosu_like.vela.subprocess, "run", run)
        monkeypatch.setattr(uma_ethosu_like.vela, "version", lambda name: "5.2.0")

    return put


@pytest.fixture(scope="session")
def vela(tmp_path_factory: pytest.TempPathFactory) -> Vela:
    """Arm's compiler, where it is installed."""
    if find_spec("ethosu") is None:
        pytest.skip("Vela is not installed: pip install 'uma-ethosu-like[vela]'")
    return Vela(tmp_path_factory.mktemp("vela"))


@pytest.fixture(scope="session")
def vela_refused() -> type[VelaRefused]:
    """`VelaRefused`."""
    return VelaRefused
