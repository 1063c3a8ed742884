# SPDX-License-Identifier: Apache-2.0
"""Evaluate each public cell in lower precision or as MindIR; print the outcomes as JSON.

    python -m tests.nn.lower_precision_script float16 graph

An outcome is the largest difference from the cell's output in float32, or the error.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.train import amp

from tests.nn.public_cells import MODES, cases


def evaluated(cell: nn.Cell, inputs: tuple[Tensor, ...]) -> np.ndarray:
    """Return the first output as float32."""
    output = cell(*inputs)
    output = output[0] if isinstance(output, tuple) else output
    array: np.ndarray = output.astype(ms.float32).asnumpy()
    return array


def changed(cell: nn.Cell, way: str, inputs: tuple[Tensor, ...], folder: Path) -> nn.Cell:
    """Return the cell in float16 or at a level of MindSpore's mixed precision, or as MindIR."""
    cell.compile_cache.clear()
    if way == "mindir":
        ms.export(cell, *inputs, file_name=str(folder / "cell"), file_format="MINDIR")
        return nn.GraphCell(ms.load(str(folder / "cell.mindir")))
    if way == "float16":
        return cell.to_float(ms.float16)
    return amp.auto_mixed_precision(cell, way)


def main() -> None:
    """Evaluate all cells in the way and the mode that the command names."""
    way, mode = sys.argv[1:]
    ms.set_context(mode=MODES[mode])
    outcomes: dict[str, Any] = {}
    for name, cell, inputs in cases():
        print(name, file=sys.stderr, flush=True)  # the last one, if the process ends
        batch = inputs(3)
        expected = evaluated(cell.set_train(False), batch)
        try:
            with tempfile.TemporaryDirectory() as folder:
                found = evaluated(changed(cell, way, batch, Path(folder)), batch)
            outcome: Any = float(np.abs(found - expected).max(initial=0.0))
        except (ValueError, RuntimeError, TypeError) as error:
            outcome = f"{type(error).__name__}: {str(error)[:200]}"
        outcomes.setdefault(name, []).append(outcome)
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
