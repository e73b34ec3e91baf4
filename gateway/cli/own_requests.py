"""`gateway upstreams --haproxy`: the list of requests that no upstream receives, so that a balancer may repeat them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.process.preflight import find_tool_problems, find_upstream_problems
from gateway.registry.parts import UI_SCHEME, URI_SEPARATOR
from gateway.registry.registry import Registry, load_registry
from gateway.settings.model import Settings
from gateway.settings.problems import Problems
from gateway.upstreams.config.definition import UpstreamFile

EVERYTHING: Final = "*"
"""The line that stands for all requests."""

HEAD: Final = "# Requests that no upstream receives. Written by `gateway upstreams --haproxy` for deploy/haproxy.cfg."


def show(tools: str | None, upstreams: str | None) -> str:
    """Return the list for the tool modules and upstreams of a deployment. Upstreams are not asked.

    It has a line for each of the deployment's own tools, prompts and resources, and one for the beginning of each of
    its templates. Without a file of upstreams, one line stands for everything: only other settings can then add any.
    The `tools` are modules, separated by commas. An argument that is None comes from the environment.

    Raises:
        ConfigurationError: a module or the file is wrong.
    """
    problems = Problems()
    settings = Settings.load(problems=problems, tools=tools, upstreams=upstreams)
    with problems.noted():
        settings.check_tools()
    find_tool_problems(settings, problems, serves=False)
    found = find_upstream_problems(settings, problems, works=True)
    problems.raise_any()
    lines = [EVERYTHING] if found is None else list(_own(load_registry(settings.tools), found))
    return "\n".join([HEAD, *lines])


def _own(registry: Registry, found: UpstreamFile) -> Iterator[str]:
    """Yield the lines for local functions. A local name always wins over the same name of an upstream."""
    yield from (f"tools/call {name}" for name in registry.tools)
    yield from (f"prompts/get {name}" for name in registry.prompts)
    yield from (f"resources/read {uri}" for uri in registry.resources)
    if all(definition.prefix for definition in found.definitions):
        starts = (template.partition("{")[0] for template in registry.templates)
        yield from (f"resources/read under {start}" for start in dict.fromkeys(starts) if _is_certain(start))


def _is_certain(start: str) -> bool:
    """Return whether no URI that begins like this can have the prefix of an upstream, whatever comes after it."""
    scheme, colon, _ = start.partition(":")
    return bool(colon) and URI_SEPARATOR not in scheme and not start.lower().startswith(UI_SCHEME)
