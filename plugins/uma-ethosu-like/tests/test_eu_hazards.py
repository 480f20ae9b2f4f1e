"""Waits: streams have those that the simulator's rule needs, and no more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from uma_ethosu_like.blocks import Block, legal_blocks
from uma_ethosu_like.commands import encode
from uma_ethosu_like.cost import stream_cycles
from uma_ethosu_like.hazards import SymbolicAddress
from uma_ethosu_like.machine import CONFIGURATIONS, Machine
from uma_ethosu_like.operations import BRICK, FeatureMap, Filter, Kind, Operation, Scale, Step, Storage, Window
from uma_ethosu_like.stream import Stream, write_stream

MEMORY = Storage("features", 1 << 14)
BASES = {"weights": 0, "features": 1}


def words_of(stream: Stream) -> list[int]:
    """Its words, with constants in region 0 and features in region 1."""
    words = encode(stream.commands)
    for one in stream.relocations:
        words[one.at // 4] += BASES[one.symbol] << 16 if one.value == "base" else one.addend
    return words


class Chain:
    """Draws steps that read what others before them wrote, or a part of it, or what lies across it."""

    def __init__(self, seed: int, macs: int) -> None:
        self.rng = np.random.default_rng([seed, macs])
        self.machine = CONFIGURATIONS[macs]
        self.maps: list[FeatureMap] = []
        self.tables = [self.rng.integers(0, 256, 256, np.uint8).tobytes() for _ in range(3)]

    def number(self, least: int, most: int) -> int:
        return int(self.rng.integers(least, most + 1))

    def map(self, shape: tuple[int, int, int]) -> FeatureMap:
        """Anywhere, in either layout, some in a ring of rows."""
        rows, columns, channels = shape
        bricks = -(-channels // BRICK)
        one = FeatureMap.whole(MEMORY, shape)
        if self.rng.random() < 0.4:
            by_brick = columns * BRICK
            one = FeatureMap(MEMORY, 0, shape, (by_brick * bricks, BRICK, by_brick), layout="nhcwb16")
        if self.rng.random() < 0.3:
            ring = rows + self.number(0, 3)
            one = replace(one, ring=ring, first=self.number(0, ring - 1))
        most = (MEMORY.nbytes - (rows + 3) * columns * bricks * BRICK) // 16
        return replace(one, offset=16 * self.number(0, most))

    def step(self) -> tuple[Step, Block]:
        rng = self.rng
        if self.maps and rng.random() < 0.8:
            ifm = self.maps[-min(len(self.maps), self.number(1, 2))]
        else:
            ifm = self.map((self.number(3, 12), self.number(3, 12), self.number(1, 40)))
        kind: Kind = ("conv", "depthwise", "max_pool", "add", "abs")[self.number(0, 4)]
        window, table, second, more = Window(), None, None, {}
        if kind not in ("add", "abs"):
            kernel = (self.number(1, min(3, ifm.shape[0])), self.number(1, min(3, ifm.shape[1])))
            window = Window(kernel, (self.number(1, 2), self.number(1, 2)), padding=(kernel[0] // 2, kernel[1] // 2))
        rows, columns = (
            (extent + 2 * pad - span) // stride + 1
            for extent, pad, span, stride in zip(ifm.shape, window.padding, window.span, window.strides, strict=False)
        )
        channels = self.number(1, 40) if kind == "conv" else ifm.shape[2]
        if kind in ("conv", "depthwise"):
            depth = ifm.shape[2] if kind == "conv" else 1
            weights = rng.integers(-20, 20, (channels, *window.kernel, depth)).astype(np.int8)
            filters = Filter(weights, np.zeros(channels, np.int64), (Scale(1 << 30, 38),) * channels)
            more = {"filter": filters}
        elif kind == "add":
            same = [one for one in self.maps if one.shape == ifm.shape]
            second = same[-1] if same and rng.random() < 0.7 else self.map(ifm.shape)
            if rng.random() < 0.3:
                second = self.map((1, 1, channels))
            more = {"scale": Scale(1 << 30, 31)}
        elif kind == "abs":
            more = {"scale": Scale(1, 0)}
        if rng.random() < 0.35:
            table = self.tables[self.number(0, 2)]
        ofm = self.map((rows, columns, channels))
        self.maps.append(ofm)
        step = Operation(kind, ofm, ifm, second, window=window, table=table, **more).whole  # type: ignore[arg-type]  # `more` is a scale, or nothing
        blocks = [one for one in legal_blocks(step, self.machine) if one.count(step.box.shape) < 30]
        return step, blocks[self.number(0, len(blocks) - 1)]

    def stream(self, length: int) -> Stream:
        steps = [self.step() for _ in range(length)]
        return write_stream(steps, self.machine, {MEMORY: SymbolicAddress("features", 0)})


def trapped(npu: Any, streams: list[tuple[int, Stream]]) -> dict[str, int]:
    """Runs streams, and each with one wait less: how many waits of each kind all of them have."""
    cases, expected, count = [], [], {}
    for macs, stream in streams:
        words = words_of(stream)
        regions = {0: bytes(stream.constants), 1: b"\x55" * MEMORY.nbytes}
        same = {"macs": macs, "regions": regions, "writable": frozenset({1}), "flash": frozenset({0})}
        cases.append(npu.case(words=words, **same))
        expected.append(("none", stream_cycles(stream.works, Machine(macs=macs))))
        for name, changed in npu.weakened(words):
            cases.append(npu.case(words=changed, **same))
            expected.append((npu.hazards[name], None))
            count[name] = count.get(name, 0) + 1
    for (fault, cycles), ended in zip(expected, npu.run(*cases), strict=True):
        assert ended.fault == fault
        assert cycles is None or ended.cycles == cycles
    return count


def test_streams_wait_for_what_they_need_and_for_no_more(npu: Any) -> None:
    streams = [(macs, Chain(seed, macs).stream(6)) for macs in CONFIGURATIONS for seed in (1, 3)]
    assert trapped(npu, streams).keys() == npu.hazards.keys()


@pytest.mark.soak
@pytest.mark.parametrize("macs", CONFIGURATIONS)
def test_many_streams_wait_for_what_they_need_and_for_no_more(npu: Any, macs: int) -> None:
    streams = [(macs, Chain(seed, macs).stream(12)) for seed in range(100, 220)]
    trapped(npu, streams)
