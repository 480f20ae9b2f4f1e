"""The borders of the house: layers point one way, the core names no plugin, plugins use the public face only."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "core"
PROJECTS = sorted([*ROOT.glob("plugins/*/pyproject.toml"), *ROOT.glob("examples/*/pyproject.toml")])

# Lowest first. A layer imports those on earlier lines, never its neighbours on the same line.
LAYERS = [
    ["errors", "version"],
    ["support"],
    ["tir"],
    ["relay"],
    ["packing", "targets"],
    ["program"],
    ["contract"],
    ["hookspecs"],
    ["plugins"],
    ["frontends", "partition", "codegen", "scaffold"],
    ["lowering"],
    ["toolchain"],
    ["runtime"],
    ["artifact"],
    ["option_values"],
    ["options"],
    ["pipeline"],
    ["tuning"],
    ["verification"],
    ["reports"],
    ["quantisation", "api"],
    ["testing"],
    ["cli"],
    ["__init__"],
    ["__main__"],
]
APART = {"runtime": {"codegen"}, "artifact": {"codegen"}}
"""Lower layers that a layer must not import: models that are not C run, and are saved, without what prints C."""


ANY = "*"
"""A layer whose name is only known when the program runs."""
RANK = {layer: rank for rank, layers in enumerate(LAYERS) for layer in layers}

# Kinds that the design draws; the names of those that exist are read from their projects.
PLANNED_KINDS = {"vela"}


def imported_layers(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """(line, layer) of each import of core from a module in `package` (its path below core); '' is an absolute one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, "") for name in node.names if name.name.split(".")[0] in ("uma", "core"))
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".") if node.module else []
            if node.level == 0:
                if module[0] in ("uma", "core"):
                    yield node.lineno, ""
                continue
            path = [*package[: len(package) - node.level + 1], *module]
            if path:
                yield node.lineno, path[0]
            else:  # from .. import name: a layer, or something of the public face
                yield from ((node.lineno, name.name if name.name in RANK else "__init__") for name in node.names)
        elif isinstance(node, ast.Call) and node.args and _imports_a_module(node.func):
            yield from ((node.lineno, layer) for layer in _layers_by_name(node.args[0], package))


def _imports_a_module(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return str(name).endswith("import_module")


def _layers_by_name(name: ast.expr, package: tuple[str, ...]) -> list[str]:
    """The layer that ``import_module(name, __package__)`` imports; none for a module that is not the core's."""
    parts = name.values if isinstance(name, ast.JoinedStr) else [name]
    text = "".join(str(part.value) if isinstance(part, ast.Constant) else ANY for part in parts)
    if not text.startswith("."):
        return [""] if text.partition(".")[0] in ("uma", "core") else []
    rest = text.lstrip(".")
    path = [*package[: len(package) - (len(text) - len(rest)) + 1], *rest.split(".")]
    return [path[0] or "__init__"]


def layer_faults(path: str, source: str) -> list[str]:
    """What is wrong with the imports of the module at `path` below core/."""
    parts = path.removesuffix(".py").split("/")
    layer = parts[0]
    if layer not in RANK:
        return [f"core/{path}: {layer} has no place in LAYERS"]
    faults = []
    for line, used in imported_layers(ast.parse(source), tuple(parts[:-1])):
        if used == ANY and layer == "__init__":
            continue  # the public face is above all that it can name
        if not used:
            faults.append(f"core/{path}:{line}: core imports itself relatively")
        elif used not in RANK:
            faults.append(f"core/{path}:{line}: {used} has no place in LAYERS")
        elif used != layer and (RANK[used] >= RANK[layer] or used in APART.get(layer, ())):
            faults.append(f"core/{path}:{line}: {layer} must not import {used}")
    return faults


def test_layers_point_one_way() -> None:
    faults = []
    for file in sorted(CORE.rglob("*.py")):
        faults += layer_faults(file.relative_to(CORE).as_posix(), file.read_text(encoding="utf-8"))
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        ("tir/nodes.py", "from ..relay import expr", "tir must not import relay"),
        ("tir/nodes.py", "def f():\n    from ..relay.expr import Call", "tir must not import relay"),
        ("relay/ops/conv.py", "from ...pipeline.stages import build", "relay must not import pipeline"),
        ("targets/t.py", "from ..program import Program", "targets must not import program"),
        ("contract/code.py", "from ..toolchain.compile import CompileUnit", "contract must not import toolchain"),
        ("lowering/lower.py", "from ..pipeline.stages import build", "lowering must not import pipeline"),
        ("pipeline/driver.py", "from ..reports.verify import verify", "pipeline must not import reports"),
        ("pipeline/driver.py", "def f():\n    from ..tuning import build_best", "pipeline must not import tuning"),
        ("errors.py", "from . import tir", "errors must not import tir"),
        ("artifact/record.py", "from ..codegen.model import emit_model", "artifact must not import codegen"),
        ("runtime/native.py", "from .. import codegen", "runtime must not import codegen"),
        ("cli/build.py", "from .. import build", "cli must not import __init__"),
        ("tir/nodes.py", "from uma import errors", "core imports itself relatively"),
        ("tir/nodes.py", "import uma.errors", "core imports itself relatively"),
        ("targets/t.py", "import_module('..plugins', __package__)", "targets must not import plugins"),
        ("targets/t.py", "importlib.import_module('..plugins.host', __package__)", "targets must not import plugins"),
        (
            "targets/t.py",
            "importlib.import_module(f'..plugins.{name}', __package__)",
            "targets must not import plugins",
        ),
        ("targets/t.py", "importlib.import_module(f'..{name}', __package__)", "* has no place in LAYERS"),
        ("targets/t.py", "importlib.import_module('uma.plugins')", "core imports itself relatively"),
        ("misc.py", "", "misc has no place in LAYERS"),
        ("tir/nodes.py", "from ..misc import f", "misc has no place in LAYERS"),
    ],
)
def test_a_wrong_import_is_found(path: str, source: str, fault: str) -> None:
    assert [found.rpartition(": ")[2] for found in layer_faults(path, source)] == [fault]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("tir/nodes.py", "from ..errors import UmaError\nfrom . import dtype\nfrom .dtype import DType\nimport numpy"),
        ("relay/ops/conv.py", "from ..expr import Call\nfrom ...tir import compute\nfrom ... import errors"),
        ("__init__.py", "from .tuning import build\nfrom . import errors"),
        ("__main__.py", "from .cli import main"),
        ("plugins/__init__.py", "import_module(f'.{name}', __name__)"),
        ("plugins/loading.py", "importlib.import_module(module)"),
        ("runtime/native.py", "import_module('numpy')"),
    ],
)
def test_a_right_import_is_allowed(path: str, source: str) -> None:
    assert layer_faults(path, source) == []


def executed_statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield every statement below `node` that can run: not those for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.stmt):
            yield child
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from executed_statements(child)


def import_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """The modules that each module imports, at its top or inside functions; a package is the module ``__init__``.

    Args:
        sources: by path below core/, the source of each module.
    """
    paths = {tuple(path.removesuffix(".py").removesuffix("/__init__").split("/")): path for path in sources}
    graph: dict[str, set[str]] = {path: set() for path in sources}
    for path, source in sources.items():
        package = path.split("/")[:-1]
        for node in executed_statements(ast.parse(source)):
            if not isinstance(node, ast.ImportFrom) or node.level == 0:
                continue
            base = (*package[: len(package) - node.level + 1], *(node.module.split(".") if node.module else ()))
            for name in node.names:
                module = paths.get((*base, name.name), paths.get(base))
                if module not in (None, path):
                    graph[path].add(module)
    return graph


def import_circle(graph: Mapping[str, set[str]]) -> list[str]:
    """One circle of imports, its first module again at the end; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_files_import_each_other_in_a_circle() -> None:
    files = sorted(CORE.rglob("*.py"))
    graph = import_graph({file.relative_to(CORE).as_posix(): file.read_text(encoding="utf-8") for file in files})
    circle = import_circle(graph)
    assert not circle, " -> ".join(reversed(circle))


@pytest.mark.parametrize(
    ("sources", "circle"),
    [
        ({"a/b.py": "from .c import f", "a/c.py": "import numpy"}, []),
        (
            {"a/b.py": "from .c import f", "a/c.py": "from ..d import g", "d.py": "from .a import b"},
            ["a/b", "a/c", "d"],
        ),
        ({"a/b.py": "from .c import f", "a/c.py": "def f():\n    from . import b"}, ["a/b", "a/c"]),
        (
            {"a/b.py": "from . import f", "a/__init__.py": "try:\n    from .b import f\nexcept E:\n    pass"},
            ["a/__init__", "a/b"],
        ),
        ({"a/b.py": "from .c import f", "a/c.py": "if TYPE_CHECKING:\n    from .b import F"}, []),
    ],
)
def test_a_circle_is_found(sources: dict[str, str], circle: list[str]) -> None:
    modules = {path.removesuffix(".py") for path in import_circle(import_graph(sources))}
    assert sorted(modules) == circle


def plugin_names() -> set[str]:
    """Names of distributions, modules and kinds of all plugins here; of those a search can find, with three letters."""
    names = set(PLANNED_KINDS)
    for file in PROJECTS:
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        entry_points = project["entry-points"]["uma.plugins"]
        names |= {project["name"], *entry_points, *(value.partition(":")[0] for value in entry_points.values())}
    return {name for name in names if len(name) > 2}


def test_the_core_names_no_plugin() -> None:
    names = plugin_names()
    assert {"uma_cpu_c", "uma_matrix_unit"} <= names
    spelt = "|".join(re.sub("[-_]", "[-_]", name) for name in sorted(names))
    pattern = re.compile(rf"(?<![A-Za-z0-9])({spelt})(?![A-Za-z0-9])", re.IGNORECASE)
    faults = [
        f"core/{file.relative_to(CORE).as_posix()}:{number}: {found[0]}"
        for file in sorted(CORE.rglob("*"))
        if file.suffix in (".py", ".c", ".h")
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if (found := pattern.search(line))
    ]
    assert not faults, "\n".join(faults)


DEEPER = {"uma.relay.pattern", "uma.relay.quantised", "uma.tir.schedule", "uma.tir.tiling"}
"""Public modules that are not directly below `uma`."""


def public_names(module: str) -> list[str] | None:
    """`__all__` of `uma`, of a module directly below it, or of one of `DEEPER`; None if the module is not public."""
    parts = module.split(".")
    if (
        (len(parts) > 2 and module not in DEEPER)
        or parts[-1].startswith("_")
        or importlib.util.find_spec(module) is None
    ):
        return None
    return getattr(importlib.import_module(module), "__all__", None)


class FaceUse:
    """Follows the names by which a source reaches modules of `uma`; `faults` has each use of what is not public."""

    def __init__(self) -> None:
        self.faults: set[tuple[int, str]] = set()
        self._modules: dict[str, str] = {}  # local name -> module

    def _use(self, line: int, module: str, name: str) -> str | None:
        """Checks ``module.name``; gives its full name if it is a module."""
        public, full = public_names(module), f"{module}.{name}"
        if public is None:
            self.faults.add((line, f"{module} is not public"))
            return None
        if name not in public and public_names(full) is None:
            self.faults.add((line, f"{full} is not public"))
        return full if module == "uma" and importlib.util.find_spec(full) else None

    def read_import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.ImportFrom):
            if node.level == 0 and (node.module or "").split(".")[0] == "uma":
                for name in node.names:
                    if module := self._use(node.lineno, node.module or "", name.name):
                        self._modules[name.asname or name.name] = module
            return
        for name in node.names:
            if name.name.split(".")[0] == "uma":
                if public_names(name.name) is None:
                    self.faults.add((node.lineno, f"{name.name} is not public"))
                self._modules[name.asname or "uma"] = name.name if name.asname else "uma"

    def module_of(self, node: ast.expr) -> str | None:
        """The module that an expression stands for, each step on the way checked."""
        if isinstance(node, ast.Name):
            return self._modules.get(node.id)
        if isinstance(node, ast.Attribute) and (module := self.module_of(node.value)):
            return self._use(node.lineno, module, node.attr)
        return None


def face_faults(source: str) -> list[tuple[int, str]]:
    """(line, what) of each use of uma in `source` that is not public; imports are read first, wherever they stand."""
    nodes, use = list(ast.walk(ast.parse(source))), FaceUse()
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            use.read_import(node)
    for node in nodes:
        if isinstance(node, ast.Attribute):
            use.module_of(node)
    return sorted(use.faults)


def test_plugins_use_only_the_public_face() -> None:
    faults = [
        f"{file.relative_to(ROOT).as_posix()}:{line}: {what}"
        for project in PROJECTS
        for file in sorted(project.parent.glob("src/**/*.py"))
        for line, what in face_faults(file.read_text(encoding="utf-8"))
    ]
    assert not faults, "\n".join(faults)


def loaded_from_uma() -> list[str]:
    return [name for name in sys.modules if name.split(".")[0] == "uma"]


@pytest.fixture
def face(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A small `uma` in the place of the real one."""
    package = tmp_path / "uma"
    (package / "tir").mkdir(parents=True)
    (package / "__init__.py").write_text("from . import tir\n__all__ = ['build', 'tir']\nbuild = hidden = 1\n")
    (package / "tir" / "__init__.py").write_text("__all__ = ['Add']\nAdd = hidden = 1\n")
    (package / "tir" / "nodes.py").write_text("__all__ = ['Add']\nAdd = 1\n")
    (package / "relay" / "pattern").mkdir(parents=True)
    (package / "relay" / "__init__.py").write_text("__all__ = []\n")
    (package / "relay" / "pattern" / "__init__.py").write_text("__all__ = ['op']\nop = hidden = 1\n")
    (package / "internal.py").write_text("thing = 1\n")
    for name in loaded_from_uma():
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in loaded_from_uma():
        del sys.modules[name]


@pytest.mark.usefixtures("face")
@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("import uma\numa.build(uma.tir.Add)", []),
        ("from uma import build, tir as t\nt.Add", []),
        ("import uma.tir\nfrom uma.tir import Add", []),
        ("def f():\n    import uma as u\n    return u.build", []),
        ("import numpy\nnumpy.hidden", []),
        ("from uma.relay.pattern import op", []),
        ("from uma.relay.pattern import hidden", [(1, "uma.relay.pattern.hidden is not public")]),
        ("import uma\numa.hidden", [(2, "uma.hidden is not public")]),
        ("import uma\numa.tir.hidden()", [(2, "uma.tir.hidden is not public")]),
        ("from uma import hidden", [(1, "uma.hidden is not public")]),
        ("from uma import tir as t\nt.hidden.x", [(2, "uma.tir.hidden is not public")]),
        ("from uma.tir.form.nodes import Add", [(1, "uma.tir.form.nodes is not public")]),
        ("import uma.tir.form.nodes", [(1, "uma.tir.form.nodes is not public")]),
        ("from uma.internal import thing", [(1, "uma.internal is not public")]),
        ("from uma import *", [(1, "uma.* is not public")]),
    ],
)
def test_what_counts_as_public(source: str, faults: list[tuple[int, str]]) -> None:
    assert face_faults(source) == faults


def test_importing_uma_is_cheap() -> None:
    code = "import sys; before = set(sys.modules); import uma; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "uma" in loaded
    heavy = {"numpy", "cffi", "onnx", "flatbuffers", "tflite", "importlib.metadata", "importlib_metadata"} & set(loaded)
    assert not heavy, f"`import uma` loads {sorted(heavy)}:\n{done.stderr}"
