# SPDX-License-Identifier: Apache-2.0
"""Export a network as ONNX, and check its outputs against MindSpore's outputs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from mindspore_rec.common.columns.tensors import TensorSpec
from mindspore_rec.common.run.network_file import Lookup, NetworkFile, ParameterSpec
from mindspore_rec.train.checkpoint.dense import dense_parameters
from mindspore_rec.train.export.dynamic_sizes import exported_sizes, free_sizes
from mindspore_rec.train.export.export_check import compare
from mindspore_rec.train.export.graph_runner import GraphRunner, Served
from mindspore_rec.train.export.histories.insert import insert_histories
from mindspore_rec.train.export.histories.stand_ins import history_marks
from mindspore_rec.train.export.lookup_marks import marked
from mindspore_rec.train.export.not_exportable import NotExportableError
from mindspore_rec.train.export.onnx_rewrite import cut_lookups
from mindspore_rec.train.graph.lock import graph_lock
from mindspore_rec.train.graph.syntax_level import syntax_level_kept
from mindspore_rec.train.nn.tables import tables_of

__all__ = ["export_network"]


def export_network(
    cell: nn.Cell,
    inputs: Sequence[TensorSpec],
    model: dict[str, Any] | None = None,
    features: dict[str, Any] | str | None = None,
) -> NetworkFile:
    """Export a network as ONNX, and check the outputs against MindSpore's outputs.

    Args:
        cell: the network, in evaluation mode.
        inputs: inputs of the network; the first dimension of each input is the batch.
        model, features: values for the fields `model` and `features` of `NetworkFile`.

    Raises:
        NotExportableError: the network cannot be exported.
        ImportError: onnx or ONNX Runtime is missing.
    """
    import onnx

    for spec in inputs:
        if spec.shape[0] != -1 or -1 in spec.shape[1:]:
            raise NotExportableError(
                f"input {spec} must have the batch, and only that, of any size"
            )
    cell.set_train(False)
    sizes = exported_sizes(inputs)
    with graph_lock, tempfile.TemporaryDirectory() as directory:
        runner = GraphRunner(cell, inputs)
        outputs = runner.specs_of_outputs()
        assert outputs is not None
        file = Path(directory) / "network.onnx"
        with history_marks(cell) as histories, marked(cell) as marks:
            arrays = (
                Tensor(np.zeros((sizes[spec.name], *spec.shape[1:]), spec.dtype)) for spec in inputs
            )
            with syntax_level_kept():
                ms.export(Served(cell), *arrays, file_name=str(file), file_format="ONNX")
        exported = onnx.load(str(file))
    parameters = {each.name: each for each in dense_parameters(cell)}
    _rename_inputs(exported, [spec.name for spec in inputs])
    free_sizes(exported, sizes, parameters)
    insert_histories(exported, histories)
    bags = {name: mark.combiner is not None for name, mark in marks.items()}
    dense, ids, cuts = cut_lookups(exported, bags, list(parameters))
    read = {info.name for info in onnx.load_from_string(dense).graph.input}
    tables = {table.name: table for table in tables_of(cell)}
    made = NetworkFile(
        model=model,
        features=features,
        inputs=tuple(inputs),
        outputs=outputs,
        lookups=tuple(
            Lookup(
                cut.result,
                cut.ids,
                tuple(table.name for table in marks[cut.mark].tables),
                marks[cut.mark].padding_key,
                marks[cut.mark].combiner,
                marks[cut.mark].grouped,
                cut.offsets,
                cut.weights,
            )
            for cut in cuts
        ),
        tables={
            name: (_plain(table.config.native_arguments()), str(table.key_dtype))
            for name, table in tables.items()
        },
        parameters=tuple(
            ParameterSpec(name, tuple(each.shape), str(each.asnumpy().dtype))
            for name, each in parameters.items()
            if name in read
        ),
        dense=dense,
        ids=ids,
    )
    compare(made, runner, tables, parameters)
    return made


def _rename_inputs(model: Any, names: Sequence[str]) -> None:
    """Rename the model's inputs to the network's input names; keep the order of the inputs."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    infos = [info for info in model.graph.input if info.name not in initializers]
    if len(infos) != len(names):
        raise NotExportableError(f"the model has {len(infos)} inputs, the network {len(names)}")
    new = {info.name: name for info, name in zip(infos, names, strict=True)}
    for info in infos:
        info.name = new[info.name]
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = new.get(name, name)


def _plain(arguments: dict[str, Any]) -> dict[str, Any]:
    """Convert NumPy numbers in the arguments to Python numbers, for JSON."""
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in arguments.items()
    }
