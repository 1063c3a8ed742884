# SPDX-License-Identifier: Apache-2.0
"""Follow a run: look for new checkpoints again and again, and apply them."""

from __future__ import annotations

import logging
import threading

from mindspore_rec.serve.following.followed_run import FollowedRun

__all__ = ["follow"]

logger = logging.getLogger("mindspore_rec")


def follow(
    run: FollowedRun,
    poll_seconds: float,
    awake: threading.Event,
    closed: threading.Event | None = None,
) -> None:
    """Apply the checkpoints of a run as they appear.

    Whatever fails, the last good state answers and the next look tries again; repeated failures
    with the same message are logged once.

    Args:
        run: the run.
        poll_seconds: seconds between two looks at its directory.
        awake: ends the wait for the next look when it is set.
        closed: ends the function when it is set. Default: it never returns.
    """
    last_error = ""
    while closed is None or not closed.is_set():
        awake.clear()
        try:
            run.catch_up()
            run.pulse.beat()
            last_error = ""
        except Exception as error:
            if str(error) != last_error:
                logger.warning("following %s failed", run.path, exc_info=True)
            last_error = str(error)
            run.pulse.beat()  # it looked, and status().error says what is wrong
        awake.wait(poll_seconds)
