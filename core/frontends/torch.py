"""Programs of PyTorch, through PyTorch's own exporter to ONNX."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import ModelError, UsageError
from ..support.distribution import extra_hint
from ..support.suppress_logging import suppress_logging

__all__ = ["exported_content", "is_exported"]


def is_exported(model: object) -> bool:
    """Whether it is a ``torch.export.ExportedProgram``; torch is not imported for that."""
    class_ = type(model)
    return class_.__name__ == "ExportedProgram" and class_.__module__.partition(".")[0] == "torch"


def exported_content(program: Any) -> bytes:
    """The ONNX file that ``torch.onnx.export`` makes of an exported program, with its weights in it.

    Dimensions have the names of their ``torch.export.Dim``, which the exporter replaces with symbols of its own. A
    program that was loaded from a file has no names.

    Args:
        program: what `is_exported` is true of.

    Raises:
        UsageError: what the exporter needs is not installed.
        ModelError: the program changes its buffers or inputs, the exporter does not take it, or it is too large for a
            file.
    """
    try:
        import onnxscript  # noqa: F401 - whether it is there
        from torch.onnx import export
    except ImportError as error:
        message = (
            f"exporting a program of PyTorch needs the package {error.name or 'onnxscript'!r}, which is not installed"
        )
        raise UsageError(message, hint=extra_hint("torch", "torch onnxscript onnx")) from error
    try:
        with suppress_logging():
            # Only without operations in place does its signature say what it changes.
            signature = program.run_decompositions({}).graph_signature
            changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
            exported: Any = None if changed else export(program, dynamo=True, verbose=False)
            proto = None if exported is None else exported.model_proto
            if proto is not None:
                _name_dimensions(proto.graph, _dimension_names(program))
            content: bytes = b"" if proto is None else proto.SerializeToString(deterministic=True)
    except MemoryError:
        raise
    except Exception as error:  # whatever the exporter, or protobuf, raises
        lines = str(error).strip().splitlines() or [type(error).__name__]
        message = f"PyTorch's exporter does not take the program: {lines[0][:300]}"
        hint = "torch.onnx.export(program, dynamo=True) tells more; above 2 GiB: save the ONNX file, and give its path"
        raise ModelError(message, hint=hint) from error
    if changed:
        message = f"the program changes what it keeps: {', '.join(map(repr, changed))}"
        hint = "make it an input and an output of forward, which states= pairs; or export the model after eval()"
        raise ModelError(message, hint=hint)
    return content


def _dimension_names(program: Any) -> dict[str, str]:
    """Return the names of ``torch.export.Dim`` by the symbols, or expressions of symbols, of the program's shapes.

    torch has no public interface to them; empty where its shape environment keeps them otherwise.
    """
    for node in program.graph.nodes:
        environment: Any = getattr(getattr(node.meta.get("val"), "fake_mode", None), "shape_env", None)
        names = getattr(environment, "source_name_to_debug_name", None)
        symbols = getattr(environment, "source_to_var", None)
        if environment is not None and names and symbols:
            return {str(environment.replace(symbols[key])): str(names[key]) for key in names if key in symbols}
    return {}


def _name_dimensions(graph: Any, names: Mapping[str, str]) -> None:
    """Rename the dimensions of an ONNX graph: whole names first, else the symbols in them."""
    values = [*graph.input, *graph.output, *graph.value_info]
    dims = [dim for value in values for dim in value.type.tensor_type.shape.dim if dim.dim_param]
    other_names = {dim.dim_param for dim in dims} - set(names)
    renamed = {symbol: name for symbol, name in names.items() if name not in other_names}
    for dim in dims:
        inner = re.sub(r"\w+", lambda match: renamed.get(match[0], match[0]), dim.dim_param)
        dim.dim_param = renamed.get(dim.dim_param, inner)
