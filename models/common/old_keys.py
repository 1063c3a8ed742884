# SPDX-License-Identifier: Apache-2.0
"""Renamed configuration keys: the old names can be used until version 1.0."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

__all__ = ["with_new_keys"]

_NEW: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "CacheConfig": {
        "ssd_path": ("ssd", "path"),
        "ssd_bytes": ("ssd", "max_bytes"),
        "ssd_direct": ("ssd", "direct"),
    },
    "EmbeddingConfig": {"dim": ("embedding_dim",)},
}
"""By dataclass and old key: the path of the new key."""


def with_new_keys(kind: type, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a section of a configuration, with old keys replaced by the current keys.

    Args:
        kind: the dataclass.
        values: the section, which may contain keys of an earlier version; each old key causes a
            warning.

    Example:
        >>> from mindspore_rec import CacheConfig
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     with_new_keys(CacheConfig, {"host_rows": 9, "ssd_path": "rows"})
        {'host_rows': 9, 'ssd': {'path': 'rows'}}
        >>> print(caught[0].message)
        the key 'ssd_path' is deprecated and ends with version 1.0: use 'ssd.path' instead
    """
    old = _NEW.get(kind.__name__, {})
    if not old.keys() & values.keys():
        return values
    made = {key: value for key, value in values.items() if key not in old}
    for key, path in old.items():
        if key not in values or values[key] is None:
            continue
        warnings.warn(
            f"the key {key!r} is deprecated and ends with version 1.0: use {'.'.join(path)!r} "
            "instead",
            FutureWarning,
            stacklevel=2,
        )
        section = made
        for name in path[:-1]:
            section[name] = dict(section.get(name) or {})
            section = section[name]
        section.setdefault(path[-1], values[key])
    return made
