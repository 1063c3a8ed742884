# SPDX-License-Identifier: Apache-2.0
"""Evaluate a saved SASRec: ``python -m models.sasrec.eval --help``."""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only

import sys

from models.common.history_model import evaluate_command
from models.sasrec.config import MODEL

if __name__ == "__main__":
    sys.exit(evaluate_command(MODEL))
