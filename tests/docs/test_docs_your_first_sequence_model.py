# SPDX-License-Identifier: Apache-2.0
"""The guide to histories, run as it is written, by the programs and by the command."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from tests.support.processes import ROOT, run_python

GUIDE = (ROOT / "docs" / "your_first_sequence_model.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def test_from_events_to_predictions_and_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "guide.py").write_text("\n".join(blocks("python")))
    printed = run_python("-W", "error::RuntimeWarning", "guide.py", cwd=tmp_path)
    auc = re.search(r"'auc': ([0-9.]+)", printed)
    assert auc and float(auc[1]) > 0.8  # of item and price alone: about 0.66
    pairs = [each.split() for each in re.findall(r"\[([0-9. e+-]+)\]", printed)][-3:]
    (lamp, sofa), (other_lamp, other_sofa), nobody = np.array(pairs, np.float64)
    assert lamp > 0.5 > sofa and other_sofa > sofa and other_lamp < lamp
    assert ((nobody > 0) & (nobody < 1)).all()
    (tmp_path / "histories.yaml").write_text(blocks("yaml")[0])
    train, predict, _ = blocks("bash")[0].splitlines()
    for command in (f"{train} --epochs 1", predict):
        _, *arguments = command.split()
        run_python("-m", "mindspore_rec", *arguments, cwd=tmp_path)
    scores = (tmp_path / "scores.csv").read_text().splitlines()
    assert len(scores) == 20_001
