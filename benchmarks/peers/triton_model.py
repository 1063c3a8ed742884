# SPDX-License-Identifier: Apache-2.0
"""Model of Triton's Python backend: rows in NumPy arrays, the dense part by ONNX Runtime.

Triton imports this file in a separate process for each instance of the model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import triton_python_backend_utils as triton


class TritonPythonModel:
    """Answers requests that have `ids` and `numbers`; rows of unknown ids are zeros."""

    def initialize(self, arguments: dict[str, str]) -> None:
        """Read the rows and the network from the configured directory."""
        parameters = json.loads(arguments["model_config"])["parameters"]
        directory = Path(parameters["directory"]["string_value"])
        self._rows_input = parameters["rows_input"]["string_value"]
        self._keys = np.load(directory / "keys.npy")
        self._rows = np.load(directory / "rows.npy")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(directory / "network.onnx"), options, providers=["CPUExecutionProvider"]
        )

    def _lookup(self, ids: np.ndarray) -> np.ndarray:
        places = np.minimum(np.searchsorted(self._keys, ids), len(self._keys) - 1)
        rows = self._rows[places]
        rows[self._keys[places] != ids] = 0
        return rows

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer the requests."""
        answers = []
        for request in requests:
            ids, numbers = (
                triton.get_input_tensor_by_name(request, name).as_numpy()
                for name in ("ids", "numbers")
            )
            inputs = {self._rows_input: self._lookup(ids), "numbers": numbers}
            (score,) = self._session.run(None, inputs)
            output = triton.Tensor("score", score.astype(np.float32, copy=False))
            answers.append(triton.InferenceResponse(output_tensors=[output]))
        return answers
