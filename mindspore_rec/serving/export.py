# SPDX-License-Identifier: Apache-2.0
"""Write a network as ONNX: `python -m mindspore_rec.serving.export --help`."""

import sys

from mindspore_rec.train.export.onnx_command import main as main

if __name__ == "__main__":
    sys.exit(main())
