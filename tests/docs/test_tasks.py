"""The defaults, metrics and messages that `docs/run/tasks.md` names exist."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.settings.model import Settings

TOP = Path(__file__).resolve().parent.parent.parent
TEXT = (TOP / "docs/run/tasks.md").read_text()


def test_a_default_that_is_told_is_the_default() -> None:
    told = re.findall(r"`GATEWAY_([A-Z_]+)` \((\d+)\)", TEXT)
    assert len(told) > 5
    for name, value in told:
        assert float(Settings.model_fields[name.lower()].default) == float(value), name


def test_every_metric_and_every_message_that_is_named_exists() -> None:
    source = "".join(path.read_text() for name in ("gateway", "workers") for path in (TOP / name).rglob("*.py"))
    metrics = set(re.findall(r"\b(gateway_\w+?)(?:_total)?\b[`{]", TEXT))
    assert len(metrics) > 3
    assert [name for name in metrics if name not in source] == []
    for message in ("a tool blocks the event loop", "task store is not available", '"task %s"'):
        assert message in source
