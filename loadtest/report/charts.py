"""The charts of a report, drawn with Matplotlib from the summary of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullLocator

from loadtest.report import layout, theme
from loadtest.report.frame import Chart, Size, legend_lines
from loadtest.report.summary import Summary, nines

MOST_REPLICAS = len(theme.SERIES)
MOST_TOOLS = len(theme.SERIES)
MOST_TROUBLES = 6
SHARES = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
WORKERS_SHARE = 0.22
"""The height of the axes for workers, compared with those for replicas."""
NO_LEG_ANSWERED = "No leg was answered in this run."
FULL = 1.08
"""The height of an axis, compared with its highest value."""


@dataclass(frozen=True, slots=True)
class Band:
    """One layer of a stack: its rate in each bucket."""

    name: str
    values: Sequence[float]
    colour: theme.Colour
    hatch: str | None = None


def timeline(summary: Summary, size: Size) -> Chart:
    """Draw the calls that ended per second, by the replica of the last answer; below, the work of workers."""
    bands, workers = _bands(summary), _workers(summary)
    names = [band.name for band in (*workers, *bands)]
    chart = Chart(
        size,
        "Calls finished per second, by replica",
        seconds=summary.seconds,
        events=summary.events,
        rows=(1.0, WORKERS_SHARE) if workers else (1.0,),
        legend_lines=_legend_lines(size, names),
    )
    chart.unit(chart.axes[0], "calls per second")
    named = _stack(chart.axes[0], summary.edges, bands, 6)
    if workers:
        chart.name_row(chart.axes[1], "Legs of tasks per second, by worker")
        below = _stack(chart.axes[1], summary.edges, workers, 2)
        if size.wide:
            chart.name_at_right(chart.axes[1], below)
        else:
            named = [*below, *named]
    _name(chart, chart.axes[0], named)
    return chart


def _stack(
    axes: Axes, limits: Sequence[float], bands: Sequence[Band], most: int
) -> list[tuple[float, str, theme.Colour]]:
    """Draw bands on top of each other, and return where their names belong."""
    base = [0.0] * (len(limits) - 1)
    middles: list[float] = []
    for band in bands:
        top = [below + value for below, value in zip(base, band.values, strict=True)]
        axes.fill_between(
            limits,
            [*base, base[-1]],
            [*top, top[-1]],
            step="post",
            facecolor=band.colour.light,
            edgecolor=theme.GROUND.light,
            linewidth=0.4,
            hatch=band.hatch,
        )
        middles.append((fmean(base) + fmean(top)) / 2)
        base = top
    highest = max(base) * FULL or 1.0
    _count_axis(axes, highest, most)
    return [(middle / highest, band.name, band.colour) for band, middle in zip(bands, middles, strict=True)]


def _workers(summary: Summary) -> list[Band]:
    """Return the legs of workers, in colours that no replica has unless there are many."""
    colours = list(reversed(theme.SERIES))
    busiest = sorted(summary.worker_legs, key=lambda name: -sum(summary.worker_legs[name]))[: len(colours)]
    shown = [name for name in summary.worker_legs if name in busiest]
    return [Band(name, summary.worker_legs[name], colour) for name, colour in zip(shown, colours, strict=False)]


def _bands(summary: Summary) -> list[Band]:
    """Return the calls that ended, from the bottom of the stack to its top."""
    busiest = sorted(summary.finished, key=lambda replica: -sum(summary.finished[replica]))[:MOST_REPLICAS]
    shown = [replica for replica in summary.finished if replica in busiest]
    found = [Band(name, summary.finished[name], colour) for name, colour in zip(shown, theme.SERIES, strict=False)]
    others = [values for replica, values in summary.finished.items() if replica not in busiest]
    if others:
        found.append(Band(f"{len(others)} others", [sum(values) for values in zip(*others, strict=True)], theme.OTHER))
    for outcome, colour, hatch in (("refused", theme.MUTED, "////"), ("failed", theme.BAD, None)):
        if outcome in summary.lost:
            found.append(Band(outcome, summary.lost[outcome], colour, hatch))
    return found


def latency(summary: Summary, size: Size) -> Chart:
    """Draw how long legs took over time, as percentiles."""
    chart = Chart(
        size,
        f"Latency of a leg over time, {summary.user} users" if summary.user else "Latency of a leg over time",
        seconds=summary.seconds,
        events=summary.events,
        legend_lines=_legend_lines(size, list(summary.latencies)),
    )
    axes = chart.axes[0]
    middles = [(begin + end) / 2 for begin, end in pairwise(summary.edges)]
    values = [value for line in summary.latencies.values() for value in line if not math.isnan(value)]
    low, high = _latency_axis(axes, values, 7)
    names: list[tuple[float, str, theme.Colour]] = []
    for (name, line), colour in zip(summary.latencies.items(), theme.PERCENTILES, strict=True):
        known = [value for value in line if not math.isnan(value)]
        marker = "o" if len(known) < 40 else None
        axes.plot(middles, line, color=colour.light, linewidth=1.8, marker=marker, markersize=3)
        if known:
            names.append((_share(known[-1], low, high), name, colour))
    _name(chart, axes, names)
    return chart


def distribution(summary: Summary, size: Size) -> Chart:
    """Draw how long legs took by tool: the latency that each share of them did not exceed, up to the slowest."""
    busiest = sorted(summary.tools, key=lambda tool: (-summary.tools[tool].count, tool))[:MOST_TOOLS]
    chart = Chart(size, "Latency of a leg by tool", legend_lines=_legend_lines(size, busiest) + 1)
    axes = chart.axes[0]
    curves = {tool: summary.tools[tool] for tool in sorted(busiest)}
    values = [value for curve in curves.values() for value in curve.seconds]
    low, high = _latency_axis(axes, values, 7)
    furthest = max([1.0, *(curve.nines[-1] for curve in curves.values())])
    ticks = [nines(share) for share in SHARES if nines(share) <= furthest]
    axes.set_xlim(nines(SHARES[0]), furthest)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{100 * share:g} %" for share in SHARES]))
    axes.set_xlabel("share of legs that took no longer", color=theme.MUTED.light, size=size.font)
    names: list[tuple[float, str, theme.Colour]] = []
    for (tool, curve), colour in zip(curves.items(), theme.SERIES, strict=False):
        axes.plot(curve.nines, curve.seconds, color=colour.light, linewidth=1.8, drawstyle="steps-pre")
        axes.plot(curve.nines[-1], curve.seconds[-1], "o", color=colour.light, markersize=4, clip_on=False)
        names.append((_share(curve.seconds[-1], low, high), tool, colour))
    _name(chart, axes, sorted(names, key=lambda name: name[0]))
    return chart


def refusals(summary: Summary, size: Size) -> Chart:
    """Draw the legs without a plain answer: sheds, refusals, failures and wrong answers, one row each."""
    shown = sorted(summary.troubles, key=lambda name: (-summary.trouble_counts[name], name))[:MOST_TROUBLES]
    chart = Chart(
        size,
        "Sheds, refusals and failures: legs per second",
        seconds=summary.seconds,
        events=summary.events,
        rows=[1.0] * len(shown),
        titled=True,
    )
    for axes, name in zip(chart.axes, shown, strict=False):
        values, count = summary.troubles[name], summary.trouble_counts[name]
        colour = theme.BAD if name.startswith(("failed", "wrong")) else theme.SERIES[name.startswith("refused")]
        axes.fill_between(summary.edges, [*values, values[-1]], step="post", facecolor=colour.light, linewidth=0)
        _count_axis(axes, max(values) * FULL, 2)
        chart.name_row(axes, f"{name}: {count:,}")
    return chart


@dataclass(frozen=True, slots=True)
class Drawing:
    """One chart of the report.

    Attributes:
        caption: what it shows, and how to read it.
        is_empty: whether there is nothing to draw.
        otherwise: the sentence that replaces an empty chart.
    """

    caption: str
    draw: Callable[[Summary, Size], Chart]
    is_empty: Callable[[Summary], bool]
    otherwise: str


CHARTS = {
    "timeline": Drawing(
        "Finished calls, by the replica that gave the last answer. Calls that failed or were refused to the end "
        "are on top. Below, if there are workers: the legs of tasks that each of them ran. Dashed lines mark changes "
        "to the deployment.",
        timeline,
        lambda summary: not summary.finished and not summary.lost,
        "No call ended in this run.",
    ),
    "latency": Drawing(
        "How long answered legs took, for the kind of user with the most of them. Half took no longer than p50, all "
        "but 10 % no longer than p90, all but 1 % no longer than p99. Refusals are left out, as they are quick. The "
        "scale is logarithmic.",
        latency,
        lambda summary: not summary.tools,
        NO_LEG_ANSWERED,
    ),
    "refusals": Drawing(
        "Legs without a plain answer. Shedding a leg loses nothing: another replica continues the call. Each row has "
        "its own scale; the number is the total of the whole run.",
        refusals,
        lambda summary: not summary.troubles,
        "No leg was handed on or refused, and none failed.",
    ),
    "distribution": Drawing(
        "How long the answered legs of all users took, by tool, from the median to the slowest. The scale is "
        "logarithmic.",
        distribution,
        lambda summary: not summary.tools,
        NO_LEG_ANSWERED,
    ),
}
"""The charts by the names of their files, in the order in which they are shown."""


def _share(value: float, low: float, high: float) -> float:
    """Return how high a value lies on a logarithmic axis: 0 at its bottom, 1 at its top."""
    return math.log(value / low) / math.log(high / low) if value > 0 else 0.0


def _count_axis(axes: Axes, highest: float, most: int) -> None:
    axes.set_ylim(0, highest)
    axes.yaxis.set_major_locator(MaxNLocator(most, min_n_ticks=1))


def _latency_axis(axes: Axes, values: Sequence[float], most: int) -> tuple[float, float]:
    """Make the vertical axis a logarithmic one of latencies, and return its ends."""
    positive = [value for value in values if value > 0] or [0.001, 0.1]
    low, high = min(positive) / 1.3, max(positive) * 1.3
    while not layout.latency_ticks(low, high, most)[1:]:
        low, high = low / 1.5, high * 1.5
    ticks = layout.latency_ticks(low, high, most)
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FixedFormatter([layout.duration(tick) for tick in ticks]))
    return low, high


def _legend_lines(size: Size, names: Sequence[str]) -> int:
    """Return how many lines of legend to keep free below the axes: none where names are next to them."""
    return 0 if size.wide else legend_lines(names)


def _name(chart: Chart, axes: Axes, names: Sequence[tuple[float, str, theme.Colour]]) -> None:
    """Write the names: next to the axes where there is room, else below them."""
    if chart.size.wide:
        chart.name_at_right(axes, names)
    else:
        chart.name_below(list(reversed(names)))
