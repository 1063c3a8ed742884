# SPDX-License-Identifier: Apache-2.0
"""Run programs of mistakes one after another, each as it runs by itself, to its traceback.

One process for all of them, since MindSpore takes seconds to import. Usage:

    python tests/train/mistakes/run_programs.py GRAPH_MODE text_ids label_without_axis
"""

from __future__ import annotations

import importlib
import runpy
import sys
import traceback
from pathlib import Path

import mindspore as ms

HERE = Path(__file__).parent
END = "\x1c"  # after each program's lines


def main(mode: str, names: list[str]) -> None:
    """Run the programs of these names in a mode of MindSpore: GRAPH_MODE or PYNATIVE_MODE."""
    sys.path.insert(0, str(HERE))
    shop = importlib.import_module("shop")
    for name in names:
        importlib.reload(shop)  # the last program may have changed its arrays
        ms.set_context(mode=getattr(ms, mode))
        try:
            runpy.run_path(str(HERE / "programs" / f"{name}.py"), run_name="__main__")
        except Exception:
            traceback.print_exc()
        print(END, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
