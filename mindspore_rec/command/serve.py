# SPDX-License-Identifier: Apache-2.0
"""`mindspore-rec serve`: answer requests with the model of a run."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

from mindspore_rec.command.json_file import write_json
from mindspore_rec.command.options import Result
from mindspore_rec.command.run_folder import RunFolder
from mindspore_rec.command.settings import read_settings

__all__ = ["run"]


def run(options: argparse.Namespace) -> Result:
    """Serve until a signal arrives; then end the process."""
    read_settings(options.yaml)
    folder = RunFolder(options.yaml, options.run_dir)
    path = folder.trained()
    if options.json is not None:
        write_json(options.json, {"model": str(path), "port": options.port})
    if path == folder.model:  # for a topic, the training writes the network
        _write_network(path)
    from mindspore_rec.serve.main import run as serve

    serve([str(path), "--port", str(options.port), *options.further])


def _write_network(path: Path) -> None:
    """Write a saved model's network as ONNX; do nothing if an earlier call has tried to write it.

    If the network cannot be written, the function prints the reason, and the command continues,
    because the server can run the network with MindSpore.
    """
    if importlib.util.find_spec("mindspore") is None:
        return
    from mindspore_rec.train.checkpoint.network_process import (
        was_tried,
        what_is_missing,
        write_saved_network,
    )

    if was_tried(path):
        return
    reason = what_is_missing()
    if not reason:
        print("writing the network as ONNX, once, to serve without MindSpore", file=sys.stderr)
        reason = write_saved_network(path)
    if reason:
        print(f"the server runs on MindSpore: {reason}", file=sys.stderr)
