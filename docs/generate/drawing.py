"""A drawing as SVG, in the colours of the guide.

Colours follow the reader's scheme, light or dark; all text stands on a box of the drawing's own, or in a grey that both
have room for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.sax.saxutils import escape

__all__ = ["Drawing"]

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
class Drawing:
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
