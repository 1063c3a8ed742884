# SPDX-License-Identifier: Apache-2.0
"""Write a network as MindIR: `python -m mindspore_rec.serving.mindir --help`."""

import sys
from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily
from mindspore_rec.train.export.mindir_command import main as main

if TYPE_CHECKING:
    from mindspore_rec.train.export.mindir import export_mindir as export_mindir
else:
    __getattr__, __dir__ = lazily(
        __name__, {"mindspore_rec.train.export.mindir": ["export_mindir"]}
    )

if __name__ == "__main__":
    sys.exit(main())
