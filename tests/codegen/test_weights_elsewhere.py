"""What is generated compiles for systems on which the tests do not run: through ziglang, unlinked."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

import uma
from uma.errors import UsageError
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import make_artifact, start_build
from uma.pipeline.loading import load_model
from uma.plugins import default_host
from uma.program import Program, plan
from uma.support.weights_forms import WEIGHTS_FORMS
from uma.toolchain.discovery import find_compiler

MODEL = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"
needs_zig = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed: pip install 'uma-core[ziglang]'"
)
MAGIC = {
    "aarch64-macos": bytes.fromhex("cffaedfe0c000001"),  # MH_MAGIC_64, CPU_TYPE_ARM64
    "x86_64-windows-gnu": bytes.fromhex("6486"),  # IMAGE_FILE_MACHINE_AMD64
}


@needs_zig
def test_every_source_compiles_elsewhere(tmp_path: Path) -> None:
    zig = find_compiler("ziglang").command
    members = resolve_targets("c", default_host())
    build = start_build(loaded := load_model(MODEL, members), members)
    program = build.run(loaded.form)
    assert isinstance(program, Program)
    sources: dict[bytes, Path] = {}
    for form in WEIGHTS_FORMS:
        saved = make_artifact(program, plan(program), members, weights=form).save(tmp_path / form)
        sources |= {path.read_bytes(): path for path in sorted(saved.iterdir()) if path.suffix in (".c", ".S")}
    assert {"digits_weights.S", "digits_weights.c", "digits_entry.c"} <= {path.name for path in sources.values()}
    flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wno-unused-command-line-argument"]
    for target, magic in MAGIC.items():
        for path in sources.values():
            made = tmp_path / "made.o"
            command = [*zig, "-target", target, *flags, f"-I{path.parent}", "-c", str(path), "-o", str(made)]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
            assert done.returncode == 0, f"{path} for {target}: {done.stderr}"
            content = made.read_bytes()
            assert content.startswith(magic)
            if path.stem == "digits_weights":  # as C names it there
                assert (b"\0_digits_weights\0" if "macos" in target else b"digits_weights\0") in content


def test_no_such_form() -> None:
    with pytest.raises(UsageError, match="'binary' is not a form of weights"):
        uma.build(MODEL, target="c", weights="binary")  # type: ignore[call-overload]  # no such form
