# SPDX-License-Identifier: Apache-2.0
"""Write a run's network as ONNX; if the export fails, write a text with the reason instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from mindspore_rec.common.columns.description import describe_pipeline
from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.columns.tensors import TensorSpec
from mindspore_rec.common.run.network_file import NetworkFile, new_network, write_reason
from mindspore_rec.train.checkpoint.dense import dense_parameters
from mindspore_rec.train.export.export_check import KEYS
from mindspore_rec.train.export.not_exportable import NotExportableError
from mindspore_rec.train.export.onnx import export_network
from mindspore_rec.train.export.opening import cell_and_features
from mindspore_rec.train.graph.network_inputs import input_specs
from mindspore_rec.train.nn.tables import tables_of

__all__ = ["write_network"]


def write_network(
    path: Path,
    make: Callable[[], Any],
    inputs: Sequence[TensorSpec | str] | None,
    recorded: Sequence[str] | None,
    model: dict[str, Any] | None,
) -> str | None:
    """Write a run's network as ONNX; if the export fails, write the reason. Replace earlier files.

    Args:
        path: directory of the run, or of a checkpoint that `save_checkpoint` wrote.
        make: function that returns the network, or the network and its FeaturePipeline.
            `write_network` changes the network's tables and parameters.
        inputs: inputs of the network; see `Predictor`.
        recorded: inputs to use if `inputs` is None and the network's `set_inputs` was not called.
        model: the manifest's entry for the network.

    Returns:
        Reason why the export failed; None if the network was written.

    Raises:
        OSError: a file cannot be written.
    """
    reason: str | None = None
    network: NetworkFile | None = None
    try:
        network = _made_network(make(), inputs, recorded, model)
    except Exception as error:  # predictors with MindSpore can still serve the network
        reason = f"{type(error).__name__}: {error}"[:1000]
    with new_network(path) as directory:
        if network is not None:
            network.write(directory)
        else:
            assert reason is not None
            write_reason(directory, reason)
    return reason


def _made_network(
    made: Any,
    inputs: Sequence[TensorSpec | str] | None,
    recorded: Sequence[str] | None,
    model: dict[str, Any] | None,
) -> NetworkFile:
    cell, features = cell_and_features(made)
    if features is not None and features.kept:
        names = [each.name for each in features.kept]
        raise NotExportableError(f"histories {names} are kept from rows, which MindSpore looks up")
    specs = input_specs(cell, inputs, recorded)
    if specs is None:
        raise NotExportableError(
            "what the network takes is not known: give builder_inputs, or call set_inputs"
        )
    _disturb(cell)
    return export_network(cell, specs, model, None if features is None else _described(features))


def _described(features: FeaturePipeline) -> dict[str, Any] | str:
    try:
        return describe_pipeline(features)
    except ValueError as error:
        return str(error)


def _disturb(cell: nn.Cell) -> None:
    """Set random rows and weights for the comparison, because initial values are often zeros."""
    rng = np.random.default_rng(0)
    for table in tables_of(cell):
        keys = np.arange(min(KEYS, table.vocabulary or KEYS), dtype=np.int64)
        table.write_rows(keys, rng.normal(0, 0.1, (len(keys), table.dim)).astype(np.float32))
    for parameter in dense_parameters(cell):
        if parameter.dtype == ms.float32:
            noise = rng.uniform(0.01, 0.1, parameter.shape).astype(np.float32)
            parameter.set_data(Tensor(parameter.asnumpy() + noise))
