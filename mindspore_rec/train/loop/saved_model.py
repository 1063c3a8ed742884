# SPDX-License-Identifier: Apache-2.0
"""Save a model whose network was made from a schema, and load the model in another program."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mindspore_rec.common.run.array_file import read_arrays
from mindspore_rec.common.run.chain import chain_at
from mindspore_rec.common.run.contents import DENSE
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.state_file import read_states
from mindspore_rec.train.checkpoint.dense import dense_parameters
from mindspore_rec.train.checkpoint.directory import load_checkpoint, training_cell
from mindspore_rec.train.loop.rec_model import METRICS, RecModel
from mindspore_rec.train.models.registry import build
from mindspore_rec.train.models.served import recipe_of

__all__ = ["load"]


def load(path: str | os.PathLike[str], metrics: Any = None) -> RecModel:
    """Load a model whose network was made from a schema.

    The checkpoint contains the descriptions of the schema and of the network. If the network's
    class is defined in the user's own file, this file must still exist.

    Args:
        path: directory that `RecModel.save` or a `RecCheckpoint` wrote. The `RecCheckpoint` must
            have been constructed with the model's `publication` and `states`. The newest state in
            the directory is loaded.
        metrics: metrics of the model, in any form that `RecModel` accepts. Default: the metrics of
            the saved model if `RecModel.save` wrote the directory and the metrics were chosen by
            name; otherwise the default metrics of the labels.

    Returns: A model that can predict and can be trained further, with the default loss and the
        default optimizer. If the optimizer of the training had another arrangement of parameters
        than the default optimizer, such as groups with separate learning rates, the optimizer's
        state for dense parameters starts at its initial values. The loaded tables have the same
        names as the saved tables. If the process already contains a network whose tables have the
        same names, the older network can no longer be used.

    Raises:
        FileNotFoundError: there is no checkpoint at `path`.
        ValueError: a file is damaged (a CheckpointError), or the network was not made from a
            schema.

    Example:
        >>> import tempfile
        >>> import mindspore as ms
        >>> import pandas as pd
        >>> from mindspore_rec import RecModel, Schema, load
        >>> from mindspore_rec.feature import CategoryColumn, LabelColumn
        >>> from mindspore_rec.models import LogisticRegression
        >>> schema = Schema([CategoryColumn("user"), LabelColumn("clicked")])
        >>> model = RecModel(LogisticRegression(schema, name="doc.load"))
        >>> rows = pd.DataFrame({"user": ["ann", "bob"] * 50, "clicked": [1, 0] * 50})
        >>> summary = model.train(20, rows, progress=False)
        >>> path = Path(tempfile.mkdtemp()) / "clicks.model"
        >>> model.save(path)
        >>> ann, bob = load(path).predict(pd.DataFrame({"user": ["ann", "bob"]}))
        >>> bool(ann > bob)
        True
    """
    entry = chain_at(Path(path))[-1]
    made = recipe_of(entry.manifest["model"])
    if made is None:
        raise ValueError(
            f"{path} must be a checkpoint of a network that was made from a schema, saved by "
            "RecModel.save: make the network of another checkpoint, and call load_checkpoint"
        )
    recipe, schema = made
    if metrics is None:
        metrics = _saved_metrics(entry.path)
    model = RecModel(build(recipe, schema), metrics=metrics)
    saved = read_arrays(entry.path / DENSE)
    has_state = all(each.name in saved for each in dense_parameters(training_cell(model)))
    load_checkpoint(model if has_state else model._network, path, states=model.states)
    return model


def _saved_metrics(path: Path) -> list[str] | None:
    """Return the names of the saved model's metrics; None for the default metrics.

    Raises:
        CheckpointError: the names are not texts.
    """
    names = read_states(path).get(METRICS)
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise CheckpointError(f"{path} is damaged: the names of metrics must be texts")
    return names
