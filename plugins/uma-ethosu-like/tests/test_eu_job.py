"""Models in files: Vela's two forms are read alike, and what is malformed is one clear error."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ai_edge_litert.schema_py_generated as schema
import flatbuffers
import numpy as np
import pytest
from tests._support.fuzz import fuzz, mutated

from uma.errors import ModelError, UsageError
from uma_ethosu_like.commands import command, decode, encode
from uma_ethosu_like.network_file import Job, Region, Tensor, parse_job, read_job
from uma_ethosu_like.payload import write_payload

STREAM = encode([command("SET_IFM_REGION", 1), command("OP_STOP", mask=0xFFFF)])
PAYLOAD = write_payload(STREAM, 64)
WEIGHTS = bytes(range(13)) + bytes(3)


def arrays(**changes: Any) -> dict[str, Any]:
    """A raw file as Vela writes it, with some arrays changed, or left out where they are None."""
    found = {
        "cmd_data": np.bytes_(PAYLOAD),
        "weight_data": np.bytes_(WEIGHTS),
        "weight_region": np.int64(0),
        "scratch_size": np.int64(64),
        "scratch_region": np.int64(1),
        "scratch_fast_size": np.int64(0),
        "scratch_fast_region": np.int64(0),
        **{
            f"{prefix}_{name}": np.array([value])
            for prefix, shape, offset in (("input", [1, 4, 4], 0), ("output", [1, 1, 8], 16))
            for name, value in {"shape": shape, "elem_size": 1, "region": 1, "offset": offset}.items()
        },
        "input_quantization": np.array([{"quant_type": "none"}]),
        "variable_offset": np.zeros(0),
        **changes,
    }
    return {name: value for name, value in found.items() if value is not None}


def raw(save: Callable[..., None] = np.savez, **changes: Any) -> bytes:
    file = io.BytesIO()
    save(file, **arrays(**changes))
    return file.getvalue()


def tflite(change: Callable[[Any], None] = lambda model: None) -> bytes:
    """A ``.tflite`` as Vela writes it, after ``change`` of the model."""
    model, graph = schema.ModelT(), schema.SubGraphT()
    model.version, model.subgraphs = 3, [graph]
    model.buffers = [schema.BufferT() for _ in range(4)]
    for buffer, data in zip(model.buffers[1:], (PAYLOAD, WEIGHTS, np.array([0, 1, 5, -1, -1, 8, 8, 24])), strict=True):
        buffer.data = np.frombuffer(data if isinstance(data, bytes) else data.astype("<i4").tobytes(), np.uint8)
    sizes = {"stream": [len(PAYLOAD)], "weights": [16], "scratch": [64], "in": [1, 4, 4], "out": [1, 1, 8]}
    graph.tensors = []
    for number, (name, shape) in enumerate(sizes.items()):
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.buffer = name, shape, number + 1 if number < 2 else 0
        tensor.type = schema.TensorType.UINT8 if number < 3 else schema.TensorType.INT8
        graph.tensors.append(tensor)
    quantised = schema.QuantizationParametersT()
    quantised.scale, quantised.zeroPoint = [0.5], [-3]
    graph.tensors[3].quantization = quantised
    code, operator, plan = schema.OperatorCodeT(), schema.OperatorT(), schema.MetadataT()
    code.builtinCode, code.customCode = schema.BuiltinOperator.CUSTOM, "ethos-u"
    operator.inputs, operator.outputs = [0, 1, 2, 2, 3], [4]
    plan.name, plan.buffer = "OfflineMemoryAllocation", 3
    model.operatorCodes, graph.operators, model.metadata = [code], [operator], [plan]
    graph.inputs, graph.outputs = [3], [4]
    change(model)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def test_a_raw_file_is_read() -> None:
    job = parse_job(raw(), "x.npz")
    assert (job.payload.macs, job.payload.words) == (64, tuple(STREAM))
    assert job.regions == {0: Region(16, WEIGHTS), 1: Region(64)}, "zeros at the end of weights are weights"
    assert job.inputs == (Tensor("input0", (1, 4, 4), "int8", 1, 0),)
    assert job.outputs == (Tensor("output0", (1, 1, 8), "int8", 1, 16),)
    assert parse_job(raw(np.savez_compressed), "x.npz") == job


def test_a_fast_memory_is_a_region_of_its_own() -> None:
    job = parse_job(raw(scratch_fast_size=np.int64(48), scratch_fast_region=np.int64(2)), "x.npz")
    assert job.regions[2] == Region(48)


def test_a_tflite_is_read() -> None:
    job = parse_job(tflite(), "x.tflite")
    assert (job.payload.macs, job.payload.words) == (64, tuple(STREAM))
    assert job.regions == {0: Region(16, WEIGHTS), 1: Region(64)}
    assert job.inputs == (Tensor("in", (1, 4, 4), "int8", 1, 0, 0.5, -3),)
    assert job.outputs == (Tensor("out", (1, 1, 8), "int8", 1, 16),)


def test_a_payload_alone_has_no_memory(tmp_path: Path) -> None:
    file = tmp_path / "x.bin"
    file.write_bytes(PAYLOAD)
    job = read_job(file)
    assert job == Job(job.payload) and job.payload.words == tuple(STREAM)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"cmd_data": None}, "there is no such array"),
        ({"cmd_data": np.bytes_(PAYLOAD[:-4])}, "it is cut short: 2 words should follow, and 1 do"),
        ({"cmd_data": np.array([{"a": 1}])}, "it holds Python objects, which are never read"),
        ({"weight_data": np.array([1.5])}, "it holds float64, not bytes"),
        ({"weight_region": np.int64(9)}, "there is no region 9"),
        ({"weight_region": np.array([0, 1])}, "it holds int64 in 1 dimensions, not whole numbers in 0"),
        ({"scratch_region": np.int64(0)}, "region 0 is there twice"),
        ({"scratch_size": np.int64(1 << 40)}, "region 1 has 1099511627776 bytes"),
        ({"scratch_size": np.int64(23)}, "its 8 bytes at 16 are outside of region 1, of 23 bytes"),
        ({"output_offset": np.array([-1])}, "its 8 bytes at -1 are outside of region 1"),
        ({"output_region": np.array([0])}, "it is in region 0, where no memory is to be written"),
        ({"output_region": np.array([5])}, "it is in region 5, where no memory is to be written"),
        ({"input_shape": np.array([[1, 0, 4]])}, "its shape is [1, 0, 4]"),
        ({"input_shape": np.array([[1] * 9])}, "its shape is"),
        ({"input_elem_size": np.array([3])}, "elements of 3 bytes are of no known type"),
        ({"input_offset": np.array([0, 0])}, "1 shapes, and others of the rest"),
        ({"input_offset": np.array([0.5])}, "it holds float64 in 1 dimensions, not whole numbers in 1"),
        ({"variable_offset": np.array([16])}, "it has variables"),
    ],
)
def test_a_raw_file_that_is_not_as_it_should_be_is_refused(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(ModelError, match=re.escape(what)) as caught:
        parse_job(raw(**changes), "x.npz")
    assert "x.npz" in str(caught.value)


def archive(member: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as one:
        one.writestr("variable_offset.npy", member)
    return file.getvalue()


def npy(header: str, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    text = header.encode().ljust(54) + b"\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"PK and no more", "it is no .npz"),
        (archive(b""), "it cannot be read"),
        (archive(npy("{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}", bytes(8))), "cut short, or too long"),
        (archive(npy("{'descr': '<i8', 'fortran_order': False, 'shape': (-1,)}")), "cut short, or too long"),
        (archive(npy("{'descr': '<i8', 'fortran_order': False, 'shape': (1<<60,)}")), "it cannot be read"),
        (archive(npy("{}", version=b"\7\0")), "its format has version (7, 0)"),
        (b"", "it is neither Vela's raw output"),
        (b"\x1c\0\0\0TFL9", "it is neither Vela's raw output"),
    ],
)
def test_what_is_no_file_of_vela_is_refused(data: bytes, what: str) -> None:
    with pytest.raises(ModelError, match=re.escape(what)):
        parse_job(data, "x.npz")


def test_a_huge_array_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uma_ethosu_like.network_file.MAX_BYTES", 100)
    with pytest.raises(ModelError, match="it has more than 100 bytes"):
        parse_job(raw(variable_offset=np.zeros(50)), "x.npz")


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="it cannot be read: No such file"):
        read_job(tmp_path / "none.npz")
    file = tmp_path / "x.npz"
    file.write_bytes(raw())
    assert read_job(file) == parse_job(raw(), "")
    monkeypatch.setattr("uma_ethosu_like.network_file.MAX_BYTES", 100)
    with pytest.raises(ModelError, match="it has more than 100 bytes"):
        read_job(file)


def _two_operators(model: Any) -> None:
    model.subgraphs[0].operators *= 2


def _other_operator(model: Any) -> None:
    model.operatorCodes[0].customCode = "ethos-v"


def _few_inputs(model: Any) -> None:
    model.subgraphs[0].operators[0].inputs = [0, 1, 2, 2]


def _float_output(model: Any) -> None:
    model.subgraphs[0].tensors[4].type = schema.TensorType.FLOAT32


def _no_plan(model: Any) -> None:
    model.metadata[0].name = "min_runtime_version"


def _short_plan(model: Any) -> None:
    model.buffers[3].data = model.buffers[3].data[:20]


def _outside(model: Any) -> None:
    model.subgraphs[0].tensors[4].shape = [1, 1, 80]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (_two_operators, "it is not a model that Vela has put into one operator 'ethos-u'"),
        (_other_operator, "it is not a model that Vela has put into one operator 'ethos-u'"),
        (_few_inputs, "the operator has 4 inputs and 1 outputs"),
        (_float_output, "its type is none that the machine has"),
        (_no_plan, "it does not say where in memory inputs and outputs lie"),
        (_short_plan, "the file is malformed"),
        (_outside, "its 80 bytes at 16 are outside of region 1, of 64 bytes"),
    ],
)
def test_a_tflite_that_is_not_as_it_should_be_is_refused(change: Callable[[Any], None], what: str) -> None:
    with pytest.raises(ModelError, match=re.escape(what)):
        parse_job(tflite(change), "x.tflite")


def test_without_the_package_that_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tflite", None)
    with pytest.raises(UsageError, match=re.escape("pip install 'uma-ethosu-like[vela]'")):
        parse_job(tflite(), "x.tflite")


SEEDS = (raw(), tflite(), PAYLOAD)


def test_malformed_files_are_one_error() -> None:
    outcomes = fuzz(lambda data: parse_job(data, "x"), SEEDS, range(300))
    assert outcomes["loaded"] > 10 and outcomes["refused"] > 100


@pytest.mark.soak
def test_more_malformed_files() -> None:
    fuzz(lambda data: parse_job(data, "x"), SEEDS, range(300, 20_000), mutated)


@pytest.mark.soak
@pytest.mark.parametrize("macs", [32, 64, 128, 256])
@pytest.mark.parametrize("name", ["ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8"])
def test_velas_streams_decode_and_encode_to_the_same_words(models: Path, tmp_path: Path, name: str, macs: int) -> None:
    pytest.importorskip("ethosu.vela", reason="ethos-u-vela is not installed")
    jobs = []
    for form, suffix in (("raw", "npz"), ("tflite", "tflite"))[: 2 if macs == 128 else 1]:
        vela = [sys.executable, "-m", "ethosu.vela", f"--accelerator-config=ethos-u55-{macs}", "--output-format", form]
        model = models / "mlperf-tiny" / f"{name}.tflite"
        done = subprocess.run([*vela, "--output-dir", tmp_path, model], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        jobs.append(read_job(tmp_path / f"{name}_vela.{suffix}"))
    words = jobs[0].payload.words
    assert encode([found for _, found in decode(words)]) == list(words)
    for job in jobs:
        assert (job.payload.macs, job.payload.words, job.regions) == (macs, words, jobs[0].regions)
        placed, first = ([(t.region, t.offset, t.nbytes) for t in (*j.inputs, *j.outputs)] for j in (job, jobs[0]))
        assert placed == first
