# SPDX-License-Identifier: Apache-2.0
"""Write a network as MindIR: `python -m mindspore_rec.serving.mindir --help`."""

import sys
from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.train.export.mindir import export_mindir as export_mindir
    from mindspore_rec.train.export.mindir_command import main as main
else:
    __getattr__, __dir__, __all__ = lazily(__name__)

if __name__ == "__main__":
    from mindspore_rec.train.export.mindir_command import main

    sys.exit(main())
