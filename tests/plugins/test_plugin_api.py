"""The versions of the contract: what it is now, and that the next minor version runs a plugin for this one.

The next minor version is made here, for these tests: hook `patterns` has one argument more, hook `estimate_cost` and
the argument ``module`` of `relay_to_tir` are deprecated, hook ``estimate`` is new.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pluggy
import pytest
from docs.generate.names import HOOKS
from docs.generate.repository import ROOT, Project, projects
from tests._support.plugins import accelerator, entry_of, module_of

import uma
from uma import hookspecs
from uma.cli import main
from uma.errors import PluginError
from uma.hookspecs import Cost, MatchedRegion, Pattern
from uma.lowering.build_targets import BuildTarget, resolve_targets
from uma.pipeline.stages import Build
from uma.plugins import LoadedPlugin, PluginEntry, PluginHost, default_host
from uma.plugins.moves import RENAMES, Rename
from uma.relay import Function, GlobalVar, IRModule, TensorType, Var, call
from uma.relay.pattern import PatternTable
from uma.reports.costs import region_costs
from uma.targets import Target
from uma.testing.suite.packaging import kind_keywords

STAND_INS = Path(__file__).resolve().parents[1] / "stand_ins"
FROZEN = sorted(STAND_INS.glob("frozen_api_*.py"))
X = Var("x", TensorType((2, 3), "float32"))
MODEL = module_of(call("nn.relu", call("nn.relu", X)), {X: ["x"]})

_spec = pluggy.HookspecMarker(hookspecs.PROJECT)


def described(value: Any) -> list[str]:
    """A hook with its arguments, or a record with its fields, a line for each."""
    if dataclasses.is_dataclass(value) and isinstance(value, type):
        _, *parameters = inspect.signature(value.__init__).parameters.values()
        return [f"  {p.name}{' = ...' if p.default is not p.empty else ''}" for p in parameters]
    return [f"  {name}" for name in inspect.signature(value).parameters]


def contract() -> str:
    """Hooks with their arguments and records with their fields."""
    lines = []
    for name in hookspecs.__all__:
        value = getattr(hookspecs, name)
        if hasattr(value, f"{hookspecs.PROJECT}_spec") or (isinstance(value, type) and dataclasses.is_dataclass(value)):
            lines += [name, *described(value)]
    return "\n".join([*lines, ""])


def test_the_contract_has_a_version(golden: Callable[[str, str], None]) -> None:
    """A change of the contract is one of its version as well: raise `PLUGIN_API_VERSION`, then --update-golden."""
    golden(contract(), "contract-{}.{}.txt".format(*hookspecs.PLUGIN_API_VERSION))


def test_documents_show_this_version() -> None:
    shown = "UMA_PLUGIN_API = ({}, {})".format(*hookspecs.PLUGIN_API_VERSION)
    docs = STAND_INS.parents[1] / "docs"
    texts = [(docs / name).read_text(encoding="utf-8") for name in ("plugins.md", "accelerators.md")]
    assert all(shown in text for text in [*texts, hookspecs.__doc__ or ""])


def test_there_is_a_frozen_plugin_of_this_version_that_has_all_hooks() -> None:
    """With a new version comes one more, a copy of the last one with what is new; those before stay as they are."""
    major, minor = hookspecs.PLUGIN_API_VERSION
    path = STAND_INS / f"frozen_api_{major}_{minor}.py"
    assert path in FROZEN
    text = path.read_text(encoding="utf-8")
    for hook in HOOKS:
        arguments = ", ".join(inspect.signature(getattr(hookspecs, hook)).parameters)
        found = inspect.signature(getattr(frozen_module(path), hook))
        assert ", ".join(found.parameters) == arguments, hook
    assert f"UMA_PLUGIN_API = ({major}, {minor})" in text


def frozen_module(path: Path) -> Any:
    __import__(path.stem)
    return sys.modules[path.stem]


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The frozen plugins can be imported, and are forgotten after the test."""
    monkeypatch.syspath_prepend(STAND_INS)
    yield
    for path in FROZEN:
        sys.modules.pop(path.stem, None)


def frozen_host(path: Path) -> PluginHost:
    entries = [PluginEntry(kind, path.stem, "uma-frozen", "1.2") for kind in ("frozen_npu", "frozen_host")]
    return PluginHost(lambda: entries)


def built(host: PluginHost) -> tuple[uma.Artifact, list[Cost | None]]:
    """The artifact of a model that the frozen accelerator takes, and what its regions cost."""
    members = resolve_targets(["frozen_npu", "frozen_host"], host)
    build = Build("m", members)
    build.run(MODEL, "fuse")
    costs = [row.cost for row in region_costs(build)]
    return uma.build(MODEL, ["frozen_npu", "frozen_host"], name="m", plugins=host), costs


def api_in_name(path: Path) -> tuple[int, ...]:
    return tuple(map(int, path.stem.split("_")[-2:]))


RUNNING = [path for path in FROZEN if api_in_name(path) >= hookspecs.LAST_BREAKING_VERSION]
REFUSED = [path for path in FROZEN if api_in_name(path) < hookspecs.LAST_BREAKING_VERSION]


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: path.stem)
def test_a_plugin_from_before_the_break_is_refused_with_the_names_that_it_uses(path: Path) -> None:
    with pytest.raises(PluginError) as caught:
        frozen_host(path).plugin_for("frozen_npu")
    major, minor = api_in_name(path)
    said = f"plugin uma-frozen 1.2 is for plugin API {major}.{minor}, this is 0.7, and 0.7 broke with what was before"
    assert caught.value.what == said
    rows = (caught.value.hint or "").split("docs/moving-to-0.7.md; ")[1].split("; ")
    assert rows == [
        "hookspecs.Lowered is now LoweredKernel",
        "hookspecs.Code is now TargetCode",
        "IRModule.of is now IRModule.from_functions",
    ]
    assert isinstance(caught.value.__context__, PluginError), "the import itself failed"


def test_an_earlier_plugin_whose_import_succeeds_lists_its_names_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "uma_earlier"
    package.mkdir()
    (package / "__init__.py").write_text("import uma.tir as loops\nUMA_PLUGIN_API = (0, 6)\n", encoding="utf-8")
    late = "def f(x):\n    from uma.relay import quantised, with_attention\n"
    late += "    return quantised.layer, loops.bodies(x), x.layer\n"
    (package / "late.py").write_text(f"import uma.tir as loops\n{late}", encoding="utf-8")
    (package / "broken.py").write_text("def :\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    host = PluginHost(lambda: [PluginEntry("earlier", "uma_earlier", "uma-earlier", "1")])
    with pytest.raises(PluginError) as caught:
        host.plugin_for("earlier")
    assert (caught.value.hint or "").endswith(
        "docs/moving-to-0.7.md; relay.with_attention is internal now; quantised.layer is now layer_pattern; "
        "tir.bodies is now child_statements"
    )


HOMES = {
    "quantised": "relay.quantised",
    "pattern": "relay.pattern",
    "tiling": "tir.tiling",
    "PluginHost": "plugins",
    "IRModule": "relay",
    "Signature": "relay",
    "CompilationConfig": "targets.config",
    "machines": "toolchain",
    "te": "tir.te",
    "collage": "partition.collage",
    "members": "lowering.build_targets",
    "LoadedPlugin": "plugins",
}


def exists(path: str) -> bool:
    try:
        pkgutil.resolve_name(path)
    except (AttributeError, ImportError):
        return False
    return True


def has(owner: object, name: str) -> bool:
    """Return whether a module, class or function has an attribute, a field or a parameter of that name."""
    if hasattr(owner, name):
        return True
    setup = owner.__init__.__code__.co_names if isinstance(owner, type) and "__init__" in vars(owner) else ()
    return callable(owner) and name in (*setup, *inspect.signature(owner).parameters)


@pytest.mark.parametrize("row", RENAMES, ids=lambda row: row.old)
def test_a_renamed_name_exists_under_its_new_name_only(row: Rename) -> None:
    if row.old.startswith("uma."):
        assert exists(row.new) and not exists(row.old)
        return
    head, *old = row.old.split(".")
    module = importlib.import_module(f"uma.{HOMES.get(head, head)}")
    owner, name = module, row.new
    if "." in name:  # a method
        holder, name = name.split(".")
        owner = getattr(module, holder)
    assert not name or has(owner, name)
    assert not has(owner, old[-1])


@pytest.mark.parametrize("path", RUNNING, ids=lambda path: path.stem)
def test_a_plugin_for_an_earlier_or_this_version_runs(path: Path) -> None:
    host = frozen_host(path)
    assert host.plugin_for("frozen_npu").api == api_in_name(path)
    artifact, costs = built(host)
    assert costs == [Cost(cycles=10.0)]
    assert artifact.metadata["plugins"] == {"uma-frozen": "1.2"}
    x = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)
    [y] = artifact.run(x).values()
    np.testing.assert_array_equal(y, np.maximum(x, 0))


@pytest.fixture
def next_minor(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The contract is the next minor version's; gives it."""
    major, minor = hookspecs.PLUGIN_API_VERSION
    now = f"since plugin API {major}.{minor + 1}, and goes with {major}.{minor + 3}"

    @_spec(firstresult=True)
    def patterns(target: Target, budget: int = 8) -> Sequence[Pattern] | None: ...

    @_spec(firstresult=True, warn_on_impl=DeprecationWarning(f"hook estimate_cost is deprecated {now}: use estimate"))
    def estimate_cost(function: Function, region: MatchedRegion, target: Target) -> Cost | None: ...

    @_spec(firstresult=True)
    def estimate(function: Function, target: Target) -> Cost | None: ...

    @_spec(
        firstresult=True,
        warn_on_impl_args={"module": DeprecationWarning(f"argument module of hook relay_to_tir is deprecated {now}")},
    )
    def relay_to_tir(
        module: IRModule, function: Function, region: MatchedRegion, target: Target
    ) -> tuple[IRModule, GlobalVar] | None: ...

    for hook in (patterns, estimate_cost, estimate, relay_to_tir):
        monkeypatch.setattr(hookspecs, hook.__name__, hook, raising=False)
    monkeypatch.setattr(hookspecs, "PLUGIN_API_VERSION", (major, minor + 1))

    # A core of that version says how many patterns it looks at.
    def table(self: BuildTarget) -> PatternTable:
        return PatternTable(self.plugin.call("patterns", target=self.target, budget=3) or ())

    monkeypatch.setattr(BuildTarget, "patterns", property(table))
    return major, minor + 1


class TestNextMinorVersion:
    @pytest.mark.parametrize("path", RUNNING, ids=lambda path: path.stem)
    def test_it_runs_a_plugin_for_this_one_as_this_one_does(self, path: Path, request: pytest.FixtureRequest) -> None:
        before, costs = built(frozen_host(path))
        del sys.modules[path.stem]
        request.getfixturevalue("next_minor")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            after, costs_after = built(frozen_host(path))
        assert (after.files, costs_after) == (before.files, costs)

    def test_its_warnings_name_the_plugin_the_place_and_what_to_do(self, next_minor: tuple[int, int]) -> None:
        host = frozen_host(FROZEN[-1])
        with pytest.warns(DeprecationWarning) as caught:
            plugin = host.plugin_for("frozen_npu")
        major, minor = next_minor
        texts = sorted(str(warning.message) for warning in caught)
        assert texts == sorted(plugin.notes)
        now = f"is deprecated since plugin API {major}.{minor}, and goes with {major}.{minor + 2}"
        assert texts[0].startswith(f"plugin uma-frozen 1.2: argument module of hook relay_to_tir {now} (")
        assert texts[1].startswith(f"plugin uma-frozen 1.2: hook estimate_cost {now}: use estimate (")
        assert all(f"{FROZEN[-1].name}:" in text for text in texts)
        host.plugin_for("frozen_host")  # says it once

    def test_a_plugin_for_it_gets_what_is_new(self, next_minor: tuple[int, int]) -> None:
        given: list[int] = []

        def patterns(target: Target, budget: int) -> list[Pattern]:
            given.append(budget)
            return []

        [entry] = entry_of(accelerator("npu"), patterns=patterns, estimate=lambda function: Cost(cycles=1.0))
        vars(sys.modules[entry.value])["UMA_PLUGIN_API"] = next_minor
        host = PluginHost(lambda: [entry])
        plugin: LoadedPlugin = host.plugin_for("npu")
        assert (plugin.notes, "estimate" in plugin.implemented) == ((), True)
        target = host.target("npu")
        plugin.call("patterns", target=target, budget=3)
        plugin.call("patterns", target=target)  # a call that was not brought up to date: the default
        assert given == [3, 8]
        assert plugin.call("estimate", function=None, target=target) == Cost(cycles=1.0)

    def test_the_result_of_a_new_hook_is_checked_against_its_annotation(self, next_minor: tuple[int, int]) -> None:
        [entry] = entry_of(accelerator("npu"), estimate=lambda function: 1.0)
        plugin = PluginHost(lambda: [entry]).plugin_for("npu")
        with pytest.raises(PluginError, match=r"gave 1\.0 from hook estimate"):
            plugin.call("estimate", function=None, target=None)

    def test_without_it_that_plugin_is_refused_and_says_what_to_upgrade(self) -> None:
        major, minor = hookspecs.PLUGIN_API_VERSION
        [entry] = entry_of(accelerator("npu"), estimate=lambda function: Cost(cycles=1.0))
        vars(sys.modules[entry.value])["UMA_PLUGIN_API"] = (major, minor + 1)
        with pytest.raises(PluginError, match=r"has a hook that does not fit: .*unknown hook 'estimate'") as caught:
            PluginHost(lambda: [entry]).plugin_for("npu")
        assert caught.value.hint == "install a pair that fits: pip install --upgrade uma-core uma-npu"

    def test_or_it_can_do_without(self) -> None:
        major, minor = hookspecs.PLUGIN_API_VERSION
        [entry] = entry_of(accelerator("npu"))
        module = sys.modules[entry.value]
        optional = hookspecs.hookimpl(optionalhook=True)(lambda function: Cost(cycles=1.0))
        vars(module).update(UMA_PLUGIN_API=(major, minor + 1), estimate=optional)
        with pytest.warns(RuntimeWarning, match="it may ask for more"):
            assert PluginHost(lambda: [entry]).kind("npu").name == "npu"


@pytest.mark.parametrize("project", projects(), ids=lambda project: project.name)
def test_every_plugin_of_the_repository_says_its_contract(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """In its code, in its README, in its metadata; and `uma plugins` shows it."""
    said = "{}.{}".format(*hookspecs.PLUGIN_API_VERSION)
    [core] = (line for line in project.requires if line.startswith("uma-core"))
    [low, high] = re.fullmatch(r"uma-core>=([0-9.]+),<([0-9.]+)", core).groups()  # type: ignore[union-attr]  # all are bounded on both sides
    readme = (ROOT / project.folder / "README.md").read_text(encoding="utf-8")
    here = f"[plugin API](../../docs/plugins.md#versions) {said}, with `uma-core` from {low} to below {high}."
    anywhere = f"plugin API {said}, with `{core}`."  # as `uma new-plugin` writes it
    assert any(f"Contract: {contract}" in " ".join(readme.split()) for contract in (here, anywhere))
    pytest.importorskip(project.entries[0].value, reason=f"{project.name} is not installed")
    assert main(["plugins", project.name]) == 0
    plugin = default_host().plugin_for(project.entries[0].kind)
    assert {*project.keywords} == kind_keywords([*plugin.kinds.values(), *plugin.aliases.values()])
    shown = " ".join(capsys.readouterr().out.split())
    assert f"needs uma-core<{high},>={low} plugin API {said}; this is {said} " in shown
