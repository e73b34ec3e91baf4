"""docs/run/tracing.md, and OpenTelemetry's variables in docs/run/settings.md, name everything, and only what exists."""

from __future__ import annotations

import re

from opentelemetry import environment_variables
from opentelemetry.sdk import environment_variables as sdk_variables

from gateway.observability.tracing import NAME_ATTRIBUTES
from gateway.protocol.method_table import METHODS
from tests.docs.markdown import TOP

TEXT = (TOP / "docs/run/tracing.md").read_text(encoding="utf-8")
SETTINGS = (TOP / "docs/run/settings.md").read_text(encoding="utf-8")
SOURCE = (TOP / "gateway" / "observability" / "tracing.py").read_text(encoding="utf-8")
PREFIXES = "mcp|gen_ai|jsonrpc|rpc|error|network|gateway|service"
ATTRIBUTE = rf"(?:{PREFIXES})\.[a-z_.]+[a-z]"


def test_every_attribute_is_in_the_table_and_the_other_way_round() -> None:
    documented = set(re.findall(rf"`({ATTRIBUTE})`", TEXT))
    written = set(re.findall(rf'"({ATTRIBUTE})"', SOURCE))
    assert len(written) > 15
    assert documented == written


def test_every_variable_is_one_of_opentelemetry() -> None:
    named = set(re.findall(r"`(OTEL_[A-Z_]+)", SETTINGS + TEXT))
    assert len(named) > 10
    assert named <= {*vars(environment_variables), *vars(sdk_variables)}


def test_every_variable_that_decides_whether_there_are_traces_is_documented() -> None:
    deciding = set(
        re.findall(r'"(OTEL_[A-Z_]+)"', (TOP / "gateway" / "process" / "services.py").read_text(encoding="utf-8"))
    )
    assert deciding - {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"} <= set(re.findall(r"`(OTEL_[A-Z_]+)`", SETTINGS))


def test_a_leg_of_each_method_that_runs_a_function_names_what_it_calls() -> None:
    assert NAME_ATTRIBUTES.keys() == {method.name for method in METHODS.values() if method.runs_function}
