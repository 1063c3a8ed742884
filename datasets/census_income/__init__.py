# SPDX-License-Identifier: Apache-2.0
"""Census-Income (KDD): 199,523 training and 99,762 test rows, two tasks."""

from datasets.census_income.data import CensusData, Split, load

__all__ = ["CensusData", "Split", "load"]
