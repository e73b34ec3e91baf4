"""The HTML of a report. It contains its pictures and styles, so it can be kept, mailed, and read offline."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from loadtest.ledger import Ledger
from loadtest.rates import Part, parts
from loadtest.rawdata import CALLS, EVENTS, LEGS, METRICS, RUN, RawRun
from loadtest.report import layout, theme
from loadtest.report.summary import PERCENTILES, Distribution, Summary

NARROW_PIXELS = 820
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
OUTCOMES = ("finished", "refused", "failed", "unfinished")
SECRET = re.compile(r"(?i)(key|secret|token|password|redis_url)s?$")
"""Names of settings whose values stay out of the report, as people pass it on."""
STYLE = """
body{margin:0 auto;max-width:75rem;padding:1rem;background:var(--ground);color:var(--ink);
font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{margin:0 0 .25rem;font-size:1.6rem;line-height:1.2}
h2{margin:2rem 0 .5rem;font-size:1.15rem}
.verdict{display:inline-block;padding:0 .6rem;border-radius:.4rem;color:var(--ground);background:var(--muted)}
.passed .verdict{background:var(--good)}
.failed .verdict{background:var(--bad)}
.good{color:var(--good)}
.bad{color:var(--bad);font-weight:bold}
p,figcaption{margin:.25rem 0;color:var(--muted)}
.summary{color:var(--ink);font-size:1.1rem}
.nothing{margin:1.5rem 0}
figure{margin:1.5rem 0}
img{display:block;width:100%;height:auto}
table{border-collapse:collapse}
th,td{padding:.2rem .9rem .2rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--grid)}
th{color:var(--muted);font-weight:normal}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.tables{display:flex;flex-wrap:wrap;gap:0 3rem;align-items:flex-start}
.scroll{max-width:100%;overflow-x:auto;overflow-wrap:normal}
td:first-child{white-space:nowrap}
summary{cursor:pointer;color:var(--muted)}
"""
NARROW_STYLE = f"""
@media(max-width:{NARROW_PIXELS}px){{
img{{max-width:36rem}}
table{{font-size:.85rem}}
th,td{{padding-right:.6rem}}
}}
"""


class Picture(NamedTuple):
    """A chart as two SVG pictures, one for wide windows and one for narrow ones.

    Attributes:
        caption: what it shows and how to read it.
        wide: for wide windows; empty where there is nothing to draw, in which case the caption says so.
        narrow: for phones.
    """

    caption: str
    wide: str = ""
    narrow: str = ""


def page(run: RawRun, summary: Summary, ledger: Ledger, pictures: Iterable[Picture]) -> str:
    """Return the report as one HTML document. The raw data is always shown as text, never taken as HTML."""
    title = escape(str(run.about.get("scenario", "load test")))
    return "\n".join(
        [
            "<!DOCTYPE html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{title}: load test</title>',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{theme.css()}{STYLE}{NARROW_STYLE}</style></head><body>",
            _head(run, title),
            _reasons(run),
            *map(_figure, pictures),
            _rates(run),
            _events(summary),
            _ledger(ledger),
            _distributions("Latency of answered legs", ("tool or method", "legs"), summary.tools),
            _distributions("Time to the first segment of a result", ("tool", "results"), summary.first_segments),
            _settings(run),
            f"<p>The raw data is next to this file: {', '.join((RUN, LEGS, CALLS, EVENTS, METRICS))}.</p>",
            "</body></html>\n",
        ]
    )


def _head(run: RawRun, title: str) -> str:
    verdict = run.about.get("verdict")
    state = "unjudged" if verdict is None else "passed" if verdict["passed"] else "failed"
    words = {"unjudged": "no verdict", "passed": "✓ passed", "failed": "✗ failed"}
    users = ", ".join(f"{count} {kind}" for kind, count in run.about.get("users", {}).items())
    facts = {
        "gateway": None if run.about.get("peer") or run.about.get("target") else _program(run),
        "called by": _program(run) if run.about.get("peer") or run.about.get("target") else None,
        "machine": _machine(run),
        "started": str(run.about.get("started", "")).replace("T", " ").replace("+00:00", " UTC"),
        "took": f"{run.seconds:.0f} s",
        "users": users,
        "replicas at the start": run.about.get("replicas"),
        "workers": run.about.get("workers"),
        "target": run.about.get("target"),
        "instead of the gateway": run.about.get("peer"),
    }
    line = " · ".join(f"{name}: {escape(str(fact))}" for name, fact in facts.items() if fact)
    return (
        f'<header class="{state}"><h1>{title} <span class="verdict">{words[state]}</span></h1>'
        f'<p class="summary">{escape(str(run.about.get("summary", "")))}</p><p>{line}</p></header>'
    )


def _program(run: RawRun) -> str:
    """Return the version and the commit that a run was made with."""
    program: Mapping[str, Any] = run.about.get("program", {})
    if not program:
        return ""
    shown = str(program.get("version"))
    if "commit" in program:
        shown += f", commit {program['commit']}{' with changes' if program.get('changed') else ''}"
    return shown


def _machine(run: RawRun) -> str:
    machine: Mapping[str, Any] = run.about.get("machine", {})
    if not machine:
        return ""
    memory = machine.get("memory_bytes")
    facts = [
        f"{machine.get('cores')} cores",
        f"{memory / 2**30:.0f} GiB of memory" if memory else "",
        machine.get("python"),
        machine.get("kernel"),
    ]
    return ", ".join(str(one) for one in facts if one)


def _reasons(run: RawRun) -> str:
    reasons = sorted((run.about.get("verdict") or {}).get("reasons", []), key=lambda reason: bool(reason["passed"]))
    rows = [
        [_mark(reason["passed"]), *(escape(str(reason[name])) for name in ("what", "measured", "bound"))]
        for reason in reasons
    ]
    return _table("Verdict", ("", "what must hold", "measured", "bound"), rows)


def _mark(passed: bool) -> str:
    return '<span class="good">✓ held</span>' if passed else '<span class="bad">✗ broken</span>'


def _figure(picture: Picture) -> str:
    caption = escape(picture.caption)
    if not picture.wide:
        return f'<p class="nothing">{caption}</p>'
    return (
        f'<figure><picture><source media="(max-width: {NARROW_PIXELS}px)" srcset="{_data(picture.narrow)}">'
        f'<img alt="{caption}" src="{_data(picture.wide)}"></picture><figcaption>{caption}</figcaption></figure>'
    )


def _data(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _events(summary: Summary) -> str:
    rows = [
        [str(number), layout.clock(round(event.t, 1), summary.seconds), escape(event.what), escape(event.detail)]
        for number, event in enumerate(summary.events, 1)
    ]
    return _table("Events", ("", "at", "what", "detail"), rows, numbers={0, 1})


def _rates(run: RawRun) -> str:
    rows = [
        [escape(part.began), f"{part.seconds:.1f} s", *(f"{rate:,.1f}" for rate in _per_second(part))]
        for part in parts(run)
    ]
    heads = ("from", "for", "calls finished", "legs", "legs handed on", "requests refused")
    return _table("Rates per second", heads, rows, numbers={1, 2, 3, 4, 5})


def _per_second(part: Part) -> tuple[float, ...]:
    return part.finished, part.legs, part.shed, part.refused


def _ledger(ledger: Ledger) -> str:
    by_user = [
        [escape(user), *(f"{counts.get(outcome, 0):,}" for outcome in OUTCOMES)]
        for user, counts in sorted(ledger.calls_by_user.items())
    ]
    tables = (
        _counts("Ledger", ("", "how many"), dict(ledger.rows())),
        _table("Calls, by kind of user", ("user", *OUTCOMES), by_user, numbers={1, 2, 3, 4}),
        _counts("Legs, by outcome", ("outcome", "legs"), ledger.legs),
        _counts("Legs, by replica", ("replica", "legs"), ledger.legs_by_replica, unnamed="no answer"),
        _counts("Reasons of unfinished calls", ("reason", "calls"), ledger.why, unnamed="no reason given"),
    )
    return f'<div class="tables">{"".join(f"<div>{table}</div>" for table in tables if table)}</div>'


def _distributions(title: str, heads: tuple[str, str], distributions: Mapping[str, Distribution]) -> str:
    """Return a table of times; `heads` are the headings of the columns for names and counts."""
    rows = [
        [escape(name), f"{distribution.count:,}", *map(layout.duration, distribution.percentiles)]
        for name, distribution in sorted(distributions.items())
    ]
    all_heads = (*heads, *PERCENTILES, "slowest")
    return _table(title, all_heads, rows, numbers=set(range(1, len(all_heads))))


def _settings(run: RawRun) -> str:
    rows = [
        [escape(name), escape("(not shown)" if SECRET.search(name) else str(value))]
        for name, value in sorted(run.about.get("settings", {}).items())
    ]
    table = _table("Settings", ("setting", "value"), rows)
    return f"<details><summary>Settings of this run</summary>{table}</details>" if table else ""


def _counts(title: str, heads: Sequence[str], counts: Mapping[str, int], unnamed: str = "") -> str:
    rows = [[escape(name or unnamed), f"{count:,}"] for name, count in counts.items()]
    return _table(title, heads, rows, numbers={1})


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[int] = ()) -> str:
    """Return a table with a heading, or an empty string if it has no rows.

    Args:
        title: its heading.
        heads: the headings of its columns.
        rows: their cells, as HTML.
        numbers: the columns with numbers, counted from 0.
    """
    if not rows:
        return ""
    classes = [' class="n"' if column in numbers else "" for column in range(len(heads))]
    head = "".join(f"<th{kind}>{text}</th>" for kind, text in zip(classes, heads, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(classes, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<h2>{title}</h2><div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
