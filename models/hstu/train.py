# SPDX-License-Identifier: Apache-2.0
"""Train HSTU: ``python -m models.hstu.train --help``."""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only

import sys

from models.common.history_model import train_command
from models.hstu.config import MODEL

if __name__ == "__main__":
    sys.exit(train_command(MODEL))
