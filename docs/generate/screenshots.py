"""The pictures of the report in the documentation: ``python docs/generate/screenshots.py``, where there is Chromium.

It makes a report of the digits of `examples/digits` for the matrix unit of `examples/uma-matrix-unit` and its host, and
has the browser draw it as it is read, in the dark, and on a phone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "screenshots"
MODEL = ROOT / "examples" / "digits" / "digits.onnx"
TARGETS = ("matrix_unit", "c")
VIEWS = {
    "report.png": ("--window-size=1180,1010",),
    "report-dark.png": ("--window-size=1180,1010", "--blink-settings=preferredColorScheme=0"),
    "report-narrow.png": ("--window-size=400,900",),
}
MAX_BYTES = 150_000


def main() -> int:
    """Make the pictures; gives the exit code."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        print("there is no chromium: apt-get install chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        targets = [word for target in TARGETS for word in ("--target", target)]
        subprocess.run([sys.executable, "-m", "uma", "report", MODEL, *targets, "-o", page, "-q"], check=True)
        for name, options in VIEWS.items():
            picture = PICTURES / name
            headless = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
            shot = [*headless, *options, f"--user-data-dir={folder}/profile", f"--screenshot={picture}", page.as_uri()]
            subprocess.run(shot, check=True, stderr=subprocess.DEVNULL)
            size = picture.stat().st_size
            print(f"{picture.relative_to(ROOT)}: {size:,} bytes")
            if size > MAX_BYTES:
                print(f"that is more than {MAX_BYTES:,}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
