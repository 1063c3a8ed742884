# SPDX-License-Identifier: Apache-2.0
"""Former arguments of `CacheConfig`, which are now fields of `SsdConfig`."""

from __future__ import annotations

import dataclasses
from typing import Any

from mindspore_rec.common.old_arguments import warn_of_old
from mindspore_rec.common.tiers.ssd_config import SsdConfig

__all__ = ["POSITIONS", "SSD_FIELDS", "InSsd", "ssd_of"]

SSD_FIELDS = {"ssd_path": "path", "ssd_bytes": "max_bytes", "ssd_direct": "direct"}
"""Fields of `SsdConfig`, by the names of the old arguments."""

POSITIONS = (
    "device_rows",
    "host_rows",
    "host_bytes",
    "remote",
    "remote_rows",
    "ssd_path",
    "ssd_bytes",
    "policy",
    "prefetch",
    "leftover",
    "ssd_direct",
)
"""Names of the positional arguments of `CacheConfig` in earlier versions, in order."""


class InSsd:
    """Converter from the old arguments of the SSD tier to fields of the argument `ssd`."""

    def apply(self, function: str, named: dict[str, Any]) -> None:
        """Replace the old arguments by `ssd`, with a warning for each argument.

        If the call also has `ssd`, the old arguments set fields of `ssd`. For example,
        `dataclasses.replace` passes `ssd` in addition to the old arguments.
        """
        old = {name: named.pop(name) for name in SSD_FIELDS if name in named}
        for name in old:
            form = "path" if name == "ssd_path" else f"path, {SSD_FIELDS[name]}=..."
            warn_of_old(name, f"use ssd=SsdConfig({form}) instead")
        if old:
            named["ssd"] = ssd_of(named.get("ssd"), old)


def ssd_of(ssd: SsdConfig | None, old: dict[str, Any]) -> SsdConfig | None:
    """Return the config of the SSD tier, with fields set from old arguments.

    Args:
        ssd: config of the SSD tier; None without an SSD tier.
        old: dict from an old argument's name to its value.

    Raises:
        ValueError: an old argument sets a field of the SSD tier, but the path is missing.

    Example:
        >>> ssd_of(None, {"ssd_path": "rows", "ssd_direct": False})
        SsdConfig(path='rows', max_bytes=None, direct=False)
    """
    fields = {SSD_FIELDS[name]: value for name, value in old.items()}
    if ssd is not None and fields.get("path", ssd.path) is not None:
        return dataclasses.replace(ssd, **fields)
    if fields.pop("path", None) is not None:
        return SsdConfig(old["ssd_path"], **fields)
    for name in ("ssd_bytes", "ssd_direct"):
        if old.get(name) not in (None, True):
            raise ValueError(f"{name} must be left out without ssd_path")
    return None
