# SPDX-License-Identifier: Apache-2.0
"""NetworkProcess: writes a run's network to an ONNX file while training continues.

A separate process is needed, because the run's builder makes tables with the same names as the
trained tables, and because compiling in the training process would block the training.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mindspore_rec.common.extras import pip_install
from mindspore_rec.common.parallel.launcher import ALONE
from mindspore_rec.common.run.chain import chain_at
from mindspore_rec.common.run.network_file import (
    NETWORK,
    new_network,
    read_network,
    remove_network,
    write_reason,
)

__all__ = ["NetworkProcess", "was_tried", "what_is_missing", "write_saved_network"]

logger = logging.getLogger("mindspore_rec")

_PATIENCE = 120.0  # maximum wait in seconds at the end of a training
_MODULES = ("onnx", "onnxruntime")


def what_is_missing() -> str:
    """Name the missing packages of the ONNX export and the remedy; return '' if none is missing."""
    missing = [name for name in _MODULES if importlib.util.find_spec(name) is None]
    if not missing:
        return ""
    return f"{', '.join(missing)} must be installed: {pip_install('onnx')}"


def was_tried(path: Path) -> bool:
    """Return True if the model's directory has a network, or the reason why the export failed."""
    return (path / NETWORK).is_dir()


def write_saved_network(path: Path) -> str:
    """Write the network of a saved model as ONNX, in a separate process.

    Args:
        path: directory that `RecModel.save` wrote.

    Returns:
        A text that says why there is no network; '' if the network was written.
    """
    try:
        process = NetworkProcess(path, chain_at(path)[-1].manifest["model"])
        try:
            process.start()
            process.wait()
        finally:
            process.close()
        read_network(path / NETWORK)
    except (OSError, ValueError) as error:
        return str(error)
    return ""


class NetworkProcess:
    """Process that writes the directory `network` of a run.

    Args:
        directory: directory of the run.
        model: the manifest's entry for the network; if None, nothing is written.
    """

    def __init__(self, directory: Path, model: dict[str, Any] | None) -> None:
        self._directory = directory
        self._model = model
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process if there is a network to write.

        Until the process has written the network, predictors use the network of an earlier start of
        the training, if the builder, its arguments and its inputs are the same.

        Raises:
            OSError: the directory cannot be written to.
        """
        if self._model is None:
            return
        missing = what_is_missing()
        if missing:
            self._say(missing)
            return
        if not self._has_network():
            # Predictors wait if there is no network, but refuse to start with another network.
            remove_network(self._directory)
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "mindspore_rec.serving.export", str(self._directory)),
                *("--model", json.dumps(self._model), "--parent", str(os.getpid())),
            ],
            env={
                **os.environ,
                ALONE: "none",
                # The new process must be able to import the same modules as this process, including
                # the builder's module.
                "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _say(self, reason: str) -> None:
        with new_network(self._directory) as directory:
            write_reason(directory, reason)

    def _has_network(self) -> bool:
        """Return whether the directory has an undamaged network of the same builder."""
        try:
            network = read_network(self._directory / NETWORK)
        except (OSError, ValueError):
            return False
        return network.model == json.loads(json.dumps(self._model))

    def wait(self) -> None:
        """Wait until the network is written, or until a time limit is reached."""
        if self._process is None:
            return
        try:
            code = self._process.wait(_PATIENCE)
            if code not in (0, 1):  # with 1, the reason was written
                logger.warning(
                    "the process that writes the network of %s as ONNX ended with exit code %d: "
                    "predictors use the network of an earlier start, if there is one",
                    self._directory,
                    code,
                )
        except subprocess.TimeoutExpired:
            logger.warning(
                "the network of %s was not written as ONNX within %d s", self._directory, _PATIENCE
            )

    def close(self) -> None:
        """Kill the process if it is still running."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
