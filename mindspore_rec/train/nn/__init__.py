# SPDX-License-Identifier: Apache-2.0
"""Cells: lookups of embedding tables, and building blocks of models."""
