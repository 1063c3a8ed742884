# SPDX-License-Identifier: Apache-2.0
"""Parts of `benchmarks/next_item.py`, and programs that train networks over histories."""
