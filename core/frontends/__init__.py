"""Reading model files of other tools into the graph form."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..errors import ModelError, UsageError
from ..relay.custom_ops import FindImporter, no_importer
from ..support.import_budget import IMPORT_LIMIT
from ..support.regular_files import open_plain, size_of, unreadable
from .dynamic_shapes import AskedShape, read_extent
from .fixed_inputs import Fixed
from .model import MAX_FILE_BYTES, ImportedModel

__all__ = ["ImportedModel", "import_model", "is_tflite"]


def import_model(
    model: str | os.PathLike[str] | bytes,
    *,
    shapes: Mapping[str, AskedShape] | None = None,
    states: Mapping[str, str] | None = None,
    constants: Mapping[str, Fixed] | None = None,
    custom: FindImporter = no_importer,
    hybrid: bool = False,
    import_limit: int = IMPORT_LIMIT,
) -> ImportedModel:
    """Import a model file, TFLite or ONNX, told by its content.

    Args:
        model: path or content of the file. Only with the path are files found that an ONNX model keeps beside it.
        shapes: of inputs whose dimensions the file leaves open, by their names in the file; or one extent of a
            dimension that an ONNX file has a name for. An extent of an ONNX model may be a range, ``"1..128"``:
            what is made then takes every number in it.
        states: inputs that the model keeps itself from one run to the next, and the outputs that are their new values.
        constants: values that inputs are fixed to, which are inputs no more: arrays of their type, or numbers that fill
            them.
        custom: finds importers of operators that are not the core's.
        hybrid: whether to compute layers with float32 data and int8 weights as LiteRT does, which quantises the data
            when the model runs; of TFLite files only. Otherwise the weights are dequantised.
        import_limit: bytes of constants, and scalar operations, for each byte of the model: see
            `uma.support.import_budget`.

    Raises:
        UsageError: there is no such file, it cannot be read, what its format needs is not installed, or ``shapes``,
            ``states``, ``constants`` or ``hybrid`` do not fit it.
        ModelError: the file is empty, too large, malformed, of no known format, or has unsupported operators.
    """
    if isinstance(model, bytes):
        return _import(model, shapes, states or {}, constants or {}, custom, None, hybrid, import_limit)
    path = Path(model)
    data = _read(path)
    try:
        return _import(data, shapes, states or {}, constants or {}, custom, path.parent, hybrid, import_limit)
    except ModelError as error:
        where = str(path) if error.where is None else f"{path}: {error.where}"
        raise ModelError(error.what, where=where, hint=error.hint) from error


def is_tflite(data: bytes) -> bool:
    """Whether a file that begins so says of itself that it is a TFLite file."""
    return data[4:8] == b"TFL3"


def _read(path: Path) -> bytes:
    try:
        with open_plain(path) as file:
            size = size_of(file)
            if size > MAX_FILE_BYTES:
                raise ModelError("the model file is larger than 2 GiB", where=str(path))
            return file.read(size)
    except (OSError, ValueError) as error:  # ValueError: there is a null character in the path
        raise unreadable(path, error) from error


def _import(
    data: bytes,
    shapes: Mapping[str, AskedShape] | None,
    states: Mapping[str, str],
    constants: Mapping[str, Fixed],
    custom: FindImporter,
    folder: Path | None,
    hybrid: bool,
    import_limit: int,
) -> ImportedModel:
    if not data:
        raise ModelError("the model file is empty", hint="download or export it again")
    if is_tflite(data):
        from .tflite import from_tflite

        fixed = _fixed_shapes(shapes or {})
        return from_tflite(
            data,
            shapes=fixed,
            states=states,
            constants=constants,
            custom=custom,
            hybrid=hybrid,
            import_limit=import_limit,
        )
    if hybrid:
        raise UsageError("allow hybrid=litert is for TFLite files, and this is none", hint="leave it out")
    from .onnx import from_onnx

    # ONNX has no mark: protobuf shows what it is by parsing.
    return from_onnx(
        data,
        shapes=shapes,
        states=states,
        constants=constants,
        custom=custom,
        folder=folder,
        import_limit=import_limit,
    )


def _fixed_shapes(shapes: Mapping[str, AskedShape]) -> dict[str, tuple[int, ...]]:
    """Shapes of a file whose dimensions have no names.

    Raises:
        UsageError: an extent is a range.
    """
    numbers: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        dims = [shape] if isinstance(shape, (int, str)) else shape
        read = [read_extent(extent, f"{shape!r}, given for {name!r},") for extent in dims]
        fixed = tuple(extent for extent in read if isinstance(extent, int))
        if len(fixed) < len(read):
            raise UsageError(f"the range given for {name!r} is for ONNX files only", hint="give a number")
        numbers[name] = fixed
    return numbers
