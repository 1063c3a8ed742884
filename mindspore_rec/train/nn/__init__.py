# SPDX-License-Identifier: Apache-2.0
"""Cells: embeddings over tables, and blocks of models."""
