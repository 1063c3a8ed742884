# SPDX-License-Identifier: Apache-2.0
"""Write a network and the rows of its tables as MindIR, and check the file's outputs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from mindspore_rec.common.columns.tensors import TensorSpec
from mindspore_rec.train.export.frozen_tables import frozen
from mindspore_rec.train.export.graph_runner import GraphRunner, Served
from mindspore_rec.train.graph.lock import graph_lock
from mindspore_rec.train.graph.network_inputs import dynamic_tensor, input_specs
from mindspore_rec.train.graph.syntax_level import syntax_level_kept
from mindspore_rec.train.nn.tables import tables_of

__all__ = ["export_mindir"]

_TRIED_ROWS = (1, 2, 7)
_MOST_ERROR = 1e-5


def export_mindir(
    network: nn.Cell, path: str | os.PathLike[str], inputs: Sequence[TensorSpec | str] | None = None
) -> Path:
    """Write a network and the current rows of its tables as MindIR, and check the file's outputs.

    Args:
        network: the network; the function sets the network to evaluation mode. The network's tables
            may be in any tier, but two copies of all rows must fit in memory.
        path: path of the file; `.mindir` is added if missing.
        inputs: inputs of the network, such as `["ids:INT64:-1,26"]`, in any form that `Predictor`
            accepts. Default: the network's `set_inputs`.

    Returns:
        The path of the file. Above 1 GB, MindSpore splits the model into several files in the same
        directory.

    Raises:
        ValueError: `inputs` is None and the network's `set_inputs` was not called, or the network
            cannot be exported as MindIR. A ValueError is also raised if the file's outputs differ
            from the network's outputs.
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
    if any(spec.offsets is not None for spec in specs) and getattr(
        network, "varying_inputs", False
    ):
        raise ValueError(
            "a network that reads histories is not written as MindIR: predictors run it with "
            "MindSpore"
        )
    file = Path(path)
    if file.suffix != ".mindir":
        file = file.with_name(file.name + ".mindir")
    network.set_train(False)
    batches = [_tried_inputs(network, specs, rows) for rows in _TRIED_ROWS]
    with graph_lock:
        runner = GraphRunner(network, specs)
        answers = [runner(*batch) for batch in batches]
        with frozen(network), syntax_level_kept():
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
    """Return random inputs; ids are valid, but some ids of hash tables may have no row."""
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
            raise ValueError("the file's answers differ from the network's answers")
