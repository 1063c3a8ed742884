# SPDX-License-Identifier: Apache-2.0
"""The launcher: `python -m mindspore_rec.launch --help`."""

import sys

from mindspore_rec.common.launch.command import main

if __name__ == "__main__":
    sys.exit(main())
