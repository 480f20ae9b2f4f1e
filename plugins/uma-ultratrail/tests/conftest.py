"""The simulators as a program: networks and maps go in, what became of them comes out."""

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
import uma_ultratrail
from uma_ultratrail.device import COUNTERS, LAYER_COUNTERS, make_runtime
from uma_ultratrail.image import Image
from uma_ultratrail.machine import MAX_LAYERS, Machine
from uma_ultratrail.packing import bias_words, weight_words
from uma_ultratrail.reference import Step

HERE = Path(__file__).parent
CSRC = Path(uma_ultratrail.__file__).parent / "csrc"
INCLUDE = Path(uma.__file__).parent / "runtime" / "csrc"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-g", "-fno-sanitize-recover=all")
LEVEL = "-O1" if os.environ.get("UMA_SOAK") == "1" else "-O0"
"""With sanitizers, `-O1` takes a compiler four times as long."""

NAMES = (
    *COUNTERS,
    *(f"layer{layer}_{name}" for layer in range(MAX_LAYERS) for name in LAYER_COUNTERS),
    "fault_layer",
    "fault_cycle",
)
"""What the driver counts, by index, and where it found a fault."""


@dataclass(frozen=True)
class Case:
    """One start: the maps of its loads, in order, and whether the functional simulator is alone."""

    machine: Machine
    image: Image
    maps: Sequence[np.ndarray]
    functional: bool = False


@dataclass(frozen=True)
class ChildFailed:
    """How it ended: fault code, counters by name, the maps of its stores in order."""

    fault: int
    counters: Mapping[str, int]
    maps: Sequence[np.ndarray]


@dataclass(frozen=True)
class Simulators:
    """A compiled program with driver and simulators."""

    program: Path

    @staticmethod
    def case(machine: Machine, image: Image, maps: Sequence[np.ndarray], functional: bool = False) -> Case:
        """See `Case`."""
        return Case(machine, image, maps, functional)

    def run(self, cases: Sequence[Case]) -> list[ChildFailed]:
        """Runs each case on a device of its own."""
        sizes, given = [], b""
        for case in cases:
            runtime = make_runtime(case.machine)
            network, offsets = placed(case.image)
            loaded = b"".join(np.asarray(one, np.int8).tobytes() for one in case.maps)
            stored = sum(one.frames * one.channels for one in case.image.stores)
            sizes.append((len(loaded), offsets))
            head = (runtime.implementations["sim"].state_bytes, len(network), len(loaded) + stored, case.functional)
            given += struct.pack("<9q4I", *runtime.parameters, *head) + network + loaded + b"\x55" * stored
        done = subprocess.run([self.program, "run"], input=given, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
        results, at = [], 0
        for case, (loaded_bytes, offsets) in zip(cases, sizes, strict=True):
            fault, *counts = struct.unpack_from(f"<i{len(NAMES)}Q", done.stdout, at)
            at += 4 + 8 * len(NAMES)
            maps = []
            for one, offset in zip(case.image.stores, offsets[len(case.image.loads) :], strict=True):
                data = np.frombuffer(done.stdout, np.int8, one.frames * one.channels, at + offset)
                maps.append(data.reshape(one.frames, one.channels))
            at += loaded_bytes + sum(one.size for one in maps)
            results.append(ChildFailed(fault, dict(zip(NAMES, counts, strict=True)), maps))
        assert at == len(done.stdout)
        return results


def placed(image: Image) -> tuple[bytes, list[int]]:
    """The network with its maps one behind the other in region 0, and their offsets there."""
    offsets, end = [], 0
    for one in (*image.loads, *image.stores):
        offsets.append(end)
        end += one.frames * one.channels
    data = bytearray(image.blob().data)
    places = len(data) - 8 * len(offsets)
    for number, offset in enumerate(offsets):
        struct.pack_into("<2I", data, places + 8 * number, offset, 0)
    return bytes(data), offsets


def image_of(machine: Machine, steps: Sequence[Step], loads: Sequence, stores: Sequence) -> Image:
    """The image of steps of the reference."""
    layers = [(one.layer, f"layer{number}") for number, one in enumerate(steps)]
    weights = b"".join(weight_words(one.weights, machine) for one in steps)
    biases = b"".join(bias_words(one.bias, machine) for one in steps if one.bias is not None)
    return Image(layers, weights, biases, loads, stores)


def compiled(compiler: str, folder: Path, *flags: str) -> Path:
    """The test program, compiled with driver and simulators."""
    program = folder / f"ut_tests_{compiler}"
    sources = [*sorted(HERE.glob("*.c")), *sorted(CSRC.glob("*.c"))]
    command = [compiler, *STRICT, LEVEL, *flags, f"-I{CSRC}", f"-I{INCLUDE}", *map(str, sources), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


@pytest.fixture(scope="session")
def simulators(compilers: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Simulators:
    """Both simulators, with sanitizers that look for undefined behaviour and foreign memory."""
    folder = tmp_path_factory.mktemp("ultra_trail")
    return Simulators(compiled(compilers[0], folder, "-fsanitize=address,undefined"))


@pytest.fixture(scope="session")
def compile_simulators() -> Callable[..., Path]:
    """`compiled`."""
    return compiled


@pytest.fixture(scope="session")
def make_image() -> Callable[..., Image]:
    """`image_of`."""
    return image_of
