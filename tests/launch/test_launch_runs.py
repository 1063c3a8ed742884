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

from tests.support.processes import environment
from tests.support.waiting import wait_until
from tests.support.workers import PATIENCE, launch, need_mpi

RESTARTED = """
import os, pathlib, sys, time
rank = os.environ["OMPI_COMM_WORLD_RANK"]
place = pathlib.Path(f"tries-{rank}")
tries = int(place.read_text()) + 1 if place.exists() else 1
place.write_text(str(tries))
print("try", tries, "of", sys.argv[1:], len(os.sched_getaffinity(0)), os.environ["OMP_NUM_THREADS"])
print("to stderr", file=sys.stderr, flush=True)
sys.stdout.flush()
if rank == "1":
    time.sleep(1)
    sys.exit(9 if tries < int(sys.argv[1]) else 0)
# mpirun may not say which process failed if all end at the same moment, which on a busy machine
# may be seconds long: this one ends of itself only if the other one does not fail.
last = pathlib.Path("tries-1")
while not last.exists() or last.read_text() != sys.argv[1]:
    time.sleep(0.1)
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

# Prints more than pipes hold, at half a megabyte per second: mpirun keeps in memory what workers
# print faster than it writes, gigabytes on a busy machine. Heeds the request to stop only if
# "--heeds" is there.
PRINTING = """
import os, pathlib, signal, sys, time
stop = []
heeds = "--heeds" in sys.argv
signal.signal(signal.SIGUSR2, (lambda *_: stop.append(True)) if heeds else signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
rank = os.environ["OMPI_COMM_WORLD_RANK"]
pathlib.Path(f"pid-{rank}").write_text(str(os.getpid()))
pathlib.Path(f"pid-{rank}").rename(f"ready-{rank}")
while not pathlib.Path(f"ready-{1 - int(rank)}").exists():
    time.sleep(0.01)
while not stop:
    print("." * 1000, file=sys.stderr if "--stderr" in sys.argv else sys.stdout, flush=True)
    time.sleep(0.002)
pathlib.Path(f"stopped-{rank}").touch()
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
    assert "worker 1 ended with exit code 9" in done.stderr.splitlines()[-1], done.stderr


def test_a_module_of_the_folder_and_more_workers_than_cores(tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "go.py").write_text("import sys\nprint(sys.argv[1:])\n")
    workers = len(os.sched_getaffinity(0)) + 1
    done = launch("-n", str(workers), "-m", "trainer.go", "--n", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = [f"[{rank}] ['--n', '1']" for rank in range(workers)]
    assert sorted(done.stdout.splitlines()) == expected


def start(
    tmp_path: Path, program: str = STOPPED, *arguments: str, stdout: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Starts two workers that run until they are stopped; returns when they run."""
    need_mpi()
    (tmp_path / "train.py").write_text(program)
    # Workers that do not stop are ended after 2 s instead of 20.
    launcher = (
        "import sys, mindspore_rec.common.launch.stop as stop; stop._STOPPING = 2;"
        "from mindspore_rec.common.launch.command import main; sys.exit(main())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", launcher, "-n", "2", "train.py", *arguments],
        env=environment(),
        cwd=tmp_path,
        stdout=stdout,
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


def wait_for_workers_to_end(tmp_path: Path) -> None:
    workers = [(tmp_path / f"ready-{rank}").read_text() for rank in range(2)]
    wait_until(lambda: not any(Path("/proc", worker).exists() for worker in workers), PATIENCE)


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
    wait_for_workers_to_end(tmp_path)


@pytest.mark.parametrize("heeds", [True, False])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_workers_whose_output_nobody_reads_any_more_end(
    stream: str, heeds: bool, tmp_path: Path
) -> None:
    process = start(tmp_path, PRINTING, f"--{stream}", *["--heeds"] * heeds)
    reader = getattr(process, stream)
    assert reader.readline().endswith("...\n")
    reader.close()
    # communicate() cannot do without the stream that is closed.
    assert process.wait(PATIENCE) == 128 + signal.SIGPIPE
    wait_for_workers_to_end(tmp_path)
    assert [(tmp_path / f"stopped-{rank}").exists() for rank in range(2)] == [heeds, heeds]
    if stream == "stdout":
        assert process.stderr is not None
        said = process.stderr.read()
        assert "the output cannot be written any more ([Errno 32] Broken pipe)" in said
        assert "Traceback" not in said


def test_a_full_disk_under_the_output_ends_the_job(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        process = start(tmp_path, PRINTING, "--heeds", stdout=full.fileno())
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "No space left on device" in stderr
    wait_for_workers_to_end(tmp_path)


def test_a_second_signal_ends_workers_whose_reader_does_not_read(tmp_path: Path) -> None:
    process = start(tmp_path, PRINTING)
    time.sleep(1)  # until pipes are full
    for _ in range(2):
        process.terminate()
        time.sleep(0.5)  # of two signals at the same time one may be lost
    assert process.wait(PATIENCE) != 0
    wait_for_workers_to_end(tmp_path)
