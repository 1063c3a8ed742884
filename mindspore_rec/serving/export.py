# SPDX-License-Identifier: Apache-2.0
"""Write a network as ONNX: `python -m mindspore_rec.serving.export --help`."""

import sys
from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.train.export.onnx_command import main as main
    from mindspore_rec.train.export.write_network import write_network as write_network
else:
    __getattr__, __dir__, __all__ = lazily(__name__)

if __name__ == "__main__":
    from mindspore_rec.train.export.onnx_command import main

    sys.exit(main())
