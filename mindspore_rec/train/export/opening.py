# SPDX-License-Identifier: Apache-2.0
"""Open a network that MindSpore runs; serving uses MindSpore only through this module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import mindspore as ms
from mindspore import nn

from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.columns.tensors import TensorSpec
from mindspore_rec.common.network.builder import builder_of, inputs_of
from mindspore_rec.common.rows.table_scope import own_scope
from mindspore_rec.common.run.chain import Entry
from mindspore_rec.train.export.graph_runner import GraphRunner
from mindspore_rec.train.graph.lock import graph_lock
from mindspore_rec.train.graph.network_inputs import input_specs
from mindspore_rec.train.nn.tables import tables_of

__all__ = ["cell_and_features", "open_by_mindspore"]


def open_by_mindspore(
    entry: Entry,
    network: nn.Cell | Callable[[], Any] | None,
    inputs: Sequence[TensorSpec | str] | None,
    choose_mode: bool = False,
) -> GraphRunner:
    """Return a runner for a network; the checkpoint's values are loaded into the network later.

    Args:
        entry: checkpoint that will be loaded into the network.
        network: the network, or a function that makes it. If `network` is None, the checkpoint's
            builder makes the network. If a function or the builder made the network, the runner
            frees the network's tables.
        inputs: inputs of the network. Default: the inputs that were passed to the network's
            `set_inputs`; if there are none, the inputs in the checkpoint.
        choose_mode: True to set MindSpore's graph mode; False to keep the mode of the process.
            Default: False.

    Raises:
        TypeError, ValueError: an argument is invalid, or the checkpoint has no builder.
    """
    if choose_mode:
        ms.set_context(mode=ms.GRAPH_MODE)
    source = builder_of(entry) if network is None else network
    owned = not isinstance(source, nn.Cell)
    with graph_lock:
        with own_scope() if owned else nullcontext():
            made = source() if owned else source
        cell, features = cell_and_features(made)
        cell.set_train(False)
        try:
            recorded = inputs_of(entry) if network is None else None
            return GraphRunner(cell, input_specs(cell, inputs, recorded), features, owned)
        except BaseException:
            for table in tables_of(cell) if owned else ():
                table.close()
            raise


def cell_and_features(made: Any) -> tuple[nn.Cell, FeaturePipeline | None]:
    """Return the Cell and the FeaturePipeline (or None) that a builder made.

    Raises:
        TypeError: `made` is neither a Cell nor a Cell with a FeaturePipeline.
    """
    features = None
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], FeaturePipeline):
        made, features = made
    if not isinstance(made, nn.Cell):
        raise TypeError(
            "network must give a Cell, or a Cell and its FeaturePipeline, "
            f"got {type(made).__name__}"
        )
    return made, features
