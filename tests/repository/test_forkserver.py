"""A forked process is as good as a started one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import coverage
import pytest

from loadtest.cluster.common import Process, clean_environment
from tests import forkserver
from tests.forkserver import TOP, Forked, ForkServerError
from tests.integration.fleet import Fleet

pytestmark = pytest.mark.slow

SECONDS = 60
ENDS = {
    "at the end": "print('out'); sys.stderr.write('err')",
    "with a code": "sys.exit(3)",
    "with words": "sys.exit('wrong')",
    "with None": "sys.exit()",
    "with an error": "raise ValueError('wrong')",
    "interrupted": "raise KeyboardInterrupt",
    "killed": "print('lost', end=''); os.kill(os.getpid(), signal.SIGKILL)",
    "terminated": "os.kill(os.getpid(), signal.SIGTERM)",
    "at once": "print('lost', end=''); os._exit(4)",
    "with text in the buffer": "print('half', end='')",
    "after its threads": "threading.Thread(target=lambda: (time.sleep(0.01), print('thread'))).start()",
    "with functions for it": "atexit.register(print, 'last'); print('first')",
    "with a pipe that nobody reads": "os.dup2(os.pipe()[1], 1); print('x')",
}
TELLING = """
import json, os, random, signal, sys, threading
print(json.dumps({
    "environ": dict(os.environ),
    "getenv": os.popen("env | grep ^GATEWAY_").read(),
    "argv": sys.argv,
    "path": sys.path,
    "name": __name__,
    "cwd": os.getcwd(),
    "leads": os.getsid(0) == os.getpid() == os.getpgid(0),
    "inheritable": [os.get_inheritable(n) for n in range(3)],
    "handlers": [str(signal.getsignal(n)) for n in range(1, 32)],
    "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "threads": threading.active_count(),
    "main": threading.current_thread() is threading.main_thread(),
    "streams": [
        [s.name, s.encoding, s.errors, s.line_buffering, s.write_through, s.fileno(), type(s.buffer).__name__]
        for s in (sys.stdout, sys.stderr)
    ],
}, sort_keys=True))
"""


@pytest.fixture(scope="module", autouse=True)
def own_server() -> Iterator[None]:
    """A server for this module, which may be killed."""
    before = list(forkserver._servers)
    forkserver._servers.clear()
    yield
    forkserver.stop()
    forkserver._servers.extend(before)


def start(program: str, cwd: Path, *arguments: str, starter: Callable[..., Any] = forkserver.start, **more: Any) -> Any:
    source = cwd / "program.py"
    if not source.exists():
        source.write_text(program)
    environ = more.pop("env", None) or clean_environment({"GATEWAY_X": "1", "PYTHONUNBUFFERED": ""})
    return starter([sys.executable, "-m", "program", *arguments], env=environ, cwd=cwd, **more)


def outcome(program: str, cwd: Path, starter: Callable[..., Any], **more: Any) -> tuple[int, str, str]:
    """Return the program's exit code and output."""
    with (cwd / "out").open("w+b") as out, (cwd / "err").open("w+b") as err:
        process = start(program, cwd, "an", "argument", starter=starter, stdout=out, stderr=err, **more)
        code = process.wait(SECONDS)
    return code, (cwd / "out").read_text(), (cwd / "err").read_text()


def last_line(text: str) -> str:
    return text.splitlines()[-1] if text else ""


@pytest.mark.parametrize("program", ENDS.values(), ids=ENDS)
def test_a_fork_ends_as_a_started_process_does(program: str, tmp_path: Path) -> None:
    whole = f"import atexit, os, signal, sys, threading, time\n{program}\n"
    code, out, err = outcome(whole, tmp_path, forkserver.start)
    started = outcome(whole, tmp_path, subprocess.Popen)
    assert (code, out, last_line(err)) == (*started[:2], last_line(started[2]))


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("new_session", [True, False])
def test_a_fork_begins_as_a_started_process_does(unbuffered: str, new_session: bool, tmp_path: Path) -> None:
    environ = clean_environment({"GATEWAY_X": "é\n1", "TEST_Y": "2", "PYTHONUNBUFFERED": unbuffered})
    options = {"env": environ, "start_new_session": new_session, "stdin": subprocess.DEVNULL}
    forked = outcome(TELLING, tmp_path, forkserver.start, **options)
    assert forked == outcome(TELLING, tmp_path, subprocess.Popen, **options)
    assert forked[0] == 0


def test_nothing_is_imported_before_a_fork_that_reads_the_environment_when_it_is(tmp_path: Path) -> None:
    program = "import sys; print(*sys.modules, sep='\\n')"
    _, out, _ = outcome(program, tmp_path, forkserver.start)
    imported = out.splitlines()
    assert "gateway.process.app" in imported
    assert not [name for name in imported if name.startswith(forkserver.LEFT_OUT)]


def test_a_fork_gets_the_file_descriptors_under_their_own_numbers_and_no_others(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfor n in sys.argv[1:]: os.write(int(n), n.encode())\nprint(len(os.listdir('/proc/self/fd')))"
    )
    pipes = [os.pipe() for _ in range(5)]
    writers = [writer for _, writer in reversed(pipes)]
    with (tmp_path / "out").open("w+b") as out:
        process = start(program, tmp_path, *map(str, writers), pass_fds=writers, stdout=out)
        assert process.wait(SECONDS) == 0
    for reader, writer in pipes:
        os.close(writer)
        with os.fdopen(reader) as stream:
            assert stream.read() == str(writer)
    assert int((tmp_path / "out").read_text()) == 3 + len(pipes) + 1  # the last one lists them


def test_signals_reach_a_fork_alone_and_its_exit_code_says_which(tmp_path: Path) -> None:
    first, second = (start("import signal; signal.pause()", tmp_path, start_new_session=True) for _ in range(2))
    assert first.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(0.01)
    first.send_signal(signal.SIGTERM)
    assert first.wait(SECONDS) == -signal.SIGTERM
    assert second.poll() is None
    second.kill()
    assert (second.wait(SECONDS), second.poll()) == (-signal.SIGKILL, -signal.SIGKILL)
    second.send_signal(signal.SIGTERM)  # has ended, which is not an error


def test_a_fork_keeps_its_pid_until_somebody_has_read_how_it_ended(tmp_path: Path) -> None:
    process = start("", tmp_path)
    deadline = time.monotonic() + SECONDS
    while state(process.pid) != "Z":
        assert time.monotonic() < deadline
    process.wait(SECONDS)
    while Path(f"/proc/{process.pid}").exists():
        assert time.monotonic() < deadline


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def runs(pid: int) -> bool:
    try:
        return state(pid) != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_many_forks_run_at_once_and_draw_different_random_numbers(tmp_path: Path) -> None:
    program = "import random, secrets, sys, uuid; print(random.random(), uuid.uuid4(), secrets.token_hex())"
    with (tmp_path / "out").open("ab") as out:
        processes: Sequence[Process] = [start(program, tmp_path, stdout=out) for _ in range(20)]
        assert len({process.pid for process in processes}) == 20
        assert [process.wait(SECONDS) for process in processes] == [0] * 20
    lines = (tmp_path / "out").read_text().splitlines()
    assert len({word for line in lines for word in line.split()}) == 60


def test_what_a_fork_runs_is_measured_where_coverage_asks_for_it(tmp_path: Path) -> None:
    measuring = coverage.Coverage(data_file=str(tmp_path / "measured"), source=[str(tmp_path)], config_file=False)
    for config, files in (("", set()), (measuring.config.serialize(), {"program.py"})):
        environ = clean_environment({forkserver.MEASURED: config})
        process = start("print('first')\nprint('second')", tmp_path, env=environ, stdout=subprocess.DEVNULL)
        assert isinstance(process, Forked)
        assert process.wait(SECONDS) == 0
        data = coverage.CoverageData(str(tmp_path / "measured"))
        data.read()
        assert {Path(name).name for name in data.measured_files()} == files
    assert data.lines(str(tmp_path / "program.py")) == [1, 2]


@pytest.mark.parametrize(
    ("options", "environ"),
    [
        (["-P"], {}),
        ([], {"PYTHONPATH": "/nowhere"}),
        ([], {"LD_PRELOAD": ""}),
        ([], {"TZ": "Asia/Tokyo"}),
        ([], {"OTEL_TRACES_EXPORTER": "none"}),
    ],
)
def test_what_an_interpreter_decides_when_it_starts_makes_a_real_start(
    options: Sequence[str], environ: Mapping[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, *options, "-m", "this"]
    process = forkserver.start(command, env=clean_environment(environ), cwd=tmp_path, stdout=subprocess.DEVNULL)
    assert process.wait(SECONDS) == 0
    assert isinstance(process, subprocess.Popen)


def test_a_replica_of_a_test_cluster_is_forked(tmp_path: Path) -> None:
    with Fleet(tmp_path, names=("r1",)) as fleet:
        assert isinstance(fleet["r1"]._process, Forked)


def test_a_fork_that_cannot_begin_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ForkServerError, match="could not begin"):
        forkserver.start([sys.executable, "-m", "this"], env=clean_environment({}), cwd=tmp_path / "missing")


def test_a_fork_ends_with_its_server_and_the_next_one_is_an_error(tmp_path: Path) -> None:
    process = start("import signal; signal.pause()", tmp_path)
    assert isinstance(process, Forked)
    server = forkserver._servers[0].process
    server.kill()
    server.wait(SECONDS)
    with pytest.raises(ForkServerError, match="killed"):
        start("", tmp_path)
    with pytest.raises(ForkServerError, match="killed"):
        process.wait(SECONDS)
    deadline = time.monotonic() + SECONDS
    while runs(process.pid):
        assert time.monotonic() < deadline
    forkserver.stop()


def test_a_killed_test_run_leaves_no_fork_behind(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import signal; signal.pause()")
    starting = (
        "import sys, time\nfrom pathlib import Path\nfrom loadtest.cluster.common import clean_environment\n"
        "from tests import forkserver\n"
        "environ = clean_environment({'PYTHONUNBUFFERED': ''})\n"
        "fork = forkserver.start([sys.executable, '-m', 'program'], env=environ, cwd=Path(sys.argv[1]))\n"
        "print(type(fork).__name__, fork.pid, flush=True)\ntime.sleep(600)\n"
    )
    command = [sys.executable, "-c", starting, str(tmp_path)]
    with subprocess.Popen(command, cwd=TOP, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        kind, pid = run.stdout.readline().split()
        assert kind == "Forked"
        assert runs(int(pid))
        run.kill()
    deadline = time.monotonic() + SECONDS
    while runs(int(pid)):
        assert time.monotonic() < deadline
