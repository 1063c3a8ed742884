# SPDX-License-Identifier: Apache-2.0
"""A run's directory for the tests of serving."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_server import Server, ready_server
from tests.support.processes import start_python
from tests.support.waiting import wait_until


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Full at step 0 and 4, deltas of each step up to 6."""
    from tests.serving.serving_network import train

    root = tmp_path_factory.mktemp("serving") / "run"
    train(root, 6, every_steps=4, delta_every_steps=1, keep=5)
    return root


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `trained`, and its training wrote the network as ONNX in a process of its own."""
    from tests.serving.serving_network import MARKED, train

    root = tmp_path_factory.mktemp("exported") / "run"
    train(root, 6, every_steps=4, delta_every_steps=1, publication=MARKED)
    return root


@pytest.fixture(scope="session")
def several(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of one model in two versions, the second a fixed checkpoint, and another model."""
    fixed = tmp_path_factory.mktemp("fixed")
    (fixed / "network").symlink_to(exported / "network")
    (fixed / "000000000004.full").symlink_to(exported / "000000000004.full")
    models = [f"--model=click={exported}", f"--model=click={fixed}", f"--model=other={fixed}"]
    with ready_server(None, *models, "--model-control=explicit", "--grpc-port=0") as started:
        yield started


@pytest.fixture(scope="module")
def server(trained: Path) -> Iterator[Server]:
    """A server of the shared model, for the tests of a module."""
    options = ["--network", "tests.serving.serving_network:Marked", "--input", "ids:INT64:-1,3"]
    with ready_server(trained, *options, "--name", "model") as started:
        yield started


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy that the test may change."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts trainers in processes of their own: (directory, pause, steps between fulls, keys)."""
    started = []

    def start(root: Path, pause: float = 0.05, fulls: int = 10, keys: int = 50) -> Any:
        arguments = map(str, (root, pause, fulls, keys))
        process = start_python(
            "-m", "tests.serving.serving_network", *arguments, stdout=None, stderr=subprocess.PIPE
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def wait() -> Callable[..., None]:
    """Waits until something is so."""
    return wait_until
