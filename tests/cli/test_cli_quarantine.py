"""Broken plugins beside sound ones: they harm nobody, and who asks for one is told all about it."""

from __future__ import annotations

import re
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from docs.generate.names import HOOKS
from tests._support.broken_plugins import BROKEN, Broken
from tests._support.installed import install
from tests._support.small_models import Uma

from uma.errors import PluginError
from uma.plugins import PluginHost, installed_plugins

UNUSABLE = {name: broken for name, broken in BROKEN.items() if broken.at in ("load", "metadata")}
NOTHING = Path(__file__).resolve().parents[1] / "stand_ins" / "uma-nothing"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which all of them are installed, and the plugin that does nothing."""
    folder = tmp_path_factory.mktemp("site")
    for broken in BROKEN.values():
        broken.install_in(folder)
    source = (NOTHING / "src" / "uma_nothing" / "__init__.py").read_text(encoding="utf-8")
    install(folder, "uma-nothing", ["nothing"], source)
    return folder


@pytest.fixture(autouse=True)
def host(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process begins anew: it has found no plugin yet, and imported none of these."""
    monkeypatch.syspath_prepend(site)
    fresh = PluginHost()
    monkeypatch.setattr("uma.plugins.default_host", lambda: fresh)
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(site)):
            del sys.modules[name]


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_who_asks_for_it_is_told(broken: Broken, uma: Uma, site: Path) -> None:
    done = uma("build", "net.py", "--target", broken.kind, "--target", "c")
    said = done.error(5)
    first, *others = said.splitlines()
    assert re.search(broken.what, first) and f"uma-{broken.name}" in said
    [where] = (line for line in others if line.startswith("  where: "))
    assert "uma-core 0." in where or "hook " in where
    if broken.raised:
        assert str(site / f"uma_{broken.kind}.py") in said
    assert any(line.startswith("  hint: ") for line in others)


@pytest.mark.parametrize("command", [("run",), ("run", "--profile"), ("verify",)])
def test_every_command_names_the_owner_of_a_file_that_does_not_compile(command: tuple[str, ...], uma: Uma) -> None:
    done = uma(command[0], "net.py", "--target", "compiles", "--target", "c", *command[1:])
    assert "plugin uma-compiles 1.0 has C that does not compile: broken.c:1\n" in done.error(5)


@pytest.mark.parametrize("broken", UNUSABLE.values(), ids=UNUSABLE)
def test_the_original_exception_is_kept(broken: Broken) -> None:
    with pytest.raises(PluginError) as caught:
        PluginHost().plugin_for(broken.kind)
    cause = caught.value.__cause__
    assert (None if cause is None else type(cause).__name__) == broken.cause


def test_nobody_else_is_harmed(uma: Uma, folder: Path) -> None:
    assert uma("build", "net.py", "--target", "c", "-o", "alone").code == 0
    assert uma("build", "net.py", "--target", "nothing", "--target", "c", "-o", "both").code == 0
    for file in sorted((folder / "alone").glob("*.[ch]")):
        assert (folder / "both" / file.name).read_bytes() == file.read_bytes()
    done = uma("targets")
    assert done.code == 0
    lines = done.out.splitlines()
    for broken in BROKEN.values():
        begin = (
            f"{broken.kind}: cannot be used: plugin uma-{broken.name} 1.0 "
            if broken.name in UNUSABLE
            else f"{broken.kind}: is broken"
        )
        assert any(line.startswith(begin) for line in lines), broken.name
    assert "nothing: an accelerator that takes no op (npu)" in lines


CHANGES = """
import os, signal, warnings
import numpy
from uma.hookspecs import hookimpl
from uma.targets import TargetKind

os.chdir("/")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
numpy.seterr(all="raise")
warnings.simplefilter("ignore")

@hookimpl
def register_target():
    return [TargetKind("changes", help="changes what is not its own", device_type="npu")]
"""


def test_what_one_changes_is_put_back(
    uma: Uma, folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path_factory.mktemp("other")
    install(other, "uma-changes", ["changes"], CHANGES)
    monkeypatch.syspath_prepend(other)
    before = np.geterr(), list(warnings.filters), signal.getsignal(signal.SIGTERM)
    done = uma("build", "net.py", "--target", "changes", "--target", "c")
    del sys.modules["uma_changes"]
    assert done.code == 0 and (folder / "build" / "net").is_dir() and Path.cwd() == folder
    assert (np.geterr(), list(warnings.filters), signal.getsignal(signal.SIGTERM)) == before
    assert done.err == (
        "uma: warning: plugin uma-changes 1.0 changed the current folder, the handler of SIGTERM, "
        "numpy's error state; it was put back as it was\n"
    )


def test_two_that_claim_one_kind_and_a_way_out(
    uma: Uma, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path_factory.mktemp("other")
    install(other, "uma-something", ["nothing"], "raise RuntimeError('never imported')")
    monkeypatch.syspath_prepend(other)
    command = ("build", "net.py", "--target", "nothing", "--target", "c")
    said = uma(*command).error(5)
    assert "'nothing' is claimed by more than one plugin: uma-nothing 1.0 (uma_nothing), uma-something 1.0" in said
    assert "--disable-plugin PLUGIN" in said
    assert uma(*command, "--disable-plugin", "uma-something").code == 0


def test_there_is_one_in_each_way() -> None:
    assert len(BROKEN) >= 12 and {broken.at for broken in BROKEN.values()} == {"metadata", "load", "build", "compile"}
    lines = (NOTHING / "src" / "uma_nothing" / "__init__.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 6 * len(HOOKS), "six lines a hook, as ever"


def test_finding_them_imports_none(site: Path) -> None:
    kinds = {entry.kind for entry in installed_plugins()}
    assert {broken.kind for broken in BROKEN.values()} <= kinds
    assert not [name for name in sys.modules if str(getattr(sys.modules[name], "__file__", "")).startswith(str(site))]
