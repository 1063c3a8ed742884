# SPDX-License-Identifier: Apache-2.0
"""Warn of features that decide a label."""

from __future__ import annotations

from mindspore_rec.command.opened import one_batch
from mindspore_rec.common.columns.schema.leaks import is_copy, leak_of
from mindspore_rec.common.columns.schema.profile import profile_of
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.data.rows import Rows

__all__ = ["leak_warnings"]

_SAMPLE = 20_000  # rows


def leak_warnings(schema: Schema, rows: Rows) -> list[str]:
    """Return a sentence for each feature that decides a label in a sample of the rows.

    Args:
        schema: description of the columns.
        rows: training rows.

    Example:
        >>> import pandas as pd
        >>> from mindspore_rec.data import read
        >>> from mindspore_rec.feature import LabelColumn, NumberColumn
        >>> schema = Schema([NumberColumn("paid"), LabelColumn("bought")])
        >>> frame = pd.DataFrame({"paid": [9.5, 0.0] * 50, "bought": [1, 0] * 50})
        >>> leak_warnings(schema, read(frame, schema))
        ["column 'paid' decides the label 'bought': it has one value for each label; if it is not
        known before the event, make it `paid: ignored` in the YAML"]
    """
    sample = one_batch(rows.sample(_SAMPLE, seed=0))
    if not sample.num_rows:
        return []
    labels = schema.labels_of(sample)
    warnings = []
    for name in schema.feature_names:
        profile = profile_of(name, sample.column(name))
        for place, label in enumerate(schema.labels):
            how = None
            if profile.distinct and is_copy(profile, profile_of(label.name, sample[label.name])):
                how = "it has one value for each label"
            elif profile.family != "other":
                how = leak_of(profile, labels[:, place].astype(float))
            if how is not None:
                warnings.append(
                    f"column {name!r} decides the label {label.name!r}: {how}; if it is not known "
                    f"before the event, make it `{name}: ignored` in the YAML"
                )
                break
    return warnings
