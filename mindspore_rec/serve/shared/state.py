# SPDX-License-Identifier: Apache-2.0
"""The parts of a shared state other than rows: dense parameters, statistics, checkpoint name.

A blob consists of the length of a JSON text (8 bytes, little-endian), the JSON text, and a
safetensors file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from mindspore_rec.common.run.chain import Entry
from mindspore_rec.common.run.state_file import with_arrays, without_arrays

__all__ = ["PublishedState"]

_ENTRY = ("kind", "step", "run", "state", "parent")
_MANIFEST = ("saved_at", "watermark")
_DENSE = "dense/"


@dataclass(frozen=True)
class PublishedState:
    """Published state with which the reader processes answer requests.

    Attributes:
        entry: the state's checkpoint, whose manifest contains only the fields that `Status` needs.
        deltas_applied, fulls_loaded: see `Status`.
        dense: the dense parameters by name.
        learned: state of the feature pipeline; None if there is no pipeline.

    Example:
        >>> manifest = {"saved_at": 5.0, "watermark": None}
        >>> entry = Entry(Path("run"), "full", 3, "r", "s", None, manifest)
        >>> blob = PublishedState(entry, 0, 1, {"w": np.ones(2)}, None).to_bytes()
        >>> PublishedState.from_bytes(blob).dense
        {'w': array([1., 1.])}
    """

    entry: Entry
    deltas_applied: int
    fulls_loaded: int
    dense: Mapping[str, np.ndarray]
    learned: Any

    def to_bytes(self) -> bytes:
        """Return the blob."""
        arrays: dict[str, np.ndarray] = {}
        described = {
            "path": str(self.entry.path),
            **{name: getattr(self.entry, name) for name in _ENTRY},
            "manifest": {name: self.entry.manifest[name] for name in _MANIFEST},
            "deltas_applied": self.deltas_applied,
            "fulls_loaded": self.fulls_loaded,
            "learned": without_arrays(self.learned, "learned", arrays),
        }
        arrays |= {_DENSE + name: np.ascontiguousarray(a) for name, a in self.dense.items()}
        text = json.dumps(described).encode()
        text += b" " * (-(8 + len(text)) % 64)
        return len(text).to_bytes(8, "little") + text + save(arrays)

    @staticmethod
    def from_bytes(blob: bytes) -> PublishedState:
        """Return the state that a blob contains; the state's arrays are views of the blob.

        Raises:
            ValueError: the bytes are not the blob of a state.
        """
        length = int.from_bytes(blob[:8], "little")
        if length > len(blob) - 8:
            raise ValueError(f"a blob of {len(blob)} bytes has a text of {length}")
        try:
            described = json.loads(blob[8 : 8 + length])
            arrays = load(blob[8 + length :])
            named = {name: described[name] for name in _ENTRY}
            entry = Entry(Path(described["path"]), manifest=described["manifest"], **named)
            dense = {
                name.removeprefix(_DENSE): each
                for name, each in arrays.items()
                if name.startswith(_DENSE)
            }
            learned = with_arrays(described["learned"], arrays)
            counts = int(described["deltas_applied"]), int(described["fulls_loaded"])
        except Exception as error:  # the errors of safetensors have no public base class
            raise ValueError(f"a blob cannot be read: {error}") from error
        return PublishedState(entry, *counts, dense, learned)
