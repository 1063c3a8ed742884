# SPDX-License-Identifier: Apache-2.0
"""Criteo's click data: 13 counts, 26 categories, and a click label.

The Kaggle set has 45,840,617 rows, and the terabyte set has about 4.4 billion rows.
"""
