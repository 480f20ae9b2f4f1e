"""Weights: decoder and order in C, order and encoder in Python, each against the codec of Vela where that is there."""

from __future__ import annotations

import re
import struct
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite
from hypothesis import given, settings
from hypothesis import strategies as st

import uma_ethosu_like
from uma.errors import PluginError
from uma_ethosu_like.compression import encode
from uma_ethosu_like.weights import Order, Record, encode_filter, traversal

HERE = Path(__file__).parent
CSRC = Path(uma_ethosu_like.__file__).parent / "csrc"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-g", "-O1", "-fno-sanitize-recover=all")
VALUE, END, CUT, RESERVED, PALETTE, RANGE = range(6)

Decoded = list[tuple[int, np.ndarray]]


class Program:
    """Decoder and order, compiled with sanitizers."""

    def __init__(self, compiler: str, folder: Path) -> None:
        self.path = folder / f"eu_weights_{compiler}"
        command = [compiler, *STRICT, "-fsanitize=address,undefined", f"-I{CSRC}"]
        command += [str(CSRC / "eu_weights.c"), str(HERE / "eu_weights_main.c"), "-o", str(self.path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def run(self, given: bytes) -> bytes:
        done = subprocess.run([self.path], input=given, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
        return done.stdout

    def decode(self, streams: Sequence[bytes], most: int = 100_000) -> Decoded:
        """How each stream ended, and its values."""
        out = self.run(b"".join(struct.pack("<3I", 0, len(one), most) + one for one in streams))
        found, at = [], 0
        for _ in streams:
            result, count = struct.unpack_from("<iI", out, at)
            found.append((result, np.frombuffer(out, np.int16, count, at + 8)))
            at += 8 + 2 * count
        assert at == len(out)
        return found

    def walk(self, cases: Sequence[tuple[tuple[int, ...], Order]]) -> list[np.ndarray]:
        """The order as the C has it."""
        out = self.run(b"".join(struct.pack("<I12i", 1, *numbers(*case)) for case in cases))
        found, at = [], 0
        for _ in cases:
            opened, count = struct.unpack_from("<iI", out, at)
            assert opened
            found.append(np.frombuffer(out, np.int32, count, at + 8))
            at += 8 + 4 * count
        assert at == len(out)
        return found


def numbers(shape: tuple[int, ...], order: Order) -> list[int]:
    """The members of an `eu_order_of`."""
    sub = [8 // one for one in order.dilation]
    block = [order.ofm_block_depth, order.ofm_ublock_depth, order.ifm_ublock_depth, order.ifm_bits]
    return [*shape, *block, *sub, order.depthwise, order.part_kernel]


@pytest.fixture(scope="module")
def program(compilers: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Program:
    return Program(compilers[0], tmp_path_factory.mktemp("eu_weights"))


@pytest.fixture(scope="module")
def codec() -> Any:
    return pytest.importorskip("ethosu.mlw_codec", reason="ethos-u-vela is not installed: its codec is the oracle here")


# --- What is tried ----------------------------------------------------------------------------------------------------


def some_weights(rng: np.random.Generator, most: int) -> np.ndarray:
    """Values as trained, pruned, clustered or odd layers have them."""
    count = int(rng.integers(1, most))
    few = rng.choice(rng.integers(-255, 256, int(rng.integers(1, 40))), count)
    scales = rng.uniform(0.2, 60, 6)
    kinds: list[Callable[[], np.ndarray]] = [
        lambda: rng.integers(-255, 256, count),
        lambda: rng.normal(0, scales[0], count),
        lambda: rng.normal(0, scales[0], count) * (rng.random(count) < rng.random()),
        lambda: few,
        lambda: few * (rng.random(count) < 0.1),
        lambda: np.zeros(count),
        lambda: np.full(count, few[0]),
        lambda: np.concatenate([rng.normal(0, one, count // 6 + 1) for one in scales]),
    ]
    values: np.ndarray = np.clip(np.round(kinds[rng.integers(len(kinds))]()), -255, 255).astype(np.int16)
    return values


def some_order(rng: np.random.Generator) -> tuple[tuple[int, ...], Order]:
    """A shape of weights, and an order for them."""
    kind = int(rng.integers(3))  # depthwise, part kernel first, depth first
    height, width = (int(one) for one in rng.integers(1, 4 if rng.random() < 0.7 else 20, 2))
    inputs = 1 if kind == 0 else int(rng.integers(1, 80 if height * width < 20 else 12))
    depth = int(rng.choice([4, 8]))
    order = Order(
        ofm_ublock_depth=depth,
        ofm_block_depth=depth * int(rng.integers(1, 9)),
        ifm_bits=int(rng.choice([8, 16])),
        depthwise=kind == 0,
        part_kernel=kind == 1,
        dilation=(int(rng.integers(1, 3)), int(rng.integers(1, 3))),
    )
    return (int(rng.integers(1, 70)), height, width, inputs), order


def written(*fields: tuple[int, int]) -> bytes:
    """Fields of value and width as bytes, the rest of the last ones."""
    word = at = 0
    for value, width in fields:
        word |= value << at
        at += width
    return (word | (1 << -at % 8) - 1 << at).to_bytes(-(-at // 8), "little")


def head(zero_divisor: int = 6, length: int = 1, divisor: int = 0, new_palette: int = 1) -> list[tuple[int, int]]:
    """The head of a slice, up to its palette."""
    return [(zero_divisor, 3), (length - 1, 15), (divisor, 3), (0, 1), (new_palette, 1)]


# --- Streams ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-255, 255), min_size=1, max_size=400))
@settings(max_examples=15)  # in the soak too: each starts a program
def test_any_values_come_back(program: Program, values: list[int]) -> None:
    stream = encode(np.array(values))
    assert len(stream) % 16 == 0
    assert [(result, found.tolist()) for result, found in program.decode([stream])] == [(END, values)]


def test_weights_come_back_from_both_encoders(program: Program, codec: Any) -> None:
    rng = np.random.default_rng(17)
    tried = [some_weights(rng, 1500) for _ in range(60)]
    ours, theirs = [encode(one) for one in tried], [bytes(codec.encode(one.tolist())) for one in tried]
    for values, our, their, *decoded in zip(
        tried, ours, theirs, program.decode(ours), program.decode(theirs), strict=True
    ):
        for result, found in decoded:
            assert result == END
            np.testing.assert_array_equal(found, values)
        assert codec.decode(bytearray(our)) == values.tolist()
        assert len(our) <= 1.05 * len(their)


@pytest.mark.soak
def test_weights_come_back_from_both_encoders_at_length(compilers: tuple[str, ...], tmp_path: Path, codec: Any) -> None:
    rng = np.random.default_rng(18)
    tried = [some_weights(rng, 60_000) for _ in range(150)]
    ours, theirs = [encode(one) for one in tried], [bytes(codec.encode(one.tolist())) for one in tried]
    for program in (Program(one, tmp_path) for one in compilers):
        for streams in (ours, theirs):
            for values, (result, found) in zip(tried, program.decode(streams), strict=True):
                assert result == END
                np.testing.assert_array_equal(found, values)
    for values, our, their in zip(tried, ours, theirs, strict=True):
        assert codec.decode(bytearray(our)) == values.tolist()
        assert len(our) <= 1.05 * len(their)


def test_long_rows_take_slices_and_long_runs(program: Program) -> None:
    rng = np.random.default_rng(19)
    tried = [rng.integers(0, 2, 70_000), np.zeros(70_000, np.int64), np.repeat([0, 9, 0], [40_000, 1, 20_000])]
    tried.append(np.concatenate([rng.normal(0, 2, 3000), rng.normal(0, 60, 3000)]).round().astype(np.int64))
    for values, (result, found) in zip(tried, program.decode([encode(one) for one in tried]), strict=True):
        assert result == END
        np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize(
    ("stream", "result", "values"),
    [
        (b"", CUT, []),
        (written((7, 3)), END, []),
        (written((7, 3)) + b"\xff" * 20, END, []),
        (written((7, 3)) + written(*head(4)), RESERVED, []),  # what follows is read on, and is not a slice
        (written(*head(4)), RESERVED, []),
        (written(*head(divisor=6)), RESERVED, []),
        (written(*head(new_palette=0), (0, 16)), PALETTE, []),
        (written(*head(), (0, 13), (0, 12), (7, 3)), END, [0]),
        (written(*head(), (3, 5), (0, 8), (0, 12), (7, 3)), END, [-1]),
        (written(*head(), (0, 13), (0, 12), *head(new_palette=0), (1, 13), (7, 3)), END, [0, -0]),
        (written(*head(), (0, 13), (0, 12), *head(0, new_palette=0), (0, 24)), PALETTE, [0]),
        (written(*head(), (0, 13), (0, 12), (7, 3)) + written(*head(new_palette=0)), PALETTE, [0]),
        (written(*head(), (0, 13), (0, 12))[:-1], CUT, []),
        (written(*head(length=2), (0, 13), (0xFFF, 12), (0xFFF, 12), (0xFFF, 12), (0xFFF, 12)), RANGE, []),
        (written(*head(divisor=7), (1, 5), (0, 5), (7, 3), (511, 9)), RANGE, []),
        (written(*head(divisor=7), (0, 5), (0, 5), (7, 3), (511, 9), (7, 3)), END, [-255]),
        (written(*head(divisor=7), (0, 5), (2, 5), (7, 3), (510, 9), (5, 9), (3, 9), (0, 2), (7, 3)), END, [255]),
        (written(*head(divisor=7), (4, 5), (2, 5), (7, 3), (510, 9), (5, 9), (3, 9), (3, 2), (7, 3)), END, [2]),
    ],
)
def test_streams_by_hand(program: Program, stream: bytes, result: int, values: list[int]) -> None:
    assert [(one, found.tolist()) for one, found in program.decode([stream])] == [(result, values)]


def damaged(rng: np.random.Generator, streams: Sequence[bytes]) -> bytes:
    """A stream that is cut, has other bits, is not a stream, or goes on where it should end."""
    stream = bytearray(streams[rng.integers(len(streams))])
    kind = rng.integers(4)
    if kind == 0:
        return bytes(stream[: rng.integers(len(stream))])
    if kind == 1:
        for _ in range(int(rng.integers(1, 5))):
            stream[rng.integers(len(stream))] ^= 1 << int(rng.integers(8))
        return bytes(stream)
    return rng.bytes(int(rng.integers(200))) if kind == 2 else bytes(stream) + rng.bytes(int(rng.integers(40)))


def ends_clearly(program: Program, seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    streams = [encode(some_weights(rng, 400)) for _ in range(50)]
    for at in range(0, count, 1000):
        given = [damaged(rng, streams) for _ in range(min(1000, count - at))]
        ended = Counter(result for result, _ in program.decode(given, 5000))
        assert set(ended) <= {VALUE, END, CUT, RESERVED, PALETTE, RANGE}
        assert ended[CUT] and ended[PALETTE]


def test_damaged_streams_end_clearly(program: Program) -> None:
    ends_clearly(program, 20, 400)


@pytest.mark.soak
def test_damaged_streams_end_clearly_at_length(compilers: tuple[str, ...], tmp_path: Path) -> None:
    for number, compiler in enumerate(compilers):
        ends_clearly(Program(compiler, tmp_path), 21 + number, 100_000)


def test_each_cut_of_a_stream_is_seen(program: Program) -> None:
    """Filling apart, which begins behind the byte that holds the mark of the end."""
    values = np.random.default_rng(23).normal(0, 20, 300).round().astype(np.int16)
    stream = encode(values)
    whole = len(stream.rstrip(b"\xff")) + 1
    results = [result for result, _ in program.decode([stream[:end] for end in range(len(stream) + 1)])]
    assert set(results[: whole - 1]) == {CUT}
    assert set(results[whole:]) == {END}


@pytest.mark.parametrize(
    ("values", "wrong"), [([], "there are none"), ([3, -256], "-256 has more than 9 bits"), ([300, 1], "300 has more")]
)
def test_values_that_no_stream_has(values: list[int], wrong: str) -> None:
    with pytest.raises(PluginError, match=f"^weights can't be compressed: {wrong}"):
        encode(np.array(values, np.int64))


# --- The order --------------------------------------------------------------------------------------------------------


def vela_order(codec: Any, shape: tuple[int, ...], order: Order) -> np.ndarray:
    """The order in which Vela's codec takes weights: read off weights that are the digits of their index."""
    count, place = int(np.prod(shape)), 1
    index: np.ndarray = np.zeros(1, np.int64)
    while place <= count:
        digits = (np.arange(count) // place % 255 + 1).reshape(shape).astype(np.int16)
        sub = [8 // one for one in order.dilation]
        depths = (order.ifm_ublock_depth, order.ofm_ublock_depth)
        kind = (order.depthwise, order.part_kernel, order.ifm_bits)
        stream, length = codec.reorder_encode(*depths, digits, order.ofm_block_depth, *kind, *sub)
        found = np.array(codec.decode(stream))
        assert len(found) == length
        index = index + (found - 1) * place
        place *= 255
    return np.where(found == 0, -1, index)


def test_orders_in_c_and_python_agree(program: Program) -> None:
    rng = np.random.default_rng(24)
    cases = [some_order(rng) for _ in range(60)]
    for (shape, order), walked in zip(cases, program.walk(cases), strict=True):
        found = traversal(shape, order)
        np.testing.assert_array_equal(walked, found, err_msg=f"{shape} {order}")
        np.testing.assert_array_equal(np.sort(found[found >= 0]), np.arange(np.prod(shape)))


def test_orders_agree_with_vela(codec: Any) -> None:
    rng = np.random.default_rng(25)
    for shape, order in (some_order(rng) for _ in range(40)):
        np.testing.assert_array_equal(
            traversal(shape, order), vela_order(codec, shape, order), err_msg=f"{shape} {order}"
        )


@pytest.mark.soak
def test_orders_agree_with_vela_at_length(program: Program, codec: Any) -> None:
    rng = np.random.default_rng(26)
    cases = [some_order(rng) for _ in range(400)]
    for (shape, order), walked in zip(cases, program.walk(cases), strict=True):
        np.testing.assert_array_equal(walked, vela_order(codec, shape, order), err_msg=f"{shape} {order}")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"ofm_block_depth": 12}, "blocks of 12 output channels are not a multiple of 8"),
        ({"ofm_block_depth": 0}, "blocks of 0 output channels"),
        ({"ifm_bits": 32}, "inputs have 8 or 16 bits, not 32"),
        ({"depthwise": True, "part_kernel": True}, "a depthwise kernel is not taken part by part"),
        ({"dilation": (1, 3)}, r"kernels are dilated by 1 or 2, not by \(1, 3\)"),
    ],
)
def test_no_such_order(program: Program, wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(PluginError, match=f"^weights have no such order: {why}"):
        Order(**{"ofm_ublock_depth": 8, "ofm_block_depth": 16, **wrong})


@pytest.mark.parametrize(
    ("at", "number"), [(0, 0), (3, 70_000), (4, 12), (5, 0), (6, 17), (7, 32), (8, 9), (9, 0), (10, 1)]
)
def test_no_such_order_in_c(program: Program, at: int, number: int) -> None:
    """Each number out of its range by itself; the last: depthwise, and part kernel first."""
    given = numbers((16, 3, 3, 16), Order(8, 16, part_kernel=True))
    given[at] = number
    assert program.run(struct.pack("<I12i", 1, *given)) == bytes(8)


# --- A layer ----------------------------------------------------------------------------------------------------------


@given(st.integers(-(1 << 39), (1 << 39) - 1), st.integers(0, (1 << 32) - 1), st.integers(0, 63))
def test_records_come_back(bias: int, scale: int, shift: int) -> None:
    record = Record(bias, scale, shift)
    assert Record.unpack(record.pack()) == record
    assert record.pack() == (bias & (1 << 40) - 1).to_bytes(5, "little") + scale.to_bytes(4, "little") + bytes([shift])


@pytest.mark.parametrize(
    ("record", "wrong"),
    [
        ((1 << 39, 1, 1), f"its bias is {1 << 39}, not {-(1 << 39)} to {(1 << 39) - 1}"),
        ((0, -1, 1), "its scale is -1, not 0 to 4294967295"),
        ((0, 1, 64), "its shift is 64, not 0 to 63"),
    ],
)
def test_no_such_record(record: tuple[int, int, int], wrong: str) -> None:
    with pytest.raises(PluginError, match=re.escape(f"no record of bias and scale: {wrong}")):
        Record(*record)


@pytest.mark.parametrize("data", [bytes(9), bytes(11), bytes(9) + b"\x40"])
def test_no_record_at_all(data: bytes) -> None:
    with pytest.raises(PluginError, match=f"^no record of bias and scale: {data.hex()}$"):
        Record.unpack(data)


def test_a_filter_has_its_records_and_weights(program: Program) -> None:
    rng = np.random.default_rng(27)
    weights = rng.integers(-128, 128, (37, 3, 3, 11))
    records = [Record(int(rng.integers(-(1 << 20), 1 << 20)), int(rng.integers(1 << 31)), 40) for _ in range(37)]
    order = Order(8, 8, part_kernel=True)
    encoded = encode_filter(weights, records, order)
    assert encoded.records == (0, 10 * 37 + 15 & -16) and encoded.weights[0] == encoded.records[1]
    assert encoded.weights[1] % 16 == 0 and sum(encoded.weights) == len(encoded.data)
    [(result, values)] = program.decode([encoded.data[encoded.weights[0] :]])
    assert result == END
    found = traversal(weights.shape, order)
    np.testing.assert_array_equal(values, np.where(found < 0, 0, weights.reshape(-1)[found]))
    for number, record in enumerate(records):
        assert Record.unpack(encoded.data[10 * number : 10 * number + 10]) == record


def test_a_record_for_each_channel() -> None:
    with pytest.raises(PluginError, match=r"^3 output channels have 2 records of bias and scale$"):
        encode_filter(np.zeros((3, 1, 1, 1), np.int8), [Record(0, 1, 1)] * 2, Order(8, 8))


MODELS = ("kws_ref_model", "ad01_int8", "pretrainedResnet_quant", "vww_96_int8")


def layers(model: tflite.Model) -> list[tuple[np.ndarray, bool]]:
    """Weights of a model's convolutions and dense layers, output channels first, and whether they are depthwise."""
    graph, found = model.Subgraphs(0), []
    for number in range(graph.OperatorsLength()):
        operator = graph.Operators(number)
        code = model.OperatorCodes(operator.OpcodeIndex()).DeprecatedBuiltinCode()
        kinds = tflite.BuiltinOperator
        if code in (kinds.CONV_2D, kinds.DEPTHWISE_CONV_2D, kinds.FULLY_CONNECTED):
            tensor = graph.Tensors(operator.Inputs(1))
            data = model.Buffers(tensor.Buffer()).DataAsNumpy().view(np.int8).reshape(tensor.ShapeAsNumpy())
            depthwise = code == kinds.DEPTHWISE_CONV_2D
            if data.ndim == 2:
                data = data[:, None, None]
            found.append((data.transpose(3, 1, 2, 0) if depthwise else data, depthwise))
    return found


@pytest.mark.soak
@pytest.mark.parametrize("name", MODELS)
def test_layers_of_models_are_as_small_as_with_vela(program: Program, codec: Any, models: Path, name: str) -> None:
    """Each layer comes back; the model's weights take no more than with Vela's encoder."""
    model = tflite.Model.GetRootAsModel((models / "mlperf-tiny" / f"{name}.tflite").read_bytes(), 0)
    sizes = [0, 0]
    for weights, depthwise in layers(model):
        order = Order(8, 16, depthwise=depthwise)
        found = traversal(weights.shape, order)
        values = np.where(found < 0, 0, weights.reshape(-1)[found])
        ours, theirs = encode(values), codec.encode(values.tolist())
        [(result, decoded)] = program.decode([ours], len(values) + 1)
        assert result == END
        np.testing.assert_array_equal(decoded, values)
        assert len(ours) <= 1.05 * len(theirs)
        sizes[0] += len(ours)
        sizes[1] += len(theirs)
    assert 0.9 < sizes[0] / sizes[1] <= 1
