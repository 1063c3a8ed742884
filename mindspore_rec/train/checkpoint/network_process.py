# SPDX-License-Identifier: Apache-2.0
"""The process that writes the network of a run as ONNX while the training goes on.

It is a process of its own because a run's builder makes tables of the names that the training has,
and because compiling would stop the training.
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
from mindspore_rec.common.run.manifest import new_directory
from mindspore_rec.common.run.network_file import NETWORK, remove_network, write_reason

__all__ = ["NetworkProcess"]

logger = logging.getLogger("mindspore_rec")

_PATIENCE = 120.0  # seconds at the end of a training
_MODULES = ("onnx", "onnxruntime")


class NetworkProcess:
    """Writer of the directory `network` of a run.

    Args:
        directory: directory of the run.
        model: the manifest's entry on the network, or None: nothing is written.
    """

    def __init__(self, directory: Path, model: dict[str, Any] | None) -> None:
        self._directory = directory
        self._model = model
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start to write, if there is a network to write.

        Raises:
            OSError: the directory cannot be written to.
        """
        if self._model is None:
            return
        remove_network(self._directory)  # the builder may return a different one this time
        missing = [name for name in _MODULES if importlib.util.find_spec(name) is None]
        if missing:
            self._say(f"{', '.join(missing)} must be installed: {pip_install('onnx')}")
            return
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "mindspore_rec.serving.export", str(self._directory)),
                *("--model", json.dumps(self._model), "--parent", str(os.getpid())),
            ],
            env={
                **os.environ,
                ALONE: "none",
                # Modules are found as here, the builder's too.
                "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _say(self, reason: str) -> None:
        with new_directory(self._directory / NETWORK) as directory:
            write_reason(directory, reason)

    def wait(self) -> None:
        """Wait until it is written."""
        if self._process is None:
            return
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            logger.warning(
                "the network of %s was not written as ONNX within %d s", self._directory, _PATIENCE
            )

    def close(self) -> None:
        """End it, if it still runs."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
