# SPDX-License-Identifier: Apache-2.0
"""Start a training script on several workers: `python -m mindspore_rec.launch --help`.

The command finds this environment's mpirun and passes the options for training to mpirun. The
command shares the cores among the workers, and begins each output line with the rank of its worker.
The page docs/parallel.md describes the use of the command.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.common.launch.job import Job as Job, Outcome as Outcome, run as run
    from mindspore_rec.common.launch.mpirun import (
        mpirun_command as mpirun_command,
        worker_environment as worker_environment,
    )
else:
    __getattr__, __dir__, __all__ = lazily(__name__)

if __name__ == "__main__":
    import sys

    from mindspore_rec.common.launch.command import main

    sys.exit(main())
