"""The driver, clean under sanitizers: whatever call of the library fails, it says so, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import uma
import uma_onednn
from uma_onednn.operation import Kind, Operation, Step, Tensor

HERE = Path(__file__).parent
CSRC = Path(uma_onednn.__file__).parent / "csrc"
INCLUDE = Path(uma.__file__).parent / "runtime" / "csrc"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-g", "-O1", "-fno-sanitize-recover=all")

_MAP = Tensor.channels_last("float32", (1, 4, 4, 2))
_WINDOW = {"strides": (1, 1), "dilation": (1, 1), "before": (0, 0), "after": (0, 0)}
_VECTOR = Tensor("float32", (8,), (1,))
CONVOLUTION = Operation(
    Step(Kind.CONVOLUTION, 1),
    _MAP,
    _MAP,
    Tensor("float32", (2, 2, 1, 1), (1, 2, 4, 4)),
    Tensor("float32", (2,), (1,)),
    _MAP,
    **_WINDOW,
    posts=(Step(Kind.POST_BINARY, 0x1FFF0), Step(Kind.POST_ELTWISE, 0x20)),
)
BYTES = Tensor.dense("int8", (4, 4))
OPERATIONS = (
    CONVOLUTION.encode(b"weights"),
    Operation(Step(Kind.MATMUL), BYTES, Tensor.dense("int32", (4, 4)), BYTES, zero_point=5).encode(None),
    Operation(Step(Kind.POOL, 0x1FF), _MAP, _MAP, **_WINDOW, kernel=(1, 1)).encode(None),
    Operation(Step(Kind.ELTWISE, 0x20), _VECTOR, _VECTOR).encode(None),
    Operation(Step(Kind.SOFTMAX, 0x30000), BYTES, BYTES).encode(None),
    Operation(Step(Kind.BINARY, 0x1FFF0), _VECTOR, _VECTOR, other=_VECTOR).encode(None),
)

CALLS = (
    "dnnl_engine_create",
    "dnnl_stream_create",
    "dnnl_stream_wait",
    "dnnl_memory_desc_create_with_strides",
    "dnnl_memory_desc_create_with_tag",
    "dnnl_memory_create",
    "dnnl_memory_set_data_handle",
    "dnnl_primitive_attr_create",
    "dnnl_primitive_attr_set_scratchpad_mode",
    "dnnl_primitive_attr_set_zero_points_mask",
    "dnnl_primitive_attr_set_post_ops",
    "dnnl_post_ops_create",
    "dnnl_post_ops_append_eltwise",
    "dnnl_post_ops_append_binary",
    "dnnl_convolution_forward_primitive_desc_create",
    "dnnl_matmul_primitive_desc_create",
    "dnnl_pooling_forward_primitive_desc_create",
    "dnnl_eltwise_forward_primitive_desc_create",
    "dnnl_binary_primitive_desc_create",
    "dnnl_softmax_forward_primitive_desc_create",
    "dnnl_reorder_primitive_desc_create",
    "dnnl_primitive_create",
    "dnnl_primitive_execute",
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, compilers: tuple[str, ...]) -> list[str]:
    """The command that runs all operations, twice, on a library that is none."""
    folder = tmp_path_factory.mktemp("onednn")
    sources = [HERE / "onednn_main.c", HERE / "fake_dnnl.c", CSRC / "uma_onednn.c", CSRC / "uma_onednn_made.c"]
    command = [compilers[0], *STRICT, "-fsanitize=address,undefined", f"-I{CSRC}", f"-I{INCLUDE}"]
    made = subprocess.run([*command, *map(str, sources), "-o", str(folder / "main")], capture_output=True, text=True)
    if made.returncode and "sanitize" in made.stderr:
        pytest.skip(f"{compilers[0]} has no sanitizers")
    assert made.returncode == 0, made.stderr
    files = [folder / f"{number}.bin" for number in range(len(OPERATIONS))]
    for file, data in zip(files, OPERATIONS, strict=True):
        file.write_bytes(data)
    return [str(folder / "main"), *map(str, files)]


def run(program: list[str], **environment: str) -> int:
    done = subprocess.run(program, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_nothing_fails(program: list[str]) -> None:
    assert run(program) == 0


@pytest.mark.few(4)
@pytest.mark.parametrize("name", CALLS)
def test_each_call_may_fail(program: list[str], name: str) -> None:
    for nth in range(1, 30):
        code = run(program, FAKE_DNNL_FAILS=name, FAKE_DNNL_NTH=str(nth))
        if code == 0:
            break
        assert code == 5
    assert 1 < nth < 30 or name == "dnnl_memory_set_data_handle"


def test_int8_without_dot_products(program: list[str]) -> None:
    assert run(program, FAKE_DNNL_ISA="39") == 66
    assert run(program, FAKE_DNNL_ISA="15") == 0


def test_another_version(program: list[str]) -> None:
    assert run(program, FAKE_DNNL_VERSION="2") == 64


def test_every_call_of_the_library_is_among_them() -> None:
    declared = {
        line.split("(")[0].rpartition(" ")[2].lstrip("*")
        for line in (CSRC / "uma_onednn_abi.h").read_text(encoding="utf-8").splitlines()
        if line.startswith("int dnnl_")
    }
    cannot_fail = {name for name in declared if name.endswith("_destroy")}
    assert declared - cannot_fail - {"dnnl_get_effective_cpu_isa", "dnnl_memory_desc_equal"} == set(CALLS)


def test_keys_tell_operations_and_constants_apart() -> None:
    keys = {data[:16] for data in OPERATIONS}
    keys |= {CONVOLUTION.encode(None)[:16], CONVOLUTION.encode(b"others")[:16]}
    keys |= {CONVOLUTION.encode(b"weights", [b"bias"])[:16]}
    assert len(keys) == len(OPERATIONS) + 3
    assert CONVOLUTION.encode(b"weights") == OPERATIONS[0]
