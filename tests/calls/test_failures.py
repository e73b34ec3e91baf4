"""Failures of an upstream never have status 500: no load balancer or alert takes them for one of this gateway."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.calls.failures import Failures
from gateway.engine.journal import Journal
from gateway.errors import CannotContinue, InternalError
from gateway.web.errors import to_http
from tests.calls.policies import POLICY


@pytest.mark.parametrize(("upstream", "status"), [("bugs", 200), ("", 500)])
def test_a_prompt_that_cannot_continue_has_status_500_only_if_it_is_our_own(upstream: str, status: int) -> None:
    served: Any = SimpleNamespace(name="greeting", upstream=upstream)
    journal = Journal.begin(now_ms=0, flow_max_ms=1, random_bytes=os.urandom)
    with pytest.raises(InternalError, match="no answer") as caught:
        Failures(os.urandom, POLICY).result(served, CannotContinue("no answer"), journal)
    assert to_http(caught.value, 1)[0] == status
