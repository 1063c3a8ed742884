# SPDX-License-Identifier: Apache-2.0
"""Train Wide & Deep: ``python -m models.wide_deep.train --help``."""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only

import sys

from models.common.commands import train_command
from models.wide_deep.config import MODEL

if __name__ == "__main__":
    sys.exit(train_command(MODEL))
