"""The readers that are fuzzed: each with its seeds and its mutations."""

from __future__ import annotations

import atexit
import functools
import io
import random
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests._support.fuzz import Mutate, edited, mutated

import uma

__all__ = ["READERS", "Reader"]


@dataclass(frozen=True)
class Reader:
    """One reader.

    Args:
        seeds: returns files that it reads.
        load: reads a file, given its bytes.
        mutations: of its files.
    """

    seeds: Callable[[], Sequence[bytes]]
    load: Callable[[bytes], Any]
    mutations: tuple[Mutate, ...] = (mutated,)

    def mutant(self, seeds: Sequence[bytes], case: int) -> bytes:
        """File number ``case``: the mutations take turns."""
        return self.mutations[case % len(self.mutations)](seeds, case)


# --- models ----------------------------------------------------------------------------------------------------------


def _load_onnx(data: bytes) -> None:
    from uma.frontends.onnx import from_onnx
    from uma.relay.verify import verify

    verify(from_onnx(data).module)


def _load_tflite(data: bytes) -> None:
    from uma.frontends.tflite import from_tflite
    from uma.relay.verify import verify

    verify(from_tflite(data).module)


@functools.cache
def _onnx_seeds() -> tuple[bytes, ...]:
    """Models of the repository's builder, models of one operator of onnxruntime's, and ONNX's own models of one
    operator, also with their inputs fixed.
    """
    from onnx import numpy_helper
    from tests._support.onnx_suite import load
    from tests.frontends.test_onnx_contributed import CASES, model
    from tests.frontends.test_onnx_fuzz import seeds

    made = [*seeds(), *(model(case(np.random.default_rng(0)), computed=True)[0] for case in CASES.values())]
    for case in load(["node"]):
        made.append(case.model.SerializeToString())
        if case.sets and all(isinstance(array, np.ndarray) for array in case.sets[0][0]):
            model = type(case.model)()
            model.CopyFrom(case.model)
            for value, array in zip(case.inputs, case.sets[0][0], strict=False):  # optional ones are left out
                if value.type.HasField("tensor_type") and array.dtype.kind in "fiub":
                    model.graph.initializer.append(numpy_helper.from_array(array, value.name))
            made.append(model.SerializeToString())
    return tuple(data for data in made if len(data) < 20_000)


_INTEGERS = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 7, 255, 65536, 2**24, 2**31 - 1, 2**31, 2**62, 2**63 - 1)
_REALS = (float("nan"), float("inf"), -1.0, 0.0, 1e-45, 3e38)


def _damaged_onnx(seeds: Sequence[bytes], case: int) -> bytes:
    """A file with a few fields changed, which still parses: see `Mutate`."""
    import onnx

    chance = random.Random(case)
    model = onnx.ModelProto.FromString(chance.choice(seeds))
    graph = model.graph
    sparse = list(graph.sparse_initializer)
    tensors = [*graph.initializer, *(a.t for n in graph.node for a in n.attribute if a.HasField("t"))]
    tensors += [part for tensor in sparse for part in (tensor.values, tensor.indices)]
    attributes = [a for n in graph.node for a in n.attribute]
    types = [value.type.tensor_type for value in (*graph.input, *graph.output)]
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        kind = chance.randrange(10)
        if kind in (0, 1) and attributes:
            attribute = chance.choice(attributes)
            attribute.i, attribute.f = chance.choice(_INTEGERS), chance.choice(_REALS)
            for index in range(len(attribute.ints)):
                attribute.ints[index] = chance.choice((attribute.ints[index], *_INTEGERS))
        elif kind == 2 and attributes:
            chance.choice(attributes).type = chance.randrange(1, 15)
        elif kind == 3 and tensors:
            dims = chance.choice([*tensors, *sparse]).dims
            dims[:] = [chance.choice((d, *_INTEGERS)) for d in dims] if chance.randrange(2) else [*dims, 1]
        elif kind in (4, 5) and tensors:
            _spoil(chance.choice(tensors), chance)
        elif kind == 6 and tensors:
            chance.choice(tensors).data_type = chance.randrange(25)
        elif kind == 7 and types:
            type_ = chance.choice(types)
            if chance.randrange(3):
                for dim in type_.shape.dim:
                    dim.dim_value = chance.choice((dim.dim_value, dim.dim_value, *_INTEGERS))
            else:
                type_.elem_type = chance.randrange(25)
        elif kind == 8 and graph.node:
            node, other = chance.choice(graph.node), chance.choice(graph.node)
            node.input[:] = [*node.input[: chance.randrange(4)], *other.input[chance.randrange(3) :]]
        elif graph.node:
            chance.choice(graph.node).op_type = chance.choice(
                onnx.ModelProto.FromString(chance.choice(seeds)).graph.node
            ).op_type
    return bytes(model.SerializeToString())


def _rewired_onnx(seeds: Sequence[bytes], case: int) -> bytes:
    """A file of another structure: parts of nodes, of shapes and of graphs within nodes are missing or exchanged."""
    import onnx

    chance = random.Random(case)
    model = onnx.ModelProto.FromString(chance.choice(seeds))
    graphs = [model.graph]
    for graph in graphs:
        graphs += [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    nodes = [node for owner in (*graphs, *model.functions) for node in owner.node]
    values = [value for graph in graphs for value in (*graph.input, *graph.output)]
    shapes = [value.type.tensor_type.shape for value in values if value.type.HasField("tensor_type")]
    tensors = [tensor for graph in graphs for tensor in graph.initializer]
    tensors += [a.t for node in nodes for a in node.attribute if a.HasField("t")]
    sparse = [tensor for graph in graphs for tensor in graph.sparse_initializer]
    tensors += [part for tensor in sparse for part in (tensor.values, tensor.indices)]
    names = [name for node in nodes for name in (*node.input, *node.output)]
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        kind = chance.randrange(12)
        if not nodes:
            break
        node = chance.choice(nodes)
        if kind == 0 and node.output:
            del node.output[chance.randrange(len(node.output))]
        elif kind == 1 and node.input:
            del node.input[chance.randrange(len(node.input))]
        elif kind == 2 and node.input:
            node.input[chance.randrange(len(node.input))] = chance.choice(("", *names))
        elif kind == 3 and node.output:
            node.output[chance.randrange(len(node.output))] = chance.choice(("", *names))
        elif kind == 4 and node.attribute:
            del node.attribute[chance.randrange(len(node.attribute))]
        elif kind == 5 and node.attribute:
            ints = chance.choice(node.attribute).ints
            if chance.randrange(2) and ints:
                del ints[chance.randrange(len(ints)) :]
            else:
                ints.append(chance.choice(_INTEGERS))
        elif kind == 6 and shapes:
            dims = chance.choice(shapes).dim
            if chance.randrange(2) and dims:
                del dims[chance.randrange(len(dims))]
            else:
                dims.add().dim_value = chance.choice((1, 2, 3))
        elif kind == 7 and tensors:
            dims = chance.choice([*tensors, *sparse]).dims
            if dims and chance.randrange(2):
                dims[:] = dims[:-1] if dims[-1] == 1 else [*dims, 1]
            else:
                dims.append(chance.choice((0, 1)))
        elif kind == 8 and model.opset_import:
            chance.choice(model.opset_import).version = chance.randrange(0, 30)
        elif kind == 9:
            graph = chance.choice(graphs)
            side = chance.choice((graph.input, graph.output, graph.initializer))
            if side:
                del side[chance.randrange(len(side))]
        elif kind == 10 and values:
            chance.choice(values).type.tensor_type.elem_type = chance.choice((1, 2, 3, 6, 7, 9, 10, 11, 16))
        else:
            other = chance.choice(nodes)
            node.input.extend(other.input)
    return bytes(model.SerializeToString())


_SIZES = (8, 100, 2**10, 2**14, 2**16, 2**20, 2**22, 2**24, 2**26, 2**27, 2**28, 2**31 - 1, 2**40, -1, 0, 1)


def _enlarged_onnx(seeds: Sequence[bytes], case: int) -> bytes:
    """A file with a few sizes changed: dimensions, integers among attributes, elements of small constants."""
    import onnx
    from onnx import numpy_helper

    chance = random.Random(case)
    model = onnx.ModelProto.FromString(chance.choice(seeds))
    graph = model.graph
    initial = {tensor.name for tensor in graph.initializer}
    dims = [
        dim
        for value in (*graph.input, *graph.output)
        if value.name not in initial
        for dim in value.type.tensor_type.shape.dim
    ]
    sparse = list(graph.sparse_initializer)
    tensors = [*graph.initializer, *(a.t for n in graph.node for a in n.attribute if a.HasField("t"))]
    tensors += [part for tensor in sparse for part in (tensor.values, tensor.indices)]
    small = [tensor for tensor in tensors if tensor.data_type in (6, 7) and len(tensor.dims) < 2]
    attributes = [a for n in graph.node for a in n.attribute if a.type in (onnx.AttributeProto.INT, 7)]
    for _ in range(chance.choice((1, 1, 2, 3, 4))):
        kind = chance.randrange(3)
        if kind == 0 and dims:
            chance.choice(dims).dim_value = chance.choice(_SIZES)
        elif kind == 1 and attributes:
            attribute = chance.choice(attributes)
            if attribute.type == onnx.AttributeProto.INT:
                attribute.i = chance.choice(_SIZES)
            elif attribute.ints:
                size = chance.choice(_SIZES)
                for index in (
                    [chance.randrange(len(attribute.ints))] if chance.randrange(2) else range(len(attribute.ints))
                ):
                    attribute.ints[index] = size
        elif small:
            tensor = chance.choice(small)
            try:
                array = numpy_helper.to_array(tensor).copy()
            except (ValueError, TypeError):
                continue  # the seed is malformed on purpose
            if array.size:
                with np.errstate(all="ignore"):
                    size = np.array(chance.choice(_SIZES)).astype(array.dtype)
                array.reshape(-1)[chance.randrange(array.size)] = size
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return bytes(model.SerializeToString())


def _spoil(tensor: Any, chance: random.Random) -> None:
    """Change elements of a tensor."""
    from onnx import numpy_helper

    try:
        array = numpy_helper.to_array(tensor).copy()
    except (ValueError, TypeError, KeyError, AttributeError):
        return  # an earlier change made it none
    if array.size and array.dtype.kind in "iuf" and array.dtype.itemsize > 1:
        numbers = _REALS if array.dtype.kind == "f" else _INTEGERS
        with np.errstate(all="ignore"):
            flat = array.reshape(-1)
            places = [chance.randrange(flat.size)] if chance.randrange(2) else range(min(flat.size, 8))
            for place in places:
                flat[place] = np.array(chance.choice(numbers)).astype(array.dtype)
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(array, name))


@functools.cache
def _tflite_seeds() -> tuple[bytes, ...]:
    """Models of the repository's builder: networks, and several of each operator."""
    from hypothesis import HealthCheck, Phase, given, settings
    from tests._support import (  # noqa: F401 - they register their cases
        tflite_indexed_cases,
        tflite_pairs_cases,
        tflite_picks_cases,
        tflite_recurrent_cases,
        tflite_sparse_cases,
        tflite_window_cases,
    )
    from tests._support.mediapipe import transposed_model
    from tests._support.tflite_cases import CASES
    from tests.frontends.test_tflite_fuzz import seeds

    weight = np.ones((1, 2, 2, 2), np.float32)
    made = [*seeds(), transposed_model((1, 3, 3, 2), weight, np.zeros(1, np.float32), (1, 6, 6, 1))]
    for strategy in CASES.values():

        @settings(
            max_examples=4, database=None, derandomize=True, deadline=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(strategy)
        def keep(case: tuple[bytes, Any]) -> None:
            made.append(case[0])

        keep()
    return tuple(made)


def _damaged_tflite(seeds: Sequence[bytes], case: int) -> bytes:
    """A file with a few aligned numbers of 4 bytes changed, most of which are shapes, options and constants."""
    chance = random.Random(case)
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.choice((1, 1, 2, 4))):
        # Small numbers are extents, options and counts; large ones offsets or weights.
        small = [at for at in range(0, len(data) - 3, 4) if 0 < int.from_bytes(data[at : at + 4], "little") < 64]
        at = chance.choice(small) if small else 0
        number = chance.choice((*_INTEGERS, *_SIZES)) % 2**32
        data[at : at + 4] = number.to_bytes(4, "little")
    return bytes(data)


def _enlarged_tflite(seeds: Sequence[bytes], case: int) -> bytes:
    """A file with a few sizes changed, whose results have any shape: extents, options, elements of small constants."""
    import ai_edge_litert.schema_py_generated as schema
    import flatbuffers

    chance = random.Random(case)
    model = schema.ModelT.InitFromPackedBuf(bytearray(chance.choice(seeds)), 0)
    graph = model.subgraphs[0]
    inputs = [graph.tensors[index] for index in graph.inputs]
    for tensor in graph.tensors:
        if tensor not in inputs and model.buffers[tensor.buffer].data is None and tensor.shape is not None:
            tensor.shapeSignature = [-1] * len(tensor.shape)
    if chance.randrange(2):  # an input is known, so that what is computed of it is too
        for tensor in inputs[: chance.randrange(1, 3)]:
            buffer = schema.BufferT()
            size = int(np.prod(tensor.shape)) * {0: 4, 2: 4, 4: 8, 7: 2, 10: 8}.get(tensor.type, 1)
            buffer.data = np.frombuffer(chance.randbytes(min(size, 4096)), np.uint8)
            model.buffers.append(buffer)
            tensor.buffer = len(model.buffers) - 1
        known = [index for index in graph.inputs if graph.tensors[index].buffer]
        graph.inputs = [index for index in graph.inputs if index not in known]
    numbers = [tensor for tensor in graph.tensors if tensor.buffer and tensor.type in (2, 4)]
    for _ in range(chance.choice((1, 1, 2, 3))):
        kind, size = chance.randrange(3), chance.choice(_SIZES)
        if kind == 0 and inputs and inputs[0].shape is not None:
            shape = list(chance.choice(inputs).shape)
            if shape:
                shape[chance.randrange(len(shape))] = min(size, 2**31 - 1)
                inputs[0].shape = shape
        elif kind == 1:
            options = chance.choice(graph.operators).builtinOptions
            names = [] if options is None else [name for name, value in vars(options).items() if type(value) is int]
            if names:
                setattr(options, chance.choice(names), min(size, 127))
                if chance.randrange(2):
                    setattr(options, chance.choice(names), min(size, 2**31 - 1))
        elif numbers:
            tensor = chance.choice(numbers)
            array = np.array(model.buffers[tensor.buffer].data, np.uint8).copy()
            wide = array.view(np.int32 if tensor.type == 2 else np.int64)
            if wide.size:
                wide[chance.randrange(wide.size)] = min(size, 2**31 - 1)
                model.buffers[tensor.buffer].data = array
    try:
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
    except (TypeError, struct.error, OverflowError):
        return _damaged_tflite(seeds, case)  # a field is narrower than the number
    return bytes(builder.Output())


# --- texts -----------------------------------------------------------------------------------------------------------


@functools.cache
def _dumps() -> tuple[dict[str, tuple[bytes, ...]], dict[str, np.ndarray]]:
    """The text forms of small models, by the name of their reader; and the constants of all of them."""
    from tests._support.small_models import NET, PAIR
    from tests.frontends.test_tflite_fuzz import float_network, quantised_network

    found: dict[str, list[bytes]] = {"relay": [NET.encode(), PAIR.encode()], "tir": [], "program": []}
    constants: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, content in enumerate((NET.encode(), PAIR.encode(), quantised_network(), float_network())):
            model = Path(folder) / f"m{number}{'.tflite' if content[4:8] == b'TFL3' else '.py'}"
            model.write_bytes(content)
            dump = Path(folder) / f"dump{number}"
            uma.build(model, target="c", dump=dump)
            if (dump / "constants.npz").exists():
                with np.load(dump / "constants.npz") as arrays:
                    constants |= dict(arrays)
            for path in sorted(dump.glob("*.py")):
                text = path.read_text()
                kind = "program" if "@program" in text else "tir" if "@prim_func" in text else "relay"
                found[kind].append(text.encode())
    return {kind: tuple(texts) for kind, texts in found.items()}, constants


def _load_module(data: bytes) -> None:
    from uma.relay.text import parse_module, print_module

    _, constants = _dumps()
    module = parse_module(data.decode("utf-8", "replace"), constants)
    print_module(module)
    uma.build(module, target="c")


def _load_program(data: bytes) -> None:
    from uma.program.text import parse_program, print_program

    _, constants = _dumps()
    contents = {name: one.tobytes() for name, one in constants.items()}
    program = parse_program(data.decode("utf-8", "replace"), contents)
    text, blobs = print_program(program)
    assert text.count("@") <= data.count(b"@")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.py"
        path.write_text(text)
        np.savez(path.with_name("constants.npz"), **{name: np.frombuffer(raw, np.uint8) for name, raw in blobs.items()})
        uma.build(path, target="c")


def _extern_seeds() -> tuple[bytes, ...]:
    from tests.relay.test_extern import PLAIN, TEXT

    return TEXT.encode(), PLAIN.encode()


def _load_extern(data: bytes) -> None:
    from tests.relay.test_extern import CONSTANTS

    from uma.relay.text import parse_module, print_module

    print_module(parse_module(data.decode("utf-8", "replace"), CONSTANTS))


# --- records ---------------------------------------------------------------------------------------------------------


@contextmanager
def _file(data: bytes, name: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        yield path


def _load_plan(data: bytes) -> None:
    from uma.partition.collage.saved_plan import SavedPlan

    with _file(data, "plan.json") as path:
        SavedPlan.read(path)


def _load_archive(data: bytes) -> None:
    with _file(data, "net.zip") as path:
        source = uma.load(path).built_from
        assert source is not None
        source.files()


def _load_build_options(data: bytes) -> None:
    from uma.pipeline.rebuild import read_kept_model
    from uma.plugins import default_host

    path, files = _kept()
    artifact = uma.load(path)
    artifact.built_from = _Files({**files, "build.json": data})
    read_kept_model(artifact, default_host())


def _load_trace(data: bytes) -> None:
    from uma.runtime.traces import read_trace

    with _file(data, "device.trace") as path:
        read_trace(path)


@functools.cache
def _plans() -> tuple[bytes, ...]:
    from tests._support.small_models import NET, PAIR

    from uma.cli import main

    made = []
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        for number, text in enumerate((NET, PAIR)):
            model, plan = Path(folder) / f"m{number}.py", Path(folder) / f"plan{number}.json"
            model.write_text(text)
            assert main(["plan", str(model), "--target", "c", "-o", str(plan)]) == 0
            made.append(plan.read_bytes())
    return tuple(made)


@functools.cache
def _archives() -> tuple[bytes, ...]:
    from tests._support.scale_artifact import FILES, METADATA, artifact_of

    with tempfile.TemporaryDirectory() as folder:
        return artifact_of(FILES, METADATA).save(Path(folder) / "scale.zip").read_bytes(), _kept()[0].read_bytes()


@dataclass(frozen=True)
class _Files:
    """What an artifact was built from, by the files of its folder ``model``."""

    content: dict[str, bytes]

    def files(self) -> dict[str, bytes]:
        return self.content


@functools.cache
def _kept() -> tuple[Path, dict[str, bytes]]:
    """An archive of a small artifact, and the files of the model that it keeps."""
    from tests._support.small_models import PAIR

    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "pair.py").write_text(PAIR)
    built = uma.build(folder / "pair.py", "c -mcpu=x86-64")
    assert built.built_from is not None
    return built.save(folder / "pair.zip"), dict(built.built_from.files())


def _traces() -> tuple[bytes, ...]:
    from tests.runtime.test_traces import GOOD, ended

    return ("".join(ended(GOOD)).encode(),)


READERS: dict[str, Reader] = {
    "onnx": Reader(_onnx_seeds, _load_onnx, (_damaged_onnx, _enlarged_onnx, mutated, _rewired_onnx)),
    "tflite": Reader(_tflite_seeds, _load_tflite, (_damaged_tflite, _enlarged_tflite, mutated, _enlarged_tflite)),
    "relay": Reader(lambda: _dumps()[0]["relay"], _load_module, (edited, edited, edited, mutated)),
    "tir": Reader(lambda: _dumps()[0]["tir"], _load_module, (edited, edited, edited, mutated)),
    "program": Reader(lambda: _dumps()[0]["program"], _load_program, (edited, edited, edited, mutated)),
    "extern": Reader(_extern_seeds, _load_extern, (edited, edited, edited, mutated)),
    "plan": Reader(_plans, _load_plan, (edited, mutated)),
    "archive": Reader(_archives, _load_archive),
    "build options": Reader(lambda: (_kept()[1]["build.json"],), _load_build_options, (edited, mutated)),
    "trace": Reader(_traces, _load_trace, (edited, mutated)),
}
"""By name."""
