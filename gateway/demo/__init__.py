"""The demo tools. Each shows one use of calls that continue over several requests.

`echo` always runs as a task, so it is served only if there is a task store.
"""

from __future__ import annotations

import os

# Tools are listed in the order of these imports, and a newcomer tries the first one.
# isort: off
from gateway.demo.weather import get_weather
from gateway.demo.work_items import update_work_item
from gateway.demo.logins import link_accounts
from gateway.demo.compute import crunch
from gateway.demo.reports import report
from gateway.demo.machines import provision_vm
# isort: on

__all__ = ["crunch", "get_weather", "link_accounts", "provision_vm", "report", "update_work_item"]

if os.environ.get("GATEWAY_REDIS_URL") or os.environ.get("GATEWAY_REDIS_URL_FILE"):
    from gateway.demo.echoes import echo

    __all__ += ["echo"]
