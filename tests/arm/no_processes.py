# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest that skips each test at the moment when it starts another Python program.

A program that qemu runs cannot start another program for Arm.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

_start = subprocess.Popen.__init__


def _refuse(self: Any, command: Any, *arguments: Any, **options: Any) -> None:
    if isinstance(command, (list, tuple)) and str(command[0]) == sys.executable:
        pytest.skip("starts another program for Arm")
    _start(self, command, *arguments, **options)


subprocess.Popen.__init__ = _refuse  # type: ignore[method-assign, assignment]
