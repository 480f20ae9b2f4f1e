"""``uma.explain``, ``uma.verify`` and ``uma.installed_targets``: typed results in Python and their display."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.plugins import accelerator, entry_of
from tests._support.reports import HOSTILE, Page
from tests._support.small_models import NET

import uma
from uma.errors import PluginError, UsageError
from uma.plugins import PluginHost
from uma.reports.explain import Explanation
from uma.verification.results import Verification

HOST = "c -mcpu=x86-64 -opt=1"


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(NET.replace("'block/relu;twice'", repr(HOSTILE[0])))
    return path


def test_explain(net: Path) -> None:
    found = uma.explain(net, HOST)
    assert isinstance(found, Explanation)
    assert (found.name, found.host, found.offloaded, found.notes) == ("net", "c", 0.0, ())
    assert found.ops[0].op == "nn.relu" and set(found.brought) <= {"c"}
    with pytest.raises(UsageError, match="5 is not a PluginHost"):
        uma.explain(net, HOST, plugins=5)  # type: ignore[arg-type]  # a number is not a `PluginHost`


def test_verify(net: Path) -> None:
    image = np.linspace(-1, 1, 3 * 128, dtype=np.float32).reshape(3, 8, 8, 2)
    found = uma.verify(net, HOST, {"image:0": image}, samples=4)
    assert isinstance(found, Verification) and found.ok
    assert found.samples[:3] == ("sample 0", "sample 1", "sample 2") and len(found.samples) == 4


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"samples": 0}, "0 samples cannot be compared"),
        ({"step_limit_s": 0}, "the step limit 0 is not positive"),
        ({"against": "tvm"}, "'tvm' is nothing to compare with"),
        ({"plugins": 5}, "5 is not a PluginHost"),
        ({"target": 5}, "5 is not a target"),
    ],
)
def test_bad_options_of_verify(net: Path, options: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        uma.verify(net, **{"target": HOST, **options})


def test_another_runtime_reads_files(net: Path) -> None:
    module = uma.build(net, HOST, stop_after="import")
    with pytest.raises(UsageError, match="onnxruntime reads model files alone"):
        uma.verify(module, HOST, against="onnxruntime")


def test_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.uma.targets]\nmy-board = "c -opt=s"\n')
    found = uma.installed_targets()
    assert found.kinds["c"].is_host and found["c"] is found.kinds["c"]
    assert found["my-board"].name == "my-board" and "my-board" in found and "composite" in found
    assert "no-kind" not in found
    with pytest.raises(KeyError):
        found["no-kind"]


def test_targets_that_cannot_be_had() -> None:
    def broken() -> object:
        raise RuntimeError("is broken")

    found = uma.installed_targets(PluginHost(lambda: entry_of(accelerator("odd"), register_target=broken)))
    assert list(found.unusable) == ["odd"] and "odd" not in found
    with pytest.raises(PluginError):
        found["odd"]


def test_results_show_themselves(tmp_path: Path) -> None:
    net = tmp_path / "net.py"
    net.write_text(NET.replace("block/relu;twice", "<i>").replace("image:0", "<i>"))
    artifact = uma.build(net, HOST)
    profile = artifact.profile(np.zeros((1, 8, 8, 2), np.float32), 1)
    for shown in (artifact, profile, uma.explain(net, HOST)):
        page = Page(shown._repr_html_())
        assert page.tags["table"] >= 1 and not page.scripts and "script" not in page.tags
        assert "<i>" in page.text and "i" not in page.tags
        assert not any(name.startswith("on") or name in ("src", "href") for _, name, _ in page.attributes)
