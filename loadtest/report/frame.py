"""The frame that all charts over time share: sizes, axes, the marks of events."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from loadtest.rawdata import Event
from loadtest.report import layout, theme

DPI = 100
"""Dots an inch of the PNG files: 12 inches make 1200 dots."""
POINTS = 72
"""Points an inch, which text is measured in."""
MOST_LANES = 7
LONGEST_TEXT = 80
KEY_COLUMNS = 3
MOST_KEYS = 18


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a picture in inches, and of its text in points. Text above and below makes it higher.

    Attributes:
        plot: the height of the axes, without the text above and below.
        left: the margin with the numbers of the vertical axis.
        right: the margin with the names of the curves; a narrow picture has a legend below instead.
        ticks: the most times that the time axis names, besides 0.
        wide: whether there is room for names next to the curves.
    """

    width: float
    plot: float
    left: float
    right: float
    font: float
    ticks: int
    wide: bool


WIDE = Size(width=12, plot=3.9, left=0.75, right=1.9, font=9.5, ticks=12, wide=True)
NARROW = Size(width=4.6, plot=3.0, left=0.62, right=0.2, font=9, ticks=5, wide=False)
LINE = 0.22
"""The height of a line of text, in inches."""
TITLE, AXIS = 0.5, 0.45
"""The heights of the title, and of the times below the lowest axes."""
LONGEST_LABEL = 3.5
"""The most room that an event's label takes, in inches."""
SAME_PLACE = 0.03
"""The distance of marks that look like one, in inches."""
BOLD, TITLE_SCALE = 1.15, 1.15
"""The factors by which bold text is wider, and a title larger."""


class Chart:
    """A picture with a title, one or more axes below each other, and marks of events through all of them.

    Args:
        seconds: how long the run took; `None` for a chart that is not over time.
        events: the events to mark, in order.
        rows: the axes from the top to the bottom, by their share of the height.
        titled: whether the axes have titles.
        legend_lines: how many lines of text the legend below takes.
    """

    def __init__(
        self,
        size: Size,
        title: str,
        *,
        seconds: float | None = None,
        events: Sequence[Event] = (),
        rows: Sequence[float] = (1.0,),
        titled: bool = False,
        legend_lines: int = 0,
    ) -> None:
        self.size = size
        self._seconds = seconds
        places = [self._place(event) for event in events]
        labels = self._labels(places, [event.what for event in events])
        lanes = layout.lanes([layout.Span(x, x + self._width_of(text) + 0.15) for x, text in labels])
        flagged = size.wide and max(lanes, default=0) < MOST_LANES
        key = [] if flagged or not size.wide else _key(events, self._seconds or 0.0)
        above = TITLE + titled * LINE + (max(lanes, default=-1) + 1 if flagged else bool(events)) * LINE
        below = AXIS + (legend_lines + -(-len(key) // KEY_COLUMNS)) * LINE
        self._height = above + size.plot + below
        self._figure = Figure(figsize=(size.width, self._height), dpi=DPI, facecolor=theme.GROUND.light)
        self.axes = self._add_axes(rows, below)
        title = self._fitted(title, (size.width - 0.24) / BOLD / TITLE_SCALE)
        self._text(0.12, self._height - 0.12, title, va="top", weight="bold", size=size.font * TITLE_SCALE)
        events_from = below + size.plot + titled * LINE
        if flagged:
            self._draw_flags(labels, lanes, events_from)
        elif events:
            self._draw_badges(places, events_from)
        self._draw_key(key)

    def png(self) -> bytes:
        """Return the picture as a PNG, on a light background."""
        return self._saved("png")

    def svg(self) -> str:
        """Return the picture as an SVG that needs no fonts and follows the reader's light or dark mode."""
        return theme.follow_reader(self._saved("svg").decode())

    def _saved(self, form: str) -> bytes:
        with io.BytesIO() as stream, rc_context({"svg.fonttype": "path", "svg.hashsalt": "", "hatch.linewidth": 0.8}):
            nothing = dict.fromkeys(("Date", "Creator", "Format", "Type")) if form == "svg" else {"Software": None}
            self._figure.savefig(stream, format=form, metadata=nothing)
            return stream.getvalue()

    def name_at_right(self, axes: Axes, names: Sequence[tuple[float, str, theme.Colour]]) -> None:
        """Write names to the right of the axes, each as near as possible to the height of its curve.

        Args:
            axes: the axes.
            names: place as a share of the axes' height, text and colour, from the bottom to the top.
        """
        box = axes.get_position()
        height = box.height * self._height
        wanted = [place * height for place, _, _ in names]
        found = layout.spread(wanted, LINE, 0.08, max(height - 0.08, LINE * len(names)))
        left = self.size.width - self.size.right + 0.16
        for place, (_, text, colour) in zip(found, names, strict=True):
            at = box.y0 * self._height + place
            self._line([left, left + 0.16], [at, at], colour, width=6)
            self._text(left + 0.24, at, self._fitted(text, self.size.right - 0.5), va="center")

    def name_below(self, names: Sequence[tuple[float, str, theme.Colour]]) -> None:
        """Write a legend in columns, in the lines reserved for it below the axes."""
        columns = legend_columns([text for _, text, _ in names])
        width = (self.size.width - 0.24) / columns
        lines = -(-len(names) // columns)
        for index, (_, text, colour) in enumerate(names):
            x, y = 0.12 + index % columns * width, (lines - index // columns - 0.4) * LINE
            self._line([x, x + 0.16], [y, y], colour, width=6)
            self._text(x + 0.24, y, self._fitted(text, width - 0.3), va="center")

    def name_row(self, axes: Axes, text: str) -> None:
        """Write a title above one of several axes."""
        y = float(axes.get_position().y1) * self._height + 0.5 * LINE
        self._on_ground(self.size.left, y, self._fitted(text, self.size.width - self.size.left - 0.2), ha="left")

    def unit(self, axes: Axes, text: str) -> None:
        """Write the unit of the vertical axis."""
        axes.set_ylabel(text, color=theme.MUTED.light, size=self.size.font)

    def _fitted(self, text: str, inches: float) -> str:
        """Shorten a text in its middle to fit: names that differ often do so at their ends."""
        line = layout.squeeze(readable(text), LONGEST_TEXT)
        candidates = (layout.squeeze(line, most) for most in range(len(line), 0, -1))
        return next((line for line in candidates if self._width_of(line) <= inches), "")

    def _add_axes(self, rows: Sequence[float], below: float) -> list[Axes]:
        size, gap = self.size, LINE + 0.1
        width, top = size.width - size.left - size.right, below + size.plot
        found: list[Axes] = []
        for row, share in enumerate(rows):
            height = (size.plot - gap * (len(rows) - 1)) * share / sum(rows)
            bottom = top - height
            top = bottom - gap
            axes = self._figure.add_axes(
                (size.left / size.width, bottom / self._height, width / size.width, height / self._height)
            )
            self._style(axes, last=row == len(rows) - 1)
            found.append(axes)
        return found

    def _style(self, axes: Axes, *, last: bool) -> None:
        axes.set_facecolor(theme.GROUND.light)
        axes.set_axisbelow(True)
        axes.grid(axis="y", color=theme.GRID.light, linewidth=0.8)
        for side, spine in axes.spines.items():
            spine.set_visible(side == "bottom")
            spine.set_color(theme.MUTED.light)
        axes.tick_params(colors=theme.MUTED.light, labelsize=self.size.font - 0.5, length=3, width=0.8)
        axes.tick_params(axis="y", length=0)
        if self._seconds is not None:
            ticks = layout.time_ticks(self._seconds, self.size.ticks)
            axes.set_xlim(0, self._seconds)
            axes.xaxis.set_major_locator(FixedLocator(ticks))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FixedFormatter([layout.clock(tick, self._seconds) for tick in ticks]))
            axes.tick_params(axis="x", labelbottom=last)

    def _labels(self, places: Sequence[float], texts: Sequence[str]) -> list[tuple[float, str]]:
        """Return where the labels of events begin, and texts that fit to the right. Events at one place share one."""
        found: list[tuple[float, str]] = []
        for place, text in zip(places, texts, strict=True):
            room = min(LONGEST_LABEL, self.size.width - place - 0.2)
            label = self._fitted(text, room)
            together = f"{found[-1][1]}, {label}" if found and place - found[-1][0] < SAME_PLACE else ""
            if together and self._width_of(together) <= room:
                found[-1] = (found[-1][0], together)
            else:
                found.append((place, label))
        return found

    def _place(self, event: Event) -> float:
        assert self._seconds is not None, "only a chart over time marks events"
        inside = min(max(event.t, 0.0), self._seconds)
        return self.size.left + inside / self._seconds * (self.size.width - self.size.left - self.size.right)

    def _draw_flags(self, labels: Sequence[tuple[float, str]], lanes: Sequence[int], bottom: float) -> None:
        for (x, text), lane in zip(labels, lanes, strict=True):
            y = bottom + (lane + 0.5) * LINE
            self._pole(x, y)
            self._text(x + 0.06, y + 0.02, text, va="center")

    def _draw_badges(self, places: Sequence[float], bottom: float) -> None:
        for x in places:
            self._pole(x, bottom + 0.05)
        widest = str(len(places))
        single, ranged = (self._width_of(text) * BOLD + 0.1 for text in (widest, f"{widest}\N{EN DASH}{widest}"))
        for badge in layout.badges(places, single, ranged):
            x = min(max(badge.x, 0.2), self.size.width - 0.2)
            self._text(x, bottom + 0.5 * LINE + 0.03, badge.text, va="center", ha="center", weight="bold")

    def _draw_key(self, texts: Sequence[str]) -> None:
        column = (self.size.width - 0.3) / KEY_COLUMNS
        lines = -(-len(texts) // KEY_COLUMNS)
        for index, text in enumerate(texts):
            x, y = 0.2 + index // lines * column, (lines - index % lines - 0.4) * LINE
            self._text(x, y, self._fitted(text, column - 0.2), va="center")

    def _pole(self, x: float, top: float) -> None:
        bottom = float(self.axes[-1].get_position().y0) * self._height
        self._line([x, x], [bottom, top], theme.INK, width=0.9, dashed=True)

    def _line(
        self,
        xs: Sequence[float],
        ys: Sequence[float],
        colour: theme.Colour,
        *,
        width: float = 1.0,
        dashed: bool = False,
    ) -> None:
        line = Line2D(
            [x / self.size.width for x in xs],
            [y / self._height for y in ys],
            color=colour.light,
            linewidth=width,
            linestyle=(0, (3, 2)) if dashed else "solid",
            solid_capstyle="butt",
            transform=self._figure.transFigure,
        )
        self._figure.add_artist(line)

    def _text(self, x: float, y: float, text: str, **style: object) -> None:
        style = {"size": self.size.font, "color": theme.INK.light, "parse_math": False, **style}
        self._figure.text(x / self.size.width, y / self._height, readable(text), **style)  # type: ignore[arg-type]

    def _on_ground(self, x: float, y: float, text: str, **style: object) -> None:
        """Write a text that marks of events do not cross."""
        box = {"facecolor": theme.GROUND.light, "edgecolor": "none", "pad": 0.5}
        self._text(x, y, text, va="center", bbox=box, **style)

    def _width_of(self, text: str) -> float:
        font = FontProperties(size=self.size.font)
        width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
        return float(width) / POINTS


def _key(events: Sequence[Event], seconds: float) -> list[str]:
    """Return a list of numbered events, shortened if there are too many."""
    shown = [
        f"{number}: {event.what} ({layout.clock(round(event.t, 1), seconds)})"
        for number, event in enumerate(events[:MOST_KEYS], 1)
    ]
    return shown if len(events) <= MOST_KEYS else [*shown[:-1], f"and {len(events) - MOST_KEYS + 1} more"]


def legend_columns(names: Sequence[str]) -> int:
    """Return how many columns a legend below the axes has."""
    return 2 if max(map(len, names), default=0) > 12 else 3


def legend_lines(names: Sequence[str]) -> int:
    """Return how many lines such a legend takes."""
    return -(-len(names) // legend_columns(names))


def readable(text: str) -> str:
    """Replace characters that the font of the pictures lacks."""
    return "".join(char if ord(char) in _signs() else "\N{WHITE SQUARE}" for char in text)


@cache
def _signs() -> frozenset[int]:
    return frozenset(get_font(findfont(FontProperties())).get_charmap())
