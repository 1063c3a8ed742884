# SPDX-License-Identifier: Apache-2.0
"""The server: `python -m mindspore_rec.serving --help`."""

import sys

from mindspore_rec.serve.main import main

if __name__ == "__main__":
    sys.exit(main())
