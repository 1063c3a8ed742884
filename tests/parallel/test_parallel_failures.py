# SPDX-License-Identifier: Apache-2.0
"""A worker that fails ends the whole job within seconds, with a code that is not 0."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from tests.support.nightly import nightly
from tests.support.workers import launch, mpirun

SCRIPT = str(Path(__file__).parent / "failing_script.py")
WAITED = r"mindspore_rec: worker 0 of 2: waited \d+ s for worker 1 on channel 'step'; "


@pytest.mark.parametrize(
    ("how", "code", "summary", "printed"),
    [
        ("kill", 137, r"worker 1 was ended by signal 9 \(SIGKILL\)", ""),
        ("exception", 1, "worker 1 ended with exit code 1", r"\[1\] ValueError: a bad row"),
        ("exit 3", 3, "worker 1 ended with exit code 3", WAITED + "worker 1 has ended; step 10"),
        ("fewer steps", 1, "worker 1 ended while another worker waited", "worker 1 has ended"),
        (
            "exception beside a thread that waits",
            1,
            "worker 1 ended with exit code 1",
            r"\[1\] ValueError: a bad row",
        ),
        *nightly(
            (
                "fault",
                139,
                r"worker 1 was ended by signal 11 \(SIGSEGV\)",
                r"\[1\] .*line \d+ in fail",
            ),
            ("raise exit 5", 5, "worker 1 ended with exit code 5", "worker 1 has ended"),
            ("exit 0", 1, "worker 1 ended while another worker waited", "worker 1 has ended"),
            ("abort", 1, "worker 1 ended with exit code 1", r"\[1\] worker 1 of 2: the disk is"),
        ),
    ],
)
def test_one_that_ends(how: str, code: int, summary: str, printed: str, tmp_path: Path) -> None:
    done = launch("-n", "2", SCRIPT, how, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert re.search(printed, done.stderr)
    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(rf"mindspore_rec.launch: {summary}.*, which ended the others .*", last)


def test_one_that_hangs(tmp_path: Path) -> None:
    """All print where they are, also the one that does nothing of MPI."""
    done = launch("-n", "3", "--hang-limit", "2", SCRIPT, "hang", cwd=tmp_path)
    assert done.returncode == 124, done.stderr
    waited = r"\[{0}\] mindspore_rec: worker {0} of 3: waited 2 s for worker 1 on channel 'step'; "
    for rank in (0, 2):
        assert re.search(waited.format(rank) + "the limit is 2 s; step 10;", done.stderr)
        assert re.search(rf'\[{rank}\]   File ".*failing_script.py", line \d+ in main', done.stderr)
    of_1 = r"\[1\] mindspore_rec: worker 1 of 3: worker [02] has waited for too long and ends the "
    assert len(re.findall(of_1 + "job; step 9; its threads:", done.stderr)) == 1
    assert re.search(r'\[1\]   File ".*failing_script.py", line \d+ in fail', done.stderr)
    assert re.search(r"worker [02] waited too long for another one", done.stderr.splitlines()[-1])


@pytest.mark.parametrize(
    ("how", "code"), [("exception", 1), *nightly(("exit 3", 3), ("kill", 137))]
)
def test_under_a_plain_mpirun(how: str, code: int, tmp_path: Path) -> None:
    assert mpirun("-n", "2", sys.executable, SCRIPT, how, cwd=tmp_path).returncode == code


def test_the_limit_of_a_plain_mpirun_is_in_the_environment(tmp_path: Path) -> None:
    done = mpirun(
        "-n", "2", sys.executable, SCRIPT, "hang", cwd=tmp_path, MINDSPORE_REC_HANG_LIMIT="1"
    )
    assert done.returncode == 124
    assert re.search(WAITED + "the limit is 1 s", done.stderr)


def test_one_that_takes_its_time_at_the_end_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "slow_end.py").write_text(
        "import time\n"
        "from mindspore_rec.parallel import worker_group\n"
        "group = worker_group()\n"
        "group.barrier()\n"
        "if group.rank == 0:\n"
        "    time.sleep(3)\n"
        "    print('the report')\n"
    )
    start = time.monotonic()
    done = launch("-n", "2", "--hang-limit", "1", "slow_end.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "[0] the report\n"), done.stderr
    assert time.monotonic() - start > 3
