"""Finds everything that is wrong with the configuration of a process before it starts, without a connection."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

from gateway.auth import read_key_file
from gateway.authoring.registry import Registry, load_registry
from gateway.errors import ConfigurationError
from gateway.sealing.keyring import KeyRing
from gateway.settings.model import Settings
from gateway.settings.problems import Problems

log = logging.getLogger(__name__)


def find_problems(settings: Settings, problems: Problems, *, works: bool = False) -> None:
    """Note what is wrong with the settings, and with the files and keys that they name; but not with the tools.

    Args:
        settings: as far as they could be read.
        problems: takes what is wrong.
        works: whether it is a worker that starts, and not a replica.
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
    """Import the tool modules, and note what is wrong with them.

    Args:
        settings: they name the modules.
        problems: takes what is wrong.
        serves: whether tools that need a task store must have one.
    """
    before = len(problems.lines)
    for module in settings.tools:
        with problems.noted():
            load_registry([module])
    if len(problems.lines) == before:
        with problems.noted():
            load_tools(settings) if serves else load_registry(settings.tools)


def load_tools(settings: Settings) -> Registry:
    """Load what the settings name.

    Raises:
        ConfigurationError: a module is wrong, or tools need a task store and the settings name none.
    """
    registry = load_registry(settings.tools)
    if settings.redis_url is None and not settings.is_wrong("redis_url"):
        needy = [tool for tool in registry.tools.values() if tool.needs_store]
        lines = [
            f"GATEWAY_REDIS_URL: not set, but the tool {tool.name!r} "
            f"{'may be used once only' if tool.single_use else 'runs as a task only'}, which needs a task store; set it"
            for tool in needy
        ]
        if lines:
            raise ConfigurationError(*lines)
    return registry


def check_appendable(path: str) -> None:
    """Check that the file of the audit log can be written, and leave no file behind where there is none.

    Raises:
        ConfigurationError: it cannot.
    """
    file = Path(path)
    if file.is_dir():
        raise not_appendable(path, errno.EISDIR)
    if not file.parent.is_dir():
        raise not_appendable(path, errno.ENOENT)
    # A pipe is not opened on trial: its reader would notice.
    if not (os.access(file, os.W_OK) if file.exists() else os.access(file.parent, os.W_OK | os.X_OK)):
        raise not_appendable(path, errno.EACCES)


def not_appendable(path: str, number: int) -> ConfigurationError:
    """Return the error for a file of the audit log that cannot be written, from the number of the system's error."""
    return ConfigurationError(
        f"GATEWAY_AUDIT_LOG: {path!r} cannot be written: {os.strerror(number)}; name a file in a folder that this "
        "user may write to"
    )


def warn_of_unknown(settings: Settings) -> None:
    """Log the variables that look like settings and are none."""
    for name, meant in settings.unknown.items():
        hint = {} if meant is None else {"hint": f"did you mean {meant}?"}
        log.warning("not a setting, so it has no effect; see docs/run/settings.md", extra={"setting": name, **hint})
