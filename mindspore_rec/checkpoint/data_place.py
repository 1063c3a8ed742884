# SPDX-License-Identifier: Apache-2.0
"""Whether the place in the data of a training can be saved, is not needed, or would be lost."""

from __future__ import annotations

from typing import Any

from mindspore.dataset import Dataset, GeneratorDataset

from mindspore_rec.training_reads import Watch

__all__ = ["batches_of", "check_place", "has_place", "watch_of"]

_WHAT_TO_DO = (
    "Train on the stream itself, with what changes its batches as the transform of a "
    "StreamingDataset, or on FeatureBatches(stream). RecCheckpoint(data_starts_over=True) says "
    "that the data may begin anew after a restart"
)


def has_place(data: Any) -> bool:
    """Whether data have a state that can be saved."""
    return hasattr(data, "state_dict") and hasattr(data, "load_state_dict")


def batches_of(data: Any) -> int:
    """Batches taken of data in their life; 0 where they have no state."""
    return int(data.state_dict()["batches"]) if has_place(data) else 0


def check_place(data: Any, argument: str = "train_dataset") -> None:
    """Refuses data whose place would be lost.

    Args:
        data: what is trained on. What can begin anew and has an end is its own place: an epoch
            begins at its beginning.
        argument: the name to put in the message.

    Raises:
        ValueError: it is read once, or without an end that is known, and has no state.

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
    if has_place(data):
        _check_state(data, argument)
        return
    found = _without_place(data)
    if found is not None:
        raise ValueError(
            f"{argument} {found}, and its place cannot be saved: after a restart batches would be "
            f"trained twice or never. {_WHAT_TO_DO}"
        )


def watch_of(data: Any) -> Watch:
    """Finds out a stream that data hide and whose place is therefore not saved."""
    known = []
    each = data
    while each is not None:  # FeatureBatches has StreamingDataset has StreamSource
        known.append(each)
        each = getattr(each, "source", None)
    refusal = (
        f"train_dataset is a {type(data).__name__} that reads a stream which RecCheckpoint does "
        "not know, and its place cannot be saved: after a restart batches would be trained twice "
        f"or never. {_WHAT_TO_DO}"
    )
    return Watch(known if has_place(data) else [], bool(_generators(data)), refusal)


def _check_state(data: Any, argument: str) -> None:
    try:
        taken = data.state_dict()["batches"]
        data.state_dict(batches=taken)
    except (TypeError, KeyError, IndexError) as error:
        raise ValueError(
            f"{argument} is a {type(data).__name__} whose state_dict does not tell 'batches' and "
            "take batches=N, the batches that were trained, as a StreamingDataset's does: "
            f"{_WHAT_TO_DO}"
        ) from error


def _without_place(data: Any) -> str | None:
    """Return what is wrong with data that have no state, or None."""
    inner = getattr(data, "source", None)
    if inner is not None and type(data).__name__ == "FeatureBatches":
        found = _without_place(inner)
        return None if found is None else f"is FeatureBatches whose source {found}"
    for each in _generators(data):
        source = each.source
        if has_place(source):
            return f"is a GeneratorDataset over a {type(source).__name__}, which reads it ahead"
        if not _has_length(source):
            return f"is a GeneratorDataset over a {_kind(source)} without a length"
    if isinstance(data, Dataset) or _has_length(data):
        return None
    return f"is a {_kind(data)}"


def _generators(data: Any) -> list[Any]:
    if type(data).__name__ == "FeatureBatches":
        data = data.source
    if not isinstance(data, Dataset):
        return []
    found = [data] if isinstance(data, GeneratorDataset) else []
    return found + [each for child in data.children for each in _generators(child)]


def _has_length(data: Any) -> bool:
    try:
        return len(data) >= 0
    except TypeError:
        return False


def _kind(data: Any) -> str:
    return getattr(data, "__name__", None) or type(data).__name__
