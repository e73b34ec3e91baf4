"""The dashboard as a file: complete, readable, consistent with the metrics, and where Grafana looks for it.

`test_dashboard_live.py` shows that it answers questions.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from loadtest.cluster.common import find_program
from tests.deploy.files import checked, service
from tests.deploy.watching import (
    AUTOMATIC,
    CONFIG,
    DASHBOARD,
    PROVISIONING,
    Query,
    dashboard,
    panels,
    queries,
    variables,
)
from tests.docs.test_metrics import FROM_PROMETHEUS, Metric, names, real

__all__ = ["names", "real"]

QUESTIONS = [
    "Is it healthy?",
    "Which key is still in use?",
    "Who is being refused, and why?",
    "When do I need another replica?",
    "Do upstreams answer?",
    "Which calls wait for their users?",
]
UNITS = {"bytes", "cps", "none", "ops", "percentunit", "reqps", "s", "short"}
COLUMNS = 24
MOST_PANELS = 31
BUILT_IN = {"__rate_interval", "__range"}
NOT_OURS = {
    "ALERTS": {"alertname", "alertstate", "severity", "service"},
    "haproxy_backend_active_servers": {"proxy"},
    "haproxy_frontend_http_responses_total": {"proxy", "code"},
}
"""Metrics of other programs, and their labels."""

FILLED = {
    "__rate_interval": "1m",
    "__range": "1h",
    "instance": "a|b",
    "used_within": "1h",
}
PANELS = panels()
QUERIES = queries()


def by_title(panel: dict[str, Any]) -> str:
    return str(panel["title"])


def test_it_has_a_row_for_each_question_an_operator_asks() -> None:
    assert [panel["title"] for panel in dashboard()["panels"] if panel["type"] == "row"] == QUESTIONS
    assert len(PANELS) <= MOST_PANELS


def test_no_two_panels_have_one_id_or_one_title() -> None:
    everything = dashboard()["panels"]
    for name in ("id", "title"):
        assert len({panel[name] for panel in everything}) == len(everything)


def test_panels_lie_side_by_side_within_their_row() -> None:
    taken = [panel["gridPos"] for panel in dashboard()["panels"]]
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= COLUMNS for place in taken)
    for one, other in itertools.combinations(taken, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"]


@pytest.mark.parametrize("panel", PANELS, ids=by_title)
def test_each_panel_says_what_it_shows_and_in_which_unit(panel: dict[str, Any]) -> None:
    assert len(panel["description"]) > 30
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["type"] in {"stat", "table", "timeseries"}


@pytest.mark.parametrize("panel", PANELS, ids=by_title)
def test_each_query_asks_the_prometheus_that_is_chosen_and_names_its_series(panel: dict[str, Any]) -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert panel["datasource"] == chosen
    letters = [target["refId"] for target in panel["targets"]]
    assert len(set(letters)) == len(letters)
    for target in panel["targets"]:
        assert target["datasource"] == chosen
        assert (target["legendFormat"] == AUTOMATIC) == (panel["type"] == "table")
        assert target.get("instant", False) == (panel["type"] != "timeseries")


def test_every_variable_that_is_used_is_there_and_every_one_there_is_used() -> None:
    used = set().union(*(query.variables for query in QUERIES))
    assert used - BUILT_IN == set(variables()) - {"datasource"}
    assert variables()["datasource"]["query"] == "prometheus"
    assert variables()["instance"]["multi"]
    assert set(FILLED) == used


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: f"{query.panel}, {query.letter}")
def test_every_metric_and_every_label_of_a_query_exists(
    query: Query, names: dict[str, str], real: dict[str, Metric]
) -> None:
    text = re.sub(r'"[^"]*"', '""', query.text)
    metrics = set(re.findall(r"\b(?:gateway|process|haproxy)_\w+|\bALERTS\b", text))
    labels = query.labels | set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", text))
    for grouped in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", text):
        labels |= {label.strip() for label in grouped.split(",")}
    known = set(FROM_PROMETHEUS)
    for metric in metrics:
        known |= NOT_OURS[metric] if metric in NOT_OURS else real[names[metric]].labels
    assert labels - known == set()


def test_prometheus_understands_every_query(tmp_path: Path) -> None:
    recorded = [{"record": f"query{number}", "expr": query.filled(FILLED)} for number, query in enumerate(QUERIES)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": recorded}]}))
    checked(find_program("promtool", package="prometheus"), "check", "rules", str(tmp_path / "rules.yml"))


def test_grafana_finds_it_where_compose_mounts_it() -> None:
    mounts = dict(mount.split(":")[:2] for mount in service("grafana")["volumes"])
    assert mounts["./grafana/provisioning"] == "/etc/grafana/provisioning"
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards" / "gateway.yaml").read_text())["providers"]
    assert provider["options"]["path"] == mounts[f"./grafana/{DASHBOARD.parent.name}"]


def test_grafana_asks_the_prometheus_of_compose_as_often_as_that_scrapes() -> None:
    (source,) = yaml.safe_load((PROVISIONING / "datasources" / "prometheus.yaml").read_text())["datasources"]
    (port,) = (mapped.rpartition(":")[2] for mapped in service("prometheus")["ports"])
    assert source["url"] == f"http://prometheus:{port}"
    assert source["jsonData"]["timeInterval"] == yaml.safe_load(CONFIG.read_text())["global"]["scrape_interval"]
