# SPDX-License-Identifier: Apache-2.0
"""Serving where MindSpore cannot be imported, by what is in the wheel for it and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from wheel.wheelfile import WheelFile

from mindspore_rec.common.run.state_file import read_states
from tests.serving.features_network import asked, pipeline as features, train as train_features
from tests.support.processes import NO_MINDSPORE, ROOT
from tools.serving_wheel import FILES_LEFT_OUT


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The contents of the small wheel, made of one that has every file of the package."""
    root = tmp_path_factory.mktemp("wheel")
    with WheelFile(root / "mindspore_rec-1.2.3-py3-none-any.whl", "w") as wheel:
        for path in sorted((ROOT / "mindspore_rec").rglob("*")):
            if path.suffix in (".py", ".pyi", ".so", ".typed"):
                wheel.write(str(path), str(path.relative_to(ROOT)))
        wheel.writestr("mindspore_rec-1.2.3.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        wheel.writestr("mindspore_rec-1.2.3.dist-info/METADATA", "Name: mindspore_rec\n")
    command = [sys.executable, str(ROOT / "tools" / "serving_wheel.py"), wheel.filename]
    made = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    assert Path(made).name == "mindspore_rec_serving-1.2.3-py3-none-any.whl"
    with WheelFile(made) as wheel:  # which checks all files against RECORD
        wheel.extractall(root / "unpacked")
    return root / "unpacked"


def run(where: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    others = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p != str(ROOT)]
    paths = os.pathsep.join([str(where), *others])
    return subprocess.run(
        [sys.executable, "-c", NO_MINDSPORE + code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": paths},
        cwd="/",
    )


def test_the_wheel_has_all_but_training(unpacked: Path) -> None:
    package = unpacked / "mindspore_rec"
    folders = {path.name for path in package.iterdir() if path.is_dir()}
    assert {"common", "serve", "serving"} <= folders
    assert not folders & {"train", "compat", "plan"}
    files = {path.relative_to(package) for path in package.rglob("*.py")}
    whole = ROOT / "mindspore_rec"
    common = {path.relative_to(whole) for path in (whole / "common").rglob("*.py")}
    assert common - {Path(file) for file in FILES_LEFT_OUT} <= files
    assert {path.relative_to(whole) for path in (whole / "serve").rglob("*.py")} <= files


def test_a_name_of_training_says_what_to_install(unpacked: Path) -> None:
    for name in ("RecModel", "train"):
        done = run(unpacked, f"from mindspore_rec import {name}")
        last = done.stderr.splitlines()[-1]
        assert last == (
            f"ModuleNotFoundError: mindspore_rec.{name} is for training, and this installation "
            "only serves: install mindspore_rec in place of mindspore_rec_serving"
        )


DOCTOR = """
from mindspore_rec.command.main import main

code = main(["doctor", "--only", "python,core,packages,mindspore,onednn,mpi,serving,tune"])
print(code, main(["train", "clicks.yaml"]))
"""


def test_the_doctor_of_a_server_and_no_other_command(unpacked: Path) -> None:
    done = run(unpacked, DOCTOR)
    *lines, codes = done.stdout.splitlines()
    states = {line.split()[1]: line.split()[0] for line in lines}
    assert states == {
        **dict.fromkeys(("python", "core", "packages", "serving"), "ok"),
        **dict.fromkeys(("mindspore", "onednn", "mpi", "tune"), "off"),
    }
    assert str(unpacked) in lines[0] and codes == "0 1"
    assert done.stderr == (
        "error: this wheel only serves: install mindspore_rec in place of mindspore_rec_serving\n"
    )


ASK = """
import numpy as np
from mindspore_rec.serving import Predictor

import mindspore_rec

assert mindspore_rec.__file__.startswith(sys.argv[2]), mindspore_rec.__file__
with Predictor(sys.argv[1], wait_seconds=0) as predictor:
    status = predictor.status()
    print(status.runtime, status.runtime_reason, status.version)
    print(np.unique(predictor.predict(np.arange(6).reshape(2, 3))).tolist())
assert "mindspore" not in sys.modules
"""


def test_predictor_without_mindspore(exported: Path, unpacked: Path) -> None:
    done = run(unpacked, ASK, str(exported), str(unpacked))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["onnxruntime None 6", "[6.0]"]


def test_predictor_without_mindspore_and_without_a_file(
    exported: Path, unpacked: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(exported, tmp_path / "run"))
    shutil.rmtree(root / "network")
    done = run(unpacked, ASK, str(root), str(unpacked))
    assert done.returncode == 1
    assert "TimeoutError" in done.stderr and "network.json is missing" in done.stderr


def test_predictor_without_mindspore_and_with_a_damaged_file(
    exported: Path, unpacked: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(exported, tmp_path / "run"))
    path = root / "network" / "network.onnx"
    path.write_bytes(path.read_bytes()[:-1])
    done = run(unpacked, ASK, str(root), str(unpacked))
    assert done.returncode == 1
    assert "network.onnx is damaged" in done.stderr and "MindSpore cannot be" in done.stderr


RAW = """
import json
from mindspore_rec.serving import Predictor

with Predictor(sys.argv[1], wait_seconds=0) as predictor:
    print(predictor.status().runtime, json.dumps(predictor.raw_columns))
    print(json.dumps(predictor.predict(json.loads(sys.argv[2])).tolist()))
assert "mindspore" not in sys.modules
"""


def test_raw_columns_without_mindspore(unpacked: Path, tmp_path: Path) -> None:
    """The pipeline travels with the network: neither MindSpore nor the builder is there."""
    root = tmp_path / "run"
    train_features(root, 6)
    rows = asked([3.0, 70.0, None, 200.0])
    done = run(unpacked, RAW, str(root), json.dumps(rows))
    assert done.returncode == 0, done.stderr
    said, answer = done.stdout.splitlines()
    assert said == 'onnxruntime ["city", "user", "time", "price"]'
    stage = features()
    entry = root / "000000000006.delta"
    stage.load_state_dict(read_states(entry)["objects"]["train_dataset"]["transform"])
    dense = stage.apply(rows, ["dense"])["dense"]
    expected = np.concatenate([np.full((4, 3), 6, np.float32), dense], 1)
    np.testing.assert_array_equal(np.array(json.loads(answer), np.float32), expected)
