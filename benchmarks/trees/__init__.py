# SPDX-License-Identifier: Apache-2.0
"""Tasks on real data, and the learners that `beside_trees.py` compares on them."""
