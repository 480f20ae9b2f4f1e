"""What is measured: real models, models of our own, random layers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import onnx

from .contenders import Format
from .contenders.litert_xnnpack import LiteRT
from .families import Family
from .layers import Layer
from .nets import NETS
from .networks import NETWORKS
from .tflite_op import Tensor, one_op

__all__ = ["EMPTY", "OWN", "REAL", "Case", "family_cases", "models_folder", "own_cases", "real_cases", "sweep_cases"]

ROOT = Path(__file__).resolve().parent.parent

EMPTY = "empty"

_TINY, _TINY_ONNX, _OTHERS = "mlperf-tiny", "mlperf-tiny-onnx", "others"

REAL: Mapping[str, tuple[str | None, str | None]] = MappingProxyType(
    {
        "ad_int8": (f"{_TINY}/ad01_int8.tflite", f"{_TINY_ONNX}/ad_int8.onnx"),
        "kws_int8": (f"{_TINY}/kws_ref_model.tflite", f"{_TINY_ONNX}/kws_int8.onnx"),
        "resnet8_int8": (f"{_TINY}/pretrainedResnet_quant.tflite", f"{_TINY_ONNX}/resnet8_int8.onnx"),
        "vww_int8": (f"{_TINY}/vww_96_int8.tflite", f"{_TINY_ONNX}/vww_int8.onnx"),
        "ad_fp32": (f"{_TINY}/ad01_fp32.tflite", f"{_TINY_ONNX}/ad_fp32.onnx"),
        "kws_fp32": (f"{_TINY}/kws_ref_model_float32.tflite", f"{_TINY_ONNX}/kws_fp32.onnx"),
        "resnet8_fp32": (f"{_TINY}/pretrainedResnet.tflite", f"{_TINY_ONNX}/resnet8_fp32.onnx"),
        "vww_fp32": (f"{_TINY}/vww_96_float.tflite", f"{_TINY_ONNX}/vww_fp32.onnx"),
        "okay_nabu": (f"{_OTHERS}/okay_nabu.tflite", None),
        "silero": (None, f"{_OTHERS}/silero_vad_static.onnx"),
    }
)
"""Files of real models, as TFLite and as ONNX."""

_MADE = {**NETS, **NETWORKS}

OWN = tuple(name for name in _MADE if name != EMPTY)
"""The models of our own."""


@dataclass(frozen=True)
class Case:
    """One model.

    Args:
        name: by which it is asked for.
        files: by format.
        macs: multiply-accumulates, where they are known beforehand.
    """

    name: str
    files: Mapping[Format, Path]
    macs: int | None = None


def models_folder() -> Path:
    """Where real models are: ``$UMA_MODELS``, else ``../shared/models`` beside the checkout, as for the tests."""
    return Path(os.environ.get("UMA_MODELS") or ROOT.parent / "shared" / "models")


def real_cases(names: Iterable[str]) -> list[Case]:
    """The real models of these names that are there."""
    found = []
    for name in names:
        formats: tuple[Format, Format] = ("tflite", "onnx")
        files = {f: models_folder() / path for f, path in zip(formats, REAL[name], strict=True) if path is not None}
        if all(path.is_file() for path in files.values()):
            found.append(Case(name, files))
    return found


def own_cases(names: Iterable[str], folder: Path) -> list[Case]:
    """Models of our own, `EMPTY` among them, written to a folder."""
    made = []
    for name in names:
        files: dict[Format, Path] = {"onnx": _written(_MADE[name](), folder / f"{name}.onnx")}
        if name == EMPTY and LiteRT().version() is not None:
            files["tflite"] = folder / f"{name}.tflite"
            files["tflite"].write_bytes(one_op("RELU", None, [Tensor((1, 16))], Tensor((1, 16))))
        made.append(Case(name, files))
    return made


def sweep_cases(layers: Iterable[Layer], folder: Path) -> list[Case]:
    """Random layers, written to a folder: as ONNX, and where LiteRT is installed, as TFLite."""
    made = []
    for number, layer in enumerate(layers):
        files: dict[Format, Path] = {"onnx": _written(layer.model(), folder / f"layer{number}.onnx")}
        if LiteRT().version() is not None:
            files["tflite"] = folder / f"layer{number}.tflite"
            files["tflite"].write_bytes(layer.tflite())
        made.append(Case(layer.name, files, layer.macs))
    return made


def family_cases(layers: Iterable[Family], folder: Path) -> list[Case]:
    """Layers of families of ops, written to a folder as ONNX."""
    return [
        Case(layer.name, {"onnx": _written(layer.model(), folder / f"family{number}.onnx")})
        for number, layer in enumerate(layers)
    ]


def _written(model: onnx.ModelProto, path: Path) -> Path:
    onnx.save(model, path)
    return path
