# SPDX-License-Identifier: Apache-2.0
"""Tables and numbers as text for a terminal, and as HTML for the report."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

__all__ = ["html_table", "number", "text_table", "value_text"]

_LARGEST_EXACT = 2.0**53  # every smaller whole number is a float, and its text has no exponent


def number(value: Any) -> str:
    """Return a value as text; floats have five digits after the point.

    Example:
        >>> number(0.123456), number(12), number(float("nan")), number("all")
        ('0.12346', '12', '-', 'all')
    """
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.5f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def value_text(value: Any) -> str:
    """Return a value of a table's column as text, without separators, rounding or exponents.

    Example:
        >>> value_text(15159), value_text(1.25), value_text(1e19), value_text("0815")
        ('15159', '1.25', '10000000000000000000', '0815')
    """
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) >= _LARGEST_EXACT
    return f"{value:.0f}" if is_whole else str(value)


def text_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table as lines of text: the first column left-aligned, the others right-aligned.

    Example:
        >>> print(text_table(["", "auc"], [["dcn_v2", 0.75], ["base rate", 0.5]]))
                       auc
        dcn_v2     0.75000
        base rate  0.50000
    """
    cells = [list(head), *([number(each) for each in row] for row in rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(head))]
    lines = []
    for first, *others in cells:
        right = [each.rjust(width) for each, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *right]).rstrip())
    return "\n".join(lines)


def html_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table as HTML.

    Example:
        >>> html_table(["a<b"], [[1.5]])
        '<table><tr><th>a&lt;b</th></tr><tr><td>1.50000</td></tr></table>'
    """
    first = "".join(f"<th>{html.escape(each)}</th>" for each in head)
    lines = [f"<tr>{first}</tr>"]
    for row in rows:
        cells = "".join(f"<td>{html.escape(number(each))}</td>" for each in row)
        lines.append(f"<tr>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"
