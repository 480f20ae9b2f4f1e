"""The real models that tests know, and what is built of them for the plain host, once for all tests of a process."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import uma
from uma.artifact import Artifact

__all__ = ["FILES", "FLOAT", "INT8", "artifact_of", "built"]

INT8 = {
    "ad": "ad01_int8.tflite",
    "kws": "kws_ref_model.tflite",
    "resnet8": "pretrainedResnet_quant.tflite",
    "vww": "vww_96_int8.tflite",
}
FLOAT = {
    "ad": "ad01_fp32.tflite",
    "kws": "kws_ref_model_float32.tflite",
    "resnet8": "pretrainedResnet.tflite",
    "vww": "vww_96_float.tflite",
}
FILES = {
    **{f"{name}_int8_tflite": f"mlperf-tiny/{file}" for name, file in INT8.items()},
    **{f"{name}_fp32_tflite": f"mlperf-tiny/{file}" for name, file in FLOAT.items()},
    **{f"{name}_int8_onnx": f"mlperf-tiny-onnx/{name}_int8.onnx" for name in INT8},
    **{f"{name}_fp32_onnx": f"mlperf-tiny-onnx/{name}_fp32.onnx" for name in FLOAT},
}
"""The MLPerf Tiny models in both formats, by a name that tells which."""


@cache
def built(path: Path, name: str) -> Artifact:
    """The artifact of a model; modest optimisation keeps the tests quick and changes no integer."""
    return uma.build(path, "c -opt=2", name=name)


def artifact_of(models: Path, name: str) -> Artifact:
    """The artifact of one of `FILES` in the folder ``models``."""
    return built(models / FILES[name], name)
