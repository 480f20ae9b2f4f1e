"""The report in a real browser: as it is read, in the dark, on a phone, and on paper."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests._support.browser import Browser, find_browser
from tests._support.reports import HOSTILE, report_of

from uma.reports.report.page import as_page

_CONSOLE = re.compile(r"CONSOLE[:(]")
_MAKERS = re.compile(r"https?://([a-z0-9-]+\.)*(google|googleapis|gvt1)\.com/")
"""Whom the browser itself asks, whatever page is open."""

DARK = "--blink-settings=preferredColorScheme=0"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    found = find_browser(tmp_path_factory.mktemp("browser"))
    if found is None:
        pytest.skip("there is no chromium or chrome: apt-get install chromium")
    return found


def requested(log: Path) -> set[str]:
    """The addresses that a browser's log of its network says were asked for, but for those of its makers."""
    urls = re.findall(r'"url":"((?:http|ws|ftp)[^"]+)"', log.read_text(encoding="utf-8", errors="replace"))
    return {url for url in urls if not _MAKERS.match(url)}


def test_the_page_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    """All names are hostile. The page says nothing on the console, asks nobody for anything, and can be printed."""
    page = tmp_path / "report.html"
    page.write_text(as_page(report_of(60, HOSTILE)), encoding="utf-8")
    pictures = set()
    for name, options in {"light": ["--window-size=1280,1600"], "narrow": ["--window-size=400,1600", DARK]}.items():
        picture, log = tmp_path / f"{name}.png", tmp_path / f"{name}.json"
        said = browser.open(page, *options, f"--screenshot={picture}", f"--log-net-log={log}")
        assert not _CONSOLE.search(said), said
        assert not requested(log)
        pictures.add(picture.read_bytes())
    assert len(pictures) == 2
    paper = tmp_path / "report.pdf"
    assert not _CONSOLE.search(browser.open(page, f"--print-to-pdf={paper}"))
    assert paper.read_bytes().startswith(b"%PDF") and paper.stat().st_size > 20_000


@pytest.mark.soak
def test_what_the_browser_makes_of_it(browser: Browser, tmp_path: Path) -> None:
    """It is as dark as the reader wants it, its scripts are its own, and so are those of a browser that reads it."""
    page, pictures = tmp_path / "report.html", []
    page.write_text(as_page(report_of(60, HOSTILE)), encoding="utf-8")
    for options in ([], [DARK], [DARK]):
        picture = tmp_path / f"{len(pictures)}.png"
        browser.open(page, "--window-size=1280,1600", f"--screenshot={picture}", *options)
        pictures.append(picture.read_bytes())
    assert pictures[0] != pictures[1] == pictures[2]
    dom = browser.open(page, "--dump-dom")
    assert "alert(1)" in dom and dom.count("<script") == 1 and "<img" not in dom


@pytest.mark.soak
def test_how_long_it_is_drawn(browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not judged, but said: of a model like MobileNet, and of one of 5,000 layers."""
    times = {}
    for layers in (65, 5000):
        timed = tmp_path / f"timed{layers}.html"
        # The page lets no other script run: for this alone it may.
        text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", as_page(report_of(layers)))
        clock = "requestAnimationFrame(() => requestAnimationFrame(() => console.log('drawn', performance.now())))"
        timed.write_text(text.replace("</body>", f"<script>onload = () => {clock}</script></body>"), encoding="utf-8")
        said = browser.open(timed, "--window-size=1280,1600", f"--screenshot={tmp_path / 'timed.png'}")
        found = re.search(r"drawn ([0-9.]+)", said)
        assert found is not None, said
        times[layers] = float(found[1])
    with capsys.disabled():
        print("".join(f"\n{layers} layers drawn after {ms:.0f} ms" for layers, ms in times.items()))


@pytest.mark.soak
def test_what_the_browser_is_asked_would_be_seen(browser: Browser, tmp_path: Path) -> None:
    """A page that runs a script and asks the network is one that the test above refuses."""
    page, log = tmp_path / "bad.html", tmp_path / "log.json"
    asking = "<img src='http://uma.invalid/x.png'><script>console.error('bad')</script>"
    page.write_text(f"<!DOCTYPE html><title>bad</title>{asking}", encoding="utf-8")
    said = browser.open(page, f"--screenshot={tmp_path / 'bad.png'}", f"--log-net-log={log}")
    assert _CONSOLE.search(said)
    assert any("uma.invalid" in url for url in requested(log))
    policy = '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'">'
    page.write_text(f"<!DOCTYPE html>{policy}<title>bad</title>{asking}", encoding="utf-8")
    assert "Content Security Policy" in browser.open(page, f"--screenshot={tmp_path / 'bad.png'}")
