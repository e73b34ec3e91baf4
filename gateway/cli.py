"""The command `gateway`.

Output is for people. Whatever the operator can put right is one line on stderr and exit code 2, never a traceback.
Each command imports what it needs when it runs, so that the small ones start at once.
"""

# ruff: noqa: PLC0415 - see above: `keys new` must not load a web framework

from __future__ import annotations

import argparse
import importlib
import json
import logging
import secrets
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gateway import __version__
from gateway.compilation import is_compiled
from gateway.errors import ConfigurationError

if TYPE_CHECKING:
    from gateway.settings import Settings

EXIT_CONFIGURATION: Final = 2
WORKERS: Final = "workers.__main__"
"""Started by name: the gateway never imports its workers."""

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8080
_FURTHER_READING: Final = (
    "Everything else is set in the environment (GATEWAY_…, or GATEWAY_…_FILE for secrets); see docs/settings.md."
)

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: its arguments; None takes the process's own.

    Returns:
        The exit code: 0 done, 1 failed, 2 configured wrongly, 130 interrupted.
    """
    given = sys.argv[1:] if argv is None else list(argv)
    if given[:1] == ["worker"]:
        _import_from_working_directory()
        return int(importlib.import_module(WORKERS).main(given[1:], prog="gateway worker"))
    arguments = _parser(given[:1]).parse_args(given)
    _import_from_working_directory()
    try:
        code: int = arguments.run(arguments)
    except ConfigurationError as error:
        print(f"gateway: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_CONFIGURATION
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return code


def _import_from_working_directory() -> None:
    """Find tool modules in the working directory, also when started as `gateway` and not as `python -m gateway`."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


def _parser(command: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gateway",
        description="Serve MCP tools from as many identical replicas as you like: no sessions, no shared storage.",
        epilog="Start with `gateway dev`: two replicas with the demo tools on http://127.0.0.1:8080/mcp.",
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"sealed-gateway {__version__} ({'compiled' if is_compiled() else 'interpreted'})",
        help="show which version this is, and whether it is compiled (docs/compiled.md)",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_serve(commands)
    _add_dev(commands)
    commands.add_parser("worker", help="run tasks in the background")  # its options are its own: see `main`
    _add_keys(commands)
    _add_token(commands)
    _add_tools(commands)
    _add_size(commands, with_options=list(command) == ["size"])
    return parser


_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no public name


def _add_serve(commands: _Commands) -> None:
    parser = commands.add_parser(
        "serve",
        help="serve tools from one replica",
        description="Serve MCP on POST /mcp, health on GET /healthz and /readyz, metrics on a port of their own.",
        epilog="Needs GATEWAY_SEAL_KEYS, GATEWAY_AUDIENCE and, unless GATEWAY_AUTH=none, GATEWAY_JWT_SECRET. "
        + _FURTHER_READING,
    )
    parser.add_argument("--host", default=DEFAULT_HOST, help="the address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port",
        type=_port,
        default=DEFAULT_PORT,
        help="the port to listen on, 0 for any free one (default: %(default)s)",
    )
    parser.add_argument(
        "--metrics-port", metavar="PORT", help="the port of GET /metrics, 0 for any free one, or off (default: 9090)"
    )
    parser.add_argument(
        "--metrics-host", metavar="ADDRESS", help="the address to serve metrics on (default: 127.0.0.1)"
    )
    _add_tools_option(parser)
    parser.add_argument("--replica-id", metavar="NAME", help="this replica's name in logs and in X-Gateway-Replica")
    parser.add_argument(
        "--fd", type=int, metavar="N", help="take over the listening socket with this file descriptor instead of a port"
    )
    parser.add_argument(
        "--reload",
        action="store_true",
        help="re-read the tool modules when their files change, and announce the lists that differ",
    )
    parser.set_defaults(run=_serve)


def _add_dev(commands: _Commands) -> None:
    parser = commands.add_parser(
        "dev",
        help="try it: several replicas behind one port, and a worker, until Ctrl-C",
        description=(
            "Run several replicas behind one port that gives each request to the next replica, and a worker for tasks. "
            "What is unset is made for this run, the same for all: a seal key, the audience `dev`, no identity, a task "
            "store, and the demo tools."
        ),
        epilog=_FURTHER_READING,
    )
    parser.add_argument(
        "--replicas",
        type=_replica_count,
        default=2,
        metavar="N",
        help="how many replicas to run (default: %(default)s)",
    )
    parser.add_argument(
        "--workers",
        type=_worker_count,
        default=1,
        metavar="N",
        help="how many workers to run, 0 for none (default: %(default)s)",
    )
    parser.add_argument("--host", default=DEFAULT_HOST, help="the address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port",
        type=_port,
        default=DEFAULT_PORT,
        help="the port to listen on, 0 for any free one (default: %(default)s)",
    )
    parser.set_defaults(run=_dev)


def _add_keys(commands: _Commands) -> None:
    parser = commands.add_parser("keys", help="make keys", description="Make the keys that seal half-finished calls.")
    actions = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    new = actions.add_parser(
        "new",
        help="print a new seal key",
        description="Print a new key for GATEWAY_SEAL_KEYS. Give the same value to every replica.",
        epilog="To rotate, roll out `old,new`, then `new,old`, then `new`: the first key seals, all of them open.",
    )
    new.set_defaults(run=_keys_new)


def _add_token(commands: _Commands) -> None:
    parser = commands.add_parser(
        "token",
        help="print a bearer token for development",
        description="Print a bearer token that a replica with the same GATEWAY_JWT_SECRET and audience accepts.",
        epilog="In production an authorization server makes the tokens. " + _FURTHER_READING,
    )
    parser.add_argument("--sub", required=True, metavar="NAME", help="the user that the token stands for")
    parser.add_argument(
        "--scope", action="append", default=[], metavar="NAME", help="a scope to grant; may be given several times"
    )
    parser.add_argument(
        "--ttl", type=_ttl, default=3600, metavar="SECONDS", help="how long the token is valid (default: %(default)s)"
    )
    parser.add_argument("--client-id", metavar="NAME", help="the client that acts for the user")
    parser.set_defaults(run=_token)


def _add_tools(commands: _Commands) -> None:
    parser = commands.add_parser(
        "tools",
        help="list the tools that would be served",
        description=(
            "List the tools of GATEWAY_TOOLS, and prompts and resources if there are any: name, version, and what they "
            "declare to ask, each question with its digest. A question with another digest is asked again."
        ),
        epilog="Compare the JSON of two releases before one replaces the other; see docs/upgrading.md.",
    )
    parser.add_argument(
        "--json", action="store_true", help="print them as JSON, with their schemas and what each digest covers"
    )
    _add_tools_option(parser)
    parser.set_defaults(run=_tools)


def _add_size(commands: _Commands, *, with_options: bool) -> None:
    parser = commands.add_parser(
        "size",
        help="work out how many replicas, workers and Redis servers a number of users needs",
        description=(
            "Work out how many replicas, workers and Redis servers a number of users needs, from what they do at the "
            "busiest moment and from what one replica was measured to do."
        ),
        epilog="docs/sizing.md explains the model, and how to measure your own machine.",
    )
    if with_options:  # the model takes longer to load than the other commands have time for
        from gateway.sizing.command import add_options, perform

        add_options(parser)
        parser.set_defaults(run=perform)


def _add_tools_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tools",
        nargs="+",
        metavar="MODULE",
        help="the Python modules that define the tools, separated by blanks or commas (default: GATEWAY_TOOLS)",
    )


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port between 0 and 65535")
    return int(text)


def _replica_count(text: str) -> int:
    return _count(text, 1)


def _worker_count(text: str) -> int:
    return _count(text, 0)


def _count(text: str, least: int) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number between {least} and 64")
    return int(text)


def _ttl(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 31_536_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds between 1 and 31536000")
    return int(text)


def _modules(arguments: argparse.Namespace) -> str | None:
    return None if arguments.tools is None else ",".join(arguments.tools)


def _serve(arguments: argparse.Namespace) -> int:
    from gateway.auth.bind import check_bind
    from gateway.logs import configure_logging
    from gateway.settings import Settings
    from gateway.web.listener import inherit, listen

    settings = Settings.load(
        tools=_modules(arguments),
        metrics_host=arguments.metrics_host,
        metrics_port=arguments.metrics_port,
        replica_id=arguments.replica_id,
    )
    settings.check_serving()
    configure_logging(settings.log_level, settings.log_format, settings.replica_id)
    _warn_of_unknown(settings)
    if arguments.fd is None:
        check_bind(settings.auth, arguments.host)
        listener = listen(arguments.host, arguments.port)
    else:
        listener = inherit(arguments.fd)
        check_bind(settings.auth, listener.getsockname()[0])
    with listener:
        from gateway.app import serve  # last: it loads the web framework, and a wrong setting is told sooner

        return serve(settings, listener, inherited=arguments.fd is not None, reload=arguments.reload)


def _dev(arguments: argparse.Namespace) -> int:
    from gateway import dev

    return dev.run(arguments.replicas, arguments.workers, arguments.host, arguments.port)


def _keys_new(arguments: argparse.Namespace) -> int:
    from gateway.sealing.keyring import generate_entry

    del arguments
    print(generate_entry(secrets.token_bytes))
    return 0


def _token(arguments: argparse.Namespace) -> int:
    from gateway.auth.tokens import mint
    from gateway.settings import Settings

    settings = Settings.load()
    if settings.jwt_secret is None:
        raise ConfigurationError("no secret to sign with; set GATEWAY_JWT_SECRET as for the replicas")
    if not settings.token_audiences:
        raise ConfigurationError("no audience; set GATEWAY_AUDIENCE (or GATEWAY_JWT_AUDIENCE) as for the replicas")
    token = mint(
        settings.jwt_secret.get_secret_value(),
        arguments.sub,
        settings.token_audiences[0],
        scopes=[name for given in arguments.scope for name in given.split()],
        ttl_seconds=arguments.ttl,
        issuer=settings.jwt_issuer,
        client_id=arguments.client_id,
    )
    print(token)
    return 0


def _tools(arguments: argparse.Namespace) -> int:
    from gateway.authoring.inventory import inventory
    from gateway.authoring.registry import load_registry
    from gateway.settings import Settings

    settings = Settings.load(tools=_modules(arguments))
    if not settings.tools:
        raise ConfigurationError("no tools; name their modules in GATEWAY_TOOLS or with --tools, such as gateway.demo")
    entries = inventory(load_registry(settings.tools))
    print(json.dumps(entries, indent=2) if arguments.json else _as_text(entries))
    return 0


def _as_text(entries: Sequence[Mapping[str, Any]]) -> str:
    headings = {"tool": "NAME", "prompt": "PROMPT", "resource": "RESOURCE"}
    served = {kind: [entry for entry in entries if entry["kind"] == kind] for kind in headings}
    return "\n\n".join(_table(headings[kind], of) for kind, of in served.items() if of or kind == "tool")


def _table(heading: str, entries: Sequence[Mapping[str, Any]]) -> str:
    """Return a line for each entry, and below it what matters to a call that goes on under another release."""
    width = max(len(name) for name in (heading, *(entry["name"] for entry in entries)))
    lines = [f"{heading:<{width}}  VERSION  DESCRIPTION"]
    for entry in entries:
        text = entry.get("description", "").strip().partition("\n")[0]
        lines.append(f"{entry['name']:<{width}}  {entry['version']:<7}  {text}".rstrip())
        lines += [f"  {detail}" for detail in _details(entry)]
    return "\n".join(lines)


def _details(entry: Mapping[str, Any]) -> Iterator[str]:
    if entry.get("task", "forbidden") != "forbidden":
        yield f"task {entry['task']}, begins as a {entry['start']}"
    if entry["scopes"]:
        yield f"scopes {' '.join(entry['scopes'])}"
    for version, following in entry["migrations"].items():
        yield f"migrates checkpoints from version {version} to {following}"
    for key, asked in (entry["asks"] or {}).items():
        covers = asked["covers"]
        yield f"asks {key} ({covers.get('mode', covers['method'])}) {asked['digest']}"


def _warn_of_unknown(settings: Settings) -> None:
    for name in settings.unknown:
        log.warning("not a setting, so it has no effect; see docs/settings.md", extra={"setting": name})
