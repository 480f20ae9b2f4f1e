"""Driver and simulators: their own tests in C, and random networks against what networks mean."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uma.errors import PluginError
from uma_ultratrail.image import Image, Transfer
from uma_ultratrail.machine import Machine
from uma_ultratrail.reference import Step, run_network
from uma_ultratrail.registers import Layer

OVERHEAD = 6  # cycles to take a register apart, and to fill and empty the pipeline


def clean(*command: Any) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_traps_networks_and_broken_devices(
    simulators: Any, compilers: tuple[str, ...], tmp_path: Path, compile_simulators: Callable[..., Path]
) -> None:
    clean(simulators.program)
    for compiler in compilers[1:]:
        clean(compile_simulators(compiler, tmp_path, "-fsanitize=address,undefined"))


@dataclass
class Net:
    """A random network: its layers, the maps before, and which of them are there in the end."""

    machine: Machine
    steps: list[Step] = field(default_factory=list)
    given: dict[int, np.ndarray] = field(default_factory=dict)
    shapes: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def loads(self) -> list[Transfer]:
        return [Transfer(f"in{memory}", memory, *one.shape) for memory, one in self.given.items()]

    @property
    def stores(self) -> list[Transfer]:
        return [Transfer(f"out{memory}", memory, *shape) for memory, shape in self.shapes.items()]


def bound(machine: Machine, step: Step) -> int:
    """The largest sum that any order of adding can come to."""
    largest = np.abs(step.weights).sum(axis=(0, 1)).max() << machine.feature_bits - 1
    if step.bias is not None:
        largest += np.abs(step.bias).max() << machine.bias_shift
    return int(largest) + (step.layer.residual << machine.feature_bits - 1 + machine.feature_shift)


def random_net(seed: int) -> Net:
    """Layers of random shapes; accumulators have the bits that these need, and not one more."""
    rng = np.random.default_rng(seed)
    weight_bits, feature_bits = int(rng.integers(2, 9)), int(rng.integers(2, 9))
    machine = Machine(
        array_dim=int(rng.integers(1, 17)) if seed % 4 else (4, 8, 16)[seed // 4 % 3],
        weight_bits=weight_bits,
        feature_bits=feature_bits,
        bias_bits=int(rng.integers(2, weight_bits + feature_bits)),
        accumulator_bits=32,
        fmem_words=2048,
        wmem_words=65536,
        bmem_words=256,
    )
    net = Net(machine)
    for memory in rng.permutation(3)[: rng.integers(1, 4)].tolist():
        shape = (int(rng.integers(1, 30)), int(rng.integers(1, 3 * machine.array_dim)))
        net.given[memory] = rng.integers(machine.feature_range[0], machine.feature_range[1] + 1, shape)
    net.shapes = {memory: one.shape for memory, one in net.given.items()}
    count = int(rng.integers(1, 17))
    for number in range(count):
        add_layer(net, rng, last=number == count - 1)
    needed = max(max(bound(machine, step) for step in net.steps).bit_length() + 1, weight_bits + feature_bits)
    net.machine = replace(machine, accumulator_bits=needed)
    return net


def add_layer(net: Net, rng: np.random.Generator, last: bool) -> None:
    machine, dim = net.machine, net.machine.array_dim
    source = int(rng.choice(sorted(net.shapes)))
    destination = int(rng.choice([memory for memory in range(3) if memory != source]))
    frames, channels = net.shapes[source]
    pad = bool(rng.integers(2))
    taps = int(rng.integers(1, 6)) * 2 - 1 if pad else int(rng.integers(1, min(frames, 15) + 1))
    stride = int(rng.integers(1, 4))
    made = (frames + (taps - 1 if pad else 0) - taps) // stride + 1
    out_channels = int(rng.integers(1, 3 * dim))
    third = net.shapes.get(3 - source - destination)
    if third is not None and third[0] == frames and rng.integers(4):
        # The shape of what is in the third memory can be had: add it.
        pad, stride, made, out_channels = True, 1, frames, third[1]
        taps |= 1
    residual = third == (made, out_channels)
    avg = bool(rng.integers(5) == 0)
    pool_exp = (made - 1).bit_length() + int(rng.integers(2)) if avg else 0
    avg = avg and pool_exp <= 7
    layer = Layer(
        source,
        destination,
        residual,
        frames_in=frames,
        blocks_in=machine.blocks(channels),
        frames_out=made,
        blocks_out=machine.blocks(out_channels),
        taps=taps,
        stride=stride,
        pool_exp=pool_exp if avg else 0,
        pad=pad,
        relu=bool(rng.integers(2)),
        bias=bool(rng.integers(3)),
        avg=avg,
        last=last,
    )
    low, high = machine.weight_range
    weights = rng.integers(low, high + 1, (taps, channels, out_channels)) >> rng.integers(0, 3)
    bias = rng.integers(machine.bias_range[0], machine.bias_range[1] + 1, out_channels) if layer.bias else None
    net.steps.append(Step(layer, weights, bias))
    net.shapes[destination] = (1 if layer.avg else layer.frames_out, out_channels)


def image_and_maps(net: Net, make_image: Callable[..., Image]) -> tuple[Image, list[np.ndarray], list[np.ndarray]]:
    expected = run_network(net.machine, net.steps, net.given)
    image = make_image(net.machine, net.steps, net.loads, net.stores)
    return image, list(net.given.values()), [expected[one.memory] for one in net.stores]


def check_nets(seeds: range, simulators: Any, make_image: Callable[..., Image]) -> None:
    nets = [random_net(seed) for seed in seeds]
    made = [image_and_maps(net, make_image) for net in nets]
    for functional in (False, True):
        cases = [simulators.case(net.machine, i, m, functional) for net, (i, m, _) in zip(nets, made, strict=True)]
        for net, ended, (_, _, expected) in zip(nets, simulators.run(cases), made, strict=True):
            assert ended.fault == 0
            for found, wanted in zip(ended.maps, expected, strict=True):
                np.testing.assert_array_equal(found, wanted)
            if not functional:
                check_counters(net, ended.counters)


def check_counters(net: Net, counted: dict[str, int]) -> None:
    """What the data sheet says of cycles and accesses."""
    for number, (layer, _, _) in enumerate(net.steps):
        of_layer = {name: counted[f"layer{number}_{name}"] for name in ("cycles", "array_cycles", "weight_reads")}
        steps = layer.frames_out * layer.blocks_out * layer.blocks_in * layer.taps
        assert of_layer == {"cycles": steps + OVERHEAD, "array_cycles": steps, "weight_reads": steps}
        under = layer.stride * np.arange(layer.frames_out)[:, None] + np.arange(layer.taps) - layer.padding
        inside = int(((under >= 0) & (under < layer.frames_in)).sum())
        reads = layer.blocks_out * (layer.blocks_in * inside + layer.residual * layer.frames_out)
        assert counted[f"layer{number}_feature_reads"] == reads
        assert counted[f"layer{number}_feature_writes"] == layer.blocks_out * (1 if layer.avg else layer.frames_out)
        assert counted[f"layer{number}_bias_reads"] == layer.blocks_out * layer.bias
    for name in ("cycles", "feature_reads", "bias_reads"):
        assert counted[name] == sum(counted[f"layer{number}_{name}"] for number in range(16))
    assert counted["starts"] == 1
    # All weights, biases and maps go through the port, in groups of four bytes.
    dim = net.machine.array_dim
    layers = [step.layer for step in net.steps]
    words = sum(one.blocks_out * one.blocks_in * one.taps for one in layers) * -(-net.machine.weight_word_bytes // 4)
    words += sum(one.blocks_out * one.bias for one in layers) * -(-net.machine.bias_word_bytes // 4)
    maps = sum(net.machine.map_words(one.frames, one.channels) for one in (*net.loads, *net.stores))
    assert counted["port_words"] == words + maps * -(-dim // 4)


def test_random_networks_are_what_they_mean(simulators: Any, make_image: Callable[..., Image]) -> None:
    check_nets(range(60), simulators, make_image)


@pytest.mark.soak
def test_many_random_networks_are_what_they_mean(simulators: Any, make_image: Callable[..., Image]) -> None:
    for start in range(1000, 5000, 200):
        check_nets(range(start, start + 200), simulators, make_image)


def tc_resnet8(rng: np.random.Generator) -> Net:
    """The layers of TC-ResNet8: 40 coefficients by 101 frames, 12 classes."""

    def step(
        source: int, destination: int, frames: int, channels: tuple[int, int], taps: int, stride: int, **flags: bool
    ) -> Step:
        pad = flags.get("pad", taps == 9)
        made = (frames + (taps - 1 if pad else 0) - taps) // stride + 1
        blocks = [machine.blocks(count) for count in channels]
        pool = 4 if flags.get("avg") else 0
        shape = (frames, blocks[0], made, blocks[1], taps, stride, pool)
        residual, relu, last = (flags.get(name, False) for name in ("residual", "relu", "last"))
        layer = Layer(source, destination, residual, *shape, pad, relu, True, pool > 0, last)
        return Step(layer, rng.integers(-2, 3, (taps, *channels)), rng.integers(-128, 128, channels[1]))

    machine = Machine()
    steps = [step(0, 1, 101, (40, 16), 3, 1)]
    memories, frames, channels = (1, 0, 2), 99, 16
    for out_channels in (24, 32, 48):
        a, b, c = memories
        both = (out_channels, out_channels)
        made = (frames - 1) // 2 + 1
        steps.append(step(a, b, frames, (channels, out_channels), 9, 2, relu=True))
        steps.append(step(a, c, frames, (channels, out_channels), 1, 2))
        steps.append(step(b, a, made, both, 9, 1, residual=True, relu=True, avg=out_channels == 48))
        frames, channels = made, out_channels
    steps.append(step(1, 0, 1, (48, 12), 1, 1, last=True))
    return Net(machine, steps, {0: rng.integers(-128, 128, (101, 40))}, {0: (1, 12)})


IDEAL = (2970, 2700, 300, 4050, 2700, 300, 3600, 2808, 312, 4212, 12)
"""Cycles of the layers of TC-ResNet8 in which the array multiplies: in blocks * out blocks * taps * frames."""


def test_a_keyword_spotter_takes_less_than_a_tenth_of_a_second(
    simulators: Any, make_image: Callable[..., Image], record_property: Callable[[str, object], None]
) -> None:
    net = tc_resnet8(np.random.default_rng(8))
    image, maps, expected = image_and_maps(net, make_image)
    (ended,) = simulators.run([simulators.case(net.machine, image, maps)])
    assert ended.fault == 0
    np.testing.assert_array_equal(ended.maps[0], expected[0])
    cycles = [ended.counters[f"layer{number}_cycles"] for number in range(len(net.steps))]
    assert all(ideal < counted <= ideal + 8 for counted, ideal in zip(cycles, IDEAL, strict=True))
    total = ended.counters["cycles"]
    assert 22_264 <= total == sum(cycles) <= 25_000 and total / net.machine.clock_hz < 0.1
    record_property("measured", f"UltraTrail, TC-ResNet8: {total} cycles, {1e3 * total / 250e3:.1f} ms at 250 kHz")


def test_one_bit_less_than_a_sum_needs_is_a_trap(simulators: Any, make_image: Callable[..., Image]) -> None:
    """Every input at its least, against weights at their least: 9 sums, each of 2**13 * 8."""
    layer = Layer(0, 1, False, 9, 1, 1, 1, 9, 1, 0, False, False, False, False, True)
    step = Step(layer, np.full((9, 8, 8), -32))
    given = np.full((9, 8), -128)
    for bits, fault in ((20, 0), (19, 4)):
        machine = Machine(accumulator_bits=bits)
        image = make_image(machine, [step], [Transfer("x", 0, 9, 8)], [Transfer("y", 1, 1, 8)])
        (ended,) = simulators.run([simulators.case(machine, image, [given])])
        assert ended.fault == fault
        if fault:
            # The eighth product would be 2**18: it is accumulated two cycles after it was asked for.
            assert (ended.counters["fault_layer"], ended.counters["fault_cycle"]) == (0, 1 + 8 + 2)
            assert (ended.maps[0] == 0x55).all()
            with pytest.raises(PluginError, match="layer 0: a sum of 294912 does not fit 19 bits"):
                run_network(machine, [step], {0: given})


@pytest.mark.parametrize(("bias", "residual"), [(16, 0), (0, 16)])
def test_the_reference_finds_sums_that_others_make_too_large(bias: int, residual: int) -> None:
    machine = Machine(accumulator_bits=14)
    layer = Layer(0, 1, residual > 0, 1, 1, 1, 1, 1, 1, 0, False, False, bias > 0, False, True)
    step = Step(layer, np.full((1, 2, 1), 31), np.array([bias]) if bias else None)
    maps = {0: np.full((1, 2), 127), 2: np.full((1, 1), residual)}
    with pytest.raises(PluginError, match=r"layer 0: a sum of \d+ does not fit 14 bits"):
        run_network(machine, [step], maps)
