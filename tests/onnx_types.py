"""Writes ``docs/generate/onnx.json``, of which docs/operators.md is made: run it when importers take more, or less."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "generate" / "onnx.json"


def content() -> str:
    """What the file should hold."""
    from tests._support.onnx_suite import load
    from tests._support.onnx_types import supported

    rows = (f"  {json.dumps(op)}: {json.dumps(row)}" for op, row in supported(load(["node"])).items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    FILE.write_text(content(), encoding="utf-8")
