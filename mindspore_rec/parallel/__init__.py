# SPDX-License-Identifier: Apache-2.0
"""Workers: processes of one job that train together, and what they tell each other.

`python -m mindspore_rec.launch -n 4 train.py` starts them; docs/parallel.md says how.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec._native import WorkerError
    from mindspore_rec.common.parallel.group import WorkerGroup, worker_group
else:  # the launcher uses modules of this package, and no MindSpore
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "mindspore_rec._native": ["WorkerError"],
            "mindspore_rec.common.parallel.group": ["WorkerGroup", "worker_group"],
        },
    )

__all__ = ["WorkerError", "WorkerGroup", "worker_group"]
