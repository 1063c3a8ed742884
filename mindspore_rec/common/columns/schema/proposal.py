# SPDX-License-Identifier: Apache-2.0
"""A proposed schema as YAML for a person to read: one comment for each column."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from mindspore_rec.common.columns.schema.document import plain_columns
from mindspore_rec.common.columns.schema.inference import Inferred, InferredColumn

__all__ = ["proposal_yaml"]

_WIDTH = 100
# Texts that need no quotes: every version of YAML reads these texts as texts.
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./+-]*")
_OTHER_TYPES = frozenset("true false yes no on off y n null nan inf".split())


def proposal_yaml(
    inferred: Inferred,
    source: Any,
    sections: Mapping[str, Any] | None = None,
    total_rows: int | None = None,
) -> str:
    """Return a proposed schema as the YAML that the command `mindspore-rec` reads.

    Args:
        inferred: the proposal of `infer_columns`.
        source: the source of the rows: a path, a list of paths, or a mapping.
        sections: dict from the name of a further YAML section to its JSON value. The sections are
            written after the columns, in order. Default: a section that divides the rows, by time
            if there is a column of times.
        total_rows: number of rows of the source, for the first comment. Default: not said.

    Example:
        >>> import pyarrow as pa
        >>> from mindspore_rec.common.columns.schema.inference import infer_columns
        >>> rows = pa.table({"user": ["ann", "bob", None, "ann"], "clicked": [0, 1, 1, 0]})
        >>> print(proposal_yaml(infer_columns(rows, label="clicked"), "clicks.parquet"))
        # Proposed from 4 rows. Each comment says why: change what you know better.
        source: clicks.parquet
        <BLANKLINE>
        columns:
          # 2 values, 25 % missing. Texts that recur.
          user: {kind: category}
          # 2 values, none missing. The label: 1 counts as 1, in 50.00% of the rows.
          clicked: {kind: label}
        <BLANKLINE>
        split: {by: random, train: 0.8, valid: 0.1}
        <BLANKLINE>
    """
    if sections is None:
        has_time = any(each.kind == "time" for each in inferred.columns)
        by = "time" if has_time else "random"
        sections = {"split": {"by": by, "train": 0.8, "valid": 0.1}}
    of_all = f" of {total_rows:,}" if total_rows is not None else ""
    lines = [
        *_comment(
            f"Proposed from {inferred.rows:,}{of_all} rows. Each comment says why: change what "
            "you know better."
        ),
        f"source: {_flow(source)}",
        "",
        "columns:",
    ]
    described = plain_columns(inferred.columns)
    for entry in inferred.entries:
        lines += _comment(f"{_figures(entry)} {entry.why}", "  ")
        lines.append(f"  {_flow(entry.column.name)}: {_flow(described[entry.column.name])}")
    for name, section in sections.items():
        lines += ["", f"{_flow(name)}: {_flow(section)}"]
    return "\n".join(lines) + "\n"


def _figures(entry: InferredColumn) -> str:
    values = "1 value" if entry.distinct == 1 else f"{entry.distinct:,} values"
    if not entry.missing_share:
        return f"{values}, none missing."
    share = 100 * entry.missing_share
    return f"{values}, {'under 0.1' if share < 0.1 else f'{share:.3g}'} % missing."


def _comment(text: str, indent: str = "") -> list[str]:
    """Return a text as lines of a YAML comment, and replace characters that are not printable."""
    shown = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    start = f"{indent}# "
    return textwrap.wrap(
        shown, _WIDTH, initial_indent=start, subsequent_indent=start, break_on_hyphens=False
    )


def _flow(value: Any) -> str:
    """Return a JSON value in YAML's flow style, without quotes if none are needed."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)


def _text(value: str) -> str:
    if _PLAIN.fullmatch(value) and value.lower() not in _OTHER_TYPES:
        return value
    return '"' + "".join(map(_escaped, value)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character == " " or (character.isprintable() and character != "\ufeff"):
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
