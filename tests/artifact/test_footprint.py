"""What a model takes of ROM and RAM, and where most of a memory is in use."""

from __future__ import annotations

import copy
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support.scale_artifact import FILES, METADATA, artifact_of

from uma.artifact import Artifact, BufferRecord, Footprint, memory_peaks
from uma.artifact.footprint import footprint
from uma.support.json_record import to_json


@pytest.mark.usefixtures("cache_folder")
def test_footprint_of_an_artifact(artifact: Artifact) -> None:
    found = artifact.footprint()
    assert found == Footprint(4, artifact.code_bytes, 16, 0, 4, 16, artifact.stack_bytes)
    assert found.rom_bytes == 4 + artifact.code_bytes
    assert found.ram_bytes == 16 + 4 + 16 + (artifact.stack_bytes or 0)


def test_what_is_not_known_is_not_in_the_sums(artifact: Artifact) -> None:
    found = footprint(artifact.record)
    assert (found.code_bytes, found.stack_bytes) == (None, None)
    assert (found.rom_bytes, found.ram_bytes) == (4, 36)
    assert to_json(found)["ram_bytes"] == 36 and to_json(found)["stack_bytes"] is None


def test_state_counts() -> None:
    state = {"bytes": 8, "model": "0" * 64, "tensors": []}
    assert footprint(artifact_of(FILES, {**copy.deepcopy(METADATA), "state": state}).record).ram_bytes == 44


def test_peak_of_an_artifact(artifact: Artifact) -> None:
    (peak,) = memory_peaks(artifact.record)
    assert (peak.pool, peak.bytes, peak.alive_bytes, peak.step, peak.is_device) == ("ram", 16, 16, 0, False)
    assert to_json(peak)["alive"] == [{"buffer": "t0", "role": "intermediate", "offset": 0, "bytes": 16}]


@st.composite
def _buffers(draw: st.DrawFn) -> list[BufferRecord]:
    made = []
    for position in range(draw(st.integers(1, 12))):
        first, length = draw(st.integers(0, 9)), draw(st.integers(0, 4))
        pool, size = draw(st.sampled_from(["ram", "npu.sram"])), draw(st.integers(1, 20))
        offset = draw(st.integers(0, 30))
        made.append(
            BufferRecord(f"t{position}", "intermediate", (size,), "int8", pool, offset, size, first, first + length)
        )
    return made


@given(_buffers())
def test_peaks_are_those_of_counting_bytes(buffers: list[BufferRecord]) -> None:
    record = dataclasses.replace(artifact_of(FILES, METADATA).record, buffers=tuple(buffers))
    peaks = {peak.pool: peak for peak in memory_peaks(record)}
    assert list(peaks) == sorted({one.pool for one in buffers})
    for pool, peak in peaks.items():
        mine = [one for one in buffers if one.pool == pool]
        used = [
            len({at for one in mine if one.first_step <= step <= one.last_step for at in _bytes(one)})
            for step in range(14)
        ]
        assert peak.alive_bytes == max(used) and peak.step == used.index(max(used))
        assert peak.bytes == max(at for one in mine for at in _bytes(one)) + 1
        alive = {one.name for one in mine if one.first_step <= peak.step <= one.last_step}
        assert {one.name for one in peak.alive} == alive
        assert [one.bytes for one in peak.alive] == sorted((one.bytes for one in peak.alive), reverse=True)


def _bytes(buffer: BufferRecord) -> range:
    assert buffer.offset is not None
    return range(buffer.offset, buffer.offset + buffer.bytes)
