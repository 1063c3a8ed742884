# SPDX-License-Identifier: Apache-2.0
"""Load the trained model from a run directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mindspore_rec.command.run_folder import RunFolder
from mindspore_rec.common.columns.schema.layout import Field
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.graph.mode import prepare_process
from mindspore_rec.train.loop.saved_model import load
from mindspore_rec.train.models.field_rows import rows_of_field

__all__ = ["Trained", "loaded"]


class Trained:
    """A trained model.

    Args:
        path: directory of a model, or directory of a training's checkpoints.

    Attributes:
        schema: description of the columns, with the fitted scales.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        prepare_process(seed=0)
        self._model = load(Path(path))
        schema = self._model.schema
        assert schema is not None  # `load` makes the network from it
        self.schema: Schema = schema

    def predict(self, rows: Any) -> np.ndarray:
        """Return probabilities or numbers, `[N]` or `[N, T]`."""
        made: np.ndarray = self._model.predict(rows)
        return made

    def predict_after(self, *rows: Any) -> Callable[[Any], np.ndarray]:
        """Return a function like `predict`, but with the events of `rows` in the histories.

        An element of `rows` that is None is ignored.
        """
        return self._model.predict_after(*(each for each in rows if each is not None))

    def rows_of(self, field: Field, keys: np.ndarray) -> np.ndarray:
        """Return the embeddings of a field's keys, `[N, dim]`."""
        return rows_of_field(self._model.predict_network, field, keys)


def loaded(folder: RunFolder) -> Trained:
    """Return the trained model, or the newest state of a training on a topic.

    Raises:
        ValueError: there is no trained model, or a file is damaged.
    """
    return Trained(folder.trained())
