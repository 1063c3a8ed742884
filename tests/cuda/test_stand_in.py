# SPDX-License-Identifier: Apache-2.0
"""Layers on a GPU through MindSpore, driver and cuBLASLt, of which a stand-in is on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.missing import missing
from tests.support.processes import ROOT

HERE = Path(__file__).parent / "stand_in"
NAMES = ("libcuda.so.1", "libcublasLt.so.13", "libnvrtc.so.13")
# As setup.py has them, but for those that say which instructions there are.
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off")


def compile_stand_in(folder: Path) -> None:
    """Make one library, under the name of each that it stands in for."""
    first, *others = NAMES
    include = ROOT / "mindspore_rec" / "csrc"
    sources = sorted(map(str, HERE.glob("*.cc")))
    command = ["g++", *FLAGS, "-Wall", "-Wextra", "-Werror", f"-I{include}", *sources]
    try:
        done = subprocess.run(
            [*command, "-o", str(folder / first)], capture_output=True, text=True, timeout=300
        )
    except FileNotFoundError as error:
        missing("g++", f"{error}; apt-get install g++")
    assert done.returncode == 0, done.stderr
    for name in others:
        (folder / name).symlink_to(first)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Why each check has failed, "" if it has not: a process that runs them all."""
    folder = tmp_path_factory.mktemp("stand_in")
    compile_stand_in(folder)
    libraries = os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": libraries,
        "XDG_CACHE_HOME": str(folder / "cache"),  # where no kernels are yet
        "PYTHONPATH": str(ROOT),
        "GLOG_v": "3",
    }
    environment.pop("MINDSPORE_REC_DENSE_DEVICE", None)
    done = subprocess.run(
        [sys.executable, "-m", "tests.cuda.stand_in_checks"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


CHECKS = (
    "a_gpu_without_memory",
    "another_gpu_is_not_there",
    "the_device_is_the_stand_in",
    "the_doctor_finds_the_stand_in",
    "training_deepfm",
    "training_dcn",
    "training_dcn_v2",
    "training_dlrm",
    "training_towers",
    "training_in_a_graph",
    "training_in_bfloat16",
    "two_trainings_have_the_same_bits",
    "a_checkpoint_goes_on_on_the_cpu",
    "rows_of_many_pinned_pieces",
    "bfloat16_inputs",
    "vectors_of_numbers",
    "gradients_in_evaluation",
    "an_empty_batch",
    "forward_passes_whose_gradients_nobody_asks_for",
    "a_layer_that_a_step_calls_often",
    "networks_that_are_gone_give_their_memory_back",
    "several_threads",
    "a_batch_that_has_no_memory",
    "every_kernel_has_run",
    "nothing_wrote_past_its_memory",
)


def test_all_checks_are_listed(found: dict[str, str]) -> None:
    assert list(found) == list(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_on_the_stand_in(found: dict[str, str], check: str) -> None:
    assert not found[check], found[check]
