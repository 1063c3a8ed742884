# SPDX-License-Identifier: Apache-2.0
"""Write a network and the rows of a checkpoint as MindIR, for programs without this package.

    python -m mindspore_rec.serving.mindir RUN model.mindir --input ids:INT64:-1,26

The file contains copies of the rows and a graph that looks up ids by MindSpore's own operators. A
program that loads the file needs neither this package nor its native core. Later training does not
change the rows in the file; write a new file to export newer rows.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mindspore_rec.common.network.builder import (
    add_network_arguments,
    builder_of_model,
    load_function,
)
from mindspore_rec.common.run.chain import chain_at

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Write the network of a run or checkpoint; return the exit code, which is 1 on an error."""
    parser = argparse.ArgumentParser(
        prog="python -m mindspore_rec.serving.mindir",
        description="Write a network with the rows of a checkpoint as MindIR.",
    )
    parser.add_argument("path", type=Path, help="directory of a run, or of one checkpoint")
    parser.add_argument("file", type=Path, help="file to write, such as model.mindir")
    add_network_arguments(parser)
    options = parser.parse_args(arguments)
    import mindspore as ms  # here, so that --help needs no MindSpore

    from mindspore_rec.train.checkpoint.directory import load_checkpoint
    from mindspore_rec.train.export.mindir import export_mindir
    from mindspore_rec.train.export.opening import cell_and_features

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
