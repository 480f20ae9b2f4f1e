"""Completion of words in shells: through the protocol of argcomplete, as a shell asks, and in bash."""

from __future__ import annotations

import argparse
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from uma.cli import _parser, main
from uma.cli.completion import _COMPLETERS, _arguments, _kept_open

WORDBREAKS = " \t\n\"'><=;|&(:"
"""COMP_WORDBREAKS, as bash has it by default."""

PLUGIN = """\
import pathlib
pathlib.Path(__file__).with_name("imported").touch()
{body}
"""
"""The module of a plugin that leaves a trace where it is imported."""

GOOD = """
from uma.hookspecs import hookimpl
from uma.targets import Attribute, ListOf, Target, TargetKind

class Plugin:
    @hookimpl
    def register_target(self):
        attributes = (
            Attribute("mode", ("fast", "small"), help="mode"),
            Attribute("modes", ListOf(("fast", "small")), help="modes"),
            Attribute("dim", int, default=8, help="rows"),
        )
        good = TargetKind("good", attributes, help="a host", is_host=True)
        return [good, TargetKind("goodie", help="an accelerator")]
"""


def install(folder: Path, module: str, kinds: list[str], body: str) -> None:
    """A plugin, as it is after its installation."""
    (folder / f"{module}.py").write_text(PLUGIN.format(body=body))
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    points = "".join(f"{kind} = {module}:Plugin\n" for kind in kinds)
    (info / "entry_points.txt").write_text(f"[uma.plugins]\n{points}")


class Shell:
    """Asks for completions as a shell does.

    Args:
        folder: the current one.
        site: what is installed besides.
    """

    def __init__(self, folder: Path, site: Path) -> None:
        self.folder, self.site = folder, site
        path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.environment = {**os.environ, "PYTHONPATH": path, "LC_ALL": "C.UTF-8"}

    def ask(self, line: str, shell: str = "bash") -> subprocess.CompletedProcess[str]:
        """What ``uma`` says where the cursor is behind ``line``; the completions are in ``stdout``."""
        answer = self.site / "answer"
        answer.write_text("")
        protocol = {
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_SHELL": shell,
            "_ARGCOMPLETE_IFS": "\n",
            "_ARGCOMPLETE_COMP_WORDBREAKS": WORDBREAKS,
            "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
            "COMP_LINE": line,
            "COMP_POINT": str(len(line.encode())),
        }
        command = [sys.executable, "-m", "uma"]
        environment = {**self.environment, **protocol}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        done.stdout = answer.read_text()
        return done

    def __call__(self, line: str, shell: str = "bash") -> list[str]:
        done = self.ask(line, shell)
        assert done.returncode == 0, done.stderr
        return done.stdout.split("\n") if done.stdout else []

    @property
    def imported(self) -> bool:
        """Whether a plugin was imported since this was last asked."""
        trace = self.site / "imported"
        there = trace.exists()
        trace.unlink(missing_ok=True)
        return there


@pytest.fixture
def shell(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A shell in a folder with models, where a plugin is installed, and one that cannot be imported."""
    pytest.importorskip("argcomplete", reason="argcomplete, which completes words, is not installed")
    site = tmp_path_factory.mktemp("site")
    install(site, "uma_good", ["good", "goodie"], GOOD)
    install(site, "uma_broken", ["broken"], "print('noise'); raise SystemExit(3)")
    (folder / "pyproject.toml").write_text('[tool.uma.targets]\nmy-board = "good -mode=fast"\n')
    return Shell(folder, site)


class TestProtocol:
    def test_commands_and_options(self, shell: Shell) -> None:
        assert shell("uma ") == [
            "build",
            "run",
            "verify",
            "explain",
            "plan",
            "report",
            "quantize",
            "export",
            "trace",
            "targets",
            "plugins",
            "new-plugin",
            "check",
            "doctor",
        ]
        assert shell("uma build net.py --st") == ["--state", "--strips", "--stream-input", "--stop-after", "--stats"]
        assert shell("uma build net.py --stop-after s") == ["simplify", "sequence"]
        assert shell("uma build net.py --partition ") == ["collage", "eager"]
        assert shell("uma verify net.py --against o") == ["onnxruntime"]
        assert shell("uma build net.py --name ") == []
        assert {"broken", "good"} <= set(shell("uma targets --disable-plugin "))
        assert not shell.imported

    def test_names_come_from_metadata(self, shell: Shell) -> None:
        (shell.folder / "gorge.json").write_text("{}")
        names = shell("uma targets ")
        assert {"broken", "composite", "good", "goodie", "my-board"} <= set(names) and names == sorted(names)
        assert shell("uma build net.py --target go") == ["good", "goodie", "gorge.json"]
        assert shell("uma build net.py --target=my") == ["my-board"]
        assert "good -mode=fast; broken" in shell("uma targets --explain 'good -mode=fast; ")
        assert not shell.imported

    def test_attributes_and_values_within_quotes(self, shell: Shell) -> None:
        assert shell("uma run net.py --target 'good -mo") == ["good -mode=", "good -modes=", "good -model="]
        assert shell.imported
        assert shell("uma run net.py --target 'good -mode=") == ["good -mode=fast", "good -mode=small"]
        nested = "uma run net.py --target \"good -accelerators='good -modes=fast,"
        assert shell(nested) == [f"good -accelerators='good -modes=fast,{mode}" for mode in ("fast", "small")]
        assert shell("uma run net.py --target 'good -di", "zsh") == ["good -dim=:"]

    def test_bash_is_kept_from_closing_the_quotes(self, shell: Shell) -> None:
        assert shell("uma run net.py --target 'good -di") == ["good -dim=", "good -dim= "]

    def test_labels(self, shell: Shell) -> None:
        line = "uma build net.py --target 'a: goodie' --target good --pin "
        assert shell(f"{line}'conv*=") == ["conv*=a", "conv*=good"]
        assert shell(f"{line}c") == []
        assert shell("uma build net.py --target nothing --pin 'x=") == []

    def test_devices_of_a_trace(self, shell: Shell) -> None:
        text = 'uma-trace 1\nmodel "m"\ndevice 0 "npu" "x"\ndevice 1 "dsp" "y"\nend 4\n'
        (shell.folder / "a.trace").write_text(text)
        assert sorted(shell("uma trace a.trace --device ")) == ["dsp", "npu"]
        assert shell("uma trace missing --device ") == []

    def test_what_is_wrong_with_a_plugin_does_not_matter(self, shell: Shell) -> None:
        done = shell.ask("uma build net.py --target 'broken -")
        assert (done.returncode, done.stdout) == (0, "") and shell.imported
        assert shell("uma build net.py --target broken --pin 'x=") == []
        (shell.folder / "pyproject.toml").write_text("[tool.uma")
        assert shell("uma build net.py --target g") == []

    def test_a_fault_of_the_core_does_not_matter(self, shell: Shell) -> None:
        (shell.site / "sitecustomize.py").write_text("import uma.plugins\numa.plugins.default_host = None\n")
        assert shell("uma targets ") == []


def test_without_argcomplete(folder: Path, tmp_path: Path) -> None:
    """The shell gets nothing, and no command runs."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "argcomplete.py").write_text("raise ImportError")
    shell = Shell(folder, tmp_path / "site")
    done = shell.ask("uma targets ")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


def test_nothing_of_it_is_imported_where_nobody_asks() -> None:
    code = "import sys, uma.cli; uma.cli.main(['run']); print('argcomplete' in sys.modules, *sys.modules)"
    environment = {name: value for name, value in os.environ.items() if name != "_ARGCOMPLETE"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.startswith("False ") and "uma.cli.completion" not in done.stdout.split()


def test_arguments_in_python_are_never_a_shells_question(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    assert main(["run"]) == 2


def test_every_argument_can_be_completed() -> None:
    """By its choices, as a path, or by a completer; and each completer has an argument."""
    arguments = list(_arguments(_parser()))
    for action in arguments:
        if action.nargs != 0 and not isinstance(action, argparse._SubParsersAction):
            assert action.choices or action.type is Path or action.dest in _COMPLETERS, action.dest
    assert _COMPLETERS.keys() <= {action.dest for action in arguments}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], []),
        (["c -a", "c -b"], ["c -a", "c -b"]),
        (["c -opt="], ["c -opt=", "c -opt= "]),
        (["c"], ["c -x=", "c -y="]),
    ],
)
def test_a_completion_gets_company(found: list[str], expected: list[str]) -> None:
    assert _kept_open("c", found, lambda text: [f"{text}-x=", f"{text}-y="]) == expected
    assert _kept_open("c", ["c"], lambda text: []) == ["c", "c "]


class Bash:
    """An interactive bash that completes ``uma``."""

    def __init__(self, shell: Shell) -> None:
        start = shell.site / "bashrc"
        uma = shell.site / "uma"
        uma.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m uma "$@"\n')
        uma.chmod(0o700)
        start.write_text(f"PS1='> '\nbind 'set bell-style none'\neval \"$('{sys.executable}' -c '{REGISTER}')\"\n")
        environment = {**shell.environment, "TERM": "dumb", "PATH": f"{shell.site}{os.pathsep}{os.environ['PATH']}"}
        self.terminal, inner = pty.openpty()
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--rcfile", str(start), "-i"],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            cwd=shell.folder,
            env=environment,
            start_new_session=True,
        )
        os.close(inner)
        self.text = ""
        self.wait_for("> ")

    def wait_for(self, text: str) -> str:
        """All that was shown since this was last asked, up to ``text``."""
        deadline = time.monotonic() + 30
        while text not in self.text:
            ready, _, _ = select.select([self.terminal], [], [], deadline - time.monotonic())
            assert ready, f"{text!r} does not come: {self.text!r}"
            self.text += os.read(self.terminal, 4096).decode(errors="replace")
        shown, _, self.text = self.text.partition(text)
        return shown + text

    def type(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


REGISTER = 'import argcomplete; print(argcomplete.shellcode(["uma"]))'


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_in_bash(shell: Shell) -> None:
    bash = Bash(shell)
    try:
        bash.type("uma run n\t")
        bash.wait_for("uma run net.py ")
        bash.type("--targ\t")
        bash.wait_for("--target ")
        bash.type("'good -di\t")
        bash.wait_for("'good -dim=")
        bash.type("4 -mod\t")
        bash.wait_for("4 -mode")
        bash.type("=s\t")
        bash.wait_for("=small")
        bash.type("X")
        assert bash.wait_for("X") == "X"  # bash has not closed the quotes
        bash.type("\x15uma run net.py --target \"good -accelerators='good -di\t")
        bash.wait_for("'good -dim=")
        bash.type("X")
        assert bash.wait_for("X") == "X"
    finally:
        bash.close()
