"""Programs that run on devices: what `verify` refuses, how their memories are planned, and their text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support import fake_device as fake
from tests._support.programs import interpret_program, kernel

from uma.errors import InternalError, ModelError, TextError
from uma.program import Call, Program, plan, verify, verify_plan
from uma.program.text import parse_program, print_program
from uma.tir.form import nodes as tir

GOOD = fake.chain("npu0", None, "npu1", "npu0", host=kernel([4], 4))


def with_buffer(name: str, /, **changes: Any) -> Program:
    return replace(GOOD, buffers=tuple(replace(b, **changes) if b.name == name else b for b in GOOD.buffers))


def with_step(position: int, **changes: Any) -> Program:
    steps = list(GOOD.steps)
    steps[position] = replace(steps[position], **changes)
    return replace(GOOD, steps=tuple(steps))


def test_a_good_program_is_accepted() -> None:
    assert GOOD.devices == ("npu0", "npu1")
    assert GOOD.memories("npu1") == {"spad": fake.SPAD}
    assert GOOD.memories("other") == {}


def test_the_interpreter_runs_it() -> None:
    x = np.array([1, -2, 3, 2**30], np.int32)
    np.testing.assert_array_equal(interpret_program(GOOD, {"x": x})["y"], 8 * x)


@pytest.mark.parametrize(
    ("program", "what"),
    [
        (with_step(0, device=None), "'double' drives a device, and none is named"),
        (with_step(1, device="npu0"), "'host' drives no device"),
        (with_step(0, device="npu 0"), "'npu 0' is not a label of a device"),
        (
            with_step(0, device="npu2"),
            "buffer 'a0', passed as workspace 'a', is in pool 'npu0.spad', not in 'npu2.spad'",
        ),
        (with_buffer("a0", pool="ram"), "buffer 'a0', passed as workspace 'a', is in pool 'ram', not in 'npu0.spad'"),
        (with_buffer("a0", pool="npu0.spad.x"), "buffer 'a0': 'npu0.spad.x' is not a name for a pool"),
        (with_buffer("a0", pool="npu0."), "buffer 'a0': 'npu0.' is not a name for a pool"),
        (with_buffer("t0", pool="npu0.spad"), "intermediate 't0' is in pool 'npu0.spad', where workspaces can be"),
        (with_buffer("a0", alignment=4), "buffer 'a0', passed as workspace 'a', has alignment 4, less than 8"),
    ],
)
def test_a_faulty_program_is_refused(program: Program, what: str) -> None:
    with pytest.raises(InternalError) as caught:
        verify(program)
    assert what in caught.value.what


def test_a_workspace_of_the_host_is_in_a_pool_of_the_host() -> None:
    scale = kernel([4], 4, workspace=2)
    program = fake.chain("npu", None, host=kernel([4], 4))
    space = replace(program.buffers[-1], name="s", role="workspace", shape=(2,), pool="npu.spad", tensor=None)
    steps = (program.steps[0], Call("host", ("t0", "y", "s")))
    program = replace(
        program,
        buffers=(*program.buffers, space),
        steps=steps,
        functions={**program.functions, "host": scale},
    )
    with pytest.raises(InternalError, match=r"passed as workspace 't', is in pool 'npu\.spad', not in one of the host"):
        verify(program)


def test_a_device_has_one_memory_of_a_name() -> None:
    larger = replace_memory(fake.SPAD, nbytes=512)
    functions = {**GOOD.functions, "other": fake.doubling(4, memory=larger)}
    with pytest.raises(InternalError, match="device 'npu0' has another memory 'spad' in a step before"):
        verify(replace(with_step(3, function="other"), functions=functions))
    verify(replace(with_step(2, function="other"), functions=functions))


def replace_memory(memory: tir.Memory, **changes: int) -> tir.Memory:
    fields = {name: getattr(memory, name) for name in ("name", "nbytes", "alignment", "copy_in", "copy_out")}
    return tir.Memory(**(fields | changes))


class TestPlan:
    def test_each_memory_of_each_device_is_a_pool(self) -> None:
        memory = plan(GOOD)
        verify_plan(GOOD, memory)
        assert memory.pool_bytes == {"ram": 32, "npu0.spad": 32, "npu1.spad": 32}
        assert (memory.arena_bytes, memory.host_pools) == (32, ("ram",))

    def test_without_reuse_only_the_host_is_inspected(self) -> None:
        """However many steps there are, each finds all of a device's memory."""
        program = fake.chain(*["npu"] * 9, count=32)
        memory = plan(program, reuse=False)
        verify_plan(program, memory)
        assert memory.pool_bytes == {"ram": 8 * 128, "npu.spad": 256}

    @given(st.lists(st.sampled_from((None, "a", "b")), min_size=1, max_size=8), st.integers(1, 32), st.booleans())
    def test_plans_are_sound(self, labels: list[str | None], count: int, reuse: bool) -> None:
        program = fake.chain(*labels, count=count, host=kernel([count], count))
        memory = plan(program, reuse=reuse)
        verify_plan(program, memory)
        for label in program.devices:
            used = memory.pool_bytes[f"{label}.spad"]
            assert used <= fake.SPAD_BYTES and used == memory.lower_bound[f"{label}.spad"]

    def test_a_memory_that_is_too_small(self) -> None:
        program = fake.chain("npu", count=38)
        with pytest.raises(ModelError) as caught:
            plan(program)
        assert caught.value.what == "'double' needs 304 bytes of memory 'spad' of device 'npu', which has 256"
        assert caught.value.where == "layers layer/0"
        assert caught.value.hint is not None and "tiles" in caught.value.hint
        bare = replace(program, steps=(replace(program.steps[0], layers=()),))
        with pytest.raises(ModelError) as caught:
            plan(bare)
        assert caught.value.where is None

    def test_the_proof_knows_the_size_too(self) -> None:
        program = fake.chain("npu", count=32)
        good = plan(program)
        with pytest.raises(InternalError, match="memory 'spad' of device 'npu' has 256 bytes, not 260"):
            verify_plan(program, replace(good, pool_bytes={**good.pool_bytes, "npu.spad": 260}))
        with pytest.raises(InternalError, match="overlaps 'a0'"):
            verify_plan(program, replace(good, offsets={**good.offsets, "s0": 64, "a0": 0}))


class TestText:
    def test_round_trip(self) -> None:
        text, constants = print_program(GOOD)
        assert "    double(t1, t2, a2, s2, layers=['layer/2'], device='npu1')\n" in text
        assert "    a0 = workspace(int32, (4,), align(8), pool='npu0.spad')\n" in text
        assert parse_program(text, constants) == GOOD

    @pytest.mark.parametrize(
        ("change", "what", "column"),
        [
            (lambda text: text.replace("device='npu1'", "device=1"), "expected a string", 55),
            (lambda text: text.replace("device='npu1'", "device=''"), "'' is not a label of a device", 5),
            (lambda text: text.replace(", device='npu1'", ""), "'double' drives a device, and none is named", 5),
        ],
    )
    def test_errors_point_at_their_place(self, change: Callable[[str], str], what: str, column: int) -> None:
        text, constants = print_program(GOOD)
        line = 1 + text[: text.index("device='npu1'")].count("\n")
        with pytest.raises(TextError) as caught:
            parse_program(change(text), constants)
        assert (caught.value.what, caught.value.line, caught.value.column) == (what, line, column)
