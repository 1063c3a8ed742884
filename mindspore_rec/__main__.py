# SPDX-License-Identifier: Apache-2.0
"""The command `mindspore-rec` as a module: `python -m mindspore_rec --help`."""

import sys

from mindspore_rec.command.main import main

if __name__ == "__main__":
    sys.exit(main())
