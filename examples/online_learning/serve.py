# SPDX-License-Identifier: Apache-2.0
"""Predictor: answer from the newest state of the trainer.

    python examples/online_learning/serve.py --directory online_run

The predictor makes a prediction twice a second, to show its state. The following command answers
over HTTP: `PYTHONPATH=. python -m mindspore_rec.serving online_run/checkpoints --port 8500`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only
sys.path.insert(0, str(Path(__file__).parents[2]))  # `datasets` and `models` are not in the wheel

import mindspore as ms

from examples.online_learning.events import EventSet, open_events
from examples.online_learning.parts import Status, parser, stopped_in_order
from mindspore_rec.serving import Predictor


def serve(events: EventSet, directory: Path, wait: float) -> None:
    """Make predictions until the process is stopped."""
    checkpoints = directory / "checkpoints"
    question = events.batch(0, 1, sent=1.0)  # raw: the pipeline makes the keys
    status = Status(directory, "serve")
    with Predictor(checkpoints, wait_seconds=wait, features=events.pipeline()) as predictor:
        while True:
            begin = time.perf_counter()
            logit = float(predictor.predict(question)[0, 0])
            milliseconds = 1e3 * (time.perf_counter() - begin)
            now = predictor.status()
            figures: dict[str, Any] = {
                "version": now.version,
                "lag": now.lag,
                "watermark": now.watermark,
            }
            if now.error is not None:
                figures["error"] = now.error
            status.say(**figures, answer=logit, milliseconds=milliseconds)
            time.sleep(0.5)


def main() -> None:
    """Run the predictor."""
    made = parser(__doc__.split("\n")[0])
    made.add_argument("--wait", type=float, default=600.0, help="seconds for a first checkpoint")
    options = made.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    with stopped_in_order():
        serve(open_events(options.data), options.directory, options.wait)


if __name__ == "__main__":
    main()
