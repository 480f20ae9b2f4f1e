"""The loop form, and the program of calls around it, as C99."""

from __future__ import annotations

from ..support.c_text import c_comment, c_identifier, c_string
from .kernel import kernel_source
from .model import ModelFiles, emit_model

__all__ = ["ModelFiles", "c_comment", "c_identifier", "c_string", "emit_model", "kernel_source"]
