# SPDX-License-Identifier: Apache-2.0
"""Runs of the guard that serve: a run with deltas, by MindSpore and by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import mindspore as ms

from mindspore_rec import RecCheckpoint, tables_of
from mindspore_rec.checkpoint import Publication
from mindspore_rec.serving import Predictor
from tests.guard.clicks import INPUTS, Clicks, batches, model_of, questions
from tests.guard.digests import hex_of

__all__ = ["by_mindspore", "by_onnx"]

_ROWS = ("float32", "int8", "int4")


def by_mindspore(folder: Path) -> dict[str, str]:
    """Rows of three types, predicted by MindSpore."""
    return _answers(_run(folder / "run"), Clicks, "mindspore")


def by_onnx(folder: Path) -> dict[str, str]:
    """Rows of three types, predicted by ONNX Runtime."""
    return _answers(_run(folder / "run"), None, "onnx")


def _run(directory: Path) -> Path:
    """Train with a full checkpoint and deltas after it."""
    ms.set_seed(7)
    net = Clicks()
    checkpoint = RecCheckpoint(
        directory,
        every_steps=16,
        delta_every_steps=4,
        publication=Publication(builder="tests.guard.clicks:Clicks", builder_inputs=INPUTS),
    )
    model_of(net).online_train(batches(), checkpoint, progress=False)
    for table in tables_of(net):
        table.close()
    return directory


def _answers(directory: Path, network: type[Clicks] | None, runtime: str) -> dict[str, str]:
    found: dict[str, str] = {}
    inputs = None if network is None else INPUTS
    for rows in _ROWS:
        with Predictor(directory, network, inputs=inputs, rows=rows, follow=False) as predictor:
            used = predictor.status().runtime
            if runtime not in used.lower():
                raise RuntimeError(f"{used} predicts, not {runtime}")
            for name, table in predictor.digests().tables.items():
                found[f"{rows}: {name} table"] = table.digest
            found[f"{rows}: predictions"] = hex_of(predictor.predict(*questions()))
    return found
