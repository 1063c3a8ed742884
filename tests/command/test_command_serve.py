# SPDX-License-Identifier: Apache-2.0
"""`mindspore-rec serve`: ONNX at the first start, and signals that arrive early."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from mindspore_rec.command.main import main
from tests.command.click_table import YAML, write_clicks
from tests.support.processes import start_python

ONCE = "writing the network as ONNX, once, to serve without MindSpore\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the YAML file of a trained model."""
    linear = re.sub("model: .*", "model: logistic_regression", YAML)
    yaml = write_clicks(tmp_path_factory.mktemp("serve"), 500, linear)
    assert main(["train", str(yaml), "--epochs", "1", "--no-baseline"]) == 0
    return yaml


def serve(yaml: Path) -> subprocess.Popen[str]:
    command = ("-m", "mindspore_rec", "serve", yaml, "--port", "0")
    return start_python(*command, stderr=subprocess.PIPE)


def test_the_first_serve_writes_onnx_and_the_next_finds_it(trained: Path) -> None:
    for says in (ONCE, ""):
        server = serve(trained)
        assert server.stdout is not None
        listening, version = server.stdout.readline(), server.stdout.readline()
        assert listening.startswith("listening at "), server.communicate()
        assert version.rstrip().endswith("answers by onnxruntime"), version
        server.send_signal(signal.SIGTERM)
        assert server.communicate(timeout=60)[1] == says
        assert server.returncode == 0


@pytest.mark.parametrize("seconds", [0.0, 0.7, 1.5, 3.0])
def test_a_signal_while_mindspore_is_imported_ends_the_server(
    trained: Path, tmp_path: Path, seconds: float
) -> None:
    yaml = Path(shutil.copytree(trained.parent, tmp_path / "copy")) / trained.name
    network = yaml.parent / "clicks.run" / "model" / "network"
    shutil.rmtree(network, ignore_errors=True)
    network.mkdir()
    (network / "network.json").write_text(json.dumps({"format_version": 1, "reason": "a test"}))
    server = serve(yaml)
    assert server.stdout is not None
    assert server.stdout.readline().startswith("listening at ")
    time.sleep(seconds)
    server.send_signal(signal.SIGTERM)
    _, errors = server.communicate(timeout=60)
    assert server.returncode in (0, -signal.SIGTERM), errors
    assert errors == ""
