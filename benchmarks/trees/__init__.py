# SPDX-License-Identifier: Apache-2.0
"""Tasks on real data, and learners, for the comparison in `beside_trees.py`."""
