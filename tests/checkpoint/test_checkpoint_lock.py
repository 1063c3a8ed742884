# SPDX-License-Identifier: Apache-2.0
"""The lock of a run's directory and forked processes."""

from __future__ import annotations

import os

import pytest

from mindspore_rec.train.checkpoint.run_directory import lock
from tests.ssd.forked_holder import killed_beside_its_child


def test_a_killed_trainer_leaves_its_checkpoints_though_a_forked_child_lives(tmp_path):
    with killed_beside_its_child(lambda: lock(tmp_path)):
        lock(tmp_path).close()


def test_a_lock_of_checkpoints_is_not_given_up_by_a_child(tmp_path):
    held = lock(tmp_path)
    child = os.fork()
    if child == 0:
        held.close()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with pytest.raises(RuntimeError, match="another process writes checkpoints to"):
        lock(tmp_path)
    held.close()
    with lock(tmp_path), pytest.raises(RuntimeError, match="another process"):
        lock(tmp_path)
    lock(tmp_path).close()
