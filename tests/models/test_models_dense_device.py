# SPDX-License-Identifier: Apache-2.0
"""A configuration's device is that of its own network, and of no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from mindspore_rec import get_dense_device
from mindspore_rec.nn import MLP
from models.common.commands import train_command
from models.common.dense_device import on_dense_device
from models.wide_deep.config import MODEL
from tests.nn.stand_in_gpus import StandInGpus

CONFIG = """
dense_device: DEVICE
data: {kind: synthetic, rows: 64, test_rows: 64, max_cardinality: 50, pair_cardinality: 20}
model: {hidden: [4]}
"""


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> StandInGpus:
    """One GPU, in a process that has chosen no device yet."""
    return StandInGpus(1).stand_in(monkeypatch)


def made_on() -> str:
    return str(MLP(4, (3,)).fused_training.runs_on)


def test_layers_of_the_block_are_on_the_device(gpus: StandInGpus) -> None:
    with on_dense_device("cuda:0"):
        assert made_on() == "cuda:0"
        with on_dense_device(None):
            assert made_on() == "cuda:0"
        with pytest.raises(KeyError), on_dense_device("cpu"):
            assert made_on() == "cpu"
            raise KeyError
        assert get_dense_device() == "cuda:0"
    assert made_on() == "cpu"


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("gpu", "error: 'dense_device': device must be 'cpu' or 'cuda:N', such as 'cuda:0', got"),
        ("cuda:1", "error: 'dense_device': device 'cuda:1' cannot be used: there is no GPU 1"),
    ],
)
def test_a_device_that_is_not_there_is_said_by_the_command(
    gpus: StandInGpus,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    device: str,
    message: str,
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(CONFIG.replace("DEVICE", device))
    assert train_command(MODEL, ["--config", str(file)]) == 1
    assert message in capsys.readouterr().err
