# SPDX-License-Identifier: Apache-2.0
"""Starting a training script on several workers: `python -m mindspore_rec.launch --help`.

The command finds this environment's mpirun, gives it the options that training wants, shares the
cores between the workers, and begins each line of output with the rank of its worker.
docs/parallel.md says what to expect.
"""

from mindspore_rec.common.launch.job import Job, Outcome, run
from mindspore_rec.common.launch.mpirun import mpirun_command, worker_environment

__all__ = ["Job", "Outcome", "mpirun_command", "run", "worker_environment"]
