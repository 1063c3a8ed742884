# SPDX-License-Identifier: Apache-2.0
"""Set up one run over a log: an index of the log's keys and a progress bar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from tqdm import tqdm

from mindspore_rec.plan.index import KeyIndex
from mindspore_rec.plan.log import KeyLog

__all__ = ["dry_run"]


@contextmanager
def dry_run(
    log: KeyLog, batch_size: int, count_first: bool, progress: bool
) -> Iterator[tuple[KeyIndex, Any]]:
    """Yield an index for the log's keys and a progress bar for one run over the log.

    Args:
        log: the log.
        batch_size: number of log rows to read at a time.
        count_first: whether to read the whole log before the run, so that the index already has all
            keys when the run starts.
        progress: True shows the bar if standard error is a terminal; False never shows the bar.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/log.csv"
        >>> _ = open(path, "w").write("item\\n7\\n8\\n7\\n")
        >>> with dry_run(KeyLog([path], ["item"]), 1, True, False) as (index, bar):
        ...     index.size
        2
    """
    with (
        closing(KeyIndex()) as index,
        tqdm(
            total=log.size * (1 + count_first),
            unit="B",
            unit_scale=True,
            disable=None if progress else True,
        ) as bar,
    ):
        if count_first:
            bar.set_description("counting keys")
            for batch in log.batches(batch_size, bar.update):
                index.codes(batch.keys)
        bar.set_description("dry run")
        yield index, bar
