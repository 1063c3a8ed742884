# SPDX-License-Identifier: Apache-2.0
"""Files of JSON that commands write."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

__all__ = ["read_json", "write_json"]


def read_json(path: Path) -> Any:
    """Return the value in a file that `write_json` wrote."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON atomically, with null in place of NaN and infinities.

    Raises:
        ValueError: the file cannot be written.
    """
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        text = json.dumps(_finite(value), indent=2, allow_nan=False)
        beside.write_text(f"{text}\n", encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror or error}") from error


def _finite(value: Any) -> Any:
    """Return a value with None in place of NaN and infinities, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
