# SPDX-License-Identifier: Apache-2.0
"""Workers of a job as threads of one process, each with its team for checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mindspore_rec.common.run.team import Team
from tests.parallel import loop_workers

__all__ = ["run_workers"]

T = TypeVar("T")


def run_workers(workers: int, work: Callable[[Team], T]) -> list[T | BaseException]:
    """Call a function in a thread of each worker; return the results, or what was raised."""
    return [
        *loop_workers.run_workers(
            workers, lambda group: work(Team(group, patient=workers % 2 == 0))
        )
    ]
