"""A model that runs on the machine, and nothing else, as it stands in a file.

`read_job` reads a payload alone, what Vela, Arm's compiler, writes with ``--output-format raw`` (an ``.npz``), or its
``.tflite`` with all of the model in one operator ``ethos-u``. Files are hostile: what is not as it should be is one
`ModelError`. Arrays of Python objects, which raw files have for the quantisation of inputs and outputs, are never read:
that would run code.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uma.errors import ModelError, UsageError

from .commands import REGIONS
from .payload import MAGIC, Payload, read_payload

if TYPE_CHECKING:
    import numpy as np

__all__ = ["MAX_BYTES", "Job", "Region", "Tensor", "parse_job", "raw_payload", "read_job"]

MAX_BYTES = 1 << 30
"""Of a file, of an array in it, and of a region: more than any machine of this size is given."""

MAX_TENSORS = 64
"""Inputs of a model, or outputs."""


@dataclass(frozen=True)
class Region:
    """Memory that a stream names by its number.

    Args:
        nbytes: its size.
        data: what it holds, where it may only be read; None where it is the machine's to work in.
    """

    nbytes: int
    data: bytes | None = None


@dataclass(frozen=True)
class Tensor:
    """An input or output of a model, in one of its regions.

    Args:
        name: of the tensor; ``input0``, ``output1``, ... where the file has none.
        shape: its extents.
        dtype: ``int8``, ``uint8``, ``int16`` or ``int32``. A raw file says the size only: there it is a signed one.
        region, offset: where it lies, the offset in bytes.
        scale, zero_point: real = scale * (stored - zero_point); None where the file does not say.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    region: int
    offset: int
    scale: float | None = None
    zero_point: int | None = None

    @property
    def nbytes(self) -> int:
        """Its size."""
        return _product(self.shape) * _BYTES[self.dtype]


@dataclass(frozen=True)
class Job:
    """All that it takes to run a model: a stream, its memory, and where inputs and outputs lie in it.

    Args:
        payload: the stream.
        regions: by number; none of a payload alone, which can be shown and not run.
        inputs, outputs: in the order of the model.
    """

    payload: Payload
    regions: Mapping[int, Region] = field(default_factory=dict)
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()


_BYTES = {"int8": 1, "uint8": 1, "int16": 2, "int32": 4}


def read_job(file: Path) -> Job:
    """What is in a file: told by its content.

    Raises:
        UsageError: it cannot be read, or is a ``.tflite`` and the package that reads these is not installed.
        ModelError: it is none of the three, or is malformed.
    """
    where = str(file)
    try:
        if file.stat().st_size > MAX_BYTES:
            raise ModelError(f"it has more than {MAX_BYTES} bytes", where=where)
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"it cannot be read: {error.strerror}", where=where) from error
    return parse_job(data, where)


def parse_job(data: bytes, where: str) -> Job:
    """What the bytes of a file hold; ``where`` is its name, for errors.

    Raises:
        UsageError, ModelError: as of `read_job`.
    """
    if data[:2] == b"PK":
        return _read_raw(data, where)
    if data[4:8] == b"TFL3":
        return _read_tflite(data, where)
    if data[:3] == MAGIC[:3]:
        return Job(read_payload(data, where))
    raise ModelError(
        "it is neither Vela's raw output (.npz), nor a .tflite, nor a payload", where=where, hint="vela MODEL.tflite"
    )


def raw_payload(data: bytes, where: str) -> bytes:
    """The payload in Vela's raw output, for whichever machine of the family it is.

    Raises:
        ModelError: it is not a raw output.
    """
    return _archive(data, where).bytes("cmd_data")


def _checked(job: Job, where: str) -> Job:
    """The same, if regions are there and hold what lies in them."""
    for number, region in job.regions.items():
        if not 0 <= number < REGIONS:
            raise ModelError(f"there is no region {number}", where=where, hint=f"0 to {REGIONS - 1}")
        if not 0 <= region.nbytes <= MAX_BYTES:
            raise ModelError(f"region {number} has {region.nbytes} bytes, not up to {MAX_BYTES}", where=where)
    for tensor in (*job.inputs, *job.outputs):
        here = f"{where}, tensor {tensor.name!r}"
        if any(not 0 < extent <= MAX_BYTES for extent in tensor.shape) or len(tensor.shape) > 8:
            raise ModelError(f"its shape is {list(tensor.shape)}", where=here)
        memory = job.regions.get(tensor.region)
        if memory is None or memory.data is not None:
            raise ModelError(f"it is in region {tensor.region}, where no memory is to be written", where=here)
        if not 0 <= tensor.offset <= memory.nbytes - tensor.nbytes:
            raise ModelError(
                f"its {tensor.nbytes} bytes at {tensor.offset} are outside of region {tensor.region}, "
                f"of {memory.nbytes} bytes",
                where=here,
            )
    return job


def _product(shape: Sequence[int]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


# --- Raw files -------------------------------------------------------------------------------------------------------

_BAD_ARCHIVE = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, RuntimeError, NotImplementedError)
# NotImplementedError is an unknown compression, RuntimeError an encrypted member, ValueError a malformed array.


@dataclass(frozen=True)
class _Archive:
    """The arrays of an ``.npz``."""

    members: zipfile.ZipFile
    where: str

    def array(self, name: str) -> np.ndarray:
        """One of its arrays. No pickles."""
        import numpy as np

        here = f"{self.where}, array {name!r}"
        try:
            entry = self.members.getinfo(f"{name}.npy")
        except KeyError:
            hint = "vela MODEL.tflite --output-format raw"
            raise ModelError("there is no such array", where=here, hint=hint) from None
        try:
            if entry.file_size > MAX_BYTES:
                raise ValueError(f"it has more than {MAX_BYTES} bytes")
            file = io.BytesIO(self.members.read(entry))
            version = np.lib.format.read_magic(file)
            header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            if version not in header:
                raise ValueError(f"its format has version {version}")
            shape, _, dtype = header[version](file)
            if dtype.hasobject:
                raise ValueError("it holds Python objects, which are never read")
            rest = file.read()
            if any(extent < 0 for extent in shape) or _product(shape) * dtype.itemsize != len(rest):
                raise ValueError("it is cut short, or too long")
            return np.frombuffer(rest, dtype).reshape(shape) if rest else np.zeros(shape, dtype)
        except _BAD_ARCHIVE as error:
            raise ModelError(f"it cannot be read: {error}", where=here) from error

    def bytes(self, name: str) -> bytes:
        """One that holds bytes: a byte string, whose zeros at the end numpy would leave out, or numbers of 8 bits."""
        array = self.array(name)
        if array.dtype.kind not in "SiuV" or (array.dtype.kind in "iu" and array.dtype.itemsize != 1):
            raise ModelError(f"it holds {array.dtype}, not bytes", where=f"{self.where}, array {name!r}")
        return array.tobytes()

    def numbers(self, name: str, rank: int) -> list[Any]:
        """One of so many dimensions that holds whole numbers."""
        array = self.array(name)
        if array.ndim != rank or (array.size and array.dtype.kind not in "iu"):
            raise ModelError(
                f"it holds {array.dtype} in {array.ndim} dimensions, not whole numbers in {rank}",
                where=f"{self.where}, array {name!r}",
            )
        values: Any = array.tolist()
        return [values] if rank == 0 else values

    def tensors(self, prefix: str) -> tuple[Tensor, ...]:
        """The inputs, or the outputs."""
        shapes = self.numbers(f"{prefix}_shape", 2)
        rest = [self.numbers(f"{prefix}_{name}", 1) for name in ("elem_size", "region", "offset")]
        here = f"{self.where}, arrays {prefix!r}_*"
        if any(len(one) != len(shapes) for one in rest) or len(shapes) > MAX_TENSORS:
            raise ModelError(f"{len(shapes)} shapes, and others of the rest", where=here)
        tensors = []
        for number, (shape, size, region, offset) in enumerate(zip(shapes, *rest, strict=True)):
            dtype = {1: "int8", 2: "int16", 4: "int32"}.get(size)
            if dtype is None:
                raise ModelError(f"elements of {size} bytes are of no known type", where=here)
            tensors.append(Tensor(f"{prefix}{number}", tuple(shape), dtype, region, offset))
        return tuple(tensors)


def _archive(data: bytes, where: str) -> _Archive:
    try:
        return _Archive(zipfile.ZipFile(io.BytesIO(data)), where)
    except _BAD_ARCHIVE as error:
        raise ModelError(f"it is no .npz: {error}", where=where) from error


def _read_raw(data: bytes, where: str) -> Job:
    archive = _archive(data, where)
    if archive.array("variable_offset").size:
        raise ModelError("it has variables, which keep their values between runs: not supported", where=where)
    weights = archive.bytes("weight_data")
    [region] = archive.numbers("weight_region", 0)
    regions = {region: Region(len(weights), weights)}
    for name in ("scratch", "scratch_fast"):
        [nbytes], [region] = archive.numbers(f"{name}_size", 0), archive.numbers(f"{name}_region", 0)
        if nbytes and region in regions:
            raise ModelError(f"region {region} is there twice", where=f"{where}, array '{name}_region'")
        if nbytes:
            regions[region] = Region(nbytes)
    payload = read_payload(archive.bytes("cmd_data"), f"{where}, array 'cmd_data'")
    return _checked(Job(payload, regions, archive.tensors("input"), archive.tensors("output")), where)


# --- TFLite files ----------------------------------------------------------------------------------------------------

_BAD_FLATBUFFER = (struct.error, IndexError, TypeError, ValueError, OverflowError, AttributeError)
# What reading outside of the file, or what is not an offset, number or vector, ends in; the accessors check nothing.

_DTYPES = {2: "int32", 3: "uint8", 7: "int16", 9: "int8"}
"""By the schema's numbers."""


def _read_tflite(data: bytes, where: str) -> Job:
    try:
        import tflite
    except ImportError as error:
        raise UsageError(
            "reading a .tflite takes the package tflite, which is not installed",
            where=where,
            hint="pip install 'uma-ethosu-like[vela]', or vela MODEL.tflite --output-format raw",
        ) from error
    try:
        return _checked(_job_of(tflite.Model.GetRootAsModel(data, 0), where), where)
    except _BAD_FLATBUFFER as error:
        raise ModelError(f"the file is malformed: {error}", where=where) from error


def _job_of(model: Any, where: str) -> Job:
    graph = model.Subgraphs(0)
    one = graph.OperatorsLength() == 1 and model.SubgraphsLength() == 1
    code = model.OperatorCodes(graph.Operators(0).OpcodeIndex()).CustomCode() if one else None
    if code != b"ethos-u":
        raise ModelError(
            "it is not a model that Vela has put into one operator 'ethos-u'",
            where=where,
            hint="compile it with Vela; what Vela leaves to a CPU does not run here",
        )
    operator = graph.Operators(0)
    inputs, outputs = operator.InputsAsNumpy().tolist(), operator.OutputsAsNumpy().tolist()
    if not 5 <= len(inputs) <= 4 + MAX_TENSORS or not 1 <= len(outputs) <= MAX_TENSORS:
        raise ModelError(f"the operator has {len(inputs)} inputs and {len(outputs)} outputs", where=where)
    stream, weights, scratch, fast, *arguments = inputs
    payload = read_payload(_constant(model, graph, stream), f"{where}, tensor {stream}")
    constants = _constant(model, graph, weights)
    offsets = _arena_offsets(model, where)
    regions = {0: Region(len(constants), constants), 1: Region(_elements(graph, scratch))}
    if fast != scratch:
        regions[2] = Region(_elements(graph, fast))

    def placed(number: int) -> Tensor:
        tensor = graph.Tensors(number)
        name = (tensor.Name() or b"").decode("utf-8", "replace") or f"tensor{number}"
        dtype = _DTYPES.get(tensor.Type())
        if dtype is None:
            raise ModelError("its type is none that the machine has", where=f"{where}, tensor {name!r}")
        quantisation = tensor.Quantization()
        has_scale = quantisation is not None and quantisation.ScaleLength() == 1 and quantisation.ZeroPointLength() == 1
        return Tensor(
            name,
            tuple(tensor.ShapeAsNumpy().tolist()) if tensor.ShapeLength() else (),
            dtype,
            1,
            offsets[number] - offsets[scratch],
            float(quantisation.Scale(0)) if has_scale else None,
            int(quantisation.ZeroPoint(0)) if has_scale else None,
        )

    return Job(payload, regions, tuple(map(placed, arguments)), tuple(map(placed, outputs)))


def _constant(model: Any, graph: Any, number: int) -> bytes:
    buffer = model.Buffers(graph.Tensors(number).Buffer())
    return bytes(buffer.DataAsNumpy()) if buffer.DataLength() else b""


def _elements(graph: Any, number: int) -> int:
    return _product(graph.Tensors(number).ShapeAsNumpy().tolist())


def _arena_offsets(model: Any, where: str) -> list[int]:
    """Where in the arena tensors lie, by their numbers, as Vela has planned it."""
    for index in range(min(model.MetadataLength(), MAX_TENSORS)):
        entry = model.Metadata(index)
        if entry.Name() == b"OfflineMemoryAllocation":
            buffer = model.Buffers(entry.Buffer())
            numbers: list[int] = buffer.DataAsNumpy().view("<i4").tolist()
            return numbers[3 : 3 + numbers[2]]
    raise ModelError("it does not say where in memory inputs and outputs lie (OfflineMemoryAllocation)", where=where)
