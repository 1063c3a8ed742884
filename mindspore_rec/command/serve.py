# SPDX-License-Identifier: Apache-2.0
"""`mindspore-rec serve`: answer requests with the model of a run."""

from __future__ import annotations

import argparse

from mindspore_rec.command.options import Result
from mindspore_rec.command.run_folder import RunFolder, write_json
from mindspore_rec.command.settings import read_settings

__all__ = ["run"]


def run(options: argparse.Namespace) -> Result:
    """Serve until a signal arrives."""
    read_settings(options.yaml)
    path = RunFolder(options.yaml, options.run_dir).trained()
    if options.json is not None:
        write_json(options.json, {"model": str(path), "port": options.port})
    from mindspore_rec.serve.main import main

    return Result(code=main([str(path), "--port", str(options.port), *options.further]))
