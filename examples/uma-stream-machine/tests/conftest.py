"""The simulator as a program: streams and regions go in, what became of them comes out."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import uma
import uma_stream_machine
from uma.hookspecs import Extern

HERE = Path(__file__).parent
CSRC = Path(uma_stream_machine.__file__).parent / "csrc"
INCLUDE = Path(uma.__file__).parent / "runtime" / "csrc"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-g", "-fno-sanitize-recover=all", "-pthread")
LEVEL = "-O1" if os.environ.get("UMA_SOAK") == "1" else "-O0"
"""With sanitizers, `-O1` takes a compiler four times as long."""


@dataclass(frozen=True)
class ChildFailed:
    """How a stream ended: fault code and its place in the stream, counters by name, and what the regions hold."""

    fault: int
    at: int
    counters: Mapping[str, int]
    regions: Sequence[np.ndarray]


@dataclass(frozen=True)
class Layout:
    """An extern whose memory has addresses: where each symbol is (region, offset), and the stream that says so."""

    places: Mapping[str, tuple[int, int]]
    stream: bytes
    regions: Sequence[np.ndarray]
    writable: Sequence[bool]


@dataclass(frozen=True)
class Machine:
    """A compiled simulator."""

    program: Path

    def run(
        self, stream: bytes, regions: Sequence[np.ndarray], writable: Sequence[bool], weight_bytes: int = 65536
    ) -> ChildFailed:
        """Runs a stream on regions of memory."""
        head = struct.pack("<III", weight_bytes, len(stream), len(regions))
        shapes = [struct.pack("<II", r.size, w) for r, w in zip(regions, writable, strict=True)]
        given = b"".join([head, *shapes, stream, *(region.tobytes() for region in regions)])
        done = subprocess.run([self.program, "run"], input=given, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
        names = uma_stream_machine.COUNTERS
        fault, at, *counts = struct.unpack_from(f"<iI{len(names)}Q", done.stdout)
        start, left = struct.calcsize(f"<iI{len(names)}Q"), []
        for region in regions:
            left.append(np.frombuffer(done.stdout, np.uint8, region.size, start))
            start += region.size
        return ChildFailed(fault, at, dict(zip(names, counts, strict=True)), left)


def compiled(compiler: str, folder: Path, *flags: str) -> Path:
    """The test program, compiled with the simulator and the driver."""
    program = folder / f"simulator_{compiler}"
    sources = [HERE / "simulator.c", *sorted(CSRC.glob("*.c"))]
    command = [compiler, *STRICT, LEVEL, *flags, f"-I{CSRC}", f"-I{INCLUDE}", *map(str, sources), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


@pytest.fixture(scope="session")
def machine(compilers: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """The simulator, with sanitizers that look for undefined behaviour."""
    return Machine(compiled(compilers[0], tmp_path_factory.mktemp("machine"), "-O1", "-fsanitize=undefined"))


@pytest.fixture(scope="session")
def compile_simulator() -> Callable[..., Path]:
    """`compiled`."""
    return compiled


def lay_out(extern: Extern, inputs: Sequence[np.ndarray], seed: int = 0) -> Layout:
    """Gives an extern's memory addresses, at random, and fills them in, as the core does: region 0 holds the blobs,
    region 1 workspaces, each input and output is a region of its own.
    """
    rng = np.random.default_rng(seed)
    memory, places = [bytearray(), bytearray()], {}
    writable = [False, True]
    for blob in extern.blobs:
        memory[0] += bytes(int(rng.integers(4)) * 16)
        places[blob.name] = (0, len(memory[0]))
        memory[0] += blob.data + bytes(-len(blob.data) % 16)
    given = iter(inputs)
    for param in extern.params:
        name, size = param.buffer.name, param.buffer.nbytes
        if param.role == "workspace":
            memory[1] += rng.bytes(int(rng.integers(1, 4)) * 16)
            places[name] = (1, len(memory[1]))
            memory[1] += rng.bytes(size + 16)
        else:
            places[name] = (len(memory), 0)
            memory.append(bytearray(next(given).tobytes() if param.role == "input" else rng.bytes(size)))
            writable.append(param.role == "output")
    (blob,) = (blob for blob in extern.blobs if blob.name == "stream")
    stream = bytearray(blob.data)
    for one in blob.relocations:
        base, offset = places[one.symbol]
        if one.value == "base":
            stream[one.at] = base
        else:
            stream[one.at : one.at + 4] = (offset + one.addend).to_bytes(4, "little")
    regions = [np.frombuffer(bytes(region), np.uint8) for region in memory]
    return Layout(places, bytes(stream), regions, writable)


@pytest.fixture(scope="session")
def laid_out() -> Callable[..., Layout]:
    """`lay_out`."""
    return lay_out
