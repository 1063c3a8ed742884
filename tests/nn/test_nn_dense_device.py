# SPDX-License-Identifier: Apache-2.0
"""The device of dense layers: its names, the environment, refusals; with a stand-in for a GPU."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mindspore import nn

from mindspore_rec import get_dense_device, set_dense_device
from mindspore_rec.nn import MLP, FusedGraph
from mindspore_rec.train import placement_report
from mindspore_rec.train.nn.fused import device as module
from tests.nn.stand_in_gpus import StandInGpus
from tests.support.processes import ROOT

WHAT_IT_TAKES = (
    "It takes a GPU of compute capability 8.0 or more, NVIDIA's driver, and the libraries of: pip "
    "install 'nvidia-cuda-nvrtc>=13,<14' 'nvidia-cublas>=13,<14'"
)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> StandInGpus:
    """Two GPUs, in a process that has chosen no device yet."""
    return StandInGpus(2).stand_in(monkeypatch)


@pytest.mark.parametrize(
    "name", ["gpu", "cuda", "cuda:", "cuda:-1", "cuda:01", "cuda:1 ", "CPU", "", "cuda:9999999999"]
)
def test_other_names_are_refused(name: str) -> None:
    before = get_dense_device()
    with pytest.raises(ValueError, match=r"^device must be 'cpu' or 'cuda:N', .* got "):
        set_dense_device(name)
    assert get_dense_device() == before


@pytest.mark.parametrize("name", [3, None, b"cpu", ["cpu"]])
def test_what_is_no_name_is_refused(name: Any) -> None:
    before = get_dense_device()
    with pytest.raises(TypeError, match="^device must be a str, 'cpu' or 'cuda:N', .* got "):
        set_dense_device(name)
    assert get_dense_device() == before


def test_layers_keep_the_device_they_were_made_on(gpus: StandInGpus) -> None:
    assert get_dense_device() == "cpu"
    first = MLP(4, (3,))
    set_dense_device("cuda:1")
    assert get_dense_device() == "cuda:1"
    second = MLP(4, (3,))
    set_dense_device("cpu")
    copied = copy.deepcopy(second)
    found = [each.fused_training.runs_on for each in (first, second, copied)]
    assert found == ["cpu", "cuda:1", "cuda:1"]
    first.set_compute_dtype("float32")
    second.set_compute_dtype("bfloat16")
    assert second.fused_evaluation.runs_on == "cpu"  # made anew


def test_a_gpu_is_opened_once(gpus: StandInGpus) -> None:
    set_dense_device("cuda:0")
    set_dense_device("cuda:0")
    (opened,) = gpus.opened
    assert opened[0] == 0 and sorted(opened[1]) == ["cublasLt", "nvrtc"]


def test_a_gpu_that_is_not_there_changes_nothing(gpus: StandInGpus) -> None:
    for before in ("cpu", "cuda:0"):
        set_dense_device(before)
        with pytest.raises(RuntimeError) as caught:
            set_dense_device("cuda:2")
        reason = "device 'cuda:2' cannot be used: there is no GPU 2, 2 are here. "
        assert str(caught.value) == reason + WHAT_IT_TAKES
        assert get_dense_device() == before


def test_the_environment_is_read_when_a_layer_is_made(
    gpus: StandInGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(module.VARIABLE, "cuda:1")
    assert MLP(4, (3,)).fused_training.runs_on == "cuda:1"
    monkeypatch.setenv(module.VARIABLE, "cuda:0")  # not read again
    assert get_dense_device() == "cuda:1"


def test_a_program_decides_before_the_environment(
    gpus: StandInGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(module.VARIABLE, "cuda:1")
    set_dense_device("cpu")
    assert get_dense_device() == "cpu" and gpus.opened == []


def test_a_wrong_environment_is_an_error_of_every_layer(
    gpus: StandInGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(module.VARIABLE, "gpu")
    for _ in range(2):
        with pytest.raises(ValueError, match=f"^{module.VARIABLE} must be 'cpu' or 'cuda:N'"):
            MLP(4, (3,))
    monkeypatch.setenv(module.VARIABLE, "cuda:7")
    for _ in range(2):
        with pytest.raises(RuntimeError, match=f"^{module.VARIABLE}=cuda:7 cannot be used: there"):
            MLP(4, (3,))
    set_dense_device("cpu")
    MLP(4, (3,))


def test_one_of_several_workers_is_refused(
    gpus: StandInGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.delenv("MINDSPORE_REC_WORKER_PROCESS", raising=False)
    monkeypatch.delenv("MINDSPORE_REC_LAUNCHER", raising=False)
    with pytest.raises(RuntimeError, match="cannot be used by one of several workers: .* 'cpu'"):
        set_dense_device("cuda:0")
    assert get_dense_device() == "cpu"
    set_dense_device("cpu")


def test_without_operators_a_gpu_is_an_error() -> None:
    variables = {"MINDSPORE_REC_ONEDNN": "off", module.VARIABLE: "cuda:0", "GLOG_v": "3"}
    done = subprocess.run(
        [sys.executable, "-c", "from mindspore_rec.nn import MLP; MLP(4, (3,))"],
        env={**os.environ, **variables, "PYTHONPATH": path_of_this_clone()},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert (
        "MINDSPORE_REC_DENSE_DEVICE=cuda:0 cannot be used: on a GPU are dense layers that run as "
        "operators, and MINDSPORE_REC_ONEDNN=off asks for MindSpore's own layers"
    ) in done.stderr.splitlines()[-1]


def path_of_this_clone() -> str:
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def test_a_machine_without_a_gpu_says_what_is_missing() -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has a GPU")
    before = get_dense_device()
    with pytest.raises(RuntimeError) as caught:
        set_dense_device("cuda:0")
    assert "device 'cuda:0' cannot be used: " in str(caught.value)
    assert "libcuda.so.1" in str(caught.value) and str(caught.value).endswith(WHAT_IT_TAKES)
    assert get_dense_device() == before


def test_the_placement_report_says_where_layers_run(gpus: StandInGpus) -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.before = MLP(4, (3,))
            set_dense_device("cuda:1")
            self.deep = MLP(4, (2,))
            self.graph = FusedGraph({"x": 4}, {"y": (self.deep, ("x",))})
            self.own = nn.Dense(2, 1)

    net = Net()
    set_dense_device("cpu")
    found = [(row.operator, row.of, row.place) for row in placement_report(net).rows]
    assert found == [
        ("dense network", "10 parameters", "cuda:1 (Some GPU 1, driver 13.0)"),
        ("dense network", "18 parameters", "device (CPU)"),
    ]
