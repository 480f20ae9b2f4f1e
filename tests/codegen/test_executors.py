"""What runs a model's steps: the table and its interpreter beside the C that is printed ahead of time."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests._support import fake_device as fake
from tests._support import stream_device as lag
from tests._support.c_programs import CSRC
from tests._support.model_c import CASES, SANITIZED, compile_c, network, remembering, write
from tests._support.model_c import random_inputs as inputs_of
from tests._support.model_pairs import compare
from tests._support.programs import interpret_program, kernel
from tests.codegen.test_model_streams import QUEUES, sums

from uma.codegen import ModelFiles, emit_model
from uma.codegen.executors import EXECUTORS, graph
from uma.codegen.profile import HOOKS
from uma.contract.devices import Device
from uma.errors import ModelError
from uma.program import Buffer, Call, Plan, Program, plan
from uma.targets import TargetKind


def both(program: Program, devices: Mapping[str, Device] | None = None) -> tuple[ModelFiles, ModelFiles]:
    """A program under either executor, in models of two names."""
    memory = plan(program)
    one, other = (
        emit_model(replace(program, name=f"{program.name}_{executor}"), memory, devices or {}, executor=executor)
        for executor in ("aot", "graph")
    )
    return one, other


def test_every_kind_of_step_gives_the_same_bytes(compilers: tuple[str, ...], tmp_path: Path) -> None:
    """In one image: inputs and outputs of all types, states, devices with and without queues, and waits."""
    pairs = {name: both(replace(CASES[name], name=name)) for name in ("several", "no_inputs")}
    pairs["remembering"] = both(replace(remembering(), name="remembering"))
    program = replace(fake.chain("npu", None, "other", host=kernel([4], 4)), name="chain")
    pairs["chain"] = both(program, fake.devices(npu=fake.runtime(), other=fake.runtime()))
    program = sums(*QUEUES, name="queues")
    pairs["queues"] = both(program, lag.devices(npu=lag.runtime("random", 7)))
    program = sums(("npu", "a"), None, ("npu", None), name="mixed")
    pairs["mixed"] = both(program, lag.devices(npu=lag.runtime("random", 7)))
    compare(tmp_path, pairs, compilers[-1])
    waits = str(pairs["queues"][1].contents["queues_graph.c"])
    assert "uma_step_wait_2(" in waits and "uma_invalidate(device, operands[0], 16u);" in waits


def test_models_share_the_kernels_of_their_image(tmp_path: Path) -> None:
    """Those of two networks with other weights are the same files, and the image has each of them once."""
    one, two = network("one"), network("two", 2.0)
    models = [emit_model(program, plan(program), executor="graph") for program in (one, two)]
    kernels = [{name for name in model.sources if name.startswith(graph.STEP_PREFIX)} for model in models]
    assert len(kernels[0]) == 3 and kernels[0] == kernels[1]
    for name in (*kernels[0], "uma_graph.c"):
        assert models[0].contents[name] == models[1].contents[name]
    folders = [tmp_path / name for name in ("one", "two")]
    for folder, model in zip(folders, models, strict=True):
        folder.mkdir()
        write(folder, model)
        objects = []
        for source in model.sources:
            objects.append(f"{source}.o")
            command = ["gcc", "-std=c99", "-O1", "-ffp-contract=off", "-I.", "-c", source, "-o", objects[-1]]
            subprocess.run(command, cwd=folder, check=True)
        subprocess.run(["ar", "rcs", f"lib{folder.name}.a", *objects], cwd=folder, check=True)
    (tmp_path / "main.c").write_text(
        '#include "one.h"\n#include "two.h"\nint main(void)\n{\n    return one_model() == two_model();\n}\n'
    )
    command = ["gcc", "-Ione", "-Itwo", "main.c", "one/libone.a", "two/libtwo.a", "-lm", "-o", "image"]
    subprocess.run(command, cwd=tmp_path, check=True)
    symbols = subprocess.run(["nm", "image"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    found = re.findall(rf"\b[tT] ((?:{graph.STEP_PREFIX}|uma_graph_run|one_run|two_run)\w*)", symbols)
    assert sorted(found) == sorted([*(name[:-2] for name in kernels[0]), "uma_graph_run", "one_run", "two_run"])
    for program in (one, two):
        inputs = inputs_of(program)
        folder, expected = tmp_path / program.name, interpret_program(program, inputs)["y"]
        (folder / "x").write_bytes(inputs["x"].tobytes())
        command = ["gcc", "-I.", f"{program.name}_main.c", "../one/libone.a", "../two/libtwo.a", "-lm", "-o", "example"]
        subprocess.run(command, cwd=folder, check=True)
        subprocess.run(["./example", "x", "y"], cwd=folder, check=True, capture_output=True)
        assert (folder / "y").read_bytes() == expected.tobytes()


def test_a_fault_says_device_and_step(compilers: tuple[str, ...], tmp_path: Path) -> None:
    program = fake.chain("a", None, "b", host=kernel([4], 4))
    devices = fake.devices(a=fake.runtime(), b=fake.runtime("step", 0))
    model = emit_model(program, plan(program), devices, executor="graph")
    write(tmp_path, model)
    binary = compile_c(tmp_path, [*model.sources, model.example], SANITIZED, compilers[0])
    done = subprocess.run([str(binary)], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and f"device b stopped step 2 with fault {fake.TRAP}" in done.stderr


def test_too_many_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "_MAX_OPERANDS", 4)
    with pytest.raises(ModelError, match=r"a step of 'net' has 4 operands, and the executor 'graph' takes 3") as error:
        emit_model(CASES["several"], plan(CASES["several"]), executor="graph")
    assert "-executor=aot" in str(error.value)


def test_offsets_beyond_32_bits_are_refused_where_they_do_not_fit() -> None:
    size = 2**29
    program = Program(
        "net",
        (
            Buffer("x", "input", (4,), "int8"),
            Buffer("t", "intermediate", (4,), "int8"),
            Buffer("y", "output", (4,), "int8"),
        ),
        (Call("a", ("x", "t")), Call("a", ("t", "y"))),
        {"a": CASES["int8"].functions["k"]},
    )
    apart = Plan({"t": size}, {"ram": size + 4}, {"ram": size + 4})
    text = str(emit_model(program, apart, executor="graph").contents["net.c"])
    assert f'#if SIZE_MAX >> 3 < {size + 4}u\n#error "net is too large for this machine"' in text
    assert "SIZE_MAX" not in str(emit_model(program, plan(program), executor="graph").contents["net.c"])


def test_the_interpreter_has_the_hooks_that_printed_steps_have() -> None:
    assert HOOKS in (CSRC / "uma_steps.h").read_text()


def test_every_host_offers_every_executor() -> None:
    attribute = TargetKind("some_cpu", help="a host", is_host=True).attribute("executor")
    assert attribute.type == tuple(EXECUTORS) and attribute.default == "aot"
