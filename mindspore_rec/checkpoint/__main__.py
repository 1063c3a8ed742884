# SPDX-License-Identifier: Apache-2.0
"""Commands on checkpoints: `python -m mindspore_rec.checkpoint --help`."""

from mindspore_rec.common.run.command import run

if __name__ == "__main__":
    run()
