"""The digest of a kernel: what it covers, and that equal kernels are lowered once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.plugins import entry_of, host_kind, module_of

from uma.contract.fusion import Fusion
from uma.hookspecs import Strategy
from uma.lowering.build_targets import BuildTarget, resolve_targets
from uma.lowering.kernel_digest import kernel_digest, source_version
from uma.pipeline.stages import Build
from uma.plugins import PluginHost
from uma.relay import Function, TensorType, Var, call, const
from uma.targets import Attribute

X = Var("x", TensorType((2, 3), "float32"))
W = Var("w", TensorType((2, 3), "float32"))


@pytest.fixture(autouse=True)
def no_versions() -> Iterator[None]:
    """Versions of sources are read anew."""
    source_version.cache_clear()
    yield
    source_version.cache_clear()


def host(text: str = "mine", version: str = "1.0", **hooks: Any) -> BuildTarget:
    entries = entry_of(host_kind("mine", Attribute("lanes", int, default=1, help="lanes")), version=version, **hooks)
    return resolve_targets(text, PluginHost(lambda: entries)).host


def fusion(name: str = "add", value: float = 1.0, by_rows: bool = False) -> Fusion:
    known = {W: const(np.full((2, 3), value, np.float32))}
    return Fusion(Function([X, W], call(name, X, W)), known, by_rows)


def test_equal_kernels_have_equal_digests() -> None:
    one = host()
    assert kernel_digest(fusion(), one, None) == kernel_digest(fusion(), one, None)


def test_all_that_loops_are_made_from_counts() -> None:
    one = host()
    entry = one.plugin.entry
    newer = replace(one, plugin=replace(one.plugin, entry=entry._replace(version="1.1")))
    digests = [
        kernel_digest(fusion(), one, None),
        kernel_digest(fusion("multiply"), one, None),
        kernel_digest(fusion(value=2.0), one, None),
        kernel_digest(replace(fusion(), known={}), one, None),
        kernel_digest(fusion(by_rows=True), one, True),
        kernel_digest(fusion(by_rows=True), one, False),
        kernel_digest(fusion(), replace(one, target=host("mine -lanes=4").target), None),
        kernel_digest(fusion(), newer, None),
        kernel_digest(fusion(), None, None),
    ]
    assert len(set(digests)) == len(digests)


def test_sources_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "uma_digest_package"
    (package / "kernels").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    source = package / "kernels" / "dot.c"
    source.write_text("int a;")
    monkeypatch.syspath_prepend(tmp_path)

    def version() -> str:
        source_version.cache_clear()
        return source_version("uma_digest_package.kernels")

    before = version()
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "x.pyc").write_bytes(b"1")
    assert version() == before
    source.write_text("int b;\n")
    longer = version()
    os.utime(source, ns=(1, 1))
    assert len({before, longer, version()}) == 3


def test_a_module_without_files_counts_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "uma_digest_module.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    before = source_version("uma_digest_module")
    (tmp_path / "uma_digest_module.py").write_text("a = 1\n")
    source_version.cache_clear()
    assert source_version("uma_digest_module") != before
    names = [host().plugin.entry.value for _ in range(2)]
    assert source_version(names[0]) != source_version(names[1])


def test_equal_kernels_are_lowered_once() -> None:
    asked: list[Fusion] = []

    def lower(fusion: Fusion, target: Any) -> None:
        asked.append(fusion)

    entries = entry_of(host_kind("mine"), strategies=lambda: [Strategy("add", lower)])
    members = resolve_targets("mine", PluginHost(lambda: entries))
    ones, twos = (const(np.full((2, 3), value, np.float32)) for value in (1.0, 2.0))
    body = call("add", call("nn.relu", call("add", call("nn.relu", call("add", X, ones)), ones)), twos)
    Build("m", members).run(module_of(body), "lower")
    assert len(asked) == len({(one.function, tuple(one.known.items())) for one in asked}) < 3
