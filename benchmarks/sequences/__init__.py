# SPDX-License-Identifier: Apache-2.0
"""Tasks, baselines and figures of `benchmarks/next_item.py`."""
