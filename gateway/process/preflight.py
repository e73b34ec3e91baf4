"""Finds all problems of a process's configuration before it starts, without connecting to anything."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.auth import read_key_file
from gateway.errors import ConfigurationError
from gateway.registry.registry import Registry, load_registry
from gateway.sealing.keyring import KeyRing
from gateway.settings.model import Settings
from gateway.settings.problems import Problems

if TYPE_CHECKING:
    from gateway.upstreams.config.definition import UpstreamFile

log = logging.getLogger(__name__)


def find_problems(settings: Settings, problems: Problems, *, works: bool = False) -> None:
    """Find problems of the settings, and of the files and keys that they name, but not of the tools.

    The settings have defaults in place of wrong values. `works` says whether a worker starts, instead of a replica.
    """
    with problems.noted():
        if works:
            settings.check_working()
        else:
            settings.check_serving()
    if settings.seal_keys is not None:
        with problems.noted():
            KeyRing.parse(settings.seal_keys.get_secret_value())
    if settings.redis_url is not None:
        from gateway.storage import check_url  # noqa: PLC0415 - it loads redis, which takes memory

        with problems.noted():
            check_url(settings.redis_url.get_secret_value())
    if not works and settings.auth == "jwt" and settings.jwks_file is not None:
        with problems.noted():
            read_key_file(Path(settings.jwks_file), settings.token_algorithms)
    if settings.audit_log not in ("off", "stderr"):
        with problems.noted():
            check_appendable(settings.audit_log)


def find_tool_problems(settings: Settings, problems: Problems, *, serves: bool = True) -> None:
    """Import the tool modules, and find problems with them.

    `serves` says whether to require a task store if tools need one.
    """
    before = len(problems.lines)
    for module in settings.tools:
        with problems.noted():
            load_registry([module])
    if len(problems.lines) == before:
        with problems.noted():
            load_tools(settings) if serves else load_registry(settings.tools)


def find_upstream_problems(settings: Settings, problems: Problems, *, works: bool = False) -> UpstreamFile | None:
    """Read the file of upstreams, and find problems with it and with the settings that it needs.

    Return None if there is no file, or it cannot be read. `works` says whether a worker starts, instead of a replica. A
    worker exchanges no tokens: tasks bring theirs.
    """
    if settings.upstreams is None:
        return None
    from gateway.upstreams.config import checks, reading  # noqa: PLC0415 - most processes have no upstreams

    found = None
    with problems.noted():
        found = reading.UpstreamReader(Path(settings.upstreams)).read()
        if not works:
            problems.add(*checks.setting_problems(found, settings, settings.upstreams))
        problems.add(*checks.object_problems(found, settings.upstreams))
    return found


def load_tools(settings: Settings) -> Registry:
    """Load the tool modules that the settings name.

    Raises:
        ConfigurationError: a module is wrong, or tools need a task store but the settings name none.
    """
    registry = load_registry(settings.tools)
    if settings.redis_url is None and not settings.is_wrong("redis_url"):
        needy = [tool for tool in registry.tools.values() if tool.needs_store]
        lines = [
            f"GATEWAY_REDIS_URL: not set, but the tool {tool.name!r} "
            f"{'is single-use' if tool.single_use else 'runs only as a task'}, which needs a task store; set it"
            for tool in needy
        ]
        if lines:
            raise ConfigurationError(*lines)
    return registry


def check_appendable(path: str) -> None:
    """Raise `ConfigurationError` if the file of the audit log cannot be written; never create it."""
    file = Path(path)
    if file.is_dir():
        raise not_appendable(path, errno.EISDIR)
    if not file.parent.is_dir():
        raise not_appendable(path, errno.ENOENT)
    # Do not try by opening: the reader of a pipe would notice.
    if not (os.access(file, os.W_OK) if file.exists() else os.access(file.parent, os.W_OK | os.X_OK)):
        raise not_appendable(path, errno.EACCES)


def not_appendable(path: str, number: int) -> ConfigurationError:
    """Return the error for an audit log that cannot be written; `number` is the system's error number."""
    return ConfigurationError(
        f"GATEWAY_AUDIT_LOG: {path!r} cannot be written: {os.strerror(number)}; name a file in a folder that this "
        "user may write to"
    )


def warn_of_unknown(settings: Settings) -> None:
    """Log the variables that look like settings but are not."""
    for name, meant in settings.unknown.items():
        hint = {} if meant is None else {"hint": f"did you mean {meant}?"}
        log.warning("not a setting, so it has no effect; see docs/run/settings.md", extra={"setting": name, **hint})
