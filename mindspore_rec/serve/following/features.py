# SPDX-License-Identifier: Apache-2.0
"""Feature pipeline of a predictor: converts raw columns to the network's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec.common.columns.arrow_columns import as_array
from mindspore_rec.common.columns.asked import asked_arrays, asked_columns
from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.columns.histories import ragged_places
from mindspore_rec.common.columns.tensors import TensorSpec, as_input
from mindspore_rec.common.run.chain import Entry
from mindspore_rec.common.run.state_file import read_states

__all__ = ["InputMaker", "with_learned"]


def with_learned(features: FeaturePipeline, entry: Entry) -> FeaturePipeline:
    """Return a copy of a pipeline with the statistics that a checkpoint has saved.

    The statistics are read from the object 'features' in `RecCheckpoint(states=)`. If there is no
    object 'features', the statistics are read from the pipeline of the training data (a
    `StreamingDataset` or a `FeatureBatches`). A pipeline that learns nothing needs no statistics.

    Raises:
        ValueError: the checkpoint has no state of a pipeline, or the state of another pipeline.
        CheckpointError: the file of the state is damaged.
    """
    if not features.learns:
        return features
    objects = read_states(entry.path).get("objects") or {}
    learned = objects.get("features")
    if learned is None:
        learned = _learned(objects.get("train_dataset"))
    if learned is None:
        raise ValueError(
            f"{entry.path} does not say what the features have learned: train on a "
            "StreamingDataset with them as its transform or on FeatureBatches of a stream with "
            "them, or give RecCheckpoint states={'features': pipeline}"
        )
    try:
        return features.with_state(learned)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(
            f"the state of the features in {entry.path} is not of this pipeline: {error}"
        ) from error


def _learned(dataset: Any) -> Any:
    """Return the pipeline's state from a dataset's state; None if the dataset's state contains no
    pipeline.
    """
    if not isinstance(dataset, dict):
        return None
    return dataset.get("learned", dataset.get("transform"))


class InputMaker:
    """Convert raw columns to a network's inputs; the inputs are in the same order as in training.

    Args:
        features: pipeline whose arrays are the network's first inputs. With `keep_rest`, each
            further input of the network is the column with the input's name.
        inputs: the network's inputs.

    Attributes:
        columns: raw columns that the pipeline reads; None if the pipeline's function `prepare`
            chooses the columns.

    Raises:
        ValueError: the pipeline makes fewer arrays than the network has inputs.
    """

    def __init__(self, features: FeaturePipeline, inputs: Sequence[TensorSpec]) -> None:
        self._inputs = list(inputs)
        lists = features.with_lists()
        self._made = lists.column_names[: len(self._inputs)]
        rest = [spec.name for spec in self._inputs[len(self._made) :]]
        if rest and not features.keep_rest:
            raise ValueError(
                f"features must make an array for each input of the network, make {self._made}, "
                f"and it takes {[spec.name for spec in self._inputs]}"
            )
        self._names = [*self._made, *rest]
        self._offsets = {self._made[place] for place in ragged_places(self._made)}
        read = lists.reads(self._made)
        asked = asked_columns(features)
        names = None if read is None else [*map(str, read), *rest, *asked]
        self.columns = None if names is None else list(dict.fromkeys(names))

    def __call__(
        self,
        features: FeaturePipeline,
        rows: pa.RecordBatch,
        tables: Mapping[str, Any] | None = None,
    ) -> list[np.ndarray]:
        """Return the network's inputs for raw rows; the pipeline's statistics do not change.

        Args:
            features: the pipeline.
            rows: raw rows.
            tables: tables of the network by name. If a raw row lacks a history, the history is read
                from the history's table. Default: no tables; missing histories are then empty.

        Raises:
            TypeError, ValueError: a column is missing, or cannot be an input of the network.
        """
        made = (
            asked_arrays(features, rows, tables or {}, self._made)
            if features.kept
            else features.apply(rows, self._made)
        )
        arrays = []
        for spec, name in zip(self._inputs, self._names, strict=True):
            array = _column(made, name)
            if name in self._offsets:
                array = array[:-1]  # requests have the place of each row's first value
            arrays.append(as_input(spec, _fitted(spec, array)))
            is_rows = spec.shape[0] == -1 and spec.offsets is None
            if len(arrays[-1]) != rows.num_rows and is_rows:
                raise ValueError(
                    f"features made {len(arrays[-1])} rows of {rows.num_rows}: prepare must keep "
                    "all that are asked for"
                )
        return arrays


def _column(made: Mapping[str, Any], name: str) -> Any:
    if name not in made:
        raise ValueError(f"rows must have a column {name!r}, they have {sorted(made)}")
    return as_array(name, made[name])


def _fitted(spec: TensorSpec, array: np.ndarray) -> np.ndarray:
    """If the network expects the shape [rows, 1], reshape an array [rows] to this shape."""
    return array[:, None] if array.ndim == 1 and spec.shape[1:] == (1,) else array
