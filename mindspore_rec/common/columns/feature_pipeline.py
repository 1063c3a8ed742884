# SPDX-License-Identifier: Apache-2.0
"""FeaturePipeline: convert rows of raw columns to the arrays that a model reads."""

from __future__ import annotations

import copy
import dataclasses
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import numpy as np

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.columns.arrow_columns import to_record_batch
from mindspore_rec.common.columns.batch_rows import BatchRows
from mindspore_rec.common.columns.columns import event_time, time_values
from mindspore_rec.common.columns.dataset_columns import ColumnsAmong, map_dataset
from mindspore_rec.common.columns.feature_spec import FeatureSpec, check_specs, check_together
from mindspore_rec.common.columns.kept_events import KeptEvents
from mindspore_rec.common.columns.outputs import (
    Output,
    column_of,
    columns_of,
    fit_values,
    is_single,
    make_output,
)
from mindspore_rec.common.columns.target_statistics import TargetStatistics
from mindspore_rec.common.columns.transforms import Feature

__all__ = ["FeaturePipeline", "name_taken"]

Prepare = Callable[[Any], Any]

_COLUMNS = ""  # key of a state under which the outputs' columns are; no output has this name


class FeaturePipeline:
    """Transform batches of raw columns to whole-batch arrays of keys and numbers.

    One pipeline declares the features of a model for its tables (`create_table(specs=)`), training,
    evaluation, feature workers and the `Predictor`. For training, pass the pipeline to
    `FeatureBatches`, or to a `StreamingDataset` as its transform. The pipeline's state is the
    statistics that its transforms have learned. Calling the pipeline updates its statistics;
    calling `apply` does not. `TargetStatistics` learn only by `fit`, `fit_statistics` and
    `merge_statistics`.

    A batch is an Arrow RecordBatch or Table, a DataFrame, a dict of columns, or a tuple or list of
    columns (if features refer to columns by place). A `mindspore.dataset.Dataset` of whole batches
    is legal too. The pipeline returns a tuple for a tuple or list, a Dataset for a Dataset, and a
    dict of arrays for any other batch.

    Args:
        outputs: dict that maps the name of each array to the array's feature or features. If the
            value is a single FeatureSpec, the FeatureSpec's name must equal the array's name, and
            the array contains keys in the shape of the column. For several features, the array has
            the features' columns side by side: keys, int64 ``[B, F]``, or numbers, float32
            ``[B, N]``. A FeatureSpec that is the timestamp declares the event time, and makes no
            array. The label is the last output. An iterable of FeatureSpec objects is legal too;
            each object makes one output.
        prepare: functions that take a DataFrame and return a DataFrame. The pipeline applies the
            functions of `prepare` first, in order. The functions may add columns and drop rows.
            Default: none.
        threads: greatest number of an array's features that are transformed at the same time, 1 to
            256 (default 1).
        keep_rest: whether the columns that no feature reads are added to the result, unchanged,
            after the arrays. `keep_rest` must be False if there are `prepare` functions. Default:
            False.

    Attributes:
        column_names: names of the arrays, without the columns of `keep_rest`.
        specs: all features that are declared as FeatureSpec objects.
        timestamp: the feature that is the event time, or None.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range; an output mixes
            keys and numbers; `keep_rest` is True and there are `prepare` functions; or
            `check_specs` refuses the features.

    Example:
        >>> from mindspore_rec import FeatureSpec
        >>> from mindspore_rec.stream import Category, LogScale, MinMaxScale, Number
        >>> pipeline = FeaturePipeline(
        ...     {
        ...         "user": FeatureSpec("user", table_name="users", access_threshold=2),
        ...         "time": FeatureSpec("time", is_timestamp=True),
        ...         "ids": [Category("city"), Category("item")],
        ...         "dense": [LogScale("views"), MinMaxScale("price")],
        ...         "label": Number("click"),
        ...     }
        ... )
        >>> rows = {"user": ["ann", None], "time": [60, 61], "city": ["Rome", None], "item": [1, 2]}
        >>> rows |= {"views": [0, 9], "price": [1.0, 3.0], "click": [1, 0]}
        >>> batch, event_time = pipeline.batch(rows)
        >>> batch["user"].shape, batch["ids"].shape, batch["dense"].round(2).tolist(), event_time
        ((2,), (2, 2), [[0.0, 0.0], [2.299999952316284, 1.0]], 61)
    """

    def __init__(
        self,
        outputs: Mapping[str, Any] | Iterable[FeatureSpec],
        prepare: Sequence[Prepare] = (),
        threads: int = 1,
        *,
        keep_rest: bool = False,
    ) -> None:
        definitions = _by_name(outputs)
        times = {
            n: m for n, m in definitions.items() if isinstance(m, FeatureSpec) and m.is_timestamp
        }
        for name, spec in times.items():
            make_output(name, spec)  # of its own name
        self._outputs: list[Output] = [
            make_output(name, made) for name, made in definitions.items() if name not in times
        ]
        self.specs = _specs(definitions, self._outputs)
        self.timestamp: FeatureSpec | None = next(iter(times.values()), None)
        self.column_names = _arrays_of(self._outputs)
        self._prepare = _functions(prepare)
        if not isinstance(keep_rest, bool):
            raise TypeError(f"keep_rest must be a bool, got {keep_rest!r}")
        if keep_rest and self._prepare:
            raise ValueError("keep_rest must be False beside prepare: name the columns as outputs")
        self.keep_rest = keep_rest
        self._times_out = False
        self._threads = check_int("threads", threads, 1, 256)
        self._pool = self._new_pool()

    def _new_pool(self) -> ThreadPoolExecutor | None:
        return ThreadPoolExecutor(self._threads) if self._threads > 1 else None

    def _on_threads(self, function: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
        """Like `map`, but on threads. An error is raised after all calls have ended."""
        assert self._pool is not None
        made = [self._pool.submit(function, *each) for each in zip(*arguments, strict=True)]
        wait(made)
        return [each.result() for each in made]

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes except the threads, because a copy starts new threads."""
        return {name: value for name, value in vars(self).items() if name != "_pool"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._pool = self._new_pool()

    # ---- batches

    def __call__(self, rows: Any) -> Any:
        """Learn statistics from the next rows of a stream, and return the arrays of these rows.

        If the call raises an exception, the statistics are unchanged.

        Args:
            rows: a batch, or a Dataset of batches. If the pipeline has statistics, one thread
                processes the Dataset's batches.

        Raises:
            TypeError, ValueError: a column is missing or of a type that a feature cannot read.
        """
        if _is_dataset(rows):
            return map_dataset(self, rows, learn=True, training=True)
        return self._made(rows, True)[0]

    def apply(self, rows: Any, columns: Sequence[str] | None = None) -> Any:
        """Return the arrays of rows, for evaluation and serving; learn nothing.

        Args:
            rows: a batch, or a Dataset of batches.
            columns: names of the arrays to return. The rows may lack columns that are needed only
                for other arrays. If `keep_rest` is True, the columns that no feature reads are
                returned too. `columns` is legal for a batch, but not for a Dataset. Default: all
                arrays.

        Raises:
            TypeError, ValueError: a column is missing or unreadable, `columns` contains a name that
                no array has, or `columns` is set for a Dataset.
        """
        if not _is_dataset(rows):
            return self._made(rows, False, columns=columns)[0]
        if columns is not None:
            raise ValueError("columns must be left out with a Dataset: project() the result")
        return map_dataset(self, rows, learn=False)

    def batch(
        self,
        rows: Any,
        learn: bool = True,
        with_time: bool = True,
        training: bool | None = None,
    ) -> tuple[Any, int | None]:
        """Return a batch's arrays and event time.

        Args:
            rows: a batch.
            learn: if True, the statistics learn from the batch before the batch is transformed.
                Default: True.
            with_time: whether the timestamps are read. If `with_time` is False, rows need no
                timestamps. Default: True.
            training: whether a network trains on the rows. If True, `TargetStatistics` exclude each
                row's own labels. Default: None, which means the value of `learn`.

        Returns:
            The arrays, and the latest timestamp of the batch in whole seconds since 1970. The event
            time is None if no feature is the timestamp, `prepare` dropped all rows, or `with_time`
            is False.

        Raises:
            TypeError, ValueError: a column is missing or unreadable, there is no row, or a time is
                missing or not between 1970 and 2106.
        """
        return self._made(rows, learn, with_time=with_time, training=training)

    def _made(
        self,
        rows: Any,
        learn: bool,
        with_time: bool = False,
        columns: Sequence[str] | None = None,
        training: bool | None = None,
    ) -> tuple[Any, int | None]:
        training = learn if training is None else training
        outputs = self._wanted(columns)
        view = self._prepared(rows)
        seconds = self._event_time(view) if with_time else None
        call = map if self._pool is None else self._on_threads
        self._check_columns(view, outputs, training)
        made: dict[str, Any] = {}
        if self._times_out and self.timestamp is not None and columns is None:
            made[self.timestamp.name] = _seconds(_times(self.timestamp, view))
        with _nothing_learned_in_part(outputs, learn):
            for output in outputs:
                made.update(output.make_all(view, learn, call, training))
        if columns is not None:
            made = {name: made[name] for name in columns}
        if self.keep_rest and view.by_place is not None:
            for name in self._rest(view):
                if name in made:
                    raise name_taken(name)
                made[name] = view.given(name)
        return (tuple(made.values()) if view.by_place else made), seconds

    def _prepared(self, rows: Any) -> BatchRows:
        if not self._prepare:
            return rows if isinstance(rows, BatchRows) else BatchRows(rows)
        batch = rows.as_record_batch() if isinstance(rows, BatchRows) else to_record_batch(rows)
        for function in self._prepare:
            frame = batch.to_pandas()
            try:
                batch = to_record_batch(function(frame))
            except KeyError as error:
                raise ValueError(
                    f"rows must have a column {error}, which prepare reads; they have {list(frame)}"
                ) from error
        return BatchRows(batch)

    def _wanted(self, columns: Sequence[str] | None) -> list[Output]:
        if columns is None:
            return self._outputs
        if isinstance(columns, str):
            raise TypeError(f"columns must be a list of names, got {columns!r}")
        by_name = {name: output for output in self._outputs for name in output.arrays}
        unknown = [name for name in columns if name not in by_name]
        if unknown:
            raise ValueError(f"columns must be of {self.column_names}, got {unknown[0]!r}")
        return list(dict.fromkeys(by_name[name] for name in columns))

    def _event_time(self, view: BatchRows) -> int | None:
        if self.timestamp is None:
            return None
        times = _times(self.timestamp, view)
        return None if self._prepare and not len(times) else event_time(self.timestamp, times)

    def _check_columns(self, view: BatchRows, outputs: list[Output], training: bool) -> None:
        """Raise ValueError if columns are missing or have different lengths."""
        first: tuple[str, int] | None = None
        members = [each for output in outputs for each in output.members]
        pairs = [(each, read) for each in members for read in columns_of(each, view, training)]
        for member, read in pairs:
            column = view.given(read)
            if is_single(column):
                continue  # the feature's own check reports the error
            name = member.name if isinstance(member, FeatureSpec) else read
            if first is None:
                first = name, len(column)
            elif len(column) != first[1]:
                raise ValueError(
                    f"features must have the same number of rows, got {first[1]} of '{first[0]}' "
                    f"and {len(column)} of '{name}'"
                )

    def _rest(self, view: BatchRows) -> list[str]:
        """Return the names of columns that no feature reads."""
        read = {
            view.name_of(column)
            for output in self._outputs
            for each in output.members
            for column in _read_by(each)
        }
        time = None if self.timestamp is None else view.name_of(self.timestamp.column)
        return [name for name in view.names if name not in read and name != time]

    def columns_among(
        self, names: Sequence[str], with_time: bool, training: bool = False
    ) -> ColumnsAmong:
        """Return the columns that the pipeline reads, makes and keeps.

        Args:
            names: names of the columns of the batches.
            with_time: True to include the event time.
            training: whether a network trains on the batches. Default: False.

        Raises:
            ValueError: a column is missing, or a column of `keep_rest` has the name of an array.
        """
        view = BatchRows({}, names)
        read = list(names)
        if not self._prepare:
            members = [each for output in self._outputs for each in output.members]
            columns = [name for each in members for name in columns_of(each, view, training)]
            if self.timestamp is not None and (with_time or self._times_out):
                columns.append(column_of(self.timestamp, view))
            read = list(dict.fromkeys(columns)) or read
        kept = self._rest(view) if self.keep_rest else []
        times = [self.timestamp.name] if with_time and self.timestamp is not None else []
        made = [*self.column_names, *times]
        for name in made:
            if name in kept:
                raise name_taken(name)
        return ColumnsAmong(read, made, kept)

    # ---- where it is used

    def reads(self, columns: Sequence[str] | None = None) -> list[str | int] | None:
        """Return the raw columns that arrays need, in order of use; None if there is a `prepare`.

        The returned columns suffice for predictions. Training also needs the columns of labels and
        of the time.

        Args:
            columns: names of the arrays to compute. Default: all.
        """
        if self._prepare:
            return None
        outputs = self._wanted(columns)
        members = (each for output in outputs for each in output.members)
        return list(dict.fromkeys(column for each in members for column in _read_by(each)))

    @property
    def list_columns(self) -> frozenset[str]:
        """Names of the columns that may have lists of any length."""
        outputs = (output.with_lists() for output in self._outputs)
        members = (each for output in outputs for each in output.transforms)
        return frozenset(
            str(each.column) for each in members if each is not None and each.reads_lists
        )

    def with_times(self) -> FeaturePipeline:
        """Return a copy of this pipeline with the rows' times as an additional first array.

        Feature workers use the copy. The copy shares its learned state with this pipeline.

        Raises:
            ValueError: no feature is the timestamp.
        """
        if self.timestamp is None:
            raise ValueError("one of the features must be the timestamp: is_timestamp=True")
        made = self.by_rows()
        made._times_out = True
        made.column_names = [self.timestamp.name, *made.column_names]
        return made

    def by_rows(self) -> FeaturePipeline:
        """Return a copy whose arrays can be sent as columns: each array has one element per row.

        In the copy, each column of a history is one column of lists, without offsets. The copy
        shares its learned state with this pipeline.
        """
        made = copy.copy(self)
        made._outputs = [output.by_rows() for output in self._outputs]
        made.column_names = _arrays_of(made._outputs)
        return made

    def with_lists(self) -> FeaturePipeline:
        """Return a copy of this pipeline that reads each history from a column of lists.

        The copy shares its learned state with this pipeline. If the library collects no history
        from rows, the result is this pipeline itself.
        """
        if not self.kept:
            return self
        made = copy.copy(self)
        made._outputs = [output.with_lists() for output in self._outputs]
        made.column_names = _arrays_of(made._outputs)
        return made

    @property
    def kept(self) -> list[KeptEvents]:
        """All `KeptEvents` features of the pipeline."""
        members = (each for output in self._outputs for each in output.members)
        return [each for each in members if isinstance(each, KeptEvents)]

    def received(self) -> FeaturePipeline:
        """Return a pipeline for the arrays that a feature worker made with `with_times()`.

        The new pipeline declares the tables, thresholds and event time of this pipeline, and learns
        nothing. The new pipeline passes the arrays on unchanged, but converts the lists of
        histories to values and offsets.
        """
        made = copy.copy(self)
        made._outputs = [output.received() for output in self._outputs]
        made._prepare = []
        made._times_out, made.keep_rest = False, False
        made.column_names = _arrays_of(made._outputs)
        if self.timestamp is not None:
            made.timestamp = dataclasses.replace(self.timestamp, index_key=None, transform=None)
        return made

    # ---- what it has learned

    @property
    def learns(self) -> bool:
        """True if at least one transform has a state."""
        transforms = (each for output in self._outputs for each in output.transforms)
        return any(each is not None and each.state_dict() is not None for each in transforms)

    def fit(self, rows: Any) -> FeaturePipeline:
        """Learn from all rows at once.

        Args:
            rows: a batch that contains the column of every transform that learns.

        Returns:
            This object.

        Raises:
            TypeError, ValueError: a column is missing or unreadable. After an error, the pipeline
                is unchanged.
        """
        view = self._prepared(rows)
        with _nothing_learned_in_part(self._outputs, learn=True):
            for output in self._outputs:
                for member, transform in zip(output.members, output.transforms, strict=True):
                    if transform is not None and transform.state_dict() is not None:
                        transform.fit(fit_values(member, view))
        return self

    def fit_statistics(self, batches: Iterable[Any], weight: str | None = None) -> FeaturePipeline:
        """Compute all `TargetStatistics` from batches of rows, and forget the earlier statistics.

        The time intervals of statistics of kind 'past' do not change after `fit`.

        Args:
            batches: batches of the rows on which a network trains.
            weight: name of a second weight column. The weight of a row is multiplied by the second
                weight. Default: None.

        Returns:
            This object.

        Raises:
            TypeError, ValueError: a column is missing or unreadable. After an error, the pipeline
                is unchanged.
        """
        members = self._statistics()
        with _nothing_learned_in_part(self._outputs, learn=True):
            for member in members:
                member.forget()
            rows = 0
            for batch in batches:
                view = self._prepared(batch)
                if weight is not None and weight not in view.names:
                    raise ValueError(f"batches must have the column {weight!r} of weights")
                weights = None if weight is None else np.asarray(view.raw(weight), np.float64)
                for member in members:
                    values = fit_values(member, view)
                    rows += len(values)
                    member.add(values, weights)
            if members and not rows:  # as in an empty part of the rows, before `merge_statistics`
                warnings.warn(
                    "batches have no row, so that the statistics of labels know nothing",
                    RuntimeWarning,
                    stacklevel=3,
                )
            for member in members:
                member.settle()
        return self

    def merge_statistics(self, states: Iterable[Mapping[str, Any]]) -> FeaturePipeline:
        """Replace the states of the `TargetStatistics` by the merged states of other pipelines.

        Args:
            states: states of other pipelines. Each pipeline must first get the time intervals of
                this pipeline, by `fit` or `load_state_dict`, and then learn from a part of the rows
                by `fit_statistics`.

        Returns:
            This object.

        Raises:
            TypeError, ValueError, KeyError: there is no state, or a state is the state of a
                pipeline with other features or other time intervals. After an error, this pipeline
                is unchanged.
        """
        members = self._statistics()
        with _nothing_learned_in_part(self._outputs, learn=True):
            for member in members:
                member.forget()
            merged = 0
            for state in states:
                merged += 1
                for member, other in zip(
                    members, self.with_state(state)._statistics(), strict=True
                ):
                    member.merge(other)
            if members and not merged:
                raise ValueError("states must have at least one state")
        return self

    def _statistics(self) -> list[TargetStatistics]:
        members = [each for output in self._outputs for each in output.members]
        return [each for each in members if isinstance(each, TargetStatistics)]

    def state_dict(self) -> dict[str, Any]:
        """Return the learned state as JSON values.

        Under the key '', the state contains the columns of each output. `load_state_dict` compares
        the columns, so that a column never gets the state of another column.
        """
        learned: dict[str, Any] = {
            output.name: [None if t is None else t.state_dict() for t in output.transforms]
            for output in self._outputs
        }
        learned[_COLUMNS] = {output.name: _columns(output) for output in self._outputs}
        return learned

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state that `state_dict` returned.

        Raises:
            TypeError, ValueError, KeyError: the state and the pipeline differ in features, column
                names or column order. After an error, the pipeline is unchanged.
        """
        self._check_state(state)
        tried = copy.deepcopy([output.transforms for output in self._outputs])
        for transforms in (tried, [output.transforms for output in self._outputs]):
            for output, each in zip(self._outputs, transforms, strict=True):
                _load(each, state[output.name])

    def with_state(self, state: Mapping[str, Any]) -> FeaturePipeline:
        """Return a copy of this pipeline with another state; this pipeline does not change.

        Raises:
            TypeError, ValueError, KeyError: see `load_state_dict`.
        """
        made = copy.copy(self)
        made._outputs = copy.deepcopy(self._outputs)
        made.load_state_dict(state)
        return made

    def _check_state(self, state: Any) -> None:
        shape = {output.name: len(output.members) for output in self._outputs}
        is_mapping = isinstance(state, Mapping)
        learned_by = {n: v for n, v in state.items() if n != _COLUMNS} if is_mapping else {}
        if not is_mapping or not all(isinstance(v, (list, tuple)) for v in learned_by.values()):
            raise ValueError(f"state must be of a pipeline with outputs {shape}, got {state!r:.80}")
        counts = {name: len(learned) for name, learned in learned_by.items()}
        if counts != shape:
            raise ValueError(f"state must be of a pipeline with outputs {shape}, got {counts}")
        if _COLUMNS in state:  # states of earlier versions lack them
            for output in self._outputs:
                _check_columns_of(output, state[_COLUMNS])


def _arrays_of(outputs: Sequence[Output]) -> list[str]:
    return [name for output in outputs for name in output.arrays]


def _times(timestamp: FeatureSpec, view: BatchRows) -> Any:
    """Return the event times; if the timestamp has a transform, return the times in seconds."""
    name = column_of(timestamp, view)
    if timestamp.transform is None:
        return view.raw(name)
    return view.keys.of(timestamp.transform, view.arrow(name), learn=False)


def name_taken(name: str) -> ValueError:
    """Return the error for a feature with the same name as another column of the batch."""
    return ValueError(
        f"feature '{name}' has the name of another column of the batch: give it another name"
    )


def _is_dataset(rows: Any) -> bool:
    """Return True if `rows` is a MindSpore Dataset; False if MindSpore is not imported."""
    module = sys.modules.get("mindspore.dataset")
    return module is not None and isinstance(rows, module.Dataset)


def _by_name(outputs: Any) -> dict[str, Any]:
    if isinstance(outputs, FeatureSpec):
        return {outputs.name: outputs}
    if isinstance(outputs, Mapping):
        if outputs:
            return dict(outputs)
    elif isinstance(outputs, Iterable) and not isinstance(outputs, (str, bytes)):
        return {spec.name: spec for spec in check_specs(outputs)}
    raise TypeError(f"outputs must be a dict of features by name, got {outputs!r}")


def _functions(prepare: Any) -> list[Prepare]:
    functions = [prepare] if callable(prepare) else prepare
    if not isinstance(functions, (list, tuple)) or not all(callable(each) for each in functions):
        raise TypeError(f"prepare must be functions of a DataFrame, got {prepare!r}")
    return list(functions)


def _specs(definitions: Mapping[str, Any], outputs: list[Output]) -> tuple[FeatureSpec, ...]:
    """Return the FeatureSpec objects in the order of the definitions."""
    by_name = {output.name: output.specs for output in outputs}
    specs = tuple(spec for name, made in definitions.items() for spec in by_name.get(name, [made]))
    check_together(specs)
    return specs


def _seconds(times: Any) -> np.ndarray:
    values = time_values(times)
    if values.dtype.kind != "M":
        return values
    return values.astype("datetime64[us]").astype(np.int64) / 1e6


def _load(transforms: list[Feature | None], states: Sequence[Any]) -> None:
    for transform, state in zip(transforms, states, strict=True):
        if transform is not None:
            transform.load_state_dict(state)
        elif state is not None:
            raise ValueError(f"state must be None where there is no transform, got {state!r:.80}")


def _read_by(member: FeatureSpec | Feature) -> tuple[str | int, ...]:
    """Return the columns that a feature reads for a prediction."""
    return (member.column,) if isinstance(member, FeatureSpec) else member.columns


def _columns(output: Output) -> list[Any]:
    """Return each feature's column, or a list of columns if the feature reads several columns."""
    read = [_read_by(member) for member in output.members]
    return [each[0] if len(each) == 1 else list(each) for each in read]


def _check_columns_of(output: Output, columns: Any) -> None:
    """Raise ValueError if the state and the pipeline have different columns for an output."""
    own = _columns(output)
    state_columns = columns.get(output.name) if isinstance(columns, Mapping) else None
    if not isinstance(state_columns, (list, tuple)) or len(state_columns) != len(own):
        raise ValueError(
            f"state must have the columns of output {output.name!r}, got {state_columns!r:.80}"
        )
    # A column's name is not compared with a column's place, because the state may be from batches
    # that were tuples while the batches are now dicts.
    if any(
        a != b and (type(a) is type(b) or list in (type(a), type(b)))
        for a, b in zip(own, state_columns, strict=True)
    ):
        raise ValueError(
            f"output {output.name!r} of the state is of columns {list(state_columns)}, this "
            f"pipeline's output {output.name!r} is of {own}"
        )


def _with_inner(transform: Feature) -> Iterator[Feature]:
    """Yield a transform, and the transforms that it calls, such as the parts of a `Cross`."""
    yield transform
    for value in vars(transform).values():
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, Feature):
                yield from _with_inner(each)


@contextmanager
def _nothing_learned_in_part(outputs: list[Output], learn: bool) -> Iterator[None]:
    """Restore all transforms if a batch fails after some transforms have learned from it."""
    tops = [t for output in outputs for t in output.transforms if learn and t is not None]
    transforms = [each for top in tops for each in _with_inner(top)]
    before = [dict(vars(each)) for each in transforms]
    try:
        yield
    except BaseException:
        for each, attributes in zip(transforms, before, strict=True):
            vars(each).clear()
            vars(each).update(attributes)
        raise
