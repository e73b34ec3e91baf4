"""The demo tools: each shows one thing that half-finished calls are good for."""

from __future__ import annotations

from gateway.demo.compute import crunch
from gateway.demo.logins import link_accounts
from gateway.demo.weather import get_weather
from gateway.demo.work_items import update_work_item

__all__ = ["crunch", "get_weather", "link_accounts", "update_work_item"]
