# SPDX-License-Identifier: Apache-2.0
"""Passes: record and restore the position of a training in repeated passes over its data."""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import mindspore.dataset as ds
import numpy as np
from mindspore import Tensor

from mindspore_rec.common.stream.batches import Batch, BatchSource, PassPlace
from mindspore_rec.train.checkpoint.random_state import (
    check_random_state,
    random_state,
    set_random_state,
)
from mindspore_rec.train.data.batch_digest import batch_digest

__all__ = ["Passes"]

logger = logging.getLogger("mindspore_rec")

_SEED = "dataset_seed"
_NO_SEED = 5489  # default of mindspore.dataset.config: each iterator then has a different order
_COUNTS = ("epochs", "taken", "passes", "batches", "first", "digest")
_ALIKE = ("whole", "rows")  # divisions in which every worker reads all batches
_OTHERS = "for other data, which begin at their start, say restore(model, data, new_data=True)"


class Passes:
    """Position within a pass over the training data, at which a restarted training resumes.

    Positions are recorded only after a call of `keep`. To record positions, the class computes a
    digest of each batch.

    Args:
        source: this worker's share of the data.
        share: how the data are divided among workers: "whole" or a result of `share_way`.
        workers: number of workers.
        run: parameters of the training.
        has_batch: function that returns True if the batch of the next step has been read.

    Attributes:
        epochs: number of finished epochs, including `initial_epoch`.
        taken: number of finished steps of the current epoch.
    """

    def __init__(
        self,
        source: BatchSource,
        share: str,
        workers: int,
        run: Any,
        has_batch: Callable[[], bool],
    ) -> None:
        self.epochs = self.taken = 0
        self._source, self._share, self._workers, self._run = source, share, workers, run
        self._has_batch = has_batch
        self._initial_epoch = 0
        self._epoch_steps: int | None = None
        self._kept = False
        self._length: int | None = None
        self._begun = 0  # number of passes begun, in all programs that trained on this source
        self._place = PassPlace(0, 0, 0, 0, {})  # position before the first batch of this training
        self._at: PassPlace | None = None  # where the next pass resumes; None: its start

    def begin(self, epoch_steps: int | None, initial_epoch: int) -> None:
        """Begin a training in which the first `initial_epoch` epochs are already finished.

        An epoch has `epoch_steps` steps, or is one pass if `epoch_steps` is None.
        """
        self._epoch_steps = epoch_steps
        self._initial_epoch = self.epochs = initial_epoch

    @property
    def epochs_over(self) -> int:
        """Number of finished epochs in this call of `train`."""
        return self.epochs - self._initial_epoch

    @property
    def goes_on(self) -> bool:
        """True if the next pass begins by skipping the batches of finished steps."""
        return self._at is not None

    def end_epoch(self, complete: bool) -> None:
        """Record that an epoch has ended; call this method after the epoch's callbacks."""
        if complete:
            self.epochs += 1
            self.taken = 0

    # ---- for checkpoints

    def keep(self) -> None:
        """Record the position of each later batch, so that `state` can return the position."""
        self._kept = True
        self._length = self._source.length

    def state(self, batch: Batch | None) -> dict[str, Any] | None:
        """Return the position after `batch` as a dict; None if positions are not recorded.

        Args:
            batch: the batch of the last step; None before the first step.
        """
        if not self._kept:
            return None
        place = batch.place if batch is not None and batch.place is not None else self._place
        return {
            "epochs": self.epochs,
            "taken": self.taken,
            "epoch_steps": self._epoch_steps,
            "length": self._length,
            "share": self._share,
            "workers": self._workers,
            "passes": place.passes,
            "batches": place.batches,
            "first": place.first,
            "digest": place.digest,
            "generators": dict(place.generators),
        }

    def go_on(self, state: Mapping[str, Any], path: Any) -> None:
        """Resume at the position in `state`.

        Call `keep` before `go_on`, and call `go_on` before the first batch.

        Args:
            state: position that the method `state` returned.
            path: path of the checkpoint that contains the state, for error messages.

        Raises:
            ValueError: the data, or the division of the data among workers, differ from the state;
                or the state is damaged.
        """
        at = _place_of(state, path)
        if not at.batches:
            return
        if self._place.batches:  # another checkpoint of the same training was restored too
            if _position(at) != _position(self._place):
                raise ValueError(
                    f"{path} has another place in train_dataset than the other checkpoint that was "
                    "restored"
                )
            return
        self._check_alike(state, path)
        self.epochs, self.taken = state["epochs"], state["taken"]
        self._source.skip_passes(at.passes)
        self._begun, self._place = at.passes, at
        over = self._epoch_steps is None and not self.taken
        if over or at.batches == self._length:
            self._check_first(at, path)
        self._at = None if over else at
        self._count_steps(over or at.batches == self._length)

    def check_new(self, state: Mapping[str, Any], path: Any) -> None:
        """Raise ValueError if the data begin with the batches that were trained before `state`.

        Args: see `go_on`.
        """
        at = _place_of(state, path)
        if not at.batches or state["length"] != self._length:
            return
        if self._begins_with(at):
            raise ValueError(
                f"train_dataset has been trained before: {path} has the place after batch "
                f"{at.batches} of a pass over these data, so new_data=True would train them again. "
                "Leave it out to go on there; a larger number of epochs trains more"
            )

    def _check_alike(self, state: Mapping[str, Any], path: Any) -> None:
        if self._length != state["length"] and None not in (self._length, state["length"]):
            raise ValueError(
                f"train_dataset has {self._length} batches in a pass, and {path} has a place in "
                f"data of {state['length']}: give the same data, or, {_OTHERS}"
            )
        shares = {self._share, state["share"]}
        if self._workers != state["workers"] and not shares <= set(_ALIKE):
            raise ValueError(
                f"train_dataset is divided by {self._share} among {self._workers} workers, and "
                f"{path} has the place of one of {state['workers']} workers: start as many"
            )
        if self._epoch_steps != state["epoch_steps"]:
            raise ValueError(
                f"an epoch must be {_epoch_text(state['epoch_steps'])} as in {path}, got "
                f"{_epoch_text(self._epoch_steps)}: give the same sink_size, or, {_OTHERS}"
            )
        if self._initial_epoch > state["epochs"]:
            raise ValueError(
                f"initial_epoch must be at most {state['epochs']}, the epochs that {path} has, got "
                f"{self._initial_epoch}: leave it out, since restore() goes on by itself"
            )

    def _check_first(self, at: PassPlace, path: Any) -> None:
        """Check that a new pass begins with the same batch as the pass whose position is `at`."""
        if self._first(at) != at.first:
            raise ValueError(_other_batches(at, path))

    def _first(self, at: PassPlace) -> int | None:
        """Return the digest of the first batch of a pass; None if the pass has no batch."""
        with self._read_again(at) as batches:
            batch = next(batches, None)
        return None if batch is None else self._digest(batch)

    def _begins_with(self, at: PassPlace) -> bool:
        """Return whether a new pass begins with the batches that precede the position `at`.

        If the first batch differs, no further batch is read.
        """
        place = replace(at, batches=0, first=0, digest=0)
        with self._read_again(at) as batches:
            for batch in batches:
                place = self._after(place, batch)
                if place.first != at.first or place.batches == at.batches:
                    break
        return _position(place) == _position(at)

    @contextmanager
    def _read_again(self, at: PassPlace) -> Iterator[Iterator[Batch]]:
        """In the context, read a new pass over the data; the random generators start from the
        states in `at`.
        """
        self._begun += 1
        with _as_of(at.generators):
            batches = self._source.read()
            yield batches
            close = getattr(batches, "close", None)
            if close is not None:
                close()

    def _count_steps(self, complete: bool) -> None:
        """After a resume, reduce `total_steps` to the remaining steps; warn if no step remains."""
        run = self._run
        if run.total_steps is not None and run.batch_num != sys.maxsize:
            left = (run.epoch_num - self.epochs_over) * run.batch_num - self.taken
            run.total_steps = max(min(run.total_steps, left), 0)
        over = self.epochs_over + bool(self.taken and complete)
        # Epochs of a stream are not counted, because `online_train` reads a stream to its end.
        if over >= run.epoch_num and (complete or run.batch_num != sys.maxsize):
            logger.warning(
                "train_dataset has been trained already, in %d epochs%s: nothing is left. More "
                "epochs, or restore(model, data, new_data=True) for other data, train on",
                self.epochs + bool(self.taken and complete),
                "" if complete else f" and {self.taken} steps",
            )

    # ---- reading

    def read(self, source: BatchSource) -> Iterator[Batch]:
        """Return an iterator over the batches of a pass, or over the rest of a resumed pass.

        Raises:
            ValueError: raised during iteration, if the skipped batches differ from the batches
                before the restart.
        """
        return self._placed(source) if self._kept else source.read()

    def _placed(self, source: BatchSource) -> Iterator[Batch]:
        at, self._at = self._at, None
        if at is not None and at.batches == self._length:
            return
        number, self._begun = self._begun, self._begun + 1
        batches = source.read()
        if at is None:
            place = PassPlace(number, 0, 0, 0, self._generators())
            with _dataset_seed(place.generators[_SEED]):
                batch = self._next(batches)
        else:
            place = self._skip(batches, at)
            batch = self._next(batches)
        while batch is not None:
            place = self._after(place, batch)
            yield replace(batch, place=place)
            batch = self._next(batches)

    def _skip(self, batches: Iterator[Batch], at: PassPlace) -> PassPlace:
        """Read and skip the batches of finished steps; return the position after these batches."""
        place = replace(at, batches=0, first=0, digest=0)
        with _as_of(at.generators):
            for _ in range(at.batches):
                batch = next(batches, None)
                if batch is None:
                    raise ValueError(
                        f"train_dataset has {place.batches} batches in a pass, and {at.batches} "
                        f"were trained: give the same data, or, {_OTHERS}"
                    )
                place = self._after(place, batch)
        if _position(place) != _position(at):
            raise ValueError(_other_batches(at, "the checkpoint"))
        return place

    def _next(self, batches: Iterator[Batch]) -> Batch | None:
        """Return the next batch; raise ValueError if reading ahead has drawn random numbers.

        If reading ahead drew random numbers, a checkpoint after a step would save generator states
        that belong to a later batch.
        """
        if not self._has_batch():
            return next(batches, None)
        before = _drawn()
        batch = next(batches, None)
        if _drawn() != before:
            raise ValueError(
                "train_dataset draws from the random generators of Python or NumPy while batches "
                "are read ahead (CacheConfig.prefetch), so that a checkpoint could not go on with "
                "the same batches: let it have a generator of its own, with a seed for each pass, "
                "or say RecCheckpoint(data_starts_over=True)"
            )
        return batch

    def _after(self, place: PassPlace, batch: Batch) -> PassPlace:
        digest = self._digest(batch)
        return replace(
            place,
            batches=place.batches + 1,
            first=place.first if place.batches else digest,
            digest=_joined(place.digest, digest),
        )

    def _digest(self, batch: Batch) -> int:
        """Return the digest of the undivided batch if it is known, else the digest of `batch`."""
        whole = getattr(self._source, "fingerprint", None)
        if whole is not None:
            return int(whole[1])
        arrays = tuple(each for each in batch.columns if isinstance(each, np.ndarray | Tensor))
        return batch_digest(replace(batch, columns=arrays))

    def _generators(self) -> dict[str, Any]:
        """Return the states of the random generators at the beginning of a pass.

        If no seed is set for MindSpore's data sets and there is only one worker, this worker draws
        a seed for the pass. Several workers do not draw a seed, because all workers must have the
        same seed.
        """
        seed = ds.config.get_seed()
        if seed == _NO_SEED and self._workers == 1:
            seed = random.SystemRandom().randrange(_NO_SEED + 1, 2**32)
        return {_SEED: seed, **random_state()}


def _position(place: PassPlace) -> tuple[int, int, int]:
    return place.passes, place.batches, place.digest


def _joined(digest: int, next_digest: int) -> int:
    return (digest * 1_000_003 + next_digest + 1) % 2**61


def _place_of(state: Mapping[str, Any], path: Any) -> PassPlace:
    """Check a state that was read from a file, and return the position in the state.

    Raises:
        ValueError: `state` does not contain a valid position.
    """
    if not isinstance(state, Mapping):
        raise ValueError(f"{path} is damaged: its place in the data must be an object")
    counts = {name: state.get(name) for name in _COUNTS}
    if not all(type(each) is int and 0 <= each < 2**61 for each in counts.values()):
        raise ValueError(f"{path} is damaged: its place in the data must be numbers")
    lengths = [state.get(name) for name in ("length", "epoch_steps")]
    if not all(each is None or (type(each) is int and each > 0) for each in lengths):
        raise ValueError(f"{path} is damaged: numbers of batches must be above 0")
    generators = dict(state.get("generators") or {}) if counts["batches"] else {}
    if counts["batches"]:
        try:
            check_random_state(generators)
            np.uint32(generators[_SEED])
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{path} is damaged: generators {error}") from error
    numbers = [int(counts[name] or 0) for name in ("passes", "batches", "first", "digest")]
    return PassPlace(numbers[0], numbers[1], numbers[2], numbers[3], generators)


def _other_batches(at: PassPlace, path: Any) -> str:
    return (
        f"train_dataset gives other batches than those that were trained, so that the place of "
        f"{path}, batch {at.batches} of a pass, is not to be found. Its passes must have an order "
        "that can be repeated: shuffle in __iter__, a new copy each time, by Python's random or "
        "np.random, whose states are saved, or by a seed of your own for each pass with a method "
        f"skip_passes(passes), which counts passes as read; {_OTHERS}"
    )


def _epoch_text(steps: int | None) -> str:
    return "one pass" if steps is None else f"{steps} steps"


# ---- generators


def _drawn() -> Any:
    name, keys, *rest = np.random.get_state()  # noqa: NPY002
    return random.getstate(), name, np.asarray(keys).tobytes(), rest


def _set_dataset_seed(seed: int) -> None:
    """Set the seed of data sets without changing the states of Python's and NumPy's generators."""
    if ds.config.get_seed() != seed:
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
        ds.config.set_seed(seed)
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def _dataset_seed(seed: int) -> Iterator[None]:
    before = ds.config.get_seed()
    _set_dataset_seed(seed)
    try:
        yield
    finally:
        _set_dataset_seed(before)


@contextmanager
def _as_of(generators: Mapping[str, Any]) -> Iterator[None]:
    """Inside the context, set all random generators to `generators`; afterwards, restore them."""
    now = random_state()
    with _dataset_seed(generators[_SEED]):
        set_random_state(dict(generators))
        try:
            yield
        finally:
            set_random_state(now)
