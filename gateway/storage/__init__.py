"""Tasks on Redis: the only package that imports redis."""

from __future__ import annotations

from gateway.storage.client import RedisClient, check_url, connect
from gateway.storage.task_store import RedisTaskStore
from gateway.storage.work_queue import RedisWorkQueue

__all__ = ["RedisClient", "RedisTaskStore", "RedisWorkQueue", "check_url", "connect"]
