"""The report of a run: one self-contained HTML file, and its charts as PNG files, made from the raw data."""

from loadtest.report.write import write_report

__all__ = ["write_report"]
