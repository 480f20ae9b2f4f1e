"""``--strips``: layers over wide pictures in strips of columns, of all commands that build."""

from __future__ import annotations

import json
from pathlib import Path

from tests._support.row_nets import RowNet
from tests._support.small_models import Uma
from tests._support.strip_nets import named

from uma import build


def test_strips(uma: Uma, folder: Path) -> None:
    net = RowNet(12, 16, 2)
    model = named(net.module(net.conv(net.conv(net.conv(net.x, 16, 1), 16, 3, 2, depthwise=True), 2, 1)))
    build(model, "c", dump=folder, stop_after="import")
    given = ("1-import.py", "--target", "c -opt=s", "--strips", "2")
    said = uma("explain", *given, "--memory")
    assert "2 strips of the 8 columns up to 'layer8': 384 products more, 2.6%; " in said.out
    found = uma("explain", *given, "--memory", "--json").json["memory"]
    assert found["strips"]["ram_bytes"] == found["ram_bytes"] < found["strips"]["ram_before"]
    assert uma("build", *given, "-o", "out", "-q").code == 0
    record = json.loads((folder / "out" / "metadata.json").read_text())
    assert record["strips"] == found["strips"]
    assert uma("verify", *given, "--samples", "1", "-q").code == 0
    assert uma("run", *given, "--profile", "-q").code == 0
    assert "strips of columns bring nothing" in uma("build", *given[:3], "--strips", "9:layer8").error(4)
    assert "is not a number of strips" in uma("build", *given[:3], "--strips", "two").error(2)
    assert "an artifact is built already" in uma("run", "out", "--strips", "2").error(2)
