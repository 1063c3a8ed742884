# SPDX-License-Identifier: Apache-2.0
"""Options of `python -m mindspore_rec.plan` for training over several workers."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mindspore_rec.common.columns.schema.layout import TableGroup
from mindspore_rec.plan.log import KeyLog
from mindspore_rec.plan.placement import Machine
from mindspore_rec.plan.schema_log import SchemaLog
from mindspore_rec.plan.workers import PlannedTable, WorkerPlan, plan_workers

__all__ = ["add_worker_options", "check_no_worker_options", "columns", "worker_plan"]

# Options that need --workers, and their default values.
_DEFAULTS: dict[str, Any] = {
    "table": None,
    "link_gbit": 10.0,
    "latency_us": 50.0,
    "message_us": 10.0,
    "memory_gb": 10.0,
    "workers_per_host": 1,
    "dense_bytes": 0,
    "compute_ms": 0.0,
    "placements": None,
}


def columns(text: str) -> list[str | int]:
    """Parse columns from text: names, numbers, and ranges of numbers.

    Raises:
        argparse.ArgumentTypeError: a part is empty.

    Example:
        >>> columns("user,3,14-16")
        ['user', 3, 14, 15, 16]
    """
    selected: list[str | int] = []
    for part in text.split(","):
        numbers = re.fullmatch(r"(\d+)-(\d+)", part)
        if not part:
            raise argparse.ArgumentTypeError(f"must be names or numbers, got {text!r}")
        if numbers:
            selected += range(int(numbers[1]), int(numbers[2]) + 1)
        else:
            selected.append(int(part) if part.isdecimal() else part)
    return selected


def _numbers_of_workers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"must be whole numbers from 1, got {text!r}")
    return numbers


def _table(text: str) -> tuple[str, int | None, list[str | int]]:
    parts = re.fullmatch(r"([^:=]+)(?::(\d+))?=(.+)", text)
    if parts is None:
        raise argparse.ArgumentTypeError(f"must be NAME[:DIM]=COL[,COL...], got {text!r}")
    return parts[1], None if parts[2] is None else int(parts[2]), columns(parts[3])


def add_worker_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for `--workers`; an option that the user leaves out is None."""
    add = parser.add_argument_group("over workers").add_argument
    add(
        "--workers",
        type=_numbers_of_workers,
        metavar="N[,N...]",
        help="instead: a training over N workers, each with batches of --batch-size",
    )
    add(
        "--table",
        type=_table,
        action="append",
        metavar="NAME[:DIM]=COL[,COL...]",
        help="a table and its columns, once a table, in place of --keys",
    )
    add("--link-gbit", type=float, metavar="G", help="Gbit/s between hosts (default 10)")
    add("--latency-us", type=float, metavar="T", help="of a message between hosts (default 50)")
    add("--message-us", type=float, metavar="T", help="of work for a message (default 10)")
    add("--memory-gb", type=float, metavar="G", help="GB/s of rows in memory (default 10)")
    add("--workers-per-host", type=int, metavar="K", help="that share a link (default 1)")
    add("--dense-bytes", type=int, metavar="B", help="of the dense parameters (default 0)")
    add("--compute-ms", type=float, metavar="T", help="of a batch's dense part (default 0)")
    add("--placements", type=Path, metavar="FILE", help="write the placements as JSON")


def check_no_worker_options(options: argparse.Namespace) -> None:
    """Raise ValueError if an option for `--workers` is set without `--workers`."""
    for name in _DEFAULTS:
        if getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} needs --workers")


def worker_plan(
    options: argparse.Namespace, log: KeyLog | Sequence[tuple[TableGroup, SchemaLog]] | None
) -> WorkerPlan:
    """Return the plan for the options. With `--placements`, also write the plan's placements to
    this option's file.

    Args:
        options: parsed options of the command line.
        log: the log if `--keys` is set, or the tables and their logs if `--schema` is set;
            otherwise None.

    Raises:
        ValueError: an option is out of range, or two options exclude each other.
    """
    settings = {
        name: default if getattr(options, name) is None else getattr(options, name)
        for name, default in _DEFAULTS.items()
    }
    machine = Machine(
        link_bytes=settings["link_gbit"] * 1e9 / 8,
        memory_bytes=settings["memory_gb"] * 1e9,
        latency=settings["latency_us"] * 1e-6,
        message=settings["message_us"] * 1e-6,
        workers_per_host=settings["workers_per_host"],
    )
    if options.placements is not None:
        options.placements.absolute().parent.mkdir(parents=True, exist_ok=True)
    plan = plan_workers(
        _tables(options, log),
        options.workers,
        options.batch_size,
        machine,
        settings["dense_bytes"],
        settings["compute_ms"] * 1e-3,
        progress=True,
    )
    if options.placements is not None:
        text = json.dumps(plan.placements(), indent=2) + "\n"
        options.placements.write_text(text, encoding="utf-8")
    return plan


def _tables(
    options: argparse.Namespace, log: KeyLog | Sequence[tuple[TableGroup, SchemaLog]] | None
) -> dict[str, PlannedTable]:
    if isinstance(log, Sequence):
        return {
            group.name or "table": PlannedTable(
                each, options.dim or group.embedding_dim, options.optimizer
            )
            for group, each in log
        }
    if (log is None) == (options.table is None):
        raise ValueError("--keys and --table exclude each other")
    if log is not None:
        return {"table": PlannedTable(log, options.dim, options.optimizer)}
    tables: dict[str, PlannedTable] = {}
    for name, dim, keys in options.table:
        if name in tables:
            raise ValueError(f"--table must name each table once, got {name!r} twice")
        own = KeyLog(options.logs, keys, None, options.format, options.header, options.key_type)
        tables[name] = PlannedTable(own, dim or options.dim, options.optimizer)
    return tables
