# SPDX-License-Identifier: Apache-2.0
"""Workers: processes that train one model together, and the communication between workers.

`python -m mindspore_rec.launch -n 4 train.py` starts four workers; docs/parallel.md gives the
details.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec._native import WorkerError as WorkerError
    from mindspore_rec.common.parallel.group import (
        WorkerGroup as WorkerGroup,
        worker_group as worker_group,
    )
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
