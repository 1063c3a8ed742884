# SPDX-License-Identifier: Apache-2.0
"""Options of the commands that change how the embeddings are held."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from mindspore_rec import CacheConfig
from models.mmoe.config import Config
from models.mmoe.embedding import EMBEDDINGS

__all__ = ["add_switches", "with_switches"]

TIERS = ("device_rows", "host_rows", "remote", "ssd_path")


def add_switches(parser: argparse.ArgumentParser) -> None:
    """The options; each is left out to keep what the configuration says."""
    group = parser.add_argument_group("embeddings, instead of what the configuration says")
    group.add_argument(
        "--embedding",
        choices=EMBEDDINGS,
        help="hash: a table that grows (dynamic expansion); static: a table of a fixed vocabulary; "
        "converted: an nn.Embedding, converted automatically",
    )
    group.add_argument(
        "--multi-lookup", action="store_true", help="a lookup for each field of the one table"
    )
    group.add_argument(
        "--admission-threshold",
        type=int,
        metavar="N",
        help="an id gets a row when seen N times, in all epochs together",
    )
    group.add_argument(
        "--max-idle-steps", type=int, metavar="N", help="a row not seen for N steps is evicted"
    )
    tiers = parser.add_argument_group("tiers the rows live in, see docs/multi_level_cache.md")
    tiers.add_argument("--device-rows", type=int, metavar="N", help="at most N on the device")
    tiers.add_argument("--host-rows", type=int, metavar="N", help="at most N in host memory")
    tiers.add_argument("--remote", metavar="URL", help="the others in Redis: redis://HOST:PORT")
    tiers.add_argument("--ssd-path", metavar="DIR", help="the others, or the rest, on an SSD")


def with_switches(config: Config, options: argparse.Namespace) -> Config:
    """The configuration as the options change it.

    Raises:
        ValueError: options that do not go together.
    """
    given = {
        "embedding": options.embedding,
        "multi_lookup": options.multi_lookup or None,
        "admission_threshold": options.admission_threshold,
        "max_idle_steps": options.max_idle_steps,
    }
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    tiers = {name: getattr(options, name) for name in TIERS if getattr(options, name) is not None}
    if tiers:
        cache = config.model.cache
        changes["cache"] = dataclasses.replace(cache, **tiers) if cache else CacheConfig(**tiers)
    return dataclasses.replace(config, model=dataclasses.replace(config.model, **changes))
