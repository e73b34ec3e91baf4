"""Colours of the report, on light and dark backgrounds; most colour-blind people can tell them apart."""

from __future__ import annotations

from typing import NamedTuple


class Colour(NamedTuple):
    """One colour on a light and on a dark background. Its name is the CSS variable's."""

    name: str
    light: str
    dark: str


GROUND = Colour("ground", "#ffffff", "#15181d")
INK = Colour("ink", "#1b1f24", "#e6e9ed")
MUTED = Colour("muted", "#57606a", "#a3adb8")
GRID = Colour("grid", "#e3e6ea", "#2d333b")
GOOD = Colour("good", "#1a7f37", "#4ac26b")
BAD = Colour("bad", "#b3123c", "#ff7b8f")
OTHER = Colour("other", "#8b949e", "#767f89")
PERCENTILES = (
    Colour("p50", "#6aaed6", "#3f7fc0"),
    Colour("p90", "#2070b4", "#79b4ea"),
    Colour("p99", "#08306b", "#d4e6f8"),
)
SERIES = (
    # Neighbours differ in lightness too, not in hue alone.
    Colour("s1", "#0072b2", "#3a93d0"),
    Colour("s2", "#e69f00", "#f0b63c"),
    Colour("s3", "#00805d", "#1fa681"),
    Colour("s4", "#cc79a7", "#e3a3c6"),
    Colour("s5", "#4b3d97", "#8273d8"),
    Colour("s6", "#56b4e9", "#8fd0f5"),
    Colour("s7", "#a5733a", "#c08d55"),
    Colour("s8", "#d9cf3b", "#f3ea7a"),
)
ALL = (GROUND, INK, MUTED, GRID, GOOD, BAD, OTHER, *PERCENTILES, *SERIES)


def css() -> str:
    """Return CSS that sets a variable for each colour, in the reader's light or dark mode."""
    light = ";".join(f"--{colour.name}:{colour.light}" for colour in ALL)
    dark = ";".join(f"--{colour.name}:{colour.dark}" for colour in ALL)
    return f":root{{color-scheme:light dark;{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"


def follow_reader(svg: str) -> str:
    """Let a picture in light colours use the dark ones in the reader's dark mode."""
    for colour in ALL:
        svg = svg.replace(colour.light, f"var(--{colour.name})")
    head, tag, body = svg.partition("<defs>")
    return f"{head}{tag}<style>{css()}</style>{body}"
