"""The command `gateway`.

Output is for people. A mistake that the operator can fix is one line on stderr and exit code 2, never a traceback.
Each command imports what it needs when it runs, so the small ones start at once.
"""

# ruff: noqa: PLC0415 - see above: `keys new` must not load a web framework

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import secrets
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gateway.cli.failures import CommandFailed
from gateway.cli.own_code import find_own_workers, import_from_working_directory
from gateway.ensured import ensured
from gateway.errors import ConfigurationError
from gateway.runtime.compilation import is_compiled
from gateway.runtime.standard_streams import drop_output, open_standard_streams
from gateway.runtime.undumpable import hide_from_others
from gateway.runtime.version import __version__

if TYPE_CHECKING:
    from gateway.settings.model import Settings
    from gateway.upstreams.config.definition import UpstreamFile

EXIT_FAILED: Final = 1
EXIT_CONFIGURATION: Final = 2
WORKERS: Final = "gateway_workers.__main__"
"""Started by name: the gateway never imports its workers."""

_SERVING: Final = frozenset({"serve", "dev", "worker"})
SHELLS: Final = ("bash", "zsh", "fish")
_FURTHER_READING: Final = (
    "All other settings come from the environment (GATEWAY_…, or GATEWAY_…_FILE for secrets); see docs/run/settings.md."
)

_CLAIM_OPTIONS: Final = {
    "sub": "use --sub",
    "scope": "use --scope",
    "iss": "use --issuer",
    "client_id": "use --client-id",
    "exp": "use --ttl",
    "aud": "set GATEWAY_AUDIENCE or GATEWAY_JWT_AUDIENCE",
    "iat": "it is always the current time",
}
"""How to set the claims that `--claim` may not set."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code: 0 done, 1 failed, 2 configured wrongly, 130 interrupted.

    141: nobody reads the output any more, as in `gateway tools | head -1`. In a command that serves, a broken pipe is
    an error as any other.
    """
    given = sys.argv[1:] if argv is None else list(argv)
    hide_from_others()
    open_standard_streams()
    try:
        try:
            return _run(given)
        except BrokenPipeError:
            if not _SERVING.intersection(given[:1]):
                raise
            traceback.print_exc()
            return EXIT_FAILED
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
        return 128 + signal.SIGPIPE


def _run(given: list[str]) -> int:
    if given[:1] == ["worker"]:
        import_from_working_directory()
        find_own_workers()
        return int(importlib.import_module(WORKERS).main(given[1:], prog="gateway worker"))
    arguments = _parser(given[:1]).parse_args(given)
    import_from_working_directory()
    try:
        code: int = arguments.run(arguments)
    except ConfigurationError as error:
        for problem in error.problems:
            print(f"gateway: {problem}", file=sys.stderr)
        return EXIT_CONFIGURATION
    except CommandFailed as failure:
        print(f"gateway: {failure}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return code


def _parser(command: Sequence[str], worker: argparse.ArgumentParser | None = None) -> argparse.ArgumentParser:
    """Return the parser. The options of `gateway worker`, which its own package parses, matter only for completion."""
    parser = argparse.ArgumentParser(
        prog="gateway",
        description=(
            "Serve MCP tools from any number of identical replicas. Between requests, the state of a call travels "
            "sealed through the client, so replicas share keys instead of storage. Only background tasks and "
            "single-use tools need Redis."
        ),
        epilog="Start with `gateway dev`: it serves the demo tools from two replicas on http://127.0.0.1:8080/mcp.",
    )
    parser.add_argument(
        "-V",
        "--version",
        action="version",
        version=f"sealed-gateway {__version__} ({'compiled' if is_compiled() else 'interpreted'})",
        help="show the version, and whether it is compiled (docs/run/compiled.md)",
    )
    commands = _add_commands(parser)
    _add_serve(commands)
    _add_dev(commands)
    commands.add_parser("worker", help="run tasks in the background")  # its options are its own: see `main`
    _add_keys(commands)
    _add_token(commands)
    _add_tools(commands)
    _add_upstreams(commands)
    _add_check(commands)
    _add_status(commands)
    _add_tasks(commands)
    _add_reload(commands)
    _add_completion(commands)
    _add_size(commands, with_options=list(command) == ["size"])
    if worker is not None:
        commands.choices["worker"] = worker
    return parser


_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no public name


def _add_commands(parser: argparse.ArgumentParser) -> _Commands:
    """Let the parser take one of several commands. Without one, print its help."""

    def explain(_: argparse.Namespace) -> int:
        parser.print_help(sys.stderr)
        return EXIT_CONFIGURATION

    parser.set_defaults(run=explain)
    return parser.add_subparsers(title="commands", metavar="COMMAND")


def _add_address_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host", metavar="ADDRESS", help="the address to listen on (default: GATEWAY_HOST, otherwise 127.0.0.1)"
    )
    parser.add_argument(
        "--port",
        type=_number("a port", 0, 65535),
        help="the port to listen on; 0 picks a free one (default: GATEWAY_PORT, otherwise 8080)",
    )


def _add_serve(commands: _Commands) -> None:
    parser = commands.add_parser(
        "serve",
        help="serve tools from one replica",
        description=(
            "Serve MCP on POST /mcp, health checks on GET /healthz and /readyz, and metrics on a separate port."
        ),
        epilog="Set GATEWAY_SEAL_KEYS, GATEWAY_AUDIENCE and, unless GATEWAY_AUTH=none, GATEWAY_JWT_SECRET or "
        "GATEWAY_JWKS_URL. " + _FURTHER_READING,
    )
    _add_address_options(parser)
    parser.add_argument(
        "--metrics-port",
        metavar="PORT",
        help="the port of GET /metrics; 0 picks a free one, off disables it (default: 9464)",
    )
    parser.add_argument(
        "--metrics-host", metavar="ADDRESS", help="the address to serve metrics on (default: 127.0.0.1)"
    )
    _add_tools_option(parser)
    _add_upstreams_option(parser)
    parser.add_argument("--replica-id", metavar="NAME", help="this replica's name in logs and in X-Gateway-Replica")
    parser.add_argument(
        "--fd", type=int, metavar="N", help="inherit the listening socket with this file descriptor instead of a port"
    )
    parser.add_argument(
        "--metrics-fd",
        type=int,
        metavar="N",
        help="inherit the metrics socket with this file descriptor, unless --metrics-port is off",
    )
    parser.add_argument(
        "--reload",
        action="store_true",
        help="reload the tool modules when their files change, and notify clients of changed lists",
    )
    parser.set_defaults(run=_serve)


def _add_dev(commands: _Commands) -> None:
    parser = commands.add_parser(
        "dev",
        help="try it: run several replicas behind one port, and a worker",
        description=(
            "Run several replicas behind one port that sends each request to the next replica, and a worker for tasks. "
            "Settings that you leave out get values for this run: a new seal key, the audience `dev`, no "
            "authentication, a task store, and the demo tools. Press Ctrl-C to stop. It also stops when its terminal "
            "closes or nobody reads its output any more."
        ),
        epilog=_FURTHER_READING,
    )
    parser.add_argument(
        "--replicas",
        type=_number("a number", 1, 64),
        default=2,
        metavar="N",
        help="how many replicas to run (default: %(default)s)",
    )
    parser.add_argument(
        "--workers",
        type=_number("a number", 0, 64),
        default=1,
        metavar="N",
        help="how many workers to run; 0 runs none (default: %(default)s)",
    )
    _add_address_options(parser)
    _add_tools_option(parser, "GATEWAY_TOOLS, or the demo tools unless there are upstreams")
    _add_upstreams_option(parser)
    parser.add_argument(
        "--reload",
        action="store_true",
        help="reload the tool modules in replicas and workers when their files change",
    )
    parser.set_defaults(run=_dev)


def _add_keys(commands: _Commands) -> None:
    parser = commands.add_parser(
        "keys", help="make and compare seal keys", description="Make and compare the keys that seal unfinished calls."
    )
    actions = _add_commands(parser)
    new = actions.add_parser(
        "new",
        help="print a new seal key",
        description="Print a new key for GATEWAY_SEAL_KEYS. Give the same value to every replica.",
        epilog="To rotate keys, roll out `old,new`, then `new,old`, then `new`. The first key seals, all keys open.",
    )
    new.set_defaults(run=_keys_new)
    show = actions.add_parser(
        "show",
        help="print the ids of the seal keys",
        description=(
            "Print the id of each key in GATEWAY_SEAL_KEYS (or GATEWAY_SEAL_KEYS_FILE), and whether the key seals or "
            "only opens. The metric gateway_seal_keys shows the same ids. An id reveals nothing about its key."
        ),
    )
    show.set_defaults(run=_keys_show)


def _add_token(commands: _Commands) -> None:
    parser = commands.add_parser(
        "token",
        help="print a bearer token for development",
        description="Print a bearer token that a replica with the same GATEWAY_JWT_SECRET and audience accepts.",
        epilog="In production, an authorization server issues the tokens. " + _FURTHER_READING,
    )
    parser.add_argument("--sub", required=True, metavar="NAME", help="the user that the token identifies")
    parser.add_argument(
        "--scope", action="append", default=[], metavar="NAME", help="a scope to grant; repeat it to grant several"
    )
    parser.add_argument(
        "--ttl",
        type=_number("a number of seconds", 1, 31_536_000),
        default=3600,
        metavar="SECONDS",
        help="how long the token is valid (default: %(default)s)",
    )
    parser.add_argument("--client-id", metavar="NAME", help="the client that acts for the user")
    parser.add_argument("--issuer", metavar="NAME", help="the issuer of the token (default: GATEWAY_JWT_ISSUER)")
    parser.add_argument(
        "--claim",
        type=_claim,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another claim; VALUE is JSON if it parses, otherwise text; repeat it to add several",
    )
    parser.set_defaults(run=_token)


def _add_tools(commands: _Commands) -> None:
    parser = commands.add_parser(
        "tools",
        help="list the tools that would be served",
        description=(
            "List the tools, prompts and resources of GATEWAY_TOOLS: name, version, and the questions they declare. "
            "Each question has a digest. If the digest changes, a call in flight asks the question again. List the "
            "upstreams of GATEWAY_UPSTREAMS too, without connecting to them."
        ),
        epilog="Before you upgrade, compare the JSON of both releases; see docs/run/upgrading.md.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, including schemas and what each digest covers")
    _add_tools_option(parser)
    _add_upstreams_option(parser)
    parser.set_defaults(run=_tools)


def _add_upstreams(commands: _Commands) -> None:
    parser = commands.add_parser(
        "upstreams",
        help="list, pin and test other MCP servers",
        description="Connect to each upstream of GATEWAY_UPSTREAMS, and list its tools, prompts and resources.",
        epilog="Exit codes: 0 all of them answer, 1 one does not, 2 the file is wrong. See docs/run/upstreams.md.",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument(
        "--haproxy",
        action="store_true",
        help="print the requests that no upstream receives, for deploy/haproxy.cfg; no upstream is asked",
    )
    _add_tools_option(parser)
    _add_upstreams_option(parser)
    parser.set_defaults(run=_upstreams)
    actions = parser.add_subparsers(title="commands", metavar="COMMAND")
    pin = actions.add_parser(
        "pin",
        help="write the lock file of tools",
        description=(
            "Write the digests of the tools of all upstreams to the lock file, next to the file of upstreams. The "
            "option `pin` of an upstream decides what happens to tools that differ from it later."
        ),
    )
    _add_upstreams_option(pin, argparse.SUPPRESS)
    pin.set_defaults(run=_upstreams_pin)
    test = actions.add_parser(
        "test",
        help="call a tool of an upstream",
        description="Call a tool of an upstream without a client. Its questions are asked in the terminal.",
    )
    test.add_argument("name", metavar="NAME", help="the upstream")
    test.add_argument("tool", metavar="TOOL", nargs="?", help="the tool to call; left out, list the tools")
    test.add_argument(
        "arguments", metavar="KEY=VALUE", nargs="*", help="an argument of the tool; VALUE is a text or JSON"
    )
    _add_upstreams_option(test, argparse.SUPPRESS)
    test.set_defaults(run=_upstreams_test)


def _add_size(commands: _Commands, *, with_options: bool) -> None:
    parser = commands.add_parser(
        "size",
        help="calculate how many replicas, workers and Redis servers you need",
        description=(
            "Calculate how many replicas, workers and Redis servers you need, from your load at the busiest moment "
            "and the measured capacity of one replica."
        ),
        epilog="docs/run/sizing.md explains the model and how to measure your own machine.",
    )
    if with_options:  # the model takes longer to load than the other commands have time for
        from gateway.sizing.command import add_options, perform

        add_options(parser)
        parser.set_defaults(run=perform)


def _add_check(commands: _Commands) -> None:
    parser = commands.add_parser(
        "check",
        help="check the configuration without serving",
        description=(
            "Check settings, keys, tools, task store and identity provider without serving, and report each problem "
            "with its solution."
        ),
        epilog="Exit codes: 0 no problems, 1 the store or the provider is unreachable, 2 the configuration is wrong.",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    _add_tools_option(parser)
    _add_upstreams_option(parser)
    parser.set_defaults(run=_check)


def _add_status(commands: _Commands) -> None:
    parser = commands.add_parser(
        "status",
        help="show what a running fleet does",
        description=(
            "Show the replicas and workers whose metrics are at the URLs: versions, running legs and tasks, waiting "
            "calls. Show how many tasks the store of GATEWAY_REDIS_URL has in each phase, and the oldest unfinished "
            "one."
        ),
        epilog="Exit codes: 0 everything answers, 1 something does not, 2 the configuration is wrong. "
        "See docs/run/operating.md.",
    )
    parser.add_argument(
        "--metrics",
        nargs="+",
        default=[],
        metavar="URL",
        help="the metrics of a process, such as http://10.0.0.11:9464; a name with several addresses stands for a "
        "process at each (default: those of this machine, from GATEWAY_METRICS_HOST and GATEWAY_METRICS_PORT)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_status)


def _add_tasks(commands: _Commands) -> None:
    parser = commands.add_parser(
        "tasks",
        help="list and cancel the tasks of all callers",
        description=(
            "List and cancel the tasks of all callers. Arguments, questions, answers and results are not shown, nor "
            "is the caller: OWNER is a name that only the store knows."
        ),
        epilog="Set GATEWAY_REDIS_URL, GATEWAY_SEAL_KEYS and GATEWAY_AUDIENCE as for the workers. " + _FURTHER_READING,
    )
    actions = _add_commands(parser)
    shown = actions.add_parser("list", help="list tasks, oldest first", description="List tasks, oldest first.")
    shown.add_argument(
        "--phase",
        action="append",
        default=[],
        choices=("queued", "running", "waiting", "done", "cancelled"),
        help="tasks in this phase; repeat it for several (default: all that have not ended)",
    )
    shown.add_argument("--tool", metavar="NAME", help="tasks of this tool")
    shown.add_argument(
        "--limit",
        type=_number("a number", 1, 1_000_000),
        default=100,
        metavar="N",
        help="how many tasks to list (default: %(default)s)",
    )
    shown.add_argument("--json", action="store_true", help="print JSON")
    _add_owner_option(shown)
    shown.set_defaults(run=_tasks_list)
    cancel = actions.add_parser(
        "cancel",
        help="cancel tasks for good",
        description=(
            "Cancel tasks for good, as their owners can. A worker that runs one stops, and clients see `cancelled`. "
            "The audit log gets a line for each."
        ),
        epilog="Exit codes: 0 all of them are cancelled, 1 one is unknown or has ended, 2 the configuration is wrong.",
    )
    cancel.add_argument("ids", metavar="ID", nargs="+", help="a task, as `gateway tasks list` shows it")
    _add_owner_option(cancel)
    cancel.set_defaults(run=_tasks_cancel)


def _add_owner_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--owner", default="", metavar="NAME", help="tasks of owners whose names begin like this")


def _add_reload(commands: _Commands) -> None:
    parser = commands.add_parser(
        "reload",
        help="make the processes of this machine read their files again",
        description=(
            "Send SIGHUP to the replicas and workers of this machine. They read keys, upstreams and the Redis URL "
            "again, and open a moved audit log again."
        ),
        epilog="Exit codes: 0 the signal was sent, 1 no replica or worker of this user was found.",
    )
    parser.set_defaults(run=_reload)


def _reload(_arguments: argparse.Namespace) -> int:
    from gateway.cli.reload import reload_processes

    reached = reload_processes()
    if not reached:
        print("gateway: no replica or worker of this user runs on this machine", file=sys.stderr)
        return 1
    print(f"sent SIGHUP to {', '.join(map(str, reached))}")
    return 0


def _add_completion(commands: _Commands) -> None:
    parser = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        description="Print a script that completes the commands and options of `gateway` in a shell.",
        epilog=(
            "Save it as ~/.local/share/bash-completion/completions/gateway for bash, as _gateway in a folder of $fpath "
            "for zsh, or as ~/.config/fish/completions/gateway.fish for fish."
        ),
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell to print the script for")
    parser.set_defaults(run=_completion)


_FILE_OPTIONS: Final = frozenset({"--tools", "--upstreams", "--costs"})
"""The options whose values are files, or may be. A shell completes their names."""


def _add_tools_option(parser: argparse.ArgumentParser, default: str = "GATEWAY_TOOLS") -> None:
    parser.add_argument(
        "--tools",
        nargs="+",
        metavar="MODULE|FILE",
        help="the Python modules or files that define the tools, such as bugs or ./bugs.py, separated by spaces or "
        f"commas (default: {default})",
    )


def _add_upstreams_option(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    parser.add_argument(
        "--upstreams",
        metavar="FILE",
        default=default,
        help="the file that names other MCP servers to serve, as desktop clients write it (default: GATEWAY_UPSTREAMS)",
    )


def _number(what: str, least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what} between {least} and {most}")
        return int(text)

    return read


def _claim(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, such as tenant=acme")
    if name in _CLAIM_OPTIONS:
        raise argparse.ArgumentTypeError(f"{name!r} is reserved; {_CLAIM_OPTIONS[name]}")
    try:
        return name, json.loads(value, parse_constant=_no_constant)
    except ValueError:
        return name, value


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _modules(arguments: argparse.Namespace) -> str | None:
    return None if arguments.tools is None else ",".join(arguments.tools)


def _serve(arguments: argparse.Namespace) -> int:
    from gateway.observability.logs import configure_logging
    from gateway.process.preflight import find_problems, find_tool_problems, find_upstream_problems, warn_of_unknown
    from gateway.settings.model import Settings
    from gateway.settings.problems import Problems

    problems = Problems()
    settings = Settings.load(
        problems=problems,
        tools=_modules(arguments),
        upstreams=arguments.upstreams,
        host=arguments.host,
        port=arguments.port,
        metrics_host=arguments.metrics_host,
        metrics_port=arguments.metrics_port,
        replica_id=arguments.replica_id,
    )
    configure_logging(settings.log_level, settings.log_format, settings.replica_id)
    warn_of_unknown(settings)
    find_problems(settings, problems)
    find_tool_problems(settings, problems)
    find_upstream_problems(settings, problems)
    listener = None
    with contextlib.ExitStack() as stack:
        with problems.noted():
            listener = stack.enter_context(_listener(arguments.fd, settings))
        problems.raise_any()
        # Imported last: loading the web framework takes time, and wrong settings should be reported before that.
        from gateway.process.app import serve
        from gateway.web.listener import inherit

        return serve(
            settings,
            ensured(listener, "or there is a problem"),
            inherited=arguments.fd is not None,
            reload=arguments.reload,
            metrics_sock=None if arguments.metrics_fd is None else inherit(arguments.metrics_fd, "--metrics-fd"),
        )


def _listener(inherited: int | None, settings: Settings) -> socket.socket:
    from gateway.auth.bind import check_bind
    from gateway.web.listener import inherit, listen

    if inherited is None:
        check_bind(settings.auth, settings.host)
        return listen(settings.host, settings.port)
    listener = inherit(inherited)
    check_bind(settings.auth, listener.getsockname()[0])
    return listener


def _dev(arguments: argparse.Namespace) -> int:
    from gateway.cli import dev

    return dev.run(
        arguments.replicas,
        arguments.workers,
        arguments.host,
        arguments.port,
        tools=_modules(arguments),
        upstreams=arguments.upstreams,
        reload=arguments.reload,
    )


def _keys_new(arguments: argparse.Namespace) -> int:
    from gateway.sealing.keyring import generate_entry

    del arguments
    print(generate_entry(secrets.token_bytes))
    return 0


def _keys_show(arguments: argparse.Namespace) -> int:
    from gateway.sealing.keyring import KeyRing
    from gateway.settings.model import Settings
    from gateway.settings.problems import Problems

    del arguments
    problems = Problems()
    settings = Settings.load(problems=problems)
    with problems.noted():
        settings.check_sealing()
    keys = settings.seal_keys
    with problems.noted():
        ring = None if keys is None else KeyRing.parse(keys.get_secret_value())
    problems.raise_any()
    ring = ensured(ring, "`check_sealing` has checked the keys")
    for key in ring.keys:
        print(f"{key.key_id.hex()}  {'seals' if key is ring.sealing_key else 'opens'}")
    return 0


def _token(arguments: argparse.Namespace) -> int:
    from gateway.auth.tokens import mint
    from gateway.settings.model import Settings
    from gateway.settings.problems import Problems

    problems = Problems()
    settings = Settings.load(problems=problems)
    with problems.noted():
        settings.check_minting()
    problems.raise_any()
    token = mint(
        ensured(settings.jwt_secret, "`check_minting` has checked it").get_secret_value(),
        arguments.sub,
        settings.token_audiences[0],
        scopes=[name for given in arguments.scope for name in given.split()],
        ttl_seconds=arguments.ttl,
        issuer=settings.jwt_issuer if arguments.issuer is None else arguments.issuer,
        client_id=arguments.client_id,
        claims=dict(arguments.claim),
        scope_claim=settings.jwt_scope_claim or "scope",
    )
    print(token)
    return 0


def _tools(arguments: argparse.Namespace) -> int:
    from gateway.authoring.server import identity_of
    from gateway.process.preflight import find_tool_problems, find_upstream_problems
    from gateway.registry.inventory import inventory
    from gateway.registry.registry import load_registry
    from gateway.settings.model import Settings
    from gateway.settings.problems import Problems

    problems = Problems()
    settings = Settings.load(problems=problems, tools=_modules(arguments), upstreams=arguments.upstreams)
    with problems.noted():
        settings.check_tools()
    find_tool_problems(settings, problems, serves=False)
    found = find_upstream_problems(settings, problems, works=True)
    problems.raise_any()
    registry = load_registry(settings.tools)
    entries = inventory(registry)
    if arguments.json:
        print(json.dumps([*entries, *_upstream_entries(found)], indent=2))
    else:
        parts = [_as_text(entries)] if entries or found is None else []
        parts += [] if found is None else [_upstreams_as_text(_upstream_entries(found))]
        print("\n\n".join([*parts, f"served as {identity_of(settings, registry.introduction).summary}"]))
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from gateway.cli.check import examine
    from gateway.observability.logs import configure_logging

    configure_logging("error", "text", "check")  # warnings are part of the report
    report = examine(_modules(arguments), upstreams=arguments.upstreams)
    print(report.as_json() if arguments.json else report.as_text())
    return report.exit_code


def _status(arguments: argparse.Namespace) -> int:
    import asyncio

    from gateway.cli import status

    settings = _settings_of_store(needs_store=False)
    text, well = asyncio.run(
        status.show(settings, arguments.metrics or status.own_metrics(settings), as_json=arguments.json)
    )
    print(text)
    return 0 if well else EXIT_FAILED


def _tasks_list(arguments: argparse.Namespace) -> int:
    import asyncio

    from gateway.cli import tasks

    wanted = tasks.Wanted(arguments.phase, arguments.tool, arguments.owner)
    print(asyncio.run(tasks.show(_settings_of_store(), wanted, arguments.limit, as_json=arguments.json)))
    return 0


def _tasks_cancel(arguments: argparse.Namespace) -> int:
    import asyncio

    from gateway.cli import tasks

    asyncio.run(tasks.cancel(_settings_of_store(), arguments.ids, arguments.owner, print))
    return 0


def _settings_of_store(*, needs_store: bool = True) -> Settings:
    """Return the settings of a command that reads the task store, if there has to be one, or there is one."""
    from gateway.observability.logs import configure_logging
    from gateway.settings.model import Settings
    from gateway.settings.problems import Problems

    problems = Problems()
    settings = Settings.load(problems=problems)
    if needs_store or settings.redis_url is not None:
        with problems.noted():
            settings.check_storing()
    problems.raise_any()
    configure_logging("error", "text", settings.replica_id)  # an outage is part of the report
    return settings


def _upstreams(arguments: argparse.Namespace) -> int:
    if arguments.haproxy:
        from gateway.cli import own_requests

        print(own_requests.show(_modules(arguments), arguments.upstreams))
        return 0
    from gateway.cli.upstreams import show

    text, code = show(_settings_of_upstreams(arguments), as_json=arguments.json)
    print(text)
    return code


def _upstreams_pin(arguments: argparse.Namespace) -> int:
    from gateway.cli.upstreams import pin

    text, code = pin(_settings_of_upstreams(arguments))
    print(text)
    return code


def _upstreams_test(arguments: argparse.Namespace) -> int:
    from gateway.cli.upstream_call import call

    settings = _settings_of_upstreams(arguments)
    return call(settings, arguments.name, arguments.tool, arguments.arguments, say=print, read=input)


def _settings_of_upstreams(arguments: argparse.Namespace) -> Settings:
    """Return the settings. Warnings about upstreams go to stderr."""
    from gateway.observability.logs import configure_logging
    from gateway.settings.model import Settings

    configure_logging("warning", "text", "upstreams")
    return Settings.load(upstreams=arguments.upstreams)


def _completion(arguments: argparse.Namespace) -> int:
    import shtab

    find_own_workers()
    parser = _parser(["size"], importlib.import_module(WORKERS).make_parser("gateway worker"))
    for action in _all_actions(parser):
        if _FILE_OPTIONS.intersection(action.option_strings):
            action.complete = shtab.FILE
    print(shtab.complete(parser, arguments.shell))
    return 0


def _all_actions(parser: argparse.ArgumentParser) -> Iterator[Any]:
    """Yield the options and arguments of a parser and of its commands."""
    for action in parser._actions:  # noqa: SLF001 - nothing public lists them
        yield action
        if isinstance(action.choices, Mapping):
            for command in action.choices.values():
                yield from _all_actions(command)


def _upstream_entries(found: UpstreamFile | None) -> list[dict[str, Any]]:
    """Return the upstreams of a file. Finding what they serve would need a connection."""
    if found is None:
        return []
    return [
        {"kind": "upstream", "name": each.name, "prefix": each.prefix, each.place_kind: each.place}
        for each in found.definitions
    ]


def _upstreams_as_text(entries: Sequence[Mapping[str, Any]]) -> str:
    width = max(len(name) for name in ("UPSTREAM", *(entry["name"] for entry in entries)))
    lines = [f"{'UPSTREAM':<{width}}  SERVED"]
    for entry in entries:
        names = f"{entry['prefix']}__" if entry.get("prefix") else ""
        place = entry.get("url") or entry.get("command") or entry["python"]
        lines.append(f"{entry['name']:<{width}}  {names}* from {place}")
    return "\n".join(lines)


def _as_text(entries: Sequence[Mapping[str, Any]]) -> str:
    headings = {"tool": "NAME", "prompt": "PROMPT", "resource": "RESOURCE"}
    served = {kind: [entry for entry in entries if entry["kind"] == kind] for kind in headings}
    return "\n\n".join(_table(headings[kind], of) for kind, of in served.items() if of or kind == "tool")


def _table(heading: str, entries: Sequence[Mapping[str, Any]]) -> str:
    """Return a line for each entry, followed by what matters to a call that continues under another release."""
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
