"""The compilation of a model: from what was read to an artifact.

`driver` runs the `stages`; `passes` are plugins' own, between them, and `phases` what must hold after each. `pins` and
`custom_importers` layers come from user and model, and `dump` writes every stage as text.
"""

from .dump import read_dump
from .stages import STAGES, Form

__all__ = ["STAGES", "Form", "read_dump"]
