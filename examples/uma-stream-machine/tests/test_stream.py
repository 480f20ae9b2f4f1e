"""Streams: every wait is needed, and is missed where it is not there; addresses go where relocations say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uma.hookspecs import Extern
from uma.lowering.build_targets import resolve_targets
from uma.lowering.region_lowering import regions_of
from uma.pipeline.driver import start_build
from uma.pipeline.loading import load_model
from uma.plugins import PluginEntry, PluginHost
from uma_stream_machine.commands import COMMANDS, Command, command, decode
from uma_stream_machine.cost import stream_cycles
from uma_stream_machine.layer import Chunk, Draft
from uma_stream_machine.stream import Place, Step, write_stream

HAZARD = 8

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("stream_machine", "uma_stream_machine", "uma-stream-machine", "0.1.0"),
    ]
)


@pytest.fixture(scope="module", params=["kws_ref_model", "ad01_int8", "pretrainedResnet_quant", "vww_96_int8"])
def extern(request: pytest.FixtureRequest, models: Path) -> Extern:
    """The largest region of a model."""
    members = resolve_targets(["stream_machine -weight_bytes=20000", "c"], PLUGINS)
    loaded = load_model(models / "mlperf-tiny" / f"{request.param}.tflite")
    build = start_build(loaded, members)
    module = build.run(loaded.form, "fuse")
    ((var, region),) = regions_of(module)
    plugin, target = PLUGINS.plugin_for("stream_machine"), members["stream_machine"].target
    given = {"module": module.read_only(), "function": region, "region": build.matches.region(module, var)}
    made, entry = plugin.call("relay_to_runtime", **given, target=target)
    return made.functions[entry]


def inputs_of(extern: Extern) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(-128, 128, b.shape).astype(np.int8) for b in extern.buffers("input")]


@pytest.mark.few(1)
def test_a_wait_that_is_missing_is_a_hazard(extern: Extern, machine: Any, laid_out: Any) -> None:
    """Each of them alone, as well as every wait for one command less. Of long streams some forty, evenly."""
    layout = laid_out(extern, inputs_of(extern))
    rows = list(decode(layout.stream))
    waits = [n for n, (_, one) in enumerate(rows) if one.type.name == "wait"]
    assert len(waits) > 3
    for number in waits[:: -(-len(waits) // 40)]:
        at, one = rows[number]
        planted = {name: value + 1 for name, value in one.values.items() if value != 255}
        for other in ([], [command("wait", **{**one.values, **planted})]):
            commands = [*(c for _, c in rows[:number]), *other, *(c for _, c in rows[number + 1 :])]
            stream = b"".join(c.encode() for c in commands)
            ended = machine.run(stream, layout.regions, layout.writable, 20000)
            assert (ended.fault, ended.at) == (HAZARD, at + (4 if other else 0)), str(one)


def addresses(one: Command) -> set[str]:
    return {name for address in one.type.addresses for name in (address.name, f"{address.name}_base")}


def test_the_same_commands_at_other_addresses(extern: Extern, laid_out: Any) -> None:
    first, second = (laid_out(extern, inputs_of(extern), seed) for seed in (1, 2))
    (blob,) = (blob for blob in extern.blobs if blob.name == "stream")
    assert first.places != second.places and first.stream != second.stream
    symbols = {one.at: (one.symbol, one.addend) for one in blob.relocations if one.value == "offset"}
    rows = zip(decode(first.stream), decode(second.stream), decode(blob.data), strict=True)
    for (at, one), (_, other), (_, bare) in rows:
        for layout, placed in ((first, one), (second, other)):
            assert placed.type is bare.type
            kept = {name: value for name, value in placed.values.items() if name not in addresses(bare)}
            assert kept == {name: value for name, value in bare.values.items() if name not in addresses(bare)}
            for address in bare.type.addresses:
                base, offset = placed[f"{address.name}_base"], placed[address.name]
                if at + address.at not in symbols:
                    assert (base, offset) == (255, bare[address.name])
                    continue
                symbol, addend = symbols[at + address.at]
                start = layout.places[symbol]
                assert (base, offset) == (start[0], start[1] + addend)


def test_what_is_estimated_is_counted(extern: Extern, machine: Any, laid_out: Any) -> None:
    layout = laid_out(extern, inputs_of(extern))
    ended = machine.run(layout.stream, layout.regions, layout.writable, 20000)
    commands = [one for _, one in decode(layout.stream)]
    assert ended.fault == 0 and ended.counters["cycles"] == stream_cycles(commands)
    # Loading goes on beside computing.
    assert ended.counters["cycles"] < ended.counters["dma_cycles"] + ended.counters["compute_cycles"]


def test_every_command_is_marked_with_its_layer(extern: Extern) -> None:
    (blob,) = (blob for blob in extern.blobs if blob.name == "stream")
    assert blob.marks[0][0] == 0 and len({layer for _, layer in blob.marks}) > 5


def test_an_engine_that_has_place_for_nothing_more_has_finished_something() -> None:
    """What is 16 commands old needs no wait."""
    copies = [Step(Draft("dma", {"bytes": 1}, {}), {"to": Place("a", n), "from": Place("b", n)}, ()) for n in range(17)]
    pool = {f.name: 1 for f in COMMANDS[6].fields if "_base" not in f.name and f.name not in ("output", "input")}
    for at, waits in ((0, 0), (1, 1)):
        step = Step(Draft("max_pool", pool, {}), {"output": Place("c", 0), "input": Place("a", at)}, ())
        names = [one.type.name for one in write_stream([*copies, step], 256).commands]
        assert names.count("wait") == waits


DENSE = dict.fromkeys(("rows", "depth", "out_channels", "out_pixel"), 1)
DENSE |= dict.fromkeys(("rounding", "low", "high", "input_zero_point", "output_zero_point"), 0)


@pytest.mark.parametrize(
    ("to", "origin", "waits"),
    [
        (Place("kept", 3), Place("a", 0), 1),  # writes what is the residual
        (Place("kept", 4), Place("a", 0), 0),
        (Place("a", 0), Place("kept", 3), 0),  # only reads it
    ],
)
def test_a_residual_is_waited_for(to: Place, origin: Place, waits: int) -> None:
    """By what reads it, and by what writes over it."""
    # The wait that there is in any case is for the weights.
    copy = Step(Draft("dma", {"bytes": 1}, {}), {"to": to, "from": origin}, ())
    places = {"output": Place("out", 0), "input": Place("given", 0), "residual": Place("kept", 3)}
    layer = Draft("dense_residual", {**DENSE, "residual_factor": 2}, {}, Chunk(bytes(96)))
    before = write_stream([Step(layer, places, ()), copy], 256).commands
    assert [one.type.name for one in before].count("wait") == 1 + waits
    stream = write_stream([Step(layer, places, ()), copy, Step(layer, places, ())], 256)
    assert [one.type.name for one in stream.commands].count("wait") == 1 + 2 * waits
    symbols = [one.symbol for one in stream.relocations if one.symbol == "kept"]
    assert len(symbols) == 2 * 2 + 2 * (to.symbol == "kept" or origin.symbol == "kept")


def test_the_next_weights_are_loaded_meanwhile() -> None:
    steps = [
        Step(Draft("dense", DENSE, {}, Chunk(bytes(96))), {"output": Place("out", n), "input": Place("given", n)}, ())
        for n in range(4)
    ]
    stream = write_stream(steps, 128)
    rows = map(str, stream.commands)
    assert [row.split()[0] + row.partition("<")[2] for row in rows] == [
        *("dma", "wait=0", "dense", "dma", "wait=0", "dense", "wait=1", "dma", "wait=0", "dense"),
        *("wait=1", "dma", "wait=0", "dense", "end"),
    ]
    assert [one["weights"] for one in stream.commands if one.type.name == "dense"] == [0, 128, 0, 128]
