"""Check the names of core, plugins and examples: ``make lint``, or ``python -m tests.names``.

No definition, parameter, variable or attribute has a name of `FORBIDDEN`, which STYLE.md lists because such a name says
nothing about what it holds. No module, class or function has a name of ``replaced_names.txt``, which lists names that
were replaced, by folder; a module has the name of its file there. ``remaining_names.txt`` lists the exceptions by file:
these end when their file is moved, rewritten or deleted. An exception that matches nothing is an error too, so that the
list only shrinks.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("core", "plugins/*/src", "examples/*/src")
FORBIDDEN = frozenset(("of", "made", "given", "found", "told", "moved", "within", "own"))

Names = dict[str, set[str]]


def read_names(path: Path) -> Names:
    """Return the names of a list, by file or folder: lines of a path and the names there."""
    names: Names = defaultdict(set)
    for line in path.read_text(encoding="utf-8").splitlines():
        place, *words = line.split("#")[0].split() or [""]
        names[place].update(words)
    names.pop("", None)
    return names


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Yield each name that a module binds: definitions, parameters, variables, attributes, aliases of imports."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.alias) and node.asname is not None:
            yield node.asname
        elif isinstance(node, (ast.MatchAs, ast.MatchStar, ast.ExceptHandler)) and node.name is not None:
            yield node.name


def definitions(tree: ast.AST) -> Iterator[str]:
    """Yield the names of a module's classes and functions."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return (node.name for node in ast.walk(tree) if isinstance(node, kinds))


def old_names(root: Path, replaced: Mapping[str, Iterable[str]]) -> Names:
    """Return the names below `root` that are forbidden or replaced, by file."""
    names: Names = {}
    for path in sorted(path for source in SOURCES for folder in root.glob(source) for path in folder.rglob("*.py")):
        file = path.relative_to(root).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        matches = {name for name in bound_names(tree) if name.lstrip("_") in FORBIDDEN}
        folders = {parent.as_posix() for parent in Path(file).parents}
        outdated = {name for folder in folders for name in replaced.get(folder, ())}
        matches.update(outdated.intersection(definitions(tree)))
        matches.update({path.name}.intersection(replaced.get(path.relative_to(root).parent.as_posix(), ())))
        if matches:
            names[file] = matches
    return names


def problems(names: Mapping[str, set[str]], exceptions: Mapping[str, set[str]]) -> list[str]:
    """Return one line for each old name that is not an exception, and for each exception that matches nothing."""
    lines = []
    for file in sorted({*names, *exceptions}):
        present, excepted = names.get(file, set()), exceptions.get(file, set())
        lines += [f"{file}: {name}: name it for its contents (STYLE.md, Names)" for name in sorted(present - excepted)]
        lines += [
            f"{file}: {name}: not there any more: delete the exception in tests/remaining_names.txt"
            for name in sorted(excepted - present)
        ]
    return lines


def main() -> int:
    tests = ROOT / "tests"
    names = old_names(ROOT, read_names(tests / "replaced_names.txt"))
    lines = problems(names, read_names(tests / "remaining_names.txt"))
    print("\n".join(lines) or f"{sum(map(len, names.values()))} old names remain, all of them excepted")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
