"""The targets of a build: which go together, and what their plugins say of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests._support import fake_device
from tests._support.passes import by_host, passing
from tests._support.plugins import HOST, accelerator, built, entry_of, members_of, module_of, taking, toy
from tests._support.regions import CHAIN, RELU, SUM
from tests._support.te_lowerings import lowered

from uma.errors import PluginError, UsageError
from uma.hookspecs import Pass, Strategy
from uma.lowering.build_targets import BuildTarget, BuildTargets, resolve_targets
from uma.plugins import PluginEntry, PluginHost
from uma.targets import Attribute, Limits, QuantisedForm, Target, TargetKind

LANES = Attribute("lanes", int, default=8, low=1, high=64, help="elements per cycle")
OTHER = TargetKind("other", (LANES,), help="another host", is_host=True)
NPU, DSP = accelerator("npu", LANES), accelerator("dsp")


def host_of(*extra: Sequence[PluginEntry]) -> PluginHost:
    """Two hosts, and two accelerators of one plugin."""
    entries = [*entry_of(HOST), *entry_of(OTHER), *entry_of(NPU, DSP), *(entry for more in extra for entry in more)]
    return PluginHost(lambda: entries)


def only(*plugins: Sequence[PluginEntry]) -> BuildTarget:
    """The first target of a build."""
    return members_of(*plugins).accelerators[0]


# --- which targets go together ---------------------------------------------------------------------------------------


class TestResolve:
    @pytest.mark.parametrize(
        ("target", "labels"),
        [
            ("plain", "plain"),
            ("other -lanes=4", "other"),
            (["plain"], "plain"),
            (["npu", "plain"], "npu plain"),
            (["plain", "npu"], "npu plain"),
            (["dsp", "other", "npu -lanes=2"], "dsp npu other"),
            (("npu", "dsp", "plain"), "npu dsp plain"),
            ([Target(NPU, {"lanes": 2}), Target(HOST)], "npu plain"),
            (Target(HOST), "plain"),
            ("plain -accelerators=npu,dsp", "npu dsp plain"),
            ({"one": "npu -lanes=2", "two": "npu", "cpu": "plain"}, "one two cpu"),
            ("one: npu -lanes=2; two: npu; plain", "one two plain"),
        ],
    )
    def test_a_host_and_accelerators_in_their_order(self, target: Any, labels: str) -> None:
        members = resolve_targets(target, host_of())
        assert " ".join(member.label for member in members.all) == labels
        assert members.host is members.all[-1] and members.host.target.kind.is_host
        assert members.accelerators == members.all[:-1]
        for member in members.all:
            assert members[member.label] is members.get(member.label) is member
            assert member.target.kind.name in member.plugin.kinds
        assert members.get("gpu") is None

    def test_attributes_are_kept(self) -> None:
        members = resolve_targets(["npu -lanes=2", "plain"], host_of())
        assert members["npu"].target.get_attr("lanes") == 2

    @pytest.mark.parametrize("target", [None, 3, {"npu", "plain"}, b"plain"])
    def test_what_is_no_target(self, target: Any) -> None:
        with pytest.raises(UsageError, match=r"(3|a value of type \w+) is not a target") as caught:
            resolve_targets(target, host_of())
        assert caught.value.hint == "a text, a Target, or a dict with the key 'kind'"

    @pytest.mark.parametrize("target", [[], (), {}])
    def test_no_target(self, target: Any) -> None:
        with pytest.raises(UsageError, match="there is no target"):
            resolve_targets(target, host_of())

    @pytest.mark.parametrize("one", [None, 3, ["plain"], HOST])
    def test_what_is_no_target_in_a_list(self, one: Any) -> None:
        with pytest.raises(UsageError, match=r"is not a target|holds a list") as caught:
            resolve_targets(["npu", one], host_of())
        assert caught.value.where == "[1]"

    @pytest.mark.parametrize(
        ("target", "both"),
        [
            (["npu", "npu", "plain"], "'npu': npu and npu"),
            (["npu -lanes=1", "dsp", "npu -lanes=2", "plain"], "'npu': npu -lanes=1 and npu -lanes=2"),
            (["plain", "plain"], "'plain': plain and plain"),
        ],
    )
    def test_two_of_one_label(self, target: list[str], both: str) -> None:
        with pytest.raises(UsageError) as caught:
            resolve_targets(target, host_of())
        assert caught.value.what == f"two targets are called {both}"
        kind = both.split("'")[1]
        assert caught.value.hint == f"give one of them another label: '{kind}_1: {kind}'"

    @pytest.mark.parametrize(
        ("target", "names", "remedy"),
        [
            ("npu", "'npu'", '"other -accelerators=npu"'),
            (["npu -lanes=2"], "'npu'", "\"other -accelerators='npu -lanes=2'\""),
            (["npu", "b: dsp"], "'npu' and 'b'", "\"other -accelerators=npu,'b: dsp'\""),
        ],
    )
    def test_accelerators_alone(self, target: Any, names: str, remedy: str) -> None:
        with pytest.raises(UsageError) as caught:
            resolve_targets(target, host_of())
        assert caught.value.what == f"{names} cannot run a whole model alone"
        assert caught.value.hint == f"give a host besides: --target {remedy}"
        assert " ".join(member.label for member in resolve_targets(remedy.strip('"'), host_of()).all).endswith("other")

    def test_several_hosts(self) -> None:
        members = resolve_targets(["plain", "npu", "other -lanes=2"], host_of())
        assert [host.label for host in members.hosts] == ["plain", "other"]
        assert [member.label for member in members.all] == ["npu", "plain", "other"]
        assert members.host is members.hosts[0]

    @pytest.mark.parametrize(
        ("target", "what"),
        [
            ("gpu", "there is no target kind 'gpu'"),
            (["npu", "plane"], "there is no target kind 'plane'"),
            (["npu -lines=2", "plain"], "lines"),
            (["npu -lanes=100", "plain"], "lanes"),
            ("", "."),
        ],
    )
    def test_what_the_user_wrote_wrong(self, target: Any, what: str) -> None:
        with pytest.raises(UsageError, match=what):
            resolve_targets(target, host_of())

    def test_a_target_of_a_kind_that_nobody_serves(self) -> None:
        with pytest.raises(UsageError, match="there is no target kind 'gpu'"):
            resolve_targets([Target(accelerator("gpu")), "plain"], host_of())

    def test_a_plugin_that_is_broken_and_asked_for(self) -> None:
        broken = [PluginEntry("gpu", "uma_test_there_is_no_such_module", "uma-gpu", "1.0")]
        host = host_of(broken)
        assert resolve_targets(["npu", "plain"], host).accelerators[0].label == "npu"
        with pytest.raises(PluginError, match=r"plugin uma-gpu 1.0 cannot be imported: ModuleNotFoundError"):
            resolve_targets(["gpu", "plain"], host)

    def test_two_plugins_of_one_kind(self) -> None:
        with pytest.raises(PluginError, match="target kind 'npu' is claimed by more than one plugin"):
            resolve_targets(["npu", "plain"], host_of(entry_of(NPU, version="2.0")))


# --- what a plugin says of its target --------------------------------------------------------------------------------


def test_everything_is_asked_for_once() -> None:
    asked: list[str] = []

    def noting(name: str, gives: Callable[[], Any]) -> Callable[[Target], Any]:
        def hook(target: Target) -> Any:
            asked.append(name)
            assert target is Target.current() and target.kind.name == "npu"
            return gives()

        return hook

    kind = accelerator("npu", limits=noting("limits", Limits))
    hooks: dict[str, Any] = {
        "patterns": noting("patterns", lambda: [taking("npu", "nn.relu")]),
        "passes": noting("passes", lambda: [Pass("TIR_0", "nothing", lambda module: module)]),
        "strategies": noting("strategies", lambda: None),
        "runtime": noting("runtime", lambda: None),
    }
    members = members_of(entry_of(kind, **hooks))
    assert asked == []
    for _ in range(2):
        built(module_of(SUM), members)
        assert members["npu"].strategies == {} and members["npu"].runtime is None
    assert sorted(asked) == ["limits", "passes", "patterns", "runtime", "strategies"]


def test_a_plugin_that_says_nothing() -> None:
    member = only(entry_of(NPU))
    assert not list(member.patterns) and member.passes == () and member.strategies == {}
    assert member.runtime is None and member.limits == Limits()
    assert (member.owner.label, list(member.owner.patterns), member.owner.limits) == ("npu", [], Limits())
    built(CHAIN, members_of(entry_of(NPU)))


def test_strategies_by_name() -> None:
    made = [Strategy(name, lambda fusion, target: lowered(fusion.function)) for name in ("add", "npu.add", "add")]
    member = only(toy("npu", "add", strategies=lambda: made))
    assert dict(member.strategies) == {"add": (made[0], made[2]), "npu.add": (made[1],)}


def test_limits_may_be_fixed() -> None:
    assert only(entry_of(accelerator("npu", limits=Limits(matches=2)))).limits == Limits(matches=2)


HOOKS: dict[str, Callable[[Any], list[PluginEntry]]] = {
    "patterns": lambda gives: toy(patterns=gives),
    "passes": lambda gives: toy("npu", "nn.relu", passes=gives),
    "strategies": lambda gives: toy(patterns=lambda: [taking("npu", "nn.relu", None)], strategies=gives),
    "runtime": lambda gives: toy("npu", "nn.relu", runtime=gives),
}


def read(members: BuildTargets, hook: str) -> None:
    """Ask for what the hook gives."""
    getattr(members["npu"], hook)


@pytest.mark.parametrize("hook", list(HOOKS))
def test_a_hook_that_raises(hook: str) -> None:
    def fails() -> Any:
        raise KeyError("weights")

    with pytest.raises(PluginError) as caught:
        read(members_of(HOOKS[hook](fails)), hook)
    assert caught.value.what == f"plugin uma-npu 1.0 failed in hook {hook}: KeyError: 'weights'"


@pytest.mark.parametrize("hook", list(HOOKS))
def test_a_hook_that_gives_junk(hook: str) -> None:
    for junk, shown in ((3, "3"), ("junk", "'junk'"), (RELU, "a value of type Call")):
        with pytest.raises(PluginError) as caught:
            read(members_of(HOOKS[hook](lambda junk=junk: junk)), hook)
        assert caught.value.what == f"plugin uma-npu 1.0 gave {shown} from hook {hook}"
    if hook != "runtime":
        with pytest.raises(PluginError, match=rf"gave 3 from hook {hook} among its \w+ records"):
            read(members_of(HOOKS[hook](lambda: [3])), hook)


def test_patterns_that_do_not_go_together() -> None:
    twice = toy(patterns=lambda: [taking("npu", "nn.relu"), taking("npu", "nn.relu")])
    with pytest.raises(PluginError) as caught:
        built(CHAIN, members_of(twice))
    assert caught.value.what.startswith("plugin uma-npu 1.0 gave patterns that do not go together: ")
    assert "npu.relu" in caught.value.what
    assert "entry point `npu = " in str(caught.value.where)


def test_two_passes_of_one_name() -> None:
    one, two = (Pass("TIR_0", "same", lambda module: module) for _ in range(2))
    elsewhere = Pass("TIR_1", "same", lambda module: module)
    with pytest.raises(PluginError) as caught:
        built(CHAIN, members_of(passing("npu", one, elsewhere, two)))
    assert caught.value.what == "plugin uma-npu 1.0 has two passes 'same' for phase TIR_0"
    assert only(passing("npu", one, elsewhere)).passes == (one, elsewhere)


def test_a_pass_for_the_regions_of_a_host() -> None:
    odd = Pass("TIR_0", "odd", lambda module: module, scope="regions")
    with pytest.raises(PluginError) as caught:
        built(CHAIN, by_host(odd))
    assert caught.value.what == "plugin uma-plain 1.0 has pass 'odd' of TIR_0 for regions, which a host has none of"


@pytest.mark.parametrize(
    ("given", "shown"), [(3, "3"), ("many", "'many'"), (None, "None"), (Limits, "a value of type type")]
)
def test_limits_that_are_none(given: Any, shown: str) -> None:
    members = members_of(entry_of(accelerator("npu", limits=lambda target: given)))
    with pytest.raises(PluginError) as caught:
        built(CHAIN, members)
    assert caught.value.what == f"plugin uma-npu 1.0 gave {shown} for the limits of npu"


def test_limits_that_fail() -> None:
    def limits(target: Target) -> Limits:
        return Limits(matches=int(target.get_attr("lanes")) // 0)

    with pytest.raises(PluginError, match=r"uma-npu 1.0 failed in the limits of its target kind: ZeroDivisionError"):
        built(CHAIN, members_of(entry_of(accelerator("npu", LANES, limits=limits))))


@pytest.mark.parametrize(("given", "what"), [(["fma"], "a value of type list"), (frozenset([3]), "a value of type")])
def test_features_that_are_none(given: Any, what: str) -> None:
    kind = TargetKind("able", help="a host", is_host=True, features=lambda target: given)
    with pytest.raises(PluginError) as caught:
        _ = resolve_targets("able", PluginHost(lambda: entry_of(kind))).host.features
    assert f"gave {what}" in caught.value.what and caught.value.what.endswith(" for the features of able")


def test_features_are_asked_of_the_kind() -> None:
    able = TargetKind("able", (LANES,), help="a host", is_host=True, features=lambda target: frozenset(["fma"]))
    assert resolve_targets("able", PluginHost(lambda: entry_of(able))).host.features == {"fma"}
    assert resolve_targets("plain", host_of()).host.features == frozenset()


def test_what_loops_use_of_a_device() -> None:
    func, host_func = fake_device.doubling(4), lowered(module_of(RELU).main).func
    assert only(toy("npu", "nn.relu")).undeclared(host_func) is None
    assert only(toy("npu", "nn.relu")).undeclared(func) == "a device, for which hook runtime gives no driver"
    assert only(toy("npu", "nn.relu", runtime=lambda: fake_device.runtime())).undeclared(func) is None
    for field, what in (("memories", "the memory 'spad'"), ("intrinsics", "the intrinsic 'add'")):
        fewer = replace(fake_device.runtime().machine, **{"intrinsics": (), field: ()})
        member = only(toy("npu", "nn.relu", runtime=lambda fewer=fewer: fake_device.runtime(machine=fewer)))
        assert member.undeclared(func) == f"{what}, which its Runtime does not declare"


@pytest.mark.parametrize(("given", "shown"), [(3, "3"), ("int8", "'int8'"), (None, "None")])
def test_a_quantised_form_that_is_none(given: Any, shown: str) -> None:
    npu = only(entry_of(accelerator("npu", quantised=lambda target: given)))
    with pytest.raises(PluginError) as caught:
        _ = npu.quantised
    assert caught.value.what == f"plugin uma-npu 1.0 gave {shown} for the quantised form of npu"


def test_a_quantised_form_is_asked_of_the_kind() -> None:
    form = QuantisedForm(symmetric=True)
    assert only(entry_of(accelerator("npu", quantised=form))).quantised == form
    assert only(entry_of(accelerator("npu", quantised=lambda target: form))).quantised == form
    assert only(entry_of(accelerator("npu"))).quantised == QuantisedForm()
