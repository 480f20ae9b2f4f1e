"""The ONNX front-end."""

from .convert import from_onnx

__all__ = ["from_onnx"]
