# SPDX-License-Identifier: Apache-2.0
"""Settings that must be the same on all workers."""

from __future__ import annotations

from collections.abc import Mapping

from mindspore_rec.common.parallel.agreed_error import raise_on
from mindspore_rec.common.parallel.channel import Group

__all__ = ["check_same"]

_MISSING = "not there"


def check_same(group: Group, settings: Mapping[str, str]) -> None:
    """Raise an error if the settings of some worker differ from the settings of worker 0.

    All workers must call this function in their main threads.

    Args:
        group: all workers.
        settings: maps the name of each setting of this worker to the setting's value as text.

    Raises:
        ValueError: a setting differs, or only one of two workers has it. The message names the
            setting and the worker. The worker with the different setting raises the error first.

    Example:
        >>> from mindspore_rec.common.parallel.group import worker_group
        >>> check_same(worker_group(), {"learning_rate of the optimizer": "0.1"})
    """
    first, *others = group.all_gather_json(dict(settings))
    for worker, other in enumerate(others, 1):
        for name in first | other:
            one, two = first.get(name, _MISSING), other.get(name, _MISSING)
            if one != two:
                message = (
                    f"{name} must be the same on all workers: got {two:.300} on worker {worker} "
                    f"and {one:.300} on worker 0"
                )
                raise_on(group.rank, worker, ValueError(message))
