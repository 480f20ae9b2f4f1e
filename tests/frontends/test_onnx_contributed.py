"""Operators of com.microsoft on floats, as onnxruntime's optimiser writes them: what they compute, against it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
from packaging.version import Version
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime

from uma.errors import ModelError
from uma.frontends import import_model
from uma.relay.dimension_binding import bind_dimensions
from uma.relay.evaluate import evaluate
from uma.relay.expr import Call, Var
from uma.relay.transform import canonicalise
from uma.relay.visit import post_order

MICROSOFT = "com.microsoft"

Inputs = list[np.ndarray | None]

Case = tuple[str, Inputs, int, dict[str, Any]]
"""An operator, its inputs, None for one that is left out, how many results it has, and its attributes."""

Chance = np.random.Generator


def model(case: Case, computed: bool) -> tuple[bytes, dict[str, np.ndarray]]:
    """Return a model of one operator, whose inputs are all computed or only the first, and its inputs."""
    op, values, results, attributes = case
    b = OnnxBuilder(17, **{MICROSOFT: 1})
    inputs: dict[str, np.ndarray] = {}
    names = []
    for index, value in enumerate(values):
        if value is None:
            names.append("")
        elif index == 0 or (computed and op != "MatMulNBits"):
            inputs[f"x{index}"] = value
            names.append(b.input(f"x{index}", value.shape, value.dtype.name))
        else:
            names.append(b.constant(value))
    outputs = [f"y{index}" for index in range(results)]
    if op.startswith("Skip"):
        outputs[1:3] = ["", ""] if results > 1 else []
    b.node(op, *names, outputs=outputs, domain="" if op.startswith("Simplified") else MICROSOFT, **attributes)
    return b.model(*filter(None, outputs)).SerializeToString(), inputs


def floats(chance: Chance, *shape: int) -> np.ndarray:
    return chance.standard_normal(shape).astype(np.float32)


def optional(chance: Chance, value: np.ndarray) -> np.ndarray | None:
    return value if chance.integers(2) else None


def sizes(chance: Chance, count: int, most: int = 6) -> list[int]:
    return [int(size) for size in chance.integers(1, most, count)]


def conv(chance: Chance) -> Case:
    group, rank = int(chance.integers(1, 3)), int(chance.integers(1, 3))
    channels, filters = (group * size for size in sizes(chance, 2, 4))
    kernel, strides = sizes(chance, rank, 4), sizes(chance, rank, 3)
    data = floats(chance, *sizes(chance, 1, 3), channels, *(int(k + chance.integers(3, 6)) for k in kernel))
    weight = floats(chance, filters, channels // group, *kernel)
    pads = [int(pad) for pad in chance.integers(0, 2, 2 * rank)]
    shape = [
        (extent + pads[d] + pads[d + rank] - kernel[d]) // strides[d] + 1 for d, extent in enumerate(data.shape[2:])
    ]
    name, parameters = [
        ("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.3]), ("Clip", [-0.5, 1.5]),
        ("HardSigmoid", [0.3, 0.4]), ("", []),
    ][chance.integers(7)]  # fmt: skip
    activation: dict[str, Any] = {"activation": name} if name else {}
    if parameters:
        activation["activation_params"] = parameters
    addend = optional(chance, floats(chance, len(data), filters, *shape)) if rank == 2 else None
    inputs = [data, weight, optional(chance, floats(chance, filters)), addend]
    return "FusedConv", inputs, 1, {"group": group, "strides": strides, "pads": pads, **activation}


def gemm(chance: Chance) -> Case:
    m, n, k = sizes(chance, 3, 9)
    flags = [int(flag) for flag in chance.integers(0, 2, 2)]
    a, b = floats(chance, *((k, m) if flags[0] else (m, k))), floats(chance, *((n, k) if flags[1] else (k, n)))
    activation, names = [
        ("Relu", ()), ("Sigmoid", ()), ("Tanh", ()), ("LeakyRelu", ("alpha",)), ("Elu", ("alpha",)),
        ("HardSigmoid", ("alpha", "beta")), ("Selu", ("alpha", "gamma")), ("Softplus", ()), ("Softsign", ()),
        ("ThresholdedRelu", ("alpha",)),
    ][chance.integers(10)]  # fmt: skip
    attributes = {f"activation_{name}": float(chance.uniform(0.1, 0.9)) for name in names}
    scales = {"alpha": 0.7, "beta": 1.5} if chance.integers(2) else {}
    added = [floats(chance, m, n), floats(chance, n), floats(chance, m, 1), None][chance.integers(4)]
    how = {"transA": flags[0], "transB": flags[1], "activation": activation, **scales, **attributes}
    return "FusedGemm", [a, b, added], 1, how


def matmul(chance: Chance) -> Case:
    rank = int(chance.integers(2, 5))
    m, n, k = sizes(chance, 3, 9)
    batch = sizes(chance, rank - 2, 4)
    names = ("transA", "transB", "transBatchA", "transBatchB")
    flags = dict(zip(names, (int(flag) for flag in chance.integers(0, 2, 4)), strict=True))
    if rank == 2:
        flags["transBatchA"] = flags["transBatchB"] = 0

    def operand(rows: int, columns: int, letter: str) -> np.ndarray:
        shape = [*batch, *((columns, rows) if flags[f"trans{letter}"] else (rows, columns))]
        if flags[f"transBatch{letter}"]:
            shape.insert(0, shape.pop(rank - 2))
        return floats(chance, *shape)

    return "FusedMatMul", [operand(m, k, "A"), operand(k, n, "B")], 1, {**flags, "alpha": float(chance.uniform(-2, 2))}


def gelu(op: str, bias: str) -> Callable[[Chance], Case]:
    def case(chance: Chance) -> Case:
        data = 3 * floats(chance, *sizes(chance, 3))
        added = floats(chance, data.shape[-1]) if bias == "always" or (bias == "maybe" and chance.integers(2)) else None
        attributes = {"alpha": float(chance.uniform(0.5, 2))} if op == "QuickGelu" and chance.integers(2) else {}
        return op, [data] if added is None else [data, added], 1, attributes

    return case


def skip_norm(op: str) -> Callable[[Chance], Case]:
    def case(chance: Chance) -> Case:
        shape = sizes(chance, int(chance.integers(2, 4)), 9)
        hidden = shape[-1]
        skip = [shape, shape[1:], [1, *shape[1:]]][chance.integers(3)] if len(shape) == 3 else shape
        inputs: Inputs = [floats(chance, *shape), floats(chance, *skip), floats(chance, hidden)]
        if op == "SkipLayerNormalization":
            inputs.append(optional(chance, floats(chance, hidden)))
        inputs.append(optional(chance, floats(chance, hidden)))
        return op, inputs, [1, 4][chance.integers(2)], {"epsilon": 1e-3} if chance.integers(2) else {}

    return case


def rms_norm(chance: Chance) -> Case:
    data = floats(chance, *sizes(chance, 3, 9))
    axis = int(chance.integers(-2, 3))
    scale = floats(chance, *data.shape[axis:])
    return "SimplifiedLayerNormalization", [data, scale], 1, {"axis": axis, "epsilon": 1e-4, "stash_type": 1}


def embedding(chance: Chance) -> Case:
    batch, length, hidden, words = sizes(chance, 4, 7)
    ids = chance.integers(0, words, (batch, length)).astype(np.int32)
    has_segments = bool(chance.integers(2))
    segments = chance.integers(0, 2, (batch, length)).astype(np.int32) if has_segments else None
    places = chance.integers(0, length, ((batch, 1)[chance.integers(2)], length)).astype(np.int32)
    inputs = [
        ids, segments, floats(chance, words, hidden), floats(chance, length + 2, hidden),
        floats(chance, 2, hidden) if has_segments else None, floats(chance, hidden), floats(chance, hidden),
        optional(chance, chance.integers(0, 2, (batch, length)).astype(np.int32)), optional(chance, places),
    ]  # fmt: skip
    return "EmbedLayerNormalization", inputs, int(chance.integers(2, 4)), {"epsilon": 1e-3}


def attention(chance: Chance) -> Case:
    batch, length, width, heads, size = sizes(chance, 5, 5)
    values = heads * int(chance.integers(1, 4)) if chance.integers(2) else heads * size
    hidden = [heads * size, heads * size, values]
    kept = (chance.random((batch, length, length)) < 0.7) | np.eye(length, dtype=bool)
    ends = chance.integers(1, length + 1, batch)
    begins = np.minimum(chance.integers(0, length, batch), ends - 1)
    masks = [None, ends, np.concatenate([ends, begins]), kept[:, -1], kept, np.ones((1, 1))]
    mask = masks[chance.integers(6)]
    bias = floats(chance, (1, batch)[chance.integers(2)], (1, heads)[chance.integers(2)], length, length)
    inputs = [
        floats(chance, batch, length, width), floats(chance, width, sum(hidden)),
        optional(chance, floats(chance, sum(hidden))), None if mask is None else mask.astype(np.int32), None,
        optional(chance, bias),
    ]  # fmt: skip
    attributes: dict[str, Any] = {"num_heads": heads, "qkv_hidden_sizes": hidden}
    if values == heads * size and chance.integers(2):
        del attributes["qkv_hidden_sizes"]
    # Beside -10000 a score loses 10 of its bits: that is left for masks that keep something for each query.
    if mask is ends or mask is masks[2] or chance.integers(2):
        attributes |= {"scale": 0.3, "mask_filter_value": -100.0}
    return "Attention", inputs, 1, {**attributes, "unidirectional": int(chance.integers(2))}


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Return numbers packed into bytes along the last dimension, the first in the lowest bits."""
    each = 8 // bits
    filled = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, -codes.shape[-1] % each)])
    apart = filled.reshape(*filled.shape[:-1], -1, each).astype(np.uint32)
    joint: np.ndarray = (apart << (bits * np.arange(each, dtype=np.uint32))).sum(-1).astype(np.uint8)
    return joint


def matmul_nbits(chance: Chance) -> Case:
    bits, block = int(chance.choice([2, 4, 8])), int(chance.choice([16, 32, 64]))
    rows, depth = int(chance.integers(1, 9)), int(chance.integers(1, 100))
    blocks = -(-depth // block)
    codes = chance.integers(0, 1 << bits, (rows, blocks, block))
    zeros = chance.integers(0, 1 << bits, (rows, blocks))
    forms = [None, packed(zeros, bits), zeros.astype(np.float32) + np.float32(0.25)]
    data = floats(chance, *sizes(chance, int(chance.integers(1, 3)), 5), depth)
    scales = chance.uniform(0.01, 0.1, (rows, blocks)).astype(np.float32)
    bias = optional(chance, floats(chance, rows))
    # onnxruntime has no float zero points of 8 bits.
    inputs = [data, packed(codes, bits), scales, forms[chance.integers(2 if bits == 8 else 3)], None, bias]
    return "MatMulNBits", inputs, 1, {"bits": bits, "block_size": block, "N": rows, "K": depth}


CASES: dict[str, Callable[[Chance], Case]] = {
    "Attention": attention,
    "BiasGelu": gelu("BiasGelu", "always"),
    "EmbedLayerNormalization": embedding,
    "FastGelu": gelu("FastGelu", "maybe"),
    "FusedConv": conv,
    "FusedGemm": gemm,
    "FusedMatMul": matmul,
    "Gelu": gelu("Gelu", "never"),
    "MatMulNBits": matmul_nbits,
    "QuickGelu": gelu("QuickGelu", "never"),
    "SimplifiedLayerNormalization": rms_norm,
    "SkipLayerNormalization": skip_norm("SkipLayerNormalization"),
    "SkipSimplifiedLayerNormalization": skip_norm("SkipSimplifiedLayerNormalization"),
}


LACKING_BEFORE: dict[str, str] = {}
"""Operators that an older onnxruntime cannot be compared on, with the reason."""
if Version(onnxruntime.__version__) < Version("1.32"):
    LACKING_BEFORE["Attention"] = "crashes if the value has another size than the query and the weights are constant"
    LACKING_BEFORE["MatMulNBits"] = "has no weights of 2 bits"


def compare(case: Case, computed: bool) -> None:
    data, inputs = model(case, computed)
    theirs = run_onnxruntime(data, inputs, optimise=False)
    ours = evaluate(canonicalise(import_model(data).module), inputs)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        if one.dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * float(np.abs(other).max(initial=0)))
        else:
            np.testing.assert_array_equal(one, other)


@pytest.mark.few(27)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", CASES)
def test_random_forms(name: str, seed: int) -> None:
    if name in LACKING_BEFORE:
        pytest.skip(f"this onnxruntime, {onnxruntime.__version__}, {LACKING_BEFORE[name]}")
    chance = np.random.default_rng([seed, *name.encode()])
    compare(CASES[name](chance), computed=bool(seed % 2))


@pytest.mark.parametrize("form", ["keys", "ends", "unidirectional"])
def test_sequences_of_any_length(form: str) -> None:
    """Words, attention and a normalisation, of a number of sequences and of words that a run decides."""
    chance = np.random.default_rng(0)
    b = OnnxBuilder(17, **{MICROSOFT: 1})
    ids, mask = b.input("ids", ["batch", "words"], "int32"), b.input("mask", ["batch", "words"], "int32")
    tables = b.constant(floats(chance, 5, 6)), b.constant(floats(chance, 9, 6))
    scales = b.constant(floats(chance, 6)), b.constant(floats(chance, 6))
    x, ends, _ = b.node(
        "EmbedLayerNormalization", ids, "", *tables, "", *scales, mask, outputs=3, domain=MICROSOFT
    )  # fmt: skip
    kept = {"keys": mask, "ends": ends, "unidirectional": ""}[form]
    weights = b.constant(floats(chance, 6, 12)), b.constant(floats(chance, 12))
    flag = int(form == "unidirectional")
    y = b.node("Attention", x, *weights, kept, domain=MICROSOFT, num_heads=2, unidirectional=flag)
    y = b.node("SkipLayerNormalization", y, y, b.constant(floats(chance, 4)), domain=MICROSOFT)
    data = b.model(b.node("FastGelu", y, domain=MICROSOFT), ends).SerializeToString()
    module = canonicalise(import_model(data, shapes={"batch": "1..3", "words": "1..7"}).module)
    for batch, words in ((1, 1), (2, 7), (3, 4)):
        counts = chance.integers(1, words + 1, (batch, 1))
        inputs = {
            "ids": chance.integers(0, 5, (batch, words)).astype(np.int32),
            "mask": (np.arange(words) < counts).astype(np.int32),
        }
        extents = {"batch": batch, "words": words}
        given = {**inputs, **{name: np.array([value], np.int32) for name, value in extents.items()}}
        ours, theirs = evaluate(bind_dimensions(module, extents), given), run_onnxruntime(data, inputs)
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(ours[1], theirs[1])


def test_what_is_known_is_computed_at_import() -> None:
    b = OnnxBuilder(17, **{MICROSOFT: 1})
    y = b.node("Gelu", b.constant([1.0, 2.0], "float32"), domain=MICROSOFT)
    module = import_model(b.model(b.node("Add", y, b.input("x", [2]))).SerializeToString()).module
    assert [e.op_name for e in post_order(module.main.body) if isinstance(e, Call)] == ["add"]


def test_a_plugin_that_imports_an_operator_overrides_the_core() -> None:
    b = OnnxBuilder(17, **{MICROSOFT: 1})
    data = b.model(b.node("Gelu", b.input("x", [2]), domain=MICROSOFT)).SerializeToString()
    seen = []

    def find(kind: str, name: str) -> Any:
        seen.append((kind, name))
        return lambda layer: layer.inputs[0].value

    module = import_model(data, custom=find).module
    assert ("onnx", "com.microsoft::Gelu") in seen and isinstance(module.main.body, Var)


# --- refusals --------------------------------------------------------------------------------------------------------

VALUES: dict[str, Inputs] = {
    "Attention": [floats(np.random.default_rng(0), *shape) for shape in ((2, 3, 4), (4, 12), (12,))],
    "EmbedLayerNormalization": [
        np.zeros((2, 3), np.int32), np.zeros((2, 3), np.int32), np.zeros((5, 4), np.float32),
        np.zeros((3, 4), np.float32), np.zeros((2, 4), np.float32), np.zeros(4, np.float32), np.zeros(4, np.float32),
    ],
    "FusedConv": [np.zeros((1, 2, 5, 5), np.float32), np.zeros((3, 2, 3, 3), np.float32)],
    "FusedGemm": [np.zeros((2, 3), np.float32), np.zeros((3, 4), np.float32)],
    "MatMulNBits": [
        np.zeros((2, 40), np.float32), np.zeros((3, 2, 16), np.uint8), np.ones((3, 2), np.float32)
    ],
    "SkipLayerNormalization": [np.zeros(shape, np.float32) for shape in ((2, 3, 4), (2, 3, 4), (4,))],
}  # fmt: skip
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "Attention": {"num_heads": 2},
    "MatMulNBits": {"bits": 4, "block_size": 32, "N": 3, "K": 40},
}


def refused(
    op: str, what: str, inputs: Mapping[int, np.ndarray | None] | None = None, results: int = 1, **attributes: Any
) -> tuple[Case, str]:
    """Return a right case with other inputs, by position, and attributes, and a part of its error."""
    changed = dict(inputs or {})
    values = [changed.get(i, value) for i, value in enumerate(VALUES[op])]
    values += [changed.get(i) for i in range(len(values), max(changed, default=0) + 1)]
    return (op, values, results, {**ATTRIBUTES.get(op, {}), **attributes}), what


def zeros(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.zeros(shape, dtype)


REFUSED = [
    refused("Attention", "it has a past state, which is not supported", {4: zeros(2, 2, 2, 3, 2)}),
    refused("Attention", "it has a past state, which is not supported", past_present_share_buffer=1),
    refused("Attention", "it has do_rotary, which is not supported", do_rotary=1),
    refused("Attention", "it has data of shape (2, 3) and weights of shape (4, 12)", {0: zeros(2, 3)}),
    refused("Attention", "do not divide into sizes (4, 4, 4) of 3 heads", num_heads=3),
    refused("Attention", "do not divide into sizes (4, 4, 6) of 2 heads", qkv_hidden_sizes=[4, 4, 6]),
    refused("Attention", "its bias has the shape (3,), not (12,)", {2: zeros(3)}),
    refused("Attention", "its mask_index is int64, not int32", {3: zeros(2, dtype="int64")}),
    refused("Attention", "its mask_index has the shape (2, 1, 4, 4)", {3: zeros(2, 1, 4, 4, dtype="int32")}),
    refused("Attention", "its attention_bias has the shape (3, 3), not (2, 2, 3, 3)", {5: zeros(3, 3)}),
    refused("Attention", "its input 0 is int32, not a float", {0: zeros(2, 3, 4, dtype="int32")}),
    refused("Attention", "its result 1 is used, which is not supported", results=2),
    refused("Attention", "it has no attribute 'heads'", heads=2),
    refused("EmbedLayerNormalization", "its input_ids have the shape (3,)", {0: zeros(3, dtype="int32")}),
    refused("EmbedLayerNormalization", "its table 'x4' has the shape (2, 5)", {4: zeros(2, 5)}),
    refused("EmbedLayerNormalization", "its position table of shape (2, 4) does not fit 3 words", {3: zeros(2, 4)}),
    refused("EmbedLayerNormalization", "it has segment ids or a segment table without the other", {1: None}),
    refused("FusedConv", "its activation 'Sine' is not supported (supported: Clip, Elu", activation="Sine"),
    refused("FusedConv", "it has 0 activation_params; LeakyRelu has 1", activation="LeakyRelu"),
    refused("FusedConv", "has the limits 2.0 and 1.0", activation="Clip", activation_params=[2.0, 1.0]),
    refused("FusedConv", "its addend Z has the shape (3,), not (1, 3, 3, 3)", {3: zeros(3)}),
    refused("FusedGemm", "its activation 'Sine' is not supported", activation="Sine"),
    refused("MatMulNBits", "it has g_idx, which is not supported", {4: zeros(40, dtype="int32")}),
    refused("MatMulNBits", "its weight is prepacked for a GPU", weight_prepacked=1),
    refused("MatMulNBits", "it has 3 rows of 40 weights of 5 bits in blocks of 32", bits=5),
    refused("MatMulNBits", "it has 3 rows of 40 weights of 4 bits in blocks of 24", block_size=24),
    refused("MatMulNBits", "its data has the shape (2, 41), its weights 40 columns", {0: zeros(2, 41)}),
    refused("MatMulNBits", "its weight is int8 of shape (3, 2, 16)", {1: zeros(3, 2, 16, dtype="int8")}),
    refused("MatMulNBits", "its scales are float32 of shape (3, 3), not float32 of (3, 2)", {2: zeros(3, 3)}),
    refused("MatMulNBits", "its zero points are uint8 of shape (3, 2)", {3: zeros(3, 2, dtype="uint8")}),
    refused("MatMulNBits", "its bias has the shape (2,), not (3,)", {5: zeros(2)}),
    refused("SkipLayerNormalization", "its data has the shape (4,), not 2 or 3 dimensions", {0: zeros(4)}),
    refused("SkipLayerNormalization", "(2, 4), not (2, 3, 4) or (3, 4) or (1, 3, 4)", {1: zeros(2, 4)}),
    refused("SkipLayerNormalization", "its gamma has the shape (3,), not (4,)", {2: zeros(3)}),
]  # fmt: skip


@pytest.mark.parametrize(("case", "what"), REFUSED, ids=[f"{case[0]}: {what}" for case, what in REFUSED])
def test_refusals(case: Case, what: str) -> None:
    with pytest.raises(ModelError) as error:
        import_model(model(case, computed=True)[0])
    assert what in str(error.value)


def test_results_for_training_are_refused() -> None:
    b = OnnxBuilder(17, **{MICROSOFT: 1})
    inputs = [b.input("x", [2, 3]), b.input("s", [2, 3]), b.constant([1, 1, 1], "float32")]
    y = b.node("SkipLayerNormalization", *inputs, outputs=2, domain=MICROSOFT)
    with pytest.raises(ModelError, match="its mean or inv_std_var is used, which only training does"):
        import_model(b.model(*y).SerializeToString())


def test_tensors_packed_for_one_machine_are_refused() -> None:
    b = OnnxBuilder(17, **{"com.microsoft.nchwc": 1})
    y = b.node("ReorderInput", b.input("x", [1, 8, 2, 2]), domain="com.microsoft.nchwc")
    with pytest.raises(ModelError, match="save it with ORT_ENABLE_EXTENDED: ORT_ENABLE_ALL packs tensors"):
        import_model(b.model(y).SerializeToString())
