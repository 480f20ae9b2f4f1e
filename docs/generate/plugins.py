"""Target kinds with their attributes, and what each plugin of the repository takes, computes and reports."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from uma.errors import PluginError, ToolchainError
from uma.hookspecs import Pattern, Runtime
from uma.plugins import LoadedPlugin, PluginHost
from uma.relay.pattern import describe
from uma.targets import Alias, Attribute, Target, TargetKind, read_target
from uma.targets.parsing import COMPOSITE_KIND
from uma.targets.text import spell

from .docstrings import inline
from .markdown import code, escaped, fence, heading, link, table
from .names import HOOKS, Names
from .ops import section
from .repository import ROOT, Project, host_of, projects

__all__ = ["pages"]

_WIDTH = 96
"""Of lines of code, so that a page shows them whole."""


def pages(names: Names) -> dict[str, str]:
    """``targets``, and a page for each plugin."""
    found = projects()
    host = host_of(found)
    loaded = {project.name: host.plugin_for(project.entries[0].kind) for project in found}
    made = {f"plugins/{project.name}": _page(project, loaded[project.name], host, names) for project in found}
    rows = [
        (f"[{project.name}]({project.name}.md)", inline(project.help, names.link), _kinds(project)) for project in found
    ]
    made["plugins/index"] = "\n".join(
        [
            heading(1, "What each plugin supports"),
            "The plugins of this repository. `uma targets` shows the kinds that are installed where you are; of an op "
            "of your model that stayed on the host `uma explain` says which of these conditions failed.\n",
            table(("plugin", "what it is", "target kinds"), rows),
        ]
    )
    made["targets"] = _targets(found, host)
    return made


def _kinds(project: Project) -> str:
    return ", ".join(code(entry.kind) for entry in project.entries)


# --- Targets ---------------------------------------------------------------------------------------------------------


def _targets(found: list[Project], host: PluginHost) -> str:
    named = {entry.kind: (host.lookup(entry.kind), project) for project in found for entry in project.entries}
    rows = []
    for name, (one, project) in sorted(named.items()):
        plugin = f"[{project.name}](plugins/{project.name}.md)"
        role = f"stands for {code(str(one.expands_to))}" if isinstance(one, Alias) else _role(one)
        rows.append((link(code(name), f"kind-{name}"), plugin, role, escaped(one.help)))
    rows.append((link(code(COMPOSITE_KIND.name), f"kind-{COMPOSITE_KIND.name}"), "the core", "a host and devices", ""))
    kinds = [one for _, (one, _) in sorted(named.items()) if isinstance(one, TargetKind)]
    parts = [
        heading(1, "Target kinds and their attributes"),
        "How targets are written and combined is told in [targets](../targets.md); `uma targets KIND` shows the same "
        "of what is installed.\n",
        table(("name", "plugin", "role", "what it is"), rows),
    ]
    for name, (one, _) in sorted(named.items()):
        parts.append(heading(2, code(name), f"kind-{name}"))
        parts.append(f"{escaped(one.help)}.\n")
        parts.append(f"Stands for {code(str(one.expands_to))}.\n" if isinstance(one, Alias) else _attributes(one))
    parts += [
        heading(2, code(COMPOSITE_KIND.name), f"kind-{COMPOSITE_KIND.name}"),
        f"{escaped(COMPOSITE_KIND.help)}.\n",
    ]
    parts.append(_attributes(COMPOSITE_KIND))
    for title, is_host in (("What every host has besides", True), ("What every accelerator has besides", False)):
        common = {a.name: a for kind in kinds if kind.is_host == is_host for a in kind.common}
        parts += [heading(2, title), _attribute_table(common.values())]
    return "\n".join(parts)


def _role(kind: TargetKind) -> str:
    default = f", beside {code(kind.default_host)} by default" if kind.default_host else ""
    return (
        f"host, {escaped(kind.device_type)}" if kind.is_host else f"accelerator, {escaped(kind.device_type)}{default}"
    )


def _attributes(kind: TargetKind) -> str:
    return _attribute_table(kind.attributes) or "It has no attributes of its own.\n"


def _attribute_table(attributes: Iterable[Attribute]) -> str:
    rows = []
    for attribute in attributes:
        default = "must be given" if attribute.required else "" if attribute.default is None else _spelled(attribute)
        notes = [escaped(attribute.help)]
        notes += [f"also {', '.join(map(code, attribute.also))}"] * bool(attribute.also)
        notes += [f"formerly {', '.join(map(code, attribute.deprecated))}"] * bool(attribute.deprecated)
        rows.append((code(f"-{attribute.name}"), _allowed(attribute), default, "; ".join(notes)))
    return table(("attribute", "takes", "default", "meaning"), rows)


def _allowed(attribute: Attribute) -> str:
    before, pattern, behind = attribute.allowed().partition(attribute.pattern or "\n")
    return escaped(before) + (code(pattern) if pattern else "") + escaped(behind)


def _spelled(attribute: Attribute) -> str:
    return code(spell(attribute.default))  # type: ignore[arg-type]  # defaults were checked


# --- A plugin --------------------------------------------------------------------------------------------------------


def _page(project: Project, plugin: LoadedPlugin, host: PluginHost, names: Names) -> str:
    implemented = [hook for hook in HOOKS if getattr(plugin.hooks, hook).get_hookimpls()]
    parts = [
        heading(1, project.name),
        f"{inline(project.help, names.link)}. In `{project.folder}/`.\n",
        *(
            [f"[What it is and how it is used](../../plugins/{project.name}.md)\n"]
            * (ROOT / project.folder / "README.md").is_file()
        ),
        f"Needs {', '.join(map(code, project.requires))}.\n",
        f"Hooks: {', '.join(names.link(hook) or code(hook) for hook in implemented)}.\n",
    ]
    for custom in plugin.ops.values():
        parts.append(section(custom.op, names))
    for kind in plugin.kinds.values():
        parts += _kind(kind, plugin, host, names)
    for alias in plugin.aliases.values():
        parts += [heading(2, code(alias.name)), f"{escaped(alias.help)}. Stands for {code(str(alias.expands_to))}.\n"]
    return "\n".join(parts)


def _kind(kind: TargetKind, plugin: LoadedPlugin, host: PluginHost, names: Names) -> list[str]:
    target = read_target(kind.name, host.lookup)
    patterns: list[Pattern] = list(plugin.call("patterns", target=target) or ())
    parts = [
        heading(2, code(kind.name)),
        f"{escaped(kind.help)} ({_role(kind)}). Its attributes: {link('target kinds', f'kind-{kind.name}')}. "
        "What is below holds for their defaults.\n",
    ]
    if kind.is_host:
        parts.append(
            "A host runs every op. Its patterns say what becomes one kernel; what none of them takes is a kernel of "
            "its own.\n"
        )
    else:
        takers: dict[str, list[str]] = {}
        for pattern in patterns:
            for key in pattern.keys:
                takers.setdefault(key, []).append(pattern.name)
        rows = [
            (link(code(op), f"op-{op}") if " " not in op else escaped(op), ", ".join(map(code, takers[op])))
            for op in sorted(takers)
        ]
        parts += [heading(3, "Ops in its patterns"), "The conditions of a pattern say when it takes them.\n"]
        parts.append(table(("op", "within the patterns"), rows))
    parts += [_pattern(pattern, names) for pattern in patterns]
    parts += _passes(plugin, target, names)
    parts += _runtime(plugin, target)
    return parts


def _pattern(pattern: Pattern, names: Names) -> str:
    parts = [heading(3, f"Pattern {code(pattern.name)}"), fence(_wrapped(describe(pattern)), "text")]
    predicate = pattern.predicate
    if callable(predicate):
        doc = (predicate.__doc__ or "").strip().splitlines()
        parts.append(f"And {code(getattr(predicate, '__name__', 'predicate'))}: {escaped(doc[0] if doc else '')}\n")
    elif predicate:
        rows = [
            (code(clause.name), inline(clause.reason.replace("{value}", "…"), lambda name: None))
            for clause in predicate
        ]
        parts.append(table(("condition", "what must hold"), rows))
    return "\n".join(parts)


def _wrapped(text: str) -> str:
    fill = textwrap.TextWrapper(_WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False).fill
    return "\n".join(map(fill, text.splitlines()))


def _passes(plugin: LoadedPlugin, target: Target, names: Names) -> list[str]:
    rows = []
    for one in plugin.call("passes", target=target) or ():
        doc = (getattr(one.fn, "__doc__", None) or "").strip().splitlines()
        said = inline(doc[0], names.link) if doc else ""
        rows.append((code(one.name), code(one.phase), code(one.scope), ", ".join(map(code, one.before)), said))
    return [heading(3, "Passes"), table(("pass", "phase", "scope", "before", "what it does"), rows)] if rows else []


def _runtime(plugin: LoadedPlugin, target: Target) -> list[str]:
    try:
        given = plugin.call("runtime", target=target)
    except (PluginError, ToolchainError):
        return []  # it needs what this machine does not have
    if not isinstance(given, Runtime) or given.driver is None:
        return []
    made = ", ".join(code(name) for name in given.implementations)
    parts = [heading(3, "Device"), f"Driver {code(given.driver)}; implementations of the bus (`-impl`): {made}.\n"]
    if given.counters:
        parts.append(f"Counters: {', '.join(map(code, given.counters))}.\n")
    rows = [(str(number), escaped(meaning)) for number, meaning in sorted(given.faults.items())]
    parts.append(table(("fault", "what it means"), rows))
    return parts
