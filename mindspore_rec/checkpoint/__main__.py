# SPDX-License-Identifier: Apache-2.0
"""Commands on checkpoints: `python -m mindspore_rec.checkpoint --help`."""

import sys

from mindspore_rec.common.run.command import main

if __name__ == "__main__":
    sys.exit(main())
