"""The operators of model files."""

from __future__ import annotations

from collections.abc import Iterable

from uma.frontends.onnx.convert import CONVERTERS
from uma.frontends.onnx.fold import FOLDERS
from uma.frontends.tflite.convert import OPERATORS
from uma.frontends.tflite.known import KNOWN
from uma.frontends.tflite.variables import VARIABLE_OPERATORS

from .markdown import code, heading

__all__ = ["page"]


def page() -> str:
    """``models``."""
    return "\n".join(
        [
            heading(1, "Operators of model files"),
            "What the front-ends read. Not every form of each is supported: `uma build` lists the layers of a model "
            "that cannot be imported, with the reason, and so does `uma explain`. A plugin may bring operators of its "
            "own.\n",
            heading(2, "TFLite"),
            _listed({*OPERATORS, *VARIABLE_OPERATORS} - {*KNOWN}),
            "Of what is known when the model is read, as shapes are, also:\n",
            _listed(KNOWN),
            heading(2, "ONNX"),
            _listed(CONVERTERS),
            "Of what is known when the model is read, as shapes and weights are, also:\n",
            _listed({*FOLDERS} - {*CONVERTERS}),
        ]
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(code, sorted(names))) + "\n"
