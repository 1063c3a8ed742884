# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("interrupted_script.py")
ROOT = Path(__file__).parents[2]


def start(kind):
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"},
    )
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "running\n", process.stderr.read()
    time.sleep(0.2)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kind", ["arrays", "dataset", "silent"])
def test_a_signal_finishes_the_step_and_leaves_the_table_whole(kind, number):
    process = start(kind)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out == "on_train_end\ninterrupted=True complete=True whole=True again=1\n"


def test_a_second_signal_aborts():
    process = start("slow_end")
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "on_train_end\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert out == ""
    assert "KeyboardInterrupt" in err
    assert process.returncode != 0
