# SPDX-License-Identifier: Apache-2.0
"""One run of the guard in this process: `python -m tests.guard.run NAME FOLDER`.

Writes FOLDER/digests.RANK.json. Several workers are started by `mindspore_rec.launch`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mindspore as ms

from mindspore_rec.parallel import worker_group
from tests.guard.runs import RUNS


def main(name: str, folder: Path) -> None:
    """Record a run."""
    ms.set_context(mode=ms.GRAPH_MODE)
    found = RUNS[name].record(folder)
    (folder / f"digests.{worker_group().rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
