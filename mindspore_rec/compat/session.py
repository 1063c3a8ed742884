# SPDX-License-Identifier: Apache-2.0
"""`init` and `terminate`: start and end a session with settings for all tables of a run."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.old_names import refuse_arguments
from mindspore_rec.common.parallel.group import worker_group
from mindspore_rec.train.graph.operators import get_num_threads, set_num_threads
from mindspore_rec.train.parameter.table_config import MAX_SEED
from mindspore_rec.train.parameter.table_parameter import TableParameter

__all__ = ["Session", "adopt", "default_seed", "init", "terminate"]


@dataclass(frozen=True, eq=False)
class Session:
    """Settings of a session; the end of the session's `with` block calls `terminate`.

    Attributes:
        use_dynamic_expansion: always True.
        num_threads: number of threads of the tables' operators.
        seed: seed of the tables that `create_table` makes without `seed=`.
        rank: index of this worker, 0 to `size` - 1; 0 without a launcher.
        size: number of workers; 1 without a launcher.
        host: host name of this worker.
    """

    use_dynamic_expansion: bool
    num_threads: int
    seed: int
    rank: int
    size: int
    host: str
    _threads_before: int = field(repr=False)
    _tables: list[weakref.ref[TableParameter]] = field(default_factory=list, repr=False)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: Any) -> None:
        if _current is self:  # the block may have called terminate() itself
            terminate()


_current: Session | None = None


def init(
    *,
    use_dynamic_expansion: bool = True,
    num_threads: int | None = None,
    seed: int = 0,
    **unknown: Any,
) -> Session:
    """Start a session, and set the default seed of `create_table` and the number of threads.

    A session is optional: without a session, tables have seed 0 and the number of threads from
    `set_num_threads`. There is at most one session at a time. Under a launcher (`python -m
    mindspore_rec.launch`), the session has the rank of this worker. If one worker calls `init`, all
    workers must call `init`.

    Args:
        use_dynamic_expansion: must be True, because every table grows as keys arrive.
        num_threads: number of threads of the tables' operators, 1 to 1024; `terminate` restores the
            number that was set before the session. Default: unchanged.
        seed: seed of the tables that `create_table` makes without `seed=`, 0 to 2**64 - 1.
            Default: 0.
        **unknown: any other argument raises TypeError; for an option of Rec SDK, the message names
            the replacement.

    Returns:
        The session, a context manager that calls `terminate` at its end.

    Raises:
        RuntimeError: a session is already open.
        TypeError: an option is unknown or of the wrong type.
        ValueError: an option is out of range.
        WorkerError: this process is one of a launcher's workers, and the workers cannot connect to
            each other.

    The function corresponds to `mx_rec.util.initialize.init` in Rec SDK.

    Example:
        >>> import mindspore as ms
        >>> import mindspore_rec
        >>> with mindspore_rec.init(seed=7) as session:
        ...     table = mindspore_rec.create_table(ms.int64, 4, "doc.init", "normal")
        ...     print(session.seed, table.seed)
        7 7
        >>> session.rank, session.size
        (0, 1)
    """
    global _current
    refuse_arguments("init", unknown, "use_dynamic_expansion, num_threads and seed")
    if _current is not None:
        raise RuntimeError("init was called twice: call terminate() to end the session before")
    if not isinstance(use_dynamic_expansion, bool):
        raise TypeError(f"use_dynamic_expansion must be a bool, got {use_dynamic_expansion!r}")
    if not use_dynamic_expansion:
        raise ValueError(
            "use_dynamic_expansion must be True: tables grow as keys arrive and have no capacity "
            "that could be exceeded. To bound a table, give create_table "
            "eviction=Eviction(max_rows=N)"
        )
    seed = check_int("seed", seed, 0, MAX_SEED)
    group = worker_group()
    before = get_num_threads()
    threads = before if num_threads is None else check_int("num_threads", num_threads, 1, 1024)
    set_num_threads(threads)
    _current = Session(
        use_dynamic_expansion, threads, seed, group.rank, group.size, group.host, before
    )
    return _current


def terminate() -> None:
    """End the session: close the tables of `create_table`, and restore the number of threads.

    Closing a table frees its rows and its name; later uses of the table raise `TableClosedError`.
    To keep the rows, save a checkpoint first.

    Raises:
        RuntimeError: no session is open.

    The function corresponds to `mx_rec.util.initialize.terminate_config_initializer` in Rec SDK.

    Example:
        >>> import mindspore_rec
        >>> _ = mindspore_rec.init()
        >>> mindspore_rec.terminate()
    """
    global _current
    if _current is None:
        raise RuntimeError("terminate was called without a session: call init() first")
    session, _current = _current, None
    set_num_threads(session._threads_before)
    for reference in session._tables:
        table = reference()
        if table is not None:
            table.sync()  # PyNative may still run operators on it
            table.close()


def default_seed() -> int:
    """Return the seed of the session, or 0 without a session."""
    return 0 if _current is None else _current.seed


def adopt(table: TableParameter) -> None:
    """If a session is open, register a table, so that the end of the session closes the table."""
    if _current is not None:
        _current._tables.append(weakref.ref(table))
