"""The drawings of the guide, as SVG that is kept in ``docs/pictures``.

Names of stages, phases and states come from the code, so that a drawing is not older than what it shows. Colours follow
the reader's scheme, light or dark; all text stands on a box of the drawing's own, or in a grey that both have room for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args
from xml.sax.saxutils import escape

from uma.pipeline.stages import PHASE_AFTER, STAGES
from uma.plugins.host import State

__all__ = ["pictures"]

_STYLE = """
  text { font: 14px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2933; }
  .code { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 13px; }
  .small { font-size: 12px; fill: #52606d; }
  .head { font-weight: 600; }
  .label { font-size: 12px; fill: #7b8794; }
  .box { fill: #f5f7fa; stroke: #7b8794; }
  .core { fill: #e3f0fb; stroke: #2f74b5; }
  .plugin { fill: #e8f5e4; stroke: #4b8b3b; }
  .bad { fill: #fbe9e7; stroke: #b5472f; }
  .line { fill: none; stroke: #7b8794; stroke-width: 1.5; }
  .tip { fill: #7b8794; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e7eb; }
    .small { fill: #b8c2cc; }
    .label { fill: #9aa5b1; }
    .box { fill: #2a323c; stroke: #7b8794; }
    .core { fill: #16324a; stroke: #5aa2e0; }
    .plugin { fill: #1d3a1a; stroke: #74b566; }
    .bad { fill: #46211b; stroke: #e08a74; }
  }
"""

_LINE_HEIGHT = 18


@dataclass
class _Drawing:
    """A drawing that grows; all sizes are in its own units."""

    width: int
    height: int
    title: str
    about: str
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> None:
        """One line of text on the line ``y``."""
        said = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{said}>{escape(text)}</text>')

    def box(self, x: int, y: int, width: int, height: int, kind: str, lines: list[tuple[str, str]]) -> None:
        """A box with its lines, each with its class, in the middle."""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" class="{kind}"/>')
        top = y + height / 2 - _LINE_HEIGHT * len(lines) / 2 + 13
        for row, (text, style) in enumerate(lines):
            self.text(x + width / 2, top + _LINE_HEIGHT * row, text, style)

    def arrow(self, *points: tuple[float, float], label: str = "", at: tuple[float, float] | None = None) -> None:
        """Through the points, with its tip at the last one."""
        path = " L ".join(f"{x:g} {y:g}" for x, y in points)
        self.parts.append(f'<path d="M {path}" class="line" marker-end="url(#tip)"/>')
        if label and at is not None:
            self.text(*at, label, "label")

    def svg(self) -> str:
        """The file."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img" '
                f'width="{self.width}" height="{self.height}" aria-labelledby="title about">',
                f'<title id="title">{escape(self.title)}</title>',
                f'<desc id="about">{escape(self.about)}</desc>',
                f"<style>{_STYLE}</style>",
                '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
                'orient="auto"><path d="M 0 0 L 8 4 L 0 8 z" class="tip"/></marker></defs>',
                *self.parts,
                "</svg>",
                "",
            ]
        )


def pictures() -> dict[str, str]:
    """The drawings by the names of their files."""
    return {"whole.svg": _whole(), "build.svg": _build(), "plugin.svg": _plugin()}


def _whole() -> str:
    drawing = _Drawing(
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
    drawing = _Drawing(
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
    drawing = _Drawing(
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
