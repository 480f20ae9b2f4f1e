"""The cost of small extensions of the compiler: ``make cost-of-change`` or ``python -m tests.cost_of_change [NAME]``.

Each `Change` is applied to a copy of the tree. There its check must fail before the change and pass after it, so that
a patch which does nothing does not count as cheap. The table lists the files and lines of ``core`` that the change
touches, next to the goal. A row that misses its goal is marked, and is not an error: goals are reached step by step. An
anchor that is gone, and a check that does not pass, are errors.

To add a row (an instruction set, a language), append a `Change` to `CHANGES`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("core", "src", "plugins", "tests", "conftest.py", "pyproject.toml")


class AnchorError(Exception):
    """An edit does not fit the tree any more."""


@dataclass(frozen=True)
class Edit:
    """A change of one file at an anchor, which must occur there exactly once.

    Args:
        file: path from the root of the repository.
        anchor: whole text to look for; it stays in front of ``text`` unless ``replaces``.
        text: what is inserted directly behind the anchor, or put in its place.
        replaces: whether ``text`` replaces the anchor.
    """

    file: str
    anchor: str
    text: str
    replaces: bool = False

    @property
    def lines(self) -> int:
        """The number of lines that the edit adds or changes."""
        return max(1, len(self.text.strip("\n").splitlines()))

    def apply(self, root: Path, change: str) -> None:
        """Edit the file below ``root``.

        Raises:
            AnchorError: the file is missing, or the anchor does not occur in it exactly once; names ``change``.
        """
        path = root / self.file
        source = path.read_text(encoding="utf-8") if path.is_file() else ""
        if (count := source.count(self.anchor)) != 1:
            reason = f"contains the anchor {self.anchor!r} {count} times, not once" if source else "does not exist"
            raise AnchorError(f"change {change!r}: {self.file} {reason}; adapt the edit in {Path(__file__).name}")
        new = self.text if self.replaces else self.anchor + self.text
        path.write_text(source.replace(self.anchor, new), encoding="utf-8")


@dataclass(frozen=True)
class Change:
    """An extension of the compiler.

    Args:
        name: one or two words, for the table.
        goal: the number of files of core that it may touch.
        edits: the patch.
        check: Python code that fails without the patch and passes with it; it runs in the copy.
        tests: tests of the repository that must pass after the patch, as pytest takes them.
    """

    name: str
    goal: int
    edits: tuple[Edit, ...]
    check: str
    tests: tuple[str, ...] = ()


OPERATOR = Change(
    "op",
    3,
    (
        Edit(
            "core/relay/ops/elementwise.py",
            '"sign", monotonous(_sign_of)),\n',
            '    Row("signum", "1, 0 or -1, by sign.", NUMBERS, _sign, "sign", monotonous(_sign_of)),\n',
        ),
        Edit("core/frontends/onnx/arith.py", '    "Sign": "sign",\n', '    "Sign": "signum",\n', replaces=True),
        Edit(
            "core/frontends/tflite/elementwise.py",
            'call("sign", *operands(layer, 1))',
            'call("signum", *operands(layer, 1))',
            replaces=True,
        ),
        # UMA reads all elementwise operators of both formats: the patch gives SIGN a new op. A new operator of TFLite
        # also needs a row of its data types.
        Edit(
            "core/frontends/tflite/supported.py",
            '    **_each("SIGN", *_F, "float64", "int32"),\n',
            '    **_each("SIGN", *_F, "int32", "float64"),\n',
            replaces=True,
        ),
    ),
    """
from pathlib import Path
import uma
from onnx import TensorProto, helper
from tests._support.tflite_builder import TFLiteBuilder
from uma.relay import print_module
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
graph = helper.make_graph([helper.make_node("Sign", ["x"], ["y"])], "g", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
builder = TFLiteBuilder()
data, result = builder.input([4]), builder.tensor([4])
builder.op("SIGN", [data], [result])
Path("m.tflite").write_bytes(builder.finish(result))
for source in (model, "m.tflite"):
    assert "signum(" in print_module(uma.build(source, "c", name="m", stop_after="import"))[0]
    assert uma.build(source, "c", name="m").record.calls
""",
)

HOOK_FIELD = Change(
    "hook field",
    4,
    (
        Edit("core/contract/cost.py", '"bytes_moved", "energy_j"', ', "peak_w"'),
        Edit("core/contract/cost.py", "        energy_j: energy, in joules.\n", "        peak_w: power, in watts.\n"),
        Edit("core/contract/cost.py", "    energy_j: float | None = None\n", "    peak_w: float | None = None\n"),
        Edit("core/cli/explain.py", '    "energy_j": ("joules", ".3g"),\n', '    "peak_w": ("watts", ".3g"),\n'),
    ),
    """
from uma.cli.explain import _cost_columns
from uma.hookspecs import Cost
cost = Cost(cycles=1.0, peak_w=0.5)
assert cost.record()["peak_w"] == 0.5
assert any("watts" in str(part) for part in _cost_columns([cost]))
""",
)

LOOP_NODE = Change(
    "loop-IR node",
    6,
    (
        Edit("core/tir/form/nodes.py", '    "PrimFunc",\n', '    "Remark",\n'),
        Edit(
            "core/tir/form/nodes.py",
            '_ROLES = ("input", "output", "constant", "workspace")\n',
            '''

@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Remark(Stmt):
    """A comment in the generated C; does nothing."""

    text: str
''',
        ),
        Edit("core/tir/form/printer.py", "    Wait,\n", "    Remark,\n"),
        Edit("core/tir/form/printer.py", '"wait": Wait', ', "remark": Remark'),
        Edit("core/tir/form/interp.py", "    Wait,\n", "    Remark,\n"),
        Edit("core/tir/form/interp.py", "    Wait: _Machine.wait,\n", "    Remark: lambda *_: lambda: None,\n"),
        Edit("core/codegen/kernel.py", "    Wait,\n", "    Remark,\n"),
        Edit(
            "core/codegen/kernel.py",
            "    Wait: Writer.wait,\n",
            '    Remark: lambda writer, stmt, _: writer.line(f"/* {stmt.text} */"),\n',
        ),
        Edit("core/tir/__init__.py", "    PrimFunc,\n", "    Remark,\n"),
        Edit("core/tir/__init__.py", '    "PrimFunc",\n', '    "Remark",\n'),
    ),
    '''
import numpy as np
import uma
from uma.tir import interpret, parse_func, print_func, simplify, verify
TEXT = """@prim_func
def f(x: In[int32, (4,)], y: Out[int32, (4,)]):
    remark("copies x")
    for i in range(4):
        y[i] = x[i]
"""
name, func = parse_func(TEXT)
verify(func)
assert parse_func(print_func(func, name))[1] is func and "remark" in print_func(simplify(func), name)
assert interpret(func, {"x": np.arange(4, dtype=np.int32)})["y"].tolist() == [0, 1, 2, 3]
MAIN = """
@function
def main(x: Tensor[(4,), int32]) -> Tensor[(4,), int32]:
    v0 = f(x)
    return v0
"""
from uma.relay import parse_module
artifact = uma.build(parse_module(TEXT + MAIN), "c", name="m")
assert b"/* copies x */" in artifact.files["m.c"]
''',
)

ATTRIBUTE = Change(
    "attribute",
    1,
    (
        Edit(
            "core/targets/kind.py",
            '    device = Attribute("device", str, pattern=name',
            '    board = Attribute("board", str, pattern=name, help="board that the device is on")\n'
            '    device = Attribute("device", str, pattern=name',
            replaces=True,
        ),
        Edit("core/targets/kind.py", "compiler, *attributes, device, model", ", board"),
    ),
    """
from uma.plugins import default_host
from uma.targets import read_targets
from uma.lowering.build_targets import resolve_targets
members = resolve_targets("c -board=nucleo", default_host(), "eager")
assert members.host.target.get_attr("board") == "nucleo"
""",
)

OPTION = Change(
    "option",
    5,
    (
        Edit("core/options.py", "    weights: WeightsForm\n", "    remark: str | None\n"),
        Edit(
            "core/options.py",
            "        dump: folder for the text of every stage.\n",
            "        remark: a note on the model.\n",
        ),
        Edit(
            "core/options.py",
            "    dump: Path | None = _option(\n",
            """    remark: str | None = _option(None, Flag("note on the model", "TEXT", "output"))
    dump: Path | None = _option(
""",
            replaces=True,
        ),
        Edit(
            "core/pipeline/loading.py",
            "_identified(_loaded(model, CustomImporters(members), options))\n",
            """    if options.remark is not None:
        loaded = replace(loaded, notes=(*loaded.notes, options.remark))
""",
        ),
    ),
    """
import tempfile
from pathlib import Path
from tests._support.small_models import NET
from uma.cli import main
from uma.pipeline.loading import load_model
with tempfile.TemporaryDirectory() as folder:
    net, out = Path(folder, "net.py"), Path(folder, "out")
    net.write_text(NET)
    assert load_model(net, remark="v2").notes == ("v2",)
    assert main(["build", str(net), "--target", "c", "--remark", "v2", "--no-compile", "-q", "-o", str(out)]) == 0
    assert '"remark": "v2"' in (out / "model" / "build.json").read_text()
""",
    ("tests/pipeline/test_options.py",),
)

CHANGES = (OPERATOR, OPTION, HOOK_FIELD, LOOP_NODE, ATTRIBUTE)


@dataclass(frozen=True)
class Cost:
    """The files and lines of core that a change touches, and the goal for the files."""

    name: str
    files: int
    lines: int
    goal: int


def cost_of(change: Change) -> Cost:
    """Return what ``change`` touches in core."""
    edits = [edit for edit in change.edits if edit.file.startswith("core/")]
    return Cost(change.name, len({edit.file for edit in edits}), sum(edit.lines for edit in edits), change.goal)


def copy_tree(root: Path) -> None:
    """Copy what a check needs to ``root``."""
    skipped = shutil.ignore_patterns("__pycache__", ".*", "*.so", "build")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, root / name, symlinks=True, ignore=skipped)
        else:
            shutil.copy2(source, root / name)


def run_python(root: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run Python on the sources below ``root``."""
    paths = [root / "src", *sorted(root.glob("plugins/*/src")), root]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, *arguments], cwd=root, env=env, capture_output=True, text=True, check=False)


def check_change(change: Change) -> str | None:
    """Apply ``change`` to a copy of the tree, and return why it is not what it should be; None if it is.

    Raises:
        AnchorError: an edit does not fit the tree.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        copy_tree(root)
        if run_python(root, ["-c", change.check]).returncode == 0:
            return "its check passes without it"
        for edit in change.edits:
            edit.apply(root, change.name)
        commands = [["-c", change.check]]
        if change.tests:
            commands.append(["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *change.tests])
        for command in commands:
            run = run_python(root, command)
            if run.returncode:
                return f"its check fails:\n{(run.stdout + run.stderr).strip()[-3000:]}"
    return None


def table(costs: Sequence[Cost]) -> str:
    """Return the costs as text."""
    rows = [("change", "files", "goal", "lines", "")]
    rows += [(c.name, str(c.files), str(c.goal), str(c.lines), "above" if c.files > c.goal else "") for c in costs]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    aligned = (
        (f"{row[0]:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(row[1:4], widths[1:4], strict=True)))
        for row in rows
    )
    return "\n".join("  ".join((*cells, row[4])).rstrip() for cells, row in zip(aligned, rows, strict=True))


def main(names: Sequence[str]) -> int:
    """Check these changes, by default all, and print the table; return 1 if one is at fault, 2 for a wrong name."""
    known = {change.name: change for change in CHANGES}
    if wrong := [name for name in names if name not in known]:
        print(f"unknown change {wrong[0]!r}; changes: {', '.join(known)}", file=sys.stderr)
        return 2
    changes = [known[name] for name in names] or list(CHANGES)
    is_faulty = False
    for change in changes:
        try:
            fault = check_change(change)
        except AnchorError as error:
            fault = str(error)
        if fault is not None:
            is_faulty = True
            print(f"change {change.name!r}: {fault}", file=sys.stderr)
    print(table([cost_of(change) for change in changes]))
    return int(is_faulty)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
