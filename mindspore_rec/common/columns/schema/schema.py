# SPDX-License-Identifier: Apache-2.0
"""Schema: one description of the columns of a data set, for readers, networks and predictors."""

from __future__ import annotations

import copy
import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.columns.arrow_columns import to_record_batch
from mindspore_rec.common.columns.asked import asked_arrays, asked_columns
from mindspore_rec.common.columns.categories import values_of_type
from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.columns.labels import positive_rows
from mindspore_rec.common.columns.schema.column import Column
from mindspore_rec.common.columns.schema.document import columns_of, plain_columns, unknown_key
from mindspore_rec.common.columns.schema.faults import Fault, faults_of, missing_column
from mindspore_rec.common.columns.schema.kept import expanded, kept_in
from mindspore_rec.common.columns.schema.layout import (
    Field,
    Layout,
    TableGroup,
    crossed_by,
    histories_of,
    numbers_of,
    pipeline_of,
)
from mindspore_rec.common.columns.schema.spec_columns import columns_of_specs

__all__ = ["Schema"]

_DEFAULT_DIM = 16
_MOST_FIT_ROWS = 100_000_000
_ONE = ("time", "weight")  # kinds of which a schema has one column at most
_NOT_INPUTS = ("time", "weight", "label")  # arrays that a network does not take


class Schema:
    """Describe the columns of a data set once for readers, networks, training and serving.

    A batch of rows becomes these arrays:

    * ``ids`` int64 ``[B, K]``: the keys of all columns whose values have rows in a table, except
      histories. A list or text has `length` keys, a time has one key per part, and any other column
      has one key. Columns that use the same table are adjacent; `fields` lists the position of each
      column.
    * ``numbers`` float32 ``[B, N]``: the scaled numbers, then the statistics of labels. The array
      is left out if the schema has no numbers and no statistics.
    * For a history ``seen``: ``seen.values`` ``[N]``, the values of all lists, one list after
      another; and ``seen.offsets`` int64 ``[B + 1]``, the offsets of the lists. Row i has the
      values from ``offsets[i]`` to ``offsets[i + 1] - 1``. A side column has an array of values,
      but no offsets.
    * For a `KeptHistoryColumn` ``recent``: ``recent.events`` int64 ``[B, 3 + values]``. The library
      collects the history from rows. Each row of the array contains the time, a mark (1 if the row
      is an event, 0 if not, -1 without a user), the user and the values. In training, the network
      gets ``recent.values`` and ``recent.offsets`` in place of ``recent.events``.
    * ``weight`` float32 ``[B, 1]``: weight of the row; left out if rows have no weight.
    * ``label`` float32 ``[B, T]``: the labels of all tasks; left out if there are no labels.

    Scales of numbers must learn from rows before the first use (`fit`). `RecModel.train` calls
    `fit` if the scales have learned nothing. Training and prediction do not change a schema on
    which `fit` was called.

    Args:
        columns: the columns. At least one column that is not a history must have rows in a table.
        embedding_dim: number of floats of a row, 1 to 8192, for columns that do not set
            `embedding_dim`. Default: 16.

    Attributes:
        columns: the columns.
        embedding_dim: number of floats of a row.
        fields: the fields of ``ids``, one per embedding vector.
        numbers: names of the ``N`` numbers in the array ``numbers``: a scaled number has its
            column's name. The statistics of a column 'user' are 'user.mean' (with several labels
            'user.mean.clicked') and 'user.count'.
        tables: the tables of the fields.
        pipeline: the `FeaturePipeline` that makes the arrays.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, two columns have the same name, or
            columns contradict each other.

    Example:
        >>> from mindspore_rec import Schema
        >>> from mindspore_rec.feature import CategoryColumn, LabelColumn, ListColumn, NumberColumn
        >>> schema = Schema(
        ...     [
        ...         CategoryColumn("user"),
        ...         ListColumn("tags", length=3),
        ...         NumberColumn("price"),
        ...         LabelColumn("clicked"),
        ...     ]
        ... )
        >>> rows = {"user": ["ann", "bob"], "tags": [["new"], []], "price": [1.5, 9.0]}
        >>> arrays = schema.fit(rows | {"clicked": [1, 0]}).arrays_of(rows | {"clicked": [1, 0]})
        >>> {name: array.shape for name, array in arrays.items()}
        {'ids': (2, 5), 'numbers': (2, 1), 'label': (2, 1)}
        >>> [field.name for field in schema.fields]
        ['user', 'price.bucket', 'tags']
    """

    def __init__(self, columns: Iterable[Column], embedding_dim: int = _DEFAULT_DIM) -> None:
        self.embedding_dim = check_int("embedding_dim", embedding_dim, 1, 8192)
        self._set_columns(tuple(columns))
        self.is_fitted = not self.pipeline.learns

    def _set_columns(self, columns: tuple[Column, ...]) -> None:
        for column in columns:
            if not isinstance(column, Column):
                raise TypeError(f"columns must be Column objects, got {column!r}")
        self.columns = columns
        self._by_name = {column.name: column for column in self.columns}
        self._check_columns()
        self._expanded = expanded(self.columns)
        layout = Layout(self._expanded, self.embedding_dim)
        self.fields: tuple[Field, ...] = layout.fields
        self.tables: tuple[TableGroup, ...] = layout.tables
        self.numbers = numbers_of(self.columns)
        self.pipeline: FeaturePipeline = pipeline_of(self._expanded, layout)

    @property
    def undecided(self) -> list[Column]:
        """Columns whose option `values` is None until `fit` sets `values` to 'text' or 'whole'."""
        kinds = ("category", "list", "group", "history")
        return [each for each in self.columns if each.kind in kinds and each.values is None]

    def _check_columns(self) -> None:
        names = [column.name for column in self.columns]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"columns must have different names, got {name!r} twice")
        for kind in _ONE:
            of_kind = [each.name for each in self.columns if each.kind == kind]
            if len(of_kind) > 1:
                raise ValueError(f"at most one column may be of kind {kind!r}, got {of_kind}")
        groups = [each.name for each in self.columns if each.kind == "group" or each.group]
        if len(groups) > 1:
            raise ValueError(f"at most one column may be the group, got {groups}")
        if self.time is None:
            for column in self.columns:
                if column.eviction is not None:
                    raise ValueError(
                        f"column {column.name!r} has eviction, in seconds of event time: one "
                        "column must be of kind 'time'"
                    )

    @classmethod
    def from_description(cls, description: Any) -> Schema:
        """Return a schema without learned state, from a description that `describe` returned.

        Raises:
            ValueError: `description` is not the description of a schema.
        """
        if not isinstance(description, Mapping):
            raise ValueError(f"a schema must be a mapping, got {description!r:.80}")
        known = ("columns", "embedding_dim")
        for key in description:
            if key not in known:
                raise unknown_key("schema", key, known)
        columns = columns_of(description.get("columns"))
        return cls(columns, description.get("embedding_dim", _DEFAULT_DIM))

    @classmethod
    def from_specs(
        cls, specs: Any, columns: Iterable[Column] = (), embedding_dim: int = _DEFAULT_DIM
    ) -> Schema:
        """Return a schema with the keys, tables, admission and eviction of FeatureSpec objects.

        The schema and the FeatureSpec objects give a value the same key, so a table that was
        trained with the FeatureSpec objects can be trained further with the schema.

        Args:
            specs: the features. The column of each feature must have a name and one value per row.
            columns: further columns, such as the label and numbers, which FeatureSpec objects do
                not describe.
            embedding_dim: number of floats of a table's row; FeatureSpec objects do not contain
                this number. Default: 16.

        Raises:
            TypeError: `specs` or `columns` are of an unsupported type.
            ValueError: no kind of column computes the keys of a feature, or `Schema` refuses the
                columns.

        Example:
            >>> from mindspore_rec import FeatureSpec
            >>> from mindspore_rec.feature import LabelColumn
            >>> specs = [FeatureSpec("item", table_name="items")]
            >>> Schema.from_specs(specs, [LabelColumn("clicked")], embedding_dim=8)
            Schema([
                CategoryColumn('item', table='items', values='key'),
                LabelColumn('clicked'),
            ], embedding_dim=8)
        """
        return cls([*columns_of_specs(specs), *columns], embedding_dim)

    # ---- columns

    def column(self, name: str) -> Column:
        """Return a column by its name.

        Raises:
            ValueError: the schema has no column of this name.
        """
        if name not in self._by_name:
            raise missing_column(name, list(self._by_name))
        return self._by_name[name]

    @property
    def labels(self) -> tuple[Column, ...]:
        """The labels, one per task."""
        return tuple(each for each in self.columns if each.kind == "label")

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the labels."""
        return tuple(each.name for each in self.labels)

    @property
    def time(self) -> Column | None:
        """The column with the time of the event, or None."""
        return next((each for each in self.columns if each.kind == "time"), None)

    @property
    def weight(self) -> Column | None:
        """The column with the weights of rows, or None."""
        return next((each for each in self.columns if each.kind == "weight"), None)

    @property
    def group(self) -> Column | None:
        """The column of groups, for the metric `gauc`; or None."""
        return next((each for each in self.columns if each.kind == "group" or each.group), None)

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns that the network reads, including crosses."""
        return tuple(each for each in self.columns if each.is_read)

    @property
    def feature_names(self) -> list[str]:
        """Names of the raw columns from which the network's inputs are made."""
        read = {each.name for each in self.features}
        return [each.name for each in self._in_data if each.name in read | self._crossed]

    @property
    def raw_columns(self) -> list[str]:
        """Names of all columns that are read in training: all except ignored columns.

        An ignored column is read if a cross reads it, or if it is the user of a
        `KeptHistoryColumn`.
        """
        read = self._crossed | {each.by for each in kept_in(self.columns)}
        return [each.name for each in self._in_data if each.kind != "ignored" or each.name in read]

    @property
    def text_columns(self) -> list[str]:
        """Names of the raw columns whose values are read as texts: '007' is not the number 7.

        These are columns with ``values="text"``, with `decimal`, or with a `separator` and no
        `values`, columns of kind 'text', and times whose digits may begin with 0.
        """
        return [
            each.name
            for each in self._in_data
            if each.values == "text"
            or each.kind == "text"
            or each.decimal is not None
            or (each.separator is not None and each.values is None)
            or (each.format is not None and not each.format.startswith(("iso", "%Y")))
        ]

    @property
    def _in_data(self) -> list[Column]:
        return [each for each in self.columns if each.kind not in ("cross", "kept_history")]

    @property
    def _crossed(self) -> set[str]:
        return {
            other.name for column in self.columns for other, _ in crossed_by(column, self.columns)
        }

    @property
    def arrays(self) -> list[str]:
        """Names of the arrays, in order."""
        return list(self.pipeline.column_names)

    @property
    def inputs(self) -> list[str]:
        """Names of the network's input arrays: ids, numbers if there are any, and histories."""
        names = self.pipeline.with_lists().column_names
        return [name for name in names if name not in _NOT_INPUTS]

    @property
    def histories(self) -> tuple[tuple[Column, ...], ...]:
        """For each history, a tuple of the history's own column and its side columns."""
        return histories_of(self._expanded)

    @property
    def asked_columns(self) -> list[str]:
        """Columns that rows to predict may contain. These columns contain or select a row's
        history.

        The user and the time of a row select a stored history; or the row contains the history
        itself.
        """
        kept = [each.name for of in self.histories for each in of if each.kept is not None]
        return list(dict.fromkeys([*asked_columns(self.pipeline), *kept]))

    # ---- rows

    def fit(self, rows: Any) -> Schema:
        """Learn the scales of numbers from rows, and forget what was learned before.

        If a category, list, group or history has no option `values`, `fit` sets `values` to 'text'
        or 'whole', by the type of the column's values in the rows. After `fit`, the text '7' and
        the number 7 are the same category.

        Args:
            rows: some or all rows of the training data, as a DataFrame, an Arrow Table or a dict of
                columns.

        Returns:
            This object.

        Raises:
            TypeError: `rows` is of an unsupported type.
            ValueError: there is no row, or a column is missing, or has an illegal value.
        """
        batch = to_record_batch(rows)
        if not batch.num_rows:
            raise ValueError("rows must have at least one row, from which scales learn")
        faults = self.faults(batch, batch.schema.names)
        if faults:
            raise ValueError(f"rows: {faults[0].sentence()}")
        columns = self._decided(batch)
        with_histories = expanded(columns)
        layout = Layout(with_histories, self.embedding_dim)
        fresh = pipeline_of(with_histories, layout).fit(batch)
        if columns != self.columns:
            self._set_columns(columns)
        self.load_state_dict(fresh.state_dict())
        return self

    def fit_statistics(self, batches: Iterable[Any], weight: str | None = None) -> Schema:
        """Learn the statistics of labels from batches of rows, which together may exceed memory.

        `fit` also learns statistics of labels, from the rows that are passed to `fit`.
        `fit_statistics` forgets the rows of `fit`, and leaves the scales of numbers unchanged.

        Args:
            batches: batches of all training rows, at most the first 100,000,000 rows.
            weight: name of a second weight column. Default: None.

        Returns:
            This object.

        Raises:
            ValueError: `fit` was not called, or a column is missing or has values of the wrong
                type.

        Example:
            >>> import pandas as pd
            >>> from mindspore_rec.data import read
            >>> from mindspore_rec.feature import CategoryColumn, LabelColumn
            >>> columns = [CategoryColumn("user", statistics="folds"), CategoryColumn("item")]
            >>> schema = Schema([*columns, LabelColumn("clicked")])
            >>> frame = pd.DataFrame({"user": [7, 8] * 50, "item": range(100)})
            >>> frame["clicked"] = [1, 0] * 50
            >>> schema.fit(frame[:50]).fit_statistics(read(frame, schema)).numbers
            ('user.mean', 'user.count')
        """
        self.check_fitted()
        self.pipeline.fit_statistics(_first_rows(batches, _MOST_FIT_ROWS), weight)
        return self

    def merge_statistics(self, states: Iterable[Mapping[str, Any]]) -> Schema:
        """Merge the label statistics that other schemas have learned from parts of the rows.

        The merged statistics equal the statistics that this schema would learn from all parts. To
        learn from one part in another program, make a schema with the same columns, load the state
        of this schema, call `fit_statistics` with the part's batches, and return `state_dict`.

        Args:
            states: states of schemas with the same columns and time intervals.

        Returns:
            This object.

        Raises:
            TypeError, ValueError, KeyError: a state is the state of a schema with other columns or
                other time intervals. After an error, this schema is unchanged.
        """
        self.check_fitted()
        self.pipeline.merge_statistics(states)
        return self

    def arrow_batches(
        self, batches: Iterable[pa.RecordBatch], training: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Yield the arrays of batches as record batches, for engines such as Spark.

        Pass this method to `mapInArrow` of Spark, or to `map_batches` of Ray Data. The array `ids`
        and the arrays of events are columns of lists of int64; numbers, weight and label are
        columns of lists of float32. Each column of a history becomes a column of lists, without
        offsets. The schema that `received` returns reads the yielded columns, also from Parquet
        files. If `training` is True and the schema has a time column, the first column is the time
        in seconds.

        Args:
            batches: record batches of raw columns.
            training: whether a network trains on the rows. If `training` is True, the statistics of
                a row exclude the row's own labels. If `training` is False, the record batches
                contain only the network's inputs, and the rows may lack labels, weight and time.
                Default: True.

        Raises:
            ValueError: the scales have learned nothing, or a column is missing or has values of the
                wrong type.

        Example:
            >>> from mindspore_rec.feature import CategoryColumn, LabelColumn
            >>> schema = Schema([CategoryColumn("user"), LabelColumn("clicked")])
            >>> rows = pa.record_batch({"user": ["ann", "bob"], "clicked": [0, 1]})
            >>> [batch.to_pydict() for batch in schema.arrow_batches([rows])]
            [{'ids': [[7641507573510170772], [-4093091485400797293]], 'label': [[0.0], [1.0]]}]
        """
        self.check_fitted()
        pipeline = (self.pipeline if training else self.pipeline.with_lists()).by_rows()
        if training and self.time is not None:
            pipeline = pipeline.with_times()
        inputs = [name for name in self.inputs if name in pipeline.column_names]
        for rows in batches:
            if training:
                made = pipeline.batch(rows, learn=False, with_time=False, training=True)[0]
            else:
                made = pipeline.apply(rows, inputs)
            yield pa.RecordBatch.from_arrays([_lists(each) for each in made.values()], list(made))

    @property
    def has_statistics(self) -> bool:
        """True if at least one column has statistics of labels."""
        return any(each.statistics for each in self.columns)

    def _decided(self, batch: pa.RecordBatch) -> tuple[Column, ...]:
        """Return the columns; each undecided `values` is set by the column's type in the batch."""
        decided = {
            column.name: values
            for column in self.undecided
            if column.name in batch.schema.names
            and (values := values_of_type(batch.schema.field(column.name).type, column.separator))
        }
        return tuple(
            replace(each, values=decided[each.name])  # type: ignore[type-var]
            if each.name in decided
            else each
            for each in self.columns
        )

    def reads_like(self, other: Schema) -> bool:
        """Return True if another schema has the same columns.

        If only one of two columns has the option `values`, the columns may still be the same,
        because `fit` sets `values`.
        """

        def plain(schema: Schema) -> list[Any]:
            return [
                {**described, "values": None} for described in schema.describe()["columns"].values()
            ]

        names = [[each.name for each in schema.columns] for schema in (self, other)]
        same = names[0] == names[1] and self.embedding_dim == other.embedding_dim
        pairs = zip(self.columns, other.columns, strict=False)
        same = same and all(a.values == b.values or None in (a.values, b.values) for a, b in pairs)
        return same and plain(self) == plain(other)

    def check_fitted(self) -> None:
        """Raise ValueError if the scales of numbers have learned nothing."""
        if not self.is_fitted:
            raise ValueError(
                "the scales of the schema have learned nothing: train, load, or call schema.fit"
            )

    def with_times(self) -> Schema:
        """Return the schema for a `FeatureWorker`: the first array contains the times of the rows.

        The returned schema shares this schema's scales. A trainer reads the worker's arrays with
        the schema that `received` returns.

        Raises:
            ValueError: the schema has no column of times.
        """
        if self.time is None:
            raise ValueError("the schema must have a time, a TimeColumn, to send times")
        made = copy.copy(self)
        made.pipeline = self.pipeline.with_times()
        return made

    def received(self) -> Schema:
        """Return a copy that reads arrays which a `FeatureWorker` made with `with_times`."""
        made = copy.copy(self)
        made.pipeline, made.is_fitted = self.pipeline.received(), True
        return made

    def arrays_of(self, rows: Any, with_label: bool = True) -> dict[str, np.ndarray]:
        """Convert rows to the arrays that a network takes.

        Args:
            rows: a DataFrame, an Arrow RecordBatch or Table, or a dict of columns.
            with_label: False for rows to predict, which may lack labels and weights. Default: True.

        Returns:
            A dict from names to arrays. For a history that the library collects from rows, the
            array contains the event of each row, and not the row's history. With
            ``with_label=False``, the history consists of the lists that the rows contain; if the
            rows contain no lists, the history is empty.

        Raises:
            TypeError, ValueError: a column is missing or has values of the wrong type.
        """
        if self.pipeline.kept and not with_label:
            return asked_arrays(self.pipeline, rows, {}, self.inputs)
        made: dict[str, np.ndarray] = self.pipeline.apply(rows, None if with_label else self.inputs)
        return made

    def labels_of(self, rows: pa.RecordBatch) -> np.ndarray:
        """Return the labels of rows, float32 ``[B, T]``."""
        made: np.ndarray = self.pipeline.apply(rows, ["label"])["label"]
        return made

    def weights_of(self, rows: pa.RecordBatch) -> np.ndarray | None:
        """Return the weights of rows, float32 ``[B]``; None if the schema has no weight."""
        if self.weight is None:
            return None
        made: np.ndarray = self.pipeline.apply(rows, ["weight"])["weight"][:, 0]
        return made

    def positives_of(self, rows: pa.RecordBatch) -> np.ndarray:
        """Return which rows have a positive label in at least one task, bool ``[B]``.

        Raises:
            ValueError: the schema has no label, or a label that is a number.
        """
        if not self.labels or not all(each.binary for each in self.labels):
            raise ValueError("the schema must have labels with two values")
        made = np.zeros(rows.num_rows, bool)
        for label in self.labels:
            positive = positive_rows(label.name, rows.column(label.name), label.positive)
            made |= positive.fill_null(False).to_numpy(zero_copy_only=False)
        return made

    def faults(self, rows: pa.RecordBatch, names: Sequence[str] | None = None) -> list[Fault]:
        """Return the illegal values of a batch, at most one Fault per column.

        Args:
            rows: the batch.
            names: names of the columns that are checked. Default: all except ignored columns.

        Raises:
            ValueError: a column is missing, or all its values are of the wrong type.
        """
        wanted = self.raw_columns if names is None else names
        columns = [each for each in self._in_data if each.kind != "ignored" and each.name in wanted]
        return faults_of(columns, rows)

    def check(self, rows: Any, where: str = "rows", first_row: int = 0) -> None:
        """Check that rows have the columns and values of this schema.

        Args:
            rows: a DataFrame, an Arrow RecordBatch or Table, or a dict of columns.
            where: name of the data, for error messages.
            first_row: index in the data of the first row in `rows`, for error messages. Default: 0.

        Raises:
            ValueError: a column is missing, or has an illegal value. The message names the column,
                the row and the value.

        Example:
            >>> from mindspore_rec.feature import CategoryColumn, LabelColumn
            >>> schema = Schema([CategoryColumn("user"), LabelColumn("clicked")])
            >>> schema.check({"user": ["ann", "bob"], "clicked": [1, 2]}, "clicks.csv")
            Traceback (most recent call last):
            ...
            ValueError: clicks.csv: column 'clicked' must be 0 or 1 (positive: names the value that
            counts as 1; binary: false predicts numbers), row 1 is 2
        """
        try:
            faults = self.faults(to_record_batch(rows))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        if faults:
            fault = faults[0]
            raise ValueError(f"{where}: {fault.sentence(first_row + int(fault.rows[0]))}")

    # ---- as values

    def describe(self) -> dict[str, Any]:
        """Return the schema as JSON values, without learned state.

        Example:
            >>> from mindspore_rec.feature import CategoryColumn
            >>> Schema([CategoryColumn("user")]).describe()
            {'embedding_dim': 16, 'columns': {'user': {'kind': 'category'}}}
        """
        return {"embedding_dim": self.embedding_dim, "columns": plain_columns(self.columns)}

    def state_dict(self) -> dict[str, Any]:
        """Return the learned state of `pipeline` as JSON values."""
        return self.pipeline.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state that `state_dict` returned.

        Raises:
            TypeError, ValueError, KeyError: the state is the state of a schema with other columns.
                After an error, the schema is unchanged.
        """
        self.pipeline.load_state_dict(state)
        self.is_fitted = True

    def __repr__(self) -> str:
        lines = "".join(f"\n    {column!r}," for column in self.columns)
        dim = "" if self.embedding_dim == _DEFAULT_DIM else f", embedding_dim={self.embedding_dim}"
        return f"Schema([{lines}\n]{dim})"

    def _repr_html_(self) -> str:
        """Return the columns as a table, for notebooks."""
        rows = "".join(_html_row([each.name, each.kind, _options(each)]) for each in self.columns)
        return f"<table><tr><th>column</th><th>kind</th><th>options</th></tr>{rows}</table>"


def _first_rows(batches: Iterable[Any], most: int) -> Iterator[pa.RecordBatch]:
    """Yield batches until the batches have `most` rows in total."""
    for each in batches:
        batch = to_record_batch(each).slice(0, most)
        most -= batch.num_rows
        yield batch
        if not most:
            return


def _lists(array: np.ndarray | pa.Array) -> pa.Array:
    """Convert an array to Arrow: ``[B, N]`` to lists, ``[B]`` to values. Arrow arrays are
    unchanged.
    """
    if isinstance(array, pa.Array):
        return array
    if array.ndim == 1:
        return pa.array(array)
    offsets = np.arange(len(array) + 1, dtype=np.int32) * array.shape[1]
    return pa.ListArray.from_arrays(offsets, array.reshape(-1))


def _options(column: Column) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in column.options().items())


def _html_row(cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<td>{html.escape(each)}</td>' for each in cells)}</tr>"
