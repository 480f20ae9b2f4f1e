"""The drawings of the guide, as SVG that is kept in ``docs/pictures``.

Names of stages, phases and states come from the code, so that a drawing is not older than what it shows.
"""

from __future__ import annotations

from typing import get_args

from uma.pipeline.stages import PHASE_AFTER, STAGES
from uma.plugins.host import State

from .drawing import Drawing
from .plots import plots

__all__ = ["pictures"]


def pictures() -> dict[str, str]:
    """The drawings by the names of their files."""
    return {"whole.svg": _whole(), "build.svg": _build(), "plugin.svg": _plugin()} | plots()


def _whole() -> str:
    drawing = Drawing(
        860,
        400,
        "UMA as a whole",
        "Model files go through the core, which asks plugins by hooks, and become an artifact of C, which firmware "
        "links, and which Python runs.",
    )
    drawing.box(20, 50, 150, 44, "box", [("model.tflite", "code")])
    drawing.box(20, 106, 150, 44, "box", [("model.onnx", "code")])
    drawing.box(20, 162, 150, 44, "box", [("text of a stage", "")])
    drawing.parts.append('<rect x="230" y="20" width="340" height="220" rx="8" class="core"/>')
    drawing.text(400, 44, "uma-core, which knows no hardware", "head")
    rows = (
        "front-ends: layers become ops of relay",
        "partition: who runs which op, and why not",
        "lower: loops, commands or calls",
        "plan: one arena, all offsets fixed",
        "print C99, compile it, check it",
    )
    for row, text in enumerate(rows):
        drawing.box(246, 58 + 35 * row, 308, 29, "box", [(text, "")])
    gives = [("C99 sources, weights,", ""), ("a typed header, a Makefile,", ""), ("metadata.json", "code")]
    drawing.box(630, 50, 210, 100, "box", [("the artifact", "head"), *gives])
    drawing.box(630, 180, 100, 60, "box", [("firmware", ""), ("links it", "small")])
    drawing.box(740, 180, 100, 60, "box", [("Python", ""), ("runs it here", "small")])
    drawing.box(130, 310, 170, 70, "plugin", [("uma-cpu-c", "code"), ("the CPU: runs every op", "small")])
    brings = [("driver and simulator", "small"), ("in its package", "small")]
    drawing.box(320, 310, 170, 70, "plugin", [("uma-ultratrail", "code"), *brings])
    drawing.box(510, 310, 170, 70, "plugin", [("your accelerator", "head"), ("one Python package", "small")])
    for y in (72, 128, 184):
        drawing.arrow((170, y), (228, y))
    drawing.arrow((570, 100), (628, 100))
    drawing.arrow((680, 150), (680, 178))
    drawing.arrow((790, 150), (790, 178))
    for x, top in ((280, 242), (400, 242), (520, 242)):
        below = {280: 215, 400: 405, 520: 595}[x]
        drawing.arrow((below, 308), (below, 276), (x, 276), (x, top))
    drawing.text(120, 280, "hooks: what it takes,", "label")
    drawing.text(120, 295, "how it is lowered and driven", "label")
    return drawing.svg()


def _build() -> str:
    forms = {"relay": STAGES[:4], "loops": STAGES[4:8], "program": STAGES[8:]}
    does = {
        "import": "reads TFLite or ONNX",
        "canonicalise": "one way to say each thing",
        "partition": "accelerators take regions",
        "fuse": "the rest becomes kernels",
        "lower": "loops, commands, calls",
        "simplify": "the same with less to do",
        "unroll": "what is meant to be",
        "flatten": "buffers of one dimension",
        "sequence": "calls over buffers, in order",
    }
    asked = {
        "import": ("ops",),
        "partition": ("patterns",),
        "fuse": ("patterns", "of hosts"),
        "lower": ("relay_to_tir", "relay_to_runtime", "strategies"),
    }
    pitch, top = 50, 50
    height = top + pitch * (len(STAGES) + 3) + 20
    drawing = Drawing(
        860,
        height,
        "A build",
        f"The stages {', '.join(STAGES)}, the form that each gives, the phases of plugins' passes behind them, and the "
        "hooks that are asked.",
    )
    for x, text in ((65, "form"), (300, "stage"), (550, "passes of plugins"), (745, "hooks")):
        drawing.text(x, 30, text, "head")
    row = 0
    for form, stages in forms.items():
        y = top + pitch * row
        drawing.box(20, y, 90, pitch * len(stages) - 12, "core", [(form, "head")])
        row += len(stages)
    last = len(STAGES)
    for row, stage in enumerate(STAGES):
        y = top + pitch * row
        drawing.box(150, y, 300, 38, "box", [])
        drawing.text(162, y + 24, stage, "code", "start")
        drawing.text(438, y + 24, does[stage], "small", "end")
        drawing.arrow((300, y + 38), (300, y + pitch - 2))
        if stage in PHASE_AFTER:
            drawing.box(470, y + 4, 170, 30, "plugin", [(PHASE_AFTER[stage], "code")])
        for line, hook in enumerate(asked.get(stage, ())):
            drawing.text(745, y + 24 - 8 * (len(asked[stage]) - 1) + 16 * line, hook, "code")
    for row, (text, hook) in enumerate(
        (
            ("plan: an offset for every buffer", ""),
            ("print C, and compile it", "runtime, tir_to_runtime"),
            ("the artifact", ""),
        ),
        last,
    ):
        y = top + pitch * row
        drawing.box(150, y, 300, 38, "core" if row == last + 2 else "box", [(text, "head" if row == last + 2 else "")])
        if row < last + 2:
            drawing.arrow((300, y + 38), (300, y + pitch - 2))
        if hook:
            drawing.text(745, y + 24, hook, "code")
    drawing.box(20, top + pitch * last, 90, pitch * 3 - 12, "core", [("C99", "head")])
    back, to = top + pitch * STAGES.index("lower") + 19, top + pitch * STAGES.index("partition") + 19
    drawing.arrow((150, back), (130, back), (130, to), (148, to))
    said = "The arrow back: a lowering that refuses gives its ops back, and they are placed anew."
    drawing.text(20, height - 14, said, "label", "start")
    return drawing.svg()


def _plugin() -> str:
    states = {
        "found": (40, 60, "its metadata do not say", "which uma-core it needs"),
        "compatible": (40, 170, "its metadata admit", "this uma-core"),
        "loaded": (330, 115, "imported;", "keeps to the contract"),
        "active": (620, 115, "took part in a build", "of this process"),
        "disabled": (40, 290, "as if it were", "not installed"),
        "quarantined": (330, 290, "cannot be used;", "the reason is known"),
    }
    missing = set(get_args(State)) ^ set(states)
    if missing:
        raise AssertionError(f"the drawing of a plugin's life and its states differ: {missing}")
    drawing = Drawing(
        860,
        390,
        "A plugin's life",
        "Installed, a plugin is found or compatible; asked for, it is loaded, and by a build active. Somebody may "
        "disable it, and a fault quarantines it. Nobody else notices.",
    )
    for name, (x, y, *said) in states.items():
        kind = {"quarantined": "bad", "disabled": "box"}.get(name, "plugin")
        drawing.box(x, y, 180, 74, kind, [(name, "head"), *((line, "small") for line in said)])
    drawing.text(130, 36, "pip install: only metadata are read", "label")
    drawing.arrow((220, 97), (275, 97), (275, 142), (328, 142))
    drawing.arrow((220, 207), (275, 207), (275, 162), (328, 162))
    drawing.text(285, 88, "one of its kinds is asked for", "label", "start")
    drawing.arrow((510, 152), (618, 152), label="a build", at=(564, 144))
    drawing.arrow(
        (130, 244),
        (130, 288),
    )
    drawing.text(120, 270, "--disable-plugin", "label", "end")
    drawing.arrow((275, 207), (275, 327), (328, 327))
    drawing.text(522, 310, "it cannot be imported, does not keep to the", "label", "start")
    drawing.text(522, 326, "contract, or is for another plugin API;", "label", "start")
    drawing.text(522, 342, "unasked where its metadata want another uma-core", "label", "start")
    drawing.text(620, 210, "What fails in a hook then", "label", "start")
    drawing.text(620, 226, "ends this build and no other.", "label", "start")
    end = "A fault harms only who asks for the plugin's kinds: exit code 5, with place, versions and remedy."
    drawing.text(40, 382, end, "label", "start")
    return drawing.svg()
