# SPDX-License-Identifier: Apache-2.0
"""Commands that work on checkpoints: `python -m mindspore_rec.checkpoint --help`."""

from mindspore_rec.common.run.command import run

if __name__ == "__main__":
    run()
