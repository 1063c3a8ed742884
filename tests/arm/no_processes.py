# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest that skips each test at the moment when it starts another Python program.

Under the emulator, each start of Python takes long. The plugin is for `-p` alone: pytest also
imports this file to look for doctests, which changes nothing.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest


def pytest_configure() -> None:
    """Replace the start of programs, in a run that has this plugin."""
    start = subprocess.Popen.__init__

    def refuse(self: Any, command: Any, *arguments: Any, **options: Any) -> None:
        if isinstance(command, (list, tuple)) and str(command[0]) == sys.executable:
            pytest.skip("starts another program for Arm")
        start(self, command, *arguments, **options)

    subprocess.Popen.__init__ = refuse  # type: ignore[method-assign, assignment]
