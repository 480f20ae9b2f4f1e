"""What is measured: kernels of hosts, regions of libraries and of simulated devices; in time, once, and kept."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.plugins import HOST, accelerator, entry_of, module_of, taking
from tests._support.tools import skip_without

from uma.errors import ToolchainError, UsageError
from uma.hookspecs import Cost, Extern, Implementation, Routine, Runtime
from uma.lowering.build_targets import BuildTargets, resolve_targets
from uma.partition import Collage, CostTable, Decision
from uma.pipeline.stages import Build
from uma.plugins import PluginHost, default_host
from uma.relay import FixedPoint, Function, GlobalVar, IRModule, TensorType, Var, call, const
from uma.relay.module import func_type
from uma.tir import Buffer, Param
from uma.tuning import measurement, timing_process, with_costs

X = Var("x", TensorType((4, 8), "int8"))
MODEL = module_of(call("add", call("nn.relu", X), const(np.int8(5))))
HEADER = """\
#ifndef RELU_H
#define RELU_H
#include <stdint.h>
void relu(const int8_t *x, int8_t *y, int32_t count);
#endif
"""
SOURCE = """\
#include "relu.h"
#include <stdlib.h>

void relu(const int8_t *x, int8_t *y, int32_t count)
{{
    volatile int32_t i;

    for (i = 0; i < count; i++) y[i] = x[i] < 0 ? 0 : x[i];
    {code}
}}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("UMA_CACHE_DIR", str(folder))
    yield folder / "costs"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the process that times parts is asked to run, one word for each time."""
    found: list[str] = []
    real = timing_process.TimingProcess.ask

    def ask(self: timing_process.TimingProcess, told: dict[str, Any], limit_s: float) -> Any:
        found.append("first" if told["repeat"] == 1 else "timed")
        return real(self, told, limit_s)

    monkeypatch.setattr(timing_process.TimingProcess, "ask", ask)
    return found


DRIVER = """\
#include "uma_device.h"
#include "relu.h"

static inline int32_t relu_driven(uma_device *device, const int8_t *x, int8_t *y, int32_t count)
{
    (void)device;
    relu(x, y, count);
    return 0;
}
"""
DRIVEN = """\
#include "relu_driver.h"

const uma_driver relu_driver = {"lib", 0, 1, NULL, NULL, NULL, NULL, 0, NULL};
"""


def driven() -> Runtime:
    """The same library, behind a driver that could keep what it made."""
    sources = {
        "relu.h": HEADER,
        "relu.c": SOURCE.format(code=""),
        "relu_driver.h": "#ifndef RELU_DRIVER_H\n#define RELU_DRIVER_H\n"
        + DRIVER
        + "extern const uma_driver relu_driver;\n#endif\n",
        "relu_driver.c": DRIVEN,
    }
    routine = Routine("relu", "relu_driven({device}, {x}, {y}, {count})")
    return Runtime("relu_driver", "relu_driver.h", sources, {"sim": Implementation(is_real=True)}, routines=(routine,))


def library(
    code: str = "", version: str = "1.0", runtime: Runtime | None = None, **hooks: Callable[..., Any]
) -> PluginHost:
    """A library that computes nn.relu by a function of C, and a plain host."""

    def lowering(function: Function) -> tuple[IRModule, GlobalVar]:
        x, y = (Param(Buffer(name, X.shape, "int8"), role) for name, role in (("x", "input"), ("y", "output")))
        extern = Extern((x, y), "relu", {"count": X.tensor.size})
        var = GlobalVar("relu", func_type(extern))
        return IRModule({var: extern}), var

    sources = {"relu.h": HEADER, "relu.c": SOURCE.format(code=code)}
    routines = (Routine("relu", "relu({x}, {y}, {count})"),)
    own = runtime or Runtime(header="relu.h", sources=sources, routines=routines)
    entries = entry_of(
        accelerator("lib"),
        version=version,
        patterns=lambda: [taking("lib", "nn.relu", lower=None)],
        relay_to_runtime=lambda function: lowering(function),
        runtime=lambda: own,
        **hooks,
    )
    return PluginHost(lambda: [*entries, *entry_of(HOST)])


def decided(given: BuildTargets, module: IRModule = MODEL) -> Decision:
    made = Build("m", with_costs(given))
    made.run(module)
    assert made.placement is not None and made.placement.decision is not None
    return made.placement.decision


def costed(host: PluginHost, *targets: str, **told: dict[str, Any]) -> Decision:
    """Decided for a library and a host of whose kernels a table tells the costs."""
    ops = ("nn.relu@0", "add@1", "nn.relu@0 add@1")
    table = {"schema_version": 1, "targets": told, "costs": {f"plain: {op}": {"ns": 10**9} for op in ops}}
    return decided(resolve_targets([*(targets or ("lib",)), "plain"], host, Collage(CostTable.from_json(table))))


def prices(decision: Decision, label: str) -> dict[str, tuple[int, str, int]]:
    pool = decision.pool
    found = (offer for offer in pool.offers if offer.owner == label and not pool.is_free(offer))
    return {pool.key(one.owner, one.ops): (one.price.ns, one.price.source, one.price.launch_ns) for one in found}


class TestLibraries:
    def test_a_library_is_timed_where_it_does_not_estimate(self, asked: list[str]) -> None:
        decision = costed(library())
        ((ns, source, launch_ns),) = prices(decision, "lib").values()
        # What starts it is in the time.
        assert source == "measured" and 0 <= ns < 10**8 and launch_ns == 0
        assert decision.failed == () and asked == ["first", "timed"]

    def test_a_real_device_is_timed_as_a_library_is(self, asked: list[str]) -> None:
        ((ns, source, launch_ns),) = prices(costed(library(runtime=driven())), "lib").values()
        assert source == "measured" and 0 < ns < 10**8 and launch_ns == 0 and asked == ["first", "timed"]
        asked.clear()
        assert prices(costed(library(runtime=driven())), "lib") and asked == []

    def test_a_table_says_who_is_asked(self, asked: list[str]) -> None:
        host = library(estimate_cost=lambda: Cost(seconds=7e-9))
        assert prices(costed(host), "lib") == {"lib: nn.relu@0": (7, "estimated", 2000)}
        assert asked == []
        ((_, source, _),) = prices(costed(host, lib={"source": "measured"}), "lib").values()
        assert source == "measured" and asked == ["first", "timed"]
        with pytest.raises(UsageError, match="the source of 'lib' is 'guessed'"):
            costed(host, lib={"source": "guessed"})

    @pytest.mark.soak
    def test_what_changed_is_measured_and_nothing_else(self, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        def count(host: PluginHost, *targets: str) -> int:
            asked.clear()
            costed(host, *targets)
            return len(asked)

        assert count(library()) == 2
        assert count(library()) == 0
        assert count(library(version="1.1")) == 2
        assert count(library(), "lib -launch_ns=5") == 2
        assert count(library("count++;")) == 2
        monkeypatch.setattr(measurement, "host_cpu_id", lambda: "another CPU")
        assert count(library()) == 2
        monkeypatch.undo()

    def test_another_compiler_measures_anew(self, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        costed(library())
        real = measurement.find_compiler

        class Other:
            identity = "another compiler"

        monkeypatch.setattr(measurement, "find_compiler", lambda *given: real(*given) and Other)
        asked.clear()
        costed(library())
        assert asked == ["first", "timed"]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("for (;;) i = count;", "it did not end within 1.5 s"),
        ("abort();", "it crashed: SIGABRT (6)"),
        ("exit(3);", "it ended the process with exit status 3"),
        ("no C", "plugin uma-lib 1.0 has C that does not compile: relu.c"),
    ],
    ids=["hangs", "crashes", "exits", "compiles not"],
)
def test_a_region_that_cannot_be_run(code: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_process, "LIMIT_S", 1.5 if "for" in code else 60.0)
    decision = costed(library(code))
    assert prices(decision, "lib") == {}
    assert {offer.owner for offer in decision.chosen} == {"plain"}
    (said,) = decision.failed
    assert said.startswith("lib: nn.relu@0 could not be measured: ")
    assert why in said
    # Where it is estimated as well, that counts, and it is said all the same.
    guessed = library(code, estimate_cost=lambda: Cost(seconds=7e-9))
    decision = costed(guessed, lib={"source": "measured"})
    assert prices(decision, "lib") == {"lib: nn.relu@0": (7, "estimated", 2000)}
    assert len(decision.failed) == 1


def test_a_kernel_of_a_host_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_process, "LIMIT_S", 0.0)
    with pytest.raises(measurement.Unmeasured, match="it did not end within 0 s"):
        decided(resolve_targets("c", default_host(), Collage()))


def test_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    process = timing_process.TimingProcess()
    monkeypatch.setattr("sys.executable", "")
    with pytest.raises(ToolchainError, match="there is no Python to time parts with"):
        process.ask({}, 1.0)
    monkeypatch.setattr("sys.executable", "/none/such")
    with pytest.raises(ToolchainError, match="cannot start a process: No such file"):
        process.ask({}, 1.0)
    monkeypatch.setattr("sys.executable", shutil.which("false"))
    with pytest.raises(ToolchainError, match="does not begin: it ended the process with exit status 1"):
        process.ask({}, 1.0)


def _measures(queue: Any) -> None:
    """In another process: measure, and tell how often something was timed."""
    found: list[int] = []
    real = timing_process.TimingProcess.ask

    def ask(self: timing_process.TimingProcess, told: dict[str, Any], limit_s: float) -> Any:
        found.append(told["repeat"])
        return real(self, told, limit_s)

    timing_process.TimingProcess.ask = ask  # type: ignore[method-assign]  # to count: the process is this test's own
    with measurement.measuring():
        ns = measurement.ran_on(MODEL, resolve_targets("c", default_host()).host).ns
    queue.put((ns, sum(repeat > 1 for repeat in found)))


@pytest.mark.soak
def test_several_processes_time_a_kernel_once(cache: Path) -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=_measures, args=(queue,)) for _ in range(4)]
    for process in processes:
        process.start()
    found = [queue.get(timeout=300) for _ in processes]
    for process in processes:
        process.join()
    assert len({ns for ns, _ in found}) == 1
    assert sum(times for _, times in found) == 1
    assert len(list(cache.glob("*.json"))) == 1


class TestDevices:
    """The examples' simulators count cycles, and their plugins estimate the same."""

    rng = np.random.default_rng(0)
    IN = Var("x", TensorType((1, 16), "int8"))
    SUMS = call("qnn.dense", IN, const(rng.integers(-127, 128, (8, 16), np.int8)))
    DENSE = module_of(
        call("qnn.requantize", SUMS, scale=FixedPoint((1518500250,) * 8, (-9,) * 8, "double"), dtype="int8")
    )

    def prices(self, target: str, **told: Any) -> dict[str, tuple[int, str, int]]:
        costs = {
            f"c: {op}": {"ns": 10**9} for op in ("qnn.dense@0", "qnn.requantize@1", "qnn.dense@0 qnn.requantize@1")
        }
        table = CostTable.from_json({"schema_version": 1, "targets": {"matrix_unit": told}, "costs": costs})
        return prices(
            decided(resolve_targets([target, "c"], default_host(), Collage(table)), self.DENSE), "matrix_unit"
        )

    @pytest.mark.soak
    def test_cycles_of_a_simulator(self, asked: list[str]) -> None:
        estimated = self.prices("matrix_unit")
        measured = self.prices("matrix_unit", source="measured")
        assert estimated and asked == ["first"] * len(measured)
        assert {name: ns for name, (ns, _, _) in measured.items()} == {
            name: ns for name, (ns, _, _) in estimated.items()
        }
        assert {(source, launch_ns) for _, source, launch_ns in measured.values()} == {("measured", 2000)}
        # At half the clock, in memory of another machine: the simulator is run all the same.
        slow = self.prices("matrix_unit -impl=mmio -base=0x40000000 -clock_hz=50M", source="measured")
        assert {name: ns for name, (ns, _, _) in slow.items()} == {n: 2 * ns for n, (ns, _, _) in estimated.items()}


@pytest.mark.soak
def test_instructions_of_a_host_in_an_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without("arm-none-eabi-gcc", "qemu-system-arm")

    def ns(clock: str) -> float:
        given = resolve_targets(f"c -mcpu=cortex-m4f -runner=qemu-mps2-an386 -clock_hz={clock}", default_host())
        return measurement.ran_on(MODEL, given.host).ns

    assert ns("100M") == pytest.approx(2 * ns("200M")) and ns("100M") > 100


def test_another_machine_by_a_factor_of_this_one() -> None:
    def decision(**told: float) -> Decision:
        table = CostTable.from_json({"schema_version": 1, "targets": {"c": told}})
        return decided(resolve_targets("c -mcpu=cortex-m7", default_host(), Collage(table)))

    assert {offer.price.source for offer in decision(factor=1000.0).chosen} == {"measured"}
    with pytest.raises(UsageError, match="and it cannot be measured"):
        decision()
