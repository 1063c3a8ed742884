# SPDX-License-Identifier: Apache-2.0
"""Write a network with the rows of a checkpoint as MindIR, for programs without this package.

    python -m mindspore_rec.serving.mindir RUN model.mindir --input ids:INT64:-1,26

The file has copies of the rows and finds ids among them by MindSpore's own operators, so a program
that loads it needs neither this package nor its native core. It does not follow a training: write
it anew for newer rows.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from mindspore_rec.checkpoint.directory import chain_at, load_checkpoint
from mindspore_rec.graph.lock import graph_lock
from mindspore_rec.graph.network_inputs import dynamic_tensor, input_specs
from mindspore_rec.graph.tensors import TensorSpec
from mindspore_rec.nn.embedding import tables_of
from mindspore_rec.serving.network.builder import (
    add_network_arguments,
    builder_of_model,
    load_function,
)
from mindspore_rec.serving.network.frozen_tables import frozen
from mindspore_rec.serving.network.graph_runner import GraphRunner, Served
from mindspore_rec.serving.network.mindspore_opening import cell_and_features

__all__ = ["export_mindir", "main"]

_TRIED_ROWS = (1, 2, 7)
_MOST_ERROR = 1e-5


def export_mindir(
    network: nn.Cell, path: str | os.PathLike[str], inputs: Sequence[TensorSpec | str] | None = None
) -> Path:
    """Write a network as MindIR, with its tables as they are now, and compare the answers of both.

    Args:
        network: the network. Its tables may be in any tier; their rows must fit in memory twice.
        path: the file; `.mindir` is added if it is missing.
        inputs: as for `Predictor`, such as `["ids:INT64:-1,26"]`. Default: as the network's
            `set_inputs` says.

    Returns:
        The path of the file. Above 1 GB MindSpore writes several files beside each other.

    Raises:
        ValueError: `inputs` is missing and the network has no `set_inputs`, or the network has no
            form as MindIR.
        OSError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> from mindspore_rec import HashEmbeddingLookup
        >>> net = nn.SequentialCell(
        ...     HashEmbeddingLookup(4, ms.int64, name="doc.export_mindir"), nn.Flatten()
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     export_mindir(net, folder + "/model", ["input_data:INT64:-1,2"]).name
        'model.mindir'
    """
    specs = input_specs(network, inputs, None)
    if specs is None:
        raise ValueError(
            "inputs must be given, such as ['ids:INT64:-1,26']: the network has no set_inputs"
        )
    file = Path(path)
    if file.suffix != ".mindir":
        file = file.with_name(file.name + ".mindir")
    network.set_train(False)
    batches = [_tried_inputs(network, specs, rows) for rows in _TRIED_ROWS]
    with graph_lock:
        runner = GraphRunner(network, specs)
        answers = [runner(*batch) for batch in batches]
        with frozen(network):
            cell = Served(network)
            try:
                ms.export(
                    cell, *map(dynamic_tensor, specs), file_name=str(file),
                    file_format="MINDIR",
                )  # fmt: skip
            except (RuntimeError, TypeError, ValueError) as error:
                reason = str(error).strip().partition("\n")[0]
                raise ValueError(f"MindSpore does not export it: {reason}") from error
        read = nn.GraphCell(ms.load(str(file)))
        for batch, expected in zip(batches, answers, strict=True):
            outputs = read(*(Tensor(array) for array in batch))
            together = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
            _compare(expected, [each.asnumpy() for each in together])
    return file


def _tried_inputs(network: nn.Cell, specs: Sequence[TensorSpec], rows: int) -> list[np.ndarray]:
    """Return inputs at random, with ids that have rows and, except for static tables, others."""
    rng = np.random.default_rng(rows)
    tables = tables_of(network)
    least = min((table.vocabulary for table in tables if table.vocabulary), default=0)
    keys = np.concatenate([np.arange(min(least, 1000) or 10)] + [
        table.row_keys()[:1000] for table in tables if not table.vocabulary and not least
    ])  # fmt: skip
    arrays = []
    for spec in specs:
        shape = tuple(rows if size == -1 else size for size in spec.shape)
        if spec.dtype.kind == "f":
            arrays.append(rng.normal(0, 1, shape).astype(spec.dtype))
        else:
            arrays.append(rng.choice(keys, shape).astype(spec.dtype))
    return arrays


def _compare(expected: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
    for one, other in zip(expected, outputs, strict=True):
        error = np.abs(one - other) > _MOST_ERROR * (1 + np.abs(one))
        if one.shape != other.shape or error.any():
            raise ValueError("the file's answers differ from those of the network")


def main(arguments: list[str] | None = None) -> int:
    """Write the network of a run or a checkpoint; return the exit code, 1 for a failure."""
    parser = argparse.ArgumentParser(
        prog="python -m mindspore_rec.serving.mindir",
        description="Write a network with the rows of a checkpoint as MindIR.",
    )
    parser.add_argument("path", type=Path, help="directory of a run, or of one checkpoint")
    parser.add_argument("file", type=Path, help="file to write, such as model.mindir")
    add_network_arguments(parser)
    options = parser.parse_args(arguments)
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        model = chain_at(options.path)[-1].manifest["model"]
        if options.network is not None:
            made = load_function(options.network)()
        elif model is not None:
            made = builder_of_model(model)()
        else:
            parser.error(f"--network must be given: {options.path} does not name a builder")
        network, _ = cell_and_features(made)
        load_checkpoint(network, options.path, states={})
        recorded = None if model is None else model["inputs"]
        file = export_mindir(network, options.file, options.input or recorded)
    except (OSError, TypeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
