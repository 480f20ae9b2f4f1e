"""Small models as text forms, and the command line run on them within this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from uma.cli import main

NET = """\
signature(inputs=[tensor('image:0')], outputs=[tensor('scores')])

@function
def main(x: Tensor[(1, 8, 8, 2), float32]) -> Tensor[(1, 2), float32]:
    v0: ('block/relu', 'block/relu;twice') = nn.relu(x)
    v1: ('block/pool',) = nn.max_pool2d(v0, pool_size=(2, 2), strides=(2, 2))
    v2: ('block/scale',) = multiply(v1, const([0.5, -0.25], float32))
    v3: ('head/mean',) = nn.global_avg_pool(v2)
    v4: ('head/flat',) = reshape(v3, newshape=(1, 2))
    v5: ('head/softmax',) = nn.softmax(v4)
    return v5
"""
"""Three kernels, one input, one output."""

PAIR = """\
signature(inputs=[tensor('a', scale=0.5, zero_point=3), tensor('b')], outputs=[tensor('sum'), tensor('a again'), \
tensor('file')])

@function
def main(a: Tensor[(4,), int8], b: Tensor[(4,), int8]) -> Tuple[Tensor[(4,), int8], Tensor[(4,), int8], \
Tensor[(4,), int8]]:
    v0: ('add',) = add(a, b)
    return (v0, a, v0)
"""
"""Two inputs, three outputs, of which two are copies; ``file`` is a name that ``numpy.savez`` cannot write."""


@dataclass(frozen=True)
class Done:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
        assert record["schema_version"] == 4
        return record

    def error(self, code: int) -> str:
        """The text of the one error that there must be, with this exit code and nothing on stdout."""
        assert self.code == code, self
        assert self.out == ""
        assert self.err.startswith("uma: error: ") and self.err.count("uma: error: ") == 1
        return self.err.removeprefix("uma: error: ")


class Uma:
    """Runs ``uma ...`` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Done:
        self._capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = self._capsys.readouterr()
        return Done(code, captured.out, captured.err)
