# SPDX-License-Identifier: Apache-2.0
"""The tasks on real data and the learners that `beside_trees.py` compares."""
