# SPDX-License-Identifier: Apache-2.0
"""Tiers of a predictor: the rows of the predictor's tables in host memory, Redis and SSD.

The tiers contain only copies of the checkpoints' rows, so closing the predictor removes the tiers.
Each start of a predictor makes new tiers. No other predictor or training uses the directory or the
Redis keys of these tiers.
"""

from __future__ import annotations

import dataclasses
import fcntl
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mindspore_rec.common.tiers.config import POLICIES, CacheConfig
from mindspore_rec.common.tiers.ssd_config import SsdConfig

if TYPE_CHECKING:
    import argparse

__all__ = ["ServedTiers", "add_tier_arguments", "check_tiers", "tiers_of"]

logger = logging.getLogger("mindspore_rec")

_PREFIX = "predictor-"


class ServedTiers:
    """Tiers below host memory for the tables of one predictor.

    Args:
        config: result of `check_tiers`.

    Attributes:
        names: names of the tiers, for messages.

    Raises:
        OSError: the directory cannot be created.
    """

    def __init__(self, config: CacheConfig) -> None:
        self._config = config
        self._lock = -1
        self._directory: Path | None = None
        self._remote: list[tuple[Any, Any]] = []  # tables, and their tiers on Redis
        if config.ssd is not None:
            self._directory, self._lock = _own_directory(Path(config.ssd.path))
            ssd = dataclasses.replace(config.ssd, path=self._directory)
            self._config = dataclasses.replace(config, ssd=ssd)
        self._name = f"served-{os.urandom(8).hex()}"
        self.names = tuple(
            name
            for name, setting in (("Redis", config.remote), ("SSD", config.ssd))
            if setting is not None
        )

    def attach(self, tables: Mapping[str, Any]) -> None:
        """Add tiers to tables that have no rows yet.

        Raises:
            ValueError: a table already has tiers, a device cache, or int8 or int4 rows.
            OSError, ImportError, RemoteError: a tier cannot be opened.
        """
        for name, table in tables.items():

            def opened(tier: Any, table: Any = table) -> None:
                self._remote.append((table, tier))

            table.add_tiers(self._config, f"{self._name}/{name}", opened)

    def stats(self, tables: Mapping[str, Any]) -> dict[str, dict[str, float]]:
        """Return statistics of the requests to each table's tiers.

        `keys` counts the distinct keys in requests. `host_hits` counts the keys with rows in host
        memory, and `below_hits` counts the keys with rows in the `remote` and `ssd` tiers.
        `wait_seconds` is the time that lookups waited for the tiers below host memory.
        """
        by_table = {}
        for name, table in tables.items():
            stats = table.stats()
            by_table[name] = {
                "rows": stats["rows"],
                "host_rows": stats["host_rows"],
                "keys": stats["evaluated_keys"],
                "host_hits": stats["evaluated_host_hits"],
                "below_hits": stats["evaluated_below_hits"],
                "wait_seconds": stats["evaluation_wait_seconds"],
            }
        return by_table

    def release(self) -> None:
        """Remove the rows from Redis; the tables must still be open."""
        for table, tier in self._remote:
            try:
                table.clear_rows()
                tier.discard()
            except Exception as error:  # rows left there cost space, and nobody reads them
                logger.warning("rows of this predictor stay on Redis: %s", error)
                break  # the next table would wait for the same server as long
        self._remote = []

    def close(self) -> None:
        """Remove the directory; the tables must be closed."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            os.close(self._lock)
            self._directory = None


def check_tiers(tiers: Any, rows: str) -> CacheConfig | None:
    """Return the tiers of a predictor, or None.

    Args:
        tiers: see `Predictor`.
        rows: see `Predictor`.

    Raises:
        TypeError: `tiers` is not a CacheConfig.
        ValueError: a predictor cannot use one of the settings.

    Example:
        >>> check_tiers(CacheConfig(device_rows=5), "float32")
        Traceback (most recent call last):
        ...
        ValueError: tiers must be below host memory (ssd or remote), without device_rows
    """
    if tiers is None:
        return None
    if not isinstance(tiers, CacheConfig):
        raise TypeError(f"tiers must be a CacheConfig or None, got {tiers!r}")
    if not tiers.has_lower_tier or tiers.device_rows is not None:
        raise ValueError("tiers must be below host memory (ssd or remote), without device_rows")
    if tiers.leftover != "refuse":
        raise ValueError("tiers must leave out leftover: a predictor makes its tiers anew")
    if rows != "float32":
        raise ValueError(f"rows must be 'float32' with tiers, got '{rows}': choose one of the two")
    return tiers


def _own_directory(parent: Path) -> tuple[Path, int]:
    """Create and lock a directory; remove the directories of predictors that were killed."""
    parent.mkdir(parents=True, exist_ok=True)
    gate = os.open(parent / "predictors.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(gate, fcntl.LOCK_EX)  # nobody looks at one that is not locked yet
        for other in parent.glob(f"{_PREFIX}*"):
            _remove_if_dead(other)
        made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        lock = os.open(made / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return made, lock
    finally:
        os.close(gate)


def _remove_if_dead(path: Path) -> None:
    try:
        lock = os.open(path / "lock", os.O_RDWR)
    except OSError:  # it has no lock, so it is not a predictor's: leave it alone
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(lock)


def add_tier_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options that `tiers_of` reads."""
    group = parser.add_argument_group("tables larger than memory")
    group.add_argument("--host-rows", type=int, metavar="N", help="rows of a table in host memory")
    group.add_argument(
        "--host-bytes", type=int, metavar="N", help="the same limit in bytes of rows"
    )
    group.add_argument(
        "--ssd-path",
        metavar="DIRECTORY",
        help="where rows beyond it are, in a directory that each start makes anew",
    )
    group.add_argument("--ssd-bytes", type=int, metavar="N", help="most bytes of a table there")
    group.add_argument("--remote", metavar="URL", help="Redis, where rows beyond it are")
    group.add_argument("--remote-rows", type=int, metavar="N", help="most rows of a table there")
    group.add_argument(
        "--host-policy",
        choices=POLICIES,
        help="which rows stay in host memory: those seen most often in training, or last; "
        "default: lfu",
    )


def tiers_of(options: argparse.Namespace) -> CacheConfig | None:
    """Return the tiers that the options describe, or None.

    Raises:
        ValueError: two options contradict each other, or an option does not allow several workers.
    """
    names = ("host_rows", "host_bytes", "remote", "remote_rows")
    settings = {name: getattr(options, name) for name in names}
    path, most = options.ssd_path, options.ssd_bytes
    if all(value is None for value in (*settings.values(), path, most)):
        if options.host_policy is not None:
            raise ValueError("--host-policy must be left out without --remote and --ssd-path")
        return None
    if getattr(options, "workers", 1) > 1:
        raise ValueError(
            "--workers must be 1 with --ssd-path or --remote: rows in tiers belong to one process"
        )
    if getattr(options, "rows", "float32") != "float32":
        raise ValueError(f"--rows must be float32 with --ssd-path or --remote, got {options.rows}")
    if path is None and most is not None:
        raise ValueError("--ssd-bytes must be left out without --ssd-path")
    try:
        ssd = None if path is None else SsdConfig(path, max_bytes=most)
        return CacheConfig(**settings, ssd=ssd, policy=options.host_policy or "lfu")
    except ValueError as error:  # it names arguments
        named = {"path": "--ssd-path", "max_bytes": "--ssd-bytes", "ssd": "--ssd-path"}
        named |= {name: "--" + name.replace("_", "-") for name in names}
        words = re.sub(rf"\b({'|'.join(named)})\b", lambda name: named[name[0]], str(error))
        raise ValueError(words) from None
