# SPDX-License-Identifier: Apache-2.0
"""Write a network as ONNX, for predictors without MindSpore.

`RecCheckpoint` starts `python -m mindspore_rec.serving.export RUN` if a builder is set. Start this
command by hand for a run of an earlier version, or for a directory that `save_checkpoint` wrote:

    python -m mindspore_rec.serving.export SAVED --network my_model:served --input ids:INT64:-1,26
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from mindspore_rec.common.network.builder import (
    add_network_arguments,
    builder_of_model,
    load_function,
)
from mindspore_rec.common.run.chain import chain_at

__all__ = ["main"]


def _end_with(parent: int) -> None:
    """End this process when its parent ends; after a restart, the parent starts a new process."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def main(arguments: list[str] | None = None) -> int:
    """Write the network of a run or checkpoint; return the exit code, which is 1 on an error."""
    made = argparse.ArgumentParser(
        prog="python -m mindspore_rec.serving.export",
        description="Writes a network as ONNX, for predictors without MindSpore.",
    )
    made.add_argument("path", type=Path, help="directory of a run, or of one checkpoint")
    add_network_arguments(made)
    made.add_argument("--model", type=json.loads, help=argparse.SUPPRESS)  # entry of a manifest
    made.add_argument("--parent", type=int, help=argparse.SUPPRESS)  # process id
    options = made.parse_args(arguments)
    if options.parent is not None:
        threading.Thread(target=_end_with, args=[options.parent], daemon=True).start()
    os.nice(19)  # a training may run at the same time
    model = options.model
    if model is None:
        model = chain_at(options.path)[-1].manifest["model"]
    if options.network is None and model is None:
        made.error(f"--network must be given: {options.path} does not name a builder")

    def make() -> Any:
        named = options.network is not None
        return (load_function(options.network) if named else builder_of_model(model))()

    import mindspore as ms  # here, so that --help needs no MindSpore

    from mindspore_rec.train.export.write_network import write_network

    ms.set_context(mode=ms.GRAPH_MODE)
    recorded = None if model is None else model["inputs"]
    reason = write_network(options.path, make, options.input, recorded, model)
    if reason is not None:
        print(f"error: {reason}", file=sys.stderr)
    return int(reason is not None)
