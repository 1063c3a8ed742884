# SPDX-License-Identifier: Apache-2.0
"""Command of the server: `python -m mindspore_rec.serving --help`."""

from mindspore_rec.serve.main import run

if __name__ == "__main__":
    run()
