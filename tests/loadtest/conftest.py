"""Locust patches the standard library of the process that imports it, but not of the one that runs these tests."""

from __future__ import annotations

import os

PATCHES_NOTHING = "LOCUST_SKIP_MONKEY_PATCH"

os.environ[PATCHES_NOTHING] = "1"
try:
    import locust  # noqa: F401 - now, while it patches nothing
finally:
    del os.environ[PATCHES_NOTHING]

from tests.loadtest.scripted import client, replica, seen  # noqa: E402, F401 - fixtures; they import Locust
