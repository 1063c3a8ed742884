# SPDX-License-Identifier: Apache-2.0
"""Lines of workers get their ranks, and what mpirun says of ends becomes one line."""

from __future__ import annotations

import io

import pytest

from mindspore_rec.common.launch.output import End, Lines
from mindspore_rec.launch import Job, Outcome

RULE = b"-" * 74 + b"\n"
EXITED = (
    RULE,
    b"prterun detected that one or more processes exited with non-zero status,\n",
    b"thus causing the job to be terminated. The first process to do so was:\n",
    b"\n",
    b"   Process name: [prterun-vm-5952@1,1]\n",
    b"   Exit code:    3\n",
    RULE,
)
KILLED = (
    RULE,
    b"prterun noticed that process rank 12 with PID 6060 on node vm-1.local exited on\n",
    b"signal 9 (Killed).\n",
    RULE,
)
EARLY = (
    RULE,
    b"prterun has exited due to process rank 1 with PID 27549 on node vm exiting\n",
    b"improperly. There are three reasons this could occur:\n",
    RULE,
)


def copied(*lines: bytes) -> tuple[bytes, End | None]:
    to = io.BytesIO()
    copy = Lines(to)
    for line in lines:
        copy.take(line)
    copy.close()
    return to.getvalue(), copy.end


def test_tags_become_ranks() -> None:
    text, end = copied(
        b"[1,0]<stdout>: hello\n",
        b"[1,12]<stderr>: \xff\rprogress [1,3]<stdout>: \n",
        b"[prterun-vm-1@1,3]<stdout>: \n",
        b"[1,0]<stdout>: " + RULE,
        b"no tag [1,0]<stdout>: x\n",
        b"[1,2]<stdout>: no end of line",
    )
    assert text == (
        b"[0] hello\n[12] \xff\rprogress [1,3]<stdout>: \n[3] \n[0] "
        + RULE
        + b"no tag [1,0]<stdout>: x\n[2] no end of line\n"
    )
    assert end is None


@pytest.mark.parametrize(
    ("block", "end", "text"),
    [
        (EXITED, End(1, 3), "worker 1 ended with exit code 3"),
        (KILLED, End(12, 137), "worker 12 was ended by signal 9 (SIGKILL)"),
        (EARLY, End(1, 0), "worker 1 ended while another worker waited for it"),
    ],
)
def test_an_end_is_taken_out_of_its_block(block: tuple[bytes, ...], end: End, text: str) -> None:
    assert copied(b"before\n", *block, b"[1,0]<stdout>: after\n") == (b"before\n[0] after\n", end)
    assert str(end) == text


def test_the_first_end_counts_and_other_blocks_are_copied() -> None:
    other = (RULE, b"There are not enough slots available in the system\n", RULE)
    assert copied(*other, *KILLED, *EXITED) == (b"".join(other), End(12, 137))


def test_lines_of_workers_inside_a_block_are_copied_at_once() -> None:
    text, end = copied(*KILLED[:2], b"[1,0]<stdout>: meanwhile\n", *KILLED[2:])
    assert (text, end) == (b"[0] meanwhile\n", End(12, 137))


def test_a_block_that_is_cut_off_is_copied() -> None:
    assert copied(RULE, b"half a message\n") == (RULE + b"half a message\n", None)


def test_the_summary_is_one_sentence() -> None:
    job = Job(workers=4, program=("x.py",), hosts=(("a", 2), ("b", 2)))
    well = Outcome(code=0, seconds=1.25, end=None, stopped=False)
    assert well.summary(job) == "4 workers on 2 hosts ended well after 1.2 s"
    stopped = Outcome(code=0, seconds=2, end=None, stopped=True)
    one = Job(workers=1, program=("x.py",))
    assert stopped.summary(one) == "1 worker on this host ended well after 2.0 s, asked to stop"
    failed = Outcome(code=3, seconds=60, end=End(1, 3), stopped=False)
    assert failed.summary(job) == (
        "worker 1 ended with exit code 3 after 60.0 s, which ended the others (4 workers on 2 "
        "hosts)"
    )
    unknown = Outcome(code=213, seconds=0, end=None, stopped=False)
    assert unknown.summary(job) == "mpirun ended with code 213 after 0.0 s (4 workers on 2 hosts)"
    assert str(End(2, 124)) == "worker 2 waited too long for another one (exit code 124)"
    assert str(End(2, 128 + 77)) == "worker 2 was ended by signal 77 (unknown)"
