# SPDX-License-Identifier: Apache-2.0
"""Option `--schema` of `python -m mindspore_rec.plan`: tables, keys and time from a YAML file."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mindspore_rec.common.columns.schema.layout import TableGroup
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.data.fitting import fit_to_rows
from mindspore_rec.common.data.read import read
from mindspore_rec.common.data.rows import Rows
from mindspore_rec.common.data.settings import BadRows, CsvFormat
from mindspore_rec.common.strict import from_mapping
from mindspore_rec.common.yaml_text import read_yaml
from mindspore_rec.plan.schema_log import SchemaLog, table_names

__all__ = ["add_schema_options", "check_schema_options", "rows_of_schema", "schema_logs"]

# Options that must not be combined with a schema.
_REPLACED = ("keys", "table", "time", "format", "header")


def add_schema_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for a schema; an option that the user leaves out is None."""
    add = parser.add_argument_group("with a schema").add_argument
    add(
        "--schema",
        type=Path,
        metavar="YAML",
        help="file of `mindspore-rec init`, whose columns tell tables, keys, time and --dim; "
        "without LOG, the rows are its source",
    )
    add(
        "--schema-table",
        metavar="NAME",
        help="table of the schema (default: the table of all columns without own settings; with "
        "--workers, all tables)",
    )


def check_schema_options(options: argparse.Namespace) -> None:
    """Raise ValueError if options contradict a schema, or need a schema that is missing."""
    if options.schema is None:
        if options.schema_table is not None:
            raise ValueError("--schema-table needs --schema")
        return
    for name in _REPLACED:
        if getattr(options, name) is not None:
            raise ValueError(f"--{name} must be left out with --schema, which tells it")
    if options.key_type != "auto":
        raise ValueError("--key-type must be left out with --schema, which tells it")


def rows_of_schema(path: Path, logs: Sequence[Path]) -> Rows:
    """Return `Rows` for the source and the schema in a command's YAML file.

    Args:
        path: the YAML file.
        logs: files to read in place of the source in the YAML file; empty to read the source.

    Raises:
        ValueError: the file cannot be read, or `logs` is empty although the source in the file is a
            topic.
    """
    document = read_yaml(path)
    if not isinstance(document, Mapping):
        raise ValueError(f"{path} must be a mapping with the keys source and columns")
    try:
        described = {
            name: document[name] for name in ("columns", "embedding_dim") if name in document
        }
        schema = Schema.from_description(described)
        format = from_mapping(CsvFormat, document["csv"], "csv") if "csv" in document else None
        bad_rows = None
        if document.get("bad_rows") is not None:
            bad_rows = from_mapping(BadRows, document["bad_rows"], "bad_rows")
        source = [str(each) for each in logs] or _source(path, document.get("source"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    rows = read(source, schema, format=format, bad_rows=bad_rows)
    fit_to_rows(schema, rows)
    return rows


def schema_logs(rows: Rows, table: str | None) -> list[tuple[TableGroup, SchemaLog]]:
    """Return each table in the rows' schema, with the table's log.

    Args:
        rows: rows that were read with a schema.
        table: name of a table. Default: None, which means all tables.

    Returns:
        Pairs of a table and its log. The tables have the names that `table_names` returns.

    Raises:
        ValueError: the schema has no such table.
    """
    assert isinstance(rows.schema, Schema)
    pairs = zip(rows.schema.tables, table_names(rows.schema), strict=True)
    groups = [replace(group, name=name) for group, name in pairs]
    names = [each.name for each in groups if each.name is not None]
    if table is not None and table not in names:
        has = f"one of {', '.join(names)}" if names else "left out: no table has a name"
        raise ValueError(f"--schema-table must be {has}, got {table!r}")
    chosen = [each for each in groups if table is None or each.name == table]
    return [(each, SchemaLog(rows, each.name)) for each in chosen]


def _source(path: Path, source: Any) -> list[str]:
    """Return the paths of a YAML file's source, relative to the current directory."""
    paths = [source] if isinstance(source, str) else source
    if not isinstance(paths, list) or not all(isinstance(each, str) for each in paths):
        raise ValueError("the source is no file: name the files of a log")
    return [each if "://" in each else str(path.parent / each) for each in paths]
