"""LiteRT with its default delegate, XNNPACK: an invocation of an interpreter whose inputs are set."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from . import Prepared, sample

__all__ = ["LiteRT"]


class LiteRT:
    """One thread."""

    def version(self) -> str | None:
        """None where it is not installed."""
        try:
            import ai_edge_litert
        except ImportError:
            return None
        return str(ai_edge_litert.__version__)

    def prepare(self, path: Path) -> Prepared:
        """Loads it."""
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(model_path=str(path), num_threads=1)
        interpreter.allocate_tensors()
        for detail in interpreter.get_input_details():
            interpreter.set_tensor(detail["index"], sample(detail["shape"], np.dtype(detail["dtype"])))
        return Prepared(interpreter.invoke)
