"""Fifty mistakes of users: each message says what is wrong, where, and how to fix it, and nothing is left behind."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests._support.small_models import Uma

from uma.cli import main

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"

ERRORS = [
    # (command line, exit code, what and where, how)
    ("biuld net.py", 2, "unknown command 'biuld'", "did you mean 'build'?"),
    ("build net.py --targt c", 2, "unknown flag '--targt'", "did you mean '--target'?"),
    ("verify net.py --target c --weights array", 2, "--weights has no effect in uma verify", "it has one in uma build"),
    ("plan net.py --target c --max_ram 1K", 2, "--max-ram has no effect in uma plan", "uma build, uma verify"),
    ("build net.py", 2, "required: --target", "see uma build --help"),
    ("build nte.py --target c", 2, "no file nte.py", "did you mean 'net.py'?"),
    ("build text.onnx --target c", 3, "no model file of a format that can be read\n  where: text.onnx", "(.onnx)"),
    ("build empty.onnx --target c", 3, "is empty\n  where: empty.onnx", "download or export it again"),
    ("build old.tflite --target c", 3, "schema version 0, not 3\n  where: old.tflite", "convert the model again"),
    ("build folder --target c", 2, "folder is a folder", "name a file in it"),
    ("build net.py --target ''", 2, "column 1 of the target", "write it like `c -opt=2`"),
    ("build net.py --target cc", 2, "no target kind 'cc'\n  where: column 1", "did you mean 'c'?"),
    ("build net.py --target cortex-m4", 2, "no target kind 'cortex-m4'", "did you mean 'c -mcpu=cortex-m4'?"),
    ("build net.py --target Cortex-M4", 2, "'Cortex-M4' is not a target kind", "did you mean 'cortex-m4'?"),
    ("build net.py --target cortex_m4", 2, "no target kind 'cortex_m4'", "did you mean 'c -mcpu=cortex-m4'?"),
    (
        "build net.py --target 'c --mcpu=native'",
        2,
        "'--mcpu=native' is not an attribute",
        "write it like `-mcpu=native`",
    ),
    ("build net.py --target 'c -mcpu native'", 2, "'-mcpu' is not an attribute", "write it like `-mcpu=VALUE`"),
    ("build net.py --target 'c native'", 2, "'native' is not an attribute", "write it like `-opt=2`"),
    ("export art -o e", 2, "the format to export to is missing", "for this artifact there is: cmake"),
    ("build net.py --target 'c -opt=7'", 2, "'7' does not fit attribute 'opt'\n  where: column 8", "one of 0, 1, 2,"),
    ("build net.py --target 'c -optt=2'", 2, "no attribute 'optt'\n  where: column 3", "did you mean 'opt'?"),
    ("build net.py --target 'c -mcpu=stm32f407'", 2, "its core is cortex-m4f", "write -mcpu=cortex-m4f"),
    ("build net.py --target 'c -mcpu=no-such-cpu'", 6, "does not know the CPU 'no-such-cpu'", "-mcpu takes native"),
    ("build net.py --target bad.json", 2, "a key in double quotes is missing\n  where: column 14", '{"kind": "c"}'),
    ("build net.py --target none.json", 2, "does not exist\n  where: none.json", "check the path"),
    ("build net.py --target npu0:\\ c --target npu0:\\ c", 2, "two targets are called 'npu0'", "another label"),
    ("build net.py --target c --name 'two words'", 2, "'two words' is not a name", "for example two_words"),
    ("build net.py --target c --shape x", 2, "--shape 'x'", "write NAME=1,3,224,224"),
    (
        "build digits.onnx --target c --shape scan=1,1,9,9",
        2,
        "(1, 1, 9, 9) does not fit input 'scan'",
        "open dimensions",
    ),
    ("build digits.onnx --target c --constant scna=1", 2, "'scna', which is not an input", "did you mean 'scan'?"),
    ("build digits.onnx --target c --state scan=logits", 2, "input 'scan' is Tensor", "are of one type"),
    ("build digits.onnx --target c --pin conv9=c", 2, "no layer is called 'conv9'", "did you mean 'conv2'?"),
    ("build digits.onnx --target c --pin conv1=npu", 2, "'npu', which is not a target", "the targets are c"),
    (
        "build digits.onnx --target c --require-offload 10",
        4,
        "have 0.0% of the multiply-accumulates, 10%",
        "uma explain",
    ),
    ("build digits.onnx --target c --require-offload 0.5", 2, "0.5 can mean 0.5% or 50%", "see uma build --help"),
    ("build digits.onnx --target c --max-rom 1K", 4, "bytes of ROM, 1,024 are allowed by --max-rom", "make"),
    (
        "build digits.onnx --target c --max-ram 64q",
        2,
        "unknown unit 'q' in '64q'; use K, M or G",
        "see uma build --help",
    ),
    ("build digits.onnx --target c --stop-after lwoer", 2, "no stage 'lwoer'", "stages: import,"),
    ("build digits.onnx --target c --plan empty.json", 2, "holds no plan\n  where: empty.json", "uma plan MODEL"),
    ("explain digits.onnx --target c --partition collage --costs list.json", 2, "where: list.json", "placement.md"),
    ("build digits.onnx --target c --partition colage", 2, "no partitioner 'colage'", "did you mean 'collage'?"),
    ("build digits.onnx --target c --allow hybrid=litrt", 2, "'litrt'", "one of litert, float"),
    ("build digits.onnx --target c --weights asembly", 2, "--weights: invalid choice: 'asembly'", "'assembly'?"),
    ("build digits.onnx --target c --disable-plugin uma-none", 2, "no plugin 'uma-none'", "installed: "),
    ("build digits.onnx --target c --strips 0", 2, "0 strips", "2 to 16"),
    ("build digits.onnx --target c -o x.npy", 2, "may be replaced", "choose another, or remove it"),
    ("run art --input scna=random:1", 2, "no input 'scna'", "did you mean 'scan'?"),
    ("run art --input scan=@none.npy", 2, "no file none.npy", "check the path"),
    ("run art --input scan=@x.npy", 3, "input 'scan' is float32[3, 3], expected float32[1, 1, 8, 8]", "[1, 1, 8, 8]"),
    ("run art --inputs in.npz", 3, "no input 'scna'", "did you mean 'scan'?"),
    (
        "run art --input scan=rand:1",
        2,
        "'rand:1' is not a source for the input 'scan'",
        "NAME=@FILE.npy or NAME=random:SEED",
    ),
    ("run atr", 2, "no file atr", "name a model file, or what uma build wrote"),
    ("run art --repeat 0", 2, "--repeat 0", "1 or more"),
    ("verify digits.onnx --target c --against litert", 2, "where: digits.onnx", "--against onnxruntime"),
    ("export art --format cmaek -o e", 2, "no format 'cmaek'", "did you mean 'cmake'?"),
    ("export x.npy -o e", 2, "no artifact at 'x.npy'", "metadata.json is in it"),
    ("new-plugin 'my npu'", 2, "'my npu'", "my_npu would do"),
    ("check uma-ultratrail --only laers", 2, "no check 'laers'", "did you mean 'layers'?"),
    ("quantize digits.onnx --target c -o q.onnx", 2, "required: --data", "see uma quantize --help"),
    ("doctor --fast", 2, "unknown flag '--fast'", "see uma doctor --help"),
]

INTERNALS = re.compile(r"Traceback|object at 0x|NoneType|unpack|\[Errno|internal error")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "art"
    assert main(["build", str(DIGITS), "--target", "c", "--no-compile", "-q", "-o", str(folder)]) == 0
    return folder


@pytest.fixture
def desk(folder: Path, artifact: Path) -> Path:
    """A folder with what users have: models, an artifact, arrays, and files that are damaged."""
    shutil.copy(DIGITS, folder / "digits.onnx")
    shutil.copytree(artifact, folder / "art")
    for name, content in {
        "text.onnx": b"hello", "empty.onnx": b"", "old.tflite": b"\x18\0\0\0TFL3" + bytes(20),
        "bad.json": b'{"kind": "c",', "empty.json": b"{}", "list.json": b"[]",
    }.items():  # fmt: skip
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    np.save(folder / "x.npy", np.zeros((3, 3), np.float32))
    np.savez(folder / "in.npz", scna=np.zeros((1, 1, 8, 8), np.float32))
    return folder


def test_there_are_fifty() -> None:
    assert len(ERRORS) >= 50 and len({line for line, *_ in ERRORS}) == len(ERRORS)


@pytest.mark.few(18)
@pytest.mark.parametrize(("line", "code", "what", "how"), ERRORS, ids=[line for line, *_ in ERRORS])
def test_what_where_and_how(line: str, code: int, what: str, how: str, desk: Path, uma: Uma) -> None:
    before = sorted(desk.rglob("*"))
    words = [word.replace("\\ ", " ").strip("'") for word in re.findall(r"'[^']*'|(?:\\ |\S)+", line)]
    said = uma(*words).error(code)
    assert what in said
    hint = said.partition("\n  hint: ")[2]
    assert how in hint, said
    assert not INTERNALS.search(said) and len(said) < 2_000
    assert sorted(desk.rglob("*")) == before
