"""A report as one page of HTML that needs nothing else: no network, no other file, and no script but its own.

What the model's names hold is text on it. The page forbids its browser to load anything, and to run any other script
than the one that sorts and filters its tables, which is known by its digest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from importlib import resources
from xml.etree.ElementTree import Element

from ...support.formatting import format_percent
from ...support.html import Section, element, page, row, style_sheet
from ...targets.values import shorten
from ..memory import point_cells
from .charts import Bar, axis, bar_chart, lane_cell, lanes_rem, memory_map
from .components import duration, filter_box, hundredths, name_of, number, size_tile, table, tile
from .lanes import lanes
from .records import LayerRow, MemoryRow, ReportRecord, StepRow, TargetRow
from .summary import bytes_told

__all__ = ["as_page"]

_COLOURS = 7
_LINKED = 250
"""Bars up to so many are links to the rows of their layers."""


def as_page(report: ReportRecord) -> str:
    """The text of the file."""
    return _Page(report).whole()


@functools.cache
def _own_file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


class _Page:
    def __init__(self, report: ReportRecord) -> None:
        self.report = report
        hosts = [target.label for target in report.targets if target.is_host]
        away = [target.label for target in report.targets if not target.is_host]
        self.colour_of: Mapping[str, str] = {
            **{label: f"c{1 + at % _COLOURS}" for at, label in enumerate(away)},
            **{
                label: "c0" if not at and away else f"c{1 + (len(away) + at) % _COLOURS}"
                for at, label in enumerate(hosts)
            },
        }

    def whole(self) -> str:
        sections = (
            Section("memory", "Memory", self._memory()),
            Section("layers", "Layers", self._bars()),
            Section("graph", "Graph", self._graph()),
            Section("steps", "Steps", self._steps()),
            Section("build", "Targets and versions", self._build()),
        )
        version = self.report.uma_version
        footer = f"Made by UMA {version}. The same as data: uma report with -o report.json, .csv or .md."
        css, script = _own_file("page.css"), _own_file("page.js")
        return page(f"{self.report.name}: UMA report", css, self._head(), sections, footer, script)

    def _head(self) -> list[Element]:
        report = self.report
        targets = ", ".join(target.target for target in report.targets)
        lead = [element("li", None, sentence) for sentence in report.summary]
        return [
            element("p", {"class": "kicker"}, "UMA report · ", shorten(targets, 120)),
            element("h1", None, name_of(report.name)),
            element("ul", {"class": "lead"}, *lead),
            element("div", {"class": "tiles"}, *self._tiles()),
        ]

    def _tiles(self) -> list[Element]:
        report, size = self.report, self.report.footprint
        rom = {"weights": size.constant_bytes, "code": size.code_bytes}
        ram = {"arena": size.arena_bytes, "inputs": size.input_bytes, "outputs": size.output_bytes}
        ram |= {"state": size.state_bytes} if size.state_bytes else {}
        tiles = [
            size_tile("ROM", report.rom_bytes, rom),
            size_tile("RAM", report.ram_bytes, {**ram, "stack": size.stack_bytes}),
        ]
        has = {target.label: target.macs for target in report.targets if target.macs}
        if report.macs:
            legend = [(self._swatch(label), label, format_percent(macs / report.macs)) for label, macs in has.items()]
            tiles.append(tile("multiply-accumulates", f"{report.macs:,}", self._stack(has), legend))
        cycles = [target for target in report.targets if target.cycles]
        times = [step.time_us for step in report.steps if step.time_us is not None]
        rows: list[tuple[Element | None, str, str]] = [
            (self._swatch(one.label), one.label, "counted" if one.counted else "estimated") for one in cycles
        ]
        if times:
            rows.append((None, f"hosts, median of {report.profiled} runs", duration(sum(times))))
        if cycles:
            tiles.append(tile("cycles of accelerators", f"{sum(one.cycles or 0 for one in cycles):,.0f}", None, rows))
        elif times:
            tiles.append(
                tile("time on hosts", duration(sum(times)), None, [(None, f"median of {report.profiled} runs", "")])
            )
        return tiles

    def _swatch(self, label: str) -> Element:
        return element("i", {"class": f"swatch fill {self.colour_of.get(label, 'c0')}"})

    def _stack(self, parts: Mapping[str, int]) -> Element:
        whole = sum(parts.values()) or 1
        pieces = [
            element(
                "i", {"class": f"fill {self.colour_of.get(label, 'c0')}", "style": f"width:{100 * one / whole:.2f}%"}
            )
            for label, one in parts.items()
        ]
        return element("div", {"class": "stack", "aria-hidden": "true"}, *pieces)

    def _legend(self) -> Element | None:
        if len(self.report.targets) == 1:
            return None
        shown = [element("span", None, self._swatch(one.label), one.label) for one in self.report.targets]
        return element("div", {"class": "legend"}, *shown)

    def _memory(self) -> list[Element | None]:
        report = self.report
        about = (
            "Each box is a buffer: how high it stands is where it is in memory, its width the steps in which it holds "
            "something. Its colour is the target that writes it; striped ones are workspaces. The marked step is the "
            "fullest, and the buffers in full colour are those that set the peak."
        )
        if not report.memories:
            return [element("p", {"class": "about"}, "A run works in no memory but its inputs and outputs.")]
        parts: list[Element | None] = [element("p", {"class": "about"}, about), self._legend()]
        for memory in sorted(report.memories, key=lambda memory: "." in memory.pool):  # the host's come first
            parts += self._one_memory(memory)
        return parts + self._frontier()

    def _frontier(self) -> list[Element | None]:
        """The ways to run layers row by row: bars of RAM, and a table."""
        rows = self.report.rows
        if rows is None or len(rows.points) < 2:
            return []
        cells = point_cells(rows)
        bars = [
            Bar(point.ram_bytes, f"{cell[2]} added", "c1" if at == rows.chosen else "c0", "point", at)
            for at, (point, cell) in enumerate(zip(rows.points, cells, strict=True))
        ]
        about = (
            "Each bar is a way to run layers row by row, and how much RAM it takes without the stack; below it what it "
            "adds to the instructions. The one in another colour was built."
        )
        said = f"{len(bars)} ways to run layers row by row, from {cells[0][0]} to {cells[-1][0]} bytes of RAM"
        lines = [
            row(
                *(element("td", {"class": "num"}, one) for one in cell[:3]),
                *(element("td", None, one) for one in cell[3:]),
            )
            for cell in cells
        ]
        return [
            element("h3", None, "Less RAM, row by row"),
            element("p", {"class": "about"}, about),
            bar_chart(bars, said, lambda value: bytes_told(round(value)), linked=False),
            axis([cell[2] for cell in cells], "added "),
            table("frontier", ["RAM", "arena", "added", "layers by rows", "built"], lines, numbers=(0, 1, 2)),
        ]

    def _one_memory(self, memory: MemoryRow) -> list[Element]:
        report = self.report
        step = report.steps[memory.peak_step]
        capacity = "" if memory.capacity_bytes is None else f" of {memory.capacity_bytes:,}"
        alive = sorted((one for one in memory.placed if one.at_peak), key=lambda one: -one.bytes)
        rows = [
            row(
                element("td", {"class": "name"}, self._swatch(one.target), name_of(one.layer)),
                one.role,
                number(one.offset),
                number(one.bytes),
                element("td", {"class": "num"}, f"{one.first_step} to {one.last_step}"),
            )
            for one in alive
        ]
        between = memory.bytes - memory.peak_bytes
        gap = f"; {between:,} bytes more lie between buffers" if between else ""
        return [
            element("h3", None, f"{memory.pool}: {memory.bytes:,}{capacity} bytes"),
            memory_map(memory, len(report.steps), self.colour_of),
            element(
                "p",
                {"class": "peakline"},
                element("b", None, f"Peak at step {memory.peak_step}"),
                f", {bytes_told(memory.peak_bytes)}, in ",
                name_of(step.title),
                f"{gap}. What is alive there:",
            ),
            table(f"alive-{memory.pool}", ["written by", "role", "offset", "bytes", "steps"], rows, numbers=(2, 3, 4)),
        ]

    def _bars(self) -> list[Element | None]:
        charts = self._charts()
        key = {name: f"by-{at}" for at, name in enumerate(charts)}
        choices = [
            element(
                "label",
                None,
                element(
                    "input", {"type": "radio", "name": "by", "id": key[name], "checked": "checked" if at == 0 else None}
                ),
                name,
            )
            for at, name in enumerate(charts)
        ]
        rules = "".join(f"section:has(#{one}:checked) .{one}{{display:block}}" for one in key.values())
        style = style_sheet(rules)
        drawn = []
        for name, (bars, write) in charts.items():
            highest = max(bars, key=lambda bar: bar.value)
            said = f"{name}: {len(bars)} bars; the highest is {shorten(highest.label, 80)} with {write(highest.value)}"
            chart = bar_chart(bars, said, write, linked=len(bars) <= _LINKED)
            below = axis([str(bar.number) for bar in bars], f"{bars[0].row} ")
            top = element(
                "p", {"class": "about"}, f"{name}; highest: ", name_of(highest.label, 80), f", {write(highest.value)}"
            )
            drawn.append(element("div", {"class": f"chart {key[name]}"}, top, chart, below))
        caption = "A bar for each layer in the order of the run, or for each step where time and cycles are meant."
        fields = element("fieldset", {"class": "choice"}, element("legend", None, "Bars show"), *choices)
        return [style, element("p", {"class": "about"}, caption), fields, self._legend(), *drawn]

    def _charts(self) -> dict[str, tuple[list[Bar], Callable[[float], str]]]:
        """The charts that have something to show, by what their bars are."""
        report = self.report
        layers = [layer for layer in report.layers if not layer.free]

        def of_layers(value: Callable[[LayerRow], float]) -> list[Bar]:
            return [
                Bar(value(one), _title(one), self.colour_of.get(one.targets[0], "c0"), "layer", one.number)
                for one in layers
            ]

        charts: dict[str, tuple[list[Bar], Callable[[float], str]]] = {
            "multiply-accumulates": (of_layers(lambda one: one.macs), _whole),
            "weight bytes": (of_layers(lambda one: one.weight_bytes), _whole),
            "output bytes": (of_layers(lambda one: one.output_bytes), _whole),
            "microseconds": (self._of_steps(lambda one: one.time_us), lambda value: f"{value:,.2f} us"),
            "cycles": (self._of_steps(lambda one: one.cycles, parts=True), _whole),
        }
        return {name: chart for name, chart in charts.items() if any(bar.value for bar in chart[0])}

    def _of_steps(self, value: Callable[[StepRow], float | None], *, parts: bool = False) -> list[Bar]:
        bars = []
        for step in self.report.steps:
            colour = self.colour_of.get(step.target, "c0")
            if parts and step.parts:
                bars += [Bar(part.cycles, part.layer, colour, "step", step.number) for part in step.parts]
            elif (amount := value(step)) is not None:
                bars.append(Bar(amount, step.title, colour, "step", step.number))
        return bars

    def _graph(self) -> list[Element | None]:
        report = self.report
        rows = lanes([layer.inputs for layer in report.layers])
        width = max((max(row.lane, *row.passing, *row.above, 0) for row in rows), default=0) + 1
        has_time = any(layer.time_us is not None for layer in report.layers)
        has_cycles = any(layer.cycles is not None for layer in report.layers)
        most = {
            "macs": max((one.macs for one in report.layers), default=0) or 1,
            "weights": max((one.weight_bytes for one in report.layers), default=0) or 1,
            "outputs": max((one.output_bytes for one in report.layers), default=0) or 1,
        }
        body = []
        for layer, lane_row in zip(report.layers, rows, strict=True):
            colour = self.colour_of.get(layer.targets[0], "c0")
            why = [element("small", {"class": "why"}, f"not {one.target}: {one.reason}") for one in layer.why]
            cells = [
                lane_cell(lane_row, width, colour),
                element(
                    "td",
                    {"class": "name"},
                    layer.name,
                    element("small", None, name_of(", ".join(layer.names), 160)),
                    *why,
                ),
                element("td", None, *([*map(self._chip, layer.targets)] if not layer.free else ["free"])),
                number(layer.macs, None, 100 * layer.macs / most["macs"], colour),
                number(layer.weight_bytes, None, 100 * layer.weight_bytes / most["weights"], colour),
                number(layer.output_bytes, None, 100 * layer.output_bytes / most["outputs"], colour),
                element(
                    "td",
                    {"class": "mono"},
                    "" if layer.shape is None else f"{layer.dtype or ''}[{'×'.join(map(str, layer.shape))}]",
                ),
            ]
            cells += [number(layer.time_us, hundredths(layer.time_us))] if has_time else []
            cells += (
                [number(layer.cycles, None if layer.cycles is None else f"{layer.cycles:,.0f}")] if has_cycles else []
            )
            body.append(row(*cells, key=f"layer-{layer.number}"))
        head = ["", "layer", "on", "MACs", "weight bytes", "output bytes", "output"]
        head += ["us"] * has_time + ["cycles"] * has_cycles
        widths = [lanes_rem(width), 16, 8, 8, 8, 8, 11] + [7] * (has_time + has_cycles)
        about = (
            "From top to bottom as it is computed; lines lead from a layer to those that take its values, and colours "
            "say who runs it. Below a layer stands why a target that comes first did not take it."
        )
        if report.of_artifact:
            about = (
                "The calls of the artifact, from top to bottom as they run; lines lead from a call to those that take "
                "its values, and colours say who runs it. An artifact does not keep why: report the model's file."
            )
        parts: list[Element | None] = [element("p", {"class": "about"}, about), self._legend()]
        parts += self._reasons()
        parts.append(filter_box("layer-table", "layers"))
        parts.append(table("layer-table", head, body, numbers=(3, 4, 5, 7, 8), widths=widths))
        return parts

    def _reasons(self) -> list[Element]:
        rows = [
            row(
                element("td", {"class": "not"}, "not ", self._chip(one.target)),
                one.reason,
                number(one.layers),
                number(one.macs),
            )
            for one in self.report.reasons
        ]
        if not rows:
            return []
        title = element("h3", None, "Why layers are not where they could be, the costliest reason first")
        rest = element("h3", None, "Layer by layer")
        return [title, table("reason-table", ["target", "reason", "layers", "MACs"], rows, numbers=(2, 3)), rest]

    def _chip(self, label: str) -> Element:
        return element("span", {"class": f"chip {self.colour_of.get(label, 'c0')}"}, label)

    def _steps(self) -> list[Element]:
        report = self.report
        has_time = any(step.time_us is not None for step in report.steps)
        has_cycles = any(step.cycles is not None for step in report.steps)
        has_turns = any(step.times not in (None, 1) for step in report.steps)
        rows = []
        for step in report.steps:
            kernel, names = element("code", None, step.kernel), name_of(", ".join(step.layers), 160)
            cells = [
                number(step.number),
                element("td", {"class": "name"}, step.title, element("small", None, kernel, " ", names)),
                element("td", None, self._chip(step.target)),
                number(step.macs),
                number(step.bytes),
                number(step.constant_bytes),
            ]
            cells += [number(step.time_us, hundredths(step.time_us))] if has_time else []
            cells += [number(step.cycles)] if has_cycles else []
            cells += [number(step.times)] if has_turns else []
            rows.append(row(*cells, key=f"step-{step.number}"))
        head = ["step", "layer", "on", "MACs", "bytes", "constants"] + ["us"] * has_time + ["cycles"] * has_cycles
        head += ["times"] * has_turns
        widths = [5, 20, 8, 8, 8, 8] + [7] * (has_time + has_cycles + has_turns)
        about = "What one run does, call by call: a call has the layers that were fused into it, or a whole region."
        filter_ = filter_box("step-table", "steps")
        return [
            element("p", {"class": "about"}, about),
            filter_,
            table("step-table", head, rows, numbers=(0, 3, 4, 5, 6, 7, 8), widths=widths),
        ]

    def _build(self) -> list[Element]:
        report = self.report
        rows = [self._target_row(target) for target in report.targets]
        tensors = [
            row(
                element("td", {"class": "name"}, name_of(one.name)),
                one.role,
                element("td", {"class": "mono"}, f"{one.dtype}[{'×'.join(map(str, one.shape))}]"),
                element("td", {"class": "mono"}, one.quantisation or ""),
            )
            for one in report.tensors
        ]
        parts = [table("target-table", ["label", "target", "runs", "ops", "MACs", "cycles"], rows, numbers=(3, 4, 5))]
        if report.regions:
            regions = [
                row(
                    element("code", None, one.name),
                    self._chip(one.target),
                    element("td", {"class": "name"}, name_of(", ".join(one.layers), 200)),
                    number(one.cycles, None if one.cycles is None else f"{one.cycles:,.0f}"),
                    number(one.counted_cycles),
                )
                for one in report.regions
            ]
            head = ["region", "on", "layers", "cycles estimated", "cycles counted"]
            parts += [element("h3", None, "Regions"), table("region-table", head, regions, numbers=(3, 4))]
        parts.append(element("h3", None, "Inputs and outputs"))
        parts.append(table("tensor-table", ["name", "role", "type", "real value"], tensors))
        versions = {"uma-core": report.uma_version, **report.plugins}
        listed = [element("li", None, f"{name} {version}") for name, version in versions.items()]
        parts += [element("h3", None, "Versions"), element("ul", {"class": "plain"}, *listed)]
        if report.notes:
            notes = [element("li", None, note) for note in report.notes]
            parts += [element("h3", None, "What was decided"), element("ul", {"class": "plain"}, *notes)]
        return parts

    def _target_row(self, target: TargetRow) -> Element:
        cycles = None if target.cycles is None else f"{target.cycles:,.0f}{'' if target.counted else ' estimated'}"
        return row(
            self._chip(target.label),
            element("td", {"class": "mono"}, target.target),
            "as host" if target.is_host else "as accelerator",
            number(target.ops),
            number(target.macs),
            number(target.cycles, cycles),
        )


def _title(layer: LayerRow) -> str:
    return f"{layer.name} [{', '.join(layer.names)}]" if layer.names else layer.name


def _whole(value: float) -> str:
    return f"{value:,.0f}"
