# SPDX-License-Identifier: Apache-2.0
"""Warnings, once per process, about mistakes that raise no error."""

from __future__ import annotations

import logging
import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from mindspore_rec.train.metrics.base import BinaryMetric
from mindspore_rec.train.nn.static_lookup import VocabularyLookup
from mindspore_rec.train.nn.tables import tables_of
from mindspore_rec.train.parameter.hash_table import HashTable

__all__ = [
    "forget_hints",
    "hint_mode",
    "hint_sink_mode",
    "hint_undefined",
    "hint_untrained",
    "hint_vocabulary",
    "warn_interrupted",
]

logger = logging.getLogger("mindspore_rec")

_FAR = 0.5  # warn if a larger share of a column's ids is outside the vocabulary

_given: set[str] = set()


def _hint(what: str, text: str) -> None:
    if what not in _given:
        _given.add(what)
        warnings.warn(text, RuntimeWarning, stacklevel=_caller())


def warn_interrupted(steps: int) -> None:
    """Warn that a signal has ended the training, and that the program goes on."""
    warnings.warn(
        f"Ctrl-C or SIGTERM ended the training early, after step {steps}. The program goes on, "
        "unless it checks the summary of train or fit before the model is saved or used: if "
        "summary.interrupted: raise KeyboardInterrupt",
        RuntimeWarning,
        stacklevel=_caller(),
    )


def _caller() -> int:
    """Return the `stacklevel` of a warning that names the first caller outside this package."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame):
        depth, frame = depth + 1, frame.f_back
    return depth


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "mindspore_rec"


def forget_hints() -> None:
    """Forget which hints were shown, so that each hint can be shown again.

    Example:
        >>> forget_hints()
    """
    _given.clear()


def hint_mode() -> None:
    """Warn that training is slow in PyNative mode."""
    if ms.get_context("mode") == ms.PYNATIVE_MODE:
        _hint(
            "mode",
            "training in PyNative mode is up to 30 times slower than in graph mode: call "
            "mindspore.set_context(mode=mindspore.GRAPH_MODE) before making the network",
        )


def hint_sink_mode(dataset_sink_mode: bool | None) -> None:
    """Log a warning, once per process, that `dataset_sink_mode=True` has no effect.

    Args:
        dataset_sink_mode: the argument of `RecModel.train`, `online_train` or `eval`.

    Example:
        >>> hint_sink_mode(None)
    """
    if dataset_sink_mode and "sink_mode" not in _given:
        _given.add("sink_mode")
        logger.warning(
            "dataset_sink_mode=True has no effect: RecModel feeds batches to the network one by "
            "one; leave it out"
        )


def hint_undefined(metrics: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Warn about a metric that is NaN because of the labels or the weights of the data.

    Args:
        metrics: dict from names to metric objects of an evaluation.
        values: dict from names to results of the evaluation.
    """
    for name, metric in metrics.items():
        value = values.get(name)
        if isinstance(metric, BinaryMetric) and isinstance(value, float) and math.isnan(value):
            reason = metric.undefined_if
            remedy = "choose rows of both classes, such as the last days or a random tenth"
            if metric.weightless:
                reason, remedy = "all weights are 0", "choose rows with weights above 0"
            _hint(
                f"undefined {name}",
                f"metric '{name}' is NaN, because {reason} in the {metric.rows} rows of "
                f"valid_dataset: {remedy}",
            )


def hint_untrained(network: nn.Cell) -> bool:
    """Warn that a network predicts before any training.

    Args:
        network: the network.

    Returns: True if the network needs no warning in future: it has no tables, or a table has been
        trained or has rows.
    """
    tables = tables_of(network)
    if not tables or any(table.step or table.stats()["rows"] for table in tables):
        return True
    _hint(
        "untrained",
        f"a prediction before any training: table '{tables[0].name}' has no rows, so every id "
        "reads what an unknown one reads; train the network or load a checkpoint first",
    )
    return False


def hint_vocabulary(network: nn.Cell, batch: Sequence[Any]) -> None:
    """Warn if ids are far outside an embedding's vocabulary; their embeddings may be zeros.

    Networks that also have a hash table are not checked, because their ids may belong to the hash
    table.

    Args:
        network: the network, or its training cell.
        batch: the inputs of the network's first step.
    """
    if any(isinstance(table, HashTable) for table in tables_of(network)):
        return
    sizes = {name: _vocabulary(cell) for name, cell in network.cells_and_names()}
    largest = max(sizes, key=lambda name: sizes[name], default="")
    size = sizes.get(largest, 0)
    if size == 0:
        return
    for i, column in enumerate(batch):
        if not isinstance(column, Tensor) or column.dtype not in (ms.int32, ms.int64):
            continue
        ids = column.asnumpy()
        if ids.size and np.mean((ids < 0) | (ids >= size)) > _FAR:
            _hint(
                "vocabulary",
                f"ids such as {ids[(ids < 0) | (ids >= size)][0]} in column {i} are far outside "
                f"the vocabulary of {size} of the embedding '{largest}', which at best reads zeros "
                "there and learns nothing: use mindspore_rec.HashEmbeddingLookup for hashed ids",
            )
            return


def _vocabulary(cell: nn.Cell) -> int:
    """Return a cell's vocabulary size; 0 if the cell has no vocabulary, or if ids outside the
    vocabulary raise an error.
    """
    if isinstance(cell, VocabularyLookup):
        table: Any = cell.embedding_table
        silent = getattr(table, "out_of_range", "zeros") == "zeros"
        return int(cell.vocab_size) if silent else 0
    if isinstance(cell, (nn.Embedding, nn.EmbeddingLookup)):
        return int(cell.vocab_size)
    if isinstance(cell, ms.mint.nn.Embedding):
        return int(cell.num_embeddings)
    return 0
