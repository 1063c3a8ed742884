# SPDX-License-Identifier: Apache-2.0
"""Workers that do steps; after ten of them worker 1 fails in the way that the argument says."""

import os
import signal
import sys
import threading
import time

from mindspore_rec.parallel import worker_group


def fail(how):
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "fault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif how == "exception":
        raise ValueError("a bad row")
    elif how == "exit 3":
        sys.exit(3)
    elif how == "raise exit 5":
        raise SystemExit(5)
    elif how == "exit 0":
        sys.exit(0)
    elif how == "abort":
        worker_group().abort("the disk is full")
    elif how == "hang":
        time.sleep(1000)
    elif how == "exception beside a thread that waits":
        threading.Thread(target=worker_group().channel("checkpoint").barrier).start()
        raise ValueError("a bad row")
    elif how == "fewer steps":
        return True
    return False


def main():
    group = worker_group()
    for step in range(20):
        if step == 10 and group.rank == 1 and fail(sys.argv[1]):
            break
        group.begin_step(step, [1] * group.size)
        group.channel("step").all_gather(b"x")


if __name__ == "__main__":
    main()
