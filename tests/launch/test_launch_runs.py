# SPDX-License-Identifier: Apache-2.0
"""Jobs that the launcher runs: restarts, modules, stopping, and the launcher's own end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.run_workers import PATIENCE, environment, launch, need_mpi

RESTARTED = """
import os, pathlib, sys, time
rank = os.environ["OMPI_COMM_WORLD_RANK"]
place = pathlib.Path(f"tries-{rank}")
tries = int(place.read_text()) + 1 if place.exists() else 1
place.write_text(str(tries))
print("try", tries, "of", sys.argv[1:], len(os.sched_getaffinity(0)), os.environ["OMP_NUM_THREADS"])
print("to stderr", file=sys.stderr, flush=True)
sys.stdout.flush()
# mpirun may not say which process failed if all end at the same moment.
time.sleep(1 if rank == "1" else 3)
sys.exit(9 if rank == "1" and tries < int(sys.argv[1]) else 0)
"""

STOPPED = """
import os, pathlib, signal, sys, time
from mindspore_rec.parallel import worker_group
group = worker_group()
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
pathlib.Path(f"pid-{group.rank}").write_text(str(os.getpid()))
pathlib.Path(f"pid-{group.rank}").rename(f"ready-{group.rank}")
for step in range(100_000):
    if any(group.all_gather_json(bool(stop))):
        break
    time.sleep(0.01)
print("stopped together")
"""


def test_restarts_until_all_end_well(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RESTARTED)
    done = launch("-n", "2", "--restarts", "5", "--no-bind", "train.py", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cores = len(os.sched_getaffinity(0))
    threads = max(1, cores // 2)
    tries = [f"try {n} of ['3'] {cores} {threads}" for n in (1, 2, 3)]
    # A worker that the failed one has ended may not have come to its print.
    lines = set(done.stdout.splitlines())
    assert {f"[1] {each}" for each in tries} <= lines and f"[0] {tries[2]}" in lines
    assert "[1] to stderr" in done.stderr.splitlines()
    said = [line for line in done.stderr.splitlines() if line.startswith("mindspore_rec.launch")]
    assert len(said) == 3
    assert "worker 1 ended with exit code 9" in said[0] and "; restart 1 of 5" in said[0]
    assert "; restart 2 of 5" in said[1] and "2 workers on this host ended well" in said[2]


def test_the_last_code_stays_where_restarts_are_used_up(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RESTARTED)
    done = launch("-n", "2", "--restarts", "1", "train.py", "9", cwd=tmp_path)
    assert done.returncode == 9
    assert (tmp_path / "tries-1").read_text() == "2"
    assert "worker 1 ended with exit code 9" in done.stderr.splitlines()[-1]


def test_a_module_of_the_folder_and_more_workers_than_cores(tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "go.py").write_text("import sys\nprint(sys.argv[1:])\n")
    workers = len(os.sched_getaffinity(0)) + 1
    done = launch("-n", str(workers), "-m", "trainer.go", "--n", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = [f"[{rank}] ['--n', '1']" for rank in range(workers)]
    assert sorted(done.stdout.splitlines()) == expected


def start(tmp_path: Path) -> subprocess.Popen[str]:
    """Starts two workers that run until they are stopped; returns when they run."""
    need_mpi()
    (tmp_path / "train.py").write_text(STOPPED)
    process = subprocess.Popen(
        [sys.executable, "-m", "mindspore_rec.launch", "-n", "2", "train.py"],
        env=environment(),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Also where this test run is in the background, which ignores Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + PATIENCE
    while not all((tmp_path / f"ready-{rank}").exists() for rank in range(2)):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_all_workers_to_stop(number: signal.Signals, tmp_path: Path) -> None:
    process = start(tmp_path)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, stderr
    assert sorted(stdout.splitlines()) == ["[0] stopped together", "[1] stopped together"]
    assert stderr.splitlines()[-1].endswith(", asked to stop")


def test_workers_end_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    process = start(tmp_path)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + PATIENCE
    workers = [(tmp_path / f"ready-{rank}").read_text() for rank in range(2)]
    while any(Path("/proc", worker).exists() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)
