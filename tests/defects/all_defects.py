# SPDX-License-Identifier: Apache-2.0
"""All defects, by number."""

from __future__ import annotations

from tests.defects.entry import Defect
from tests.defects.outside import OUTSIDE
from tests.defects.processes import PROCESSES
from tests.defects.rows import ROWS

__all__ = ["DEFECTS"]

DEFECTS: dict[int, Defect] = {each.number: each for each in [*ROWS, *PROCESSES, *OUTSIDE]}
