# SPDX-License-Identifier: Apache-2.0
"""Start of the server's command: arguments it refuses, its ports, and files it leaves behind."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mindspore_rec import CacheConfig
from mindspore_rec.common.extras import pip_install
from mindspore_rec.serve.following.tiers import ServedTiers
from mindspore_rec.serve.main import main
from mindspore_rec.serve.network.own_directory import OwnDirectory
from mindspore_rec.serve.server.held_port import hold_port
from tests.support.http_server import Server
from tests.support.missing import need_package
from tests.support.processes import start_python
from tests.support.redis_server import free_port

LIMIT = 100  # seconds


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory of the test's own."""
    path = tmp_path / "temporary"
    path.mkdir()
    monkeypatch.setenv("TMPDIR", str(path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield path


WRONG = [
    (["--name", "a/b"], "--name must be a text without '/', got 'a/b'"),
    (["--name", ""], "--name must be a text"),
    (["--max-batch-rows", "-1"], "--max-batch-rows: must be a whole number from 0 to 1073741824"),
    (["--max-batch-rows", "many"], "--max-batch-rows: must be a whole number from 0"),
    (["--poll-seconds", "0"], "--poll-seconds: must be above 0 and at most 86400 seconds, got '0'"),
    (["--poll-seconds", "nan"], "--poll-seconds: must be above 0"),
    (["--wait-seconds", "-1"], "--wait-seconds: must be from 0 to 1e+09 seconds, got '-1'"),
    (["--max-requests", "x"], "--max-requests: must be a whole number from 1 to 1048576, got 'x'"),
    (["--drain-seconds", "inf"], "--drain-seconds: must be from 0 to 86400 seconds, got 'inf'"),
    (["--host-rows", "5"], "--host-rows must be left out without --remote and --ssd-path"),
    (["--host-policy", "lru"], "--host-policy must be left out without --remote and --ssd-path"),
    (["--host-rows", "0", "--ssd-path", "x"], "--host-rows must be in [1, "),
    (["--ssd-path", "x"], "--host-rows or --host-bytes must be given with --ssd-path"),
    (["--remote", "http://x", "--host-rows", "5"], "--remote must be a URL of Redis"),
    (
        ["--ssd-path", "x", "--host-rows", "5", "--rows", "int8"],
        "--rows must be float32 with --ssd-path or --remote, got int8",
    ),
    (["--workers", "2", "--network", "a:b"], "--network is for one process"),
    (["--input", "ids"], "--input: an input must be name:datatype:shape"),
    (["--input", "ids:INT65:-1"], "--input: "),
    (["--input", "ids:INT64:x"], "--input: an input must be name:datatype:shape"),
    (["--workers", "2", "--input", "v:FP32:-1:offsets=o"], "--input: input 'v' must have any"),
    (["--features", "math"], "--features: a builder must be 'package.module:function', got 'math'"),
    (["--features", "no_such_module:f"], "--features: the builder 'no_such_module:f' cannot be"),
    (["--features", "math:no_such"], "--features: the builder 'math:no_such' cannot be imported"),
    (["--features", "math:pi"], "--features: the builder 'math:pi' is not a function"),
    (["--workers", "2", "--features", "math:pi"], "--features: the builder 'math:pi' is not a"),
    (["--announcements", "news"], "--announcements must be BROKERS/TOPIC, got 'news'"),
    (["--announcements", "a:1,,b:2/news"], "--announcements must be BROKERS/TOPIC"),
    (["--workers", "2", "--announcements", "a:9092/"], "--announcements must be BROKERS/TOPIC"),
]


@pytest.mark.parametrize(("options", "words"), WRONG, ids=[" ".join(each) for each, _ in WRONG])
def test_options_that_are_refused_at_once(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path), "--port", "0", *options])
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""  # it has not listened
    assert words in " ".join(said.err.split())
    assert said.err.count("error: ") == 1


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(
    ("does", "said_so"),
    [
        ("raise OSError('no data')", "OSError: no data"),
        ("raise SystemExit(3)", "its module ends the process (3)"),
    ],
)
def test_a_module_of_features_that_fails_is_named(
    does: str,
    said_so: str,
    workers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "failing_features.py").write_text(f"{does}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("failing_features", None)
    options = ["--port", "0", "--workers", workers, "--features", "failing_features:made"]
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path), *options])
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith(
        f"error: --features: 'failing_features:made' cannot be imported: {said_so}\n"
    )


def test_a_port_that_is_held_is_nobody_elses() -> None:
    port = free_port()
    with hold_port("127.0.0.1", port):
        with pytest.raises(OSError, match="in use"):
            hold_port("127.0.0.1", port)
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", port))
        workers = [socket.create_server(("127.0.0.1", port), reuse_port=True) for _ in range(2)]
        for _ in range(20):  # the socket that holds it takes none
            socket.create_connection(("127.0.0.1", port), LIMIT).close()
        for worker in workers:
            worker.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), LIMIT)
    hold_port("127.0.0.1", port).close()


def test_workers_do_not_share_a_port_of_grpc_with_another_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_package("grpc", pip_install("grpc"))
    port = free_port()
    options = ["--port", "0", "--workers", "2", "--grpc-port", str(port)]
    with socket.create_server(("127.0.0.1", port), reuse_port=True):
        assert main([str(tmp_path), *options]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"error: cannot listen at 127.0.0.1:{port}: ")
    assert said.err.count("\n") == 1


def run_patched(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A server in a process where some code comes first."""
    run = f"{code}\nfrom mindspore_rec.serve import main\nmain.run()"
    return start_python("-c", run, *arguments, stderr=subprocess.PIPE)


def test_workers_that_cannot_listen_end_the_server(tmp_path: Path) -> None:
    need_package("grpc", pip_install("grpc"))
    code = (
        "from mindspore_rec.serve.server.grpc_front import GrpcServer\n"
        "async def start(self): raise OSError(f'cannot listen at {self.port}')\n"
        "GrpcServer.start = start"
    )
    options = ["--port", "0", "--workers", "2", "--grpc-port", str(free_port())]
    process = run_patched(code, str(tmp_path), *options)
    out, error = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    assert out.count("listening") == 1
    lines = [line for line in error.splitlines() if not line.startswith("waiting: ")]
    assert len(lines) == 1 and lines[0].startswith("error: OSError: cannot listen at ")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_signal_before_the_server_runs_is_not_lost(tmp_path: Path, workers: str) -> None:
    code = (
        "import os, signal\n"
        "from mindspore_rec.serve.server.process import Server\n"
        "run = Server.run\n"
        "def run_late(self, **more):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    run(self, **more)\n"
        "    print('ended', flush=True)\n"
        "    if os.environ['WORKERS'] == '2': os.kill(os.getppid(), signal.SIGTERM)\n"
        f"os.environ['WORKERS'] = '{workers}'\n"
        "Server.run = run_late"
    )
    process = run_patched(code, str(tmp_path), "--port", "0", "--workers", workers)
    out, error = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, error
    assert out.splitlines()[1:] == ["ended"]


def test_directories_of_servers_that_were_killed_are_removed(
    tmp_path: Path, temporary: Path, wait
) -> None:
    def there() -> set[str]:
        return {path.name for path in temporary.glob("mindspore_rec_serving.*")}

    with OwnDirectory() as mine:
        with Server(tmp_path, "--workers", "2") as server:
            wait(lambda: len(there()) == 3)
            server.process.kill()
            server.process.wait()
        left = there() - {mine.name}
        assert len(left) == 2
        strange = temporary / "mindspore_rec_serving.link"
        strange.symlink_to(tmp_path)
        deadline = time.monotonic() + LIMIT
        while True:  # until the processes of that server have ended, too
            with OwnDirectory() as another:
                if there() == {mine.name, another.name, strange.name}:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with Server(tmp_path, "--workers", "2") as server:
            wait(lambda: len(there()) == 4)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(LIMIT) == 0
        assert there() == {mine.name, strange.name}
    assert tmp_path.exists()


def test_a_tier_that_is_away_at_the_start_does_not_prevent_the_end(exported: Path) -> None:
    options = ["--remote", f"redis://127.0.0.1:{free_port()}", "--host-rows", "10"]
    code = (
        "import os, signal, threading, time\n"
        "sleep = time.sleep\n"
        "def tell(seconds):\n"
        "    if threading.current_thread().name == 'load': os.kill(os.getpid(), signal.SIGTERM)\n"
        "    sleep(seconds)\n"
        "time.sleep = tell"
    )
    process = run_patched(code, str(exported), "--port", "0", *options)
    _, error = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, error
    assert "terminate" not in error


def test_a_limited_address_space_is_named(exported: Path) -> None:
    code = (
        "import resource\n"
        "import mindspore_rec.serve.main\n"
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "import os\n"
        "sysconf = os.sysconf\n"
        "os.sysconf = lambda n: 16 << 20 if n == 'SC_PHYS_PAGES' else sysconf(n)"
    )
    process = run_patched(code, str(exported), "--port", "0", "--workers", "2")
    _, error = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    assert "error: RuntimeError: shared memory: " in error and "(ulimit -v)" in error
    assert "Traceback" not in error


def test_a_remote_tier_that_is_away_is_waited_for_once_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Away:
        asked = 0

        def clear_rows(self) -> None:
            Away.asked += 1
            raise ConnectionError("nobody is there")

    tiers = ServedTiers(CacheConfig(host_rows=1, remote="redis://127.0.0.1:1"))
    tiers._remote = [(Away(), None), (Away(), None)]
    tiers.release()
    tiers.release()
    assert Away.asked == 1
    assert caplog.text.count("stay on Redis: nobody is there") == 1
