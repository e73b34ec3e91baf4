"""The report of a run: one HTML file that needs nothing else, and its charts as PNG files, made from the raw data."""

from loadtest.report.write import write_report

__all__ = ["write_report"]
