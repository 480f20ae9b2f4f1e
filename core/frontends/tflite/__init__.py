"""The TFLite front-end."""

from .convert import from_tflite

__all__ = ["from_tflite"]
