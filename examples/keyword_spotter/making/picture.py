"""Draw what the demo shows of three words as demo.svg.

python -m keyword_spotter.making.picture
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from .. import FOLDER, MODEL
from ..demo import Style, heard_in
from ..spotting import TARGET

PICTURE = FOLDER / "demo.svg"
SHOWN = ("three", "seven", "silence")
LINE_PX, CHARACTER_PX, MARGIN_PX = 18, 8.4, 14
STYLE = "font:14px ui-monospace,Menlo,Consolas,monospace"
COLUMNS = 60
NO_BREAK = "\N{NO-BREAK SPACE}"
"""Of other spaces in a row, browsers show one."""


def draw() -> str:
    """The picture: text on a dark ground, readable on light pages and on dark ones."""
    import uma

    lines = ["$ make demo"]
    with uma.build(MODEL, target=TARGET).session() as session:
        for word in SHOWN:
            lines += ["", *heard_in(Path(FOLDER, "wavs", f"{word}.wav"), session, Style(blocks=True))]
    width, height = int(COLUMNS * CHARACTER_PX) + 2 * MARGIN_PX, len(lines) * LINE_PX + 2 * MARGIN_PX
    rows = [
        f'<text x="{MARGIN_PX}" y="{MARGIN_PX + LINE_PX * number + 13}" '
        f'fill="{"#7ee787" if line.endswith("sure") else "#e6edf3"}">{escape(line).replace(" ", NO_BREAK)}</text>'
        for number, line in enumerate(lines)
    ]
    size = f'width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="{STYLE}">',
            '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>',
            *rows,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
