# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while data are read, or a model is evaluated, ends a command with 130 and one line."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from models.common import commands
from models.deepfm.config import MODEL

CONFIG = """
data: {kind: synthetic, rows: 600, test_rows: 100, max_cardinality: 20, pair_cardinality: 20}
embedding: {embedding_dim: 4}
train: {batch_size: 256, epochs: 1, evaluations: 1, seed: 0}
"""


@pytest.mark.parametrize("command", [commands.train_command, commands.evaluate_command])
def test_ctrl_c_while_data_are_read(graph_mode, monkeypatch, tmp_path: Path, capsys, command):
    (tmp_path / "run.yaml").write_text(CONFIG)

    def interrupted(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(commands, "open_run", interrupted)
    arguments = ["--config", str(tmp_path / "run.yaml")]
    if command is commands.evaluate_command:
        arguments += ["--load", str(tmp_path)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert command(MODEL, arguments) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted"
