# SPDX-License-Identifier: Apache-2.0
"""Instructions of the decoding of requests, and bytecodes of the Python functions that do it."""

from __future__ import annotations

import json
import site
import sys
from collections import Counter
from pathlib import Path

from tests.counted.callgrind import count

__all__ = ["count_decoding"]

_PROGRAM = Path(__file__).with_name("decode.py")
_ROOT = Path(__file__).parents[2]


def count_decoding(
    meter: Path,
) -> tuple[dict[str, str], dict[str, Counter[str]], dict[str, dict[str, int]]]:
    """Return the versions that counts depend on; instructions by function, by case; and bytecodes
    by Python function, by case.

    Args:
        meter: the library of `csrc/python_meter.cc`.
    """
    # Without site, which reads the files of everything that is installed.
    paths = [str(_ROOT), *site.getsitepackages()]
    environment = {
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": ":".join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "ARROW_USER_SIMD_LEVEL": "NONE",
        "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3",
    }
    found, said = count([sys.executable, "-S", "-W", "ignore", _PROGRAM, meter], environment)
    printed = json.loads(said)
    return printed["versions"], found, printed["python"]
