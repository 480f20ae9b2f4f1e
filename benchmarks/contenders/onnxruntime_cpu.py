"""onnxruntime on the CPU, with its default optimisations: a run with inputs and outputs bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..nets import unsigned
from . import Prepared, sample

__all__ = ["Onnxruntime"]

_DTYPES = {"float": "float32", "double": "float64"}


class Onnxruntime:
    """One thread, tensors in its own memory.

    Args:
        unsigned: take quantised models alone, and those as unsigned bytes.
    """

    def __init__(self, *, unsigned: bool = False) -> None:
        self._unsigned = unsigned

    def version(self) -> str | None:
        """None where it is not installed."""
        try:
            import onnxruntime
        except ImportError:
            return None
        return str(onnxruntime.__version__)

    def prepare(self, path: Path) -> Prepared | None:
        """Loads it, and runs it once to know the outputs' shapes."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # Products of float32 by weights of four bits are of float32, as the model says: by default data become int8.
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
        model = str(path)
        if self._unsigned:
            changed = unsigned(path)
            if changed is None:
                return None
            model = changed.SerializeToString()
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        given = {}
        for tensor in session.get_inputs():
            kind = tensor.type.removeprefix("tensor(").removesuffix(")")
            given[tensor.name] = sample(tensor.shape, np.dtype(_DTYPES.get(kind, kind)))
        names = [tensor.name for tensor in session.get_outputs()]
        made = session.run(names, given)
        binding = session.io_binding()
        kept = []  # what is bound is these arrays' memory
        for bind, values in (
            (binding.bind_ortvalue_input, given.items()),
            (binding.bind_ortvalue_output, zip(names, made, strict=True)),
        ):
            for name, array in values:
                kept.append(onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(array)))
                bind(name, kept[-1])

        def call(_: object = kept) -> None:
            session.run_with_iobinding(binding)

        return Prepared(call)
