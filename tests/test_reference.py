"""The site of the documentation: its reference has everything, what is public is documented, links lead somewhere."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import inspect
import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, get_args
from xml.etree import ElementTree

import pytest
from docs.generate import headers, readmes, record, repository, site
from docs.generate.committed import committed
from docs.generate.contract import phase_docs
from docs.generate.docstrings import Docstring, first_sentence, inline, text
from docs.generate.errors import messages
from docs.generate.members import members_of
from docs.generate.names import DEEPER, HOOKS, Name, Names, literal
from docs.generate.pictures import pictures
from docs.generate.plots import plots, table
from docs.generate.site import PAGES
from tests.test_layers import DEEPER as DEEPER_MODULES

from uma import errors, hookspecs
from uma.artifact import schema
from uma.cli import _parser
from uma.contract.passes import PHASES
from uma.frontends.onnx.converters import CONVERTERS
from uma.frontends.onnx.fold import FOLDERS
from uma.frontends.tflite.control import CONTROL
from uma.frontends.tflite.convert import OPERATORS
from uma.frontends.tflite.variables import VARIABLE_OPERATORS
from uma.options import BuildOptions
from uma.partition import ReasonKind
from uma.pipeline.stages import PHASE_AFTER, STAGES
from uma.plugins.host import State
from uma.relay import registered_ops
from uma.targets import Alias, Attribute, TargetKind
from uma.targets.parsing import COMPOSITE_KIND

CSRC = Path(repository.ROOT, "core", "runtime", "csrc")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return site.sources()


@pytest.fixture(scope="module")
def names() -> Names:
    return Names()


def section(page: str, heading: str) -> str:
    """What stands below a heading, up to the next one of its level."""
    match = re.search(rf"^(#+) {re.escape(heading)}\n", page, re.MULTILINE)
    assert match is not None, f"there is no section {heading}"
    end = re.search(rf"^#{{1,{len(match[1])}}} ", page[match.end() :], re.MULTILINE)
    return page[match.end() : match.end() + end.start() if end else None]


# --- Everything is there ---------------------------------------------------------------------------------------------


def test_every_hook_is_in_the_reference(pages: dict[str, str]) -> None:
    page = pages["reference/hooks.md"]
    for hook in HOOKS:
        told = section(page, f"`{hook}`")
        assert f"def {hook}(" in told and "**Returns**" in told and "**Example**" in told and "@hookimpl" in told


def test_every_record_is_in_the_reference_with_its_fields(pages: dict[str, str]) -> None:
    page = pages["reference/records.md"]
    records = [record for name in hookspecs.__all__ if inspect.isclass(record := getattr(hookspecs, name))]
    assert len(records) > 15
    for record in (*records, TargetKind, Alias, Attribute):
        told = section(page, f"`{record.__name__}`")
        fields = [name for name in inspect.signature(record).parameters if name not in ("_", "args", "kwargs")]
        assert not [field for field in fields if f"{field}:" not in told], record


def test_every_phase_is_in_the_reference(pages: dict[str, str]) -> None:
    assert list(phase_docs()) == list(PHASES)
    for phase in PHASES:
        assert re.search(rf"^\| `{phase}` \| `\w+` \| \S.{{20,}} \|$", pages["reference/phases.md"], re.MULTILINE)


def test_every_option_of_a_build_is_in_the_reference(pages: dict[str, str]) -> None:
    page = pages["reference/options.md"]
    for field in dataclasses.fields(BuildOptions):
        assert re.search(rf"^\| `{field.name}` \| .* \| .{{20,}} \|$", page, re.MULTILINE), field.name
    row = next(line for line in page.splitlines() if line.startswith("| `allow` |"))
    assert "| `--allow WHAT=HOW` | `allow` | `build`, `run`, `verify`, `explain`, `report`, `plan` |" in row


@pytest.mark.parametrize("op", registered_ops().values(), ids=lambda op: op.name)
def test_every_op_is_in_the_reference_with_its_type_and_attributes(pages: dict[str, str], op: Any) -> None:
    told = section(pages["reference/ops.md"], f"`{op.name}`")
    assert re.search(r"^- \*operands\* \S", told, re.MULTILINE)
    assert re.search(r"^- \*type\* \S.{20,}", told, re.MULTILINE), f"{op.name}: the type relation has no docstring"
    for attr in op.attrs:
        assert f"\n| `{attr.name}` | " in told


def test_what_is_kept_in_the_repository_is_what_the_code_says() -> None:
    made = committed()
    old = [path for path, text in made.items() if (site.PAGES / path).read_text(encoding="utf-8") != text]
    assert not old, f"made anew by `python -m docs.generate --committed`, then read `git diff`: {old}"
    assert {path.name for path in (site.PAGES / "pictures").iterdir()} == {*pictures()}


def test_a_drawing_is_well_formed_and_shows_every_stage_phase_and_state() -> None:
    drawn = {name: "".join(ElementTree.fromstring(text).itertext()) for name, text in pictures().items()}
    assert not [word for word in (*STAGES, *PHASES) if word not in drawn["build.svg"]]
    assert not [word for word in get_args(State) if word not in drawn["plugin.svg"]]


def test_a_plot_shows_every_row_of_its_table() -> None:
    for name, shape in (("layers", "rect"), ("memory", "circle")):
        rows = [row for some in table(name).values() for row in some]
        drawn = ElementTree.fromstring(plots()[f"npu-{name}.svg"]).iter(f"{{http://www.w3.org/2000/svg}}{shape}")
        told = [element[0].text or "" for element in drawn if len(element)]
        assert len(rows) > 10 and len(told) == len(rows)
        assert all(row[3] in text for row, text in zip(rows, told, strict=True))


def test_a_table_that_is_not_there_is_not_drawn() -> None:
    with pytest.raises(AssertionError, match="has no table 'clouds' between its marks"):
        table("clouds")


def test_every_operator_of_model_files_is_in_the_table(pages: dict[str, str]) -> None:
    page = pages["operators.md"]
    tflite, onnx = section(page, "TFLite"), section(page, "ONNX")
    assert not [name for name in (*OPERATORS, *VARIABLE_OPERATORS, *CONTROL) if tflite.count(f"| `{name}` |") != 1]
    assert not [name for name in {*CONVERTERS, *FOLDERS} if onnx.count(f"| `{name}` |") != 1]
    assert not [name for name in registered_ops() if section(page, "Relay").count(f"\n| `{name}` |") != 1]


def test_every_target_kind_is_in_the_reference_with_its_attributes(pages: dict[str, str]) -> None:
    page = pages["reference/targets.md"]
    found = repository.projects()
    host = repository.host_of(found)
    kinds = [host.lookup(entry.kind) for project in found for entry in project.entries]
    assert len(kinds) >= 4
    for kind in (*kinds, COMPOSITE_KIND):
        told = section(page, f"`{kind.name}`")
        if isinstance(kind, TargetKind):
            everything = f"{told}{section(page, 'What every host has besides')}"
            everything += section(page, "What every accelerator has besides")
            assert all(f"\n| `-{attribute.name}` |" in told for attribute in kind.attributes)
            assert all(f"\n| `-{attribute.name}` |" in everything for attribute in kind.common)


def test_every_pattern_and_condition_is_in_the_reference(pages: dict[str, str]) -> None:
    found = repository.projects()
    host = repository.host_of(found)
    count = 0
    for project in found:
        page = pages[f"reference/plugins/{project.name}.md"]
        for entry in project.entries:
            if isinstance(host.lookup(entry.kind), Alias):
                assert section(page, f"`{entry.kind}`")
                continue
            plugin = host.plugin_for(entry.kind)
            for pattern in plugin.call("patterns", target=host.target(entry.kind)) or ():
                told = section(page, f"Pattern `{pattern.name}`")
                clauses = pattern.predicate if isinstance(pattern.predicate, tuple) else ()
                assert "\nresult: " in told and all(f"\n| `{clause.name}` | " in told for clause in clauses)
                count += 1
    assert count > 15


def parsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        for name, inner in (action.choices or {}).items() if isinstance(action.choices, dict) else ():
            yield name, inner
            yield from ((f"{name} {deeper}", one) for deeper, one in parsers(inner))


def test_every_command_and_option_is_in_the_reference(pages: dict[str, str]) -> None:
    commands = dict(parsers(_parser()))
    assert {"build", "run", "verify", "explain", "targets"} <= set(commands)
    for name, command in commands.items():
        told = section(pages["reference/cli.md"], f"`uma {name}`")
        for action in command._actions:
            if action.dest != "help" and not isinstance(action.choices, dict):
                shown = action.option_strings or [str(action.metavar or action.dest.upper())]
                shown = [re.escape(one.replace("|", "\\|")) for one in shown]
                assert all(re.search(rf"^\|.*`{one}[ `]", told, re.MULTILINE) for one in shown), (
                    name,
                    shown,
                )
                assert action.help


def test_every_error_is_in_the_reference(pages: dict[str, str]) -> None:
    for name in errors.__all__:
        told = section(pages["reference/errors.md"], f"`{name}`")
        assert f"class {name}(" in told
        assert f"| {getattr(errors, name).exit_code} | [`{name}`]" in pages["reference/errors.md"]


def test_messages_are_found_in_the_sources() -> None:
    found = messages()
    assert len(found) > 400
    said = {(one.error, one.what, one.hint) for one in found}
    hint = "install gcc or clang, or add one to this environment with: pip install ziglang"
    assert ("UsageError", "--shape gives … twice", "") in said
    assert any(what == "no C compiler was found" for _, what, _ in said) and hint
    assert not [one for one in found if "�" in one.what or not one.what.strip("… ")]


@pytest.mark.parametrize("header", headers.HEADERS)
def test_every_declaration_of_c_is_in_the_reference(pages: dict[str, str], header: str) -> None:
    source = (CSRC / header).read_text(encoding="utf-8")
    plain = re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL)
    wanted = set(re.findall(r"^#define (UMA_\w+)", plain, re.MULTILINE)) - {header.upper().replace(".", "_")}
    wanted |= set(re.findall(r"^(?! )(?:static inline )?[\w ]+[ *](uma_\w+)\([^;]*?\)(?:\n?\{|;)", plain, re.MULTILINE))
    wanted |= {a or b for a, b in re.findall(r"^\} (uma_\w+);|^typedef \w+ (uma_\w+);", plain, re.MULTILINE)}
    told = section(pages["reference/c.md"], f"`{header}`")
    about, found = headers.declarations(source)
    assert about and wanted and wanted <= {one.name for one in found}
    for one in found:
        assert one.comment, f"{header}: {one.name} has no comment"
        assert f"### `{one.name}`\n" in told
    bodies = re.findall(r"^(?:typedef )?struct \w+ \{\n(.*?)^\}", plain, re.MULTILINE | re.DOTALL)
    members = [a or b for body in bodies for a, b in re.findall(r"\(\*(\w+)\)\([^;]*;|(\w+);", body)]
    assert not [member for member in members if not re.search(rf"\b{member}(;|\)\()", told)]


def test_every_field_of_an_artifacts_record_is_in_the_reference(pages: dict[str, str]) -> None:
    found = list(record.fields(schema()))
    told = pages["reference/metadata.md"]
    assert set(schema()["properties"]) <= {path for path, _, _ in found}
    assert "devices[].faults[].meaning" in {path for path, _, _ in found}
    assert not [path for path, _, _ in found if f"\n| `{path}` | " not in told]


def test_the_page_on_the_artifact_has_every_macro_and_status() -> None:
    text = Path(repository.ROOT, "docs", "artifact.md").read_text(encoding="utf-8")
    source = Path(repository.ROOT, "core", "codegen", "header.py").read_text(encoding="utf-8")
    macros = re.findall(r"macro\(model, .(\w+).\)|#define \{\w+\}(?:_DEVICE_\{[^}]*\})?_([A-Z_]+) ", source)
    assert len(macros) == 20
    assert not [one for one in map("".join, macros) if not re.search(rf"(_|\.\.\._){one}\b", text)]
    statuses = re.findall(r"#define (UMA_(?:OK|ERR_\w+)) (\d+)", (CSRC / "uma_runtime.h").read_text(encoding="utf-8"))
    assert statuses and not [name for name, value in statuses if f"\n| `{name}` | {value} |" not in text]


def test_the_page_on_builds_has_every_stage_with_its_phase_and_every_hook() -> None:
    text = Path(repository.ROOT, "docs", "build.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| .* \| (?:`(\w+)` )?\|$", text, re.MULTILINE)
    assert [(stage, phase) for stage, phase in rows if stage in STAGES] == [
        (stage, PHASE_AFTER.get(stage, "")) for stage in STAGES
    ]
    assert not [hook for hook in HOOKS if f"`{hook}`" not in text.partition("## Where plugins come in")[2]]


def test_the_page_on_explain_has_every_kind_of_reason() -> None:
    text = Path(repository.ROOT, "docs", "explain.md").read_text(encoding="utf-8")
    table = text.partition("## What the reasons mean")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][2:]
    kinds = [kind for row in rows for kind in re.findall(r"`(\w+)`", row[1])]
    assert sorted(kinds) == sorted(get_args(ReasonKind))


def test_every_public_name_is_in_the_reference(pages: dict[str, str], names: Names) -> None:
    assert set(DEEPER_MODULES) <= set(DEEPER) <= set(names.modules)
    for module in names.modules:
        page = pages[f"reference/api/{module}.md"]
        for name in importlib.import_module(module).__all__:
            home = names.homes[module, name]
            assert f"\n| [`{home.name}`](#{home.anchor}) | " in page
            assert f"({home.anchor})=\n" in pages[f"reference/{home.page}.md"]


def test_every_public_name_has_a_sentence_on_the_page_of_names(pages: dict[str, str], names: Names) -> None:
    page = pages["reference/api/names.md"]
    for module in names.modules:
        rows = re.findall(
            r"^\| \[`([^`]+)`\]\(#\S+\) \| (.*) \|$", section(page, f"[`{module}`]({module}.md)"), re.MULTILINE
        )
        listed = [names.homes[module, name].name for name in importlib.import_module(module).__all__]
        assert [name for name, _ in rows] == listed
        assert not [name for name, sentence in rows if not re.search(r"\w{2}", sentence)], module


def test_the_first_sentence_ends_at_a_full_stop_in_front_of_a_capital_letter() -> None:
    assert first_sentence("Scale by 1.5, i.e. more. Raise nothing.") == "Scale by 1.5, i.e. more."
    assert first_sentence("Return `a.b`. `None` if absent") == "Return `a.b`."


# --- What is public is documented ------------------------------------------------------------------------------------


def faults_of(label: str, function: Any, doc: str) -> Iterator[str]:
    """What a function's docstring leaves out."""
    said = Docstring.parsed(doc)
    if not said.summary:
        yield f"{label} has no docstring"
    entries = said.entries("Args")
    if entries:
        parameters = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
        yield from (f"{label}: {name} is not documented" for name in parameters if name not in entries)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    if isinstance(tree, ast.FunctionDef):
        for name in {node.exc.func.id for node in own_nodes(tree) if _raises_by_name(node)}:  # type: ignore[attr-defined]  # a name, says `_raises_by_name`
            error = vars(errors).get(name)
            if inspect.isclass(error) and error is not errors.InternalError and name not in doc:
                yield f"{label}: raises {name}, which its docstring does not say"


def _raises_by_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name)


def own_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(tree):
        if not isinstance(child, (ast.FunctionDef, ast.Lambda)):
            yield child
            yield from own_nodes(child)


def docstring_faults(home: Name) -> Iterator[str]:
    if home.kind == "function":
        yield from faults_of(str(home), inspect.unwrap(home.value), inspect.getdoc(home.value) or "")
    elif home.kind == "data" and home.name != "__version__":
        if not literal(home)[1]:
            yield f"{home} has no docstring"
    elif home.kind == "class":
        if not Docstring.of(home.value).summary:
            yield f"{home} has no docstring"
        for name, _, doc in members_of(home.value):
            value = vars(home.value).get(name)
            function = getattr(value, "fget", None) or getattr(value, "func", None)
            function = function or getattr(value, "__func__", value)
            if inspect.isfunction(function):
                yield from faults_of(f"{home}.{name}", function, doc)


def test_what_is_public_says_what_it_takes_gives_and_raises(names: Names) -> None:
    faults = [fault for home in dict.fromkeys(names.homes.values()) for fault in docstring_faults(home)]
    assert not faults, "\n".join(faults)


def test_what_a_docstring_leaves_out_is_found() -> None:
    def silent(a: int, b: int) -> None:
        raise errors.UsageError("no")

    def half(a: int, b: int) -> None:
        """It does.

        Args:
            a: one.

        Raises:
            ModelError: never.
        """
        from uma.errors import UsageError

        raise UsageError("no")

    assert list(faults_of("silent", silent, "")) == ["silent has no docstring"]
    assert list(faults_of("half", half, inspect.getdoc(half) or "")) == [
        "half: b is not documented",
        "half: raises UsageError, which its docstring does not say",
    ]


# --- Names -----------------------------------------------------------------------------------------------------------


def ours(span: str) -> bool:
    """Whether a piece of code in the documentation names something that there is."""
    options = {option for one in _commands().values() for action in one._actions for option in action.option_strings}
    if span.startswith("uma "):
        _, command, *rest = span.split()
        words = [word for word in rest if word.startswith("--")]
        known = {option for action in _commands()[command]._actions for option in action.option_strings}
        return command in _commands() and known.issuperset(words)
    if span.startswith("-"):
        found = repository.projects()
        kinds = (repository.host_of(found).lookup(entry.kind) for project in found for entry in project.entries)
        names = {
            attr.name for kind in kinds if isinstance(kind, TargetKind) for attr in (*kind.attributes, *kind.common)
        }
        return span in options or span.removeprefix("-").partition("=")[0] in names
    if "/" in span:
        return Path(repository.ROOT, span).exists()
    if span.startswith(("NAME_", "uma_")):
        artifact = (site.PAGES / "artifact.md").read_text(encoding="utf-8")
        headers_text = "".join(file.read_text(encoding="utf-8") for file in sorted(CSRC.glob("*.h")))
        return span in artifact or span in headers_text
    return _is_public(span) or span in KNOWN_OTHERWISE


KNOWN_OTHERWISE = {
    "pip install", "uma.plugins", "c", "composite", "Composite", "Compiler", "partition", "before", "after", *PHASES,
    "activate", "open", "close", "deactivate",
}  # fmt: skip
"""What is not a name of Python: kinds, stages, phases, attributes of functions, fields, members of `uma_driver`."""


def _commands() -> dict[str, argparse.ArgumentParser]:
    [commands] = [action for action in _parser()._actions if isinstance(action.choices, dict)]
    return dict(commands.choices)


def _is_public(name: str) -> bool:
    modules = (
        "uma",
        "uma.hookspecs",
        "uma.targets",
        "uma.targets.config",
        "uma.relay",
        "uma.relay.pattern",
        "uma.tir",
        "uma.tir.schedule",
    )
    module, _, last = name.rpartition(".")
    for where in [module] if module else [*modules, "uma.tir.te"]:
        try:
            found = importlib.import_module(where)
        except ImportError:
            continue
        if last in getattr(found, "__all__", ()):
            return True
    try:
        return importlib.import_module(name) is not None
    except ImportError:
        return False


def test_what_newcomers_are_told_is_there() -> None:
    page = (site.PAGES / "coming-from.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?!---)((?:[^|\n]|\\\|)*) \| ((?:[^|\n]|\\\|)*) \|", page, re.MULTILINE)
    assert len(rows) > 60
    assert [span for _, here in rows for span in re.findall(r"`([^`]+)`", here) if not ours(span)] == []
    assert not ours("uma build --no-such") and not ours("NoSuch") and not ours("NAME_nothing") and not ours("-no")


# --- Links -----------------------------------------------------------------------------------------------------------


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and Sphinx make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def dead_links(pages: dict[str, str]) -> list[str]:
    plain = {path: re.sub(r"^(`{3,}).*?^\1$", "", page, flags=re.MULTILINE | re.DOTALL) for path, page in pages.items()}
    targets = {path: set(re.findall(r"^\(([^)\n]+)\)=$", page, re.MULTILINE)) for path, page in plain.items()}
    slugs = {p: {slug(h) for h in re.findall(r"^#+ (.+)$", page, re.MULTILINE)} for p, page in plain.items()}
    everywhere = set().union(*targets.values())
    dead = []
    for path, page in plain.items():
        for page_part, _, anchor in (link.partition("#") for link in re.findall(r"\]\(([^)\s:]+)\)", page)):
            there = path
            if page_part:
                parts: list[str] = []
                for part in (PurePosixPath(path).parent / page_part).parts:
                    parts = parts[:-1] if part == ".." else [*parts, part]
                there = "/".join(parts)
            known = there in pages and (
                not anchor or anchor in slugs[there] or anchor in (targets[there] if page_part else everywhere)
            )
            if not known:
                dead.append(f"{path}: {page_part}#{anchor}")
    return dead


def test_links_between_pages_and_into_them_lead_somewhere(pages: dict[str, str]) -> None:
    drawn = {f"pictures/{name}": text for name, text in pictures().items()}
    photographed = {f"screenshots/{path.name}": "" for path in (PAGES / "screenshots").iterdir()}
    assert dead_links(pages | drawn | photographed) == []


def test_a_dead_link_is_found() -> None:
    pages = {
        "a.md": "# A b\n[x](#a-b) [y](#c) [z](b/c.md)\n",
        "b/c.md": "(t)=\n## C\n[x](../a.md#a-b) [y](../d.md) [z](#t)",
    }
    assert dead_links(pages) == ["a.md: #c", "b/c.md: ../d.md#"]


def test_anchors_are_unique_whatever_their_case(pages: dict[str, str]) -> None:
    found = [anchor.lower() for page in pages.values() for anchor in re.findall(r"^\((\S+)\)=$", page, re.MULTILINE)]
    assert len(found) > 300 and len(set(found)) == len(found)


def test_the_site_lists_every_page_once(pages: dict[str, str]) -> None:
    listed: list[str] = []
    for path, page in pages.items():
        for block in re.findall(r"^```\{toctree\}\n(?::[^\n]*\n)*\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL):
            folder = PurePosixPath(path).parent
            listed += [(folder / entry).as_posix() for entry in block.split("\n")]
    assert sorted(listed) == sorted(path.removesuffix(".md") for path in pages if path != "index.md")


def test_a_page_that_the_index_does_not_know_stands_at_its_end() -> None:
    made = site.index_contents("# T\n## One\n[a](a.md)\n## Two\n[b](b.md) [a](a.md)\n", ["a", "b", "c", "index"])
    captions = re.findall(r":caption: ([^\n]*)\n\n(.*?)\n```", made, re.DOTALL)
    assert captions == [("One", "a"), ("Two", "b"), ("More", "c")]


def test_readmes_of_plugins_are_pages_with_one_title_and_links_into_the_site(tmp_path: Path) -> None:
    folder = os.path.relpath(tmp_path, repository.ROOT).replace(os.sep, "/")
    (tmp_path / "README.md").write_text(
        "# A\n[top](#b) [docs](DOCS/patterns.md#x) [there](README.md) [no](missing.md) [web](https://x.org)\n## B\n"
        "# C\n## D\n```sh\n# no title [x](y)\n```\n".replace(
            "DOCS", os.path.relpath(repository.ROOT / "docs", tmp_path)
        )
    )
    project = repository.Project(folder, "uma-a", "", (), ())
    assert readmes.page(project, [project]) == (
        "# A\n[top](#b) [docs](../patterns.md#x) [there](uma-a.md) no [web](https://x.org)\n## B\n"
        "## C\n### D\n```sh\n# no title [x](y)\n```\n"
    )
    assert readmes.page(repository.Project(f"{folder}/none", "uma-b", "", (), ()), []) is None


def test_pages_say_the_same_in_every_process(pages: dict[str, str]) -> None:
    assert not [
        path for path, page in pages.items() if re.search(r" at 0x[0-9a-f]{6}|<factory>\(|/site-packages/", page)
    ]


# --- The generator's own rules ---------------------------------------------------------------------------------------


DOC = """Adds `two` numbers, ``a|b``.

More of *it*::

    x = 1

- a list

Args:
    a, b: of shape (n,);
        int8.
    c: another.

Raises:
    ModelError: they do not fit.

Example::

    add(1, 2)
"""


def test_a_docstring_becomes_markdown() -> None:
    found = Docstring.parsed(inspect.cleandoc(DOC))
    assert found.entries("Args") == {"a": "of shape (n,);\nint8.", "b": "of shape (n,);\nint8.", "c": "another."}
    link = {"two": "[`two`](#two)", "ModelError": "[`ModelError`](#e)"}.get
    assert found.markdown(link) == (
        "Adds [`two`](#two) numbers, `a\\|b`.\n\n"
        "More of *it*:\n\n```\nx = 1\n```\n\n- a list\n\n"
        "**Arguments**\n\n- `a`: of shape (n,);\n  int8.\n- `b`: of shape (n,);\n  int8.\n- `c`: another.\n\n"
        "**Raises**\n\n- [`ModelError`](#e): they do not fit.\n\n"
        "**Example**\n\n```python\nadd(1, 2)\n```\n"
    )


def test_text_holds_no_markup_by_accident() -> None:
    assert inline("2 ** 3 is a_b[c] < d", lambda name: None) == "2 \\*\\* 3 is a\\_b\\[c\\] \\< d"
    assert text("one\n\ntwo", lambda name: None) == "one\n\ntwo\n"


HEADER = """/* What it is.
 *
 * And more.
 */
#ifndef H_H
#define H_H

/* Of one thing. */
typedef struct thing {
    int a; /* first */
    void (*go)(void *self);
} thing;

#define MOST 3 /* as many as there are */

/* Two lines
 * of text. n: how many */
static inline int twice(int n)
{
    if (n > 1) { n = 1; }
    return 2 * n;
}

int bare(void);

#endif
"""


def test_a_header_is_read_declaration_by_declaration() -> None:
    about, found = headers.declarations(HEADER)
    assert about == "What it is.\n\nAnd more."
    assert [(one.name, one.comment) for one in found] == [
        ("thing", "Of one thing."),
        ("MOST", "as many as there are"),
        ("twice", "Two lines of text. n: how many"),
        ("bare", ""),
    ]
    assert [one.text for one in found[1:]] == ["#define MOST 3", "int twice(int n);", "int bare(void);"]
    assert "void (*go)(void *self);" in found[0].text
