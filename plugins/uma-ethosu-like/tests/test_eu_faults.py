"""What the machine may not do ends in a fault that says where and why; no stream ends in anything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.npu_graphs import Graph

from uma_ethosu_like.commands import BY_NAME, COMMANDS, command, encode

SLOTS = [f"{kind.name}.{one.name}" for kind in sorted(COMMANDS, key=lambda kind: kind.header) for one in kind.fields]
"""What `slot` of a result means."""

MAP = {"BASE0": 0, "BASE1": 0, "BASE2": 0, "BASE3": 0, "WIDTH0_M1": 3, "HEIGHT0_M1": 3, "HEIGHT1_M1": 3}
STRIDES = {"STRIDE_Y": 32, "STRIDE_X": 8, "STRIDE_C": 1}
BYTES = {"type": 1, "precision": 0, "format": 0}

REGISTERS: Mapping[str, int | Mapping[str, int]] = {
    **{f"{name}_{key}": value for name in ("IFM", "IFM2", "OFM") for key, value in {**MAP, **STRIDES}.items()},
    **{f"{name}_REGION": region for region, name in enumerate(("WEIGHT", "SCALE", "IFM", "IFM2", "OFM"))},
    **{f"{name}_ZERO_POINT": 0 for name in ("IFM", "IFM2", "OFM")},
    **{f"IFM_PAD_{side}": 0 for side in ("TOP", "LEFT", "RIGHT", "BOTTOM")},
    "IFM_DEPTH_M1": 7,
    "OFM_DEPTH_M1": 7,
    "OFM_WIDTH_M1": 3,
    "OFM_HEIGHT_M1": 3,
    "IFM_UPSCALE": 0,
    "IFM_PRECISION": {**BYTES, "scale_mode": 0, "round_mode": 0},
    "IFM2_PRECISION": BYTES,
    "OFM_PRECISION": {**BYTES, "scale_mode": 1, "round_mode": 0},
    "OFM_BLK_WIDTH_M1": 3,
    "OFM_BLK_HEIGHT_M1": 3,
    "OFM_BLK_DEPTH_M1": 7,
    "BLOCKDEP": 0,
    "KERNEL_WIDTH_M1": 0,
    "KERNEL_HEIGHT_M1": 0,
    "ACC_FORMAT": 0,
    "IFM_IB_END": 6,
    "AB_START": 10,
    "KERNEL_STRIDE": dict.fromkeys([one.name for one in BY_NAME["SET_KERNEL_STRIDE"].fields], 0),
    "ACTIVATION": {"function": 0, "clip_range": 0},
    "ACTIVATION_MIN": -128,
    "ACTIVATION_MAX": 127,
    "IFM2_IB_START": 4,
    "IFM2_SCALAR": 5,
    "IFM2_BROADCAST": dict.fromkeys([one.name for one in BY_NAME["SET_IFM2_BROADCAST"].fields], 0),
    "OFM_SCALE": {"value": 1, "shift": 0},
    "OPA_SCALE": {"value": 1, "shift": 0},
    "OPB_SCALE": 1,
    "WEIGHT_BASE": 0,
    "WEIGHT_LENGTH": 64,
    "SCALE_BASE": 0,
    "SCALE_LENGTH": 80,
    "DMA0_SRC_REGION": {"region": 5, "mode": 0, "stride_mode": 0},
    "DMA0_DST_REGION": {"region": 6, "mode": 0, "stride_mode": 0},
    "DMA0_SRC": 0,
    "DMA0_DST": 0,
    "DMA0_LEN": 256,
}
"""Of a machine with 64 MACs and maps of 4 x 4 x 8: inputs in regions 2 and 3, the output in 4, copies from 5 to 6."""

REGIONS = {
    0: bytes(64),
    1: bytes(80),
    2: bytes(range(128)),
    3: bytes(128),
    4: bytes(128),
    5: bytes(range(256)),
    6: bytes(256),
}
WRITABLE = frozenset({4, 6})
TABLES = {"DMA0_DST_REGION": {"region": 3, "mode": 1, "stride_mode": 0}, "DMA0_DST": 14 << 10}


def setting(values: Mapping[str, int | Mapping[str, int]]) -> list[int]:
    """Words that set registers."""
    made = [
        command(f"SET_{name}", **({"value": value} if isinstance(value, int) else value))
        for name, value in values.items()
    ]
    return encode(made)


def op(name: str, **values: int) -> list[int]:
    return encode([command(f"OP_{name}", **values)])


ADD, POOL, CONV, DMA, STOP = (
    *(op("ELEMENTWISE", mode=1), op("POOL", mode=0), op("CONV"), op("DMA_START"), op("STOP", mask=0xFFFF)),
)
START = setting(REGISTERS)


@dataclass(frozen=True)
class Trap:
    """A stream that ends in a fault: which, in which register, and, of a hazard, after which words it was started."""

    fault: str
    stream: Sequence[int]
    slot: str | None = None
    other: Sequence[int] | None = None
    change: Callable[[Any], Any] = lambda case: case


def on(operation: Sequence[int], **values: Any) -> list[int]:
    """An operation with some registers changed."""
    return [*START, *setting(values), *operation, *STOP]


def shaped(**values: int) -> dict[str, Any]:
    return {"KERNEL_STRIDE": {**REGISTERS["KERNEL_STRIDE"], **values}}  # type: ignore[dict-item]  # a register of several fields


def typed(name: str, **values: int) -> dict[str, Any]:
    return {f"{name}_PRECISION": {**REGISTERS[f"{name}_PRECISION"], **values}}  # type: ignore[dict-item]  # precisions have several fields


def without(name: str) -> list[int]:
    return [*setting({key: value for key, value in REGISTERS.items() if key != name}), *ADD, *STOP]


LUT = {"ACTIVATION": {"function": 16, "clip_range": 0}}
ONTO_INPUT = {"IFM_REGION": 6, "DMA0_LEN": 16}  # what a copy brings is what the kernel reads
CHAIN = {"IFM_REGION": 4, "OFM_REGION": 6}  # what the kernel before has made is what this one reads

TRAPS = {
    "no such machine": Trap("configuration", STOP, change=lambda case: replace(case, macs=512)),
    "no such memory": Trap("configuration", STOP, change=lambda case: replace(case, speeds=(0, 1, 1, 1))),
    "unknown command": Trap("command", [0x3FF]),
    "a command of another machine": Trap("command", [0x123]),
    "bits that mean nothing": Trap("reserved", [BY_NAME["OP_CONV"].header | 1 << 16]),
    "half of a command": Trap("cut", [*START[-4:-2], BY_NAME["SET_IFM_BASE0"].header]),
    "no end": Trap("no stop", START),
    "nothing": Trap("no stop", []),
    "a value out of range": Trap("value", [BY_NAME["SET_IFM_UPSCALE"].header | 3 << 16], "SET_IFM_UPSCALE.value"),
    "an unaligned length of weights": Trap(
        "value", [BY_NAME["SET_WEIGHT_LENGTH"].header, 8], "SET_WEIGHT_LENGTH.value"
    ),
    **{
        f"{name} was not set": Trap("unset", without(name), f"SET_{name}.value")
        for name in ("OFM_HEIGHT_M1", "BLOCKDEP")
    },
    "scale was not set": Trap("unset", without("OFM_SCALE"), "SET_OFM_SCALE.value"),
    "an input behind the end": Trap("address", on(ADD, IFM_BASE0=1), "SET_IFM_BASE0.value"),
    "a tile behind the end": Trap("address", on(ADD, IFM2_WIDTH0_M1=1, IFM2_BASE1=96), "SET_IFM2_BASE1.value"),
    "an output behind the end": Trap("address", on(POOL, OFM_STRIDE_Y=64), "SET_OFM_BASE0.value"),
    "bricks behind the end": Trap("address", on(ADD, **typed("IFM", format=1), IFM_STRIDE_C=16), "SET_IFM_BASE0.value"),
    "rows before the beginning": Trap("address", on(POOL, OFM_STRIDE_Y=-32), "SET_OFM_BASE0.value"),
    "a stride whose sign is not repeated": Trap(
        "reserved", [BY_NAME["SET_OFM_STRIDE_Y"].header, 0xFFFFFFE0], "SET_OFM_STRIDE_Y.value"
    ),
    "no region": Trap("address", on(ADD, IFM_REGION=7), "SET_IFM_BASE0.value"),
    "weights behind the end": Trap("address", on(CONV, WEIGHT_LENGTH=80), "SET_WEIGHT_BASE.value"),
    "a copy from behind the end": Trap("address", on(DMA, DMA0_LEN=272), "SET_DMA0_SRC.value"),
    "a copy to behind the end": Trap("address", on(DMA, DMA0_DST=16), "SET_DMA0_DST.value"),
    "a copy to where no table is": Trap("address", on(DMA, **TABLES | {"DMA0_DST": 0}), "SET_DMA0_DST.value"),
    "an output that is constant": Trap("read only", on(ADD, OFM_REGION=2), "SET_OFM_BASE0.value"),
    "a copy to what is constant": Trap(
        "read only", on(DMA, DMA0_DST_REGION={"region": 5, "mode": 0, "stride_mode": 0}), "SET_DMA0_DST.value"
    ),
    "an odd address of 16 bits": Trap(
        "misaligned",
        on(ADD, **typed("IFM", precision=1), IFM_BASE0=1, IFM_STRIDE_Y=8, IFM_STRIDE_X=2),
        "SET_IFM_BASE0.value",
    ),
    "an odd stride of 16 bits": Trap(
        "misaligned", on(ADD, **typed("IFM", precision=1), IFM_STRIDE_Y=1), "SET_IFM_STRIDE_Y.value"
    ),
    "an unaligned copy": Trap("misaligned", on(DMA, DMA0_LEN=8), "SET_DMA0_LEN.value"),
    "channels that differ": Trap("shape", on(ADD, IFM_DEPTH_M1=6), "SET_IFM_DEPTH_M1.value"),
    "more padding than input": Trap("shape", on(POOL, IFM_PAD_TOP=4), "SET_IFM_PAD_TOP.value"),
    "a dilation that does not divide": Trap(
        "shape", on(POOL, KERNEL_HEIGHT_M1=1, **shaped(dilation_y_m1=1)), "SET_KERNEL_HEIGHT_M1.value"
    ),
    "a pool of 32 bits": Trap("shape", on(POOL, **typed("IFM", precision=2)), "SET_IFM_PRECISION.precision"),
    "too few scales": Trap("shape", on(CONV, SCALE_LENGTH=64), "SET_SCALE_LENGTH.value"),
    "half a micro-block": Trap("block", on(ADD, OFM_BLK_DEPTH_M1=3), "SET_OFM_BLK_DEPTH_M1.value"),
    "more banks than there are": Trap("block", on(ADD, IFM_IB_END=17), "SET_IFM_IB_END.value"),
    "an input that does not fit": Trap("block", on(POOL, IFM_IB_END=3), "SET_IFM_IB_END.value"),
    "sums that do not fit": Trap("block", on(POOL, AB_START=15), "SET_AB_START.value"),
    "weights that end": Trap("weights", on(CONV, WEIGHT_LENGTH=0), "SET_WEIGHT_BASE.value"),
    "a table that was not loaded": Trap("table", on(ADD, **LUT, AB_START=14), "SET_ACTIVATION.function"),
    "a table that was overwritten": Trap(
        "table",
        [*START, *setting(TABLES), *DMA, *op("DMA_WAIT", outstanding=0), *ADD, *setting(LUT), *ADD, *STOP],
        "SET_ACTIVATION.function",
    ),
    "a table of the machine": Trap(
        "unsupported", on(ADD, ACTIVATION={"function": 3, "clip_range": 0}), "SET_ACTIVATION.function"
    ),
    "a copy in 2-D": Trap(
        "unsupported",
        on(DMA, DMA0_SRC_REGION={"region": 5, "mode": 0, "stride_mode": 1}),
        "SET_DMA0_SRC_REGION.stride_mode",
    ),
    "too much": Trap("work", on(ADD), change=lambda case: replace(case, work_limit=100)),
    "reads what a copy brings": Trap(
        "copy hazard", [*START, *setting(ONTO_INPUT), *DMA, *ADD, *STOP], other=[*START, *setting(ONTO_INPUT)]
    ),
    "writes what a copy brings": Trap("copy hazard", [*START, *setting({"OFM_REGION": 6}), *DMA, *ADD, *STOP]),
    "writes what a copy takes": Trap(
        "copy hazard",
        [*START, *setting({"OFM_REGION": 5}), *DMA, *ADD, *STOP],
        change=lambda case: replace(case, writable=frozenset({4, 5, 6})),
    ),
    "a copy of what a kernel makes": Trap(
        "kernel hazard",
        [
            *START,
            *ADD,
            *setting({"DMA0_SRC_REGION": {"region": 4, "mode": 0, "stride_mode": 0}, "DMA0_LEN": 16}),
            *DMA,
            *STOP,
        ],
        other=START,
    ),
    "a copy to what a kernel reads": Trap("kernel hazard", [*START, *setting({"IFM_REGION": 6}), *ADD, *DMA, *STOP]),
    "a copy to tables that a kernel overwrites": Trap("kernel hazard", [*START, *ADD, *setting(TABLES), *DMA, *STOP]),
    "a kernel that overtakes": Trap(
        "kernel hazard", [*START, *ADD, *setting({**CHAIN, "BLOCKDEP": 1}), *ADD, *STOP], other=START
    ),
    "a second input that overtakes": Trap(
        "kernel hazard", [*START, *ADD, *setting({"IFM2_REGION": 4, "OFM_REGION": 6, "BLOCKDEP": 1}), *ADD, *STOP]
    ),
}


@pytest.fixture(scope="module")
def make_case(npu: Any) -> Callable[..., Any]:
    from_fixture = npu.case

    def make(words: Sequence[int]) -> Any:
        return from_fixture(macs=64, words=words, regions=REGIONS, writable=WRITABLE)

    return make


def test_traps(npu: Any, make_case: Callable[..., Any]) -> None:
    """All in one run of the program; behind each the simulator is as usable as before."""
    good = make_case(WAITED["nothing in common"])
    cases = [case for trap in TRAPS.values() for case in (trap.change(make_case(trap.stream)), good)]
    first, *both = npu.run(good, *cases)
    ended, again = both[::2], both[1::2]
    assert first.fault == "none" and again == [first] * len(TRAPS)
    found = {
        name: (end.fault, SLOTS[end.slot] if end.slot >= 0 else None) for name, end in zip(TRAPS, ended, strict=True)
    }
    assert found == {name: (trap.fault, trap.slot) for name, trap in TRAPS.items()}
    for (name, trap), end in zip(TRAPS.items(), ended, strict=True):
        assert trap.other is None or end.other == len(trap.other), name
    assert {trap.fault for trap in TRAPS.values()} == {*npu.faults} - {"none"}


WAITED = {
    "a copy": [*START, *setting(ONTO_INPUT), *DMA, *op("DMA_WAIT", outstanding=0), *ADD, *STOP],
    "a kernel": [*START, *setting({"IFM_REGION": 6}), *ADD, *op("KERNEL_WAIT", outstanding=0), *DMA, *STOP],
    "the first of two": [
        *(*START, *setting({"IFM_REGION": 6}), *ADD, *setting({"IFM_REGION": 2}), *ADD),
        *(*op("KERNEL_WAIT", outstanding=1), *DMA, *STOP),
    ],
    "a kernel, by its blocks": [*START, *ADD, *setting(CHAIN), *ADD, *STOP],
    "nothing in common": [*START, *DMA, *ADD, *STOP],
    "what is known not to be last": [
        *(*START, *setting({"OFM_BLK_HEIGHT_M1": 0}), *ADD),
        *(*setting({**CHAIN, "BLOCKDEP": 3}), *ADD, *STOP),
    ],
}


def test_waits_cover_hazards(npu: Any, make_case: Callable[..., Any]) -> None:
    ended = npu.run(*[make_case(words) for words in WAITED.values()])
    assert [end.fault for end in ended] == ["none"] * len(WAITED)
    doubled = np.clip(np.arange(128) + 0, -128, 127).astype(np.int8).tobytes()
    assert ended[4].regions[4] == doubled  # the input and zeros
    assert ended[4].regions[6] == REGIONS[5]


def test_strides_may_be_negative(npu: Any, make_case: Callable[..., Any]) -> None:
    """A map that is written from its end on."""
    backwards = {"OFM_BASE0": 120, "OFM_STRIDE_Y": -32, "OFM_STRIDE_X": -8}
    [ended] = npu.run(make_case(on(ADD, **backwards)))
    assert ended.fault == "none"
    given = np.frombuffer(REGIONS[2], np.int8).reshape(16, 8)
    np.testing.assert_array_equal(np.frombuffer(ended.regions[4], np.int8).reshape(16, 8), given[::-1])
    brought = {"DMA0_DST_REGION": {"region": 6, "mode": 0, "stride_mode": 0}, "DMA0_LEN": 16, "OFM_REGION": 6}
    [ended] = npu.run(make_case([*START, *setting({**brought, **backwards}), *DMA, *ADD, *STOP]))
    assert ended.fault == "copy hazard"  # the last pixels are the first bytes


def seeds(vela: Any, count: int) -> list[Any]:
    """Small streams of many operators."""
    graphs = [
        Graph(seed, ["CONV_2D", "ADD", "SOFTMAX", "AVERAGE_POOL_2D", "TRANSPOSE_CONV", "TANH"]) for seed in range(count)
    ]
    graphs = [graph for graph in graphs if graph.data.size < 1000]
    made = vela.many([(graph.model, (32, 64, 128, 256)[number % 4]) for number, graph in enumerate(graphs)])
    return [
        one.case(graph.data, work_limit=300_000) for graph, one in zip(graphs, made, strict=True) if one is not None
    ]


def test_mutated_streams(npu: Any, make_case: Callable[..., Any]) -> None:
    for number, words in enumerate(WAITED.values()):
        assert sum(npu.fuzz(make_case(words), number, 80).values()) == 80


@pytest.mark.soak
def test_many_mutated_streams(
    compile_npu: Callable[..., Any], compilers: tuple[str, ...], vela: Any, tmp_path: Path
) -> None:
    program = compile_npu(compilers[-1], tmp_path, "-O1", "-fsanitize=address,undefined")
    cases = seeds(vela, 40)
    total: dict[str, int] = {}
    for number, case in enumerate(cases):
        for fault, count in program.fuzz(case, number, 100_000 // len(cases) + 1).items():
            total[fault] = total.get(fault, 0) + count
    assert sum(total.values()) >= 100_000
    assert {"configuration", "read only"} >= {fault for fault, count in total.items() if count == 0}


@pytest.mark.soak
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_both_compilers_accept_it(
    compile_npu: Callable[..., Any],
    compilers: tuple[str, ...],
    make_case: Callable[..., Any],
    tmp_path: Path,
    level: str,
) -> None:
    for name in compilers:
        [ended] = compile_npu(name, tmp_path, level, "-pedantic").run(make_case(WAITED["a copy"]))
        assert ended.fault == "none"
