"""``--allow rounding``: the opt-in to different rounding, of all commands that build."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests._support.fixed_points import fixed_npu, residual_net
from tests._support.plugins import HOST, accelerator, entry_of
from tests._support.small_models import Uma

from uma.hookspecs import Pattern
from uma.plugins import PluginHost
from uma.relay.pattern import Match, any_, op, wildcard
from uma.relay.transform import fixed_point_view
from uma.targets import FixedPointForm

TARGETS = ("--target", "npu", "--target", "plain")
BY_CONSENT = ("--allow", "rounding=fixed-point")


@pytest.fixture
def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs an accelerator beside a plain host, and writes the model ``m.onnx``."""

    def installed(form: FixedPointForm | None = None, **given: Any) -> None:
        npu = fixed_npu("npu", form or FixedPointForm("even", 7), **given)
        monkeypatch.setattr("uma.plugins.default_host", lambda: PluginHost(lambda: [*npu, *entry_of(HOST)]))

    (folder / "m.onnx").write_bytes(residual_net())
    return installed


def test_explain_tells_what_it_would_bring(uma: Uma, install: Callable[..., None]) -> None:
    install(products=["qnn.conv2d"])
    done = uma("explain", "m.onnx", *TARGETS)
    assert "accelerators would have 99.8% of the MACs with --allow rounding=fixed-point\n" in done.out
    assert any(line.split() == ["npu", "0", "0", "0.0%"] for line in done.out.splitlines())
    record = uma("explain", "m.onnx", *TARGETS, "--json").json
    offer = {"options": ["rounding=fixed-point"], "differences": [], "offloaded": 7936 / 7948}
    assert record["allowed"] == {"options": [], "differences": [], "offers": [offer]}


def test_explain_tells_nothing_where_it_would_bring_nothing(uma: Uma, install: Callable[..., None]) -> None:
    install(products=[])
    assert "would have" not in uma("explain", "m.onnx", *TARGETS).out
    install(refuse="qnn.conv2d", products=["qnn.conv2d"])
    assert "would have" not in uma("explain", "m.onnx", *TARGETS).out
    done = uma("explain", "m.onnx", *TARGETS, *BY_CONSENT)
    assert "with --allow rounding=fixed-point no result differs from the model's arithmetic: no layer" in done.out


def test_a_plugin_that_fails_with_consent_does_not_fail_without(
    uma: Uma, install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install()

    def fails(found: Match) -> bool:
        return bool(found.root.attrs.scale.scale[0] == 0.5)  # there is no such number in fixed points

    scaled = op("qnn.requantize")(wildcard("int32"), scale=any_, output_zero_point=any_, dtype="int8", axis=any_)
    kind = accelerator("npu", fixed_point=FixedPointForm("even"))
    npu = entry_of(kind, patterns=lambda: [Pattern("npu.scaled", scaled, fails)])
    monkeypatch.setattr("uma.plugins.default_host", lambda: PluginHost(lambda: [*npu, *entry_of(HOST)]))
    assert uma("explain", "m.onnx", *TARGETS).code == 0
    assert "has no attribute 'scale'" in uma("explain", "m.onnx", *TARGETS, *BY_CONSENT).error(5)


def test_explain_tells_what_is_rounded_otherwise(uma: Uma, install: Callable[..., None]) -> None:
    install()
    options = ("--allow", "rounding:n_Conv_7=fixed-point", "--allow", "rounding:n_G*=fixed-point")
    done = uma("explain", "m.onnx", *TARGETS, *options)
    assert (done.code, "would have" in done.out) == (0, False)
    told = done.out[done.out.index("with --allow") :].splitlines()
    assert told[0] == (
        "with --allow rounding:n_Conv_7=fixed-point --allow rounding:n_G*=fixed-point results differ from the model's "
        "arithmetic, for the same operands by at most:"
    )
    assert told[1].split()[:3] == ["opt-in", "layers", "target"]
    assert " ".join(told[2].split()[:4]) == "rounding n_Conv_7, n_QuantizeLinear_8 npu"
    assert "requantisation, even  uma-npu 1.0" in told[2]
    assert told[2].endswith(" step")
    (row,) = uma("explain", "m.onnx", *TARGETS, *options[:2], "--json").json["allowed"]["differences"]
    assert (row["device"], row["what"], row["how"]) == ("npu", "requantisation", "even")


def test_verify(uma: Uma, install: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    install()
    command = ("verify", "m.onnx", *TARGETS, *BY_CONSENT, "--samples", "2")
    done = uma(*command, "-v")
    assert done.code == 0
    assert (
        "output QuantizeLinear_20 against the references of the whole model, with what was consented to: equal"
        in done.out
    )
    assert "--allow rounding, 3 results compared with those without it: 9" in done.out
    assert ", all within their bounds\n" in done.out
    assert "output QuantizeLinear_20 compared with the model's arithmetic: " in done.out
    assert "(printed, not judged)\n" in done.out
    assert "  layer n_Conv_7, n_QuantizeLinear_8: " in done.out
    record = uma(*command, "--json").json
    assert (record["equal"], len(record["allowed"]), len(record["drifts"])) == (True, 3, 1)
    monkeypatch.setattr(fixed_point_view, "largest_deviation", lambda *given: 0)
    done = uma(*command)
    assert (done.code, "beyond their bounds" in done.out) == (7, True)
    assert "layer n_Conv_2, n_Relu_3, n_QuantizeLinear_4, of plugin uma-npu 1.0, is off by " in done.err
    assert ", where it may be nothing\n" in done.err
    assert "a match of region npu_" in done.err


def test_build_and_run(uma: Uma, install: Callable[..., None], folder: Path) -> None:
    install(FixedPointForm("even"))
    assert (
        uma("build", "m.onnx", *TARGETS, *BY_CONSENT, "--require-offload", "100%", "--no-compile", "-o", "out").code
        == 0
    )
    assert '"options": [\n   "rounding=fixed-point"\n  ]' in (folder / "out" / "metadata.json").read_text()
    done = uma("build", "m.onnx", *TARGETS, "--allow", "rounding:n_Gemm_19=fixed-point", "--no-compile", "-o", "some")
    assert "--allow rounding:n_Gemm_19=fixed-point" in done.out  # how to be told why not more
    assert uma("run", "m.onnx", *TARGETS, *BY_CONSENT).code == 0
    assert uma("report", "m.onnx", *TARGETS, *BY_CONSENT, "-o", "page.html").code == 0


def test_a_project_consents(uma: Uma, install: Callable[..., None], folder: Path) -> None:
    install()
    (folder / "pyproject.toml").write_text('[tool.uma]\nallow = {rounding = "fixed-point", "npu.*" = "declared"}\n')
    assert "with --allow rounding=fixed-point results differ" in uma("explain", "m.onnx", *TARGETS).out
    # What the command says goes before it, and a build that cannot make use of it goes on.
    done = uma("explain", "m.onnx", *TARGETS, "--allow", "rounding=float")
    assert "with --allow rounding=float no result differs" in done.out
    assert uma("explain", "m.onnx", "--target", "plain").code == 0


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--allow", "rounding=fixed"], "'fixed' is not a value of rounding in allow"),
        (["--allow", "=float"], "--allow '=float' is not a pair of an opt-in and its value"),
        (["--allow", "fixed-point"], "--allow 'fixed-point' is not a pair of an opt-in and its value"),
        (["--allow", "rounding:x=fixed-point"], "no layer is called 'x', as in --allow rounding:x"),
        (["--allow", "rounding=float", "--allow", "rounding=fixed-point"], "--allow gives 'rounding' twice"),
        (["--allow", "rounding:n_Reshape_17=fixed-point"], "layer 'n_Reshape_17' has no float scale"),
        (["--requantize", "fixed-point"], "the flag --requantize was replaced by --allow"),
        (["--tolerate", "npu.*"], "the flag --tolerate was replaced by --allow"),
        (["--hybrid=litert"], "the flag --hybrid was replaced by --allow"),
    ],
)
def test_what_makes_no_sense(uma: Uma, install: Callable[..., None], options: list[str], what: str) -> None:
    install()
    assert what in uma("explain", "m.onnx", *TARGETS, *options).error(2)


def test_nobody_can_make_use_of_it(uma: Uma, install: Callable[..., None]) -> None:
    install()
    said = uma("explain", "m.onnx", "--target", "plain", *BY_CONSENT).error(2)
    assert "no accelerator of this build has fixed points of its own to round in; the kinds are plain" in said
    assert "an artifact is built already" in uma("run", ".", *BY_CONSENT).error(2)
