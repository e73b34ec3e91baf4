"""Writes the report of a run next to its raw data."""

from __future__ import annotations

from pathlib import Path

from loadtest import rawdata
from loadtest.ledger import ledger
from loadtest.report import charts
from loadtest.report.frame import NARROW, WIDE
from loadtest.report.page import Picture, page
from loadtest.report.summary import summarize

REPORT = "report.html"


def write_report(directory: Path) -> Path:
    """Write the report of a run: `report.html`, and a PNG file for each chart that is not empty.

    Args:
        directory: the directory of the raw data. An earlier report there is replaced.

    Returns:
        The path of the HTML file.

    Raises:
        RawDataError: there is no run in this directory.
    """
    run = rawdata.read(directory)
    summary = summarize(run)
    pictures = []
    for name, chart in charts.CHARTS.items():
        file = directory / f"{name}.png"
        if chart.is_empty(summary):
            file.unlink(missing_ok=True)
            pictures.append(Picture(chart.otherwise))
            continue
        wide = chart.draw(summary, WIDE)
        file.write_bytes(wide.png())
        pictures.append(Picture(chart.caption, wide.svg(), chart.draw(summary, NARROW).svg()))
    report = directory / REPORT
    report.write_text(page(run, summary, ledger(run), pictures), encoding="utf-8")
    return report
