# SPDX-License-Identifier: Apache-2.0
"""`mindspore-rec serve`: answer requests with the model of a run."""

from __future__ import annotations

import argparse

from mindspore_rec.command.options import Result
from mindspore_rec.command.run_folder import RunFolder, write_json
from mindspore_rec.command.settings import KafkaSource, read_settings

__all__ = ["run"]


def run(options: argparse.Namespace) -> Result:
    """Serve until a signal arrives."""
    settings = read_settings(options.yaml)
    folder = RunFolder(options.yaml, options.run_dir)
    if isinstance(settings.source, KafkaSource):
        path = folder.checkpoints  # the server follows the deltas of the training
    else:
        folder.check_trained()
        path = folder.model
    if options.json is not None:
        write_json(options.json, {"model": str(path), "port": options.port})
    from mindspore_rec.serve.main import main

    return Result(code=main([str(path), "--port", str(options.port), *options.further]))
