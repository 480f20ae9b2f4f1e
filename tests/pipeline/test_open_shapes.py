"""Models with open extents, built once: every extent up to the bound is right, and all beyond it is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests._support.model_c import SANITIZED, compile_c
from tests._support.onnx_builder import OnnxBuilder, run_onnxruntime
from tests.networks.open_shapes import bert_tiny

import uma
from uma.artifact import Artifact
from uma.errors import ModelError, UsageError
from uma.lowering.loops import simplify_all
from uma.program import Program, print_program
from uma.program.text import parse_program
from uma.relay import print_module
from uma.relay.dimension_binding import bind_dimensions
from uma.relay.evaluate import evaluate
from uma.relay.expr import Call, Function, GlobalVar, If, Var, call
from uma.relay.module import IRModule, Spans
from uma.relay.types import TensorType
from uma.tir.form.symbolic_dims import Extent, Symbol

TOLERANCE = 1e-5
"""Of the largest output."""


def words(model: onnx.ModelProto, batch: int, tokens: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Words of a sentence, of which some are hidden, but never the first."""
    rng = np.random.default_rng(seed)
    ids, mask, kind = (value.name for value in model.graph.input)
    seen = rng.integers(0, 2, (batch, tokens))
    seen[:, 0] = 1
    return {ids: rng.integers(0, 400, (batch, tokens)), mask: seen, kind: rng.integers(0, 2, (batch, tokens))}


def agrees(artifact: Artifact, model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> None:
    got = artifact.run(inputs)
    for ours, theirs in zip(got.values(), run_onnxruntime(model.SerializeToString(), inputs), strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE * np.abs(theirs).max())


def test_one_artifact_takes_sentences_of_every_length(tmp_path: Path) -> None:
    model = bert_tiny()
    artifact = uma.build(model, "c -opt=1", shapes={"batch": 1, "tokens": "1..128"}, name="bert")
    artifact.save(tmp_path / "bert")
    for one in (artifact, uma.load(tmp_path / "bert")):
        for tokens in (1, 17, 64, 128):
            agrees(one, model, words(model, 1, tokens, tokens))


@pytest.fixture(scope="module")
def small() -> tuple[Artifact, onnx.ModelProto]:
    """One layer, batch and tokens open."""
    model = bert_tiny(layers=1, width=8)
    shapes = {"batch": "1..3", "tokens": "2..9"}
    return uma.build(model, "c -opt=1 -executor=graph", shapes=shapes, name="small"), model


def test_two_extents_are_open_at_once(small: tuple[Artifact, onnx.ModelProto]) -> None:
    artifact, model = small
    for batch, tokens in ((1, 2), (3, 2), (1, 9), (2, 5), (3, 9)):
        agrees(artifact, model, words(model, batch, tokens))


def test_what_does_not_fit_is_refused(small: tuple[Artifact, onnx.ModelProto]) -> None:
    artifact, model = small
    good = words(model, 2, 5)
    first, second, third = good

    def refused(**changes: Any) -> str:
        renamed = {name: changes.get(f"x{index}", array) for index, (name, array) in enumerate(good.items())}
        with pytest.raises(ModelError) as caught:
            artifact.run(renamed | changes.get("more", {}))
        return caught.value.what

    assert f"input {first!r} of shape [2, 10] has tokens = 10, which is 2 to 9" in refused(
        x0=np.zeros((2, 10), np.int64)
    )
    assert "has tokens = 1, which is 2 to 9" in refused(x0=np.zeros((2, 1), np.int64))
    assert f"input {second!r} of shape [2, 6] has tokens = 6, and input {first!r}" in refused(
        x1=np.zeros((2, 6), np.int64)
    )
    assert "is not of shape [batch[1:3], tokens[2:9]]" in refused(x1=np.zeros(5, np.int64))
    assert "is int32[3, 9], expected int64[3, 9]" in refused(x1=np.zeros((2, 5), np.int32))
    assert "is a int, expected an array" in refused(x1=3)
    assert "input 'tokens' of shape" not in refused(more={"tokens": np.array([4])})
    assert "input 'tokens' is not a whole number" in refused(more={"tokens": np.array([4.5])})
    assert "there is no input 'z'" in refused(more={"z": np.array([4])})
    with pytest.raises(ModelError) as caught:
        artifact.run({})
    missing = f"the inputs {first!r}, {second!r}, {third!r} are missing"
    assert f"{missing}, expected {first!r}: int64[batch[1:3], tokens[2:9]]" in caught.value.what
    assert artifact.run({**good, "tokens": np.array([5])}).keys() == artifact.run(good).keys()


def test_a_model_with_one_input_takes_the_array_itself() -> None:
    b = OnnxBuilder()
    data = b.model(b.node("Softmax", b.input("x", ("n", 3)), axis=0)).SerializeToString()
    artifact = uma.build(onnx.load_from_string(data), "c -opt=1", shapes={"n": "1..4"})
    assert next(iter(artifact.run(np.zeros((2, 3), np.float32)).values())).shape == (2, 3)
    assert artifact.profile(np.zeros((2, 3), np.float32), repeat=1).calls


def test_each_stage_can_be_built_on(tmp_path: Path) -> None:
    model = bert_tiny(layers=1, width=8)
    uma.build(model, "c -opt=1", shapes={"batch": 1, "tokens": "1..4"}, dump=tmp_path, stop_after="sequence")
    made = []
    for file in sorted(tmp_path.glob("*.py")):
        form = uma.build(file, "c -opt=1", stop_after="sequence", name="model")
        assert isinstance(form, Program)
        assert parse_program(*print_program(form)) == form
        made.append(print_program(form)[0])
    assert len(made) > 8
    assert set(made) == {made[0]}


def test_the_c_keeps_within_its_memory_and_refuses_other_extents(
    small: tuple[Artifact, onnx.ModelProto], tmp_path: Path
) -> None:
    """At the least, the largest and an extent between, on arrays as large as what is used of them."""
    artifact, _ = small
    uma.build(bert_tiny(layers=1, width=8), "c -opt=1", shapes={"batch": 1, "tokens": "1..6"}, name="net").save(
        tmp_path / "net"
    )
    body = """
#include <stdio.h>
#include <stdlib.h>
#include "net.h"
UMA_ALIGNAS(net_ARENA_ALIGNMENT) static unsigned char arena[net_ARENA_BYTES];
int main(void)
{
    static const int32_t asked[] = {0, 1, 4, 6, 7, -1, 2147483647};
    size_t i;
    for (i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        const int32_t n = asked[i];
        const size_t used = n > 0 && n < 7 ? (size_t)n : 1;
        int64_t *x = calloc(used, sizeof *x);
        float *y = malloc(used * 8 * sizeof *y), z[8];
        net_context context;
        const net_inputs inputs = {x, x, x, &n};
        const net_outputs outputs = {y, z};
        if (net_init(&context, arena, sizeof arena) != UMA_OK) return 1;
        printf("%d ", (int)net_run(&context, &inputs, &outputs));
        free(x);
        free(y);
    }
    return 0;
}
"""
    folder = tmp_path / "net"
    (folder / "own.c").write_text(body)
    weights = [name for name in artifact.files if name.endswith(".S")]
    assert len(weights) == 1
    binary = compile_c(folder, ["net.c", "net_weights.S", "own.c"], SANITIZED)
    import subprocess

    done = subprocess.run([str(binary)], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.split() == ["1", "0", "0", "0", "1", "1", "1"]


def test_the_header_says_what_is_open(small: tuple[Artifact, onnx.ModelProto]) -> None:
    artifact, _ = small
    header = artifact.source("small.h")
    assert "int64[batch, tokens]" in header
    assert "inputs->tokens[0] is the extent tokens of this run, 2 to 9: else UMA_ERR_ARGUMENT is given." in header
    rows = {row["name"]: (row["extents"], row["holds"]) for row in artifact.metadata["inputs"]}
    assert rows["tokens"] == (None, "tokens")
    assert rows[next(iter(rows))] == ("batch[1:3], tokens[2:9]", None)


def test_an_accelerator_is_not_offered_what_is_open() -> None:
    b = OnnxBuilder()
    x = b.quantize(b.input("x", ("n", 8)), 0.1, 0, "int8")
    w = b.dequantize(b.constant(np.ones((8, 4)), "int8"), 0.1, 0, "int8")
    y = b.quantize(b.node("MatMul", b.dequantize(x, 0.1, 0, "int8"), w), 0.1, 0, "int8")
    model = onnx.load_from_string(b.model(b.dequantize(y, 0.1, 0, "int8")).SerializeToString())
    found = uma.explain(model, ["c", "matrix_unit"], shapes={"n": "1..4"})
    reasons = [reason for op in found.ops for reason in op.why]
    assert {reason.kind for reason in reasons} == {"open"}
    assert {reason.reason for reason in reasons} == {
        "its extents are open, and a region of an accelerator has fixed ones"
    }
    fixed = uma.explain(model, ["c", "matrix_unit"], shapes={"n": 4})
    assert all(reason.kind != "open" for op in fixed.ops for reason in op.why)


def test_an_op_whose_loops_know_the_extent_is_refused_by_its_layer() -> None:
    b = OnnxBuilder()
    y = b.node("ArgMax", b.input("x", ("n", 2)), axis=0, name="cell")
    model = onnx.load_from_string(b.model(y).SerializeToString())
    with pytest.raises(ModelError) as caught:
        uma.build(model, "c", shapes={"n": "1..4"})
    assert "argmax takes no open extents yet" in caught.value.what
    assert caught.value.where == "cell"


@pytest.mark.parametrize("op", ["LSTM", *(pytest.param(op, marks=pytest.mark.soak) for op in ("GRU", "RNN"))])
def test_a_recurrent_layer_of_as_many_steps_as_a_run_has(op: str) -> None:
    """Both directions, behind a layer whose extent is twice that of the input."""
    rows, rng = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], np.random.default_rng(3)
    b = OnnxBuilder()
    x = b.input("x", ("n", 2, 3))
    twice = b.node("Concat", x, b.node("Tanh", x), axis=0)
    shapes = ((2, rows * 5, 3), (2, rows * 5, 5))
    weights = [b.constant(rng.uniform(-1, 1, shape).astype(np.float32)) for shape in shapes]
    b.node(op, twice, *weights, outputs=["y", "last"], hidden_size=5, direction="bidirectional", name="cell")
    model = onnx.load_from_string(b.model("y", "last").SerializeToString())
    artifact = uma.build(model, "c", shapes={"n": "1..6"})
    for n in (6, 1, 4):
        agrees(artifact, model, {"x": rng.uniform(-1, 1, (n, 2, 3)).astype(np.float32)})
    assert uma.verify(model, "c", shapes={"n": "1..6"}).ok


def test_lengths_beyond_an_open_number_of_steps_are_that() -> None:
    """As the reference has it, which knows no more steps than there are."""
    n = Extent.from_symbol(Symbol("n", 1, 4))
    types = {"g": ((n, 1, 2), "float32"), "w": ((2, 2), "float32"), "h": ((1, 2), "float32"), "k": ((1,), "int32")}
    g, w, h, k = (Var(name, TensorType(*type_)) for name, type_ in types.items())
    made = call("nn.rnn", g, w, h, k, reverse=True)
    module = IRModule.from_functions({"main": Function([g, w, h, k, Var("n", TensorType((1,), "int32"))], made)})
    artifact = uma.build(module, "c")
    rng = np.random.default_rng(0)
    for steps in (1, 3):
        arrays = [rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((steps, 1, 2), (2, 2), (1, 2))]
        given = dict(zip("gwhk", [*arrays, np.array([9], np.int32)], strict=True))
        expected = evaluate(bind_dimensions(module, {"n": steps}), given | {"n": np.array([steps], np.int32)})
        for got, wanted in zip(artifact.run(given).values(), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_a_recurrent_layer_of_an_open_batch_is_refused_by_its_layer() -> None:
    b = OnnxBuilder()
    weights = [b.constant(np.ones(shape, np.float32)) for shape in ((1, 1, 3), (1, 1, 1))]
    y = b.node("RNN", b.input("x", (2, "n", 3)), *weights, hidden_size=1, name="cell")
    model = onnx.load_from_string(b.model(y).SerializeToString())
    with pytest.raises(ModelError, match="cell"):
        uma.build(model, "c", shapes={"n": "1..4"})


def test_a_branch_with_open_extents_is_refused_by_its_layer() -> None:
    n = Extent.from_symbol(Symbol("n", 1, 4))
    x, go = Var("x", TensorType((n, 2), "float32")), Var("go", TensorType((), "bool"))
    held = Var("n", TensorType((1,), "int32"))
    branches = {name: Function([x], call(op, x)) for name, op in (("yes", "nn.relu"), ("no", "tanh"))}
    yes, no = (GlobalVar(name, function.type) for name, function in branches.items())
    made = Call(If(yes, no), [go, x])
    main = Function([go, x, held], made)
    module = IRModule.from_functions({"main": main, **branches}, Spans({made: ["choice"]}))
    with pytest.raises(ModelError) as caught:
        uma.build(module, "c")
    assert caught.value.what == "a branch or a loop takes no open extents yet"
    assert caught.value.where == "choice"


def test_a_model_is_quantised_at_fixed_shapes(tmp_path: Path) -> None:
    b = OnnxBuilder()
    file = tmp_path / "m.onnx"
    onnx.save(b.model(b.node("Relu", b.input("x", ("n", 3)))), file)
    with pytest.raises(UsageError) as caught:
        uma.quantize(file, ["c", "matrix_unit"], {"x": np.zeros((2, 3), np.float32)}, shapes={"n": "1..4"})
    assert "a model is quantised at fixed shapes" in caught.value.what


def test_verification_compares_layers_and_outputs_at_several_extents() -> None:
    model = bert_tiny(layers=1, width=8)
    shapes: dict[str, Any] = {"batch": 1, "tokens": "1..6"}
    found = uma.verify(model, "c -opt=1", words(model, 1, 5), shapes=shapes)
    assert found.ok
    assert found.samples == ("tokens = 5", "tokens = 1", "tokens = 3", "tokens = 6")
    assert not found.skipped and len(found.kernels) > 10
    assert {kernel.compared for kernel in found.kernels} == {4}
    assert {check.against for check in found.outputs} == {"inspected", "references", "first run"}


@pytest.mark.parametrize("wrong", ["tanh", pytest.param("sigmoid", marks=pytest.mark.soak)])
def test_verification_names_the_layer_that_is_wrong_at_open_extents(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that computes what another one should; behind the extents nothing is compared."""
    b = OnnxBuilder()
    product = b.node("MatMul", b.input("x", ("n", 2)), b.constant(np.eye(2, dtype=np.float32)), name="product")
    shares = b.node("Softmax", product, axis=1, name="shares")
    both = b.node("Concat", b.node("Tanh", shares, name="tanh"), b.node("Sigmoid", shares, name="sigmoid"), axis=1)
    model = onnx.load_from_string(b.model(both).SerializeToString())
    assert uma.verify(model, "c", shapes={"n": "2..5"}).ok

    def spoiled(module: IRModule) -> IRModule:
        made = simplify_all(module)
        functions = dict(made.functions)
        right = "sigmoid" if wrong == "tanh" else "tanh"
        functions[made.global_var(wrong)] = made[right]
        return replace(made, functions=functions)

    monkeypatch.setattr("uma.pipeline.stages.simplify_all", spoiled)
    found = uma.verify(model, "c", shapes={"n": "2..5"})
    assert [kernel.layers for kernel in found.kernels if kernel.differing == 3] == [(wrong,)]


def test_a_lowered_form_with_open_extents_is_not_verified(tmp_path: Path) -> None:
    model = bert_tiny(layers=1, width=8)
    uma.build(model, "c", shapes={"batch": 1, "tokens": "1..6"}, dump=tmp_path, stop_after="sequence")
    with pytest.raises(UsageError) as caught:
        uma.verify(next(tmp_path.glob("9-*.py")), "c -opt=1")
    assert "lowered already" in caught.value.what


def test_an_extent_is_a_parameter_of_the_module() -> None:
    n = Extent.from_symbol(Symbol("n", 1, 4))
    x = Var("x", TensorType((n, 2), "float32"))
    with pytest.raises(uma.errors.InternalError) as caught:
        uma.build(IRModule.from_functions({"main": Function([x], call("nn.relu", x))}), "c")
    assert "there is no parameter 'n' of int32 (1,) for the extent n[1:4]" in caught.value.what
    held, wider = Var("n", TensorType((1,), "int32")), Extent.from_symbol(Symbol("n", 1, 5))
    y = Var("y", TensorType((wider, 2), "float32"))
    with pytest.raises(uma.errors.InternalError) as other:
        uma.build(IRModule.from_functions({"main": Function([x, y, held], call("nn.relu", x))}), "c")
    assert "the extent n[1:5] is n[1:4] elsewhere" in other.value.what
    assert "n[1:4]" in print_module(IRModule.from_functions({"main": Function([x, held], call("nn.relu", x))}))[0]
