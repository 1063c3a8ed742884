# SPDX-License-Identifier: Apache-2.0
"""A run that vanishes, and a follower that hangs, are in status, metrics and readiness."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_rec.serve.following.pulse import Pulse
from mindspore_rec.serving import Predictor
from tests.serving.serving_network import ids
from tests.support.http_server import Server, children, ready_server


@pytest.fixture
def copied(exported: Path, tmp_path: Path) -> Path:
    """A run with its network that the test may change."""
    return Path(shutil.copytree(exported, tmp_path / "run"))


def vanish(run: Path, how: str) -> Path:
    """Take a run away; return where it is."""
    away = run.rename(run.with_name("away"))
    if how == "emptied":
        run.mkdir()
    elif how == "a file":
        run.write_text("")
    return away


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("removed", "is not there any more"),
        ("emptied", "there is no checkpoint in"),
        ("a file", "Not a directory"),
    ],
)
@pytest.mark.parametrize("follow", [True, False])
def test_a_run_that_vanishes(copied: Path, wait, how: str, words: str, follow: bool) -> None:
    with Predictor(copied, poll_seconds=0.02, follow=follow) as predictor:
        assert predictor.status().error is None
        away = vanish(copied, how)

        def error() -> str:
            try:
                return predictor.status().error or ""
            except OSError as failed:  # without a follower the caller's look fails
                assert not follow
                return str(failed)

        wait(lambda: words in error())
        np.testing.assert_array_equal(predictor.predict(ids(2)), 6)
        if how == "emptied":
            copied.rmdir()
        elif how == "a file":
            copied.unlink()
        away.rename(copied)
        wait(lambda: error() == "")
        assert predictor.status().looked_seconds is not None


def test_a_checkpoint_alone_that_vanishes(exported: Path, tmp_path: Path, wait) -> None:
    from mindspore_rec.common.run.command import main

    assert main(["merge", str(exported), "--to", str(tmp_path / "saved")]) == 0
    with Predictor(tmp_path / "saved", poll_seconds=0.02) as predictor:
        time.sleep(0.1)
        assert predictor.status().error is None
        shutil.rmtree(tmp_path / "saved")
        wait(lambda: "is not there any more" in (predictor.status().error or ""))


def test_a_training_that_goes_back_is_logged(
    copied: Path, wait, caplog: pytest.LogCaptureFixture
) -> None:
    with Predictor(copied, poll_seconds=0.02) as predictor:
        for step in (5, 6):
            shutil.rmtree(copied / f"{step:012d}.delta")
        wait(lambda: predictor.status().version == 4)
    told = [record.getMessage() for record in caplog.records if "went back" in record.getMessage()]
    assert len(told) == 1 and "(step 6)" in told[0] and "(step 4)" in told[0]


@pytest.mark.parametrize(
    ("applying", "seconds", "late"),
    [(False, 5, False), (False, 30, True), (True, 30, False), (True, 3600, True)],
)
def test_the_pulse_knows_what_is_late(
    monkeypatch: pytest.MonkeyPatch, applying: bool, seconds: float, late: bool
) -> None:
    pulse, now = Pulse(), time.monotonic()
    assert pulse.seconds() is None and pulse.complaint(0.1) is None
    pulse.beat(applying)
    assert pulse.complaint(0.1) is None
    monkeypatch.setattr(time, "monotonic", lambda: now + seconds)
    assert (pulse.complaint(0.1) is not None) == late
    assert pulse.complaint(7200) is None or applying


def test_the_pulse_tells_a_stopped_process_from_a_slow_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pulse, now = Pulse(), time.monotonic()
    pulse.show_life()
    pulse.beat(applying=True)  # where a writer with many deltas nearly always is
    assert pulse.complaint(0.1) is None
    monkeypatch.setattr(Pulse, "_note", lambda self, offset: None)  # the thread stands still
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    assert "it was stopped" in (pulse.complaint(0.1) or "")


def series(server: Server, name: str) -> float:
    connection = server.client()._connection
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    wanted = f'mindspore_rec_serving_{name}{{model="model"}} '
    (found,) = [line.removeprefix(wanted) for line in lines if line.startswith(wanted)]
    return float(found)


def readiness(server: Server) -> dict[str, int]:
    client = server.client()
    paths = {"server": "/v2/health/ready", "model": "/v2/models/model/ready"}
    return {name: client.ask(path)[0] for name, path in paths.items()}


READY, OLD = {"server": 200, "model": 200}, {"server": 503, "model": 503}


def test_a_writer_that_hangs_and_states_that_are_old(tmp_path: Path, trainer, wait) -> None:
    root = tmp_path / "run"
    training = trainer(root, pause=0.05, fulls=15)
    with ready_server(root, "--workers=2", "--max-age-seconds=8") as server:
        wait(lambda: readiness(server) == READY)

        def status() -> Any:
            return server.client().ask("/status")[1]

        wait(lambda: status()["error"] is None and status()["looked_seconds"] < 5)
        writer = children(server.process.pid)["rec writer"]
        os.kill(writer, signal.SIGSTOP)
        wait(lambda: readiness(server) == OLD)  # states go on, and none arrives
        version = status()["version"]
        assert server.client().ask(f"/v2/models/model/versions/{version}/ready")[0] == 200
        assert server.client().infer(ids())[0] == 200
        wait(lambda: status()["error"])
        said = status()
        assert "it was stopped" in said["error"] and not said["following"]
        assert said["looked_seconds"] > 10
        assert series(server, "model_following_failed") == 1
        assert series(server, "model_following") == 0
        assert series(server, "model_looked_seconds") > 10
        os.kill(writer, signal.SIGCONT)
        wait(lambda: readiness(server) == READY)
        wait(lambda: status()["error"] is None and status()["following"])
        assert series(server, "model_following") == 1
        training.kill()  # a trainer that ends, and whose directory goes away
        training.wait()
        shutil.rmtree(root)
        wait(lambda: "is not there any more" in (status()["error"] or ""))
        assert series(server, "model_following_failed") == 1
        wait(lambda: readiness(server) == OLD)
