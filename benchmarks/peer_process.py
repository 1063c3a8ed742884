# SPDX-License-Identifier: Apache-2.0
"""A peer: the same network in another framework, in a process of another Python interpreter."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import bench_common
import numpy as np

__all__ = ["WORKERS", "Peer", "installed"]

WORKERS = {
    "torch": "torch_wide_deep.py",
    "tfra": "tfra_wide_deep.py",
    "fbgemm": "fbgemm_lookup.py",
}
MODULES = {
    "torch": ("torch",),
    "tfra": ("tensorflow", "tensorflow_recommenders_addons"),
    "fbgemm": ("torch", "fbgemm_gpu"),
}
_LAST_WORDS = 2000


def installed(name: str, python: str) -> str:
    """Return the reason why an interpreter cannot run a peer of `WORKERS`, or "" if it can."""
    look = "import importlib.util as u, sys; print([n for n in sys.argv[1:] if not u.find_spec(n)])"
    try:
        done = subprocess.run(
            [python, "-c", look, *MODULES[name]], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        return f"{python} does not run: {error}"
    missing = json.loads(done.stdout.replace("'", '"'))
    return f"{python} does not have {', '.join(missing)}" if missing else ""


class Peer:
    """A worker that runs steps on command.

    Args:
        name: key of `WORKERS`.
        python: path of the interpreter that has the framework.
        settings: all fields, except arrays, of `peers.serve.Work` or of the worker's own class.
        arrays: the fields of `peers.serve.Work` that are arrays.
        script: the worker's file in `peers`. Default: the file of `name` in `WORKERS`.

    Attributes:
        about: package versions and details of the step, reported by the worker.

    Raises:
        RuntimeError: the worker ended before it was ready; the message has the worker's last
            output.
    """

    def __init__(
        self,
        name: str,
        python: str,
        settings: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        script: str = "",
    ) -> None:
        self.name = name
        self._directory = tempfile.TemporaryDirectory()
        path = Path(self._directory.name)
        (path / "settings.json").write_text(json.dumps(dict(settings)), encoding="utf-8")
        np.savez(path / "batches.npz", **arrays)
        self._said = (path / "said").open("w+", encoding="utf-8")
        answers, of_worker = os.pipe()
        self._answers = os.fdopen(answers, encoding="utf-8")
        worker = bench_common.BENCHMARKS / "peers" / (script or WORKERS[name])
        self._process = subprocess.Popen(
            [python, str(worker), str(path), str(of_worker)],
            stdin=subprocess.PIPE,
            stdout=self._said,
            stderr=self._said,
            pass_fds=(of_worker,),
            bufsize=0,
        )
        os.close(of_worker)
        try:
            self.about: dict[str, str] = json.loads(self._answer())
        except BaseException:
            self.close()
            raise

    def step(self, k: int) -> float:
        """Run a step on batch k; return its seconds in the worker.

        Raises:
            RuntimeError: the worker ended; the message has the worker's last output.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `_answer` reports a worker that ended
            self._process.stdin.write(f"{k}\n".encode())
        return float(self._answer())

    def _answer(self) -> str:
        line = self._answers.readline()
        if not line:
            code = self._process.wait()
            self._said.seek(0)
            words = self._said.read()[-_LAST_WORDS:]
            raise RuntimeError(f"the worker of {self.name} ended with code {code}:\n{words}")
        return line

    def close(self) -> None:
        """End the process, and remove its files."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        for file in (self._process.stdin, self._answers, self._said):
            file.close()
        self._directory.cleanup()
