# SPDX-License-Identifier: Apache-2.0
"""The disk of the simulation sees what `pathlib` does from Python 3.11 on: before, it kept the
functions of `os` as they were when it was imported."""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    collect_ignore_glob = ["test_*.py"]
