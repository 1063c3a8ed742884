# SPDX-License-Identifier: Apache-2.0
"""DataPlace: saves the position in the training data to checkpoints, and restores the position."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mindspore_rec.common.stream.batches import BatchSource
from mindspore_rec.common.stream.read_watch import ReadWatch
from mindspore_rec.train.data.batch_sources import batch_source

__all__ = ["DataPlace", "SavedPlace", "check_place"]

logger = logging.getLogger("mindspore_rec")

NAME = "train_dataset"  # name of the data's state in a checkpoint
PASSES = "passes"  # name of the position in data without a state

_WHAT_TO_DO = (
    "Train on the stream itself, with what changes its batches as the transform of a "
    "StreamingDataset, as FeatureBatches(stream) or in a BatchWrapper of it. An object of your own "
    "that gives the same batches in each pass needs __len__, their number. "
    "RecCheckpoint(data_starts_over=True) says that the data may begin anew after a restart"
)
_LOST = f"its place cannot be saved: after a restart batches would be trained twice or never. \
{_WHAT_TO_DO}"


def check_place(data: Any, argument: str = NAME) -> None:
    """Raise ValueError for data whose position cannot be saved.

    Args:
        data: the training data, or None.
        argument: name of the data in error messages.

    Raises:
        TypeError: `data` is not a source of batches.
        ValueError: the position in `data` cannot be saved.

    Example:
        >>> check_place([1, 2])
        >>> try:
        ...     check_place(batch for batch in [1, 2])
        ... except ValueError as error:
        ...     print(str(error).partition(":")[0])
        train_dataset is a <genexpr>, and its place cannot be saved
    """
    if data is None:
        return
    reason = batch_source(data, argument).cannot_resume
    if reason is not None:
        raise ValueError(f"{argument} {reason}, and {_LOST}")


@dataclass(frozen=True)
class SavedPlace:
    """Position in the training data, from the restored checkpoint.

    Args:
        stream: state of the data in the checkpoint; None if the data had no state.
        passes: for data without a state, the pass and the batch at which to continue; None if no
            position was saved.
        path: path of the checkpoint.
        step: number of training steps before the checkpoint was written.
        new_data: whether the training continues with other data, which are read from the beginning.
    """

    stream: Mapping[str, Any] | None
    passes: Mapping[str, Any] | None
    path: Path
    step: int
    new_data: bool


class DataPlace:
    """Saves and restores the position in the training data, for a `RecCheckpoint`.

    Args:
        starts_over: True if the data may start from the beginning after a restart. If `starts_over`
            is True, the position is not saved, and any data are accepted.
    """

    def __init__(self, starts_over: bool) -> None:
        self._starts_over = starts_over
        self._source: BatchSource | None = None
        self._began = 0  # number of the last batch before this training
        self._watch: ReadWatch | None = None

    def check(self, data: Any) -> None:
        """Raise ValueError for data whose position cannot be saved; see `check_place`."""
        if not self._starts_over:
            check_place(data)

    def stateful(self, data: Any) -> dict[str, BatchSource]:
        """If checkpoints save the state of the data's batch source, return a dict with this source.

        The dict is empty if checkpoints save no state of the data, or if the data start over after
        a restart.
        """
        if data is None or self._starts_over:
            return {}
        source = batch_source(data, NAME)
        return {NAME: source} if source.has_state else {}

    def check_restored(self, data: Any, saved: SavedPlace) -> None:
        """Raise ValueError if the data were not restored from the checkpoint.

        Args:
            data: the training data.
            saved: the position in the checkpoint.

        Raises:
            ValueError: the data would not start at the saved position; or `saved.new_data` is True
                although the checkpoint has a position in these data.
        """
        source = self.stateful(data).get(NAME)
        if saved.new_data:
            _check_other_topics(source, saved)
        elif saved.stream is None:
            if source is not None:
                raise ValueError(
                    f"{NAME} has a place and {saved.path} has none for it, so it would begin anew: "
                    f"give it to restore(), with new_data=True if it is to begin at its start, or "
                    "say data_starts_over=True"
                )
        elif source is None:
            raise ValueError(
                f"{NAME} must be what restore() was given: {saved.path} has the place of a stream "
                f"after {saved.stream['batches']} batches, and this is a {type(data).__name__} "
                "without a place"
            )
        elif source.batches != saved.stream["batches"]:
            raise ValueError(
                f"{NAME} must be what restore() was given, and not be read before the training: "
                f"{saved.path} has its place after {saved.stream['batches']} batches, and it is "
                f"after {source.batches}"
            )

    def begin(self, run: Any, saved: SavedPlace | None) -> None:
        """Begin a training at the position `saved`, and start to record the training's position.

        Args:
            run: parameters of the training.
            saved: position from the restored checkpoint; None if no checkpoint was restored.

        Raises:
            ValueError: the data have no saved state and differ from the data of the checkpoint. A
                ValueError is also raised if `new_data` is True, but the checkpoint was written
                during training on the same data.
        """
        self._source = self.stateful(run.train_dataset).get(NAME)
        self._began = 0 if self._source is None else self._source.batches
        passes = run.get("data_passes")
        if self._source is not None and saved is not None and passes is not None:
            if saved.stream is not None and not saved.new_data:
                passes.epochs = max(passes.epochs, self._source.passes or 0)
        if self._source is not None or self._starts_over:
            return
        if passes is not None:  # a RecModel trains
            passes.keep()
        if saved is None or not saved.step or saved.stream is not None:
            return
        if saved.passes is None:
            if not saved.new_data:
                logger.warning(
                    "%s begins anew: %s has no place in it, since an earlier version or a training "
                    "with data_starts_over=True has saved it",
                    NAME,
                    saved.path,
                )
        elif passes is None:
            raise ValueError(
                f"{saved.path} has a place within {NAME}, and only RecModel.train and online_train "
                "go on there: RecCheckpoint(data_starts_over=True) lets the data begin anew"
            )
        elif saved.new_data:
            passes.check_new(saved.passes, saved.path)
        else:
            passes.go_on(saved.passes, saved.path)

    def watch(self, data: Any) -> None:
        """Raise an error as soon as training reads a stream whose position `state` does not
        contain."""
        if self._starts_over or data is None:
            return
        source = batch_source(data, NAME)
        refusal = (
            f"{NAME} is a {type(data).__name__} that reads a stream which RecCheckpoint does not "
            f"know, and {_LOST}"
        )
        self._watch = ReadWatch(source.covered_streams(), source.reads_in_pipeline, refusal)
        self._watch.begin()

    def state(self, batch: Any) -> dict[str, Any]:
        """Return a dict with the data's state after `batch`; an empty dict if there is no state.

        Args:
            batch: the `Batch` of the last step; None before the first step.

        Raises:
            ValueError: the data have a state, but the last batch has no batch number.
        """
        if self._source is None:
            return {}
        number = self._began if batch is None else batch.number
        if number is None:
            raise ValueError(
                f"{NAME} is a {type(self._source).__name__} with a state whose batches have no "
                "number, so nobody knows the state after the trained batch: set Batch.number"
            )
        return {NAME: self._source.state_dict(batches=number)}

    def passes(self, run: Any) -> dict[str, Any]:
        """Return a dict with the position in the passes; an empty dict if the data have a state.

        Args:
            run: parameters of the training.
        """
        passes = run.get("data_passes")
        place = None if passes is None else passes.state(run.get("train_batch"))
        return {} if place is None else {PASSES: place}

    def end(self) -> None:
        """End the training."""
        self._source = None
        if self._watch is not None:
            self._watch.end()
            self._watch = None


def _check_other_topics(source: BatchSource | None, saved: SavedPlace) -> None:
    """Raise ValueError if the new data are from a topic for which the checkpoint has a position."""
    if source is None or saved.stream is None:
        return
    both = set(_topics(source.state_dict())) & set(_topics(saved.stream))
    if both:
        topic = sorted(topic for topic, _ in both)[0]
        raise ValueError(
            f"new_data must be False: {saved.path} has a place in topic {topic!r} already, and its "
            "messages would be trained again from the start. Without it the training goes on there"
        )


def _topics(state: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and id of each topic in a state, or in a list of workers' states."""
    if isinstance(state, Mapping):
        if isinstance(state.get("topic"), str):
            yield state["topic"], state.get("topic_id")
        for each in state.values():
            yield from _topics(each)
    elif isinstance(state, list):
        for each in state:
            yield from _topics(each)
