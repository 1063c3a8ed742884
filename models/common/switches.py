# SPDX-License-Identifier: Apache-2.0
"""Command-line options that change the embeddings of a configuration."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from mindspore_rec import CacheConfig, SsdConfig
from models.common.embedding_config import KINDS, EmbeddingConfig

__all__ = ["add_switches", "with_switches"]

TIERS = ("device_rows", "host_rows", "remote")


def add_switches(parser: argparse.ArgumentParser) -> None:
    """Add the options; an omitted option keeps the configuration's value."""
    group = parser.add_argument_group("embeddings, instead of what the configuration says")
    group.add_argument(
        "--embedding",
        choices=KINDS,
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


def with_switches(config: Any, options: argparse.Namespace) -> Any:
    """Return a copy of a configuration, changed by the options of the command line.

    Args:
        config: configuration of a model.
        options: parsed command line, with the options that `add_switches` added.

    Raises:
        ValueError: the options contradict each other, or contradict the configuration.
    """
    embedding = config.embedding
    settings = {
        "multi_lookup": options.multi_lookup or None,
        "admission_threshold": options.admission_threshold,
        "max_idle_steps": options.max_idle_steps,
    }
    changes: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if options.embedding not in (None, embedding.kind):
        changes |= _other_kind(options.embedding)
    tiers = {name: getattr(options, name) for name in TIERS if getattr(options, name) is not None}
    cache = embedding.cache
    if options.ssd_path is not None:
        ssd = None if cache is None else cache.ssd
        path = options.ssd_path
        tiers["ssd"] = dataclasses.replace(ssd, path=path) if ssd else SsdConfig(path)
    if tiers:
        changes["cache"] = dataclasses.replace(cache, **tiers) if cache else CacheConfig(**tiers)
    return dataclasses.replace(config, embedding=dataclasses.replace(embedding, **changes))


def _other_kind(kind: str) -> dict[str, Any]:
    """Return new values for all `EmbeddingConfig` fields that depend on the kind of tables."""
    default = EmbeddingConfig()
    return {
        "kind": kind,
        "vocabulary": kind == "static",
        "buckets": default.buckets,
        "host_device_mix": default.host_device_mix,
    }
