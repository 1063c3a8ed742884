# SPDX-License-Identifier: Apache-2.0
"""Workers: processes of one job that train together, and what they tell each other.

`python -m mindspore_rec.launch -n 4 train.py` starts them; docs/parallel.md says how.
"""

from mindspore_rec._native import WorkerError
from mindspore_rec.parallel.group import WorkerGroup, worker_group

__all__ = ["WorkerError", "WorkerGroup", "worker_group"]
