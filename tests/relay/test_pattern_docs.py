"""The page on patterns: its examples run, and print what it says they print."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

from uma.relay import pattern

PAGE = Path(__file__).resolve().parents[2] / "docs" / "patterns.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_examples_print_what_the_page_says() -> None:
    names: dict[str, Any] = {}
    printed = ""
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) > 8
    for language, text in blocks:
        if language == "text":
            assert printed == text
            printed = ""
            continue
        assert not printed, f"the page does not show what comes before:\n{text}"
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(text, str(PAGE), "exec"), names)
        printed = out.getvalue()
    assert not printed


def test_every_word_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    words = {name for name in pattern.__all__ if name[0].islower()}
    assert not {word for word in words if f"`{word}" not in text}
