# SPDX-License-Identifier: Apache-2.0
"""DataPlace: the position in the training data as part of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mindspore_rec.stream.batch_sources import batch_source
from mindspore_rec.stream.batches import BatchSource
from mindspore_rec.stream.read_watch import ReadWatch

__all__ = ["DataPlace", "check_place"]

NAME = "train_dataset"  # name of the data among the states of a checkpoint

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
        argument: name of the data in the message.

    Raises:
        TypeError: `data` cannot be a source of batches.
        ValueError: `data` cannot be resumed.

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


class DataPlace:
    """Position in the data of one training, for a `RecCheckpoint`.

    Args:
        starts_over: whether the data may start anew after a restart: their position is then not
            saved, and any data are accepted.
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
        """Return a dict with the data's source if its state is to be saved, else an empty one."""
        if data is None or self._starts_over:
            return {}
        source = batch_source(data, NAME)
        return {NAME: source} if source.has_state else {}

    def check_restored(self, data: Any, saved: Mapping[str, Any] | None, path: Any) -> None:
        """Raise ValueError unless the data are those into which a checkpoint's state was loaded.

        Args:
            data: the training data.
            saved: the data's state in the checkpoint; None if it has none.
            path: path of the checkpoint, for the message.

        Raises:
            ValueError: the data would start anew, or at a position other than the saved one.
        """
        source = self.stateful(data).get(NAME)
        if saved is None and source is not None:
            raise ValueError(
                f"{NAME} has a place and {path} has none for it, so it would begin anew: give it "
                "to restore(), or say data_starts_over=True"
            )
        if saved is not None and source is None:
            raise ValueError(
                f"{NAME} must be what restore() was given: {path} has the place of a stream after "
                f"{saved['batches']} batches, and this is a {type(data).__name__} without a place"
            )
        if saved is not None and source is not None and source.batches != saved["batches"]:
            raise ValueError(
                f"{NAME} must be what restore() was given, and not be read before the training: "
                f"{path} has its place after {saved['batches']} batches, and it is after "
                f"{source.batches}"
            )

    def begin(self, data: Any) -> None:
        """Begin a training on data, whose position `state` returns from now on."""
        self._source = self.stateful(data).get(NAME)
        self._began = 0 if self._source is None else self._source.batches

    def watch(self, data: Any) -> None:
        """Start to refuse streams that the training reads and that `state` does not cover."""
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
        """Return a dict with the data's state as of a batch; an empty one for data without state.

        Args:
            batch: the `Batch` that was trained last; None before the first one.
        """
        if self._source is None:
            return {}
        number = self._began if batch is None else batch.number
        if number is None:
            raise ValueError(
                f"{NAME} is a {type(self._source).__name__} with a state whose batches have no "
                "number, so nobody knows the state after the one that was trained: set Batch.number"
            )
        return {NAME: self._source.state_dict(batches=number)}

    def end(self) -> None:
        """End the training."""
        self._source = None
        if self._watch is not None:
            self._watch.end()
            self._watch = None
