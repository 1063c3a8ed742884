# SPDX-License-Identifier: Apache-2.0
"""Try thresholds and capacities on a key log: `python -m mindspore_rec.plan --help`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

from mindspore_rec.plan.capacity import ORDERS
from mindspore_rec.plan.columns import KEY_TYPES
from mindspore_rec.plan.log import KeyLog
from mindspore_rec.plan.plot import check_plot, save_plot
from mindspore_rec.plan.readers import FORMATS
from mindspore_rec.plan.report import plan_text
from mindspore_rec.plan.schema_options import (
    add_schema_options,
    check_schema_options,
    rows_of_schema,
    schema_logs,
)
from mindspore_rec.plan.simulate import Choices, Plan, simulate
from mindspore_rec.plan.sizes import OPTIMIZERS, STATE_DTYPES, VALUE_DTYPES, row_bytes
from mindspore_rec.plan.tier_report import tier_text
from mindspore_rec.plan.tiers import TierPlan, Tiers, plan_tiers
from mindspore_rec.plan.worker_options import (
    add_worker_options,
    check_no_worker_options,
    columns,
    worker_plan,
)
from mindspore_rec.plan.worker_report import worker_text
from mindspore_rec.plan.workers import WorkerPlan

_DESCRIPTION = """\
Runs rows, counters and evictions of a table over a key log, without values, and prints what each
choice of admission threshold, idle limit and capacity costs in rows and bytes, and how many lookups
would read a trained row. With --tiers it prints instead which tier of a table would serve the keys
of each batch, and how many rows would move; with --workers what each of many workers would hold,
exchange and take a step. Formats: Parquet, CSV, TSV, lines of JSON (as kafka-console-consumer
prints); text may be gzip."""


_NOT_OF_TIERS = (
    "admission",
    "max_idle_steps",
    "max_idle_seconds",
    "capacity",
    "capacity_admission",
    "time",
    "plot",
)


def _column(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def _ints(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be whole numbers, got {text!r}") from None


def _capacities(text: str) -> list[int | float]:
    try:
        return [
            float(part[:-1]) / 100
            if part.endswith("%")
            else (int(part) if part.isdecimal() else float(part))
            for part in text.split(",")
        ]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be rows (50000) or shares of the distinct keys (0.1 or 10%), got {text!r}"
        ) from None


def _tiers(text: str) -> list[Tiers]:
    try:
        return Tiers.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _orders(text: str) -> list[str]:
    return text.split(",")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mindspore_rec.plan", description=_DESCRIPTION)
    add = parser.add_argument
    add("logs", nargs="*", type=Path, metavar="LOG", help="files, in the order of training")
    add(
        "--keys",
        type=columns,
        metavar="COL[,COL...]",
        help="columns looked up in the table: names; for CSV and TSV also numbers from 0 and "
        "ranges, 14-39",
    )
    add("--time", type=_column, metavar="COL", help="event time: epoch seconds or ISO 8601")
    add("--format", choices=FORMATS, help="default: as the names end")
    add(
        "--header",
        action="store_const",
        const=True,
        help="the first line of CSV or TSV is a header; so it is where a column is a name",
    )
    add(
        "--key-type",
        choices=KEY_TYPES,
        default="auto",
        help="id: numbers are the keys; category: hashed with their column's name; auto: numbers "
        "id, text category (default)",
    )
    add("--dim", type=int, help="floats of a row's value (default 16, or as --schema tells)")
    add("--optimizer", choices=tuple(OPTIMIZERS), default="LazyAdam", help="default %(default)s")
    add("--value-dtype", choices=VALUE_DTYPES, default="float32", help="default %(default)s")
    add("--state-dtype", choices=STATE_DTYPES, default="float32", help="default %(default)s")
    add("--batch-size", type=int, default=4096, help="samples (default %(default)s)")
    add(
        "--admission",
        type=_ints,
        metavar="N[,N...]",
        help="occurrences that admit a key (default 1,2,3,5,10)",
    )
    add(
        "--max-idle-steps",
        type=_ints,
        metavar="N[,N...]",
        help="evict what was not seen for that many steps",
    )
    add(
        "--max-idle-seconds",
        type=_ints,
        metavar="N[,N...]",
        help="evict what was not seen for that long in event time; needs --time",
    )
    add(
        "--capacity",
        type=_capacities,
        metavar="ROWS|SHARE[,...]",
        help="rows held at most, or a share of the log's distinct keys: 50000,0.1,25%%",
    )
    add(
        "--order",
        type=_orders,
        metavar="ORDER[,ORDER]",
        help=f"which rows go beyond a capacity: {', '.join(ORDERS)} (default lru)",
    )
    add(
        "--tiers",
        type=_tiers,
        metavar="TIERS",
        help="instead: tiers of a table, by rows or shares in host memory, 1%%,10%%,50000, or by "
        "name, host=10%%,remote=1000000,ssd",
    )
    add(
        "--warm-up",
        type=int,
        metavar="STEPS",
        help="with --tiers: first steps, which do not count (default 0)",
    )
    add(
        "--capacity-admission",
        type=_ints,
        metavar="N[,N...]",
        help="admission thresholds tried with the capacities (default 1)",
    )
    add_schema_options(parser)
    add_worker_options(parser)
    add("--json", type=Path, metavar="PATH", help="write the figures to PATH")
    add("--plot", type=Path, metavar="FILE", help="draw the curve to FILE, .png or .svg")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 0 after success, 1 after an error, and 130 after Ctrl-C."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.schema is None and not options.logs:
        parser.error("LOG is required, or --schema")
    if options.schema is None and options.keys is None and options.table is None:
        parser.error("--keys is required, or --schema, or --table with --workers")
    try:
        plan = _chosen_plan(options)
    except (ImportError, OSError, TypeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    if options.json is not None:
        figures = json.dumps({"settings": _settings(options), **dataclasses.asdict(plan)}, indent=2)
        options.json.write_text(figures + "\n", encoding="utf-8")
    if isinstance(plan, Plan) and options.plot is not None:
        save_plot(plan, options.plot)
    try:
        print(_text(plan), flush=True)
    except BrokenPipeError:  # `| head` has read enough; what Python flushes at its end goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _chosen_plan(options: argparse.Namespace) -> Plan | TierPlan | WorkerPlan:
    check_schema_options(options)
    if options.workers is not None:
        for name in (*_NOT_OF_TIERS, "order", "warm_up", "tiers"):
            if getattr(options, name) is not None:
                raise ValueError(f"--{name.replace('_', '-')} must be left out with --workers")
        _check_json(options)
        if options.schema is not None:
            rows = rows_of_schema(options.schema, options.logs)
            return worker_plan(options, schema_logs(rows, options.schema_table))
        options.dim = 16 if options.dim is None else options.dim
        return worker_plan(options, None if options.keys is None else _log(options))
    check_no_worker_options(options)
    return _plan(options) if options.tiers is None else _tier_plan(options)


def _text(plan: Plan | TierPlan | WorkerPlan) -> str:
    if isinstance(plan, WorkerPlan):
        return worker_text(plan)
    return plan_text(plan) if isinstance(plan, Plan) else tier_text(plan)


def _plan(options: argparse.Namespace) -> Plan:
    for name in ("order", "capacity_admission"):
        if getattr(options, name) is not None and options.capacity is None:
            raise ValueError(f"--{name.replace('_', '-')} needs --capacity")
    if options.warm_up is not None:
        raise ValueError("--warm-up needs --tiers")
    if options.max_idle_seconds and options.time is None and options.schema is None:
        raise ValueError("--max-idle-seconds needs --time")
    if options.plot is not None:
        check_plot(options.plot)
    _check_json(options)
    choices = Choices(
        admission=options.admission or Choices().admission,
        idle_steps=options.max_idle_steps or [],
        idle_seconds=options.max_idle_seconds or [],
        capacity=options.capacity or [],
        order=options.order or ["lru"],
        capacity_admission=options.capacity_admission or [1],
    )
    log = _log(options)
    if options.max_idle_seconds and log.time is None:
        raise ValueError("--max-idle-seconds needs a column of kind time in the schema")
    return simulate(log, choices, _row_bytes(options), options.batch_size, progress=True)


def _tier_plan(options: argparse.Namespace) -> TierPlan:
    for name in _NOT_OF_TIERS:
        if getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} must be left out with --tiers")
    _check_json(options)
    log = _log(options)
    return plan_tiers(
        log,
        options.tiers,
        _row_bytes(options),
        options.batch_size,
        options.order or ["lru"],
        options.warm_up or 0,
        progress=True,
    )


def _row_bytes(options: argparse.Namespace) -> int:
    return row_bytes(options.dim, options.optimizer, options.value_dtype, options.state_dtype)


def _log(options: argparse.Namespace) -> KeyLog:
    """Return the log. With a schema, set `dim` from the schema's table, unless the user set it."""
    if options.schema is not None:
        logs = schema_logs(rows_of_schema(options.schema, options.logs), options.schema_table)
        shared = [each for each in logs if each[0].name is None]
        if len(logs) > 1 and not shared:
            names = ", ".join(str(group.name) for group, _ in logs)
            raise ValueError(f"--schema-table must be given: one of {names}")
        group, log = (shared or logs)[0]
        options.dim = group.embedding_dim if options.dim is None else options.dim
        return log
    options.dim = 16 if options.dim is None else options.dim
    return KeyLog(
        options.logs, options.keys, options.time, options.format, options.header, options.key_type
    )


def _check_json(options: argparse.Namespace) -> None:
    if options.json is not None:
        options.json.absolute().parent.mkdir(parents=True, exist_ok=True)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    named = {name: value for name, value in vars(options).items() if name not in ("json", "plot")}
    tiers = None if options.tiers is None else [dataclasses.asdict(each) for each in options.tiers]
    for name in ("placements", "schema"):
        if named[name] is not None:
            named[name] = str(named[name])
    return {**named, "tiers": tiers, "logs": [str(path) for path in options.logs]}


if __name__ == "__main__":
    sys.exit(main())
