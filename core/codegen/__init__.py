"""The loop form, and the program of calls around it, as C99."""

from __future__ import annotations

from .kernel import kernel_source
from .model import ModelFiles, emit_model
from .names import c_comment, c_identifier, c_string

__all__ = ["ModelFiles", "c_comment", "c_identifier", "c_string", "emit_model", "kernel_source"]
