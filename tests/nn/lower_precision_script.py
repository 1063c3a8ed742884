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

FLOAT32_ONLY = {"Dice", "HSTU", "HistoryTransformer", "PReLU", "TargetAttention"}
"""Cells whose operators read float32 only."""


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
    prepared = []
    for name, cell, inputs in cases():
        batch = inputs(3)
        prepared.append((name, cell, batch, evaluated(cell.set_train(False), batch)))
    # Cells that raise in a call come last. In PyNative mode, MindSpore computes later calls in the
    # precision of a call that raised.
    for name, cell, batch, expected in sorted(prepared, key=lambda each: each[0] in FLOAT32_ONLY):
        print(name, file=sys.stderr, flush=True)  # the last one, if the process ends
        try:
            with tempfile.TemporaryDirectory() as folder:
                found = evaluated(changed(cell, way, batch, Path(folder)), batch)
            outcome: Any = float(np.abs(found - expected).max(initial=0.0))
        except Exception as error:  # whatever MindSpore's rewriter raises
            outcome = f"{type(error).__name__}: {str(error)[:200]}"
        outcomes.setdefault(name, []).append(outcome)
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
