# SPDX-License-Identifier: Apache-2.0
"""Workers that Open MPI starts tell each other what they should."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.workers import launch, mpirun

SCRIPT = str(Path(__file__).parent / "exchange_script.py")


def test_workers_of_the_launcher_in_pieces_of_1000_bytes(tmp_path: Path) -> None:
    """Every longer message goes in pieces, as one over 1 GiB would."""
    done = launch("-n", "3", SCRIPT, cwd=tmp_path, MINDSPORE_REC_MPI_MESSAGE_BYTES="1000")
    assert done.returncode == 0, done.stderr + done.stdout
    lines = sorted(done.stdout.splitlines())
    assert lines == [f"[{rank}] checked {rank} of 3" for rank in range(3)]
    assert "3 workers on this host ended well" in done.stderr.splitlines()[-1]


def test_workers_of_a_plain_mpirun(tmp_path: Path) -> None:
    done = mpirun("-n", "2", sys.executable, SCRIPT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["checked 0 of 2", "checked 1 of 2"]


def test_one_worker_of_mpirun_is_alone(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        "from mindspore_rec.parallel import worker_group\nprint(worker_group().size)\n"
        "print('libmpi' in open('/proc/self/maps').read())\n"
    )
    done = mpirun("-n", "1", sys.executable, "one.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1\nFalse\n")
