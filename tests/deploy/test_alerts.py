"""The Prometheus configuration and the alerts: valid, each shown silent and firing, each with an action."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from loadtest.cluster.common import find_program
from tests.deploy.files import DEPLOY, checked, compose, service
from tests.deploy.watching import ALERT_TESTS, ALERTS, CONFIG, rules
from tests.docs import runbooks

pytestmark = pytest.mark.slow

RULES = rules()
SEVERITIES = {"critical", "warning", "info"}
RUNBOOKS = {runbook.anchor: runbook for runbook in runbooks.runbooks()}
LINKED = {rule["alert"]: rule["annotations"]["runbook_url"].partition("#") for rule in RULES}
SITE = "https://docs.example.com/"


def promtool(*arguments: str) -> str:
    return checked(find_program("promtool", package="prometheus"), *arguments)


def test_prometheus_takes_its_configuration_and_the_alerts_in_it() -> None:
    assert f"{len(RULES)} rules found" in promtool("check", "config", "--lint-fatal", str(CONFIG))
    promtool("check", "rules", "--lint-fatal", str(ALERTS))


def test_each_alert_fires_when_it_has_to_and_is_silent_before() -> None:
    promtool("test", "rules", str(ALERT_TESTS))


def test_no_alert_is_left_out_of_that() -> None:
    tests = yaml.safe_load(ALERT_TESTS.read_text())["tests"]
    fired = {
        re.findall(r'alertname="(\w+)"', sample["labels"])[0]
        for test in tests
        for asked in test["promql_expr_test"]
        for sample in asked.get("exp_samples", [])
    }
    assert fired == {rule["alert"] for rule in RULES}
    assert all(any("exp_samples" not in asked for asked in test["promql_expr_test"]) for test in tests)


def test_no_two_alerts_have_one_name() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_each_alert_says_how_bad_it_is_what_it_means_and_where_to_read_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in SEVERITIES
    assert rule["labels"]["service"] == "sealed-gateway"
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    page, _, anchor = LINKED[rule["alert"]]
    assert page.startswith(SITE)
    assert f"docs/{page.removeprefix(SITE).rstrip('/')}.md" == runbooks.PAGE
    assert anchor in RUNBOOKS


@pytest.mark.parametrize("runbook", RUNBOOKS.values(), ids=lambda runbook: runbook.anchor)
def test_each_runbook_names_the_alerts_that_lead_to_it_and_no_others(runbook: runbooks.Runbook) -> None:
    assert runbook.alerts == {alert for alert, (_, _, anchor) in LINKED.items() if anchor == runbook.anchor}


def test_every_service_with_metrics_is_scraped_where_it_serves_them() -> None:
    jobs = {job["job_name"]: job for job in yaml.safe_load(CONFIG.read_text())["scrape_configs"]}
    ports = {"gateway": 9464, "worker": 9465, "haproxy": 8404}
    assert set(jobs) == set(ports)
    for name, job in jobs.items():
        (found,) = job["dns_sd_configs"]
        assert (found["names"], found["type"], found["port"]) == ([name], "A", ports[name])
        assert name in compose()["services"]


def test_compose_mounts_the_files_where_prometheus_reads_them() -> None:
    found = service("prometheus")
    (directory,) = (mount.split(":")[1] for mount in found["volumes"] if mount.startswith("./prometheus:"))
    assert f"--config.file={directory}/{CONFIG.name}" in found["command"]
    for name in yaml.safe_load(CONFIG.read_text())["rule_files"]:
        assert (DEPLOY / "prometheus" / name).exists()
