# SPDX-License-Identifier: Apache-2.0
"""Commands on an SSD tier's directory: `python -m mindspore_rec.ssd --help`."""

import sys

from mindspore_rec.common.tiers.ssd_command import main

if __name__ == "__main__":
    sys.exit(main())
