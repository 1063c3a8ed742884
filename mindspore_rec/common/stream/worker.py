# SPDX-License-Identifier: Apache-2.0
"""FeatureWorker: send the features of raw rows exactly once, even after a kill."""

from __future__ import annotations

import errno
import json
import os
import re
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from mindspore_rec._native import FileLock
from mindspore_rec.common.checks import check_number
from mindspore_rec.common.stream.channel import DataSender
from mindspore_rec.common.stream.dataset import StreamingDataset
from mindspore_rec.common.stream.interrupt import Interruption
from mindspore_rec.common.stream.read_watch import ReadGivenUpError, ReadLaterError, waiting
from mindspore_rec.common.sync import sync

__all__ = ["FeatureWorker"]

_CHECK_SECONDS = 1.0  # after which a worker looks again whether it has been replaced
_REPEATED = ("batch_size", "turn_messages", "message_rows", "num_shards", "full_batch")


class FeatureWorker:
    """Worker that sends the batches of a stream into a channel.

    The worker saves its state at intervals. The state consists of four parts: the position in the
    stream, the transform's state, the next message's sequence number, and the settings that
    determine each message's rows. After a kill, the worker resumes from the last state. Messages
    that were sent after the state was saved are sent again, with the same sequence numbers.
    Receivers drop repeated messages.

    A worker may be restarted with new values of `batch_size`, `turn_messages`, `message_rows` or
    `full_batch`, or after shards were added. The restarted worker first uses the old settings, and
    repeats the messages that were sent after the state was saved. From the next batch on, the
    worker uses the new settings. Other settings of the source, such as `value_ranges`, may change
    only if `run` returned normally and no message remains to be repeated. The transform may be
    replaced by a transform that makes the same number of rows from each batch.

    The source's journal stores decisions that depend on timing (`max_wait_seconds`,
    `skip_idle_seconds`, and the last batch of `StopWhen.idle_seconds`). If the source has no
    journal on disk, a file with the state's name plus `.journal` stores the decisions.

    Only one worker at a time may use a state, so the state's file is locked from the constructor to
    the end of `run`. The lock does not always stop an earlier worker that runs again on another
    host. Only the worker that began last is valid, and receivers ignore new messages of earlier
    workers with the same `sender_name`. The earlier workers end with a `ReplacedError`, and change
    neither the state nor the journal. The topic `<channel>.workers` records the order in which
    workers began.

    Args:
        dataset: the `StreamingDataset` whose batches are sent.
        sender: sender with a `sender_name` that no other worker uses.
        state_path: file of the state, in an existing directory. If the file exists, the worker
            resumes from the state in the file. If the file is missing, the worker writes an initial
            state at once.
        save_seconds: seconds between two saved states, at least 0 (default 1).

    Attributes:
        interrupted: True if Ctrl-C or SIGTERM has ended `run`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range. An error is also
            raised if the state belongs to a different stream or sender. A missing state is an error
            if a worker with this name has saved a state before. An error is also raised if a
            changed setting or a missing journal prevents the worker from repeating the messages
            that were sent after the state was saved.
        RuntimeError: another process uses the state. The error is a ReplacedError if the other
            process has just taken over the state.
        ConnectionError: no broker answers.

    Example:
        >>> import tempfile
        >>> import pyarrow as pa
        >>> from mindspore_rec.stream import ArrowFormat, DataReceiver, MemoryTopic, StopWhen
        >>> from mindspore_rec.stream import Category, FeaturePipeline, StreamSource, pack
        >>> raw, features = MemoryTopic(topic="raw"), MemoryTopic()
        >>> _ = raw.append(pack(pa.table({"user": ["ann", "bob"]})))
        >>> source = StreamSource(raw.client(), ArrowFormat(), 2, stop=StopWhen(batches=1))
        >>> dataset = StreamingDataset(source, FeaturePipeline({"ids": Category("user")}))
        >>> worker = FeatureWorker(
        ...     dataset, DataSender(features, sender_name="w"), tempfile.mkdtemp() + "/state"
        ... )
        >>> worker.run()
        1
        >>> with DataReceiver(features, batch_size=2) as receiver:
        ...     next(receiver)["ids"].type
        FixedSizeListType(fixed_size_list<item: int64>[1])
    """

    def __init__(
        self,
        dataset: StreamingDataset,
        sender: DataSender,
        state_path: str | os.PathLike[str],
        save_seconds: float = 1.0,
    ) -> None:
        if not isinstance(dataset, StreamingDataset):
            raise TypeError(f"dataset must be a StreamingDataset, got {type(dataset).__name__}")
        if not isinstance(sender, DataSender):
            raise TypeError(f"sender must be a DataSender, got {type(sender).__name__}")
        self._save_seconds = check_number("save_seconds", save_seconds)
        if self._save_seconds < 0:
            raise ValueError(f"save_seconds must be at least 0, got {save_seconds}")
        dataset.source.add_partitions_when_saved()
        self._dataset = dataset
        self._sender = sender
        self._path = Path(state_path)
        if not self._path.parent.is_dir():
            raise ValueError(f"state_path must be in a directory that is there, got {state_path}")
        self.interrupted = False
        self._life = uuid.uuid4().hex
        self._journaled = False
        self._sent = (0, 0)  # batches sent as a whole, and the number of the message after them
        self._until = -1  # number of the last message that is repeated by old settings
        self._then: dict[str, Any] | None = None  # settings after that message
        self._checked = time.monotonic()  # when no other worker had taken over
        self._lock: FileLock | None = _locked(self._path)
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        """Become the only worker of the state, and resume from the state."""
        sender, path = self._sender, self._path
        if path.exists():
            _read_state(path)  # an error before anything is changed
        elif sender.claims.has_state():
            raise ValueError(
                f"state_path must be the state of the worker that has sent as "
                f"{sender.sender_name!r}, and there is no {path}: receivers would drop messages "
                "with the numbers of those that they have. Put the state back, or choose another "
                "sender_name, which sends everything anew"
            )
        # After `take_over`, receivers ignore new messages of earlier workers on all hosts, and
        # these workers can change neither the state nor the journal.
        sender.take_over()
        source = self._dataset.source
        journal = source.journal_path or path.with_name(f"{path.name}.journal")
        for each in (path, journal):
            _remove_partials(each)
        state = _read_state(path) if path.exists() else None
        lost = state is not None and state.get("journal", False) and not journal.exists()
        try:
            self._journaled = source.keep_decisions(journal, sender.check_owner)
        except FileNotFoundError:
            sender.check_owner()
            raise
        if state is not None:
            self._resume(state, lost)
            return
        self._sent = (self._dataset.batches, sender.next)
        self.save()
        sender.claims.keep_state()

    def _resume(self, state: Mapping[str, Any], lost: bool) -> None:
        """Resume from a saved state.

        Args:
            state: the state that `save` wrote.
            lost: True if the journal's file is missing.
        """
        dataset, sender = self._dataset, self._sender
        before, place = state.get("settings", {}), state["sender"]
        sender.load_state_dict({**place, "settings": {}})  # what has changed is looked at here
        now, last = self._settings(), sender.last
        if last >= sender.next and _changed(before, now):
            self._until, self._then = last, now
            self._apply({**now, **before})
        dataset.load_state_dict(state["dataset"])
        self._sent = (dataset.batches, sender.next)
        changed = _changed(before, self._settings())
        fixed = [name for name in changed if name not in _REPEATED]
        source, journaled = dataset.source, state.get("journal", False)
        lost = lost or (source.lacks_decisions if journaled else source.lacks_decisions_by_time)
        if lost and "ends" not in place:  # of version 0.1
            last = sender.last_after(place)
        if last >= sender.next:
            self._check_repeatable(last, lost, {name: before[name] for name in fixed})
        elif changed:
            self.save()  # before messages by other settings are sent

    def _check_repeatable(self, last: int, lost: bool, fixed: Mapping[str, Any]) -> None:
        """Check that the worker can repeat all sent messages unchanged.

        Args:
            last: sequence number of the last sent message.
            lost: True if the journal lacks decisions.
            fixed: old values of the changed settings. The settings must keep the old values until
                the messages are repeated.
        """
        number, source = self._sender.next, self._dataset.source
        sent = f"messages {number} to {last} were sent after the state in {self._path} was saved"
        if lost:
            raise ValueError(
                f"journal must have the decisions of the worker before, and {source.journal_path} "
                f"lacks some: {sent}, and cannot be repeated as they were. Put the file back; or "
                "begin anew, with another sender_name and state_path, at offsets of your choice"
            )
        for name, value in fixed.items():
            raise ValueError(
                f"{name} must be {value!r}, as the worker before had it, got "
                f"{self._settings().get(name)!r}: {sent}, and are to be repeated as they were. Run "
                "it once more with the old value, end it by Ctrl-C or SIGTERM, and then change it"
            )

    def _settings(self) -> dict[str, Any]:
        return {**self._dataset.source.settings, **self._sender.settings}

    def _apply(self, settings: Mapping[str, Any]) -> None:
        self._dataset.source.batch_by(settings["batch_size"], settings["turn_messages"])
        self._sender.apply(settings)

    def run(self) -> int:
        """Send batches until the stream ends or a signal arrives; return the count of batches.

        The state is saved when `run` ends. After a signal, `run` sends the current batch and then
        ends. A second signal raises KeyboardInterrupt.

        Raises:
            ReplacedError: another worker has taken over the state.
            RuntimeError: this worker has already run, or messages could not be written to the
                channel.
            Exception: an error of the stream or the transform. The next worker repeats all messages
                that this worker sent after saving the state.
        """
        self._check_lock()
        try:
            with Interruption("this batch") as interruption:
                sent = self._work(interruption)
                self.save()
            self.interrupted = interruption.requested
        finally:
            self.close()
        return sent

    def _work(self, interruption: Interruption) -> int:
        source = self._dataset.source
        saved = time.monotonic()

        def look() -> None:
            if interruption.requested:
                raise ReadGivenUpError
            self._check_owner()
            may_save = self._then is None and time.monotonic() >= saved + self._save_seconds
            if may_save and source.partitions_wait:
                raise ReadLaterError

        sent = 0
        while not interruption.requested:
            try:
                with waiting(look):
                    batch = next(self._dataset)
            except (StopIteration, ReadGivenUpError):
                break
            except ReadLaterError:  # nothing else comes but in partitions that the state must have
                self.save()
                saved = time.monotonic()
                continue
            self._sender.send(dict(zip(self._dataset.column_names, batch, strict=True)))
            self._sent = (self._dataset.batches, self._sender.next)
            sent += 1
            repeated = self._then is not None and self._sender.next > self._until
            if repeated and self._then is not None:
                self._apply(self._then)
                self._then = None
            # Save the new settings in the state before the first message with the new settings is
            # sent.
            if repeated or time.monotonic() >= saved + self._save_seconds:
                self.save()
                saved = time.monotonic()
            self._check_owner()
        return sent

    def _check_owner(self) -> None:
        """Check, at most once per second, that no other worker has taken over."""
        if time.monotonic() >= self._checked + _CHECK_SECONDS:
            self._sender.check_owner()
            self._checked = time.monotonic()

    def save(self) -> None:
        """Wait until all sent messages are in the channel, and then save the state.

        Raises:
            ReplacedError: another worker has taken over the state.
            RuntimeError: messages could not be written to the channel, or this worker has ended.
        """
        self._check_lock()
        self._dataset.source.add_waiting_partitions()
        batches, number = self._sent
        if self._sender.next != number:
            raise RuntimeError("a batch was sent in part: the state stays as of an earlier one")
        state = {
            "sender": self._sender.state_dict(),
            "dataset": self._dataset.state_dict(batches=batches),
            "settings": self._settings(),
            "journal": self._journaled,
        }
        # A new worker removes the partial files of earlier workers, so that an earlier worker
        # cannot rename its partial file and replace the new worker's state.
        beside = self._path.with_name(f".{self._path.name}.{self._life}.partial")
        with open(beside, "w", encoding="utf-8") as file:
            file.write(json.dumps(state))
            file.flush()
            os.fsync(file.fileno())
        self._sender.check_owner()
        try:
            os.replace(beside, self._path)
        except FileNotFoundError:
            self._sender.check_owner()
            raise
        sync(self._path.parent)

    def close(self) -> None:
        """Release the state for other workers, as `run` does at its end."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _check_lock(self) -> None:
        if self._lock is None:
            raise RuntimeError(
                "this worker has ended: make a new one, which goes on from its state"
            )

    def __enter__(self) -> FeatureWorker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _locked(path: Path) -> FileLock:
    """Lock a state, and return the lock.

    Raises:
        RuntimeError: another process holds the lock.
    """
    try:
        return FileLock(path.with_name(f".{path.name}.lock"))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        raise RuntimeError(
            f"another feature worker works with {path}: each needs a state_path and a sender_name "
            "of its own"
        ) from None


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings that have changed."""
    return [name for name in now if name in before and before[name] != now[name]]


def _remove_partials(path: Path) -> None:
    """Remove the incomplete copies of the file `path` that earlier workers left."""
    names = re.compile(rf"\.{re.escape(path.name)}(\.[0-9a-f]{{32}})?\.partial")
    for name in os.listdir(path.parent):
        if names.fullmatch(name):
            (path.parent / name).unlink(missing_ok=True)


def _read_state(path: Path) -> dict[str, Any]:
    """Read the state of a worker from a file.

    Raises:
        ValueError: `FeatureWorker.save` did not write the file.
    """
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # of the text's encoding, or of JSON
        raise ValueError(f"{path} is not the state of a feature worker: {error}") from error
    if not isinstance(state, dict) or not {"sender", "dataset"} <= state.keys():
        raise ValueError(f"{path} is not the state of a feature worker: it has {state!r:.80}")
    return state
