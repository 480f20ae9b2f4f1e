"""`require-plugins` in `[tool.uma]`: checked before targets are resolved, without importing a plugin."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests._support.small_models import NET

import uma
from uma.errors import RequirementError, UsageError
from uma.lowering.build_targets import resolve_targets
from uma.plugins import PluginEntry, PluginHost

ENTRIES = [
    PluginEntry("npu", "uma_not_there", "uma-npu", "0.2"),
    PluginEntry("npu2", "uma_not_there", "uma-npu", "0.2"),
    PluginEntry("dsp", "uma_not_there", "uma_dsp", "1.0rc1"),
    PluginEntry("half", "uma_not_there", "uma-half", "(no version)"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder; nothing is disabled from outside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UMA_DISABLE_PLUGINS", raising=False)
    return tmp_path


def require(*lines: object) -> None:
    Path("pyproject.toml").write_text(f"[tool.uma]\nrequire-plugins = {list(lines)}\n", encoding="utf-8")


def host(*disabled: str) -> PluginHost:
    return PluginHost(lambda: ENTRIES, disabled=disabled)


def test_requirements_that_are_met_import_nothing() -> None:
    host().check_required()
    require()
    host().check_required()
    require("uma-npu>=0.2,<0.3", "UMA.Dsp>=0.9", "uma-old; python_version < '3'", "uma-npu[tools]")
    host().check_required()


@pytest.mark.parametrize(
    ("lines", "disabled", "what", "hint"),
    [
        (["uma-x>=0.3"], (), "uma-x>=0.3, and it is not installed", "pip install 'uma-x>=0.3'"),
        (["uma-npu>=0.3"], (), "uma-npu>=0.3, and 0.2 is installed", "pip install 'uma-npu>=0.3'"),
        (["uma-half>=1"], (), "uma-half>=1, and (no version) is installed", "pip install 'uma-half>=1'"),
        (
            ["uma-x", "uma-dsp", "uma_npu>0.2"],
            (),
            "uma-x, and it is not installed; uma_npu>0.2, and 0.2 is installed",
            "pip install uma-x 'uma_npu>0.2'",
        ),
        (
            ["uma-npu>=0.3"],
            ("npu2",),
            "uma-npu>=0.3, which is disabled on request",
            "enable the plugin, or change require-plugins",
        ),
    ],
)
def test_one_error_names_all_plugins_and_the_command(
    folder: Path, lines: list[str], disabled: tuple[str, ...], what: str, hint: str
) -> None:
    require(*lines)
    with pytest.raises(RequirementError) as caught:
        resolve_targets("npu", host(*disabled))
    assert (caught.value.what, caught.value.hint) == (f"the project requires {what}", hint)
    assert caught.value.where == f"{folder / 'pyproject.toml'}, require-plugins in [tool.uma]"


@pytest.mark.parametrize("line", ["uma-npu>=", "uma npu", ""])
def test_a_line_that_is_not_a_requirement(line: str) -> None:
    require(line)
    with pytest.raises(UsageError) as caught:
        host().check_required()
    assert caught.value.what == f"{line!r} is not a requirement"
    assert caught.value.hint == 'write require-plugins = ["uma-my-plugin>=0.3"]'


def test_a_setting_that_is_not_a_list_of_names() -> None:
    require(3)
    with pytest.raises(UsageError, match="require-plugins is not a list of names"):
        host().check_required()


def test_python_checks_it(folder: Path) -> None:
    (folder / "net.py").write_text(NET)
    require("uma-x>=0.3")
    with pytest.raises(RequirementError, match=r"requires uma-x>=0\.3"):
        uma.build("net.py", "c")
