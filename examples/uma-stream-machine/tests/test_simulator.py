"""The simulator and the driver: their own tests in C, and streams of random commands against what commands mean."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uma.errors import PluginError
from uma.relay.fixed_point import scale_integer
from uma_stream_machine.commands import BY_NAME, COMMANDS, ROUNDINGS, WEIGHT_MEMORY, Command, command
from uma_stream_machine.cost import bytes_moved, stream_cycles
from uma_stream_machine.packing import pack
from uma_stream_machine.reference import execute

Compile = Callable[..., Path]


def clean(*command: Any) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("compiler", ["gcc", pytest.param("clang", marks=pytest.mark.soak)])
def test_commands_traps_and_broken_devices(
    compiler: str, compilers: tuple[str, ...], tmp_path: Path, compile_simulator: Compile
) -> None:
    if compiler not in compilers:
        pytest.skip(f"{compiler} is not on PATH")
    clean(compile_simulator(compiler, tmp_path, "-fsanitize=address,undefined"))


def test_devices_in_threads_of_their_own(
    compilers: tuple[str, ...], tmp_path: Path, compile_simulator: Compile
) -> None:
    clean(compile_simulator(compilers[0], tmp_path, "-fsanitize=thread"), "threads")


def cases(rounding: str, count: int) -> list[tuple[int, int, int]]:
    """Sums, multipliers and shifts whose results are near -128 .. 127, and near the middle between two of them."""
    rng, found = random.Random(rounding), [(-(2**31), 2**31 - 1, 30)]
    while len(found) < count:
        shift = rng.randint(-31, 30)
        multiplier = rng.choice((0, 1, 2**30, 2**31 - 1, rng.randrange(2**31), rng.randrange(2**30, 2**31)))
        x = rng.randint(-260, 260) * 2 ** (30 - shift) // (multiplier or 1) + rng.randint(-2, 2)
        found.append((min(max(x, -(2**31)), 2**31 - 1), multiplier, shift))
    return found


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_it_scales_as_the_core_does(machine: Any, rounding: str) -> None:
    """A dense layer whose sums are its biases."""
    given = cases(rounding, 2000)
    weights = b"".join(pack(np.zeros((1, len(given)), np.int8), *map(list, zip(*given, strict=True))))
    load = {"to_base": WEIGHT_MEMORY, "to": 0, "from_base": 0, "from": 0, "bytes": len(weights)}
    layer = {"rows": 1, "depth": 1, "out_channels": len(given), "out_pixel": len(given), "weights": 0}
    layer |= {"rounding": ROUNDINGS.index(rounding), "weight_bytes": len(weights), "low": -128, "high": 127}
    layer |= {"input_zero_point": 0, "output_zero_point": 0, "input": 0, "output_base": 1, "output": 0}
    commands = [command("dma", **load), command("wait", dma=0, compute=255), command("dense", **layer), command("end")]
    regions = [np.frombuffer(weights, np.uint8), np.zeros(len(given), np.uint8)]
    stream = b"".join(one.encode() for one in commands)
    ended = machine.run(stream, regions, [False, True])
    assert ended.fault == 0
    expected = [min(max(scale_integer(*case, rounding), -128), 127) for case in given]
    assert ended.regions[1].view(np.int8).tolist() == expected
    execute(stream, regions, 65536)
    assert regions[1].view(np.int8).tolist() == expected


@pytest.mark.parametrize(
    ("changes", "fault", "what"),
    [
        ({"from_base": 2}, 3, "there is no region 2"),
        ({"from": 60}, 3, "bytes 60 to 68 of 64 are not there"),
        ({"to": 9}, 3, "bytes 9 to 17 of 16 are not there"),
        ({"to_base": WEIGHT_MEMORY, "to": 65532}, 5, "bytes 65532 to 65540 of 65536 are not there"),
    ],
)
def test_both_stop_at_memory_that_is_not_there(machine: Any, changes: dict[str, int], fault: int, what: str) -> None:
    copy = {"to_base": 1, "to": 0, "from_base": 0, "from": 0, "bytes": 8}
    wait = command("wait", dma=255, compute=255).encode()
    stream = wait + command("dma", **{**copy, **changes}).encode() + command("end").encode()
    regions = [np.ones(64, np.uint8), np.zeros(16, np.uint8)]
    ended = machine.run(stream, regions, [False, True])
    assert (ended.fault, ended.at) == (fault, len(wait))
    with pytest.raises(PluginError) as caught:
        execute(stream, regions, 65536)
    assert caught.value.what == what
    assert caught.value.where == f"byte {len(wait)} of the stream, command 'dma'"
    assert not ended.regions[1].any() and not regions[1].any()


def test_a_residual_and_its_results_may_be_one(machine: Any) -> None:
    """Number by number, in blocks of channels beside each other: sums of 0, a bias for each channel."""
    biases = list(range(-5, 6))
    weights = b"".join(pack(np.zeros((1, 11), np.int8), biases, [2**30] * 11, [1] * 11))
    load = {"to_base": WEIGHT_MEMORY, "to": 0, "from_base": 0, "from": 0, "bytes": len(weights)}
    layer = {"rows": 3, "depth": 1, "out_channels": 11, "out_pixel": 13, "weights": 0, "weight_bytes": len(weights)}
    layer |= {"rounding": 0, "low": -128, "high": 127, "input_zero_point": 0, "output_zero_point": 0, "input": 0}
    layer |= {"output_base": 1, "output": 2, "residual_base": 1, "residual": 2, "residual_factor": -2}
    commands = [command("dma", **load), command("wait", dma=0, compute=255), command("dense_residual", **layer)]
    stream = b"".join(one.encode() for one in [*commands, command("end")])
    given = np.random.default_rng(0).integers(-50, 50, 41).astype(np.int8)
    expected = given.copy()
    for row in range(3):
        part = slice(2 + 13 * row, 2 + 13 * row + 11)
        expected[part] = -2 * given[part] + np.array(biases)
    regions = [np.frombuffer(weights, np.uint8), given.view(np.uint8).copy()]
    ended = machine.run(stream, regions, [False, True])
    assert ended.fault == 0
    assert ended.regions[1].view(np.int8).tolist() == expected.tolist()
    execute(stream, regions, 65536)
    assert regions[1].view(np.int8).tolist() == expected.tolist()


class Writer:
    """Draws a stream: it reads from region 0, and writes into region 1, where every result has a place of its own."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.written = 0
        self.regions = [bytearray(), bytearray()]
        self.commands: list[Command] = []

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def bytes(self, count: int) -> int:
        """Random bytes in region 0, and where they are."""
        self.regions[0] += bytes(self.integer(0, 3))
        at = len(self.regions[0])
        self.regions[0] += np.random.default_rng(self.integer(0, 2**32)).bytes(count)
        return at

    def place(self, one: dict[str, int], name: str) -> Command:
        """The command with addresses for its operands."""
        for operand in ("input", "residual", "left", "right"):
            if operand in {address.name for address in BY_NAME[name].addresses}:
                one |= {operand: 0, f"{operand}_base": 0}
        size = command(name, **one, output=0).extents
        for operand, extent in size.items():
            if operand != "output":
                one[operand] = self.bytes(extent)
        self.written += self.integer(0, 5)
        made = command(name, **one, output=self.written, output_base=1)
        self.written += size["output"]
        return made

    def limits(self) -> dict[str, int]:
        low, high = sorted((self.integer(-128, 127), self.integer(-128, 127)))
        return {"low": low, "high": high}

    def zero_points(self, *names: str) -> dict[str, int]:
        return {f"{name}_zero_point": self.integer(-128, 127) for name in names}

    def window(self) -> dict[str, int]:
        one = {}
        for size, stride, pad in (("height", "y", "top"), ("width", "x", "left")):
            kernel, step, before = self.integer(1, 4), self.integer(1, 3), self.integer(0, 2)
            given, after = self.integer(max(1, kernel - before), 7), self.integer(0, 2)
            one |= {f"kernel_{size}": kernel, f"stride_{stride}": step, f"pad_{pad}": before, f"in_{size}": given}
            one[f"out_{size}"] = (given + before + after - kernel) // step + 1
        return one

    def weights(self, rows: int, channels: int) -> dict[str, int]:
        """Loads weights to a place in the weight memory; the fields that name them."""
        rng = np.random.default_rng(self.integer(0, 2**32))
        bits = self.integer(1, 8)
        values = rng.integers(-(1 << (bits - 1)), 1 << (bits - 1), (rows, channels)).astype(np.int8)
        numbers = (rng.integers(low, high, channels).tolist() for low, high in ((-3000, 3000), (0, 2**31), (-12, -3)))
        data = b"".join(pack(values, *numbers))
        at = len(self.regions[0])
        self.regions[0] += data
        to = 16 * self.integer(0, 8)
        load = {"to_base": WEIGHT_MEMORY, "to": to, "from": at, "bytes": len(data)}
        self.commands += [command("wait", dma=255, compute=0), command("dma", **load)]
        self.commands.append(command("wait", dma=0, compute=255))
        return {"weights": to, "weight_bytes": len(data)}

    def layer(self, name: str) -> None:
        channels, out_channels = self.integer(1, 9), self.integer(1, 17)
        more = {"rounding": self.integer(0, 2), **self.zero_points("input", "output"), **self.limits()}
        more |= {"out_channels": out_channels, "out_pixel": out_channels + self.integer(0, 3)}
        rows, core = channels, BY_NAME[name].core
        if name != core:
            more["residual_factor"] = self.draw(st.one_of(st.integers(-300, 300), st.sampled_from([-(2**23), 2**23])))
        if core == "dense":
            more |= {"rows": self.integer(1, 5), "depth": channels}
        else:
            more |= self.window()
            taps = more["kernel_height"] * more["kernel_width"]
            rows = taps if core == "depthwise" else taps * channels
            channels = out_channels if core == "depthwise" else channels
            more["in_pixel"] = channels + self.integer(0, 3)
        more |= {"channels": channels} if core == "conv" else {}
        more |= self.weights(rows, out_channels)
        self.commands.append(self.place(more, name))

    def pool(self, name: str) -> None:
        one = {**self.window(), "channels": self.integer(1, 9), **self.limits()}
        for size, pad in (("height", "top"), ("width", "left")):
            # No window lies in the padding alone.
            one[f"pad_{pad}"] = min(one[f"pad_{pad}"], one[f"kernel_{size}"] - 1)
            step = one["stride_y" if size == "height" else "stride_x"]
            one[f"out_{size}"] = min(one[f"out_{size}"], (one[f"in_{size}"] - 1 + one[f"pad_{pad}"]) // step + 1)
        self.commands.append(self.place(one, name))

    def add(self) -> None:
        one = {"count": self.integer(1, 40), "headroom": self.integer(0, 20), **self.limits()}
        one |= self.zero_points("left", "right", "sum")
        for name, most in (("left", 0), ("right", 0), ("sum", 30)):
            one |= {f"{name}_multiplier": self.integer(0, 2**31 - 1), f"{name}_shift": self.integer(-31, most)}
        self.commands.append(self.place(one, "add"))


@st.composite
def writers(draw: st.DrawFn) -> Writer:
    writer = Writer(draw)
    for name in draw(st.lists(st.sampled_from([kind.name for kind in COMMANDS if kind.engine == "compute"]))):
        if name == "add":
            writer.add()
        else:
            (writer.pool if name.endswith("pool") else writer.layer)(name)
    writer.commands.append(command("end"))
    writer.regions[1] += np.random.default_rng(draw(st.integers(0, 99))).bytes(writer.written + 1)
    writer.regions[0] += b"\0"
    return writer


@given(writers())
def test_commands_do_what_they_mean(machine: Any, writer: Writer) -> None:
    stream = b"".join(one.encode() for one in writer.commands)
    regions = [np.frombuffer(bytes(region), np.uint8) for region in writer.regions]
    ended = machine.run(stream, regions, [False, True], 8192)
    assert (ended.fault, ended.at) == (0, 0)
    expected = [region.copy() for region in regions]
    execute(stream, expected, 8192)
    for made, wanted in zip(ended.regions, expected, strict=True):
        np.testing.assert_array_equal(made, wanted)
    # What is estimated is what is counted.
    assert ended.counters["cycles"] == stream_cycles(writer.commands)
    assert ended.counters["bytes_read"] + ended.counters["bytes_written"] == bytes_moved(writer.commands)
    assert ended.counters["commands"] == len(writer.commands)
