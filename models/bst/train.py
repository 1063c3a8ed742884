# SPDX-License-Identifier: Apache-2.0
"""Train BST: ``python -m models.bst.train --help``."""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only

import sys

from models.bst.config import MODEL
from models.common.history_model import train_command

if __name__ == "__main__":
    sys.exit(train_command(MODEL))
