"""The operators' view: the shipped dashboard and alerts, and a real Prometheus behind them."""

from __future__ import annotations

import http.client
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import yaml

from loadtest.cluster import Cluster
from loadtest.cluster.common import HOST, LoggedProcess, find_program
from tests.deploy.files import DEPLOY

CONFIG = DEPLOY / "prometheus" / "prometheus.yml"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
ALERT_TESTS = DEPLOY / "prometheus" / "alerts_test.yml"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "gateway.json"
PROVISIONING = DEPLOY / "grafana" / "provisioning"
SCRAPE_SECONDS = 1
PATIENCE_SECONDS = 20.0

AUTOMATIC = "__auto"
"""The legend of queries whose labels become columns of a table."""

_VARIABLE = re.compile(r"\$(\w+)")
_LABEL = re.compile(r"\{\{(\w+)\}\}")


class Sample(NamedTuple):
    """One series of an answer, at one moment."""

    labels: Mapping[str, str]
    value: float


class Query(NamedTuple):
    """One query of a panel, with its variables as they are written."""

    panel: str
    letter: str
    text: str
    legend: str

    def filled(self, values: Mapping[str, str]) -> str:
        """Return the query as Grafana sends it."""
        return _VARIABLE.sub(lambda found: values[found[1]], self.text)

    def named(self, sample: Sample) -> str:
        """Return the name of a series in the panel: from its legend, or the letter of the query in a table."""
        if self.legend == AUTOMATIC:
            return self.letter
        return _LABEL.sub(lambda found: sample.labels[found[1]], self.legend)

    @property
    def variables(self) -> set[str]:
        """The names of the variables in it."""
        return set(_VARIABLE.findall(self.text))

    @property
    def labels(self) -> set[str]:
        """The labels that its legend names."""
        return set(_LABEL.findall(self.legend))


def dashboard() -> dict[str, Any]:
    document = json.loads(DASHBOARD.read_text())
    assert isinstance(document, dict)
    return document


def panels() -> list[dict[str, Any]]:
    """Return the panels that show something."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> list[Query]:
    return [
        Query(panel["title"], target["refId"], target["expr"], target["legendFormat"])
        for panel in panels()
        for target in panel["targets"]
    ]


def variables() -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in dashboard()["templating"]["list"]}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


class Prometheus(LoggedProcess):
    """The system's Prometheus with the shipped configuration, but other targets and shorter intervals."""

    def __init__(self, directory: Path, cluster: Cluster) -> None:
        super().__init__("prometheus", {}, directory / "prometheus.log")
        self._program = find_program("prometheus", package="prometheus")
        self._directory = directory
        self._port = self._keep_port()
        assert cluster.balancer is not None
        targets = {
            "gateway": [replica.metrics_url for replica in cluster.replicas],
            "worker": [worker.metrics_url for worker in cluster.workers],
            "haproxy": [cluster.balancer.metrics_url],
        }
        (directory / "prometheus.yml").write_text(yaml.safe_dump(_aimed_at(targets)))

    def _command(self) -> Sequence[str]:
        return [
            self._program,
            f"--config.file={self._directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._directory / 'data'}",
            f"--web.listen-address={HOST}:{self._port}",
            "--log.level=warn",
        ]

    def wait_ready(self) -> None:
        self._wait_started(self._is_ready)

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=PATIENCE_SECONDS)
        try:
            connection.request("GET", "/-/ready")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def get(self, path: str, **params: str) -> Any:
        """Return the data of an answer of its HTTP API."""
        url = f"http://{HOST}:{self._port}/api/v1/{path}"
        answer = httpx.get(url, params=params, timeout=PATIENCE_SECONDS, trust_env=False).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def ask(self, query: str) -> list[Sample]:
        """Return the current result of a query, without series that have no number."""
        found = self.get("query", query=query)["result"]
        samples = [Sample(series["metric"], float(series["value"][1])) for series in found]
        return [sample for sample in samples if not math.isnan(sample.value)]

    def alerts(self) -> dict[str, set[str]]:
        """Return the alerts that are pending and firing, by state."""
        states: dict[str, set[str]] = {"pending": set(), "firing": set()}
        for alert in self.get("alerts")["alerts"]:
            states[alert["state"]].add(alert["labels"]["alertname"])
        return states

    def rules(self) -> Iterator[dict[str, Any]]:
        for group in self.get("rules")["groups"]:
            yield from group["rules"]


def _aimed_at(urls: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the shipped configuration with other targets for its jobs."""
    config: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
    interval = f"{SCRAPE_SECONDS}s"
    config["global"] |= {"scrape_interval": interval, "evaluation_interval": interval}
    config["rule_files"] = [str(CONFIG.parent / name) for name in config["rule_files"]]
    for job in config["scrape_configs"]:
        del job["dns_sd_configs"]
        addresses = [url.removeprefix("http://").removesuffix("/metrics") for url in urls[job["job_name"]]]
        job["static_configs"] = [{"targets": addresses}]
    return config
