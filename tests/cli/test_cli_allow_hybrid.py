"""``--allow hybrid``: layers with float data and integer weights, of all commands that build."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests._support.small_models import Uma
from tests._support.tflite_builder import TFLiteBuilder

from uma.options import project_options
from uma.support.project_file import ProjectError


def test_the_command_and_the_project(uma: Uma, folder: Path) -> None:
    project, builder = folder / "pyproject.toml", TFLiteBuilder()
    x, y = builder.input([2, 4]), builder.tensor([2, 3])
    weight = builder.constant(np.arange(12).reshape(3, 4), "int8", scale=0.1)
    builder.op("FULLY_CONNECTED", [x, weight, -1], [y])
    (folder / "m.tflite").write_bytes(builder.finish(y))

    def how(*options: str) -> object:
        assert uma("build", "m.tflite", "--target", "c", "--no-compile", "-o", "out", *options).code == 0
        return json.loads((folder / "out" / "metadata.json").read_text())["allowed"]["options"]

    assert (how(), how("--allow", "hybrid=litert")) == ([], ["hybrid=litert"])
    project.write_text('[tool.uma]\nallow = {hybrid = "litert", rounding = "fixed-point"}\n')
    assert (how(), how("--allow", "hybrid=float")) == (["hybrid=litert"], ["hybrid=float"])
    (folder / "m.onnx").write_bytes(b"no TFLite file")
    assert "TFLite files, and" not in uma("build", "m.onnx", "--target", "c").error(3)
    assert "no file" in uma("build", "other.tflite", "--target", "c").error(2)
    project.write_text("[tool.uma]\nallow = {hybrid = 'x'}\n")
    with pytest.raises(ProjectError, match="'x' is not a value of hybrid in allow"):
        project_options()
    assert "an artifact is built already" in uma("run", "out", "--allow", "hybrid=float").error(2)
