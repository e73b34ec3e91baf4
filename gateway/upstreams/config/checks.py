"""Checks a file of upstreams against the settings of the process, and finds what operators should know of it."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.children.environment import withheld_names
from gateway.settings.model import Settings, secret_values
from gateway.upstreams.config.definition import Definition, UpstreamFile
from gateway.upstreams.config.server_objects import NotInstalled, ObjectFailure, find_object

_EXCHANGE_SETTINGS = ("token_exchange_url", "token_exchange_client_id", "token_exchange_client_secret")


def setting_problems(found: UpstreamFile, settings: Settings, file: str) -> Iterator[str]:
    """Yield a line for each option that needs a setting which is not set."""
    secrets = secret_values(settings)
    for definition in found.definitions:
        if definition.transport == "stdio" and settings.max_children == 0:
            yield (
                f"{file}: {definition.name}: runs a program, but GATEWAY_MAX_CHILDREN allows none, its default "
                "in another application; set it, or remove the upstream"
            )
        for name in withheld_names(definition.variables, secrets):
            yield (
                f"{file}: {definition.name}: env: no program gets {name}, which is the gateway's or has the value "
                "of one of its secrets; remove it"
            )
        needs_store = any(rule.mode == "required" for rule in definition.task.values)
        if needs_store and settings.redis_url is None and not settings.is_wrong("redis_url"):
            yield (
                f"{file}: {definition.name}: gateway.task: required needs a task store, but GATEWAY_REDIS_URL is not "
                "set; set it, or use optional"
            )
        if definition.credentials.kind == "token_exchange":
            yield from _exchange_problems(f"{file}: {definition.name}: gateway.credentials: token_exchange", settings)


def object_problems(found: UpstreamFile, file: str) -> Iterator[str]:
    """Yield a line for each server object that this process does not have. Others may fail when they start."""
    for definition in found.definitions:
        if definition.transport == "python":
            try:
                find_object(definition.python)
            except NotInstalled as problem:
                yield f"{file}: {definition.name}: python: {problem}"
            except ObjectFailure:
                pass  # the upstream fails, which must not stop the gateway


def _exchange_problems(start: str, settings: Settings) -> Iterator[str]:
    if settings.auth == "none":
        yield f"{start} needs tokens of callers, but GATEWAY_AUTH=none; use other credentials, or set it to jwt"
    elif not any(settings.is_wrong(name) for name in _EXCHANGE_SETTINGS) and settings.token_exchange_url is None:
        yield f"{start} needs GATEWAY_TOKEN_EXCHANGE_URL and the client of it; set them, or use other credentials"


def describe(found: UpstreamFile) -> Iterator[str]:
    """Yield what operators should know of a file before any upstream is asked."""
    if not found.definitions:
        yield "no upstream is served"
    for definition in found.definitions:
        if definition.judges_resources and definition.unlisted is None:
            yield (
                f"{definition.name}: only resources that it lists are served, because a rule is about some of them; "
                "set gateway.resources.unlisted to choose"
            )
        elif definition.judges_resources and definition.unlisted:
            yield (
                f"{definition.name}: resources that it does not list are served too, although a rule is about some "
                "resources, because gateway.resources.unlisted is true"
            )
    yield from found.notes


def warnings(found: UpstreamFile, settings: Settings) -> Iterator[str]:
    """Yield a sentence for each upstream that gives callers more, or pins less, than its configuration may seem to."""
    for definition in found.definitions:
        if definition.pinned.is_old:
            yield (
                f"{definition.name}: an older release wrote the lock file, which pins only tools; check the upstream, "
                "and run `gateway upstreams pin`"
            )
        if settings.auth != "none" and _shares_a_session(definition):
            yield (
                f"{definition.name}: all callers share one session, and the state that its tools keep there; set "
                "gateway.scope to caller if they keep any"
            )
        if settings.auth != "none" and not definition.scopes and _has_one_credential(definition):
            yield (
                f"{definition.name}: one credential for all callers, and no scopes: every caller may do what that "
                "credential may; add scopes, or use token_exchange"
            )


def may_keep_connections(definition: Definition) -> bool:
    """Return whether an upstream may be called in sessions, or lives in a process of the gateway."""
    return definition.transport != "http" or not {"auto", "session"}.isdisjoint(definition.era.values)


def _shares_a_session(definition: Definition) -> bool:
    """Return whether the configuration says so: an upstream over HTTP may turn out to need no session."""
    is_called_in_one = definition.transport == "stdio" or "session" in definition.era.values
    return is_called_in_one and definition.session_scope == "shared"


def _has_one_credential(definition: Definition) -> bool:
    """Return whether all callers use one credential of the gateway. Any header may be one."""
    kind = definition.credentials.kind
    return kind == "client_credentials" or (kind == "headers" and bool(definition.headers)) or bool(definition.tls.cert)
