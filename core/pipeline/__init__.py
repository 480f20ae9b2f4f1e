"""The build: from a model and a target to an artifact.

`driver` runs the `stages`; `passes` are plugins' own, between them, and `phases` what must hold after each. `pins` and
`custom_importers` layers come from user and model, and `dump` writes every stage as text.
"""

from .driver import build
from .dump import read_dump
from .stages import STAGES, Form

__all__ = ["STAGES", "Form", "build", "read_dump"]
