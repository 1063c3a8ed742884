# SPDX-License-Identifier: Apache-2.0
"""HSTU, the hierarchical sequential transduction unit (Zhai et al., 2024)."""
