"""What plugins and the core agree on: hooks, records, phases."""

from __future__ import annotations

from uma import hookspecs
from uma.contract.passes import PHASES
from uma.pipeline.stages import PHASE_AFTER
from uma.plugins.hook_types import hook_types

from .docstrings import Docstring, inline, text
from .markdown import code, fence, heading, table
from .members import reference, render, summary
from .names import HOOKS, Names, module_source

__all__ = ["pages", "phase_docs"]


def pages(names: Names) -> dict[str, str]:
    """``hooks``, ``records`` and ``phases``."""
    return {"hooks": _hooks(names), "records": _records(names), "phases": _phases(names)}


def _hooks(names: Names) -> str:
    homes = [names.homes["uma.hookspecs", hook] for hook in HOOKS]
    doc = Docstring.of(hookspecs)
    version = ".".join(map(str, hookspecs.PLUGIN_API_VERSION))
    parts = [
        heading(1, "Hooks"),
        text(doc.summary, names.link),
        text(doc.body, names.link),
        f"This is version {version} of the plugin API. Every example is run as a test.\n",
        table(("hook", "what it is for"), [(reference(home, names), summary(home, names)) for home in homes]),
    ]
    for home in homes:
        parts.append(render(home, names))
        types = hook_types(home.value)
        if types.may_refuse:
            parts.append(f"It may raise {names.link('Refuse')}.\n")
        if types.elements:
            links = " or ".join(str(names.link(element.__name__)) for element in types.elements)
            parts.append(f"The list is of {links}.\n")
    return "\n".join(parts)


def _records(names: Names) -> str:
    homes = [home for home in dict.fromkeys(names.homes.values()) if home.page == "records"]
    homes.sort(key=lambda home: home.name)
    rows = [(reference(home, names), summary(home, names)) for home in homes]
    return "\n".join(
        [
            heading(1, "Records"),
            "What [hooks](hooks.md) take and give. `uma.hookspecs` has all of them but those that a target is declared "
            "with, which `uma.targets` has. They are frozen, and checked when they are made.\n",
            table(("record", "what it is"), rows),
            *(render(home, names) for home in homes),
        ]
    )


def phase_docs() -> dict[str, str]:
    """What holds at each phase, as the docstring of `Phase` says it."""
    _, doc = module_source("uma.contract.passes")["Phase"]
    [items] = [block for block in doc.split("\n\n") if block.startswith("- ")]
    parts = [item.partition("``: ") for item in items.removeprefix("- ``").split("\n- ``")]
    return {phase: " ".join(rest.split()) for phase, _, rest in parts}


def _phases(names: Names) -> str:
    _, doc = module_source("uma.contract.passes")["Phase"]
    lead, _, behind = doc.split("\n\n")
    after = {phase: stage for stage, phase in PHASE_AFTER.items()}
    said = phase_docs()
    rows = [(code(phase), code(after[phase]), inline(said[phase], names.link)) for phase in PHASES]
    return "\n".join(
        [
            heading(1, "Phases"),
            text(lead, names.link),
            f"Passes come from the hook {names.link('passes')}, as records {names.link('Pass')}.\n",
            table(("phase", "after the stage", "what the module is, and what still holds after each pass"), rows),
            text(behind, names.link),
            "What the stages are is told in [how a build goes](../build.md), the form of the model that the first two "
            "phases see in [canonical relay](../canonical-relay.md).\n",
            fence("uma build MODEL --target T --dump DIR    # the text after each stage and each pass", "text"),
            f"A pass that breaks what holds is named in a {names.link('PluginError')}.\n",
        ]
    )
