# SPDX-License-Identifier: Apache-2.0
"""Train DCN-V2: ``python -m models.dcn_v2.train --help``."""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only

import sys

from models.common.commands import train_command
from models.dcn_v2.config import MODEL

if __name__ == "__main__":
    sys.exit(train_command(MODEL))
