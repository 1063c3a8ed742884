# SPDX-License-Identifier: Apache-2.0
"""Criteo's Kaggle display advertising data: 45,840,617 rows, 13 counts, 26 categories, a click."""
