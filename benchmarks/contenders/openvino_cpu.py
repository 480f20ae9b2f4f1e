"""OpenVINO on the CPU, its floats kept float32: a request with inputs bound, whose outputs are not copied."""

from __future__ import annotations

from pathlib import Path

from . import Prepared, sample

__all__ = ["OpenVINO"]

_HOW = {
    "INFERENCE_NUM_THREADS": 1,
    "NUM_STREAMS": 1,
    "PERFORMANCE_HINT": "LATENCY",
    "INFERENCE_PRECISION_HINT": "f32",  # else bfloat16 where the CPU has that
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,  # else data become int8 where weights have 4 or 8 bits
}


class OpenVINO:
    """One thread, one stream."""

    def version(self) -> str | None:
        """None where it is not installed."""
        try:
            import openvino
        except ImportError:
            return None
        return str(openvino.__version__)

    def prepare(self, path: Path) -> Prepared:
        """Loads and compiles it."""
        import openvino

        core = openvino.Core()
        compiled = core.compile_model(core.read_model(path), "CPU", _HOW)
        request = compiled.create_infer_request()
        for index, tensor in enumerate(compiled.inputs):
            given = sample(tuple(tensor.shape), tensor.element_type.to_dtype())
            request.set_input_tensor(index, openvino.Tensor(given))
        # Of infer(), infer(share_outputs=True) and start_async() with wait(), the second costs least.
        return Prepared(lambda: request.infer(share_outputs=True))
