"""Writes the networks as ONNX files into a folder."""

from __future__ import annotations

import sys
from pathlib import Path

from . import NETWORKS


def main(folder: Path) -> None:
    """Writes each network as NAME.onnx into ``folder``, which is made where it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in NETWORKS.items():
        (folder / f"{name}.onnx").write_bytes(make().SerializeToString())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m tests.networks FOLDER")
    main(Path(sys.argv[1]))
