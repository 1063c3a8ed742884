# SPDX-License-Identifier: Apache-2.0
"""Write a network as ONNX, for predictors without MindSpore.

`RecCheckpoint` starts `python -m mindspore_rec.serving.export RUN` where it has a builder. Start it
by hand for a run of an earlier version, and for a directory that `save_checkpoint` wrote:

    python -m mindspore_rec.serving.export SAVED --network my_model:served --input ids:INT64:-1,26
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from mindspore_rec.checkpoint.dense import dense_parameters
from mindspore_rec.checkpoint.directory import chain_at
from mindspore_rec.checkpoint.manifest import new_directory
from mindspore_rec.checkpoint.network_file import (
    NETWORK,
    NetworkFile,
    remove_network,
    write_reason,
)
from mindspore_rec.feature.description import describe_pipeline
from mindspore_rec.feature.feature_pipeline import FeaturePipeline
from mindspore_rec.graph.network_inputs import input_specs
from mindspore_rec.graph.tensors import TensorSpec
from mindspore_rec.nn.embedding import tables_of
from mindspore_rec.serving.network.builder import (
    add_network_arguments,
    builder_of_model,
    load_function,
)
from mindspore_rec.serving.network.export import export_network
from mindspore_rec.serving.network.export_check import KEYS
from mindspore_rec.serving.network.mindspore_opening import cell_and_features
from mindspore_rec.serving.network.onnx_rewrite import NotExportableError

__all__ = ["main", "write_network"]


def write_network(
    path: Path,
    make: Callable[[], Any],
    inputs: Sequence[TensorSpec | str] | None,
    recorded: Sequence[str] | None,
    model: dict[str, Any] | None,
) -> str | None:
    """Write the network of a run, or the reason why it cannot be; replace what was there.

    Args:
        path: directory of the run, or of a checkpoint that `save_checkpoint` wrote.
        make: function that returns the network, or the network and its FeaturePipeline. Its tables
            and parameters are changed.
        inputs: as for `Predictor`.
        recorded: its inputs where neither `inputs` nor the network's `set_inputs` gives them.
        model: the manifest's entry on the network.

    Returns:
        The reason; None where the network was written.

    Raises:
        OSError: a file cannot be written.
    """
    reason: str | None = None
    found: NetworkFile | None = None
    try:
        found = _made_network(make(), inputs, recorded, model)
    except Exception as error:  # whatever it is, MindSpore serves the network
        reason = f"{type(error).__name__}: {error}"[:1000]
    remove_network(path)
    with new_directory(path / NETWORK) as directory:
        if found is not None:
            found.write(directory)
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
    """Give a network that is only tried some rows and weights: first ones are often zeros."""
    rng = np.random.default_rng(0)
    for table in tables_of(cell):
        keys = np.arange(min(KEYS, table.vocabulary or KEYS), dtype=np.int64)
        table.write_rows(keys, rng.normal(0, 0.1, (len(keys), table.dim)).astype(np.float32))
    for parameter in dense_parameters(cell):
        if parameter.dtype == ms.float32:
            noise = rng.uniform(0.01, 0.1, parameter.shape).astype(np.float32)
            parameter.set_data(Tensor(parameter.asnumpy() + noise))


def _end_with(parent: int) -> None:
    """End this process when the one that started it has ended: the next one starts another."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def main(arguments: list[str] | None = None) -> int:
    """Write the network of a run or a checkpoint; return the exit code, 1 where it cannot be."""
    made = argparse.ArgumentParser(
        prog="python -m mindspore_rec.serving.export",
        description="Writes a network as ONNX, for predictors without MindSpore.",
    )
    made.add_argument("path", type=Path, help="directory of a run, or of one checkpoint")
    add_network_arguments(made)
    made.add_argument("--model", type=json.loads, help=argparse.SUPPRESS)  # of a manifest
    made.add_argument("--parent", type=int, help=argparse.SUPPRESS)  # process id
    options = made.parse_args(arguments)
    if options.parent is not None:
        threading.Thread(target=_end_with, args=[options.parent], daemon=True).start()
    os.nice(19)  # a training may run beside it
    ms.set_context(mode=ms.GRAPH_MODE)
    model = options.model
    if model is None:
        model = chain_at(options.path)[-1].manifest["model"]
    if options.network is None and model is None:
        made.error(f"--network must be given: {options.path} does not name a builder")

    def make() -> Any:
        named = options.network is not None
        return (load_function(options.network) if named else builder_of_model(model))()

    recorded = None if model is None else model["inputs"]
    reason = write_network(options.path, make, options.input, recorded, model)
    if reason is not None:
        print(f"error: {reason}", file=sys.stderr)
    return int(reason is not None)


if __name__ == "__main__":
    sys.exit(main())
