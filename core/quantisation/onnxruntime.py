"""onnxruntime's quantiser: what it is told, and what it gives."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ModelError, UsageError
from ..support.distribution import extra_hint
from ..support.interruptible import call_interruptibly
from ..support.suppress_logging import suppress_logging
from ..targets import QuantisedForm
from .scales import Chosen

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto

__all__ = ["check_installed", "measured_ranges", "prepared", "quantised"]

_OPSET = 13
"""The first in which weights have a scale for each channel."""

_Sample = Mapping[str, "np.ndarray"]


def check_installed() -> None:
    """UsageError where the quantiser is not installed."""
    try:
        import onnxruntime.quantization  # noqa: F401 - whether it is there
    except ImportError as error:
        message = "models are quantised by onnxruntime, which is not installed, or not its quantiser"
        raise UsageError(message, hint=extra_hint("quantize", "onnxruntime onnx")) from error


def prepared(model: ModelProto) -> ModelProto:
    """The model as the quantiser wants it: of an opset that has scales for each channel, constants folded,
    normalisations in the convolutions before them, shapes known where they can be.

    Raises:
        ModelError: onnxruntime does not take it.
    """
    import onnx
    import onnx.version_converter
    from onnxruntime.quantization import quant_pre_process

    with _working_folder() as folder:
        path, prepared_path = folder / "float.onnx", folder / "prepared.onnx"
        opset = min((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=_OPSET)
        onnx.save(model if opset >= _OPSET else onnx.version_converter.convert_version(model, _OPSET), path)
        call_interruptibly(lambda: quant_pre_process(path, prepared_path, skip_symbolic_shape=True))
        return onnx.load(prepared_path)


def measured_ranges(model: ModelProto, samples: Sequence[_Sample]) -> dict[str, tuple[float, float]]:
    """The least and the largest value of each float tensor over the samples.

    Raises:
        ModelError: onnxruntime does not run it.
    """
    import numpy as np
    import onnx
    from onnxruntime.quantization import CalibrationMethod, create_calibrator

    with _working_folder() as folder:
        path = folder / "float.onnx"
        onnx.save(model, path)
        calibrator = create_calibrator(
            path, augmented_model_path=str(folder / "measured.onnx"), calibrate_method=CalibrationMethod.MinMax
        )
        call_interruptibly(lambda: calibrator.collect_data(_reader(samples)))
        ranges = calibrator.compute_data()
    ends = {name: ranges[name].range_value for name in sorted(ranges.keys())}
    return {name: (float(np.min(low)), float(np.max(high))) for name, (low, high) in ends.items()}


def quantised(
    model: ModelProto, samples: Sequence[_Sample], form: QuantisedForm, chosen: Chosen | None, excluded: Sequence[str]
) -> bytes:
    """The model in the QDQ form, with activations and weights of int8.

    Args:
        model: `prepared`.
        samples: what it is calibrated with.
        form: what accelerators ask for.
        chosen: scales that are given, not measured.
        excluded: nodes that stay in float.

    Raises:
        ModelError: onnxruntime does not take it.
    """
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    options: dict[str, Any] = {"ActivationSymmetric": form.symmetric, "WeightSymmetric": True}
    if chosen is not None:
        options["TensorQuantOverrides"] = _overrides(chosen)
        # Scales that are given need not end where a limit does; and they leave room for biases.
        options["QDQKeepRemovableActivations"] = options["QDQDisableWeightAdjustForInt32Bias"] = True
    with _working_folder() as folder:
        path, quantised_path = folder / "float.onnx", folder / "quantised.onnx"
        onnx.save(model, path)
        quantise = functools.partial(
            quantize_static,
            path,
            quantised_path,
            _reader(samples),
            quant_format=QuantFormat.QDQ,
            per_channel=form.per_channel,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=list(excluded),
            extra_options=options,
        )
        call_interruptibly(quantise)
        content: bytes = onnx.load(quantised_path).SerializeToString(deterministic=True)
        return content


def _overrides(chosen: Chosen) -> dict[str, list[dict[str, Any]]]:
    import numpy as np
    from onnxruntime.quantization import QuantType

    def override(scale: float, zero_point: int, **more: int) -> dict[str, Any]:
        numbers = {"scale": np.array(scale, np.float32), "zero_point": np.array(zero_point, np.int8)}
        return {"quant_type": QuantType.QInt8, **numbers, **more}

    options = {name: [override(step.scale, step.zero_point)] for name, step in chosen.activations.items()}
    for name, scales in chosen.weights.items():
        axis = {"axis": chosen.axes[name]} if name in chosen.axes else {}
        options[name] = [override(scale, 0, **axis) for scale in scales]
    return options


def _reader(samples: Sequence[_Sample]) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # it has no types
        def __init__(self) -> None:
            self._left: Iterator[_Sample] = iter(samples)

        def get_next(self) -> dict[str, np.ndarray] | None:
            sample = next(self._left, None)
            return None if sample is None else dict(sample)

    return Reader()


@contextmanager
def _working_folder() -> Iterator[Path]:
    """A folder to work in. Within, what the quantiser says of its work is not heard; where it fails, that is a
    ModelError.
    """
    try:
        with tempfile.TemporaryDirectory() as folder, suppress_logging():
            yield Path(folder)
    except MemoryError:
        raise
    except Exception as error:  # what it raises is whatever its parts raise
        reason = str(error).strip().splitlines() or [type(error).__name__]
        message = f"onnxruntime's quantiser does not take the model: {reason[0][:200]}"
        raise ModelError(message, hint="--exclude LAYER leaves a layer in float") from error
