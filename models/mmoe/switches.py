# SPDX-License-Identifier: Apache-2.0
"""Options of the commands that change how the embeddings are held."""

from __future__ import annotations

import argparse
import dataclasses

from models.mmoe.config import Config
from models.mmoe.embedding import EMBEDDINGS

__all__ = ["add_switches", "with_switches"]


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
        "--admission-threshold", type=int, metavar="N", help="an id gets a row when seen N times"
    )
    group.add_argument(
        "--max-idle-steps", type=int, metavar="N", help="a row not seen for N steps is evicted"
    )


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
    changes = {name: value for name, value in given.items() if value is not None}
    return dataclasses.replace(config, model=dataclasses.replace(config.model, **changes))
